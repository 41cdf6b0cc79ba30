/* What the steps of all algorithms share: see step.h. tree.c and ring.c have the steps. */
#include "step.h"

#include "base/dtype.h"
#include "base/partial.h"
#include "base/status.h"

ta_status ta_stage_out(ta_plan *plan, void *to, const void *from, size_t bytes, void *stream)
{
    if (!ta_plan_stages(plan) || bytes == 0)
        return TA_OK;
    TA_TRY(plan->device->ops->copy(plan->device, to, from, bytes, stream));
    return plan->device->ops->synchronize(plan->device, stream);
}

ta_status ta_stage_in(ta_plan *plan, void *to, const void *from, size_t bytes, void *stream)
{
    if (!ta_plan_stages(plan) || bytes == 0)
        return TA_OK;
    return plan->device->ops->copy(plan->device, to, from, bytes, stream);
}

ta_status ta_move_query(ta_plan *plan, const ta_tensor *q, const ta_fault *fault,
                        ta_tensor *everywhere, void *stream)
{
    const ta_problem *p = &plan->problem;
    if (!plan->query) {
        *everywhere = *q;
        return TA_OK;
    }
    int first, heads;
    ta_plan_heads(plan, plan->query_placement, plan->query_root, plan->rank, &first, &heads);
    int64_t rows = ta_problem_rows(p);
    size_t head_bytes = (size_t)(rows * p->k_dim) * ta_dtype_bytes(p->query_dtype);
    size_t all_bytes = (size_t)p->query_heads * head_bytes, before = (size_t)first * head_bytes;
    if (heads > 0 && fault->status == TA_OK) {
        char *packed = (char *)plan->query + before;
        TA_TRY(plan->device->ops->pack_query(plan->device, p, q, heads, packed, stream));
        TA_TRY(ta_stage_out(plan, (char *)plan->exchange_query + before, packed,
                            (size_t)heads * head_bytes, stream));
    }
    if (plan->query_placement == TA_PLACE_ROOT)
        TA_TRY(ta_group_broadcast(plan->group, plan->exchange_query, all_bytes, plan->query_root,
                                  stream));
    else
        TA_TRY(ta_group_all_gather(plan->group, plan->exchange_query, plan->query_at, stream));
    *everywhere = (ta_tensor){.data = plan->query,
                              .batch_stride = (int64_t)p->query_tokens * p->k_dim,
                              .token_stride = p->k_dim,
                              .head_stride = rows * p->k_dim};
    if (fault->status != TA_OK) /* nothing will read it */
        return TA_OK;
    return ta_stage_in(plan, plan->query, plan->exchange_query, all_bytes, stream);
}

ta_status ta_end_exchange(ta_plan *plan, ta_status status, void *stream)
{
    if (status == TA_OK)
        return ta_group_finish(plan->group, stream);
    ta_group_abort(plan->group, ta_last_error());
    (void)ta_group_finish(plan->group, stream); /* so that nobody uses the buffers any more */
    return status;
}

ta_status ta_finish_heads(ta_plan *plan, const ta_tensor *out, float *lse, const ta_fault *fault,
                          void *stream)
{
    const ta_problem *p = &plan->problem;
    int64_t head_floats = ta_problem_rows(p) * ta_problem_record_floats(p);
    int first, heads;
    ta_plan_heads(plan, plan->out_placement, plan->out_root, plan->rank, &first, &heads);
    if (fault->status != TA_OK || heads == 0)
        return TA_OK;
    float *merged = plan->records + first * head_floats;
    if (ta_plan_stages(plan)) /* otherwise there may be no records to be exchanged */
        TA_TRY(ta_stage_in(plan, merged, plan->exchange_records + first * head_floats,
                           (size_t)(heads * head_floats) * sizeof(float), stream));
    if (!ta_plan_tracks(plan))
        return plan->device->ops->finish(plan->device, p, merged, first, heads, out, lse, stream);
    if (plan->last.messages)
        return plan->device->ops->finish_relay(plan->device, p, &plan->last, first, heads, out, lse,
                                               plan->report, stream);
    ta_fault_place place = {(ta_fault *)(plan->records + p->query_heads * head_floats),
                            plan->report};
    return plan->device->ops->finish_tracking(plan->device, p, merged, first, heads, out, lse,
                                              place, stream);
}
