/* Which part of the work a block of the attend kernels with shared memory has where there are
 * splits: the rows of a sequence, of one query token where positions are selected, or of all
 * sequences of a group where they share a prefix. Included by block_piece.h. */
#ifndef TA_HIP_ITEMS_H
#define TA_HIP_ITEMS_H

#include "rows.h"

struct ta_item {
    int32_t sequence; /* whose rows it has; of a prefix, the first one of the group */
    int32_t source;   /* whose cache it reads */
    int32_t kv_head, group, split;
    /* The rows that the row groups divide: rows of the sequence or, of a prefix, of the group. */
    int32_t first_row, end_row;
};

/* Has a block rows of several sequences? */
TA_DEVICE bool ta_shares_rows(const ta_attend_params &p)
{
    return p.prefix && !p.problem.selected;
}

/* A sequence as `prefix_starts` has it. What a GPU cannot check leads to no other memory. */
TA_DEVICE int32_t ta_prefix_sequence(const ta_problem &p, int32_t group)
{
    return max(0, min(p.prefix_starts[group], p.batch));
}

/* Row groups of a prefix are numbered as those of ragged sequences are: see ta_first_group(). */
TA_DEVICE int64_t ta_first_prefix_group(const ta_problem &p, int32_t group_rows, int32_t group)
{
    uint32_t heads = static_cast<uint32_t>(p.query_heads / p.kv_heads);
    uint32_t first =
        static_cast<uint32_t>(ta_problem_first_row(&p, ta_prefix_sequence(p, group))) * heads;
    return static_cast<int64_t>(first / static_cast<uint32_t>(group_rows)) + group;
}

/* All rows of a group of sequences. */
TA_DEVICE void ta_find_prefix_rows(const ta_attend_params &p, int64_t number, ta_item &item)
{
    const ta_problem &problem = p.problem;
    int32_t group = 0, end = problem.prefix_groups;
    while (end - group > 1) {
        int32_t middle = group + (end - group) / 2;
        if (ta_first_prefix_group(problem, p.shape.rows, middle) <= number)
            group = middle;
        else
            end = middle;
    }
    int32_t after = ta_prefix_sequence(problem, group + 1);
    item.sequence = min(ta_prefix_sequence(problem, group), problem.batch - 1);
    item.group = static_cast<int32_t>(number - ta_first_prefix_group(problem, p.shape.rows, group));
    item.end_row = static_cast<int32_t>(ta_problem_first_row(&problem, after) -
                                        ta_problem_first_row(&problem, item.sequence)) *
                   (problem.query_heads / problem.kv_heads);
}

/* The rows of one query token. */
TA_DEVICE void ta_find_token_rows(const ta_attend_params &p, int64_t number, ta_item &item)
{
    const ta_problem &problem = p.problem;
    int32_t heads = problem.query_heads / problem.kv_heads;
    uint32_t row = static_cast<uint32_t>(number) / static_cast<uint32_t>(p.shape.groups);
    item.group =
        static_cast<int32_t>(static_cast<uint32_t>(number) % static_cast<uint32_t>(p.shape.groups));
    item.sequence = ta_problem_sequence_of(&problem, row);
    int32_t token = static_cast<int32_t>(row - ta_problem_first_row(&problem, item.sequence));
    item.first_row = token * heads;
    item.end_row = token < ta_problem_query_tokens(&problem, item.sequence) ? (token + 1) * heads
                                                                            : item.first_row;
}

TA_DEVICE void ta_find_sequence_rows(const ta_attend_params &p, int64_t number, ta_item &item)
{
    const ta_problem &problem = p.problem;
    item.sequence = ta_sequence_of_group(problem, p.shape.rows, number);
    item.group =
        static_cast<int32_t>(number - ta_first_group(&problem, p.shape.rows, item.sequence));
    item.end_row =
        ta_problem_query_tokens(&problem, item.sequence) * (problem.query_heads / problem.kv_heads);
}

/* Where the row groups of a KV head and split are numbered through all sequences. */
TA_DEVICE ta_item ta_find_numbered_item(const ta_attend_params &p, uint32_t i)
{
    uint32_t groups = static_cast<uint32_t>(p.groups);
    uint32_t splits = static_cast<uint32_t>(p.part_splits);
    int64_t number = i % groups;
    ta_item item = {};
    i /= groups;
    item.split = static_cast<int32_t>(i % splits);
    item.kv_head = static_cast<int32_t>(i / splits);
    if (p.problem.selected)
        ta_find_token_rows(p, number, item);
    else if (p.prefix)
        ta_find_prefix_rows(p, number, item);
    else
        ta_find_sequence_rows(p, number, item);
    item.source = item.sequence;
    if (p.prefix && p.problem.selected)
        item.source =
            min(ta_prefix_sequence(p.problem, ta_problem_group(&p.problem, item.sequence)),
                p.problem.batch - 1);
    return item;
}

/* Row groups of the same tokens are neighbours, so that the second reads what the first left in the
 * cache. */
TA_DEVICE ta_item ta_find_item(const ta_attend_params &p)
{
    int32_t block = static_cast<int32_t>(blockIdx.x);
    ta_opaque(block); /* in vector registers: AMD's devices have too few scalar ones */
    uint32_t i = static_cast<uint32_t>(block);
    ta_item item = {};
    if (p.problem.starts || p.problem.selected || p.prefix)
        return ta_find_numbered_item(p, i);
    item.group = static_cast<int32_t>(i % static_cast<uint32_t>(p.shape.groups));
    i /= static_cast<uint32_t>(p.shape.groups);
    item.split = static_cast<int32_t>(i % static_cast<uint32_t>(p.part_splits));
    i /= static_cast<uint32_t>(p.part_splits);
    item.kv_head = static_cast<int32_t>(i % static_cast<uint32_t>(p.problem.kv_heads));
    item.sequence = item.source =
        static_cast<int32_t>(i / static_cast<uint32_t>(p.problem.kv_heads));
    item.end_row = p.problem.query_tokens * (p.problem.query_heads / p.problem.kv_heads);
    return item;
}

#endif
