/* What the steps of all algorithms share: see step.h. tree.c, ring_kv.c and ring_q.c have the
 * steps. */
#include "step.h"

#include "base/clock.h"
#include "base/dtype.h"
#include "base/shard_map.h"
#include "base/status.h"

void ta_plan_heads(const ta_plan *plan, ta_placement placement, int root, int rank, int *first,
                   int *count)
{
    int heads = plan->problem.query_heads;
    *first = 0;
    *count = heads;
    if (placement == TA_PLACE_ROOT && rank != root)
        *count = 0;
    if (placement == TA_PLACE_HEADS) {
        *first = ta_head_start(heads, plan->ranks, rank);
        *count = ta_head_start(heads, plan->ranks, rank + 1) - *first;
    }
}

ta_status ta_plan_attend(ta_plan *plan, const ta_problem *problem, const ta_tensor *q,
                         const ta_kv *kv, float *records, void *stream)
{
    ta_device *device = plan->device;
    int64_t before = ta_clock_ns();
    int spans = device->timing && device->ops->span;
    if (spans)
        TA_TRY(device->ops->span(device, 0, stream));
    TA_TRY(
        device->ops->attend(device, problem, q, kv, records, plan->attend, &plan->telling, stream));
    plan->telling.to = NULL;
    if (spans)
        TA_TRY(device->ops->span(device, 1, stream));
    plan->attend_ns += (uint64_t)(ta_clock_ns() - before);
    return TA_OK;
}

ta_status ta_begin_fault(ta_plan *plan, const ta_exchange_job *job, const ta_fault *own,
                         void *stream)
{
    ta_fault *fault = ta_exchange_fault(job);
    plan->telling.to = NULL;
    if (own->status == TA_OK && ta_plan_device_tells(plan))
        plan->telling = (ta_tell){*own, ta_plan_stages(plan) ? plan->told : fault};
    else if (ta_plan_tracks(plan))
        return plan->device->ops->copy(plan->device, fault, &plan->faults[-own->status],
                                       sizeof *fault, stream);
    else if (plan->ranks > 1)
        *fault = *own;
    return TA_OK;
}

ta_status ta_end_fault(ta_plan *plan, const ta_exchange_job *job, const ta_step *step,
                       const ta_fault *own, void *stream)
{
    if (own->status != TA_OK || !ta_plan_device_tells(plan))
        return TA_OK;
    if (plan->telling.to) /* nothing was attended to */
        TA_TRY(plan->device->ops->tell(plan->device, &step->problem, &step->kv, &plan->telling,
                                       stream));
    plan->telling.to = NULL;
    if (!ta_plan_stages(plan))
        return TA_OK;
    return ta_staging_copy(&plan->staging, ta_exchange_fault(job), plan->told, sizeof *plan->told,
                           stream);
}

int ta_step_failed(ta_plan *plan, const ta_exchange_job *job)
{
    if (ta_plan_tracks(plan) || ta_exchange_fault(job)->status == TA_OK)
        return 0;
    *plan->report = *ta_exchange_fault(job);
    return 1;
}

ta_tensor ta_moved_query(const ta_plan *plan, const ta_problem *problem)
{
    const ta_problem *p = problem;
    return (ta_tensor){.data = plan->query,
                       .batch_stride = (int64_t)p->query_tokens * p->k_dim,
                       .token_stride = p->k_dim,
                       .head_stride = p->rows * p->k_dim};
}

ta_status ta_move_query(ta_plan *plan, const ta_step *step, const ta_fault *own,
                        ta_tensor *everywhere, void *stream)
{
    const ta_problem *p = &step->problem;
    if (!plan->query) {
        *everywhere = step->q;
        return TA_OK;
    }
    int first, heads;
    ta_plan_heads(plan, plan->query_placement, plan->query_root, plan->rank, &first, &heads);
    size_t head_bytes = (size_t)(p->rows * p->k_dim) * ta_dtype_bytes(p->query_dtype);
    size_t all_bytes = (size_t)p->query_heads * head_bytes, before = (size_t)first * head_bytes;
    if (heads > 0 && own->status == TA_OK) {
        char *packed = (char *)plan->query + before;
        TA_TRY(plan->device->ops->pack_query(plan->device, p, &step->q, heads, packed, stream));
        TA_TRY(ta_staging_out(&plan->staging, (char *)plan->exchange_query + before, packed,
                              (size_t)heads * head_bytes, stream));
    }
    if (plan->query_placement == TA_PLACE_ROOT)
        TA_TRY(ta_group_broadcast(plan->group, plan->exchange_query, all_bytes, plan->query_root,
                                  stream));
    else
        TA_TRY(ta_group_all_gather(plan->group, plan->exchange_query, plan->query_at, stream));
    *everywhere = ta_moved_query(plan, p);
    if (own->status != TA_OK) /* nothing will read it */
        return TA_OK;
    return ta_staging_copy(&plan->staging, plan->query, plan->exchange_query, all_bytes, stream);
}

ta_status ta_end_exchange(ta_plan *plan, ta_status status, void *stream)
{
    if (status == TA_OK)
        return ta_group_finish(plan->group, stream);
    ta_group_abort(plan->group, ta_last_error());
    (void)ta_group_finish(plan->group, stream); /* so that nobody uses the buffers any more */
    return status;
}

/* Bring merged records back to the device. */
static ta_status stage_in(ta_plan *plan, ta_finish *finish, void *stream)
{
    ta_merge *last = &finish->last;
    int64_t before = ta_exchange_floats(&plan->job, finish->first_head);
    int64_t floats = ta_exchange_floats(&plan->job, finish->heads);
    TA_TRY(ta_staging_copy(&plan->staging, plan->records + before, last->records + before,
                           (size_t)floats * sizeof(float), stream));
    last->records = plan->records;
    last->fault = NULL; /* which the host has looked at */
    return TA_OK;
}

ta_status ta_finish_heads(ta_plan *plan, const ta_merge *last, const ta_step *step,
                          const ta_fault *own, void *stream)
{
    ta_finish finish = {.problem = step->problem,
                        .last = *last,
                        .out = step->out,
                        .lse = step->lse,
                        .report = plan->report};
    ta_plan_heads(plan, plan->out_placement, plan->out_root, plan->rank, &finish.first_head,
                  &finish.heads);
    if (own->status != TA_OK)
        return TA_OK;
    if (ta_plan_stages(plan)) {
        if (last->fault->status != TA_OK) { /* not always behind the job's records: see pass-KV */
            *plan->report = *last->fault;
            return TA_OK;
        }
        TA_TRY(stage_in(plan, &finish, stream));
    }
    if (finish.heads == 0 && plan->device->ops->has_streams) /* a kernel only to report a fault */
        return TA_OK;
    return plan->device->ops->finish(plan->device, &finish, stream);
}
