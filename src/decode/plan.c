/* Making a plan: resolve the config, choose what runs, have the memory cut (memory.c), agree with
 * the other ranks. Everything is allocated here, so that a step allocates nothing. */
#include "plan.h"

#include <stdlib.h>
#include <string.h>

#include "base/arguments.h"
#include "base/format.h"
#include "base/shard_map.h"
#include "base/status.h"
#include "config.h"
#include "replay.h"
#include "step.h"

const ta_algorithm_ops *const ta_algorithms[] = {
    [TA_ALGORITHM_TREE] = &ta_tree_algorithm,
    [TA_ALGORITHM_RING_KV] = &ta_ring_kv_algorithm,
    [TA_ALGORITHM_RING_Q] = &ta_ring_q_algorithm,
};

/* Do the ranks of a node address each other's memory, as far as this one knows? GPUs may, whatever
 * the group moves; but if that is host memory, no other part of a step may move. */
static int shares_memory(const ta_plan *plan)
{
    if (plan->ranks == 1)
        return 0;
    if (!plan->device->ops->alloc_host)
        return plan->group->ops->share && !plan->group->device;
    return plan->device->ops->peers &&
           (plan->group->device ||
            (plan->query_placement == TA_PLACE_ALL && !plan->gathers_tokens));
}

/* GPUs could have what this config asks for, if the group did not have to move anything else. */
static ta_status check_direct(const ta_plan_config *config, const ta_plan *plan)
{
    int query = plan->query_placement != TA_PLACE_ALL;
    if (plan->ranks == 1 || config->exchange != TA_EXCHANGE_DIRECT || plan->group->device ||
        !plan->device->ops->peers || shares_memory(plan))
        return TA_OK;
    return ta_fail(TA_ERR_UNSUPPORTED,
                   "%s is %d with config.exchange TA_EXCHANGE_DIRECT: must be %s, since group %s "
                   "moves host memory and nothing that is on %s",
                   query ? "config.query_placement" : "config.append_scattered",
                   query ? (int)plan->query_placement : 1, query ? "TA_PLACE_ALL" : "0",
                   plan->group->ops->name, plan->device->name);
}

/* Is what was chosen exchanged in device memory? */
static int in_device_memory(const ta_plan *plan)
{
    if (plan->ranks == 1)
        return 0;
    return plan->group->device || (ta_exchange_kinds[plan->choice.exchange].shares &&
                                   !ta_plan_is_ring(plan) && plan->device->ops->alloc_host);
}

/* Take over what was chosen: the algorithm, a ring of one rank being a tree, and the exchange. That
 * is in the device's memory if the group can reach it. Otherwise it is in host memory, on a host
 * device that memory.c opens where this one's memory is another. */
static void take_choice(ta_plan *plan)
{
    const ta_problem *p = &plan->problem;
    ta_exchange_job *job = &plan->job;
    size_t record = (size_t)ta_problem_record_floats(p) * sizeof(float);
    plan->algorithm = plan->choice.algorithm;
    plan->runs = ta_plan_combines(plan) ? &ta_combine_algorithm
                 : plan->ranks > 1      ? ta_algorithms[plan->algorithm]
                                        : &ta_tree_algorithm;
    job->group = plan->group;
    job->rank = plan->rank;
    job->kind = plan->choice.exchange;
    job->shape = (ta_exchange_shape){.ranks = plan->ranks,
                                     .heads = p->query_heads,
                                     .record_bytes = record,
                                     .v_dim = p->v_dim,
                                     .tallies = p->tally_tile != 0,
                                     .head_bytes = (size_t)ta_problem_rows(p) * record,
                                     .placement = plan->out_placement,
                                     .root = plan->out_root,
                                     .nodes = &plan->choice.nodes,
                                     .device_memory = in_device_memory(plan),
                                     .shares_memory = shares_memory(plan),
                                     .shots = plan->shots,
                                     .signal_bytes = plan->signal_bytes};
    job->chunks = plan->ranks > 1 ? ta_exchange_chunks(job->kind, &job->shape) : 1;
}

