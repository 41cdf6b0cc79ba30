/* Which pieces of which items a block of a direct kernel has: shares.h as a block applies it to the
 * lengths, and what a piece's rows and tokens are. All of it is in shared memory, where one thread
 * writes it between barriers; the loop over tiles does not look at it. */
#ifndef TA_HIP_DIRECT_PIECE_H
#define TA_HIP_DIRECT_PIECE_H

#include "rows.h" /* first: it says what TA_INLINE is for the header below */

#include "shares.h"

/* A row of the piece. One that the group does not have sees nothing and has token -1. */
struct ta_direct_row {
    ta_visible sees; /* tokens of the piece, as local positions */
    int32_t token;   /* query token of the sequence */
    int32_t position;
    float slope;
};

/* Where in the row of all items a block is. */
struct ta_direct_walk {
    int64_t start;          /* of the sequence's first item */
    int64_t from, to;       /* the block's part */
    int32_t sequence, item; /* the item within the sequence; -1: the first that the part has */
    int32_t items;          /* of the sequence */
    int32_t tiles;          /* of each of them; -1: not counted yet */
    ta_visible seen;        /* by all queries of the sequence */
};

/* Threads that look at the lengths, at most. */
static const int ta_share_threads = 256;

struct ta_direct_piece {
    ta_direct_walk walk;
    ta_shares shares;
    int32_t kv_head, first_row, row_count, heads, length, query_tokens;
    const int32_t *bounds;
    int32_t first, end;   /* local positions; `first` is a multiple of 16 unless tiles are not */
    ta_visible all_see;   /* by every row */
    int32_t exists;       /* 0: the block has no more */
    int32_t begins, ends; /* its item */
    float *records;       /* of row 0 of the sequence and KV head, or of the group */
    int64_t head_stride, token_stride;
    int32_t records_row; /* the row of the group that comes first at `records` */
    ta_direct_row rows[TA_PIECE_ROWS];
    ta_visible row_ends[2]; /* what the first and the last query token of the group see */
    int64_t weights[ta_share_threads];
    int32_t heaviest[ta_share_threads], lightest[ta_share_threads];
};

TA_DEVICE ta_visible ta_sequence_sees(const ta_direct_params &p, int32_t sequence)
{
    const int32_t *bounds = ta_sequence_bounds(p.kv.bounds, p.kv.bounds_stride, sequence);
    return ta_tokens_see(p.problem, bounds, p.kv.lengths[sequence], sequence);
}

TA_DEVICE int32_t ta_sequence_items(const ta_direct_params &p, int32_t sequence)
{
    return p.problem.kv_heads * ta_direct_groups(&p.problem, p.rows, sequence);
}

TA_DEVICE void ta_enter_sequence(const ta_direct_params &p, ta_direct_walk &w)
{
    w.items = ta_sequence_items(p, w.sequence);
    w.seen = ta_sequence_sees(p, w.sequence);
    w.tiles = ta_share_tiles(w.seen.first, w.seen.end);
}

/* Every thread: the weights of some sequences each, and how all are cut. */
TA_DEVICE void ta_find_shares(const ta_direct_params &p, ta_direct_piece &b)
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
        b.weights[thread] = own.weight;
        b.heaviest[thread] = own.heaviest;
        b.lightest[thread] = own.lightest;
    }
    ta_syncthreads();
    ta_share_sum all = ta_share_sum_none();
    int64_t before = 0;
#pragma unroll 1
    for (int32_t i = 0; i < used; i++) {
        if (i == thread)
            before = all.weight;
        ta_share_sum next = {b.weights[i], b.heaviest[i], b.lightest[i]};
        all = ta_share_sum_add(all, next);
    }
    ta_shares shares = ta_shares_of(all, p.items, p.blocks);
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
TA_DEVICE bool ta_next_item(ta_direct_walk &w)
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
TA_DEVICE bool ta_walk_on(const ta_direct_params &p, ta_direct_walk &w, ta_piece &piece)
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
        piece = ta_share_piece(ta_direct_first_item(&p.problem, p.rows, w.sequence) + w.item, start,
                               w.tiles, w.from, w.to);
        if (ta_share_has(piece, start, w.tiles, w.from))
            return true;
    }
}

