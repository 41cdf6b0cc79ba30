/* Choosing an attention plan's algorithm and grid: with a cluster the least predicted time, without
 * one the fewest bytes. Rank 0 decides, the others follow. Called by config.c and plan.c; explain.c
 * shows what came of it. */
#include <stdio.h>
#include <stdlib.h>

#include <treeattn/cluster.h>

#include "base/dtype.h"
#include "base/status.h"
#include "cost.h"
#include "make.h"

const char *ta_attention_algorithm_name(ta_attention_algorithm algorithm)
{
    static const char *const names[] = {"auto", "grid", "ring", "grid overlap"};
    return algorithm >= 0 && (size_t)algorithm < sizeof names / sizeof *names ? names[algorithm]
                                                                              : "unknown";
}

/* ---- Predictions --------------------------------------------------------------------------- */

static ta_status predict_call(const ta_attention *a, const ta_cluster *cluster, int backward,
                              ta_call_cost *call)
{
    ta_cost cost;
    TA_TRY(ta_cost_begin(&cost, cluster, a->ranks));
    ta_status status = ta_attention_estimate(a, backward, &cost);
    ta_call_cost_set(call, backward ? "backward" : "forward", &cost,
                     ta_attention_attend_s(a, cluster, ta_attention_scores(a), backward));
    ta_cost_end(&cost);
    return status;
}

/* Q, K, V, the output and its lse; with backward their gradients too. */
static double tensor_bytes(const ta_attention *a)
{
    const ta_attention_work *s = &a->shape;
    double numbers = (double)s->query_heads * (s->k_dim + s->v_dim) +
                     (double)s->kv_heads * (s->k_dim + s->v_dim);
    return a->max_tokens * (numbers * (double)ta_dtype_bytes(s->dtype) * (a->forward_only ? 1 : 2) +
                            4.0 * s->query_heads);
}

/* `a` is a plan in the making, whose algorithm and grid are the candidate's. */
static ta_status predict(ta_attention *a, const ta_cluster *cluster, ta_candidate *c)
{
    int ring = a->algorithm == TA_ATTENTION_RING;
    *c = (ta_candidate){.algorithm = a->algorithm,
                        .algorithm_name = ta_attention_algorithm_name(a->algorithm),
                        .exchange_name = "",
                        .grid_rows = ring ? 0 : a->grid_rows,
                        .grid_columns = ring ? 0 : a->grid_columns,
                        .is_ring = ring,
                        .possible = 1,
                        .call_count = a->forward_only ? 1 : 2};
    ta_attention_set_lines(a);
    c->memory_bytes = tensor_bytes(a) + (double)ta_attention_cut(a);
    c->fits = c->memory_bytes <= cluster->memory_bytes;
    for (int backward = 0; backward < c->call_count; ++backward)
        TA_TRY(predict_call(a, cluster, backward, &c->calls[backward]));
    return TA_OK;
}

static ta_status predict_all(ta_attention *a, const ta_cluster *cluster)
{
    ta_candidates *made = &a->candidates;
    ta_attention copy = *a;
    ta_status status = TA_OK;
    copy.ops = NULL; /* the device's workspace is the same for all, and needs a device */
    copy.memory = NULL;
    copy.counts = calloc((size_t)a->ranks, sizeof *copy.counts);
    made->list = calloc(2 * (size_t)a->ranks + 1, sizeof *made->list);
    if (!copy.counts || !made->list) {
        status = ta_fail(TA_ERR_NO_MEMORY, "no memory for the candidates of a plan");
        goto free_counts;
    }
    for (int rank = 0; rank < a->ranks; ++rank)
        copy.counts[rank] = a->max_tokens;
    for (int columns = 1; columns <= a->ranks; ++columns) {
        if (a->ranks % columns)
            continue;
        copy.grid_rows = a->ranks / columns;
        copy.grid_columns = columns;
        copy.algorithm = TA_ATTENTION_GRID;
        TA_TRY_GOTO(predict(&copy, cluster, &made->list[made->count++]), free_counts);
        copy.algorithm = TA_ATTENTION_GRID_OVERLAP;
        if (a->ranks > 1)
            TA_TRY_GOTO(predict(&copy, cluster, &made->list[made->count++]), free_counts);
    }
    copy.algorithm = TA_ATTENTION_RING;
    copy.grid_rows = a->ranks;
    copy.grid_columns = 1;
    if (a->ranks > 1)
        TA_TRY_GOTO(predict(&copy, cluster, &made->list[made->count++]), free_counts);
    snprintf(made->cluster, sizeof made->cluster, "%s", cluster->name);

free_counts:
    free(copy.counts);
    return status;
}

