/* Checks and defaults of an attention plan's config. Each message names the field, its value and
 * what would be right. choice.c chooses what it leaves open. */
#include <math.h>
#include <stdlib.h>

#include "base/arguments.h"
#include "base/dtype.h"
#include "base/shard_map.h"
#include "base/status.h"
#include "make.h"

static ta_status resolve_shape(const ta_attention_config *config, ta_attention_work *s)
{
    s->query_heads = config->query_heads;
    s->kv_heads = config->kv_heads ? config->kv_heads : config->query_heads;
    s->k_dim = config->k_dim;
    s->v_dim = config->v_dim ? config->v_dim : config->k_dim;
    s->dtype = config->dtype;
    TA_TRY(
        ta_check_head_shape(s->query_heads, s->kv_heads, s->k_dim, s->v_dim, TA_ATTENTION_MAX_DIM));
    TA_TRY(ta_check_dtype("dtype", s->dtype, TA_AS_ATTENTION));
    TA_TRY(ta_check_finite("scale", config->scale, -INFINITY));
    TA_TRY(ta_check_finite("softcap", config->softcap, 0.0f));
    s->scale = config->scale != 0.0f ? config->scale : 1.0f / sqrtf((float)s->k_dim);
    s->softcap = config->softcap;
    return TA_OK;
}

/* The plan's own copy: where turns start, in the place of the weights, which are behind. */
static ta_status take_weights(ta_attention *a)
{
    ta_shard own = {0};
    TA_TRY(ta_shard_resolve(&a->map, 0, &own));
    a->turn_starts = calloc(2 * (size_t)a->ranks + 1, sizeof *a->turn_starts);
    if (!a->turn_starts)
        return ta_fail(TA_ERR_NO_MEMORY, "no memory for the weights of %d ranks", a->ranks);
    ta_shard_find_turns(a->map.bounds, a->ranks, a->turn_starts);
    for (int rank = 0; rank < a->ranks; ++rank)
        a->turn_starts[a->ranks + 1 + rank] = a->map.bounds[rank];
    a->map.bounds = a->turn_starts;
    return TA_OK;
}

static ta_status resolve_map(const ta_attention_config *config, ta_attention *a)
{
    a->map = config->map;
    TA_TRY(ta_shard_check_map("config.map", &a->map));
    TA_TRY(ta_check_int("map.kind", (int)a->map.kind, TA_SHARD_CONTIGUOUS, TA_SHARD_WEIGHTED));
    TA_TRY(ta_check_int("map.block", a->map.block, 0, INT32_MAX));
    if (a->map.ranks == 0)
        a->map.ranks = a->ranks;
    if (a->map.ranks != a->ranks)
        return ta_fail(TA_ERR_INVALID, "config.map.ranks is %d: must be 0 or the group's size, %d",
                       a->map.ranks, a->ranks);
    if (a->map.kind == TA_SHARD_WEIGHTED)
        return take_weights(a);
    if (a->map.bounds)
        return ta_fail(TA_ERR_INVALID, "config.map.bounds is set: must be NULL in a plan");
    return TA_OK;
}

static ta_status check_grid(const ta_attention_config *config, const ta_attention *a)
{
    if (a->wanted == TA_ATTENTION_RING) { /* every rank has its own queries, and no line */
        TA_TRY(ta_check_int("grid_rows", config->grid_rows, 0, 0));
        TA_TRY(ta_check_int("grid_columns", config->grid_columns, 0, 0));
        return TA_OK;
    }
    if (config->grid_rows == 0 && config->grid_columns == 0)
        return TA_OK;
    TA_TRY(ta_check_int("grid_rows", config->grid_rows, 1, a->ranks));
    TA_TRY(ta_check_int("grid_columns", config->grid_columns, 1, a->ranks));
    if (config->grid_rows * (int64_t)config->grid_columns != a->ranks)
        return ta_fail(TA_ERR_INVALID,
                       "config.grid_rows × config.grid_columns is %d × %d: must be %d ranks, the "
                       "group's size",
                       config->grid_rows, config->grid_columns, a->ranks);
    return TA_OK;
}

ta_status ta_attention_resolve(const ta_attention_config *config, ta_attention *attention)
{
    ta_attention *a = attention;
    TA_TRY(resolve_shape(config, &a->shape));
    TA_TRY(ta_check_int("mask", (int)config->mask, TA_MASK_CAUSAL, TA_MASK_FULL));
    TA_TRY(ta_check_int("window", config->window, 0, INT32_MAX));
    TA_TRY(ta_check_int("forward_only", config->forward_only, 0, 1));
    TA_TRY(ta_check_int("algorithm", (int)config->algorithm, TA_ATTENTION_AUTO,
                        TA_ATTENTION_GRID_OVERLAP));
    TA_TRY(resolve_map(config, a));
    a->wanted = config->algorithm;
    a->wanted_rows = config->grid_rows;
    a->wanted_columns = config->grid_columns;
    a->causal = config->mask == TA_MASK_CAUSAL;
    a->window = config->window;
    a->forward_only = config->forward_only;
    a->workspace_given = config->workspace;
    a->workspace_bytes = config->workspace_bytes;
    TA_TRY(check_grid(config, a));
    TA_TRY(ta_check_int("max_tokens", config->max_tokens, 1, INT32_MAX - 64));
    a->max_tokens = config->max_tokens;
    TA_TRY(ta_attention_choose(config, a));
    int longer = a->grid_rows > a->grid_columns ? a->grid_rows : a->grid_columns;
    TA_TRY(ta_check_int("max_tokens", config->max_tokens, 1, (INT32_MAX - 64) / longer));
    return TA_OK;
}
