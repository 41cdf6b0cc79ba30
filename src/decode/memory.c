/* The memory of a plan: how much of it there is, and which piece is what. One block on the device,
 * the caller's or the plan's own, and one of pinned host memory where the host has to see
 * something. The same function adds the pieces up and cuts them. Called by plan.c; the algorithms
 * cut theirs. */
#include <stdlib.h>

#include "base/arguments.h"
#include "base/dtype.h"
#include "base/shard_map.h"
#include "base/status.h"
#include "sizes.h"
#include "step.h"

enum {
#define COUNT(name, value, message) +1
    STATUSES = 0 TA_STATUS_LIST(COUNT)
#undef COUNT
};

void *ta_cut(ta_cutter *c, size_t count, size_t each)
{
    size_t bytes;
    if (__builtin_mul_overflow(count, each, &bytes) || bytes > SIZE_MAX / 4 - c->used) {
        c->overflow = 1;
        return NULL;
    }
    void *piece = c->base && bytes ? c->base + c->used : NULL;
    c->used +=
        (bytes + TA_WORKSPACE_ALIGNMENT - 1) / TA_WORKSPACE_ALIGNMENT * TA_WORKSPACE_ALIGNMENT;
    return piece;
}

static size_t query_head_bytes(const ta_problem *p, int64_t rows)
{
    return (size_t)rows * (size_t)p->k_dim * ta_dtype_bytes(p->query_dtype);
}

static int moves_query(const ta_plan *plan)
{
    if (plan->ranks == 1 || plan->query_placement == TA_PLACE_ALL)
        return 0;
    return plan->query_placement != TA_PLACE_HEADS || !plan->runs->keeps_scattered_query;
}

/* This rank's partial, and where other ranks see it. */
static void cut_records(ta_plan *plan, ta_cutter *device, ta_cutter *exchange)
{
    size_t bytes = ta_exchange_partial_bytes(&plan->job);
    if (ta_exchange_in_place(&plan->job)) /* cut already */
        plan->records = ta_exchange_own_records(&plan->job);
    else
        plan->records = ta_cut(device, bytes, 1);
    plan->job.records = ta_plan_stages(plan) ? ta_cut(exchange, bytes, 1) : plan->records;
}

static void cut_query(ta_plan *plan, ta_cutter *device, ta_cutter *exchange)
{
    const ta_problem *p = &plan->problem;
    if (!moves_query(plan))
        return;
    size_t head_bytes = query_head_bytes(p, p->rows);
    plan->query = ta_cut(device, (size_t)p->query_heads, head_bytes);
    plan->exchange_query = plan->query;
    if (ta_plan_stages(plan))
        plan->exchange_query = ta_cut(exchange, (size_t)p->query_heads, head_bytes);
}

/* Room for new tokens of any type. */
static void cut_gathered(ta_plan *plan, ta_cutter *device, ta_cutter *exchange)
{
    const ta_problem *p = &plan->problem;
    if (!plan->gathers_tokens || plan->ranks == 1)
        return;
    size_t bytes = (size_t)ta_gathered_piece(p, ta_problem_rows(p), sizeof(float), plan->ranks);
    plan->gathered = ta_cut(device, bytes, 1);
    plan->exchange_gathered = ta_plan_stages(plan) ? ta_cut(exchange, bytes, 1) : plan->gathered;
}

/* From here on the problem points to the plan's own copies. */
static ta_status copy_head_values(ta_plan *plan, void *slopes, void *sinks)
{
    ta_problem *p = &plan->problem;
    size_t bytes = (size_t)p->query_heads * sizeof(float);
    if (slopes)
        TA_TRY(plan->device->ops->copy(plan->device, slopes, p->alibi_slopes, bytes, NULL));
    if (sinks)
        TA_TRY(plan->device->ops->copy(plan->device, sinks, p->sinks, bytes, NULL));
    p->alibi_slopes = slopes;
    p->sinks = sinks;
    return TA_OK;
}

/* What this rank may have to tell the others of a step. */
static ta_status copy_faults(const ta_plan *plan)
{
    ta_fault faults[STATUSES];
    for (int i = 0; i < STATUSES; ++i)
        faults[i] = ta_fault_of(-i, plan->rank);
    if (!plan->faults)
        return TA_OK;
    return plan->device->ops->copy(plan->device, plan->faults, faults, sizeof faults, NULL);
}

/* Give every piece of the plan its place in plan->memory and in the staging memory, and set the
 * bytes that they take. Without memory it only adds up. */
static ta_status cut_memory(ta_plan *plan, size_t *staging_bytes)
{
    ta_problem *p = &plan->problem;
    ta_cutter device = {plan->memory, 0, 0}, staging = {plan->staging.memory, 0, 0};
    ta_cutter *exchange = ta_plan_stages(plan) ? &staging : &device;
    plan->job.defers = !ta_plan_stages(plan) && !ta_plan_is_ring(plan) && plan->job.chunks == 1;
    plan->runs->cut(plan, &device, exchange);
    cut_records(plan, &device, exchange);
    cut_query(plan, &device, exchange);
    cut_gathered(plan, &device, exchange);
    if (ta_sizes_need_notices(plan))
        plan->notices = ta_cut(&device, (size_t)plan->ranks, sizeof *plan->notices);
    void *slopes = p->alibi_slopes ? ta_cut(&device, (size_t)p->query_heads, sizeof(float)) : NULL;
    void *sinks = p->sinks ? ta_cut(&device, (size_t)p->query_heads, sizeof(float)) : NULL;
    plan->attend = ta_cut(&device, plan->runs->attend_bytes(plan), 1);
    if (!plan->device->ops->alloc_host && !ta_plan_combines(plan))
        plan->marks = ta_cut(&device, ta_selected_marks_bytes(p), 1);
    plan->report = &plan->heard;
    if (ta_plan_device_tells(plan) && ta_plan_stages(plan))
        plan->told = ta_cut(&device, 1, sizeof *plan->told);
    if (ta_plan_tracks(plan)) {
        plan->faults = ta_cut(&device, STATUSES, sizeof *plan->faults);
        plan->report = ta_cut(&staging, 1, sizeof *plan->report);
        plan->answers = ta_cut(&staging, (size_t)plan->ranks, sizeof *plan->answers);
        plan->usual_notice = ta_cut(&device, 1, sizeof *plan->usual_notice);
    }
    if (device.overflow || staging.overflow)
        return ta_fail(TA_ERR_INVALID, "the workspace of this config exceeds the address space: "
                                       "config.batch, query_tokens or query_heads is too large");
    plan->memory_bytes = device.used;
    *staging_bytes = staging.used;
    if (!plan->memory)
        return TA_OK;
    TA_TRY(copy_faults(plan));
    return copy_head_values(plan, slopes, sinks);
}