static ta_status check_dtypes(const ta_plan *plan)
{
    const ta_problem *p = &plan->problem;
    if (!ta_plan_combines(plan))
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
    if (plan->ranks > 1 && !plan->group->device &&
        !(config->exchange == TA_EXCHANGE_DIRECT && shares_memory(plan)))
        return ta_fail(
            TA_ERR_UNSUPPORTED,
            "config.replay is 1: group %s moves host memory, so a step of %d ranks waits "
            "for %s and can't be captured; use a group that moves device memory, or "
            "TA_EXCHANGE_DIRECT",
            plan->group->ops->name, plan->ranks, plan->device->name);
    return TA_OK;
}

/* The environment can ask for checks where the program does not. */
static ta_status check_checks(const ta_plan_config *config, ta_plan *plan)
{
    const char *asked = secure_getenv("TREEATTN_CHECK");
    TA_TRY(ta_check_int("check", config->check, 0, 1));
    plan->checks = config->check || (asked && strcmp(asked, "1") == 0);
    return TA_OK;
}

/* For tests and measurements: in how many shots direct exchanges go. */
static ta_status check_shots(ta_plan *plan)
{
    const char *asked = secure_getenv("TREEATTN_DIRECT_SHOTS");
    if (!asked || !*asked)
        return TA_OK;
    if (strcmp(asked, "1") != 0 && strcmp(asked, "2") != 0)
        return ta_fail(TA_ERR_INVALID, "TREEATTN_DIRECT_SHOTS is '%.40s': must be 1 or 2", asked);
    plan->shots = asked[0] - '0';
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
    return TA_OK;
}

static ta_step_shape shape_of(const ta_plan *plan, const ta_plan_config *config)
{
    return (ta_step_shape){.problem = &plan->problem,
                           .cluster = config->cluster,
                           .ranks = plan->ranks,
                           .query_placement = plan->query_placement,
                           .out_placement = plan->out_placement,
                           .query_root = plan->query_root,
                           .out_root = plan->out_root,
                           .device_memory = plan->group && plan->group->device,
                           .shares_memory = shares_memory(plan),
                           .shares_gpus = plan->device->ops->alloc_host != NULL,
                           .shots = plan->shots};
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
    plan->query_placement = config->query_placement;
    plan->query_root = config->query_root;
    plan->out_placement = config->out_placement;
    plan->out_root = config->out_root;
    plan->gathers_tokens = config->append_scattered != 0;
    TA_TRY(check_replay(config, plan));
    plan->replays = config->replay;
    TA_TRY(ta_check_int("append_scattered", config->append_scattered, 0, 1));
    TA_TRY(check_checks(config, plan));
    TA_TRY(check_direct(config, plan));
    TA_TRY(check_shots(plan));
    plan->job.device = plan->device;
    plan->signal_bytes = ta_cluster_signal_bytes(config->cluster);
    plan->algorithm =
        config->algorithm == TA_ALGORITHM_AUTO ? TA_ALGORITHM_TREE : config->algorithm;
    TA_TRY(check_reproducible(plan, config));
    ta_step_shape shape = shape_of(plan, config);
    TA_TRY(ta_planner_choose(&shape, config->algorithm, config->exchange, &plan->choice));
    take_choice(plan);
    return TA_OK;
}

/* May what was chosen turn out to be impossible when the ranks come together? */
static int may_choose_again(const ta_plan *plan)
{
    const ta_choice *choice = &plan->choice;
    return plan->ranks > 1 && choice->algorithm == TA_ALGORITHM_TREE &&
           choice->exchange != choice->wanted && ta_exchange_kinds[choice->exchange].shares;
}

