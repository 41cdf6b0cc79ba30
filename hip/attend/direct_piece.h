/* What a block of a direct kernel knows of its piece, and where its waves find the K and V of it:
 * piece.h has what all kernels have, here are its rows, and the tiles of reproducible mode. All of
 * that is in shared memory, where one thread writes it between barriers; the loop over tiles does
 * not look at it. */
#ifndef TA_HIP_DIRECT_PIECE_H
#define TA_HIP_DIRECT_PIECE_H

#include "piece.h"

/* A row of the piece. One that the group does not have sees nothing and has token -1. */
struct ta_direct_row {
    ta_visible sees; /* tokens of the piece, as local positions */
    int32_t token;   /* query token of the sequence */
    int32_t position;
    float slope;
};

/* `first` is a multiple of 16 unless tiles are not. */
struct ta_direct_piece : ta_block_piece {
    ta_direct_row rows[TA_PIECE_ROWS];
    ta_visible row_ends[2]; /* what the first and the last query token of the group see */
    ta_share_scratch scratch;
};

/* The tokens and records of tile `tile` of reproducible mode; false if nothing of it is seen. */
TA_DEVICE bool ta_find_tile(const ta_direct_params &p, int32_t tile, ta_direct_piece &b)
{
    ta_visible seen = b.walk.seen;
    ta_cut cut = ta_cut_tokens(p.problem.tally_tile, p.tiles, seen.first, seen.end);
    int64_t first = cut.first + static_cast<int64_t>(tile) * cut.split_tokens;
    if (seen.first >= seen.end || first >= seen.end)
        return false;
    b.first = static_cast<int32_t>(first);
    b.end = static_cast<int32_t>(min(first + cut.split_tokens, static_cast<int64_t>(seen.end)));
    b.records =
        p.records + ta_split_record_index(p.problem, p.tiles, b.kv_head * b.heads, tile,
                                          ta_problem_first_row(&p.problem, b.walk.sequence)) *
                        p.split_floats;
    b.head_stride = p.split_floats;
    b.token_stride = static_cast<int64_t>(b.heads) * p.split_floats;
    b.records_row = 0;
    return true;
}

/* One thread: the next piece of this block; false if it has no more. */
TA_DEVICE bool ta_find_piece(const ta_direct_params &p, bool again, ta_direct_piece &b)
{
    ta_piece piece = {0, 0, 0};
    int32_t number = 0, pieces = p.tiles ? p.tiles : p.share.blocks ? b.shares.pieces : 1;
    if (!ta_take_piece(p, again, pieces, b, piece, number))
        return false;
    if (p.tiles)
        return ta_find_tile(ta_params_again(p), number, b);
    ta_find_range(ta_params_again(p), piece, b);
    return number == 0 || piece.first < piece.end;
}

TA_DEVICE ta_visible ta_clip(ta_visible sees, int32_t first, int32_t end)
{
    sees.first = max(sees.first, first);
    sees.end = max(sees.first, min(sees.end, end));
    return sees;
}

/* A thread for each row, and two more for the group's first and last query token. */
TA_DEVICE void ta_find_rows(const ta_direct_params &p, ta_direct_piece &b)
{
    int32_t thread = static_cast<int32_t>(threadIdx.x);
    ta_opaque(thread); /* what follows from it is not kept from piece to piece */
    int32_t end = thread - p.share.rows;
    if (end >= 2)
        return;
    int32_t row = min(thread, b.row_count - 1);
    if (end >= 0)
        row = end == 0 ? 0 : b.row_count - 1;
    int32_t token = (b.first_row + row) / b.heads;
    int32_t position = b.length - b.query_tokens + token;
    ta_visible sees = ta_shard_visible(&p.problem.shard, b.bounds, b.length, position,
                                       p.problem.causal, p.problem.window);
    if (end >= 0) {
        b.row_ends[end] = sees;
        return;
    }
    ta_direct_row r = {ta_clip(sees, b.first, b.end), token, position, 0.0f};
    if (p.rule.alibi)
        r.slope =
            p.problem.alibi_slopes[b.kv_head * b.heads + (b.first_row + row) % b.heads] * TA_LOG2E;
    if (thread >= b.row_count) {
        r.sees.first = r.sees.end = 0;
        r.token = -1;
    }
    b.rows[thread] = r;
}

