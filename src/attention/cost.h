/* What the calls of an attention plan would cost: messages, bytes and, on a cluster, seconds. The
 * estimates of estimate.c add up what grid.c, overlap.c and ring.c
 * send; choice.c chooses from them and explain.c shows them. docs/model.md. */
#ifndef TA_ATTENTION_COST_H
#define TA_ATTENTION_COST_H

#include <treeattn/attention.h>

#include "cluster/candidate.h"
#include "plan.h"

/* Add one call to the cost, for all ranks of a plan: its algorithm, grid, shape, map, mask, window
 * and `counts`, the tokens of each rank, are looked at. The cost's cluster may be NULL. */
ta_status ta_attention_estimate(const ta_attention *attention, int backward, ta_cost *cost);

/* Score elements of the busiest rank in a call. */
double ta_attention_scores(const ta_attention *attention);

/* Seconds that a device takes for so many score elements of each query head. */
double ta_attention_attend_s(const ta_attention *attention, const ta_cluster *cluster,
                             double scores, int backward);

#endif
