/* A plan: the work with every default filled in, what will run, and the memory for it. Built once
 * by plan.c, which has memory.c cut the memory; read-only afterwards but for the counts of the last
 * step and its recording. The algorithms read it, explain.c prints it. */
#ifndef TA_PLAN_H
#define TA_PLAN_H

#include <treeattn/treeattn.h>

#include "device/device.h"
#include "device/staging.h"
#include "exchange/exchange.h"
#include "group/group.h"
#include "planner.h"

/* What a step did, as its device and its group counted it. */
typedef struct ta_step_counts {
    ta_device_stats device;
    ta_group_stats group;
} ta_step_counts;

/* The arguments of a step after all checks. Two steps are the same if their bytes are, so there is
 * no padding in it. */
typedef struct ta_step {
    ta_tensor q, out;
    ta_kv kv;
    float *lse;
    uint64_t tag;
    ta_problem problem;    /* the plan's, with what the call adds */
    const float *part_lse; /* of a combine, whose shard output is `q`; and its base, 0 or 1 for 2 */
    uint64_t part_base_2;
    ta_new_tokens tokens; /* of an append */
} ta_step;

_Static_assert(sizeof(ta_tensor) == sizeof(void *) + 3 * sizeof(int64_t), "no padding");
_Static_assert(sizeof(ta_scales) == sizeof(ta_tensor), "no padding");
_Static_assert(sizeof(ta_kv) == sizeof(size_t) + 2 * sizeof(ta_tensor) + 3 * sizeof(void *) +
                                    2 * sizeof(int64_t) + 2 * sizeof(int32_t) + 2 * sizeof(size_t) +
                                    2 * sizeof(ta_scales),
               "no padding");
_Static_assert(sizeof(ta_problem) == 17 * sizeof(int32_t) + sizeof(ta_shard) +
                                         3 * sizeof(ta_dtype) + 2 * sizeof(float) +
                                         3 * sizeof(int64_t) + 6 * sizeof(void *),
               "no padding");
_Static_assert(sizeof(ta_new_tokens) == 2 * sizeof(ta_tensor) + sizeof(ta_dtype) + sizeof(int32_t) +
                                            2 * sizeof(void *) + 2 * sizeof(int32_t),
               "no padding");
_Static_assert(sizeof(ta_step) == 2 * sizeof(ta_tensor) + sizeof(ta_kv) + 2 * sizeof(float *) +
                                      2 * sizeof(uint64_t) + sizeof(ta_problem) +
                                      sizeof(ta_new_tokens),
               "no padding");

/* What a call gives its messages their sizes with: sizes.h. */
typedef struct ta_sizes {
    int64_t rows; /* query rows of a head, or new tokens */
    int32_t batch;
    ta_dtype dtype; /* of new tokens */
    int ragged;
} ta_sizes;

/* The table of an algorithm: step.h. */
typedef struct ta_algorithm_ops ta_algorithm_ops;

/* A step that was captured: with which arguments, and what it queues and sends. */
typedef struct ta_recording {
    void *graph;   /* NULL: none */
    uint64_t used; /* when it was last: a number that grows with each replay */
    ta_step step;
    ta_step_counts counts;
} ta_recording;

struct ta_plan {
    ta_group *group; /* NULL: one rank */
    ta_device *device;
    ta_problem problem; /* of the largest call */
    /* [ranks + 1] of a weighted shard map (base/shard_map.h); NULL: another map */
    int32_t *turn_starts;
    int rank, ranks;
    int64_t id; /* the same on all ranks, another one for each plan */
    ta_placement query_placement, out_placement;
    int query_root, out_root;
    int lengths_hidden; /* on some rank, maybe another, the host cannot see the lengths of a step */
    int checks;         /* checked mode */
    int shots;          /* of a direct exchange, if the environment says */
    double signal_bytes; /* likewise: what decides it on GPUs, if there is a cluster */
    int replays;         /* steps are captured, and replayed where they can be */
    ta_algorithm algorithm;
    const ta_algorithm_ops *runs; /* its table */
    ta_choice choice;             /* of the exchange, and what was predicted */

    void *memory; /* device memory that the pieces below are cut from */
    size_t memory_bytes;
    int owns_memory;
    float *records;  /* query_heads · rows partials of this rank, then a ta_fault */
    void *query;     /* the query after it moved, [head][row][k_dim]; NULL if it need not */
    void *attend;    /* workspace of the device's attend() */
    uint64_t *marks; /* of ta_check_host_selected(), if the host sees the lists of a step */

