/* What a block of a direct kernel knows of its piece: piece.h has what all kernels have, here are
 * its rows, and the tiles of reproducible mode. All of it is in shared memory, where one thread
 * writes it between barriers; the loop over tiles does not look at it. */
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

#endif
