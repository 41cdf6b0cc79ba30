/* Choosing: predict all candidates, take the cheapest that can run. See planner.h. */
#include "planner.h"

#include <stdlib.h>
#include <string.h>

#include "base/format.h"
#include "base/status.h"
#include "device/fallback.h"

static ta_exchange default_exchange(ta_placement placement)
{
    return placement == TA_PLACE_ROOT ? TA_EXCHANGE_BINOMIAL : TA_EXCHANGE_DOUBLING;
}

const ta_candidate *ta_choice_ring(const ta_choice *choice)
{
    const ta_candidate *list = choice->candidates.list;
    if (!list)
        return NULL;
    const ta_candidate *kv = &list[TA_WAY_RING_KV], *q = &list[TA_WAY_RING_Q];
    return kv->possible && kv->calls[0].seconds < q->calls[0].seconds && kv->fits >= q->fits ? kv
                                                                                             : q;
}

int ta_choice_one_device_is_cheaper(const ta_choice *choice)
{
    const ta_candidate *chosen = ta_candidates_chosen(&choice->candidates);
    if (!chosen)
        return 0;
    const ta_candidate *one = &choice->candidates.list[TA_WAY_ONE_DEVICE];
    return one->possible && one->fits && one->calls[0].seconds < chosen->calls[0].seconds;
}

static ta_status check_wanted(const ta_step_shape *shape, const ta_nodes *nodes, ta_exchange wanted)
{
    ta_exchange_shape exchange = {.ranks = shape->ranks,
                                  .heads = shape->problem->query_heads,
                                  .placement = shape->out_placement,
                                  .root = shape->out_root,
                                  .nodes = nodes,
                                  .device_memory = shape->device_memory,
                                  .shares_memory = shape->shares_memory};
    if (shape->ranks == 1 || ta_exchange_supports(wanted, &exchange))
        return TA_OK;
    exchange.device_memory = 0;
    exchange.shares_memory = 1;
    ta_status status =
        ta_exchange_supports(wanted, &exchange) ? TA_ERR_UNSUPPORTED : TA_ERR_INVALID;
    return ta_fail(status, "config.exchange is %s: must be another kind, it needs %s",
                   ta_exchange_kinds[wanted].symbol, ta_exchange_kinds[wanted].needs);
}

static int is_tree(const ta_candidate *c, const void *unused)
{
    (void)unused;
    return c->algorithm == TA_ALGORITHM_TREE;
}

/* Does a config leave this one open? One that asks for an exchange asks for a tree with it. */
static int is_open(const ta_candidate *c, const void *of)
{
    const ta_choice *choice = of;
    if (c->algorithm == TA_ALGORITHM_ONE_DEVICE)
        return 0;
    if (is_tree(c, NULL) && c->exchange != (int)choice->exchange)
        return 0;
    if (choice->wanted_algorithm != TA_ALGORITHM_AUTO)
        return c->algorithm == (int)choice->wanted_algorithm;
    return choice->wanted == TA_EXCHANGE_AUTO || is_tree(c, NULL);
}

/* The candidate that runs; a ring of one rank is a tree, of which there is one kind. */
static void note_chosen(ta_choice *choice, int ranks)
{
    choice->candidates.chosen =
        (int)(ranks == 1 ? TA_WAY_TREE : ta_way_of(choice->algorithm, choice->exchange));
}

/* What the predicted times say of what the config leaves open. */
static void take_fastest(ta_choice *choice)
{
    if (choice->wanted == TA_EXCHANGE_AUTO) {
        int tree = ta_candidates_best(&choice->candidates, is_tree, NULL);
        if (tree >= 0)
            choice->exchange = (ta_exchange)choice->candidates.list[tree].exchange;
    }
    int best = ta_candidates_best(&choice->candidates, is_open, choice);
    if (best >= 0)
        choice->algorithm = (ta_algorithm)choice->candidates.list[best].algorithm;
}

/* Where the ranks are, as this exchange takes it. */
static ta_status find_nodes(const ta_step_shape *shape, ta_exchange kind, ta_choice *choice)
{
    ta_nodes_free(&choice->nodes);
    return ta_exchange_nodes(kind, shape->cluster, shape->ranks, &choice->nodes);
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
    TA_TRY(find_nodes(shape, wanted, choice));
    choice->wanted_algorithm = algorithm;
    choice->algorithm = algorithm == TA_ALGORITHM_AUTO ? TA_ALGORITHM_TREE : algorithm;
    choice->wanted = wanted;
    choice->exchange = default_exchange(shape->out_placement);
    if (wanted != TA_EXCHANGE_AUTO) {
        TA_TRY(check_wanted(shape, &choice->nodes, wanted));
        choice->exchange = wanted;
    }
    if (!cluster)
        return TA_OK;
    TA_TRY(ta_predict_ways(shape, &choice->candidates));
    if (shape->ranks > 1)
        take_fastest(choice);
    note_chosen(choice, shape->ranks);
    return find_nodes(shape, choice->exchange, choice);
}

