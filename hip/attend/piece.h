/* Equal shares as a block of an attend kernel takes them: shares.h applied to the lengths, which
 * are in device memory. Finds the pieces of the block, one after the other, and for each its rows,
 * its tokens and where its records go. Everything is in shared memory, where one thread writes it
 * between barriers. Params are ta_direct_params or ta_attend_params; direct_piece.h and
 * block_piece.h add what their kernels want to know of a piece. */
#ifndef TA_HIP_PIECE_H
#define TA_HIP_PIECE_H

#include "rows.h" /* first: it says what TA_INLINE is for the header below */

#include "shares.h"

/* Where in the row of all items a block is. */
struct ta_item_walk {
    int64_t start;          /* of the sequence's first item */
    int64_t from, to;       /* the block's part */
    int32_t sequence, item; /* the item within the sequence; -1: the first that the part has */
    int32_t items;          /* of the sequence */
    int32_t tiles;          /* of each of them; -1: not counted yet */
    ta_visible seen;        /* by all queries of the sequence */
};

/* What a block works on. */
struct ta_block_piece {
    ta_item_walk walk;
    ta_shares shares;
    int32_t kv_head, first_row, row_count, heads, length, query_tokens;
    const int32_t *bounds;
    int32_t first, end;   /* local positions */
    ta_visible all_see;   /* by every row */
    int32_t exists;       /* 0: the block has no more */
    int32_t begins, ends; /* its item */
    float *records;       /* of row 0 of the sequence and KV head, or of the group */
    int64_t head_stride, token_stride;
    int32_t records_row; /* the row of the group that comes first at `records` */
};

/* Threads that look at the lengths, at most. */
static const int ta_share_threads = 256;

/* What they tell each other. */
struct ta_share_scratch {
    int64_t weights[ta_share_threads];
    int32_t heaviest[ta_share_threads], lightest[ta_share_threads];
};

static_assert(sizeof(ta_share_scratch) <= TA_SHARE_SCRATCH_BYTES, "shape.h cuts as much");

template <class Params> TA_DEVICE ta_visible ta_sequence_sees(const Params &p, int32_t sequence)
{
    const int32_t *bounds = ta_sequence_bounds(p.kv.bounds, p.kv.bounds_stride, sequence);
    return ta_tokens_see(p.problem, bounds, p.kv.lengths[sequence], sequence);
}

template <class Params> TA_DEVICE int32_t ta_sequence_items(const Params &p, int32_t sequence)
{
    return p.problem.kv_heads * ta_sequence_groups(&p.problem, p.share.rows, sequence);
}

template <class Params> TA_DEVICE void ta_enter_sequence(const Params &p, ta_item_walk &w)
{
    w.items = ta_sequence_items(p, w.sequence);
    w.seen = ta_sequence_sees(p, w.sequence);
    w.tiles = ta_share_tiles(w.seen.first, w.seen.end);
}

/* Every thread: the weights of some sequences each, and how all are cut. */
template <class Params>
TA_DEVICE void ta_find_shares(const Params &p, ta_block_piece &b, ta_share_scratch &s)
{
    int32_t thread = static_cast<int32_t>(threadIdx.x);
    int32_t threads = min(static_cast<int32_t>(blockDim.x), ta_share_threads);
    int32_t batch = p.problem.batch, each = (batch + threads - 1) / threads;
    int32_t used = (batch + each - 1) / each;
    ta_share_sum own = ta_share_sum_none();
#pragma unroll 1
    for (int32_t i = thread * each; i < min(batch, thread * each + each); i++) {
        ta_visible seen = ta_sequence_sees(p, i);
        own = ta_share_sum_add(
            own, ta_share_sum_of(ta_share_tiles(seen.first, seen.end), ta_sequence_items(p, i)));
    }
    if (thread < threads) {
        s.weights[thread] = own.weight;
        s.heaviest[thread] = own.heaviest;
        s.lightest[thread] = own.lightest;
    }
    ta_syncthreads();
    ta_share_sum all = ta_share_sum_none();
    int64_t before = 0;
#pragma unroll 1
    for (int32_t i = 0; i < used; i++) {
        if (i == thread)
            before = all.weight;
        ta_share_sum next = {s.weights[i], s.heaviest[i], s.lightest[i]};
        all = ta_share_sum_add(all, next);
    }
    ta_shares shares = ta_shares_of(all, p.share.items, p.share.blocks);
    int64_t from = ta_share_first(&shares, blockIdx.x);
    if (thread == 0)
        b.shares = shares;
    /* The thread in whose sequences the block's part begins says so. */
    if (shares.pieces == 0 && from >= before && from < before + own.weight) {
        b.walk.start = before;
        b.walk.from = from;
        b.walk.to = ta_share_first(&shares, static_cast<int64_t>(blockIdx.x) + 1);
        b.walk.sequence = thread * each;
        b.walk.item = b.walk.tiles = -1;
    }
}

/* Step to the next item of the sequence, from the first one of the block's part on; false if there
 * is none. */
TA_DEVICE bool ta_next_item(ta_item_walk &w)
{
    if (w.item >= 0) {
        w.item++;
    } else {
        int64_t passed = max(w.from - w.start, static_cast<int64_t>(0)) / ta_share_weight(w.tiles);
        w.item = static_cast<int32_t>(min(passed, static_cast<int64_t>(w.items)));
    }
    return w.item < w.items;
}

