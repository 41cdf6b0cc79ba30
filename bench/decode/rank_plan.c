/* From the options and a row to ta_device_open() and ta_plan_create(). measure.c opens the plans
 * that it times, decode.c tries the last row's before it starts. */
#include "rank_plan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <treeattn/cluster.h>

#include "common/launch.h"
#include "common/links.h"
#include "kv_cache.h"
#include "prediction.h"

ta_plan_config rank_plan_config(const decode_options *o, const bench_case *row)
{
    ta_plan_config config = TA_PLAN_CONFIG_INIT;
    config.batch = (int32_t)o->batch;
    config.query_tokens = (int32_t)o->query_tokens;
    config.max_call_tokens = o->ragged ? (int32_t)options_rows(o) : 0;
    config.query_heads = row->query_heads;
    config.kv_heads = row->kv_heads;
    config.k_dim = (int32_t)o->head_dim;
    config.v_dim = (int32_t)o->v_dim;
    config.kv_dtype = row->kv_dtype;
    config.query_dtype = row->dtype;
    config.max_tokens = kv_most_tokens(o, row);
    config.map.kind = (ta_shard_kind)o->map;
    config.map.block = (int32_t)o->block;
    config.query_placement = (ta_placement)o->query_placement;
    config.out_placement = (ta_placement)o->out_placement;
    config.algorithm = row->algorithm;
    config.replay = (int)o->graph;
    config.reproducible_tile = row->tile;
    config.shared_prefixes = o->shared_prefix > 0;
    config.weights = (ta_weights)o->weights;
    return config;
}

static ta_status open_device(const decode_options *options, const bench_case *row, ta_group *group,
                             rank_plan *opened)
{
    rank_device_config config = {options->sweep.device, options->devices.each,
                                 options->group == RANK_GROUP_CCL, row->threads,
                                 options->sweep.simd};
    *opened = (rank_plan){.group = group};
    ta_status status = rank_device_open(&config, group, &opened->device, &opened->group);
    if (status == TA_OK && options->link && ta_group_size(group) > 1)
        status = links_create(group, &options->speed, &opened->group, &opened->links);
    opened->own_group = opened->group != group;
    return status;
}

ta_status rank_plan_open(const decode_options *options, const bench_case *row, ta_group *group,
                         rank_plan *opened)
{
    ta_plan_config config = rank_plan_config(options, row);
    ta_status status = open_device(options, row, group, opened);
    if (status == TA_OK)
        status = prediction_cluster(options, opened->group, opened->device, &opened->cluster);
    config.cluster = opened->cluster;
    if (status == TA_OK)
        status = ta_plan_create(opened->group, opened->device, &config, &opened->plan);
    if (status != TA_OK)
        rank_plan_close(opened);
    return status;
}

void rank_plan_close(rank_plan *opened)
{
    ta_plan_destroy(opened->plan);
    ta_cluster_destroy(opened->cluster);
    if (opened->own_group)
        ta_group_destroy(opened->group);
    links_destroy(opened->links);
    ta_device_close(opened->device);
}

ta_status rank_plan_explain(const rank_plan *opened, char **text)
{
    size_t bytes = 0;
    ta_status status = ta_explain(opened->plan, NULL, 0, &bytes);
    if (status != TA_OK)
        return status;
    *text = malloc(bytes);
    return *text ? ta_explain(opened->plan, *text, bytes, NULL) : TA_ERR_NO_MEMORY;
}

typedef struct plan_trial {
    const decode_options *options;
    const bench_case *row;
    char **text;
} plan_trial;

static ta_status try_rank(ta_group *group, void *context)
{
    plan_trial *trial = context;
    rank_plan opened;
    ta_status status = rank_plan_open(trial->options, trial->row, group, &opened);
    if (status != TA_OK)
        return status;
    if (ta_group_rank(group) == 0)
        status = rank_plan_explain(&opened, trial->text);
    rank_plan_close(&opened);
    return status;
}

ta_status rank_plan_try(const decode_options *options, const bench_case *row, char **text)
{
    plan_trial trial = {options, row, text};
    return launch_run(row->ranks, try_rank, &trial);
}