/* ---- Choices ------------------------------------------------------------------------------- */

/* Does the config leave this candidate open? A grid that it gives leaves no ring, and on one rank
 * there is one way. */
static int is_open(const ta_candidate *c, const void *of)
{
    const ta_attention *a = of;
    if (a->ranks == 1)
        return 1;
    if (a->wanted != TA_ATTENTION_AUTO && c->algorithm != (int)a->wanted)
        return 0;
    return !a->wanted_rows || c->grid_rows == a->wanted_rows;
}

static void take_fastest(ta_attention *a)
{
    a->candidates.chosen = ta_candidates_best(&a->candidates, is_open, a);
    const ta_candidate *best = ta_candidates_chosen(&a->candidates);
    if (a->ranks > 1)
        a->algorithm = (ta_attention_algorithm)best->algorithm;
    if (best->is_ring) {
        a->grid_rows = a->ranks;
        a->grid_columns = 1;
    } else {
        a->grid_rows = best->grid_rows;
        a->grid_columns = best->grid_columns;
    }
}

/* The grid that moves the fewest bytes; of equals the one with the fewest columns. */
static void take_fewest_bytes(ta_attention *a)
{
    int64_t least = INT64_MAX;
    for (int columns = 1; columns <= a->ranks; ++columns) {
        if (a->ranks % columns)
            continue;
        int rows = a->ranks / columns;
        int64_t bytes = ta_attention_traffic(&a->shape, rows, columns, 0);
        if (!a->forward_only)
            bytes += ta_attention_traffic(&a->shape, rows, columns, 1);
        if (bytes < least) {
            least = bytes;
            a->grid_rows = rows;
            a->grid_columns = columns;
        }
    }
}

static ta_status check_cluster(const ta_attention *a, const ta_cluster *cluster)
{
    int half = ta_dtype_bytes(a->shape.dtype) == 2;
    if (cluster->ranks < a->ranks)
        return ta_fail(TA_ERR_INVALID,
                       "config.cluster has %d ranks: must have at least the group's %d",
                       cluster->ranks, a->ranks);
    if (cluster->flops_per_s[half] > 0)
        return TA_OK;
    return ta_fail(TA_ERR_INVALID,
                   "config.cluster '%s' has no device.%sflops_per_second: must have it, to predict "
                   "attention over full sequences",
                   cluster->name, half ? "half_" : "");
}

ta_status ta_attention_choose(const ta_attention_config *config, ta_attention *attention)
{
    ta_attention *a = attention;
    a->algorithm = a->wanted == TA_ATTENTION_AUTO ? TA_ATTENTION_GRID : a->wanted;
    if (a->wanted == TA_ATTENTION_RING) {
        a->grid_rows = a->ranks;
        a->grid_columns = 1;
    } else if (config->grid_rows) {
        a->grid_rows = config->grid_rows;
        a->grid_columns = config->grid_columns;
    } else if (!config->cluster) {
        take_fewest_bytes(a);
    }
    if (!config->cluster)
        return TA_OK;
    TA_TRY(check_cluster(a, config->cluster));
    TA_TRY(predict_all(a, config->cluster));
    take_fastest(a);
    return TA_OK;
}

ta_status ta_attention_follow(ta_attention *attention)
{
    ta_attention *a = attention;
    int32_t chosen[] = {(int32_t)a->algorithm, a->grid_rows, a->grid_columns};
    if (a->ranks == 1)
        return TA_OK;
    TA_TRY(ta_group_broadcast_host(a->caller, chosen, sizeof chosen, 0));
    a->algorithm = (ta_attention_algorithm)chosen[0];
    a->grid_rows = chosen[1];
    a->grid_columns = chosen[2];
    for (int i = 0; i < a->candidates.count; ++i) { /* a rank may have another cluster */
        const ta_candidate *c = &a->candidates.list[i];
        if (c->algorithm == (int)a->algorithm && (c->is_ring || c->grid_rows == a->grid_rows))
            a->candidates.chosen = i;
    }
    return TA_OK;
}
