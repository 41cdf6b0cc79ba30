/* Moving device memory between ranks: the slots of the group's table (src/group/group.h) in NCCL's
 * calls. A rank that has nothing to move in a call leaves it out, as the other side knows that
 * too. */
#include "ccl.h"

static ta_status ccl_exchange(ta_group *group, const void *send, size_t send_bytes, int to,
                              void *receive, size_t receive_bytes, int from, void *stream)
{
    ta_ccl_group *g = ta_ccl_of(group);
    const ta_ccl_library *nccl = g->nccl;
    int sends = to >= 0 && send_bytes > 0, receives = from >= 0 && receive_bytes > 0;
    if (!sends && !receives)
        return ta_ccl_broken(g);
    TA_TRY(ta_ccl_begin(g));
    ncclResult_t result = nccl->ncclGroupStart();
    if (sends)
        result = ta_ccl_first(
            result, nccl->ncclSend(send, send_bytes, ncclChar, to, g->comm, (hipStream_t)stream));
    if (receives)
        result = ta_ccl_first(result, nccl->ncclRecv(receive, receive_bytes, ncclChar, from,
                                                     g->comm, (hipStream_t)stream));
    result = ta_ccl_first(result, nccl->ncclGroupEnd());
    return ta_ccl_end(g, result, stream, receives ? from : to);
}

/* Make `later` wait for what is on `earlier` so far. Under capture this also takes `later` in. */
static ta_status order(ta_ccl_group *g, hipEvent_t event, hipStream_t earlier, hipStream_t later)
{
    const ta_gpu_device *gpu = ta_gpu_of(g->group.device);
    int before;
    TA_TRY(ta_gpu_enter(gpu, &before));
    hipError_t error = hipEventRecord(event, earlier);
    if (error == hipSuccess)
        error = hipStreamWaitEvent(later, event, 0);
    ta_gpu_leave(gpu, before);
    return ta_gpu_check(gpu, error, "ordering two streams");
}

static ta_status ccl_start(ta_group *group, const void *send, size_t send_bytes, int to,
                           void *receive, size_t receive_bytes, int from, void *stream)
{
    ta_ccl_group *g = ta_ccl_of(group);
    TA_TRY(order(g, g->fork, (hipStream_t)stream, g->side));
    ta_status status =
        ccl_exchange(group, send, send_bytes, to, receive, receive_bytes, from, g->side);
    if (status != TA_OK) /* then finish() is not called, and a capture must be joined */
        (void)order(g, g->join, g->side, (hipStream_t)stream);
    return status;
}

/* The buffers are free in stream order, as everything is here; also after a failure. */
static ta_status ccl_finish(ta_group *group, void *stream)
{
    ta_ccl_group *g = ta_ccl_of(group);
    TA_TRY(order(g, g->join, g->side, (hipStream_t)stream));
    return ta_ccl_broken(g);
}

static ta_status ccl_barrier(ta_group *group, void *stream)
{
    ta_ccl_group *g = ta_ccl_of(group);
    TA_TRY(ta_ccl_begin(g));
    ncclResult_t result = g->nccl->ncclAllReduce(g->scratch, g->scratch, 1, ncclInt32, ncclMax,
                                                 g->comm, (hipStream_t)stream);
    return ta_ccl_end(g, result, stream, TA_CCL_ALL);
}

static ta_status ccl_broadcast(ta_group *group, void *data, size_t bytes, int root, void *stream)
{
    ta_ccl_group *g = ta_ccl_of(group);
    if (bytes == 0)
        return ta_ccl_broken(g);
    TA_TRY(ta_ccl_begin(g));
    ncclResult_t result =
        g->nccl->ncclBroadcast(data, data, bytes, ncclChar, root, g->comm, (hipStream_t)stream);
    return ta_ccl_end(g, result, stream, root == group->rank ? TA_CCL_ALL : root);
}

/* Do all ranks give the same number of bytes? */
static int is_even(const size_t *offsets, int size)
{
    for (int r = 1; r < size; r++)
        if (offsets[r + 1] - offsets[r] != offsets[1] - offsets[0])
            return 0;
    return offsets[0] == 0;
}

/* Each rank's part, of any size, to all others. */
static ncclResult_t gather_parts(ta_ccl_group *g, char *data, const size_t *offsets, void *stream)
{
    const ta_ccl_library *nccl = g->nccl;
    int me = g->group.rank;
    size_t own = offsets[me + 1] - offsets[me];
    ncclResult_t result = nccl->ncclGroupStart();
    for (int r = 0; r < g->group.size; r++) {
        size_t bytes = offsets[r + 1] - offsets[r];
        if (r != me && own)
            result = ta_ccl_first(result, nccl->ncclSend(data + offsets[me], own, ncclChar, r,
                                                         g->comm, (hipStream_t)stream));
        if (r != me && bytes)
            result = ta_ccl_first(result, nccl->ncclRecv(data + offsets[r], bytes, ncclChar, r,
                                                         g->comm, (hipStream_t)stream));
    }
    return ta_ccl_first(result, nccl->ncclGroupEnd());
}

static ta_status ccl_all_gather(ta_group *group, void *data, const size_t *offsets, void *stream)
{
    ta_ccl_group *g = ta_ccl_of(group);
    char *bytes = data;
    size_t part = offsets[1] - offsets[0];
    if (offsets[group->size] == offsets[0] || group->size == 1)
        return ta_ccl_broken(g);
    TA_TRY(ta_ccl_begin(g));
    ncclResult_t result = is_even(offsets, group->size)
                              ? g->nccl->ncclAllGather(bytes + offsets[group->rank], bytes, part,
                                                       ncclChar, g->comm, (hipStream_t)stream)
                              : gather_parts(g, bytes, offsets, stream);
    return ta_ccl_end(g, result, stream, TA_CCL_ALL);
}

const ta_group_ops ta_ccl_ops = {
    .name = TA_VENDOR " ccl",
    .exchange = ccl_exchange,
    .abort = ta_ccl_abort,
    .destroy = ta_ccl_destroy,
    .split = ta_ccl_split,
    .start = ccl_start,
    .finish = ccl_finish,
    .wait = ta_ccl_wait,
    .barrier = ccl_barrier,
    .broadcast = ccl_broadcast,
    .all_gather = ccl_all_gather,
    .all_reduce = ta_ccl_all_reduce,
    .reduce_scatter = ta_ccl_reduce_scatter,
};
