/* Packing and unpacking the messages of an exchange: see messages.h. */
#include "messages.h"

#include "base/partial.h"
#include "base/status.h"

ta_exchange_shape ta_exchange_shape_of(const ta_plan *plan)
{
    const ta_problem *p = &plan->problem;
    size_t record = (size_t)ta_problem_record_floats(p) * sizeof(float);
    return (ta_exchange_shape){.ranks = plan->ranks,
                               .heads = p->query_heads,
                               .record_bytes = record,
                               .tallies = p->tally_tile != 0,
                               .head_bytes = (size_t)ta_problem_rows(p) * record,
                               .placement = plan->out_placement,
                               .root = plan->out_root,
                               .nodes = &plan->choice.nodes,
                               .device_memory = ta_plan_tracks(plan)};
}

int64_t ta_heads_floats(const ta_plan *plan, ta_heads heads)
{
    return (heads.end - heads.first) * ta_problem_rows(&plan->problem) *
           ta_problem_record_floats(&plan->problem);
}

float *ta_records_at(const ta_plan *plan, int head)
{
    return plan->exchange_records + ta_heads_floats(plan, (ta_heads){0, head});
}

ta_fault *ta_tracked_fault(const ta_plan *plan)
{
    return (ta_fault *)ta_records_at(plan, plan->problem.query_heads);
}

ta_status ta_message_pack(ta_plan *plan, ta_heads heads, const ta_fault *fault,
                          const void **message, void *stream)
{
    int64_t floats = ta_heads_floats(plan, heads);
    float *packed = ta_records_at(plan, heads.first);
    ta_device *device = plan->exchange_device;
    if (heads.end != plan->problem.query_heads) {
        TA_TRY(
            device->ops->copy(device, plan->sent, packed, (size_t)floats * sizeof(float), stream));
        packed = plan->sent;
    }
    *message = packed;
    if (ta_plan_tracks(plan))
        fault = ta_tracked_fault(plan);
    if ((const void *)fault == packed + floats)
        return TA_OK;
    return device->ops->copy(device, packed + floats, fault, sizeof *fault, stream);
}

/* The fault behind a message that arrived in host memory. */
static ta_status take_fault(ta_plan *plan, const float *behind, ta_fault *fault, void *stream)
{
    ta_device *device = plan->exchange_device;
    ta_fault theirs;
    TA_TRY(device->ops->copy(device, &theirs, behind, sizeof theirs, stream));
    *fault = ta_fault_merge(*fault, theirs);
    return TA_OK;
}

ta_status ta_message_merge(ta_plan *plan, const float *message, ta_heads heads, ta_fault *fault,
                           void *stream)
{
    ta_device *device = plan->exchange_device;
    const float *behind = message + ta_heads_floats(plan, heads);
    float *into = ta_records_at(plan, heads.first);
    int64_t records = (heads.end - heads.first) * ta_problem_rows(&plan->problem);
    int tallies = plan->problem.tally_tile != 0;
    if (ta_plan_tracks(plan)) /* tallies; partials are relayed */
        return device->ops->merge_tallies(device, into, message, records, plan->problem.v_dim,
                                          ta_tracked_fault(plan), (const ta_fault *)behind, stream);
    TA_TRY(take_fault(plan, behind, fault, stream));
    if (fault->status != TA_OK) /* nobody will read the result, but an earlier one may be in use */
        return TA_OK;
    if (tallies)
        return device->ops->merge_tallies(device, into, message, records, plan->problem.v_dim, NULL,
                                          NULL, stream);
    return device->ops->merge(device, into, message, records, plan->problem.v_dim, stream);
}

/* What arrives has this rank's partial in it, and so its fault too. */
ta_status ta_message_take(ta_plan *plan, const float *message, ta_heads heads, ta_fault *fault,
                          void *stream)
{
    ta_device *device = plan->exchange_device;
    const float *behind = message + ta_heads_floats(plan, heads);
    size_t bytes = (size_t)ta_heads_floats(plan, heads) * sizeof(float);
    if (ta_plan_tracks(plan)) {
        TA_TRY(device->ops->copy(device, ta_tracked_fault(plan), behind, sizeof *fault, stream));
    } else {
        TA_TRY(take_fault(plan, behind, fault, stream));
        if (fault->status != TA_OK)
            return TA_OK;
    }
    return device->ops->copy(device, ta_records_at(plan, heads.first), message, bytes, stream);
}
