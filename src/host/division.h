/* How the work of attend() is divided. An item is (sequence, KV head, row group, split): some of
 * the query rows that read one KV head, against one range of that sequence's tokens. attend.c runs
 * items on the thread pool and merges the splits of a row in ascending order.
 *
 * The division depends on the problem and on the lengths, never on the number of threads or on
 * timing: so neither do the results. */
#ifndef TA_HOST_DIVISION_H
#define TA_HOST_DIVISION_H

#include "../device.h"

typedef struct ta_division {
    int32_t rows;          /* query rows of one sequence that read the same KV head */
    int32_t group_rows;    /* rows of a row group; the last may have fewer */
    int32_t groups;        /* row groups of one sequence and KV head, almost always 1 */
    int32_t splits;        /* the most ranges that a sequence's tokens are split into */
    int32_t record_floats; /* from one record in the workspace to the next */
    int64_t items;
} ta_division;

ta_division ta_divide(const ta_problem *problem);

/* Tokens in each split of a sequence of which `tokens` are visible here. */
int32_t ta_division_split_tokens(const ta_division *division, int32_t tokens);

/* The row of the item's group, from 0, is `row` = token · heads + head: heads of one token are
 * neighbours, because they see the same keys. */
typedef struct ta_item {
    int32_t sequence, kv_head, group, split;
} ta_item;

ta_item ta_division_item(const ta_division *division, const ta_problem *problem, int64_t item);

#endif