static ta_status make_offsets(const ta_plan *plan, size_t **offsets)
{
    *offsets = calloc((size_t)plan->ranks + 1, sizeof **offsets);
    if (!*offsets)
        return ta_fail(TA_ERR_NO_MEMORY, "no memory for the offsets of %d ranks", plan->ranks);
    return TA_OK;
}

static ta_status make_all_offsets(ta_plan *plan)
{
    if (plan->gathers_tokens && plan->ranks > 1)
        TA_TRY(make_offsets(plan, &plan->gathered_at));
    if (plan->query_placement == TA_PLACE_HEADS)
        TA_TRY(make_offsets(plan, &plan->query_at));
    if (plan->notices)
        TA_TRY(make_offsets(plan, &plan->notices_at));
    for (int rank = 0; plan->notices && rank <= plan->ranks; ++rank)
        plan->notices_at[rank] = (size_t)rank * sizeof *plan->notices;
    if (!ta_plan_is_ring(plan))
        return ta_exchange_prepare(&plan->job);
    if (plan->algorithm == TA_ALGORITHM_RING_KV)
        TA_TRY(ta_exchange_prepare(&plan->fault_job));
    return make_offsets(plan, &plan->part_at);
}

/* Byte offsets of each rank's heads in something that is ordered by heads. */
static void set_offsets(const ta_plan *plan, size_t head_bytes, size_t *at)
{
    for (int rank = 0; at && rank <= plan->ranks; ++rank)
        at[rank] = (size_t)ta_head_start(plan->problem.query_heads, plan->ranks, rank) * head_bytes;
}

void ta_plan_fit(ta_plan *plan, int64_t rows)
{
    ta_exchange_job *job = &plan->job;
    if (ta_exchange_in_place(job)) /* not the same for every exchange */
        plan->records = job->records = ta_exchange_own_records(job);
    if (plan->fitted_rows == rows)
        return;
    plan->fitted_rows = rows;
    ta_exchange_fit(job, (size_t)rows * job->shape.record_bytes);
    if (ta_exchange_in_place(job))
        plan->records = job->records;
    set_offsets(plan, query_head_bytes(&plan->problem, rows), plan->query_at);
    set_offsets(plan, job->shape.head_bytes, plan->part_at);
}

/* Is the device's memory out of reach of the group, and of the host? */
static int needs_staging(const ta_plan *plan)
{
    return plan->ranks > 1 && plan->device->ops->alloc_host && !ta_plan_tracks(plan);
}

/* Some groups move host memory. A device whose memory is not is given a host device to merge on. */
static ta_status make_staging(ta_plan *plan)
{
    ta_device_config one_thread = TA_DEVICE_CONFIG_INIT;
    one_thread.threads = 1;
    size_t bytes;
    if (needs_staging(plan))
        TA_TRY(ta_host_open(&one_thread, &plan->job.device));
    TA_TRY(cut_memory(plan, &bytes));
    return bytes ? ta_staging_make(plan->device, bytes, &plan->staging) : TA_OK;
}

ta_status ta_plan_make_memory(const ta_plan_config *config, ta_plan *plan)
{
    size_t staging_bytes;
    TA_TRY(make_staging(plan));
    TA_TRY(ta_device_workspace(plan->device, config->workspace, config->workspace_bytes,
                               plan->memory_bytes, &plan->memory, &plan->owns_memory));
    TA_TRY(cut_memory(plan, &staging_bytes));
    TA_TRY(make_all_offsets(plan));
    ta_plan_fit(plan, plan->problem.rows);
    plan->sizes = plan->append_sizes = (ta_sizes){
        .rows = plan->problem.rows, .batch = plan->problem.batch, .dtype = plan->problem.kv_dtype};
    return ta_sizes_set_usual(plan, NULL);
}

ta_status ta_plan_measure(ta_plan *plan, size_t *bytes)
{
    size_t staging_bytes;
    if (needs_staging(plan))
        plan->job.device = NULL; /* a place in the staging memory takes none of the workspace */
    TA_TRY(cut_memory(plan, &staging_bytes));
    *bytes = plan->memory_bytes;
    return TA_OK;
}

void ta_plan_free_memory(ta_plan *plan)
{
    if (plan->owns_memory)
        ta_device_free(plan->device, plan->memory);
    ta_staging_free(&plan->staging);
    if (ta_plan_stages(plan))
        ta_device_close(plan->job.device);
    free(plan->part_at);
    free(plan->query_at);
    free(plan->gathered_at);
    free(plan->notices_at);
    ta_exchange_release(&plan->job);
    ta_exchange_release(&plan->fault_job);
}
