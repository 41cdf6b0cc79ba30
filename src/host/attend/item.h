/* One item of attend(): query rows of a few KV heads against one split of a part's tokens
 * (attend.h). The arithmetic is in kernels.h; this is which rows see which tokens, and where
 * those are in memory. attend.c runs the items. */
#ifndef TA_HOST_ITEM_H
#define TA_HOST_ITEM_H

#include <math.h>

#include "attend.h"
#include "host/kernels.h"
#include "host/pool.h"
#include "tile.h"
#include "widen.h"

/* All that items share; read-only while they run. */
typedef struct ta_attend_job {
    const ta_problem *problem;
    const ta_tensor *q;
    const ta_kv *kv;
    const ta_host_kernels *kernels;
    int64_t row_ahead_bytes;      /* see ta_host_row_ahead_bytes() */
    const ta_division *divisions; /* [part] */
    ta_pool *pool;
    float *split_records; /* [part][KV head][split][row] records of record_floats */
    float *records;       /* the result */
    char *scratch;        /* scratch_bytes for each thread */
    size_t scratch_bytes;
} ta_attend_job;

/* Row `row` of a KV head is query head row % heads of it, of query token row / heads, where heads
 * is the number of query heads for each KV head: rows of one token are neighbours, because they see
 * the same keys.
 *
 * Scratch that one thread needs, a multiple of 64. */
size_t ta_item_scratch_bytes(const ta_problem *problem, const ta_division *division);

/* The local positions of an item; may be empty. */
ta_visible ta_job_item_range(const ta_attend_job *job, ta_item item);

/* Where the record of a row and split is in the workspace. */
static inline float *ta_job_record(const ta_attend_job *job, int32_t part, int32_t kv_head,
                                   int32_t row, int32_t split)
{
    const ta_division *d = &job->divisions[part];
    int64_t index = d->first_record + ((int64_t)kv_head * d->splits + split) * d->rows + row;
    return job->split_records + index * d->record_floats;
}

/* Compute the records of an item. An item past its part's tokens has none. */
void ta_item_attend(const ta_attend_job *job, ta_item item, void *scratch);

/* ---- What one works with: item.c starts and ends it, item_tokens.c takes its query rows over its
 * tokens, item_ahead.c asks for those that come next ---- */

/* The present tile, and the weights of its tokens for one block of rows. */
typedef struct ta_item_buffers {
    ta_tile tile;
    ta_widened widened;                             /* of 8 bits */
    float weights[TA_TILE_BLOCKS][TA_BLOCK_SCORES]; /* [block of tokens][head] */
    float rescale[TA_TILE_BLOCKS][TA_ROWS_MOST];
    ta_token_set hidden[TA_TILE_BLOCKS][TA_ROWS_MOST];
    int any_hidden[TA_TILE_BLOCKS];
    _Alignas(64) float sums[TA_BLOCK_VALUES];
} ta_item_buffers;

/* The rows of an item, and its tokens. All arrays are in the thread's scratch, [head][row] with
 * group_rows rows, except for the records. */
typedef struct ta_item_state {
    const ta_attend_job *job;
    const ta_division *division; /* of its part */
    ta_item item;
    ta_tile_source source;
    ta_item_buffers *buffers;
    ta_query_row *rows; /* [row] */
    float *slopes;      /* of ALiBi, for scores in base 2 */
    float *m, *l;       /* of the rows' partials */
    float *q;           /* k_dim each, arranged or packed, ready to give scores in base 2 */
    ta_dtype dtype;     /* of K and V as kernels see them */
    char *narrow;       /* of 8 bits: memory for scales and widened tiles; else NULL */
    int widens;         /* are tiles widened, so that kernels see bf16? */
    int packed;
    float *records; /* of the first head and row; o is summed in place */
    int64_t record_stride, record_head_stride;
    /* Reproducible mode: tallies of the first head and row, strides as the workspace has them. Then
     * `records` are in the scratch, for one tile after the other. */
    float *tallies;
    int64_t tally_stride, tally_head_stride;
    /* Selected positions: a bit for each local position from `marks_first` on, for the rows of one
     * query token. NULL: rows see all that is visible. */
    uint64_t *marks;
    int32_t marks_first;
} ta_item_state;

/* The index of a head's row in the arrays of an item. */
static inline int64_t ta_row_index(const ta_item_state *s, int head, int32_t row)
{
    return (int64_t)head * s->division->group_rows + row;
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

/* All rows against the tokens [first, end), local positions, that they see. Those up to `last` come
 * next. */
void ta_item_attend_tokens(const ta_item_state *state, int32_t first, int32_t end, int32_t last);

/* All rows against the tile in the buffers: for tiles that were not found by the above. */
void ta_item_attend_tile(const ta_item_state *state);

/* ---- Selected positions: item_selected.c ---- */

/* Bytes of marks for an item. */
size_t ta_item_marks_bytes(const ta_problem *problem);

/* Mark the tokens among the local positions [first, end) that the list of the rows' query token
 * has, and that it sees. All rows are of that one token. */
void ta_item_mark(ta_item_state *state, int32_t first, int32_t end);

/* All rows against the marked ones of the tokens [first, end). */
void ta_item_attend_marked(const ta_item_state *state, int32_t first, int32_t end);

#endif
