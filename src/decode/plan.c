/* Making a plan: resolve the config, cut the workspace, agree with the other ranks. Everything is
 * allocated here, so that a step allocates nothing. */
#include "plan.h"

#include <stdlib.h>
#include <string.h>

#include "base/config_check.h"
#include "base/dtype.h"
#include "base/partial.h"
#include "base/shard_map.h"
#include "base/status.h"
#include "base/struct_size.h"
#include "config.h"
#include "exchange/messages.h"
#include "ring.h"

#define ALIGNMENT 64

enum {
#define COUNT(name, value, message) +1
    STATUSES = 0 TA_STATUS_LIST(COUNT)
#undef COUNT
};

void ta_plan_heads(const ta_plan *plan, ta_placement placement, int root, int rank, int *first,
                   int *count)
{
    int heads = plan->problem.query_heads;
    *first = 0;
    *count = heads;
    if (placement == TA_PLACE_ROOT && rank != root)
        *count = 0;
    if (placement == TA_PLACE_HEADS) {
        *first = ta_head_start(heads, plan->ranks, rank);
        *count = ta_head_start(heads, plan->ranks, rank + 1) - *first;
    }
}

/* Cuts pieces off the workspace; with no base it only adds up what they would take. */
typedef struct cutter {
    char *base;
    size_t used;
    int overflow;
} cutter;