/* Every thread: the next piece of this block, the first one unless `again`; false if it has no
 * more. Begins and ends with a barrier. */
TA_DEVICE bool ta_next_piece(const ta_direct_params &p, bool again, ta_direct_piece &b)
{
    ta_syncthreads();
    if (threadIdx.x == 0)
        b.exists = ta_find_piece(p, again, b);
    ta_syncthreads();
    if (!ta_uniform(b.exists))
        return false;
    ta_find_rows(ta_params_again(p), b);
    ta_syncthreads();
    if (threadIdx.x == 0) {
        ta_visible first = b.row_ends[0], last = b.row_ends[1];
        if (!p.tiles) /* whose tokens go to the same waves whoever sees them */
            b.first = max(b.first, min(ta_share_begin(first.first), b.end));
        b.end = max(b.first, min(b.end, last.end));
        b.all_see.first = last.first;
        b.all_see.end = first.end;
    }
    ta_syncthreads();
    return true;
}

/* ---- Where a wave finds the K and V of a tile -----------------------------------------------
 *
 * ta_plain_addresses: the 16 tokens of a tile are all there and follow each other in memory, in a
 * page of a power of two or in no page; one look-up for the wave, made a tile ahead.
 * ta_any_addresses: a look-up for each token that a lane loads.
 *
 * A token that the arguments give no place, though the sequence's length says it is here, is
 * missing: its score is NaN. The caller's lengths and tables are in device memory, where nobody
 * could check them. */

/* What both need of the cache: K and V of the KV head, and without pages of the sequence. */
struct ta_direct_cache {
    const char *k, *v;
    const int32_t *pages; /* of the sequence, or NULL */
    int32_t end;          /* no token from here on has a place */
};

/* Bytes: of an element. */
template <int Bytes>
TA_DEVICE ta_direct_cache ta_find_direct_cache(const ta_direct_params &p, const ta_direct_piece &b)
{
    const ta_tensor &k = p.kv.k, &v = p.kv.v;
    int32_t sequence = ta_uniform(b.walk.sequence), head = ta_uniform(b.kv_head);
    int64_t dense = p.kv.page_table ? 0 : sequence;
    ta_direct_cache c;
    c.k =
        static_cast<const char *>(k.data) + (dense * k.batch_stride + head * k.head_stride) * Bytes;
    c.v =
        static_cast<const char *>(v.data) + (dense * v.batch_stride + head * v.head_stride) * Bytes;
    c.pages = nullptr;
    if (p.kv.page_table)
        c.pages = p.kv.page_table + sequence * p.kv.page_table_stride;
    c.end = k.data && v.data ? min(ta_uniform(b.end), p.problem.max_tokens) : 0;
    return c;
}

