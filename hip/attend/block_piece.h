/* What a block of the kernels with shared memory works on: a piece of equal shares (piece.h), or a
 * split where positions are selected, prefixes shared or tiles tallied (items.h). Its rows, its
 * tokens, its cache and where its records go. */
#ifndef TA_HIP_BLOCK_PIECE_H
#define TA_HIP_BLOCK_PIECE_H

#include "items.h"
#include "piece.h"

/* With what it was given that is needed only now and then. In shared memory: no thread should spend
 * registers on it. */
struct ta_block : ta_block_piece {
    int32_t sequence;    /* whose rows it has; of a prefix, the first one of the group */
    int32_t source;      /* whose cache it reads; `bounds` are its too */
    int32_t split;       /* unless there are equal shares */
    int32_t picked_from; /* see `list` */
    int64_t row;         /* of query token 0 of the sequence, or of the group */
    int64_t query_at;    /* of the sequence's first query token: elements from q.data */
    ta_visible within;   /* local positions that rows may see in this launch: ta_find_within() */
    /* Selected positions: `first` and `end` count those that picks.h found from local position
     * `picked_from` on, `rest` is where it has not looked yet. */
    const int32_t *list;
    ta_visible rest;
    /* The cache: K and V of this KV head, and without pages of this sequence. */
    const char *k, *v;
    int64_t k_page_stride, k_token_stride, v_page_stride, v_token_stride; /* bytes */
    const int32_t *pages; /* of the sequence, or NULL */
    int64_t page_entries;
    int32_t page_tokens, page_count, max_tokens;
    int32_t v_dim;
    const char *fills; /* ta_fills */
    ta_shard shard;
};

/* The local positions from which rows may see any: behind the prefix that a sequence shares, or in
 * it. */
TA_DEVICE ta_visible ta_find_within(const ta_attend_params &p, const ta_block &b)
{
    ta_visible within = {0, INT32_MAX};
    if (!p.problem.prefix_starts)
        return within;
    int32_t shared =
        ta_shard_held(&p.problem.shard, b.bounds, ta_problem_shared(&p.problem, b.sequence));
    if (p.prefix)
        within.end = shared;
    else
        within.first = shared;
    return within;
}

/* Where the records of a split go: to the result if there is nothing to merge or to tally, else to
 * the workspace. */
TA_DEVICE void ta_find_split_records(const ta_attend_params &p, int32_t split, ta_block &b)
{
    int64_t row = ta_problem_first_row(&p.problem, b.sequence);
    int32_t head = b.kv_head * b.heads;
    b.records_row = 0;
    if (p.splits == 1 && !p.problem.tally_tile) {
        int64_t floats = ta_record_floats(p.problem.v_dim), rows = p.problem.rows;
        b.records = p.records + (head * rows + row) * floats;
        b.head_stride = rows * floats;
        b.token_stride = floats;
    } else {
        b.records = p.records +
                    ta_split_record_index(p.problem, p.splits, head, p.first_split + split, row) *
                        p.split_floats;
        b.head_stride = p.split_floats;
        b.token_stride = static_cast<int64_t>(b.heads) * p.split_floats;
    }
}

/* One thread: the split of this block; false if it has no rows, as some blocks of ragged calls. */
TA_DEVICE bool ta_find_split(const ta_attend_params &p, ta_block &b)
{
    ta_item item = ta_find_item(p);
    b.sequence = item.sequence;
    b.source = item.source;
    b.kv_head = item.kv_head;
    b.split = item.split;
    b.length = p.kv.lengths[item.sequence];
    b.bounds = ta_sequence_bounds(p.kv.bounds, p.kv.bounds_stride, item.source);
    b.heads = p.problem.query_heads / p.problem.kv_heads;
    b.query_tokens = ta_problem_query_tokens(&p.problem, item.sequence);
    b.first_row = item.first_row + item.group * p.shape.rows;
    b.row_count = min(p.shape.rows, item.end_row - b.first_row);
    ta_find_split_records(ta_params_again(p), item.split, b);
    return b.first_row >= 0 && b.row_count > 0; /* below 0: before the first of wrong starts */
}

