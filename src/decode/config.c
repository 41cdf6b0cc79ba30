/* Checks of a plan config. Each message names the field, its value and what would be right. */
#include "config.h"

#include <math.h>

#include "base/arguments.h"
#include "base/dtype.h"
#include "base/shard_map.h"
#include "base/status.h"

static ta_status check_all_finite(const char *name, const float *values, int count)
{
    for (int i = 0; values && i < count; ++i)
        if (!isfinite(values[i]))
            return ta_fail(TA_ERR_INVALID, "config.%s[%d] is %g: must be finite", name, i,
                           (double)values[i]);
    return TA_OK;
}

static ta_status resolve_rows(const ta_plan_config *config, ta_problem *p)
{
    p->batch = config->batch;
    p->query_tokens = config->query_tokens ? config->query_tokens : 1;
    p->query_heads = config->query_heads;
    TA_TRY(ta_check_int("batch", p->batch, 1, 1 << 20));
    TA_TRY(ta_check_int("query_tokens", p->query_tokens, 1, TA_MAX_QUERY_TOKENS));
    int64_t rows = (int64_t)p->batch * p->query_tokens;
    TA_TRY(ta_check_int("max_call_tokens", config->max_call_tokens, 0, rows));
    p->rows = config->max_call_tokens ? config->max_call_tokens : rows;
    p->plan_rows = p->rows;
    p->plan_batch = p->batch;
    return TA_OK;
}

static ta_status resolve_shape(const ta_plan_config *config, ta_problem *p)
{
    TA_TRY(resolve_rows(config, p));
    p->kv_heads = config->kv_heads ? config->kv_heads : config->query_heads;
    p->k_dim = config->k_dim;
    p->v_dim = config->v_dim ? config->v_dim : config->k_dim;
    p->max_tokens = config->max_tokens;
    TA_TRY(ta_check_head_shape(p->query_heads, p->kv_heads, p->k_dim, p->v_dim, TA_MAX_DIM));
    return ta_check_int("max_tokens", p->max_tokens, 1, INT32_MAX - 64);
}

static ta_status resolve_dtypes(const ta_plan_config *config, ta_problem *p)
{
    TA_TRY(ta_check_dtype("kv_dtype", config->kv_dtype, TA_AS_KV));
    p->kv_dtype = config->kv_dtype;
    if (!config->query_dtype && ta_dtype_is_narrow(p->kv_dtype))
        return ta_fail(TA_ERR_INVALID,
                       "config.query_dtype is TA_DTYPE_NONE with config.kv_dtype %s: must be "
                       "TA_F32, TA_F16 or TA_BF16, a query has more than 8 bits",
                       ta_dtype_find(p->kv_dtype)->constant);
    p->query_dtype = config->query_dtype ? config->query_dtype : p->kv_dtype;
    p->out_dtype = config->out_dtype ? config->out_dtype : p->query_dtype;
    TA_TRY(ta_check_dtype("query_dtype", p->query_dtype, TA_AS_QUERY));
    return ta_check_dtype("out_dtype", p->out_dtype, TA_AS_OUT);
}

static ta_status resolve_scores(const ta_plan_config *config, ta_problem *p)
{
    TA_TRY(ta_check_int("mask", (int)config->mask, TA_MASK_CAUSAL, TA_MASK_FULL));
    TA_TRY(ta_check_int("window", config->window, 0, INT32_MAX));
    TA_TRY(ta_check_finite("scale", config->scale, -INFINITY));
    TA_TRY(ta_check_finite("softcap", config->softcap, 0.0f));
    TA_TRY(check_all_finite("alibi_slopes", config->alibi_slopes, p->query_heads));
    TA_TRY(check_all_finite("sinks", config->sinks, p->query_heads));
    p->causal = config->mask == TA_MASK_CAUSAL;
    p->window = config->window;
    p->scale = config->scale != 0.0f ? config->scale : 1.0f / sqrtf((float)p->k_dim);
    p->softcap = config->softcap;
    p->alibi_slopes = config->alibi_slopes;
    p->sinks = config->sinks;
    return TA_OK;
}

