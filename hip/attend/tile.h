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

#include "narrow.h"
#include "picks.h"

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
    ta_vec16 unit = {}; /* of 8 bits one half is used */
    for (int i = 0; i < 4; i++) {
        if constexpr (sizeof(element) == 4)
            unit.word[i] = ta_as_bits(Type::from(from[i]));
        else if constexpr (sizeof(element) == 2)
            unit.word[i] =
                static_cast<uint32_t>(from[2 * i]) | static_cast<uint32_t>(from[2 * i + 1]) << 16;
        else if (i < 2)
            unit.word[i] = static_cast<uint32_t>(from[4 * i]) |
                           static_cast<uint32_t>(from[4 * i + 1]) << 8 |
                           static_cast<uint32_t>(from[4 * i + 2]) << 16 |
                           static_cast<uint32_t>(from[4 * i + 3]) << 24;
    }
    return unit;
}

/* A unit of an aligned cache; of 8 bits it is 8 bytes. */
template <class Type> TA_DEVICE ta_vec16 ta_load_unit(const char *from)
{
    if constexpr (sizeof(typename Type::element) == 1) {
        ta_vec8 half = ta_load8_stream(from);
        return ta_vec16{{half.word[0], half.word[1], 0, 0}};
    } else {
        return ta_load16_stream(from);
    }
}