    /* Where partials and queries meet those of other ranks: in the device's memory if the group can
     * reach it; otherwise they are staged through host memory and merged there. */
    ta_exchange_job job;  /* its records are `records`, or their place in the staging memory */
    ta_staging staging;   /* also of `report`; no memory if nothing is staged or reported */
    void *exchange_query; /* `query`, or its place in the staging memory */
    size_t *query_at;     /* [ranks + 1] byte offsets of the ranks' heads in the query */
    int64_t fitted_rows;  /* what the job and all offsets are for: ta_plan_fit() */
    /* New tokens that are scattered by heads (append.c): everybody's, or NULL; where they meet; the
     * [ranks + 1] byte offsets of the ranks' pieces, set by each call. */
    int gathers_tokens;
    char *gathered, *exchange_gathered;
    size_t *gathered_at;
    /* What all ranks agreed on last: of steps, and of new tokens that are scattered by heads. */
    ta_sizes sizes, append_sizes;
    ta_fault *answers; /* [ranks] pinned host memory: sizes.c; NULL: the host sees them anyway */
    /* If a step in device memory tells only the root of faults: the ranks' notices, which go before
     * it; NULL: none. And this rank's usual one, and the status of the one that is in its place. */
    ta_fault *notices, *usual_notice;
    int32_t noticed;
    size_t *notices_at; /* [ranks + 1] byte offsets */
    /* If the host does not follow a step: what this rank can have to tell of itself if it failed,
     * by -status, in device memory. */
    ta_fault *faults;
    /* Where the device writes what this rank tells of a step, if the host cannot see lengths: with
     * staging, device memory that is copied to behind the records. */
    ta_fault *told;
    ta_tell telling;  /* what the next attend() of this step has to tell; `to` NULL: nothing */
    ta_fault *report; /* where finish() tells of a fault: pinned host memory, or `heard` */
    ta_fault heard;
    ta_fault lost; /* a rank for which another one waited in vain, if there is one */

    /* Rings only: see ring.h. */
    float *fresh;              /* pass-KV: records of this rank's part before they are merged */
    void *slices[2];           /* pass-KV: K and V that this rank attends to */
    ta_exchange_job fault_job; /* pass-KV: the fault goes before all else, behind no records */
    void *wire[2];   /* what comes and goes: `slices` or their staging memory; or partials */
    size_t *part_at; /* [ranks + 1] byte offsets of the parts in the exchange's records */

    ta_recording *recordings; /* of the last steps that were captured: replay.h; NULL: none */
    uint64_t replayed;

    /* Written by steps for ta_explain() and ta_plan_get_stats(); no step depends on it. */
    uint64_t steps, step_ns, attend_ns;
    ta_step_counts last_step;
};

/* Does the plan run in a ring? A ring of one rank is a tree. */
static inline int ta_plan_is_ring(const ta_plan *plan)
{
    return plan->ranks > 1 &&
           (plan->algorithm == TA_ALGORITHM_RING_KV || plan->algorithm == TA_ALGORITHM_RING_Q);
}

/* Does the plan combine what others attended, and has neither K nor V? */
static inline int ta_plan_combines(const ta_plan *plan)
{
    return ta_problem_combines(&plan->problem);
}

/* Is device memory copied to the host before other ranks see it? */
static inline int ta_plan_stages(const ta_plan *plan)
{
    return plan->job.device != plan->device;
}

/* Is the exchange in device memory? Then the host does not follow the step, and the fault of a step
 * is in device memory too, behind the records. */
static inline int ta_plan_tracks(const ta_plan *plan)
{
    return plan->job.shape.device_memory;
}

/* Does the device tell the other ranks of a step's lengths, because the host cannot see them? */
static inline int ta_plan_device_tells(const ta_plan *plan)
{
    return plan->ranks > 1 && plan->device->ops->alloc_host != NULL;
}

/* memory.c: the memory of a plan that is described; and how much device memory that would be. */
ta_status ta_plan_make_memory(const ta_plan_config *config, ta_plan *plan);
ta_status ta_plan_measure(ta_plan *plan, size_t *bytes);
/* The pieces as a call with so many query rows uses them: less of each, nothing moves but where an
 * all-gather has this rank's records. */
void ta_plan_fit(ta_plan *plan, int64_t rows);
void ta_plan_free_memory(ta_plan *plan);

/* Do all ranks have the same plan, and did all succeed so far? `status` is this rank's own result.
 * Collective; returns the same verdict everywhere (agree.c), and sets plan->lengths_hidden and
 * plan->id. `plan` may be NULL after a failure. */
ta_status ta_plan_agree(ta_group *group, ta_plan *plan, const ta_plan_config *config,
                        ta_status status);

#endif