/* `block` 0: the map's own. */
static ta_status resolve_map(const ta_plan_config *config, int rank, int ranks, int32_t block,
                             ta_problem *p)
{
    ta_shard_map map = config->map;
    if (map.ranks == 0)
        map.ranks = ranks;
    if (map.ranks != ranks)
        return ta_fail(TA_ERR_INVALID, "config.map.ranks is %d: must be 0 or the group's size, %d",
                       map.ranks, ranks);
    if (map.bounds && map.kind != TA_SHARD_WEIGHTED)
        return ta_fail(TA_ERR_INVALID,
                       "config.map.bounds is set: must be NULL in a plan, give kv.bounds");
    if (block)
        map.block = block;
    return ta_shard_resolve(&map, rank, &p->shard);
}

/* A tile must be on one rank as a whole. Bounds come with each step, which checks them. */
static ta_status resolve_tile(const ta_plan_config *config, ta_problem *p)
{
    int32_t tile = config->reproducible_tile;
    if (tile)
        TA_TRY(ta_check_int("reproducible_tile", tile, TA_TALLY_TILE_MIN, TA_TALLY_TILE_MAX));
    if (tile && p->shard.ranks > 1 && p->shard.block % tile)
        return ta_fail(TA_ERR_INVALID,
                       "config.reproducible_tile is %d: config.map.block, %d, must be a multiple "
                       "of it",
                       (int)tile, (int)p->shard.block);
    p->tally_tile = tile;
    return TA_OK;
}

static ta_status resolve_weights(const ta_plan_config *config, ta_problem *p)
{
    if (config->weights != TA_WEIGHTS_EXACT && config->weights != TA_WEIGHTS_ROUNDED)
        return ta_fail(TA_ERR_INVALID,
                       "config.weights is %d: must be TA_WEIGHTS_EXACT or TA_WEIGHTS_ROUNDED",
                       (int)config->weights);
    p->rounds_weights = config->weights == TA_WEIGHTS_ROUNDED;
    return TA_OK;
}

/* A plan that shares prefixes has room for as many groups as sequences. */
static ta_status resolve_prefixes(const ta_plan_config *config, ta_problem *p)
{
    TA_TRY(ta_check_int("shared_prefixes", config->shared_prefixes, 0, 1));
    if (config->shared_prefixes && config->algorithm == TA_ALGORITHM_RING_KV && p->shard.ranks > 1)
        return ta_fail(TA_ERR_UNSUPPORTED,
                       "config.shared_prefixes is 1 with TA_ALGORITHM_RING_KV: a ring that passes "
                       "K and V has no shared prefixes, must be TA_ALGORITHM_TREE, "
                       "TA_ALGORITHM_RING_Q or TA_ALGORITHM_AUTO");
    p->shares_prefixes = config->shared_prefixes;
    return TA_OK;
}

static ta_status check_placement(const char *name, ta_placement placement, int root, int ranks)
{
    if (placement != TA_PLACE_ALL && placement != TA_PLACE_ROOT && placement != TA_PLACE_HEADS)
        return ta_fail(TA_ERR_INVALID,
                       "config.%s_placement is %d: must be TA_PLACE_ALL, "
                       "TA_PLACE_ROOT or TA_PLACE_HEADS",
                       name, (int)placement);
    if (placement == TA_PLACE_ROOT ? root < 0 || root >= ranks : root != 0)
        return ta_fail(TA_ERR_INVALID,
                       "config.%s_root is %d: must be from 0 to %d with "
                       "TA_PLACE_ROOT, 0 otherwise",
                       name, root, ranks - 1);
    return TA_OK;
}

/* A field that a plan with nothing to attend to has no use for. */
static ta_status check_unset(const char *name, int is_set)
{
    if (is_set)
        return ta_fail(TA_ERR_INVALID,
                       "config.%s is set: must be left at 0 with config.combine_only, such a plan "
                       "has no query, K or V",
                       name);
    return TA_OK;
}