template <class Type, bool Aligned, int Units> struct ta_tiles {
    static const bool narrow = sizeof(typename Type::element) == 1;
    const ta_attend_params &params; /* see again() */
    const ta_block &b;
    char *shared;
    ta_tile_part k_part, v_part;
    ta_vec16 k_units[Units], v_units[Units];
    int32_t ahead; /* the first token of the next tile to look up */
    int32_t half;  /* which half of the addresses the tile to look up next has */
    int32_t page;  /* of this thread's token in it */

    __device__ __forceinline__ ta_tiles(const ta_attend_params &p, const ta_block &block,
                                        char *memory)
        : params(p), b(block), shared(memory)
    {
        k_part.start(p.problem.k_dim / Type::unit, p.shape.tile);
        v_part.start(p.problem.v_dim / Type::unit, p.shape.tile);
        half = 0;
    }

    /* Arguments again in each step of a tile, or they would be kept in scalar registers and
     * spilled. */
    __device__ __forceinline__ const ta_attend_params &again() const
    {
        return ta_params_again(params);
    }

    /* [2][tile] addresses of K's tokens, the same of V's, and positions. */
    __device__ __forceinline__ const char **k_addresses(const ta_attend_shape &s) const
    {
        return reinterpret_cast<const char **>(shared + s.addresses_at);
    }

    __device__ __forceinline__ const char **v_addresses(const ta_attend_shape &s) const
    {
        return k_addresses(s) + 2 * s.tile;
    }

    __device__ __forceinline__ int32_t *positions(const ta_attend_shape &s) const
    {
        return reinterpret_cast<int32_t *>(k_addresses(s) + 4 * s.tile);
    }

    /* Of 8 bits: [2][tile] scales of K, and from 2 · tile on those of V. */
    __device__ __forceinline__ float *kv_scales(const ta_attend_shape &s) const
    {
        return reinterpret_cast<float *>(shared + s.kv_scales_at);
    }

    __device__ __forceinline__ float scale_at(const ta_scales &scales, int64_t within) const
    {
        if (!scales.data)
            return 1.0f;
        int64_t block = b.pages ? page : b.source;
        return scales.data[block * scales.batch_stride + within * scales.token_stride +
                           b.kv_head * scales.head_stride];
    }

    /* The local position of a token that is not beyond the end. */
    __device__ __forceinline__ int32_t local_of(int32_t token) const
    {
        const ta_attend_params &p = again();
        if (!p.shape.picks_at)
            return token;
        return b.picked_from + ta_find_pick(ta_picks_of(p, shared), token);
    }

    /* The page of this thread's token in the tile that will be looked up next. */
    __device__ __forceinline__ void read_page()
    {
        int32_t thread = static_cast<int32_t>(threadIdx.x), token = ahead + thread;
        page = 0;
        if (!b.pages || thread >= again().shape.tile || token >= b.end)
            return;
        int32_t entry = local_of(token) / b.page_tokens;
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
        const ta_attend_shape &s = again().shape;
        int32_t thread = static_cast<int32_t>(threadIdx.x), token = ahead + thread;
        if (thread < s.tile) {
            int32_t at = half * s.tile + thread;
            bool exists = token < b.end;
            const char *k = b.fills, *v = k;
            if (exists)
                token = local_of(token);
            if constexpr (narrow) { /* a token without a place is no number, whatever its bytes */
                bool missing = exists && !has_place(token);
                kv_scales(s)[at] = missing ? NAN : 1.0f;
                kv_scales(s)[2 * s.tile + at] = 1.0f;
            }
            if (exists) {
                k = v = b.fills + sizeof(ta_fill);
                if (has_place(token)) {
                    int64_t within = b.pages ? token % b.page_tokens : token;
                    k = b.k + page * b.k_page_stride + within * b.k_token_stride;
                    v = b.v + page * b.v_page_stride + within * b.v_token_stride;
                    if constexpr (narrow) {
                        kv_scales(s)[at] = scale_at(again().kv.k_scale, within);
                        kv_scales(s)[2 * s.tile + at] = scale_at(again().kv.v_scale, within);
                    }
                }
                if (again().rule.alibi)
                    positions(s)[at] =
                        static_cast<int32_t>(ta_shard_global(&b.shard, b.bounds, token));
            }
            k_addresses(s)[at] = k;
            v_addresses(s)[at] = v;
        }
        ahead += s.tile;
        half ^= 1;
        read_page();
    }

    /* Which half of the addresses the tile that was looked up last has. */
    __device__ __forceinline__ int32_t found_at(const ta_attend_shape &s) const
    {
        return (half ^ 1) * s.tile;
    }

    __device__ __forceinline__ void load(const ta_attend_shape &s, const char **addresses,
                                         const ta_tile_part &part, ta_vec16 (&units)[Units])
    {
        const char **found = addresses + found_at(s);
#pragma unroll
        for (int i = 0; i < Units; i++) { /* without a branch: see ta_fill */
            const char *from = found[min(part.token + i * part.step, s.tile - 1)];
            int32_t offset = narrow ? part.offset / 2 : part.offset;
            units[i] =
                Aligned ? ta_load_unit<Type>(from + offset) : ta_load_elements<Type>(from + offset);
        }
    }

    /* A unit as it is in shared memory. */
    __device__ __forceinline__ ta_vec16 staged(const ta_vec16 &unit) const
    {
        if constexpr (narrow)
            return ta_widen8(ta_narrow_rule_of(again().problem.kv_dtype), unit);
        else
            return unit;
    }

    __device__ __forceinline__ void store(char *to, const ta_tile_part &part, int32_t stride,
                                          int32_t tokens, const ta_vec16 (&units)[Units])
    {
#pragma unroll
        for (int i = 0; i < Units; i++) {
            int32_t token = part.token + i * part.step;
            if (token < tokens)
                ta_store16(to + token * stride + part.offset, staged(units[i]));
        }
    }

    /* The first tile's addresses and loads. */
    __device__ __forceinline__ void begin()
    {
        ahead = ta_uniform(b.first);
        read_page();
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
        const ta_attend_shape &s = again().shape;
        load(s, k_addresses(s), k_part, k_units);
    }

    __device__ __forceinline__ void load_v()
    {
        const ta_attend_shape &s = again().shape;
        load(s, v_addresses(s), v_part, v_units);
    }

    __device__ __forceinline__ void store_k()
    {
        const ta_attend_shape &s = again().shape;
        store(shared + s.k_at, k_part, s.k_stride, s.tile, k_units);
    }

    __device__ __forceinline__ void store_v()
    {
        const ta_attend_shape &s = again().shape;
        store(shared + s.v_at, v_part, s.v_stride, s.tile, v_units);
    }

    /* Read V of the tile before the one that was looked up last again, and store it with zeros for
     * the tokens outside [first, end). */
    __device__ __forceinline__ void store_seen_v(int32_t first, int32_t end)
    {
        const ta_attend_shape &s = again().shape;
        const char **found = v_addresses(s) + half * s.tile;
#pragma unroll 1
        for (int i = 0; i < Units; i++) {
            int32_t token = v_part.token + i * v_part.step;
            if (token >= s.tile)
                break;
            const char *from = token >= first && token < end ? found[token] : b.fills;
            int32_t offset = narrow ? v_part.offset / 2 : v_part.offset;
            ta_store16(shared + s.v_at + token * s.v_stride + v_part.offset,
                       staged(ta_load_unit<Type>(from + offset)));
        }
    }
};

#endif
