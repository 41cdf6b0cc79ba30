/* Choosing: predict all candidates, take the cheapest that can run. See planner.h. */
#include "planner.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"

static ta_exchange default_exchange(ta_placement placement)
{
    return placement == TA_PLACE_ROOT ? TA_EXCHANGE_BINOMIAL : TA_EXCHANGE_DOUBLING;
}

static ta_way tree_way(ta_exchange exchange)
{
    return (ta_way)(TA_WAY_TREE + (int)exchange - TA_EXCHANGE_DOUBLING);
}

static ta_way chosen_way(const ta_choice *choice)
{
    switch (choice->algorithm) {
    case TA_ALGORITHM_RING_KV:
        return TA_WAY_RING_KV;
    case TA_ALGORITHM_RING_Q:
        return TA_WAY_RING_Q;
    default:
        return tree_way(choice->exchange);
    }
}

const ta_candidate *ta_choice_candidate(const ta_choice *choice)
{
    return choice->candidates ? &choice->candidates[chosen_way(choice)] : NULL;
}

const ta_candidate *ta_choice_ring(const ta_choice *choice)
{
    if (!choice->candidates)
        return NULL;
    const ta_candidate *kv = &choice->candidates[TA_WAY_RING_KV];
    const ta_candidate *q = &choice->candidates[TA_WAY_RING_Q];
    return kv->seconds < q->seconds && kv->fits >= q->fits ? kv : q;
}

int ta_choice_one_device_is_cheaper(const ta_choice *choice)
{
    const ta_candidate *chosen = ta_choice_candidate(choice);
    if (!chosen)
        return 0;
    const ta_candidate *one = &choice->candidates[TA_WAY_ONE_DEVICE];
    return one->possible && one->fits && one->seconds < chosen->seconds;
}

static ta_status check_wanted(const ta_step_shape *shape, const ta_nodes *nodes, ta_exchange wanted)
{
    ta_exchange_shape exchange = {.ranks = shape->ranks,
                                  .heads = shape->problem->query_heads,
                                  .placement = shape->out_placement,
                                  .root = shape->out_root,
                                  .nodes = nodes,
                                  .device_memory = shape->device_memory};
    if (shape->ranks == 1 || ta_exchange_supports(wanted, &exchange))
        return TA_OK;
    exchange.device_memory = 0;
    ta_status status =
        ta_exchange_supports(wanted, &exchange) ? TA_ERR_UNSUPPORTED : TA_ERR_INVALID;
    return ta_fail(status, "config.exchange is %s: must be another kind, it needs %s",
                   ta_exchange_kinds[wanted].symbol, ta_exchange_kinds[wanted].needs);
}

static ta_status predict_all(const ta_step_shape *shape, ta_choice *choice)
{
    choice->candidates = calloc(TA_WAYS, sizeof *choice->candidates);
    if (!choice->candidates)
        return ta_fail(TA_ERR_NO_MEMORY, "no memory for the candidates of a plan");
    for (int way = 0; way < TA_WAYS; ++way)
        TA_TRY(ta_predict_way(shape, (ta_way)way, &choice->candidates[way]));
    snprintf(choice->cluster, sizeof choice->cluster, "%s", shape->cluster->name);
    return TA_OK;
}

/* The earlier one of two that cost the same. */
static ta_exchange cheapest(const ta_choice *choice, ta_exchange best)
{
    for (int kind = TA_EXCHANGE_DOUBLING; kind < TA_EXCHANGE_KINDS; ++kind) {
        const ta_candidate *c = &choice->candidates[tree_way((ta_exchange)kind)];
        if (c->possible && c->seconds < choice->candidates[tree_way(best)].seconds)
            best = (ta_exchange)kind;
    }
    return best;
}

/* Predictions that differ by less count as equal, and of equal ones the tree is taken: no more
 * is known of a cluster than this. */
#define RING_GAIN 0.02

