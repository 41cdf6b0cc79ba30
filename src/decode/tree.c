/* Tree decode (Tree Attention): K and V stay where they are, one packed partial of each rank
 * travels. One step: move the query if it is not everywhere, attend to the local shard, merge the
 * partials of all ranks in one exchange, finish the heads that belong here. Called by api.c. */
#include "base/status.h"
#include "step.h"

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

static ta_status decode(ta_plan *plan, const ta_step *step, const ta_fault *own, void *stream)
{
    ta_tensor query;
    TA_TRY(ta_move_query(plan, step, own, &query, stream));
    TA_TRY(ta_begin_fault(plan, &plan->job, own, stream));
    if (own->status == TA_OK)
        TA_TRY(ta_plan_attend(plan, &step->problem, &query, &step->kv, plan->records, stream));
    TA_TRY(ta_end_fault(plan, &plan->job, step, own, stream));
    return ta_tree_merge(plan, step, own, stream);
}

ta_status ta_tree_merge(ta_plan *plan, const ta_step *step, const ta_fault *own, void *stream)
{
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

static size_t attend_bytes(const ta_plan *plan)
{
    return plan->device->ops->attend_bytes(plan->device, &plan->problem);
}

const ta_algorithm_ops ta_tree_algorithm = {
    .name = "tree", .decode = decode, .cut = ta_tree_cut, .attend_bytes = attend_bytes};
