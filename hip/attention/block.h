/* Which queries a block of attention_forward has, what they see, and which keys come next. Used by
 * both of its kernels, and where they are the same, for the arithmetic of a tile. */
#ifndef TA_HIP_ATTENTION_BLOCK_H
#define TA_HIP_ATTENTION_BLOCK_H

#include "launched.h" /* first: it says what TA_INLINE is for the headers below */

#include "attention.h"
#include "base/partial.h"
#include "number.h"
#include "softmax.h"

/* A block has neighbouring queries of one query head. Blocks of the same queries are neighbours,
 * and the last queries, which see the most keys if causal, come first. */
struct ta_attention_block {
    int32_t head, kv_head, first, count;
};

TA_DEVICE ta_attention_block ta_find_attention_block(const ta_attention_work &w, int32_t rows)
{
    ta_attention_block b;
    int32_t block = static_cast<int32_t>(blockIdx.x);
    int32_t tiles = (w.queries + rows - 1) / rows;
    b.head = block % w.query_heads;
    b.kv_head = b.head / (w.query_heads / w.kv_heads);
    b.first = (tiles - 1 - block / w.query_heads) * rows;
    b.count = min(w.queries - b.first, rows);
    return b;
}

/* What row `row` of the block sees. Rows that are missing see nothing, and ends still ascend. */
TA_DEVICE ta_visible ta_attention_sees(const ta_attention_work &w, const ta_attention_block &b,
                                       int32_t row)
{
    ta_visible v = w.visible[b.first + min(row, b.count - 1)];
    if (row >= b.count)
        v.first = v.end;
    return v;
}

/* The first key from `at` on that some row sees, INT32_MAX if there is none. `row` is where the
 * search got to: all rows before it see nothing any more. */
TA_DEVICE int32_t ta_next_seen(const ta_visible *sees, int32_t rows, int32_t at, int32_t &row)
{
    while (row < rows && (sees[row].end <= at || sees[row].first >= sees[row].end))
        row++;
    return row < rows ? max(at, sees[row].first) : INT32_MAX;
}

TA_DEVICE float ta_attention_score(const ta_score_rule &rule, float dot)
{
    float score = dot * rule.factor;
    return rule.cap > 0.0f ? rule.cap * tanhf(score) : score;
}

/* A row's sums but for o, on each of the lanes that share it. */
struct ta_attention_row {
    int32_t first, end; /* what it sees */
    float m, l;
};

/* ta_softmax_scores() for a row, but for o. Returns what o must be multiplied by. */
template <int Lanes, int Keys>
TA_DEVICE float ta_attention_softmax_row(ta_attention_row &row, float (&scores)[Keys])
{
    float sum;
    float rescale = ta_softmax_scores<Lanes>(row.m, scores, sum);
    row.l = fmaf(row.l, rescale, sum);
    return rescale;
}

/* The record of a row of the block. */
TA_DEVICE float *ta_attention_record(const ta_attention_work &w, const ta_attention_block &b,
                                     int32_t row, float *records)
{
    int64_t at = static_cast<int64_t>(w.query_rows[b.first + row]) * w.query_heads + b.head;
    return records + at * ta_record_floats(w.v_dim);
}

/* An element of a tensor at a row and head. */
TA_DEVICE int64_t ta_attention_element(const ta_tensor &t, int32_t row, int32_t head)
{
    return row * t.token_stride + head * t.head_stride;
}

#endif
