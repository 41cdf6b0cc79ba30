/* What must be the same on all ranks that make an attention plan. group/agree.c compares it; plan.c
 * calls this. api.c has what must be the same in a call. */
#include "group/agree.h"

#include "base/status.h"
#include "make.h"

ta_status ta_attention_agree(ta_group *group, ta_attention *attention, ta_status status)
{
    ta_agreement agreement = {
        .what = "attention plans", .failed = "could not make its plan", .others = TA_ERR_MISMATCH};
    if (status != TA_OK)
        return ta_agree(group, &agreement, status);
    ta_attention *a = attention;
    const ta_attention_work *s = &a->shape;
    const ta_field fields[] = {
        TA_FIELD_OF_INTEGER("config.query_heads", s->query_heads),
        TA_FIELD_OF_INTEGER("config.kv_heads", s->kv_heads),
        TA_FIELD_OF_INTEGER("config.k_dim", s->k_dim),
        TA_FIELD_OF_INTEGER("config.v_dim", s->v_dim),
        TA_FIELD_OF_INTEGER("config.dtype", s->dtype),
        TA_FIELD_OF_INTEGER("config.max_tokens", a->max_tokens),
        TA_FIELD_OF_INTEGER("config.map.kind", a->map.kind),
        TA_FIELD_OF_INTEGER("config.map.block", a->map.block),
        TA_FIELD_OF_INTEGERS("config.map.bounds",
                             a->turn_starts ? a->turn_starts + a->ranks + 1 : NULL, a->ranks),
        TA_FIELD_OF_INTEGER("config.mask", !a->causal),
        TA_FIELD_OF_INTEGER("config.window", a->window),
        TA_FIELD_OF_REAL("config.scale", s->scale),
        TA_FIELD_OF_REAL("config.softcap", s->softcap),
        TA_FIELD_OF_INTEGER("config.grid_rows", a->wanted_rows),
        TA_FIELD_OF_INTEGER("config.grid_columns", a->wanted_columns),
        TA_FIELD_OF_INTEGER("config.forward_only", a->forward_only),
        TA_FIELD_OF_INTEGER("config.algorithm", a->wanted),
    };
    TA_AGREE_ON(&agreement, fields);
    TA_TRY(ta_agree(group, &agreement, TA_OK));
    a->id = agreement.id;
    return TA_OK;
}