/* Where all items are cut alike, or not at all, or into the tiles of reproducible mode: a block has
 * piece `number` of one. */
TA_DEVICE bool ta_own_item(const ta_direct_params &p, int32_t pieces, ta_direct_walk &w,
                           int32_t &number)
{
    int64_t item = blockIdx.x / static_cast<uint32_t>(pieces);
    number = static_cast<int32_t>(blockIdx.x % static_cast<uint32_t>(pieces));
    if (p.problem.starts)
        w.sequence = ta_sequence_of_group(p.problem, p.rows, item / p.problem.kv_heads);
    else
        w.sequence = static_cast<int32_t>(static_cast<uint32_t>(item) /
                                          static_cast<uint32_t>(ta_sequence_items(p, 0)));
    if (w.sequence >= p.problem.batch)
        return false;
    ta_enter_sequence(p, w);
    w.item = static_cast<int32_t>(item - ta_direct_first_item(&p.problem, p.rows, w.sequence));
    return w.item < w.items;
}

/* How many blocks have a piece of the item that this one begins. */
TA_DEVICE int32_t ta_count_blocks(const ta_direct_piece &b)
{
    const ta_direct_walk &w = b.walk;
    if (b.ends)
        return 1;
    if (b.shares.pieces)
        return (w.tiles - 1) / ta_share_even_tiles(w.tiles, b.shares.pieces) + 1;
    int64_t start = w.start + w.item * ta_share_weight(w.tiles);
    return static_cast<int32_t>(ta_share_last_block(&b.shares, start, w.tiles) - blockIdx.x) + 1;
}

/* Where the records of a piece go. */
TA_DEVICE void ta_find_records(const ta_direct_params &p, int64_t item, ta_direct_piece &b)
{
    if (b.begins && p.blocks) {
        p.spans[item].first_block = static_cast<int32_t>(blockIdx.x);
        p.spans[item].blocks = ta_count_blocks(b);
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
    b.records = p.pieces + (static_cast<int64_t>(block) * 2 + b.begins) * p.rows * p.split_floats;
    b.head_stride = p.split_floats;
    b.token_stride = static_cast<int64_t>(b.heads) * p.split_floats;
    b.records_row = b.first_row;
}

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

/* The tokens and records of a piece. */
TA_DEVICE void ta_find_range(const ta_direct_params &p, const ta_piece &piece, ta_direct_piece &b)
{
    int32_t begin = ta_share_begin(b.walk.seen.first);
    b.first = begin + piece.first * TA_SHARE_TILE;
    b.end = static_cast<int32_t>(min(static_cast<int64_t>(b.walk.seen.end),
                                     begin + static_cast<int64_t>(piece.end) * TA_SHARE_TILE));
    b.begins = piece.first == 0;
    b.ends = piece.end == b.walk.tiles;
    ta_find_records(p, piece.item, b);
}

/* One thread: the next piece of this block; false if it has no more. */
TA_DEVICE bool ta_find_piece(const ta_direct_params &p, bool again, ta_direct_piece &b)
{
    ta_piece piece = {0, 0, 0};
    int32_t number = 0, pieces = p.tiles ? p.tiles : p.blocks ? b.shares.pieces : 1;
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
    b.first_row = b.walk.item % groups * p.rows;
    b.query_tokens = ta_problem_query_tokens(&p.problem, b.walk.sequence);
    b.length = p.kv.lengths[b.walk.sequence];
    b.bounds = ta_sequence_bounds(p.kv.bounds, p.kv.bounds_stride, b.walk.sequence);
    b.row_count = min(p.rows, b.heads * b.query_tokens - b.first_row);
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
    int32_t end = thread - p.rows;
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

/* Where the record of the group's row `row` is. */
TA_DEVICE float *ta_piece_record(const ta_direct_piece &b, int32_t row)
{
    int32_t at = b.first_row + row - b.records_row;
    return b.records + at % b.heads * b.head_stride + at / b.heads * b.token_stride;
}

#endif
