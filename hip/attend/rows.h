/* What the kernels that attend and those that merge must agree on: what a sequence's queries see,
 * where records are, and what a query row is. Whatever is in hip/attend/ includes it. */
#ifndef TA_HIP_ROWS_H
#define TA_HIP_ROWS_H

#include "launched.h" /* first: it says what TA_INLINE is for the headers below */

#include "base/partial.h"
#include "base/tally.h"
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

/* The last sequence whose row groups do not begin after this one. */
TA_DEVICE int32_t ta_sequence_of_group(const ta_problem &p, int32_t group_rows, int64_t group)
{
    int32_t first = 0, end = p.batch;
    while (end - first > 1) {
        int32_t middle = first + (end - first) / 2;
        if (ta_first_group(&p, group_rows, middle) <= group)
            first = middle;
        else
            end = middle;
    }
    return first;
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

#endif