/* One thread: the next piece of this block; false if it has no more. */
TA_DEVICE bool ta_find_piece(const ta_attend_params &p, bool again, ta_block &b)
{
    ta_piece piece = {0, 0, 0};
    int32_t number = 0, pieces = p.share.blocks ? b.shares.pieces : 1;
    if (!ta_take_piece(p, again, pieces, b, piece, number))
        return false;
    b.sequence = b.source = b.walk.sequence;
    ta_find_range(ta_params_again(p), piece, b);
    return number == 0 || piece.first < piece.end;
}

TA_DEVICE void ta_find_cache(const ta_attend_params &p, int64_t size, ta_block &b)
{
    const ta_tensor &k = p.kv.k, &v = p.kv.v;
    int64_t sequence = p.kv.page_table ? 0 : b.source;
    b.k = static_cast<const char *>(k.data) +
          (sequence * k.batch_stride + b.kv_head * k.head_stride) * size;
    b.v = static_cast<const char *>(v.data) +
          (sequence * v.batch_stride + b.kv_head * v.head_stride) * size;
    b.k_page_stride = k.batch_stride * size;
    b.k_token_stride = k.token_stride * size;
    b.v_page_stride = v.batch_stride * size;
    b.v_token_stride = v.token_stride * size;
    b.pages = nullptr;
    if (p.kv.page_table)
        b.pages = p.kv.page_table + b.source * p.kv.page_table_stride;
    b.page_entries = p.kv.page_table_stride;
    b.page_tokens = p.kv.page_tokens;
    b.page_count = p.kv.page_count;
    b.max_tokens = k.data && v.data ? p.problem.max_tokens : 0;
    b.fills = reinterpret_cast<const char *>(ta_fills);
    b.shard = p.problem.shard;
}

/* Which tokens a block reads: `sees` are what the first and the last query token of its rows see,
 * and what the sequence's first and last see. Of equal shares, what its rows see of the piece. */
TA_DEVICE void ta_find_tokens(const ta_attend_params &p, const ta_visible *sees, ta_block &b)
{
    ta_visible first = sees[0], last = sees[1];
    b.all_see.first = last.first;
    b.all_see.end = first.end;
    int64_t from = b.first, to = b.end;
    if (p.splits) {
        ta_cut cut = ta_cut_tokens(p.problem.tally_tile, p.part_splits, sees[2].first, sees[3].end);
        from = cut.first + static_cast<int64_t>(b.split) * cut.split_tokens;
        to = from + cut.split_tokens;
    }
    b.first = static_cast<int32_t>(
        max(static_cast<int64_t>(first.first), min(from, static_cast<int64_t>(last.end))));
    b.end = static_cast<int32_t>(min(static_cast<int64_t>(last.end), to));
}

/* Rows of a list see every token that will be picked from it in [first, end), and no other goes
 * by. */
TA_DEVICE void ta_find_list(const ta_attend_params &p, ta_block &b)
{
    b.list = ta_problem_list(&p.problem, b.row + b.first_row / b.heads, b.kv_head);
    b.rest.first = b.first;
    b.rest.end = b.end;
    b.first = b.end = 0;
    b.all_see.first = 0;
    b.all_see.end = INT32_MAX;
}

/* For ta_find_tokens(), of rows whose sequences differ. Rows that see nothing read nothing. */
TA_DEVICE void ta_find_ends(const ta_row *rows, int32_t count, ta_visible *ends)
{
    ta_visible all = {0, 0}, common = {0, INT32_MAX};
    for (int32_t i = 0; i < count; i++) {
        ta_visible sees = rows[i].sees;
        common.first = max(common.first, sees.first);
        common.end = min(common.end, sees.end);
        if (sees.first >= sees.end)
            continue;
        all.first = all.first < all.end ? min(all.first, sees.first) : sees.first;
        all.end = max(all.end, sees.end);
    }
    ends[0] = ends[2] = {all.first, common.end};
    ends[1] = ends[3] = {common.first, all.end};
}

/* Where a query token stands in its sequence, and how long that is. */
struct ta_query_position {
    int32_t position, length;
};

TA_DEVICE ta_query_position ta_find_query(const ta_attend_params &p, const ta_block &b,
                                          int32_t token)
{
    if (!ta_shares_rows(p))
        return {b.length - b.query_tokens + token, b.length};
    int64_t row = b.row + token;
    int32_t sequence = ta_problem_sequence_of(&p.problem, row);
    int32_t length = p.kv.lengths[sequence], tokens = ta_problem_query_tokens(&p.problem, sequence);
    row -= ta_problem_first_row(&p.problem, sequence);
    return {length - tokens + static_cast<int32_t>(row), length};
}

