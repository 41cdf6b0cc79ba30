/* Which query rows a block of attend has, which tokens they see, and where their records go.
 * Included by the attend kernels and by the merge of the splits, which must agree on all of it. */
#ifndef TA_HIP_ROWS_H
#define TA_HIP_ROWS_H

#include "vendor.h" /* first: it says what TA_INLINE is for the headers below */

#include "../src/partial.h"
#include "kernels.h"
#include "number.h"

/* A block's part of the work. */
struct ta_item {
    int32_t sequence, kv_head, group, split;
};

/* Row groups of the same tokens are neighbours, so that the second reads what the first left in the
 * cache. */
TA_DEVICE ta_item ta_find_item(const ta_attend_params &p)
{
    uint32_t i = blockIdx.x;
    ta_item item;
    item.group = static_cast<int32_t>(i % static_cast<uint32_t>(p.shape.groups));
    i /= static_cast<uint32_t>(p.shape.groups);
    item.split = static_cast<int32_t>(i % static_cast<uint32_t>(p.splits));
    i /= static_cast<uint32_t>(p.splits);
    item.kv_head = static_cast<int32_t>(i % static_cast<uint32_t>(p.problem.kv_heads));
    item.sequence = static_cast<int32_t>(i / static_cast<uint32_t>(p.problem.kv_heads));
    return item;
}

TA_DEVICE const int32_t *ta_sequence_bounds(const int32_t *bounds, int64_t stride, int32_t sequence)
{
    return bounds ? bounds + sequence * stride : nullptr;
}

/* What query token `token` of a sequence sees, as local positions. */
TA_DEVICE ta_visible ta_token_sees(const ta_problem &p, const int32_t *bounds, int32_t length,
                                   int32_t token)
{
    return ta_shard_visible(&p.shard, bounds, length, length - p.query_tokens + token, p.causal,
                            p.window);
}

/* What all query tokens of a sequence see together: one range, because they are neighbours. */
TA_DEVICE ta_visible ta_tokens_see(const ta_problem &p, const int32_t *bounds, int32_t length)
{
    ta_visible all = ta_token_sees(p, bounds, length, 0);
    all.end = ta_token_sees(p, bounds, length, p.query_tokens - 1).end;
    return all;
}

/* The rows and tokens of a block. In shared memory: every thread needs some of it now and then, and
 * none should spend registers on it. */
struct ta_block {
    ta_item item;
    int32_t length;        /* of the sequence */
    int32_t heads;         /* query heads of the KV head; row = token · heads + head */
    const int32_t *bounds; /* of the sequence, or NULL */
    int32_t first_row, row_count;
    int32_t first, end; /* local positions that it reads; first ≥ end if there are none */
    ta_visible all_see; /* local positions that every row sees */
};

TA_DEVICE ta_block ta_find_block(const ta_attend_params &p)
{
    ta_block b;
    b.item = ta_find_item(p);
    b.length = p.kv.lengths[b.item.sequence];
    b.bounds = ta_sequence_bounds(p.kv.bounds, p.kv.bounds_stride, b.item.sequence);
    b.heads = p.problem.query_heads / p.problem.kv_heads;
    b.first_row = b.item.group * p.shape.rows;
    b.row_count = min(p.shape.rows, b.heads * p.problem.query_tokens - b.first_row);

    int32_t first_token = b.first_row / b.heads;
    int32_t last_token = (b.first_row + b.row_count - 1) / b.heads;
    ta_visible first = ta_token_sees(p.problem, b.bounds, b.length, first_token);
    ta_visible last = ta_token_sees(p.problem, b.bounds, b.length, last_token);
    b.all_see.first = last.first;
    b.all_see.end = first.end;

    ta_visible all = ta_tokens_see(p.problem, b.bounds, b.length);
    int32_t split_tokens = ta_split_tokens(all.end - all.first, p.splits);
    int64_t split_first = all.first + static_cast<int64_t>(b.item.split) * split_tokens;
    int64_t split_end = split_first + split_tokens;
    b.first = static_cast<int32_t>(
        max(static_cast<int64_t>(first.first), min(split_first, static_cast<int64_t>(last.end))));
    b.end = static_cast<int32_t>(min(static_cast<int64_t>(last.end), split_end));
    return b;
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

TA_DEVICE ta_row ta_start_row(const ta_attend_params &p, const ta_block &b, int32_t row)
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
    int32_t token = (b.first_row + row) / b.heads;
    int32_t head = b.item.kv_head * b.heads + (b.first_row + row) % b.heads;
    r.sees = ta_token_sees(p.problem, b.bounds, b.length, token);
    r.position = b.length - p.problem.query_tokens + token;
    if (p.rule.alibi)
        r.slope = p.problem.alibi_slopes[head] * TA_LOG2E;
    return r;
}

/* Where element 0 of a row's query is. */
TA_DEVICE int64_t ta_row_query(const ta_attend_params &p, const ta_block &b, int32_t row)
{
    int32_t token = (b.first_row + row) / b.heads;
    int32_t head = b.item.kv_head * b.heads + (b.first_row + row) % b.heads;
    return b.item.sequence * p.q.batch_stride + token * p.q.token_stride + head * p.q.head_stride;
}

/* Where the record of a row goes if there are no splits to merge, and where from otherwise. */
TA_DEVICE int64_t ta_record_index(const ta_problem &p, int32_t sequence, int32_t kv_head,
                                  int32_t row)
{
    int32_t heads = p.query_heads / p.kv_heads;
    int64_t head = kv_head * heads + row % heads;
    int64_t result_row = static_cast<int64_t>(sequence) * p.query_tokens + row / heads;
    return head * p.batch * p.query_tokens + result_row;
}

TA_DEVICE int64_t ta_split_record_index(const ta_problem &p, int32_t splits, int32_t sequence,
                                        int32_t kv_head, int32_t split, int32_t row)
{
    int64_t rows = p.query_heads / p.kv_heads * p.query_tokens;
    return ((static_cast<int64_t>(sequence) * p.kv_heads + kv_head) * splits + split) * rows + row;
}

TA_DEVICE float *ta_row_record(const ta_attend_params &p, const ta_block &b, int32_t row)
{
    int32_t r = b.first_row + row;
    if (p.splits == 1)
        return p.records + ta_record_index(p.problem, b.item.sequence, b.item.kv_head, r) *
                               ta_record_floats(p.problem.v_dim);
    return p.records + ta_split_record_index(p.problem, p.splits, b.item.sequence, b.item.kv_head,
                                             b.item.split, r) *
                           p.split_floats;
}

#endif
