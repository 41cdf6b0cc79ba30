/* Predictions of a decode step, way by way. See predict.h; docs/model.md has the formulas. */
#include "predict.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arguments.h"
#include "base/dtype.h"
#include "base/partial.h"
#include "base/status.h"
#include "config.h"
#include "planner.h"

#define ATTEND_KERNELS 2
#define FINISH_KERNELS 1
#define RECORD_KERNELS 1

double ta_kv_bytes(const ta_problem *p, double tokens, double kv_heads)
{
    return (double)p->batch * tokens * kv_heads * (double)(p->k_dim + p->v_dim) *
           (double)ta_dtype_bytes(p->kv_dtype);
}

double ta_attend_s(const ta_cluster *cluster, double bytes)
{
    return ta_cost_memory_s(cluster, ATTEND_KERNELS, bytes);
}

static size_t record_bytes(const ta_problem *p)
{
    return (size_t)ta_problem_record_floats(p) * sizeof(float);
}

static double partial_bytes(const ta_problem *p)
{
    return (double)p->query_heads * (double)ta_problem_rows(p) * (double)record_bytes(p);
}

static uint64_t query_head_bytes(const ta_problem *p)
{
    return (uint64_t)ta_problem_rows(p) * (uint64_t)p->k_dim * ta_dtype_bytes(p->query_dtype);
}

ta_status ta_predict_query(const ta_step_shape *shape, ta_cost *cost)
{
    const ta_problem *p = shape->problem;
    if (shape->ranks == 1 || shape->query_placement == TA_PLACE_ALL)
        return TA_OK;
    if (shape->query_placement == TA_PLACE_ROOT) {
        ta_cost_broadcast(cost, "move the query", (uint64_t)p->query_heads * query_head_bytes(p),
                          shape->query_root);
        return TA_OK;
    }
    return ta_cost_all_gather_divided(cost, "move the query", p->query_heads, query_head_bytes(p));
}

/* What goes before an exchange in rounds to one root, in device memory: ta_sizes_notify(). */
static ta_status predict_notices(const ta_step_shape *shape, const ta_exchange_entry *entry,
                                 const ta_nodes *nodes, ta_cost *cost)
{
    int has_rounds = entry->rounds || (entry->shares && nodes->count > 1);
    if (shape->ranks == 1 || shape->out_placement != TA_PLACE_ROOT || !has_rounds ||
        !shape->device_memory)
        return TA_OK;
    return ta_cost_all_gather_divided(cost, "notices", shape->ranks, TA_FAULT_BYTES);
}

static ta_status predict_tree(const ta_step_shape *shape, ta_exchange kind, ta_cost *cost,
                              ta_candidate *c)
{
    const ta_problem *p = shape->problem;
    const ta_exchange_entry *entry = &ta_exchange_kinds[kind];
    ta_nodes nodes;
    ta_exchange_shape exchange = {
        .ranks = shape->ranks,
        .heads = p->query_heads,
        .record_bytes = record_bytes(p),
        .tallies = p->tally_tile != 0,
        .head_bytes = (size_t)ta_problem_rows(p) * record_bytes(p),
        .placement = shape->out_placement,
        .root = shape->out_root,
        .nodes = &nodes,
        .device_memory = shape->device_memory || (entry->shares && shape->shares_gpus),
        .shares_memory = shape->shares_memory,
        .shots = shape->shots,
        .signal_bytes = ta_cluster_signal_bytes(shape->cluster),
    };
    TA_TRY(ta_exchange_nodes(kind, shape->cluster, shape->ranks, &nodes));
    ta_status status = TA_OK;
    c->possible =
        shape->ranks > 1 ? ta_exchange_supports(kind, &exchange) : kind == TA_EXCHANGE_DOUBLING;
    if (entry->max_ranks && shape->ranks > entry->max_ranks)
        c->possible = 0;
    if (entry->shares && shape->ranks > 1)
        c->possible &= shape->cluster && ta_cluster_shares_memory(shape->cluster);
    if (!c->possible)
        goto free_nodes;
    double shard_bytes = ta_kv_bytes(p, p->max_tokens, p->kv_heads);
    TA_TRY_GOTO(predict_notices(shape, entry, &nodes, cost), free_nodes);
    TA_TRY_GOTO(ta_predict_query(shape, cost), free_nodes);
    if (ta_problem_combines(p))
        ta_cost_local(cost, "make records",
                      ta_cost_memory_s(shape->cluster, RECORD_KERNELS, 2 * partial_bytes(p)));
    else
        ta_cost_local(cost, "attend", ta_attend_s(shape->cluster, shard_bytes));
    TA_TRY_GOTO(ta_exchange_estimate(kind, &exchange, cost), free_nodes);
    double buffers = shape->ranks == 1 ? 1 : entry->gathers ? shape->ranks + 1 : 3;
    if (entry->shares) /* its two places, and its share of the room for a merged partial */
        buffers = 2 + 1.0 / nodes.lanes;
    c->memory_bytes = shard_bytes + buffers * partial_bytes(p);

free_nodes:
    ta_nodes_free(&nodes);
    return status;
}