TA_DEVICE ta_row ta_start_row(const ta_attend_params &p, const ta_block &b, int32_t row,
                              ta_visible sees, int32_t position)
{
    ta_row r;
    r.sees.first = r.sees.end = 0;
    r.position = 0;
    r.slope = 0.0f;
    r.m = -INFINITY;
    r.l = r.run = 0.0f;
    r.o_scale = 1.0f;
    if (row >= b.row_count)
        return r;
    r.sees = sees;
    if (p.problem.selected)
        r.sees = {0, INT32_MAX};
    r.position = position;
    if (p.rule.alibi)
        r.slope =
            p.problem.alibi_slopes[b.kv_head * b.heads + (b.first_row + row) % b.heads] * TA_LOG2E;
    return r;
}

/* What the query tokens see, one thread for each row and four more for what ta_find_tokens() asks:
 * it takes long divisions, so there is one place in the code for all. */
TA_DEVICE void ta_find_seen(const ta_attend_params &p, const ta_block &b, ta_row *rows,
                            ta_visible *ends)
{
    int32_t thread = static_cast<int32_t>(threadIdx.x), end = thread - p.shape.rows;
    if (end >= 4)
        return;
    int32_t row = min(thread, b.row_count - 1);
    if (end >= 0)
        row = end == 0 ? 0 : b.row_count - 1;
    int32_t token = (b.first_row + row) / b.heads;
    if (end >= 2)
        token = end == 2 ? 0 : b.query_tokens - 1;
    /* Of the copy in shared memory: AMD's devices have too few scalar registers for the other. */
    ta_query_position query = ta_find_query(p, b, token);
    ta_visible sees = ta_shard_visible(&b.shard, b.bounds, query.length, query.position,
                                       p.problem.causal, p.problem.window);
    sees.first = max(sees.first, b.within.first);
    sees.end = min(sees.end, b.within.end);
    sees.first = min(sees.first, sees.end);
    if (end < 0)
        rows[thread] = ta_start_row(p, b, thread, sees, query.position);
    else
        ends[end] = sees;
}

/* Find out what this block is to do next, or first unless `again`: fills in `b` and the rows, all
 * in shared memory. `size` is that of an element of K and V. Every thread calls it; begins and ends
 * with a barrier. Returns whether there is anything. */
TA_DEVICE bool ta_next_piece(const ta_attend_params &p, bool again, int64_t size, ta_block &b,
                             ta_row *rows)
{
    TA_SHARED(ta_visible, ends, [4]);
    ta_syncthreads();
    if (threadIdx.x == 0) {
        b.exists = p.splits ? !again && ta_find_split(p, b) : ta_find_piece(p, again, b);
        if (b.exists) {
            b.row = ta_problem_first_row(&p.problem, b.sequence);
            b.query_at = ta_problem_token_at(&p.problem, &p.q, b.sequence, 0);
            b.within = ta_find_within(p, b);
            b.v_dim = p.problem.v_dim;
            ta_find_cache(p, size, b);
        }
    }
    ta_syncthreads();
    if (!ta_uniform(b.exists))
        return false;
    ta_find_seen(p, b, rows, ends);
    ta_syncthreads();
    if (threadIdx.x == 0) {
        if (ta_shares_rows(p))
            ta_find_ends(rows, b.row_count, ends);
        ta_find_tokens(p, ends, b);
        if (p.problem.selected)
            ta_find_list(p, b);
    }
    ta_syncthreads();
    return true;
}

/* Where element 0 of a row's query is. */
TA_DEVICE int64_t ta_row_query(const ta_attend_params &p, const ta_block &b, int32_t row)
{
    int32_t token = (b.first_row + row) / b.heads;
    int32_t head = b.kv_head * b.heads + (b.first_row + row) % b.heads;
    if (ta_shares_rows(p))
        return ta_problem_row_at(&p.problem, &p.q, b.row + token) + head * p.q.head_stride;
    return b.query_at + token * p.q.token_stride + head * p.q.head_stride;
}

#endif
