/* Ring decode (Ring Attention), the baseline that tree is measured against. Every rank makes the
 * result of its part of the query heads (parts.h), so that the ranks together do the arithmetic
 * once.
 *
 * pass-KV    slices of K and V go around, with their own number of KV heads, each on to the next
 *            rank while this one attends to it; queries stay.
 * pass-Q     the partial of each part goes around, with its query if not all ranks have it; K and V
 *            stay.
 *
 * ring_kv.c and ring_q.c have a table each (step.h). On one rank there is nothing to pass, and
 * tree is called. */
#ifndef TA_RING_H
#define TA_RING_H

#include "plan.h"

/* pass-KV sends a shard in this many slices. Two buffers of half a shard each are what the paper
 * counts for a ring, one more shard, and still one is filled while the other is in use. */
#define TA_RING_SLICES 2

/* Tokens of each sequence in a slice, at most. */
int32_t ta_ring_slice_tokens(const ta_problem *problem);

/* Bytes of one sequence and KV head in a slice, and of a partial on its way. */
size_t ta_ring_slice_head_bytes(const ta_problem *problem);
size_t ta_ring_partial_bytes(const ta_plan *plan);

#endif