/* Two buffers of half a shard beside the shard for K and V that pass through. */
static ta_status predict_ring(const ta_step_shape *shape, int passes_kv, ta_cost *cost,
                              ta_candidate *c)
{
    const ta_problem *p = shape->problem;
    double shard_bytes = ta_kv_bytes(p, p->max_tokens, p->kv_heads);
    c->possible = shape->ranks > 1 && !p->tally_tile && !ta_problem_combines(p) &&
                  !(passes_kv && p->shares_prefixes);
    c->memory_bytes = shard_bytes * (passes_kv ? 2 : 1) + 3 * partial_bytes(p);
    if (!c->possible)
        return TA_OK;
    return passes_kv ? ta_ring_kv_estimate(shape, cost) : ta_ring_q_estimate(shape, cost);
}

static ta_status predict_one_device(const ta_step_shape *shape, ta_cost *cost, ta_candidate *c)
{
    const ta_problem *p = shape->problem;
    double bytes = ta_kv_bytes(p, (double)p->max_tokens * shape->ranks, p->kv_heads);
    c->possible = shape->ranks > 1 && !ta_problem_combines(p);
    c->memory_bytes = bytes + partial_bytes(p);
    ta_cost_local(cost, "attend", ta_attend_s(shape->cluster, bytes));
    return TA_OK;
}

static double phase_seconds(const ta_cost *cost, const char *name)
{
    for (int i = 0; i < cost->phase_count; ++i)
        if (strcmp(cost->phases[i].name, name) == 0)
            return cost->phases[i].seconds;
    return 0;
}

ta_way ta_way_of(ta_algorithm algorithm, ta_exchange exchange)
{
    switch (algorithm) {
    case TA_ALGORITHM_RING_KV:
        return TA_WAY_RING_KV;
    case TA_ALGORITHM_RING_Q:
        return TA_WAY_RING_Q;
    case TA_ALGORITHM_ONE_DEVICE:
        return TA_WAY_ONE_DEVICE;
    default:
        return (ta_way)(TA_WAY_TREE + (int)exchange - TA_EXCHANGE_DOUBLING);
    }
}

static ta_candidate start_candidate(ta_way way)
{
    ta_algorithm algorithm = way == TA_WAY_ONE_DEVICE ? TA_ALGORITHM_ONE_DEVICE
                             : way == TA_WAY_RING_KV  ? TA_ALGORITHM_RING_KV
                             : way == TA_WAY_RING_Q   ? TA_ALGORITHM_RING_Q
                                                      : TA_ALGORITHM_TREE;
    ta_candidate c = {.algorithm = algorithm,
                      .algorithm_name = ta_algorithm_name(algorithm),
                      .exchange_name = "",
                      .is_ring = way == TA_WAY_RING_KV || way == TA_WAY_RING_Q,
                      .call_count = 1};
    if (algorithm == TA_ALGORITHM_TREE) {
        c.exchange = way - TA_WAY_TREE + TA_EXCHANGE_DOUBLING;
        c.exchange_name = ta_exchange_name((ta_exchange)c.exchange);
    }
    return c;
}

ta_status ta_predict_way(const ta_step_shape *shape, ta_way way, ta_candidate *candidate)
{
    ta_status status;
    ta_cost cost;
    ta_candidate c = start_candidate(way);
    TA_TRY(ta_cost_begin(&cost, shape->cluster, shape->ranks));
    if (way == TA_WAY_ONE_DEVICE)
        TA_TRY_GOTO(predict_one_device(shape, &cost, &c), end_cost);
    else if (c.is_ring)
        TA_TRY_GOTO(predict_ring(shape, way == TA_WAY_RING_KV, &cost, &c), end_cost);
    else
        TA_TRY_GOTO(predict_tree(shape, (ta_exchange)c.exchange, &cost, &c), end_cost);
    ta_cost_local(&cost, "finish",
                  ta_cost_memory_s(shape->cluster, FINISH_KERNELS, partial_bytes(shape->problem)));
    ta_call_cost_set(&c.calls[0], "decode", &cost, phase_seconds(&cost, "attend"));
    c.fits = !shape->cluster || c.memory_bytes <= shape->cluster->memory_bytes;
    *candidate = c;

end_cost:
    ta_cost_end(&cost);
    return status;
}

ta_status ta_predict_ways(const ta_step_shape *shape, ta_candidates *candidates)
{
    candidates->list = calloc(TA_WAYS, sizeof *candidates->list);
    if (!candidates->list)
        return ta_fail(TA_ERR_NO_MEMORY, "no memory for the candidates of a plan");
    for (int way = 0; way < TA_WAYS; ++way)
        TA_TRY(ta_predict_way(shape, (ta_way)way, &candidates->list[way]));
    candidates->count = TA_WAYS;
    snprintf(candidates->cluster, sizeof candidates->cluster, "%s", shape->cluster->name);
    return TA_OK;
}

