/* One item of attend(): query rows of a few KV heads against one split of a sequence's tokens
 * (division.h). The arithmetic is in kernels.h; this is which rows see which tokens, and where
 * those are in memory. attend.c runs the items. */
#ifndef TA_HOST_ITEM_H
#define TA_HOST_ITEM_H

#include "division.h"
#include "host/kernels.h"
#include "host/pool.h"

/* All that items share; read-only while they run. */
typedef struct ta_attend_job {
    const ta_problem *problem;
    const ta_tensor *q;
    const ta_kv *kv;
    const ta_host_kernels *kernels;
    ta_division division;
    ta_pool *pool;
    float *split_records; /* [sequence][KV head][split][row] records of record_floats */
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

/* The local positions that some row of a sequence sees: one range, because rows are neighbours. */
ta_visible ta_job_visible(const ta_attend_job *job, int32_t sequence);

/* The local positions that splits divide: those, and in reproducible mode from the beginning of the
 * first tile on. */
ta_visible ta_job_divided(const ta_attend_job *job, int32_t sequence);

/* The local positions that query token `token` of a sequence sees. */
ta_visible ta_job_row_visible(const ta_attend_job *job, int32_t sequence, int32_t token);

/* The local positions of an item; may be empty. */
ta_visible ta_job_item_range(const ta_attend_job *job, ta_item item);

/* Where the record of a row and split is in the workspace. */
static inline float *ta_job_record(const ta_attend_job *job, int32_t sequence, int32_t kv_head,
                                   int32_t row, int32_t split)
{
    int64_t head = (int64_t)sequence * job->problem->kv_heads + kv_head;
    int64_t index = (head * job->division.splits + split) * job->division.rows + row;
    return job->split_records + index * job->division.record_floats;
}

/* Compute the records of an item. An item past its sequence's tokens has none. */
void ta_item_attend(const ta_attend_job *job, ta_item item, void *scratch);

#endif
