/* What one item works with. item.c starts and ends it, item_rows.c loads its query rows,
 * item_tokens.c takes them over its tokens. */
#ifndef TA_HOST_ITEM_STATE_H
#define TA_HOST_ITEM_STATE_H

#include <math.h>

#include "item.h"
#include "tile.h"

/* What a query row sees, the same for all heads. */
typedef struct ta_query_row {
    ta_visible visible; /* local positions */
    int32_t position;
} ta_query_row;

/* The present tile, and the weights of its tokens for one block of rows. */
typedef struct ta_item_buffers {
    ta_tile tile;
    float weights[TA_TILE_BLOCKS][TA_BLOCK_SCORES]; /* [block of tokens][head] */
    float rescale[TA_TILE_BLOCKS][TA_ROW_BLOCK];
    ta_token_set hidden[TA_TILE_BLOCKS][TA_ROW_BLOCK];
    int any_hidden[TA_TILE_BLOCKS];
    _Alignas(64) float sums[TA_BLOCK_VALUES];
} ta_item_buffers;

/* The rows of an item, and its tokens. All arrays are in the thread's scratch, [head][row] with
 * group_rows rows, except for the records. */
typedef struct ta_item_state {
    const ta_attend_job *job;
    ta_item item;
    ta_tile_source source;
    ta_item_buffers *buffers;
    ta_query_row *rows; /* [row] */
    float *slopes;      /* of ALiBi, for scores in base 2 */
    float *m, *l;       /* of the rows' partials */
    float *q;           /* k_dim each, arranged or packed, ready to give scores in base 2 */
    int packed;
    float *records; /* of the first head and row; o is summed in place */
    int64_t record_stride, record_head_stride;
    /* Reproducible mode: tallies of the first head and row, strides as the workspace has them. Then
     * `records` are in the scratch, for one tile after the other. */
    float *tallies;
    int64_t tally_stride, tally_head_stride;
} ta_item_state;

/* The index of a head's row in the arrays of an item. */
static inline int64_t ta_row_index(const ta_item_state *s, int head, int32_t row)
{
    return (int64_t)head * s->job->division.group_rows + row;
}

static inline float *ta_row_record(const ta_item_state *s, int head, int32_t row)
{
    return s->records + head * s->record_head_stride + row * s->record_stride;
}

/* Scores come out in base 2; a soft-cap needs them natural, divided by the cap. */
static inline float ta_score_factor(const ta_problem *p)
{
    return (float)(p->scale * (p->softcap > 0.0f ? 1.0 / p->softcap : M_LOG2E));
}

/* Empty the partials of all rows and load the queries. */
void ta_item_start_rows(ta_item_state *state);

/* Empty the partial of one row. */
void ta_item_empty_row(const ta_item_state *state, int head, int32_t row);

/* All rows against the tokens [first, end), local positions, that they see. */
void ta_item_attend_tokens(const ta_item_state *state, int32_t first, int32_t end);

#endif
