/* Which query rows a block of attend has, which tokens they see, and where their records go.
 * Included by the attend kernels and by the merge of the splits, which must agree on all of it. */
#ifndef TA_HIP_ROWS_H
#define TA_HIP_ROWS_H

#include "launched.h" /* first: it says what TA_INLINE is for the headers below */

#include "base/partial.h"
#include "base/tally.h"
#include "items.h"
#include "kernels.h"
#include "number.h"

TA_DEVICE const int32_t *ta_sequence_bounds(const int32_t *bounds, int64_t stride, int32_t sequence)
{
    return bounds ? bounds + sequence * stride : nullptr;
}

/* What all query tokens of a sequence see together: one range, because they are neighbours. */
TA_DEVICE ta_visible ta_tokens_see(const ta_problem &p, const int32_t *bounds, int32_t length,
                                   int32_t sequence)
{
    return ta_shard_seen(&p.shard, bounds, length, ta_problem_query_tokens(&p, sequence), p.causal,
                         p.window);
}

/* The number of a row's record of one split in the workspace. */
TA_DEVICE int64_t ta_split_record_index(const ta_problem &p, int32_t splits, int32_t head,
                                        int32_t split, int64_t row)
{
    int32_t heads = p.query_heads / p.kv_heads;
    int64_t run = static_cast<int64_t>(head / heads) * splits + split;
    return (run * p.rows + row) * heads + head % heads;
}

/* A row and head of the result whose splits are merged by a block, and its sequence. */
struct ta_merged_row {
    int64_t row;
    int32_t head, sequence;
};

TA_DEVICE ta_merged_row ta_find_merged_row(const ta_problem &p)
{
    ta_merged_row r;
    uint32_t rows = static_cast<uint32_t>(p.rows); /* fits, as all blocks have numbers */
    r.row = blockIdx.x % rows;
    r.head = static_cast<int32_t>(blockIdx.x / rows);
    r.sequence = ta_problem_sequence_of(&p, r.row);
    return r;
}

/* A query row and what it has summed so far; in shared memory too. `l` and the row's o are of the
 * runs that are complete, `run` is of the tiles since; all are relative to m. */
struct alignas(16) ta_row { /* TA_ROW_BYTES */
    ta_visible sees;        /* local positions; none for a row that the block does not have */
    int32_t position;
    float slope; /* of ALiBi, for scores in base 2 */
    float m, l, run;
    float o_scale; /* what the complete runs of o are still to be multiplied by */
};

/* A token's worth of one word, for tokens that are not there: reading them is no exception, so a
 * thread has always as many loads on their way as it seems. */
struct alignas(16) ta_fill {
    uint32_t word[TA_MAX_DIM];

    constexpr ta_fill(uint32_t x) : word()
    {
        for (int i = 0; i < TA_MAX_DIM; i++)
            word[i] = x;
    }
};

/* Zeros, and what is NaN in every type. */
static __device__ const ta_fill ta_fills[2] = {ta_fill(0), ta_fill(0xffffffffu)};

/* The rows and tokens of a block, and what it was given that is needed only now and then. In shared
 * memory: no thread should spend registers on it. */
struct ta_block {
    ta_item item;
    int64_t row;                  /* of query token 0 of the sequence, or of the group */
    int32_t length;               /* of the sequence */
    int32_t heads;                /* query heads of the KV head; row = token · heads + head */
    const int32_t *bounds;        /* of the sequence whose cache it is, or NULL */
    int32_t query_tokens;         /* of the sequence */
    int32_t first_row, row_count; /* no rows at all if it is not above 0 */
    int64_t query_at;             /* of the sequence's first query token: elements from q.data */
    int32_t first, end; /* local positions that it reads; first ≥ end if there are none */
    ta_visible all_see; /* local positions that every row sees */
    ta_visible within;  /* local positions that rows may see in this launch: see ta_find_within() */
    /* Selected positions: `first` and `end` count those that picks.h found from local position
     * `picked_from` on, `rest` is where it has not looked yet. */
    const int32_t *list;
    int32_t picked_from;
    ta_visible rest;
    /* The cache: K and V of this KV head, and without pages of this sequence. */
    const char *k, *v;
    int64_t k_page_stride, k_token_stride, v_page_stride, v_token_stride; /* bytes */
    const int32_t *pages; /* of the sequence, or NULL */
    int64_t page_entries;
    int32_t page_tokens, page_count, max_tokens;
    const char *fills; /* ta_fills */
    ta_shard shard;
    /* The records: of the first row's head 0 and token 0. */
    float *records;
    int64_t record_head_stride, record_token_stride;
    int32_t v_dim;
};

/* How the tokens [first, end) that a sequence's queries see are cut. In reproducible mode a split
 * is a tile, and the first begins where its tile does. */
struct ta_cut {
    int32_t first, split_tokens;
};

TA_DEVICE ta_cut ta_cut_tokens(int32_t tally_tile, int32_t splits, int32_t first, int32_t end)
{
    if (tally_tile)
        return {first - first % tally_tile, tally_tile};
    return {first, ta_split_tokens(end - first, splits)};
}

/* The local positions from which rows may see any: behind the prefix that a sequence shares, or in
 * it. */
TA_DEVICE ta_visible ta_find_within(const ta_attend_params &p, const ta_block &b)
{
    ta_visible within = {0, INT32_MAX};
    if (!p.problem.prefix_starts)
        return within;
    int32_t shared =
        ta_shard_held(&p.problem.shard, b.bounds, ta_problem_shared(&p.problem, b.item.sequence));
    if (p.prefix)
        within.end = shared;
    else
        within.first = shared;
    return within;
}

/* Which tokens a block reads: `sees` are what the first and the last query token of its rows see,
 * and what the sequence's first and last see. */
