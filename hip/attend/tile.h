/* Tiles of K and V on their way to shared memory, the same for both attend kernels. Loads are
 * issued one tile ahead into registers, so that memory is never idle while a tile is computed.
 * Where the tokens are is looked up once per token, by one thread, one tile further ahead.
 *
 * A tile goes by like this, with a barrier between the steps:
 *     1. store_k(), look_up()      K from registers to shared memory; the next tile's addresses
 *     2. load_k(), scores          the next tile's K is on its way
 *     3. weights, store_v()
 *     4. load_v(), sums */
#ifndef TA_HIP_TILE_H
#define TA_HIP_TILE_H

#include "rows.h"

/* Which units of one tensor's tile this thread brings: one unit of every `step`-th token. Threads
 * that are left over bring none. */
struct ta_tile_part {
    int32_t token, step;
    int32_t offset; /* bytes from a token's first unit to this one */

    __device__ __forceinline__ void start(int32_t units, int32_t none)
    {
        int32_t thread = static_cast<int32_t>(threadIdx.x);
        step = static_cast<int32_t>(blockDim.x) / units;
        token = thread / units;
        offset = thread % units * 16;
        if (token >= step)
            token = none;
    }
};

/* 16 bytes of a cache that is only aligned to its elements. */
template <class Type> TA_DEVICE ta_vec16 ta_load_elements(const char *address)
{
    typedef typename Type::element element;
    const element *from = reinterpret_cast<const element *>(address);
    ta_vec16 unit;
    for (int i = 0; i < 4; i++) {
        if (sizeof(element) == 4)
            unit.word[i] = ta_as_bits(Type::from(from[i]));
        else
            unit.word[i] =
                static_cast<uint32_t>(from[2 * i]) | static_cast<uint32_t>(from[2 * i + 1]) << 16;
    }
    return unit;
}

template <class Type, bool Aligned, int Units> struct ta_tiles {
    const ta_attend_params &p;
    const ta_block &b;
    char *shared;
    ta_tile_part k_part, v_part;
    ta_vec16 k_units[Units], v_units[Units];
    int32_t ahead; /* the first token of the next tile to look up */
    int32_t turn;  /* which half of the addresses the tile to look up next has */
    int32_t page;  /* of this thread's token in it */

    __device__ __forceinline__ ta_tiles(const ta_attend_params &params, const ta_block &block,
                                        char *memory)
        : p(params), b(block), shared(memory)
    {
        k_part.start(p.problem.k_dim / Type::unit, p.shape.tile);
        v_part.start(p.problem.v_dim / Type::unit, p.shape.tile);
        ahead = ta_uniform(b.first);
        turn = 0;
        read_page();
    }

    /* [2][tile] addresses of K's tokens, the same of V's, and positions. */
    __device__ __forceinline__ const char **k_places() const
    {
        return reinterpret_cast<const char **>(shared + p.shape.places_at);
    }

    __device__ __forceinline__ const char **v_places() const
    {
        return k_places() + 2 * p.shape.tile;
    }

    __device__ __forceinline__ int32_t *positions() const
    {
        return reinterpret_cast<int32_t *>(k_places() + 4 * p.shape.tile);
    }

    /* The page of this thread's token in the tile that will be looked up next. */
    __device__ __forceinline__ void read_page()
    {
        int32_t thread = static_cast<int32_t>(threadIdx.x), token = ahead + thread;
        page = 0;
        if (!b.pages || thread >= p.shape.tile || token >= b.end)
            return;
        int32_t entry = token / b.page_tokens;
        page = entry < b.page_entries ? ta_load_global(b.pages + entry) : -1;
    }

    /* A token that the arguments give no place, though the sequence's length says it is here, is
     * read as NaN: the caller's lengths and tables are in device memory, where nobody could check
     * them. */
    __device__ __forceinline__ bool has_place(int32_t token) const
    {
        return token < b.max_tokens && (!b.pages || (page >= 0 && page < b.page_count));
    }

    /* Write down where the tokens of the next tile are, and read the pages of the one after. Tokens
     * beyond the end are zeros. */
    __device__ __forceinline__ void look_up()
    {
        int32_t thread = static_cast<int32_t>(threadIdx.x), token = ahead + thread;
        if (thread < p.shape.tile) {
            int32_t at = turn * p.shape.tile + thread;
            const char *k = b.fills, *v = k;
            if (token < b.end) {
                k = v = b.fills + sizeof(ta_fill);
                if (has_place(token)) {
                    int64_t within = b.pages ? token % b.page_tokens : token;
                    k = b.k + page * b.k_page_stride + within * b.k_token_stride;
                    v = b.v + page * b.v_page_stride + within * b.v_token_stride;
                }
                if (p.rule.alibi)
                    positions()[at] =
                        static_cast<int32_t>(ta_shard_global(&b.shard, b.bounds, token));
            }
            k_places()[at] = k;
            v_places()[at] = v;
        }
        ahead += p.shape.tile;
        turn ^= 1;
        read_page();
    }

    /* Which half of the addresses the tile that was looked up last has. */
    __device__ __forceinline__ int32_t found_at() const
    {
        return (turn ^ 1) * p.shape.tile;
    }

    __device__ __forceinline__ void load(const char **addresses, const ta_tile_part &part,
                                         ta_vec16 (&units)[Units])
    {
        const char **found = addresses + found_at();
#pragma unroll
        for (int i = 0; i < Units; i++) { /* without a branch: see ta_fill */
            const char *from = found[min(part.token + i * part.step, p.shape.tile - 1)];
            units[i] = Aligned ? ta_load16_stream(from + part.offset)
                               : ta_load_elements<Type>(from + part.offset);
        }
    }

    __device__ __forceinline__ void store(char *to, const ta_tile_part &part, int32_t stride,
                                          const ta_vec16 (&units)[Units])
    {
#pragma unroll
        for (int i = 0; i < Units; i++) {
            int32_t token = part.token + i * part.step;
            if (token < p.shape.tile)
                ta_store16(to + token * stride + part.offset, units[i]);
        }
    }

    /* The first tile's addresses and loads. */
    __device__ __forceinline__ void begin()
    {
        look_up();
        ta_syncthreads();
        load_k();
        load_v();
    }

    /* Compute addresses again in each tile: they would fill many registers. */
    __device__ __forceinline__ void make_opaque()
    {
        ta_opaque(k_part.token);
        ta_opaque(v_part.token);
    }

    __device__ __forceinline__ void load_k()
    {
        load(k_places(), k_part, k_units);
    }

    __device__ __forceinline__ void load_v()
    {
        load(v_places(), v_part, v_units);
    }

    __device__ __forceinline__ void store_k()
    {
        store(shared + p.shape.k_at, k_part, p.shape.k_stride, k_units);
    }

    __device__ __forceinline__ void store_v()
    {
        store(shared + p.shape.v_at, v_part, p.shape.v_stride, v_units);
    }

    /* Read V of the tile before the one that was looked up last again, and store it with zeros for
     * the tokens outside [first, end). */
    __device__ __forceinline__ void store_seen_v(int32_t first, int32_t end)
    {
        const char **found = v_places() + turn * p.shape.tile;
#pragma unroll 1
        for (int i = 0; i < Units; i++) {
            int32_t token = v_part.token + i * v_part.step;
            if (token >= p.shape.tile)
                break;
            const char *from = token >= first && token < end ? found[token] : b.fills;
            ta_store16(shared + p.shape.v_at + token * p.shape.v_stride + v_part.offset,
                       ta_load16_stream(from + v_part.offset));
        }
    }
};

#endif
