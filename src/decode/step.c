/* A decode step: what the steps of all algorithms share, see step.h, and at the end the step of
 * tree decode, which is put together from it. ring_kv.c and ring_q.c have the rings'. Called by
 * api.c. */
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

/* With `finish` the step is over then, and the records are where it says. */
static ta_status attend(ta_plan *plan, const ta_problem *problem, const ta_tensor *q,
                        const ta_kv *kv, float *records, const ta_finish *finish, void *stream)
{
    ta_device *device = plan->device;
    const ta_device_ops *ops = device->ops;
    int64_t before = ta_clock_ns();
    int spans = device->timing && ops->span;
    if (spans)
        TA_TRY(ops->span(device, 0, stream));
    if (finish)
        TA_TRY(ops->attend_and_finish(device, problem, q, kv, plan->attend, finish, stream));
    else
        TA_TRY(ops->attend(device, problem, q, kv, records, plan->attend, &plan->telling, stream));
    plan->telling.to = NULL;
    if (spans)
        TA_TRY(device->ops->span(device, 1, stream));
    plan->attend_ns += (uint64_t)(ta_clock_ns() - before);
    return TA_OK;
}

ta_status ta_plan_attend(ta_plan *plan, const ta_problem *problem, const ta_tensor *q,
                         const ta_kv *kv, float *records, void *stream)
{
    return attend(plan, problem, q, kv, records, NULL, stream);
}