TA_DEVICE void ta_find_tokens(int32_t tally_tile, int32_t splits, const ta_visible *sees,
                              ta_block &b)
{
    ta_visible first = sees[0], last = sees[1];
    b.all_see.first = last.first;
    b.all_see.end = first.end;
    ta_cut cut = ta_cut_tokens(tally_tile, splits, sees[2].first, sees[3].end);
    int64_t split_first = cut.first + static_cast<int64_t>(b.item.split) * cut.split_tokens;
    int64_t split_end = split_first + cut.split_tokens;
    b.first = static_cast<int32_t>(
        max(static_cast<int64_t>(first.first), min(split_first, static_cast<int64_t>(last.end))));
    b.end = static_cast<int32_t>(min(static_cast<int64_t>(last.end), split_end));
}

/* Rows of a list see every token that will be picked from it in [first, end), and no other goes
 * by. */
TA_DEVICE void ta_find_list(const ta_attend_params &p, ta_block &b)
{
    b.list = ta_problem_list(&p.problem, b.row + b.first_row / b.heads, b.item.kv_head);
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

TA_DEVICE void ta_find_cache(const ta_attend_params &p, int64_t size, ta_block &b)
{
    const ta_tensor &k = p.kv.k, &v = p.kv.v;
    int64_t sequence = p.kv.page_table ? 0 : b.item.source;
    b.k = static_cast<const char *>(k.data) +
          (sequence * k.batch_stride + b.item.kv_head * k.head_stride) * size;
    b.v = static_cast<const char *>(v.data) +
          (sequence * v.batch_stride + b.item.kv_head * v.head_stride) * size;
    b.k_page_stride = k.batch_stride * size;
    b.k_token_stride = k.token_stride * size;
    b.v_page_stride = v.batch_stride * size;
    b.v_token_stride = v.token_stride * size;
    b.pages = nullptr;
    if (p.kv.page_table)
        b.pages = p.kv.page_table + b.item.source * p.kv.page_table_stride;
    b.page_entries = p.kv.page_table_stride;
    b.page_tokens = p.kv.page_tokens;
    b.page_count = p.kv.page_count;
    b.max_tokens = k.data && v.data ? p.problem.max_tokens : 0;
    b.fills = reinterpret_cast<const char *>(ta_fills);
    b.shard = p.problem.shard;
}

/* Where the records go: the result if there are no splits to merge or to tally, else the
 * workspace. */
TA_DEVICE void ta_find_records(const ta_attend_params &p, ta_block &b)
{
    const ta_item &i = b.item;
    int64_t row = b.row;
    b.v_dim = p.problem.v_dim;
    if (p.splits == 1 && !p.problem.tally_tile) {
        int64_t floats = ta_record_floats(p.problem.v_dim);
        int64_t rows = p.problem.rows, head = i.kv_head * b.heads;
        b.records = p.records + (head * rows + row) * floats;
        b.record_head_stride = rows * floats;
        b.record_token_stride = floats;
    } else {
        b.records = p.records + ta_split_record_index(p.problem, p.splits, i.kv_head * b.heads,
                                                      p.first_split + i.split, row) *
                                    p.split_floats;
        b.record_head_stride = p.split_floats;
        b.record_token_stride = static_cast<int64_t>(b.heads) * p.split_floats;
    }
}

/* Where the record of the block's row `row` is. */
TA_DEVICE float *ta_row_record(const ta_block &b, int32_t row)
{
    int32_t head = (b.first_row + row) % b.heads, token = (b.first_row + row) / b.heads;
    return b.records + head * b.record_head_stride + token * b.record_token_stride;
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
        r.slope = p.problem.alibi_slopes[b.item.kv_head * b.heads + (b.first_row + row) % b.heads] *
                  TA_LOG2E;
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

/* Find out what this block is to do: fills in `b` and the rows, all in shared memory. `size` is
 * that of an element of K and V. Every thread calls it; ends with a barrier. Returns whether there
 * is anything: a ragged call has blocks without rows. */
TA_DEVICE bool ta_start_block(const ta_attend_params &p, int64_t size, ta_block &b, ta_row *rows)
{
    TA_SHARED(ta_visible, ends, [4]);
    if (threadIdx.x == 0) {
        b.item = ta_find_item(p);
        b.row = ta_problem_first_row(&p.problem, b.item.sequence);
        b.length = p.kv.lengths[b.item.sequence];
        b.bounds = ta_sequence_bounds(p.kv.bounds, p.kv.bounds_stride, b.item.source);
        b.heads = p.problem.query_heads / p.problem.kv_heads;
        b.query_tokens = ta_problem_query_tokens(&p.problem, b.item.sequence);
        b.query_at = ta_problem_token_at(&p.problem, &p.q, b.item.sequence, 0);
        b.first_row = b.item.first_row + b.item.group * p.shape.rows;
        b.row_count = min(p.shape.rows, b.item.end_row - b.first_row);
        b.within = ta_find_within(p, b);
        ta_find_cache(p, size, b);
        ta_find_records(p, b);
    }
    ta_syncthreads();
    if (b.row_count <= 0)
        return false;
    ta_find_seen(p, b, rows, ends);
    ta_syncthreads();
    if (threadIdx.x == 0) {
        if (ta_shares_rows(p))
            ta_find_ends(rows, b.row_count, ends);
        ta_find_tokens(p.problem.tally_tile, p.part_splits, ends, b);
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
    int32_t head = b.item.kv_head * b.heads + (b.first_row + row) % b.heads;
    if (ta_shares_rows(p))
        return ta_problem_row_at(&p.problem, &p.q, b.row + token) + head * p.q.head_stride;
    return b.query_at + token * p.q.token_stride + head * p.q.head_stride;
}

#endif