/* A ring only if it is faster and no tighter in memory. */
static ta_algorithm cheapest_algorithm(const ta_choice *choice)
{
    const ta_candidate *tree = &choice->candidates[tree_way(choice->exchange)];
    const ta_candidate *ring = ta_choice_ring(choice);
    if (!ring->possible || ring->fits < tree->fits ||
        ring->seconds > (1 - RING_GAIN) * tree->seconds)
        return TA_ALGORITHM_TREE;
    return ring->way == TA_WAY_RING_KV ? TA_ALGORITHM_RING_KV : TA_ALGORITHM_RING_Q;
}

ta_status ta_planner_choose(const ta_step_shape *shape, ta_algorithm algorithm, ta_exchange wanted,
                            ta_choice *choice)
{
    const ta_cluster *cluster = shape->cluster;
    if (wanted < TA_EXCHANGE_AUTO || wanted >= TA_EXCHANGE_KINDS)
        return ta_fail(TA_ERR_INVALID, "config.exchange is %d: must be from %d to %d", (int)wanted,
                       TA_EXCHANGE_AUTO, TA_EXCHANGE_KINDS - 1);
    if (cluster && cluster->ranks < shape->ranks)
        return ta_fail(TA_ERR_INVALID,
                       "config.cluster has %d ranks: must have at least the group's %d",
                       cluster->ranks, shape->ranks);
    TA_TRY(ta_nodes_make(ta_cluster_units(cluster), shape->ranks, &choice->nodes));
    choice->by_package = cluster && ta_cluster_units(cluster) != cluster->node_of;
    choice->wanted_algorithm = algorithm;
    choice->algorithm = algorithm == TA_ALGORITHM_AUTO ? TA_ALGORITHM_TREE : algorithm;
    choice->wanted = wanted;
    choice->exchange = default_exchange(shape->out_placement);
    if (cluster)
        TA_TRY(predict_all(shape, choice));
    if (wanted != TA_EXCHANGE_AUTO) {
        TA_TRY(check_wanted(shape, &choice->nodes, wanted));
        choice->exchange = wanted;
    } else if (cluster && shape->ranks > 1) {
        choice->exchange = cheapest(choice, choice->exchange);
        if (algorithm == TA_ALGORITHM_AUTO)
            choice->algorithm = cheapest_algorithm(choice);
    }
    return TA_OK;
}

/* Where rank 0 says that the ranks are. */
static ta_status follow_nodes(ta_group *group, int known, ta_choice *choice)
{
    int ranks = group->size;
    int *node_of = calloc((size_t)ranks, sizeof *node_of);
    ta_status status = TA_OK;
    if (!node_of) {
        status = ta_fail(TA_ERR_NO_MEMORY, "no memory for the nodes of %d ranks", ranks);
        ta_group_abort(group, ta_last_error());
        return status;
    }
    if (known)
        memcpy(node_of, choice->nodes.node_of, (size_t)ranks * sizeof *node_of);
    TA_TRY_GOTO(ta_group_broadcast_host(group, node_of, (size_t)ranks * sizeof *node_of, 0),
                free_node_of);
    ta_nodes_free(&choice->nodes);
    status = ta_nodes_make(node_of, ranks, &choice->nodes);

free_node_of:
    free(node_of);
    return status;
}

ta_status ta_planner_follow(ta_group *group, ta_choice *choice, ta_status status)
{
    int32_t decided[2] = {TA_ALGORITHM_AUTO, TA_EXCHANGE_AUTO}; /* rank 0 could not */
    if (status == TA_OK) {
        decided[0] = (int32_t)choice->algorithm;
        decided[1] = (int32_t)choice->exchange;
    }
    ta_status heard = ta_group_broadcast_host(group, decided, sizeof decided, 0);
    if (heard == TA_OK && ta_exchange_kinds[decided[1]].by_nodes)
        heard = follow_nodes(group, status == TA_OK, choice);
    if (status != TA_OK)
        return status;
    if (heard == TA_OK && decided[1] != TA_EXCHANGE_AUTO) {
        choice->algorithm = (ta_algorithm)decided[0];
        choice->exchange = (ta_exchange)decided[1];
    }
    return heard;
}

void ta_choice_free(ta_choice *choice)
{
    ta_nodes_free(&choice->nodes);
    free(choice->candidates);
    choice->candidates = NULL;
}