/* The next piece of the block's part; false if there is none. */
template <class Params> TA_DEVICE bool ta_walk_on(const Params &p, ta_item_walk &w, ta_piece &piece)
{
#pragma unroll 1
    for (;;) {
        if (w.tiles < 0)
            ta_enter_sequence(ta_params_again(p), w);
        if (!ta_next_item(w)) {
            w.start += w.items * ta_share_weight(w.tiles);
            w.tiles = w.item = -1;
            w.sequence++;
            if (w.start >= w.to || w.sequence == p.problem.batch)
                return false;
            continue;
        }
        int64_t start = w.start + w.item * ta_share_weight(w.tiles);
        if (start >= w.to)
            return false;
        piece = ta_share_piece(ta_first_item(&p.problem, p.share.rows, w.sequence) + w.item, start,
                               w.tiles, w.from, w.to);
        if (ta_share_has(piece, start, w.tiles, w.from))
            return true;
    }
}

/* Where all items are cut alike, or not at all, or into the tiles of reproducible mode: a block has
 * piece `number` of one. */
template <class Params>
TA_DEVICE bool ta_own_item(const Params &p, int32_t pieces, ta_item_walk &w, int32_t &number)
{
    int64_t item = blockIdx.x / static_cast<uint32_t>(pieces);
    number = static_cast<int32_t>(blockIdx.x % static_cast<uint32_t>(pieces));
    if (p.problem.starts)
        w.sequence = ta_sequence_of_group(p.problem, p.share.rows, item / p.problem.kv_heads);
    else
        w.sequence = static_cast<int32_t>(static_cast<uint32_t>(item) /
                                          static_cast<uint32_t>(ta_sequence_items(p, 0)));
    if (w.sequence >= p.problem.batch)
        return false;
    ta_enter_sequence(p, w);
    w.item = static_cast<int32_t>(item - ta_first_item(&p.problem, p.share.rows, w.sequence));
    return w.item >= 0 && w.item < w.items; /* below 0: before the first of wrong starts */
}

/* How many blocks have a piece of the item that this one begins. */
TA_DEVICE int32_t ta_count_blocks(const ta_block_piece &b)
{
    const ta_item_walk &w = b.walk;
    if (b.ends)
        return 1;
    if (b.shares.pieces)
        return (w.tiles - 1) / ta_share_even_tiles(w.tiles, b.shares.pieces) + 1;
    int64_t start = w.start + w.item * ta_share_weight(w.tiles);
    return static_cast<int32_t>(ta_share_last_block(&b.shares, start, w.tiles) - blockIdx.x) + 1;
}

/* Where the records of a piece go. */
template <class Params>
TA_DEVICE void ta_find_piece_records(const Params &p, int64_t item, ta_block_piece &b)
{
    if (b.begins && p.share.blocks) {
        p.share.spans[item].first_block = static_cast<int32_t>(blockIdx.x);
        p.share.spans[item].blocks = ta_count_blocks(b);
    }
    if (b.begins && b.ends) {
        int64_t floats = ta_record_floats(p.problem.v_dim);
        b.head_stride = p.problem.rows * floats;
        b.records = p.records + b.kv_head * b.heads * b.head_stride +
                    ta_problem_first_row(&p.problem, b.walk.sequence) * floats;
        b.token_stride = floats;
        b.records_row = 0;
        return;
    }
    int32_t block = static_cast<int32_t>(blockIdx.x);
    ta_opaque_uniform(block);
    b.records = p.share.pieces +
                (static_cast<int64_t>(block) * 2 + b.begins) * p.share.rows * p.split_floats;
    b.head_stride = p.split_floats;
    b.token_stride = static_cast<int64_t>(b.heads) * p.split_floats;
    b.records_row = b.first_row;
}

/* The tokens and records of a piece. */
template <class Params>
TA_DEVICE void ta_find_range(const Params &p, const ta_piece &piece, ta_block_piece &b)
{
    int32_t begin = ta_share_begin(b.walk.seen.first);
    b.first = begin + piece.first * TA_SHARE_TILE;
    b.end = static_cast<int32_t>(min(static_cast<int64_t>(b.walk.seen.end),
                                     begin + static_cast<int64_t>(piece.end) * TA_SHARE_TILE));
    b.begins = piece.first == 0;
    b.ends = piece.end == b.walk.tiles;
    ta_find_piece_records(p, piece.item, b);
}

/* One thread: which item and tiles the next piece of this block has; false if it has no more. Where
 * each item is cut into as many `pieces`, piece `number` is the block's; 0: see shares.h. */
template <class Params>
TA_DEVICE bool ta_take_piece(const Params &p, bool again, int32_t pieces, ta_block_piece &b,
                             ta_piece &piece, int32_t &number)
{
    number = 0;
    if (pieces) {
        if (again || !ta_own_item(p, pieces, b.walk, number))
            return false;
        piece =
            ta_share_even(blockIdx.x / static_cast<uint32_t>(pieces), b.walk.tiles, pieces, number);
    } else if (static_cast<int32_t>(blockIdx.x) >= b.shares.blocks ||
               !ta_walk_on(p, b.walk, piece)) {
        return false;
    }
    b.heads = p.problem.query_heads / p.problem.kv_heads;
    int32_t groups = b.walk.items / p.problem.kv_heads;
    b.kv_head = b.walk.item / groups;
    b.first_row = b.walk.item % groups * p.share.rows;
    b.query_tokens = ta_problem_query_tokens(&p.problem, b.walk.sequence);
    b.length = p.kv.lengths[b.walk.sequence];
    b.bounds = ta_sequence_bounds(p.kv.bounds, p.kv.bounds_stride, b.walk.sequence);
    b.row_count = min(p.share.rows, b.heads * b.query_tokens - b.first_row);
    return true;
}

/* Where the record of the group's row `row` is. */
TA_DEVICE float *ta_piece_record(const ta_block_piece &b, int32_t row)
{
    int32_t at = b.first_row + row - b.records_row;
    return b.records + at % b.heads * b.head_stride + at / b.heads * b.token_stride;
}

#endif
