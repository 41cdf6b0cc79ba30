/* The algorithms of a decode step: one table for each, with what it runs and the memory that it
 * cuts from a plan's. tree.c, ring_kv.c and ring_q.c have them; memory.c and api.c call them. */
#ifndef TA_ALGORITHM_H
#define TA_ALGORITHM_H

#include "plan.h"

/* Cuts pieces off a block of memory; without a base it only adds up what they would take. */
typedef struct ta_cutter {
    char *base;
    size_t used;
    int overflow;
} ta_cutter;

/* `count` times `each` bytes; NULL without a base, and for 0 bytes. (memory.c) */
void *ta_cut(ta_cutter *cutter, size_t count, size_t each);

struct ta_algorithm_ops {
    const char *name; /* as ta_explain() and ta_info() write it */

    /* One step. A rank with a fault of its own takes part without attending. Output and lse are
     * written only if no rank has one; otherwise plan->report gets that of another rank, at once
     * or, if the group moves device memory, when the step has run. */
    ta_status (*decode)(ta_plan *plan, const ta_step *step, const ta_fault *own, void *stream);

    /* Cut what the algorithm needs beside records, query and workspace: of the device's memory, and
     * of that where partials of other ranks are merged. */
    void (*cut)(ta_plan *plan, ta_cutter *device, ta_cutter *exchange);

    /* Workspace of the device's attend(). */
    size_t (*attend_bytes)(const ta_plan *plan);

    /* Does a query that is scattered by heads stay where it is? */
    int keeps_scattered_query;
};

extern const ta_algorithm_ops ta_tree_algorithm, ta_ring_kv_algorithm, ta_ring_q_algorithm;

/* By ta_algorithm; none for TA_ALGORITHM_AUTO. (memory.c) */
extern const ta_algorithm_ops *const ta_algorithms[];

/* What a plan runs: a ring of one rank is a tree. */
static inline const ta_algorithm_ops *ta_plan_algorithm(const ta_plan *plan)
{
    return ta_plan_is_ring(plan) ? ta_algorithms[plan->algorithm] : &ta_tree_algorithm;
}

#endif