/* ---- The interface --------------------------------------------------------------------------- */

const char *ta_algorithm_name(ta_algorithm algorithm)
{
    static const char *const names[] = {"auto", "tree", "ring pass-KV", "ring pass-Q",
                                        "one device"};
    return algorithm >= 0 && (size_t)algorithm < sizeof names / sizeof *names ? names[algorithm]
                                                                              : "unknown";
}

const char *ta_exchange_name(ta_exchange exchange)
{
    if (exchange == TA_EXCHANGE_AUTO)
        return "auto";
    return exchange > 0 && exchange < TA_EXCHANGE_KINDS ? ta_exchange_kinds[exchange].name
                                                        : "unknown";
}

/* All candidates of a config on a cluster; free them with ta_choice_free(). */
static ta_status predict_config(const ta_cluster *cluster, const ta_plan_config *config, int ranks,
                                ta_choice *choice)
{
    ta_plan_config known;
    ta_problem problem;
    TA_TRY(ta_struct_read(TA_STRUCT(ta_plan_config), "config", config, &known));
    TA_TRY(ta_config_resolve(&known, 0, ranks, &problem));
    ta_step_shape shape = {.problem = &problem,
                           .cluster = cluster,
                           .ranks = ranks,
                           .query_placement = known.query_placement,
                           .out_placement = known.out_placement,
                           .query_root = known.query_root,
                           .out_root = known.out_root,
                           .shares_memory = ta_cluster_shares_memory(cluster),
                           .shares_gpus = strcmp(cluster->device, "host") != 0};
    return ta_planner_choose(&shape, known.algorithm, known.exchange, choice);
}

static ta_status write_prediction(const ta_choice *choice, int candidate, void *prediction)
{
    const ta_candidate *c = &choice->candidates.list[candidate];
    ta_prediction found = {.algorithm = (ta_algorithm)c->algorithm,
                           .exchange = (ta_exchange)c->exchange,
                           .possible = c->possible,
                           .chosen = candidate == choice->candidates.chosen,
                           .fits = c->fits,
                           .step = ta_call_cost_predicted(&c->calls[0]),
                           .memory_bytes = c->memory_bytes};
    return ta_struct_write(TA_STRUCT(ta_prediction), "prediction", &found, prediction);
}

ta_status ta_predict(const ta_cluster *cluster, const ta_plan_config *config, int ranks,
                     int candidate, ta_prediction *prediction)
{
    ta_choice choice = {0};
    TA_TRY(ta_predict_check(cluster, ranks));
    TA_TRY(ta_predict_check_candidate(candidate, TA_WAYS));
    ta_status status = predict_config(cluster, config, ranks, &choice);
    if (status == TA_OK)
        status = write_prediction(&choice, candidate, prediction);
    ta_choice_free(&choice);
    return status;
}

/* What steps through an array of the caller's, whose structs may be an older or a newer version's:
 * `size` is that of all that will be written. */
static ta_status check_predictions(const ta_prediction *predictions, int room, size_t *size)
{
    size_t each = 0;
    char name[40];
    if (room < 0 || (room > 0 && !predictions))
        return ta_fail(TA_ERR_INVALID, "predictions is %s and room is %d: must be an array of it",
                       predictions ? "set" : "NULL", room);
    for (int i = 0; i < room && i < TA_WAYS; ++i) {
        const char *at = (const char *)predictions + (size_t)i * each;
        snprintf(name, sizeof name, "predictions[%d]", i);
        TA_TRY(ta_struct_size_of(TA_STRUCT(ta_prediction), name, at, size));
        each = i ? each : *size;
        if (*size != each)
            return ta_fail(TA_ERR_INVALID,
                           "%s.size is %zu: must be that of predictions[0], %zu; initialise each "
                           "with TA_PREDICTION_INIT",
                           name, *size, each);
    }
    return TA_OK;
}

ta_status ta_predict_all(const ta_cluster *cluster, const ta_plan_config *config, int ranks,
                         ta_prediction *predictions, int room, int *count)
{
    ta_choice choice = {0};
    size_t size = 0;
    TA_TRY(ta_predict_check(cluster, ranks));
    if (!count)
        return ta_fail(TA_ERR_INVALID, "count is NULL: must say where the number goes");
    TA_TRY(check_predictions(predictions, room, &size));
    ta_status status = predict_config(cluster, config, ranks, &choice);
    for (int i = 0; i < room && i < TA_WAYS && status == TA_OK; ++i)
        status = write_prediction(&choice, i, (char *)predictions + (size_t)i * size);
    if (status == TA_OK)
        *count = TA_WAYS;
    ta_choice_free(&choice);
    return status;
}
