/* What must be the same on all ranks that make a decode plan. group/agree.c compares it; plan.c
 * calls this, so that a plan exists on every rank or on none. */
#include "group/agree.h"
#include "base/status.h"
#include "plan.h"

/* The ranks of a plan that failed to be made have no fields, and maybe no plan. */
ta_status ta_plan_agree(ta_group *group, ta_plan *plan, const ta_plan_config *config,
                        ta_status status)
{
    ta_agreement agreement = {
        .what = "plans", .failed = "could not make its plan", .others = TA_ERR_MISMATCH};
    if (status != TA_OK)
        return ta_agree(group, &agreement, status);
    const ta_problem *p = &plan->problem;
    /* Slopes and sinks as the caller has them: the plan's own are in device memory. */
    const ta_field fields[] = {
        TA_FIELD_OF_INTEGER("config.batch", p->batch),
        TA_FIELD_OF_INTEGER("config.query_tokens", p->query_tokens),
        TA_FIELD_OF_INTEGER("config.query_heads", p->query_heads),
        TA_FIELD_OF_INTEGER("config.kv_heads", p->kv_heads),
        TA_FIELD_OF_INTEGER("config.k_dim", p->k_dim),
        TA_FIELD_OF_INTEGER("config.v_dim", p->v_dim),
        TA_FIELD_OF_INTEGER("config.kv_dtype", p->kv_dtype),
        TA_FIELD_OF_INTEGER("config.query_dtype", p->query_dtype),
        TA_FIELD_OF_INTEGER("config.out_dtype", p->out_dtype),
        TA_FIELD_OF_INTEGER("config.max_tokens", p->max_tokens),
        TA_FIELD_OF_INTEGER("config.map.kind", config->map.kind),
        TA_FIELD_OF_INTEGER("config.map.block", p->shard.block),
        TA_FIELD_OF_INTEGERS("config.map.bounds", config->map.bounds, plan->ranks),
        TA_FIELD_OF_INTEGER("config.mask", !p->causal),
        TA_FIELD_OF_INTEGER("config.window", p->window),
        TA_FIELD_OF_REAL("config.scale", p->scale),
        TA_FIELD_OF_REAL("config.softcap", p->softcap),
        TA_FIELD_OF_REALS("config.alibi_slopes", config->alibi_slopes, p->query_heads),
        TA_FIELD_OF_REALS("config.sinks", config->sinks, p->query_heads),
        TA_FIELD_OF_INTEGER("config.query_placement", plan->query_placement),
        TA_FIELD_OF_INTEGER("config.query_root", plan->query_root),
        TA_FIELD_OF_INTEGER("config.out_placement", plan->out_placement),
        TA_FIELD_OF_INTEGER("config.out_root", plan->out_root),
        TA_FIELD_OF_INTEGER("config.algorithm", plan->choice.wanted_algorithm),
        TA_FIELD_OF_INTEGER("config.exchange", plan->choice.wanted),
        TA_FIELD_OF_INTEGER("config.replay", plan->replays),
        TA_FIELD_OF_INTEGER("config.check", plan->checks),
        TA_FIELD_OF_INTEGER("config.reproducible_tile", p->tally_tile),
        TA_FIELD_OF_INTEGER("config.max_call_tokens", p->rows),
        TA_FIELD_OF_INTEGER("config.combine_only", ta_plan_combines(plan)),
        TA_FIELD_OF_INTEGER("config.append_scattered", plan->gathers_tokens),
        TA_FIELD_OF_INTEGER("config.shared_prefixes", p->shares_prefixes),
        TA_FIELD_OF_INTEGER("config.weights", p->rounds_weights),
    };
    TA_AGREE_ON(&agreement, fields);
    agreement.any = plan->device->ops->alloc_host != NULL; /* lengths are in its device's memory */
    TA_TRY(ta_agree(group, &agreement, TA_OK));
    plan->lengths_hidden = plan->ranks > 1 && agreement.any;
    plan->id = agreement.id;
    return TA_OK;
}
