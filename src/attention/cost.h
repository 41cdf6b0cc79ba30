/* What the calls of an attention plan would cost: messages, bytes and, on a cluster, seconds. The
 * estimates of estimate.c add up what grid.c, overlap.c and ring.c
 * send; choice.c chooses from them and explain.c shows them. docs/model.md. */
#ifndef TA_ATTENTION_COST_H
#define TA_ATTENTION_COST_H

#include <treeattn/attention.h>

#include "cluster/cost.h"
#include "plan.h"

/* Forward, and backward if the plan has it. */
enum { TA_PASS_FORWARD, TA_PASS_BACKWARD, TA_PASSES };

typedef struct ta_attention_pass {
    double seconds;
    double attend_s;    /* of them, computing with nothing else going on: the busiest rank's */
    ta_traffic busiest; /* the largest of each number over the ranks */
    int phase_count;
    ta_cost_phase phases[TA_COST_PHASES];
} ta_attention_pass;

struct ta_attention_candidate {
    ta_attention_algorithm algorithm;
    int grid_rows, grid_columns; /* 0 for a ring */
    int fits;                    /* into the memory of a device */
    double memory_bytes;         /* of a rank: the plan's and the caller's tensors */
    ta_attention_pass passes[TA_PASSES];
};

/* "grid", "grid overlap" or "ring". */
const char *ta_attention_algorithm_name(ta_attention_algorithm algorithm);

/* Add one call to the cost, for all ranks of a plan: its algorithm, grid, shape, map, mask, window
 * and `counts`, the tokens of each rank, are looked at. The cost's cluster may be NULL. */
ta_status ta_attention_estimate(const ta_attention *attention, int backward, ta_cost *cost);

/* Score elements of the busiest rank in a call. */
double ta_attention_scores(const ta_attention *attention);

/* Seconds that a device takes for so many score elements of each query head. */
double ta_attention_attend_s(const ta_attention *attention, const ta_cluster *cluster,
                             double scores, int backward);

#endif