/* The tokens of a tile follow each other in memory. VBytes: of V that a lane loads at once. */
template <class Lanes, int VBytes, int Bytes> struct ta_plain_addresses {
    typedef Lanes lanes;
    const ta_direct_params &p;
    const ta_direct_cache &c;
    uint32_t k_lane, v_lane;     /* byte offsets of the lane's first token in a tile */
    const char *k_tile, *v_tile; /* the tile that was found last */
    int32_t page;                /* of the tile after */
    uint32_t here, at;           /* the page of k_tile, or 0, and its first token there */
    int32_t entries;             /* of the page table that may be read */

    __device__ __forceinline__ ta_plain_addresses(const ta_direct_params &params,
                                                  const ta_direct_cache &cache)
        : p(params), c(cache), k_tile(nullptr), v_tile(nullptr), page(0), here(0), at(0), entries(0)
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
        return static_cast<uint32_t>(p.kv.k.token_stride) * Bytes;
    }

    __device__ __forceinline__ uint32_t v_stride() const
    {
        return static_cast<uint32_t>(p.kv.v.token_stride) * Bytes;
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
        at = static_cast<uint32_t>(t);
        here = 0;
        if (c.pages) {
            here = static_cast<uint32_t>(ta_uniform(exists() ? page : 0));
            at &= (1u << p.page_shift) - 1;
        }
        k_tile = tile(c.k, p.kv.k);
        v_tile = tile(c.v, p.kv.v);
    }

    __device__ __forceinline__ const char *tile(const char *data, const ta_tensor &t) const
    {
        uint64_t page_stride = static_cast<uint32_t>(t.batch_stride) * Bytes;
        uint64_t token_stride = static_cast<uint32_t>(t.token_stride) * Bytes;
        return data + here * page_stride + at * token_stride;
    }

    __device__ __forceinline__ const char *k_token(int i) const
    {
        return k_tile + k_lane + static_cast<uint64_t>(lanes::k_step(i)) * k_stride();
    }

    __device__ __forceinline__ const char *v_token(int i) const
    {
        return v_tile + v_lane + static_cast<uint64_t>(lanes::v_step(i)) * v_stride();
    }

    /* Ask for 256 bytes of V of each token of the tile while registers have no room for them: a
     * line by each lane of a wave of 32, near what it will load of that token. Of rows that begin
     * inside of a line the rest is left out. */
    __device__ __forceinline__ void ask_for_v() const
    {
        uint32_t chunk = static_cast<uint32_t>(lanes::v_chunk());
        uint32_t token = static_cast<uint32_t>(lanes::v_step(static_cast<int>(chunk % 4)));
        ta_ask_for(v_tile + v_lane + token * v_stride() + chunk / 4 * 128);
    }
};

/* Ask for K of the tile at `next`, which was looked up, and look up the one after it. */
template <class W, class Addresses>
TA_DEVICE void ta_find_next(W &w, Addresses &addresses, int32_t next)
{
    if (!addresses.exists())
        w.lose_all();
    addresses.find(next);
    addresses.look_up(next + w.step);
    w.load_k(addresses);
}

/* Where a token is: in which page, or 0, and at which place in it. */
struct ta_token_place {
    int64_t page, within;
    bool has; /* one at all */
};

TA_DEVICE ta_token_place ta_find_token(const ta_direct_params &p, const ta_direct_cache &c,
                                       int32_t token)
{
    ta_token_place place = {0, token, token < c.end};
    if (c.pages && place.has) {
        uint32_t entry =
            p.plain ? static_cast<uint32_t>(token) >> p.page_shift
                    : static_cast<uint32_t>(token) / static_cast<uint32_t>(p.kv.page_tokens);
        place.within = token - static_cast<int32_t>(entry) * p.kv.page_tokens;
        place.page = entry < p.kv.page_table_stride ? ta_load_global(c.pages + entry) : -1;
        place.has = place.page >= 0 && place.page < p.kv.page_count;
    }
    return place;
}

/* Where a part of a token's K or V is; of one without a place, zeros. */
template <int Bytes>
TA_DEVICE const char *ta_token_address(const ta_token_place &at, const char *data,
                                       const ta_tensor &t, int32_t offset)
{
    if (!at.has)
        return reinterpret_cast<const char *>(ta_fills) + offset;
    return data + (at.page * t.batch_stride + at.within * t.token_stride) * Bytes + offset;
}

/* Any tile: each token of a lane is looked up by itself, and zeros are read where there is none. */
template <class Lanes, int VBytes, int Bytes> struct ta_any_addresses {
    typedef Lanes lanes;
    const char *k_tokens[lanes::k_tokens], *v_tokens[4];
    uint32_t lacking; /* a bit for each of the 4 tokens whose V this lane loads, and no place has */

    __device__ __forceinline__ ta_any_addresses(const ta_direct_params &p, const ta_direct_cache &c,
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
        ta_token_place at = ta_find_token(p, c, token);
        lacks = !at.has;
        return ta_token_address<Bytes>(at, data, t, offset);
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
