/* A plan: the work with every default filled in, what will run, and the memory for it. Built once
 * by plan.c, read-only afterwards but for the counts of the last step and its recording; the
 * algorithms read it, explain.c prints it. */
#ifndef TA_PLAN_H
#define TA_PLAN_H

#include <treeattn/treeattn.h>

#include "device/device.h"
#include "group/group.h"
#include "planner.h"

/* What a step did, as its device and its group counted it. */
typedef struct ta_step_counts {
    ta_device_stats device;
    ta_group_stats group;
} ta_step_counts;

/* The arguments of a step after all checks. */
typedef struct ta_step {
    ta_tensor q, out;
    ta_kv kv;
    float *lse;
} ta_step;

/* A step that was captured: with which arguments, and what it queues and sends. */
typedef struct ta_recording {
    void *graph; /* NULL: none */
    ta_step step;
    ta_step_counts counts;
} ta_recording;

struct ta_plan {
    ta_group *group; /* NULL: one rank */
    ta_device *device;
    ta_problem problem;
    int rank, ranks;
    int64_t id; /* the same on all ranks, another one for each plan */
    ta_placement query_placement, out_placement;
    int query_root, out_root;
    int chunks;         /* of the exchange, see ta_plan_chunk() */
    int lengths_hidden; /* on some rank, maybe another, the host cannot see the lengths of a step */
    int replays;        /* steps are captured, and replayed where they can be */
    ta_algorithm algorithm;
    ta_choice choice; /* of the exchange, and what was predicted */

    void *memory; /* device memory that the pieces below are cut from */
    size_t memory_bytes;
    int owns_memory;
    float *records; /* query_heads · rows partials of this rank, then a ta_fault */
    void *query;    /* the query after it moved, [head][row][k_dim]; NULL if it need not */
    void *attend;   /* workspace of the device's attend() */

    /* Where partials and queries meet those of other ranks: in the device's memory if the group can
     * reach it; otherwise they are staged through host memory and merged there. */
    ta_device *exchange_device;
    void *staging; /* pinned host memory; NULL if nothing is staged */
    size_t staging_bytes;
    float *exchange_records; /* `records`, or their place in `staging` */
    void *exchange_query;    /* `query`, or its place in `staging` */
    float *received;   /* records from another rank (all-gather: from all); NULL on one rank */
    float *sent;       /* a copy on the way out; NULL if nothing but whole partials is sent */
    size_t *gather_at; /* [ranks + 1] byte offsets of the ranks' partials in an all-gather */
    /* If the group moves device memory: what this rank can have to tell, by -status, in device
     * memory; and in pinned host memory what finish_tracking() found. */
    ta_fault *faults, *report;
    ta_relay last;    /* what an exchange in device memory left to finish(); no messages: nothing */
    size_t *query_at; /* [ranks + 1] byte offsets of the ranks' heads in the query */

    /* Rings only: see ring.h. */
    float *fresh;    /* pass-KV: records of this rank's part before they are merged */
    void *slices[2]; /* pass-KV: K and V that this rank attends to */
    void *wire[2];   /* what comes and goes: `slices` or their place in `staging`; or partials */
    size_t *part_at; /* [ranks + 1] byte offsets of the parts in exchange_records */

    ta_recording recording; /* of the last step that was captured */

    /* Written by steps for ta_explain() and ta_plan_get_stats(); no step depends on it. */
    uint64_t steps, step_ns, attend_ns;
    ta_step_counts last_step;
};

/* The query heads that `rank` has under a placement: [*first, *first + *count). */
void ta_plan_heads(const ta_plan *plan, ta_placement placement, int root, int rank, int *first,
                   int *count);

/* Does the plan run in a ring? A ring of one rank is a tree. */
static inline int ta_plan_is_ring(const ta_plan *plan)
{
    return plan->ranks > 1 &&
           (plan->algorithm == TA_ALGORITHM_RING_KV || plan->algorithm == TA_ALGORITHM_RING_Q);
}

/* As the device's slot, timed. */
ta_status ta_plan_attend(ta_plan *plan, const ta_problem *problem, const ta_tensor *q,
                         const ta_kv *kv, float *records, void *stream);

/* A large partial is exchanged in chunks of some heads, so that a device that is staged copies one
 * while the last is on its way. All ranks have the same chunks, staged or not. */
static inline int ta_plan_chunks(const ta_plan *plan)
{
    return plan->chunks > 1 ? plan->chunks : 1;
}

static inline void ta_plan_chunk(const ta_plan *plan, int chunk, int *first, int *end)
{
    int64_t heads = plan->problem.query_heads, chunks = ta_plan_chunks(plan);
    *first = (int)(heads * chunk / chunks);
    *end = (int)(heads * (chunk + 1) / chunks);
}

/* Is device memory copied to the host before other ranks see it? */
static inline int ta_plan_stages(const ta_plan *plan)
{
    return plan->exchange_device != plan->device;
}

/* Is the exchange in device memory? Then the host does not follow the step, and the fault of a step
 * is in device memory too, behind the records. */
static inline int ta_plan_tracks(const ta_plan *plan)
{
    return plan->ranks > 1 && plan->group->device;
}

/* Are its partials relayed (exchange/relay.c)? Tallies are merged round by round. */
static inline int ta_plan_relays(const ta_plan *plan)
{
    return ta_plan_tracks(plan) && !plan->problem.tally_tile;
}

/* A fault as it is in device memory, and back. In pass-KV it is also a number that the ranks find
 * the largest of: 0 for none, otherwise the rank counts most, and a lower one for more. */
static inline ta_fault ta_plan_fault_out(const ta_plan *plan, ta_fault fault)
{
    if (!ta_plan_is_ring(plan) || plan->algorithm != TA_ALGORITHM_RING_KV)
        return fault;
    return (ta_fault){fault.status, fault.status == TA_OK ? 0 : plan->ranks - fault.rank};
}

static inline ta_fault ta_plan_fault_in(const ta_plan *plan, ta_fault fault)
{
    return ta_plan_fault_out(plan, fault); /* which is its own inverse */
}

/* Do all ranks have the same plan, and did all succeed so far? `status` is this rank's own result.
 * Collective; returns the same verdict everywhere (agree.c), and sets plan->lengths_hidden and
 * plan->id. `plan` may be NULL after a failure. */
ta_status ta_plan_agree(ta_group *group, ta_plan *plan, const ta_plan_config *config,
                        ta_status status);

#endif
