/* One rank's plan differs from the others', in each field in turn: see differing_plan.h. */
#include "differing_plan.h"

#include "expect.h"
#include "small_step.h"
#include "spoil.h"

/* How one rank's config differs, and what every rank must say. */
typedef struct difference {
    const char *field;
    int rank; /* the one that differs */
    void (*spoil)(ta_plan_config *config);
} difference;

/* As many as the largest head count below. */
static const float slopes[8] = {0.5f, 0.25f}, other_slopes[8] = {0.5f, 0.25f, 0, 2};

#define SPOIL(name, change) SPOIL_FUNCTION(spoil_##name, ta_plan_config *config, change)
SPOIL(batch, config->batch = 1)
SPOIL(query_tokens, config->query_tokens = 3)
SPOIL(query_heads, config->query_heads = 8)
SPOIL(kv_heads, config->kv_heads = 4)
SPOIL(k_dim, config->k_dim = 24)
SPOIL(v_dim, config->v_dim = 16)
SPOIL(kv_dtype, config->kv_dtype = TA_F16; config->query_dtype = TA_F32)
SPOIL(query_dtype, config->query_dtype = TA_BF16; config->out_dtype = TA_F32)
SPOIL(out_dtype, config->out_dtype = TA_F16)
SPOIL(max_tokens, config->max_tokens = 8)
SPOIL(map_kind, config->map.kind = TA_SHARD_CONTIGUOUS)
SPOIL(map_block, config->map.block = 2)
SPOIL(mask, config->mask = TA_MASK_FULL)
SPOIL(window, config->window = 5)
SPOIL(scale, config->scale = 0.25000003f)
SPOIL(softcap, config->softcap = 30)
SPOIL(alibi_slopes, config->alibi_slopes = other_slopes)
SPOIL(no_alibi_slopes, config->alibi_slopes = NULL)
SPOIL(sinks, config->sinks = slopes)
SPOIL(no_sinks, config->sinks = NULL)
SPOIL(query_placement, config->query_placement = TA_PLACE_HEADS)
SPOIL(out_placement, config->out_placement = TA_PLACE_HEADS)
SPOIL(check, config->check = 1)
SPOIL(weights, config->weights = TA_WEIGHTS_ROUNDED)

static const difference differences[] = {
    {"config.batch", 1, spoil_batch},
    {"config.query_tokens", 2, spoil_query_tokens},
    {"config.query_heads", 1, spoil_query_heads},
    {"config.kv_heads", 2, spoil_kv_heads},
    {"config.k_dim", 1, spoil_k_dim},
    {"config.v_dim", 2, spoil_v_dim},
    {"config.kv_dtype", 1, spoil_kv_dtype},
    {"config.query_dtype", 2, spoil_query_dtype},
    {"config.out_dtype", 1, spoil_out_dtype},
    {"config.max_tokens", 2, spoil_max_tokens},
    {"config.map.kind", 1, spoil_map_kind},
    {"config.map.block", 2, spoil_map_block},
    {"config.mask", 1, spoil_mask},
    {"config.window", 2, spoil_window},
    {"config.scale", 1, spoil_scale},
    {"config.softcap", 2, spoil_softcap},
    {"config.alibi_slopes", 1, spoil_alibi_slopes},
    {"config.alibi_slopes", 2, spoil_no_alibi_slopes},
    {"config.sinks", 2, spoil_sinks},
    {"config.sinks", 1, spoil_no_sinks},
    {"config.query_placement", 1, spoil_query_placement},
    {"config.out_placement", 2, spoil_out_placement},
    {"config.check", 1, spoil_check},
    {"config.weights", 2, spoil_weights},
    /* Rank 0 differs from all others: still an error everywhere, named after the first other. */
    {"config.window", 0, spoil_window},
};

int differing_plans(void)
{
    return sizeof differences / sizeof *differences;
}

ta_status differing_plan_rank(ta_group *group, void *context)
{
    const difference *d = &differences[*(int *)context];
    ta_device *device;
    ta_plan *plan = (ta_plan *)&plan, *untouched = plan;
    small_step step;
    char named[20];
    small_step_init(&step, ta_group_rank(group), ta_group_size(group));
    ta_plan_config config = step.config;
    config.alibi_slopes = slopes;
    config.sinks = other_slopes;
    if (ta_group_rank(group) == d->rank)
        d->spoil(&config);
    TA_TRY(ta_device_open("host", NULL, &device));
    ta_status status = ta_plan_create(group, device, &config, &plan);
    RANK_EXPECT(status == TA_ERR_MISMATCH);
    RANK_EXPECT(plan == untouched);
    RANK_EXPECT(strstr(ta_last_error(), d->field));
    snprintf(named, sizeof named, "rank %d", d->rank ? d->rank : 1);
    RANK_EXPECT(strstr(ta_last_error(), named));
    TA_TRY(small_step_try(&step, group, device));
    ta_device_close(device);
    return TA_OK;
}
