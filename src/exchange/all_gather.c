/* The exchange that is one all-gather: every rank gets all partials and merges them in the order of
 * the ranks, so that all have the same bits. Few rounds and no waiting for merges in between, but
 * every rank receives and merges all that there is. exchange.c lists it. */
#include "base/status.h"
#include "exchange.h"

/* The partials of all ranks as they arrived: rank 0's, into which the others' are merged. */
static ta_merge merge_of_all(const ta_exchange_job *job, int64_t message)
{
    int64_t floats = message - TA_FAULT_FLOATS;
    float *second = job->received + message;
    ta_merge merge = ta_exchange_merge(job);
    merge.records = job->received;
    merge.fault = (ta_fault *)(void *)(job->received + floats);
    merge.received = second;
    merge.theirs = (ta_fault *)(void *)(second + floats);
    merge.stride = message;
    merge.messages = job->shape.ranks - 1;
    merge.kept_end = job->shape.heads * (int64_t)(job->shape.head_bytes / job->shape.record_bytes);
    return merge;
}

/* Where the next step's partials may arrive while these are still read, they are merged where the
 * job has its own: the one of rank 0 takes their place, then come the others'. In host memory only,
 * which is why it can look at the fault. */
static ta_status merge_now(ta_exchange_job *job, const ta_merge *all, void *stream)
{
    ta_device *device = job->device;
    ta_merge first = ta_exchange_merge(job), others = *all;
    first.received = all->records;
    first.theirs = all->fault;
    first.stride = all->stride;
    first.messages = job->shape.ranks;
    TA_TRY(device->ops->merge(device, &first, stream)); /* the faults alone */
    if (ta_exchange_fault(job)->status != TA_OK)
        return TA_OK;
    first.fault = NULL;
    first.messages = 1;
    first.replaces = 1;
    first.kept_end = all->kept_end;
    TA_TRY(device->ops->merge(device, &first, stream));
    others.records = job->records;
    others.fault = NULL;
    return device->ops->merge(device, &others, stream);
}

ta_status ta_all_gather_run(ta_exchange_job *job, ta_heads heads, void *stream)
{
    size_t bytes = ta_message_bytes(&job->shape, heads);
    int64_t floats = (int64_t)(bytes / sizeof(float));
    if (!ta_exchange_in_place(job))
        TA_TRY(job->device->ops->copy(job->device, ta_exchange_own_records(job), job->records,
                                      bytes, stream));
    TA_TRY(ta_group_all_gather(job->group, job->received, job->gather_at, stream));
    ta_merge all = merge_of_all(job, floats);
    if (!job->defers)
        return merge_now(job, &all, stream);
    job->last = all;
    return TA_OK;
}

ta_status ta_all_gather_estimate(const ta_exchange_entry *kind, const ta_exchange_shape *shape,
                                 ta_cost *cost)
{
    size_t message = ta_message_bytes(shape, (ta_heads){0, shape->heads});
    (void)kind;
    TA_TRY(ta_cost_all_gather_divided(cost, "all-gather", shape->ranks, message));
    int kernels = shape->ranks + 1; /* two copies, and a merge with each other rank's */
    double bytes = 3.0 * kernels * (double)message;
    if (shape->device_memory) { /* finish reads them where they are */
        kernels = 0;
        bytes = (double)shape->ranks * (double)message;
    }
    ta_cost_local(cost, "merge", ta_cost_memory_s(cost->cluster, kernels, bytes));
    return TA_OK;
}