/* One level of where rank 0 says that the ranks are: a number for each, and what they are in. */
static ta_status hear_level(ta_group *group, const ta_nodes *own, int level, int *unit_of)
{
    int ranks = group->size;
    if (own) {
        ta_nodes_write(own, level, ranks, unit_of);
        for (int k = 0; k < level; ++k)
            own = own->above;
        unit_of[ranks] = (int)own->unit;
    }
    return ta_group_broadcast_host(group, unit_of, (size_t)(ranks + 1) * sizeof *unit_of, 0);
}

static ta_status make_level(const int *unit_of, int ranks, int level, ta_nodes *nodes)
{
    if (level > 0)
        return ta_nodes_add(unit_of, ranks, (ta_unit)unit_of[ranks], nodes);
    TA_TRY(ta_nodes_make(unit_of, ranks, nodes));
    nodes->unit = (ta_unit)unit_of[ranks];
    return TA_OK;
}

/* All levels; one rank's numbers stand for its neighbours' too, so all are made anew. A rank that
 * cannot make them hears them no less, as the others do: *made is this rank's own status. */
static ta_status follow_nodes(ta_group *group, int known, int levels, ta_choice *choice,
                              ta_status *made)
{
    int ranks = group->size;
    int *unit_of = calloc((size_t)ranks + 1, sizeof *unit_of);
    ta_nodes nodes = {0};
    ta_status heard = TA_OK;
    if (!unit_of) {
        heard = ta_fail(TA_ERR_NO_MEMORY, "no memory for the nodes of %d ranks", ranks);
        ta_group_abort(group, ta_last_error());
        return heard;
    }
    for (int level = 0; level < levels && heard == TA_OK; ++level) {
        heard =
            hear_level(group, known && group->rank == 0 ? &choice->nodes : NULL, level, unit_of);
        if (heard == TA_OK && *made == TA_OK)
            *made = make_level(unit_of, ranks, level, &nodes);
    }
    free(unit_of);
    ta_nodes_free(&choice->nodes);
    choice->nodes = nodes;
    return heard;
}

ta_status ta_planner_follow(ta_group *group, ta_choice *choice, ta_status status)
{
    int32_t decided[3] = {TA_ALGORITHM_AUTO, TA_EXCHANGE_AUTO, 0}; /* rank 0 could not */
    if (status == TA_OK) {
        decided[0] = (int32_t)choice->algorithm;
        decided[1] = (int32_t)choice->exchange;
        decided[2] = ta_nodes_levels(&choice->nodes);
    }
    ta_status heard = ta_group_broadcast_host(group, decided, sizeof decided, 0);
    if (heard == TA_OK && ta_exchange_kinds[decided[1]].by_nodes)
        heard = follow_nodes(group, status == TA_OK, decided[2], choice, &status);
    if (status != TA_OK) {
        choice->exchange = (ta_exchange)decided[1]; /* in which it takes part no less */
        choice->algorithm = (ta_algorithm)decided[0];
        return status;
    }
    /* Without rank 0's decision there will be no plan: nobody begins to share memory for one. */
    if (decided[1] == TA_EXCHANGE_AUTO && ta_exchange_kinds[choice->exchange].shares)
        choice->exchange = TA_EXCHANGE_BINOMIAL;
    if (heard == TA_OK && decided[1] != TA_EXCHANGE_AUTO) {
        choice->algorithm = (ta_algorithm)decided[0];
        choice->exchange = (ta_exchange)decided[1];
        note_chosen(choice, group->size);
    }
    return heard;
}

ta_status ta_planner_choose_without(const ta_step_shape *shape, ta_exchange kind, ta_choice *choice)
{
    choice->exchange = default_exchange(shape->out_placement);
    if (!choice->candidates.list)
        return TA_OK;
    choice->candidates.list[ta_way_of(TA_ALGORITHM_TREE, kind)].possible = 0;
    take_fastest(choice);
    note_chosen(choice, shape->ranks);
    return find_nodes(shape, choice->exchange, choice);
}

ta_status ta_planner_without(ta_group *group, const ta_step_shape *shape, ta_exchange kind,
                             const char *why, ta_choice *choice)
{
    ta_exchange wanted = choice->wanted;
    if (wanted == kind) /* takes part no less: others may have asked for what can be had */
        return ta_planner_follow(group, choice,
                                 ta_fail(TA_ERR_UNSUPPORTED,
                                         "config.exchange is %s: must be another kind, %s",
                                         ta_exchange_kinds[kind].symbol, why));
    ta_format(choice->not_possible, sizeof choice->not_possible, "%s", why);
    ta_status status = ta_planner_choose_without(shape, kind, choice);
    status = ta_planner_follow(group, choice, status);
    if (status == TA_OK)
        ta_fallback_from_direct(why, choice->algorithm == TA_ALGORITHM_TREE
                                         ? ta_exchange_kinds[choice->exchange].name
                                         : "a ring");
    return status;
}

void ta_choice_free(ta_choice *choice)
{
    ta_nodes_free(&choice->nodes);
    ta_candidates_free(&choice->candidates);
}