static ta_status check_unset_fields(const ta_plan_config *config)
{
    TA_TRY(check_unset("kv_heads", config->kv_heads != 0));
    TA_TRY(check_unset("k_dim", config->k_dim != 0));
    TA_TRY(check_unset("kv_dtype", config->kv_dtype != TA_DTYPE_NONE));
    TA_TRY(check_unset("max_tokens", config->max_tokens != 0));
    TA_TRY(check_unset("map.kind", config->map.kind != TA_SHARD_CONTIGUOUS));
    TA_TRY(check_unset("map.block", config->map.block != 0));
    TA_TRY(check_unset("mask", config->mask != TA_MASK_CAUSAL));
    TA_TRY(check_unset("window", config->window != 0));
    TA_TRY(check_unset("scale", config->scale != 0.0f));
    TA_TRY(check_unset("softcap", config->softcap != 0.0f));
    TA_TRY(check_unset("alibi_slopes", config->alibi_slopes != NULL));
    TA_TRY(check_unset("query_placement", config->query_placement != TA_PLACE_ALL));
    TA_TRY(check_unset("query_root", config->query_root != 0));
    TA_TRY(check_unset("append_scattered", config->append_scattered != 0));
    TA_TRY(check_unset("shared_prefixes", config->shared_prefixes != 0));
    TA_TRY(check_unset("weights", config->weights != TA_WEIGHTS_EXACT));
    if (config->reproducible_tile)
        return ta_fail(TA_ERR_UNSUPPORTED,
                       "config.reproducible_tile is %d with config.combine_only: what the ranks "
                       "bring depends on how many they are already, so it must be 0",
                       (int)config->reproducible_tile);
    if (config->algorithm != TA_ALGORITHM_AUTO && config->algorithm != TA_ALGORITHM_TREE)
        return ta_fail(TA_ERR_INVALID,
                       "config.algorithm is %d: must be TA_ALGORITHM_AUTO or TA_ALGORITHM_TREE "
                       "with config.combine_only, a ring passes K and V or the query",
                       (int)config->algorithm);
    return TA_OK;
}

/* A plan for ta_combine(): rows and their outputs, and nothing that they are made of. */
static ta_status resolve_combine(const ta_plan_config *config, int rank, int ranks, ta_problem *p)
{
    TA_TRY(check_unset_fields(config));
    TA_TRY(resolve_rows(config, p));
    TA_TRY(ta_check_int("query_heads", p->query_heads, 1, 1 << 16));
    TA_TRY(ta_check_dim("v_dim", config->v_dim, TA_MAX_DIM));
    TA_TRY(check_all_finite("sinks", config->sinks, p->query_heads));
    TA_TRY(ta_check_dtype("query_dtype", config->query_dtype, TA_AS_QUERY));
    p->v_dim = config->v_dim;
    p->sinks = config->sinks;
    p->query_dtype = config->query_dtype;
    p->out_dtype = config->out_dtype ? config->out_dtype : p->query_dtype;
    TA_TRY(resolve_map(config, rank, ranks, 1, p)); /* any block will do for no tokens */
    return ta_check_dtype("out_dtype", p->out_dtype, TA_AS_OUT);
}

ta_status ta_config_resolve(const ta_plan_config *config, int rank, int ranks, ta_problem *problem)
{
    ta_problem p = {0};
    TA_TRY(ta_check_int("combine_only", config->combine_only, 0, 1));
    if (config->combine_only) {
        TA_TRY(resolve_combine(config, rank, ranks, &p));
    } else {
        TA_TRY(resolve_shape(config, &p));
        TA_TRY(resolve_dtypes(config, &p));
        TA_TRY(resolve_scores(config, &p));
        TA_TRY(resolve_map(config, rank, ranks, 0, &p));
        TA_TRY(resolve_tile(config, &p));
        TA_TRY(resolve_prefixes(config, &p));
        TA_TRY(resolve_weights(config, &p));
    }
    TA_TRY(check_placement("query", config->query_placement, config->query_root, ranks));
    TA_TRY(check_placement("out", config->out_placement, config->out_root, ranks));
    TA_TRY(
        ta_check_int("algorithm", (int)config->algorithm, TA_ALGORITHM_AUTO, TA_ALGORITHM_RING_Q));
    *problem = p;
    return TA_OK;
}
