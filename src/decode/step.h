/* A decode step: the table that each algorithm has, with what it runs and the memory that it
 * cuts from a plan's; and what the steps of all algorithms share (step.c): attend, timed; this
 * rank's own fault; bring the query to the ranks; and turn the merged records into the output.
 * In between, each algorithm merges the partials of all ranks in its own way: tree in step.c too,
 * the rings in ring_kv.c and ring_q.c. */
#ifndef TA_STEP_H
#define TA_STEP_H

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

    /* After a step in which this rank was idle: where the faults of all ranks are, in its job's
     * memory and in the order of the stream. */
    ta_merge (*heard)(const ta_plan *plan);

    /* Workspace of the device's attend(). */
    size_t (*attend_bytes)(const ta_plan *plan);

    /* Does a query that is scattered by heads stay where it is? */
    int keeps_scattered_query;
};

extern const ta_algorithm_ops ta_tree_algorithm, ta_ring_kv_algorithm, ta_ring_q_algorithm;

/* A plan that only combines: the second half of a tree (combine.c). */
extern const ta_algorithm_ops ta_combine_algorithm;

/* By ta_algorithm; none for TA_ALGORITHM_AUTO (plan.c). */
extern const ta_algorithm_ops *const ta_algorithms[];

/* ---- What they share ---- */

/* The query heads that `rank` has under a placement: [*first, *first + *count). */
void ta_plan_heads(const ta_plan *plan, ta_placement placement, int root, int rank, int *first,
                   int *count);

/* As the device's slot, timed. */
ta_status ta_plan_attend(ta_plan *plan, const ta_problem *problem, const ta_tensor *q,
                         const ta_kv *kv, float *records, void *stream);

/* What this rank has to tell goes into the place of a job's fault: begin before attending, which
 * may have to add lengths that are in device memory. After the end it is there, in the order of
 * the stream, and the job can be exchanged; with staging it takes a wait. */
ta_status ta_begin_fault(ta_plan *plan, const ta_exchange_job *job, const ta_step *step,
                         const ta_fault *own, void *stream);
ta_status ta_end_fault(ta_plan *plan, const ta_exchange_job *job, const ta_step *step,
                       const ta_fault *own, void *stream);

/* Does the host know by now that some rank has a fault? Then it is reported, and nothing is written
 * to a job's records any more: an earlier step's copies of them may still be under way. */
int ta_step_failed(ta_plan *plan, const ta_exchange_job *job);

/* Bring the query to every rank. Afterwards *everywhere describes all query heads. */
ta_status ta_move_query(ta_plan *plan, const ta_step *step, const ta_fault *own,
                        ta_tensor *everywhere, void *stream);

/* The query as it is in plan->query: [head][row][k_dim]. */
ta_tensor ta_moved_query(const ta_plan *plan, const ta_problem *problem);

/* End the exchange that was started before some work, of which `status` is the result. If the work
 * failed, so does the group. */
ta_status ta_end_exchange(ta_plan *plan, ta_status status, void *stream);

/* What a tree does once every rank has its records and its fault in place: exchange, finish. And
 * the memory that it takes. */
ta_status ta_tree_merge(ta_plan *plan, const ta_step *step, const ta_fault *own, void *stream);
void ta_tree_cut(ta_plan *plan, ta_cutter *device, ta_cutter *exchange);
ta_merge ta_tree_heard(const ta_plan *plan);

/* Make output and lse of the heads that belong on this rank, from the records that `last` names and
 * what it says is still to be merged; if there is a fault, report it. A rank with one of its own
 * has neither output to write nor anything to hear. */
ta_status ta_finish_heads(ta_plan *plan, const ta_merge *last, const ta_step *step,
                          const ta_fault *own, void *stream);

#endif
