/* The local attention of the host device: the attend() slot of device.h, its workspace, and how its
 * work is divided (division.c). Each sequence is divided by itself, as its number of query tokens
 * asks for: a prefill beside decodes is cut into many items and takes no thread for long, and what
 * becomes of a sequence does not depend on the others. Where sequences share a prefix, that is a
 * part by itself, which all their rows read together; then each has its own tokens as another part.
 * An item is (part, head group, row group, split): some of the query rows that read a few
 * neighbouring KV heads, against one range of that part's tokens. attend.c runs items on the thread
 * pool and merges the splits of a row in ascending order.
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
    int32_t sequence; /* the one whose cache has the tokens: with a prefix, the group's first */
    int32_t from, to; /* the positions [from, to) are the part's; to INT32_MAX: all from there */
    int32_t query_tokens;  /* that read it, of one sequence or of all in a group */
    int32_t rows;          /* query rows of them that read the same KV head */
    int32_t group_rows;    /* rows of a row group; the last may have fewer */
    int32_t row_groups;    /* of one part and KV head, almost always 1 */
    int32_t group_heads;   /* KV heads of a head group; the last may have fewer */
    int32_t head_groups;   /* of one part */
    int32_t splits;        /* the most ranges that a part's tokens are split into */
    int32_t record_floats; /* from one record in the workspace to the next */
    int32_t tally_tile;    /* the problem's: splits begin where tiles do */
    /* The local positions that splits divide: what some row sees, and in reproducible mode from the
     * beginning of the first tile on. */
    ta_visible divided;
    int64_t first_row; /* of its query tokens among all rows of a head */
    int64_t items;
    int64_t first_item;   /* of this part among all */
    int64_t first_record; /* its first record in the workspace; then [KV head][split][row] */
} ta_division;

/* The division of a part with so many query tokens, but for where it is. `heads_together`: are the
 * heads of a token neighbours in memory? Then they are read together. */
ta_division ta_divide(const ta_problem *problem, int32_t query_tokens, int heads_together,
                      int is_prefix);

/* The parts of a call: its sequences, then the prefixes of its groups. */
int32_t ta_division_parts(const ta_problem *problem);
void ta_divide_all(const ta_problem *problem, const ta_kv *kv, int heads_together,
                   ta_division *divisions);

/* The items of a call. */
int64_t ta_division_items(const ta_division *divisions, const ta_problem *problem);

/* What a query row sees of a part, the same for all heads. */
typedef struct ta_query_row {
    ta_visible visible; /* local positions */
    int32_t position;
} ta_query_row;

/* Of query token `token` of a part. */
ta_query_row ta_division_row(const ta_division *division, const ta_problem *problem,
                             const ta_kv *kv, int32_t token);

/* Tokens in each split of a part of which `tokens` are visible here. */
int32_t ta_division_split_tokens(const ta_division *division, int32_t tokens);

typedef struct ta_item {
    int32_t part;
    int32_t kv_head, heads; /* the first KV head, and how many */
    int32_t row, rows;      /* the first row of each of them, and how many; see item.h */
    int32_t split;
} ta_item;

ta_item ta_division_item(const ta_division *divisions, const ta_problem *problem, int64_t item);

#endif