static void *cut(cutter *c, size_t count, size_t bytes_each)
{
    size_t bytes;
    if (__builtin_mul_overflow(count, bytes_each, &bytes) || bytes > SIZE_MAX / 4 - c->used) {
        c->overflow = 1;
        return NULL;
    }
    void *piece = c->base ? c->base + c->used : NULL;
    c->used += (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    return piece;
}

/* What a ring needs for what comes and goes: slices of K and V on the device and, if they are
 * staged, on the host too; or partials where they are merged. */
static void cut_ring(ta_plan *plan, cutter *device, cutter *exchange)
{
    const ta_problem *p = &plan->problem;
    size_t slice_heads = (size_t)p->batch * (size_t)p->kv_heads;
    int first, heads;
    ta_plan_heads(plan, TA_PLACE_HEADS, 0, plan->rank, &first, &heads);
    if (plan->algorithm == TA_ALGORITHM_RING_Q) {
        for (int i = 0; i < 2; ++i)
            plan->wire[i] = cut(exchange, ta_ring_partial_bytes(plan), 1);
        return;
    }
    plan->fresh = cut(device, (size_t)heads * (size_t)ta_problem_rows(p),
                      (size_t)ta_record_floats(p->v_dim) * sizeof(float));
    for (int i = 0; i < 2; ++i) {
        plan->slices[i] = cut(device, slice_heads, ta_ring_slice_head_bytes(p));
        plan->wire[i] = plan->slices[i];
        if (ta_plan_stages(plan))
            plan->wire[i] = cut(exchange, slice_heads, ta_ring_slice_head_bytes(p));
    }
}

/* Is no range of heads copied before it is sent? */
static int sends_whole_partials(const ta_plan *plan)
{
    ta_exchange kind = plan->choice.exchange;
    return kind == TA_EXCHANGE_ALL_GATHER ||
           (ta_plan_chunks(plan) == 1 && plan->out_placement != TA_PLACE_HEADS &&
            (kind == TA_EXCHANGE_DOUBLING || kind == TA_EXCHANGE_BINOMIAL));
}

/* Does attend() write straight to this rank's place in an all-gather? */
static int gathers_in_place(const ta_plan *plan)
{
    return ta_plan_relays(plan) && !ta_plan_is_ring(plan) &&
           plan->choice.exchange == TA_EXCHANGE_ALL_GATHER;
}

/* The pieces that other ranks' data go through. */
static void cut_exchange(ta_plan *plan, cutter *c, size_t floats, size_t query_bytes)
{
    if (plan->ranks == 1)
        return;
    if (!ta_plan_is_ring(plan)) {
        int gathers = plan->choice.exchange == TA_EXCHANGE_ALL_GATHER;
        plan->received = cut(c, floats, sizeof(float) * (size_t)(gathers ? plan->ranks : 1));
        if (!sends_whole_partials(plan))
            plan->sent = cut(c, floats, sizeof(float));
        if (gathers_in_place(plan) && plan->received)
            plan->records = plan->received + (size_t)plan->rank * floats;
    }
    if (ta_plan_tracks(plan))
        plan->faults = cut(c, STATUSES, sizeof(ta_fault));
    if (!ta_plan_stages(plan)) {
        plan->exchange_records = plan->records;
        plan->exchange_query = plan->query;
        return;
    }
    plan->exchange_records = cut(c, floats, sizeof(float));
    if (query_bytes)
        plan->exchange_query = cut(c, query_bytes, 1);
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

/* In pass-KV a rank attends with the heads that TA_PLACE_HEADS gives it, so they stay there. */
static int moves_query(const ta_plan *plan)
{
    if (plan->ranks == 1 || plan->query_placement == TA_PLACE_ALL)
        return 0;
    return plan->algorithm != TA_ALGORITHM_RING_KV || plan->query_placement != TA_PLACE_HEADS;
}

/* What this rank may have to tell the others of a step. */
static ta_status copy_faults(const ta_plan *plan)
{
    ta_fault faults[STATUSES];
    for (int i = 0; i < STATUSES; ++i)
        faults[i] = ta_plan_fault_out(plan, (ta_fault){-i, plan->rank});
    if (!plan->faults)
        return TA_OK;
    return plan->device->ops->copy(plan->device, plan->faults, faults, sizeof faults, NULL);
}

/* Give every piece of the plan its place in plan->memory and plan->staging, and set the bytes that
 * they take. Without memory it only adds up. */
static ta_status cut_memory(ta_plan *plan)
{
    ta_problem *p = &plan->problem;
    cutter device = {plan->memory, 0, 0}, staging = {plan->staging, 0, 0};
    size_t records = (size_t)p->query_heads * (size_t)ta_problem_rows(p), query_bytes = 0;
    /* The ta_fault behind the records takes the place of two floats. */
    size_t floats =
        records * (size_t)ta_problem_record_floats(p) + sizeof(ta_fault) / sizeof(float);
    if (!gathers_in_place(plan))
        plan->records = cut(&device, floats, sizeof(float));
    if (moves_query(plan)) {
        query_bytes = records * (size_t)p->k_dim * ta_dtype_bytes(p->query_dtype);
        plan->query = cut(&device, query_bytes, 1);
    }
    cutter *exchange = ta_plan_stages(plan) ? &staging : &device;
    cut_exchange(plan, exchange, floats, query_bytes);
    if (ta_plan_is_ring(plan))
        cut_ring(plan, &device, exchange);
    void *slopes = p->alibi_slopes ? cut(&device, (size_t)p->query_heads, sizeof(float)) : NULL;
    void *sinks = p->sinks ? cut(&device, (size_t)p->query_heads, sizeof(float)) : NULL;
    plan->attend = cut(&device,
                       ta_plan_is_ring(plan) ? ta_ring_attend_bytes(plan)
                                             : plan->device->ops->attend_bytes(plan->device, p),
                       1);
    if (ta_plan_tracks(plan))
        plan->report = cut(&staging, 1, sizeof *plan->report);
    if (device.overflow || staging.overflow)
        return ta_fail(TA_ERR_INVALID, "the workspace of this config exceeds the address space: "
                                       "config.batch, query_tokens or query_heads is too large");
    plan->memory_bytes = device.used;
    plan->staging_bytes = staging.used;
    if (!plan->memory)
        return TA_OK;
    TA_TRY(copy_faults(plan));
    return copy_head_values(plan, slopes, sinks);
}

/* Depends only on what all ranks know. */
static int count_chunks(const ta_plan *plan)
{
    ta_exchange_shape shape = ta_exchange_shape_of(plan);
    return plan->ranks > 1 ? ta_exchange_chunks(plan->choice.exchange, &shape) : 1;
}

static ta_status check_dtypes(const ta_plan *plan)
{
    const ta_problem *p = &plan->problem;
    TA_TRY(ta_device_check_dtype(plan->device, "kv_dtype", p->kv_dtype, TA_AS_KV));
    TA_TRY(ta_device_check_dtype(plan->device, "query_dtype", p->query_dtype, TA_AS_QUERY));
    return ta_device_check_dtype(plan->device, "out_dtype", p->out_dtype, TA_AS_OUT);
}

static ta_status check_replay(const ta_plan_config *config, const ta_plan *plan)
{
    TA_TRY(ta_check_int("replay", config->replay, 0, 1));
    if (!config->replay)
        return TA_OK;
    if (!plan->device->ops->record)
        return ta_fail(TA_ERR_UNSUPPORTED,
                       "config.replay is 1: device %s has no graphs, leave it at 0",
                       plan->device->name);
    if (plan->ranks > 1 && !plan->group->device)
        return ta_fail(
            TA_ERR_UNSUPPORTED,
            "config.replay is 1: group %s moves host memory, so a step of %d ranks waits "
            "for %s and can't be captured; use a group that moves device memory",
            plan->group->ops->name, plan->ranks, plan->device->name);
    return TA_OK;
}

/* Whether what the plan will run gives reproducible bits, if the config asks for them. */
static ta_status check_reproducible(const ta_plan *plan, const ta_plan_config *config)
{
    int tile = (int)config->reproducible_tile;
    if (tile && ta_plan_is_ring(plan))
        return ta_fail(TA_ERR_UNSUPPORTED,
                       "config.algorithm is %d with config.reproducible_tile %d: rings are not "
                       "reproducible, must be TA_ALGORITHM_TREE or TA_ALGORITHM_AUTO",
                       (int)config->algorithm, tile);
    if (tile && !plan->device->ops->merge_tallies)
        return ta_fail(TA_ERR_UNSUPPORTED,
                       "config.reproducible_tile is %d: must be 0 on device %s, which has no "
                       "reproducible mode",
                       tile, plan->device->name);
    return TA_OK;
}

/* Everything of a plan but its memory. */
static ta_status describe_plan(const ta_group *group, const ta_device *device,
                               const ta_plan_config *config, ta_plan *plan)
{
    memset(plan, 0, sizeof *plan);
    if (!device)
        return ta_fail(TA_ERR_INVALID, "device is NULL: open one with ta_device_open()");
    plan->group = (ta_group *)group;
    plan->device = (ta_device *)device;
    plan->rank = ta_group_rank(group);
    plan->ranks = ta_group_size(group);
    if (group && group->device && strcmp(group->device->name, device->name) != 0)
        return ta_fail(TA_ERR_INVALID, "device is %s: must be %s, whose memory this group moves",
                       device->name, group->device->name);
    TA_TRY(ta_config_resolve(config, plan->rank, plan->ranks, &plan->problem));
    TA_TRY(check_dtypes(plan));
    TA_TRY(check_replay(config, plan));
    plan->replays = config->replay;
    plan->query_placement = config->query_placement;
    plan->query_root = config->query_root;
    plan->out_placement = config->out_placement;
    plan->out_root = config->out_root;
    plan->exchange_device = plan->device;
    plan->algorithm =
        config->algorithm == TA_ALGORITHM_AUTO ? TA_ALGORITHM_TREE : config->algorithm;
    TA_TRY(check_reproducible(plan, config));
    ta_step_shape shape = {.problem = &plan->problem,
                           .cluster = config->cluster,
                           .ranks = plan->ranks,
                           .query_placement = plan->query_placement,
                           .out_placement = plan->out_placement,
                           .query_root = plan->query_root,
                           .out_root = plan->out_root,
                           .device_memory = group && group->device};
    TA_TRY(ta_planner_choose(&shape, config->algorithm, config->exchange, &plan->choice));
    plan->algorithm = plan->choice.algorithm;
    plan->chunks = count_chunks(plan);
    return TA_OK;
}

static ta_status check_workspace(const ta_plan_config *config, size_t needed)
{
    if (config->workspace_bytes < needed)
        return ta_fail(TA_ERR_INVALID, "config.workspace_bytes is %zu: must be %zu or more",
                       config->workspace_bytes, needed);
    if ((uintptr_t)config->workspace % ALIGNMENT)
        return ta_fail(TA_ERR_INVALID, "config.workspace is %p: must be aligned to %d bytes",
                       config->workspace, ALIGNMENT);
    return TA_OK;
}

/* Byte offsets of each rank's heads in something that is ordered by heads. */
static ta_status make_offsets(const ta_plan *plan, size_t head_bytes, size_t **offsets)
{
    size_t *at = calloc((size_t)plan->ranks + 1, sizeof *at);
    if (!at)
        return ta_fail(TA_ERR_NO_MEMORY, "no memory for the offsets of %d ranks", plan->ranks);
    for (int rank = 0; rank <= plan->ranks; ++rank)
        at[rank] = (size_t)ta_head_start(plan->problem.query_heads, plan->ranks, rank) * head_bytes;
    *offsets = at;
    return TA_OK;
}

/* A whole partial with the fault behind it. */
static size_t message_bytes(const ta_plan *plan)
{
    const ta_problem *p = &plan->problem;
    size_t records = (size_t)p->query_heads * (size_t)ta_problem_rows(p);
    return records * (size_t)ta_problem_record_floats(p) * sizeof(float) + sizeof(ta_fault);
}

static ta_status make_all_offsets(ta_plan *plan)
{
    const ta_problem *p = &plan->problem;
    size_t rows = (size_t)ta_problem_rows(p);
    if (plan->query_placement == TA_PLACE_HEADS)
        TA_TRY(make_offsets(plan, rows * (size_t)p->k_dim * ta_dtype_bytes(p->query_dtype),
                            &plan->query_at));
    if (!ta_plan_is_ring(plan))
        return plan->choice.exchange == TA_EXCHANGE_ALL_GATHER && plan->ranks > 1
                   ? ta_all_gather_offsets(plan->ranks, message_bytes(plan), &plan->gather_at)
                   : TA_OK;
    return make_offsets(plan, rows * (size_t)ta_record_floats(p->v_dim) * sizeof(float),
                        &plan->part_at);
}

/* Some groups move host memory. A device whose memory is not is given a host device to merge on. */
static ta_status make_staging(ta_plan *plan)
{
    ta_device_config one_thread = TA_DEVICE_CONFIG_INIT;
    one_thread.threads = 1;
    if (plan->ranks == 1 || !plan->device->ops->alloc_host)
        return TA_OK;
    if (!ta_plan_tracks(plan))
        TA_TRY(ta_host_open(&one_thread, &plan->exchange_device));
    TA_TRY(cut_memory(plan));
    TA_TRY(plan->device->ops->alloc_host(plan->device, plan->staging_bytes, &plan->staging));
    memset(plan->staging, 0, plan->staging_bytes);
    return TA_OK;
}

static ta_status make_memory(const ta_plan_config *config, ta_plan *plan)
{
    TA_TRY(make_staging(plan));
    TA_TRY(cut_memory(plan));
    if (config->workspace) {
        TA_TRY(check_workspace(config, plan->memory_bytes));
        plan->memory = config->workspace;
    } else {
        TA_TRY(ta_device_alloc(plan->device, plan->memory_bytes, &plan->memory));
        plan->owns_memory = 1;
    }
    TA_TRY(cut_memory(plan));
    return make_all_offsets(plan);
}

ta_status ta_plan_workspace(const ta_group *group, const ta_device *device,
                            const ta_plan_config *config, size_t *bytes)
{
    ta_plan_config known;
    ta_plan plan;
    if (!bytes)
        return ta_fail(TA_ERR_INVALID, "bytes is NULL: must point to the result");
    TA_TRY(ta_struct_read(TA_STRUCT(ta_plan_config), "config", config, &known));
    ta_status status = describe_plan(group, device, &known, &plan);
    if (status == TA_OK && plan.ranks > 1 && device->ops->alloc_host && !ta_plan_tracks(&plan))
        plan.exchange_device = NULL; /* a place in the staging memory takes none of the workspace */
    if (status == TA_OK)
        status = cut_memory(&plan);
    if (status == TA_OK)
        *bytes = plan.memory_bytes;
    ta_choice_free(&plan.choice);
    return status;
}

/* What the config leaves open is as rank 0 decided. A rank without memory for a plan takes part. */
static ta_status follow_rank_0(ta_group *group, ta_plan *plan, ta_status status)
{
    ta_choice none = {0};
    ta_status followed = ta_planner_follow(group, plan ? &plan->choice : &none, status);
    ta_nodes_free(&none.nodes);
    if (followed == TA_OK) {
        plan->algorithm = plan->choice.algorithm;
        plan->chunks = count_chunks(plan);
    }
    return followed;
}

ta_status ta_plan_create(ta_group *group, ta_device *device, const ta_plan_config *config,
                         ta_plan **plan)
{
    ta_plan_config known;
    ta_plan *made = calloc(1, sizeof *made);
    ta_status status = made ? TA_OK : ta_fail(TA_ERR_NO_MEMORY, "no memory for a plan");
    if (status == TA_OK && !plan)
        status = ta_fail(TA_ERR_INVALID, "plan is NULL: must point to the result");
    if (status == TA_OK)
        status = ta_struct_read(TA_STRUCT(ta_plan_config), "config", config, &known);
    if (status == TA_OK)
        status = describe_plan(group, device, &known, made);
    if (ta_group_size(group) > 1)
        status = follow_rank_0(group, made, status);
    if (status == TA_OK)
        status = make_memory(&known, made);
    status = ta_plan_agree(group, made, &known, status); /* also to tell of a failure here */
    if (status != TA_OK) {
        ta_plan_destroy(made);
        return status;
    }
    *plan = made;
    return TA_OK;
}

void ta_plan_destroy(ta_plan *plan)
{
    if (!plan)
        return;
    if (plan->recording.graph)
        plan->device->ops->drop(plan->device, plan->recording.graph);
    if (plan->owns_memory)
        ta_device_free(plan->device, plan->memory);
    if (plan->staging)
        plan->device->ops->free_host(plan->device, plan->staging);
    if (ta_plan_stages(plan))
        ta_device_close(plan->exchange_device);
    free(plan->part_at);
    free(plan->query_at);
    free(plan->gather_at);
    ta_choice_free(&plan->choice);
    free(plan);
}
