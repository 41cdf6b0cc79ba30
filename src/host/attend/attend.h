/* The local attention of the host device: the attend() slot of device.h, its workspace, and how its
 * work is divided. Each sequence is divided by itself, as its number of query tokens asks for: a
 * prefill beside decodes is cut into many items and takes no thread for long, and what becomes of a
 * sequence does not depend on the others. An item is (sequence, head group, row group, split): some
 * of the query rows that read a few neighbouring KV heads, against one range of that sequence's
 * tokens. attend.c runs items on the thread pool and merges the splits of a row in ascending order.
 *
 * The division depends on the problem, the strides and the lengths, never on the number of threads
 * or on timing: so neither do the results. */
#ifndef TA_HOST_ATTEND_H
#define TA_HOST_ATTEND_H

#include "device/device.h"

/* Bytes of workspace for a problem on so many threads. */
size_t ta_host_attend_bytes(const ta_problem *problem, int threads);

/* The slot. `kv` was checked. */
ta_status ta_host_attend(ta_device *device, const ta_problem *problem, const ta_tensor *q,
                         const ta_kv *kv, float *records, void *workspace, const ta_tell *tell,
                         void *stream);

/* ---- The division ---- */

typedef struct ta_division {
    int32_t rows;          /* query rows of one sequence that read the same KV head */
    int32_t group_rows;    /* rows of a row group; the last may have fewer */
    int32_t row_groups;    /* of one sequence and KV head, almost always 1 */
    int32_t group_heads;   /* KV heads of a head group; the last may have fewer */
    int32_t head_groups;   /* of one sequence */
    int32_t splits;        /* the most ranges that a sequence's tokens are split into */
    int32_t record_floats; /* from one record in the workspace to the next */
    int32_t tally_tile;    /* the problem's: splits begin where tiles do */
    int64_t items;
    int64_t first_item;   /* of this sequence among all */
    int64_t first_record; /* its first record in the workspace; then [KV head][split][row] */
} ta_division;

/* The division of a sequence with so many query tokens, as if it were the first. `heads_together`:
 * are the heads of a token neighbours in memory? Then they are read together. */
ta_division ta_divide(const ta_problem *problem, int32_t query_tokens, int heads_together);

/* Of all sequences of a call: divisions [batch]. */
void ta_divide_all(const ta_problem *problem, int heads_together, ta_division *divisions);

/* The items of a call. */
static inline int64_t ta_division_items(const ta_division *divisions, const ta_problem *problem)
{
    const ta_division *last = &divisions[problem->batch - 1];
    return last->first_item + last->items;
}

/* Tokens in each split of a sequence of which `tokens` are visible here. */
int32_t ta_division_split_tokens(const ta_division *division, int32_t tokens);

typedef struct ta_item {
    int32_t sequence;
    int32_t kv_head, heads; /* the first KV head, and how many */
    int32_t row, rows;      /* the first row of each of them, and how many; see item.h */
    int32_t split;
} ta_item;

ta_item ta_division_item(const ta_division *divisions, const ta_problem *problem, int64_t item);

#endif
