/* Parts: in a ring every rank makes the result of its own part of the query heads, the same heads
 * that TA_PLACE_HEADS gives it. Here are attend() on a part, and the last move of a ring step: the
 * parts to where the output belongs. ring_kv.c and ring_q.c call them. */
#ifndef TA_PARTS_H
#define TA_PARTS_H

#include "plan.h"

/* The query heads [*first, *first + *heads) of a rank's part. */
void ta_part(const ta_plan *plan, int rank, int *first, int *heads);

/* The workspace that ta_part_attend() needs for a rank's part. */
size_t ta_part_attend_bytes(const ta_plan *plan, const ta_problem *problem, int rank);

/* The tensor without its first heads. */
ta_tensor ta_heads_from(ta_tensor tensor, int first, ta_dtype dtype);

/* Attend with a rank's part alone: head 0 of `q` and the first of `records` are those of its first
 * head. */
ta_status ta_part_attend(ta_plan *plan, const ta_problem *problem, int rank, const ta_tensor *q,
                         const ta_kv *kv, float *records, void *stream);

/* Every rank has the merged records of its part at their place in plan->job.records: bring
 * them to the ranks that need them. */
ta_status ta_parts_gather(ta_plan *plan, void *stream);

#endif