/* The most that any of the plans takes that this config may lead to. */
static ta_status measure_choices(const ta_plan_config *config, ta_plan *plan, size_t *bytes)
{
    size_t most;
    TA_TRY(ta_plan_measure(plan, &most));
    if (may_choose_again(plan)) {
        ta_step_shape shape = shape_of(plan, config);
        size_t other;
        TA_TRY(ta_planner_choose_without(&shape, plan->choice.exchange, &plan->choice));
        take_choice(plan);
        plan->job.device = plan->device;
        TA_TRY(ta_plan_measure(plan, &other));
        most = other > most ? other : most;
    }
    *bytes = most;
    return TA_OK;
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
    if (status == TA_OK)
        status = measure_choices(&known, &plan, bytes);
    ta_choice_free(&plan.choice);
    return status;
}

/* The memory of an exchange that shares some. If that can't be had, the ranks choose again. */
static ta_status share_memory(ta_group *group, const ta_plan_config *config, ta_plan *plan,
                              ta_choice *choice, ta_status status)
{
    ta_exchange_job none = {.group = group, .rank = group->rank}, *job = plan ? &plan->job : &none;
    int skipped;
    if (!ta_exchange_kinds[choice->exchange].shares || choice->algorithm != TA_ALGORITHM_TREE)
        return status;
    job->group = group; /* a plan that failed has none yet */
    ta_status shared = ta_exchange_share(job, status, &skipped);
    if (status != TA_OK || shared == TA_OK || shared != TA_ERR_UNSUPPORTED)
        return status != TA_OK ? status : shared;
    ta_step_shape shape = shape_of(plan, config);
    char why[160];
    ta_format(why, sizeof why, "%s", ta_last_error());
    TA_TRY(ta_planner_without(group, &shape, choice->exchange, why, choice));
    take_choice(plan);
    return TA_OK;
}

/* What the config leaves open is as rank 0 decided. A rank without memory for a plan takes part. */
static ta_status follow_rank_0(ta_group *group, const ta_plan_config *config, ta_plan *plan,
                               ta_status status)
{
    ta_choice none = {0}, *choice = plan ? &plan->choice : &none;
    ta_status followed = ta_planner_follow(group, choice, status);
    if (followed == TA_OK)
        take_choice(plan);
    followed = share_memory(group, config, plan, choice, followed);
    ta_nodes_free(&none.nodes);
    return followed;
}

static void free_plan(ta_plan *plan)
{
    if (!plan)
        return;
    ta_replay_release(plan);
    ta_plan_free_memory(plan);
    ta_choice_free(&plan->choice);
    free(plan->turn_starts);
    free(plan);
}

/* A ring speaks of the other ranks' shards too. */
static ta_status keep_turns(const ta_plan_config *config, ta_plan *plan)
{
    if (config->map.kind != TA_SHARD_WEIGHTED)
        return TA_OK;
    plan->turn_starts = calloc((size_t)plan->ranks + 1, sizeof *plan->turn_starts);
    if (!plan->turn_starts)
        return ta_fail(TA_ERR_NO_MEMORY, "no memory for the weights of %d ranks", plan->ranks);
    ta_shard_find_turns(config->map.bounds, plan->ranks, plan->turn_starts);
    return TA_OK;
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
        status = follow_rank_0(group, &known, made, status);
    if (status == TA_OK)
        status = keep_turns(&known, made);
    if (status == TA_OK)
        status = ta_plan_make_memory(&known, made);
    if (status == TA_OK)
        status = ta_replay_prepare(made);
    status = ta_plan_agree(group, made, &known, status); /* also to tell of a failure here */
    if (status != TA_OK) {
        free_plan(made);
        return status;
    }
    ta_device_hold(device);
    *plan = made;
    return TA_OK;
}

void ta_plan_destroy(ta_plan *plan)
{
    if (!plan)
        return;
    ta_device *device = plan->device;
    free_plan(plan);
    ta_device_let_go(device);
}