ta_status ta_begin_fault(ta_plan *plan, const ta_exchange_job *job, const ta_step *step,
                         const ta_fault *own, void *stream)
{
    const ta_problem *p = &step->problem;
    ta_fault *fault = ta_exchange_fault(job);
    plan->telling.to = NULL;
    if (own->status == TA_OK && ta_plan_device_tells(plan))
        plan->telling =
            (ta_tell){.own = *own,
                      .to = ta_plan_stages(plan) ? plan->told : fault,
                      .selected = p->selected,
                      .selected_words = p->selected ? (uint64_t)(p->rows * p->selected_stride) : 0};
    else if (ta_plan_tracks(plan))
        return plan->device->ops->copy(
            plan->device, fault, own->status == TA_FAULT_ASKS ? own : &plan->faults[-own->status],
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

static ta_finish finish_of(const ta_plan *plan, const ta_merge *last, const ta_step *step)
{
    ta_finish finish = {.problem = step->problem,
                        .last = *last,
                        .out = step->out,
                        .lse = step->lse,
                        .report = plan->report};
    ta_plan_heads(plan, plan->out_placement, plan->out_root, plan->rank, &finish.first_head,
                  &finish.heads);
    return finish;
}

ta_status ta_finish_heads(ta_plan *plan, const ta_merge *last, const ta_step *step,
                          const ta_fault *own, void *stream)
{
    ta_finish finish = finish_of(plan, last, step);
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

/* ---- Tree decode (Tree Attention) ----
 *
 * K and V stay where they are, one packed partial of each rank travels. One step: move the query if
 * it is not everywhere, attend to the local shard, merge the partials of all ranks in one exchange,
 * finish the heads that belong here. */

/* Begin to copy a chunk of the records from the device to where other ranks can see it. */
static ta_status begin_staging(ta_plan *plan, int chunk, void *stream)
{
    const ta_exchange_job *job = &plan->job;
    ta_heads heads = ta_exchange_chunk_heads(job, chunk);
    int64_t first = ta_exchange_floats(job, heads.first), end = ta_exchange_floats(job, heads.end);
    return ta_staging_copy(&plan->staging, job->records + first, plan->records + first,
                           (size_t)(end - first) * sizeof(float), stream);
}

/* While a chunk is exchanged, the next one is copied. A rank with a fault has no records. Before
 * the first chunk is sent this waits also for what the device tells. */
static ta_status exchange_staged(ta_plan *plan, const ta_fault *own, void *stream)
{
    int chunks = plan->job.chunks, copies = own->status == TA_OK;
    if (copies)
        TA_TRY(begin_staging(plan, 0, stream));
    for (int chunk = 0; chunk < chunks; ++chunk) {
        if (copies)
            TA_TRY(ta_staging_wait(&plan->staging, stream));
        if (copies && chunk + 1 < chunks)
            TA_TRY(begin_staging(plan, chunk + 1, stream));
        TA_TRY(ta_exchange_chunk(&plan->job, chunk, stream));
    }
    return TA_OK;
}

/* A rank by itself has nothing to exchange. */
static ta_status decode_alone(ta_plan *plan, const ta_step *step, const ta_tensor *query,
                              void *stream)
{
    TA_TRY(ta_exchange_run(&plan->job, stream));
    ta_finish finish = finish_of(plan, &plan->job.last, step);
    return attend(plan, &step->problem, query, &step->kv, NULL, &finish, stream);
}

static ta_status decode(ta_plan *plan, const ta_step *step, const ta_fault *own, void *stream)
{
    ta_tensor query;
    TA_TRY(ta_move_query(plan, step, own, &query, stream));
    if (plan->ranks == 1 && own->status == TA_OK && plan->device->ops->attend_and_finish)
        return decode_alone(plan, step, &query, stream);
    TA_TRY(ta_begin_fault(plan, &plan->job, step, own, stream));
    if (own->status == TA_OK)
        TA_TRY(ta_plan_attend(plan, &step->problem, &query, &step->kv, plan->records, stream));
    TA_TRY(ta_end_fault(plan, &plan->job, step, own, stream));
    return ta_tree_merge(plan, step, own, stream);
}

/* On GPUs that address each other's memory exchange and finish are one kernel, and every rank is in
 * it. */
static ta_status finish_with_peers(ta_plan *plan, const ta_step *step, const ta_fault *own,
                                   void *stream)
{
    ta_finish finish = {.problem = step->problem};
    /* No message to anybody: is the group broken? A rank that sends none between nodes would not
     * hear of it. */
    if (plan->group->device && !ta_fault_is_lost(plan->lost))
        TA_TRY(ta_group_exchange(plan->group, NULL, 0, -1, NULL, 0, -1, stream));
    if (own->status == TA_OK) {
        finish.out = step->out;
        finish.lse = step->lse;
        finish.report = plan->report;
    }
    ta_plan_heads(plan, plan->out_placement, plan->out_root, plan->rank, &finish.first_head,
                  &finish.heads);
    return ta_direct_finish(&plan->job, &finish, stream);
}

ta_status ta_tree_merge(ta_plan *plan, const ta_step *step, const ta_fault *own, void *stream)
{
    if (plan->job.peers)
        return finish_with_peers(plan, step, own, stream);
    if (ta_plan_stages(plan))
        TA_TRY(exchange_staged(plan, own, stream));
    else
        TA_TRY(ta_exchange_run(&plan->job, stream));
    return ta_finish_heads(plan, &plan->job.last, step, own, stream);
}

/* What arrives and what is copied on its way out. */
void ta_tree_cut(ta_plan *plan, ta_cutter *device, ta_cutter *exchange)
{
    ta_exchange_job *job = &plan->job;
    size_t partial = ta_exchange_partial_bytes(job);
    (void)device;
    job->received = ta_cut(exchange, ta_exchange_received(job), partial);
    job->sent = ta_cut(exchange, ta_exchange_sent(job), partial);
}

ta_merge ta_tree_heard(const ta_plan *plan)
{
    return plan->job.last;
}

static size_t attend_bytes(const ta_plan *plan)
{
    return plan->device->ops->attend_bytes(plan->device, &plan->problem);
}

const ta_algorithm_ops ta_tree_algorithm = {.name = "tree",
                                            .decode = decode,
                                            .cut = ta_tree_cut,
                                            .heard = ta_tree_heard,
                                            .attend_bytes = attend_bytes};
