/* Where a wave of a direct kernel finds the K and V of a tile. ta_plain_places: the 16 tokens of a
 * tile are all there and follow each other in memory, in a page of a power of two or in no page;
 * one look-up for the wave, made a tile ahead. ta_any_places: a look-up for each token that a lane
 * loads.
 *
 * A token that the arguments give no place, though the sequence's length says it is here, is
 * missing: its score is NaN. The caller's lengths and tables are in device memory, where nobody
 * could check them. */
#ifndef TA_HIP_DIRECT_PLACES_H
#define TA_HIP_DIRECT_PLACES_H

#include "direct_lanes.h"
#include "direct_piece.h"

/* What both need of the cache: K and V of the KV head, and without pages of the sequence. */
struct ta_direct_cache {
    const char *k, *v;
    const int32_t *pages; /* of the sequence, or NULL */
    int32_t end;          /* no token from here on has a place */
};

TA_DEVICE ta_direct_cache ta_find_direct_cache(const ta_direct_params &p, const ta_direct_piece &b)
{
    const ta_tensor &k = p.kv.k, &v = p.kv.v;
    int32_t sequence = ta_uniform(b.walk.sequence), head = ta_uniform(b.kv_head);
    int64_t dense = p.kv.page_table ? 0 : sequence;
    ta_direct_cache c;
    c.k = static_cast<const char *>(k.data) + (dense * k.batch_stride + head * k.head_stride) * 2;
    c.v = static_cast<const char *>(v.data) + (dense * v.batch_stride + head * v.head_stride) * 2;
    c.pages = nullptr;
    if (p.kv.page_table)
        c.pages = p.kv.page_table + sequence * p.kv.page_table_stride;
    c.end = k.data && v.data ? min(ta_uniform(b.end), p.problem.max_tokens) : 0;
    return c;
}

/* The tokens of a tile follow each other in memory. VBytes: of V that a lane loads at once. */
template <int Wave, int VBytes> struct ta_plain_places {
    typedef ta_lanes<Wave> lanes;
    const ta_direct_params &p;
    const ta_direct_cache &c;
    uint32_t k_lane, v_lane;     /* byte offsets of the lane's first token in a tile */
    const char *k_tile, *v_tile; /* the tile that was found last */
    int32_t page;                /* of the tile after */
    int32_t entries;             /* of the page table that may be read */

    __device__ __forceinline__ ta_plain_places(const ta_direct_params &params,
                                               const ta_direct_cache &cache)
        : p(params), c(cache), k_tile(nullptr), v_tile(nullptr), page(0), entries(0)
    {
        k_lane = static_cast<uint32_t>(lanes::k_token(0)) * k_stride() +
                 static_cast<uint32_t>(lanes::k_chunk()) * 16;
        v_lane = static_cast<uint32_t>(lanes::v_token(0)) * v_stride() +
                 static_cast<uint32_t>(lanes::v_chunk()) * VBytes;
        if (c.pages)
            entries = static_cast<int32_t>(
                min(p.kv.page_table_stride,
                    static_cast<int64_t>((c.end + (1 << p.page_shift) - 1) >> p.page_shift)));
    }

    __device__ __forceinline__ uint32_t k_stride() const
    {
        return static_cast<uint32_t>(p.kv.k.token_stride) * 2;
    }

    __device__ __forceinline__ uint32_t v_stride() const
    {
        return static_cast<uint32_t>(p.kv.v.token_stride) * 2;
    }

    /* Ask for the page of the tile at `t`, which will be found next. */
    __device__ __forceinline__ void look_up(int32_t t)
    {
        if (!c.pages)
            return;
        int32_t entry = t >> p.page_shift;
        page = entry < entries ? ta_load_global(c.pages + entry) : -1;
    }

    /* Has the tile that will be found next a place? */
    __device__ __forceinline__ bool exists() const
    {
        return !c.pages || static_cast<uint32_t>(page) < static_cast<uint32_t>(p.kv.page_count);
    }

    /* Find the tile at `t`. If it does not exist, another that does: the first page. */
    __device__ __forceinline__ void find(int32_t t)
    {
        uint32_t at = static_cast<uint32_t>(t), here = 0;
        if (c.pages) {
            here = static_cast<uint32_t>(ta_uniform(exists() ? page : 0));
            at &= (1u << p.page_shift) - 1;
        }
        k_tile = tile(c.k, p.kv.k, here, at);
        v_tile = tile(c.v, p.kv.v, here, at);
    }

    __device__ __forceinline__ const char *tile(const char *data, const ta_tensor &t, uint32_t here,
                                                uint32_t at) const
    {
        uint64_t page_stride = static_cast<uint32_t>(t.batch_stride) * 2u;
        uint64_t token_stride = static_cast<uint32_t>(t.token_stride) * 2u;
        return data + here * page_stride + at * token_stride;
    }

    __device__ __forceinline__ const char *k_token(int i) const
    {
        return k_tile + k_lane + static_cast<uint64_t>(8 * i) * k_stride();
    }

    __device__ __forceinline__ const char *v_token(int i) const
    {
        return v_tile + v_lane + static_cast<uint64_t>(lanes::v_step(i)) * v_stride();
    }
};

/* Any tile: each token of a lane is looked up by itself, and zeros are read where there is none. */
template <int Wave, int VBytes> struct ta_any_places {
    typedef ta_lanes<Wave> lanes;
    const char *k_tokens[lanes::k_tokens], *v_tokens[4];
    uint32_t lacking; /* a bit for each of the 4 tokens whose V this lane loads, and no place has */

    __device__ __forceinline__ ta_any_places(const ta_direct_params &p, const ta_direct_cache &c,
                                             int32_t t)
        : lacking(0)
    {
        uint32_t lacks;
#pragma unroll
        for (int i = 0; i < lanes::k_tokens; i++)
            k_tokens[i] =
                address(p, c, t + lanes::k_token(i), c.k, p.kv.k, lanes::k_chunk() * 16, lacks);
        const ta_direct_params &v_params = ta_params_again(p);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            v_tokens[i] = address(v_params, c, t + lanes::v_token(i), c.v, v_params.kv.v,
                                  lanes::v_chunk() * VBytes, lacks);
            lacking |= lacks << i;
        }
    }

    static __device__ __forceinline__ const char *address(const ta_direct_params &p,
                                                          const ta_direct_cache &c, int32_t token,
                                                          const char *data, const ta_tensor &t,
                                                          int32_t offset, uint32_t &lacks)
    {
        int64_t page = 0, within = token;
        bool has = token < c.end;
        if (c.pages && has) {
            uint32_t entry =
                p.plain ? static_cast<uint32_t>(token) >> p.page_shift
                        : static_cast<uint32_t>(token) / static_cast<uint32_t>(p.kv.page_tokens);
            within = token - static_cast<int32_t>(entry) * p.kv.page_tokens;
            page = entry < p.kv.page_table_stride ? ta_load_global(c.pages + entry) : -1;
            has = page >= 0 && page < p.kv.page_count;
        }
        lacks = !has;
        if (!has)
            return reinterpret_cast<const char *>(ta_fills) + offset;
        return data + (page * t.batch_stride + within * t.token_stride) * 2 + offset;
    }

    __device__ __forceinline__ const char *k_token(int i) const
    {
        return k_tokens[i];
    }

    __device__ __forceinline__ const char *v_token(int i) const
    {
        return v_tokens[i];
    }
};

#endif
