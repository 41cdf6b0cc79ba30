/* The frame around calls of NCCL or RCCL: every call is on the group's device and under its lock,
 * and a communicator that says "in progress" is asked again until the group's timeout. */
#include "ccl.h"

void ta_ccl_pause(void)
{
    struct timespec moment = {0, 50000};
    nanosleep(&moment, NULL);
}

const char *ta_ccl_words(const ta_ccl_library *nccl, ncclComm_t comm, ncclResult_t result)
{
    static _Thread_local char words[256];
    const char *more = nccl->ncclGetLastError ? nccl->ncclGetLastError(comm) : NULL;
    snprintf(words, sizeof words, "%s%s%s", nccl->ncclGetErrorString(result),
             more && *more ? ": " : "", more ? more : "");
    return words;
}

ncclResult_t ta_ccl_settle(ta_ccl_group *g, ncclComm_t comm, ncclResult_t result)
{
    int64_t end = ta_clock_ms() + g->group.timeout_ms;
    while (result == ncclInProgress) {
        ncclResult_t asked = g->nccl->ncclCommGetAsyncError(comm, &result);
        if (asked != ncclSuccess)
            return asked;
        if (result != ncclInProgress || ta_clock_ms() > end)
            return result;
        pthread_mutex_unlock(&g->calls);
        ta_ccl_pause();
        pthread_mutex_lock(&g->calls);
        if (atomic_load(&g->world->broken))
            return ncclSuccess;
    }
    return result;
}

ta_status ta_ccl_begin(ta_ccl_group *g)
{
    ncclResult_t state = ncclSuccess;
    TA_TRY(ta_ccl_broken(g));
    TA_TRY(ta_gpu_enter(ta_gpu_of(g->group.device), &g->device_before));
    pthread_mutex_lock(&g->calls);
    if (g->comm && g->nccl->ncclCommGetAsyncError(g->comm, &state) == ncclSuccess &&
        state == ncclSuccess)
        return TA_OK;
    char words[256] = "";
    if (g->comm)
        snprintf(words, sizeof words, "%s", ta_ccl_words(g->nccl, g->comm, state));
    pthread_mutex_unlock(&g->calls);
    ta_gpu_leave(ta_gpu_of(g->group.device), g->device_before);
    if (!words[0])
        return ta_ccl_broken(g);
    return ta_ccl_break(g, TA_ERR_DEVICE,
                        "rank %d of a " TA_CCL_NAME " group had an asynchronous error: %s",
                        g->group.rank, words);
}

/* Also if nobody can tell: then nothing is to be asked of the stream. */
static int captured(void *stream)
{
    hipStreamCaptureStatus capture = hipStreamCaptureStatusNone;
    if (hipStreamIsCapturing((hipStream_t)stream, &capture) != hipSuccess) {
        (void)hipGetLastError();
        return 1;
    }
    return capture != hipStreamCaptureStatusNone;
}

static hipError_t wait_for_mark(const ta_ccl_mark *mark, void *stream)
{
    if (mark->stream == stream)
        return hipSuccess;
    return hipStreamWaitEvent((hipStream_t)stream, mark->event, 0);
}

ncclResult_t ta_ccl_follow(ta_ccl_group *g, void *stream)
{
    if (g->marked == 0 || captured(stream))
        return ncclSuccess;
    for (int i = 0; i < g->marked; i++)
        if (wait_for_mark(&g->marks[i], stream) != hipSuccess) {
            (void)hipGetLastError();
            return ncclUnhandledCudaError;
        }
    return ncclSuccess;
}

/* Not in a capture: what is recorded there can't be asked about. */
static void mark(ta_ccl_group *g, void *stream, int peer)
{
    if (captured(stream))
        return;
    ta_ccl_mark *m = &g->marks[g->marked > 0];
    if ((g->marked == 2 && wait_for_mark(m, stream) != hipSuccess) ||
        hipEventRecord(m->event, (hipStream_t)stream) != hipSuccess) {
        (void)hipGetLastError();
        return;
    }
    m->stream = stream;
    m->peer = peer;
    if (g->marked == 0)
        g->since_ms = ta_clock_ms();
    g->marked = g->marked > 0 ? 2 : 1;
}

ta_status ta_ccl_end(ta_ccl_group *g, ncclResult_t result, void *stream, int peer)
{
    char words[256] = "";
    result = ta_ccl_settle(g, g->comm, result);
    if (result == ncclSuccess && peer != TA_CCL_UNMARKED)
        mark(g, stream, peer);
    else if (g->comm)
        snprintf(words, sizeof words, "%s", ta_ccl_words(g->nccl, g->comm, result));
    pthread_mutex_unlock(&g->calls);
    ta_gpu_leave(ta_gpu_of(g->group.device), g->device_before);
    TA_TRY(ta_ccl_broken(g));
    if (result == ncclSuccess)
        return TA_OK;
    if (result == ncclInProgress)
        return ta_ccl_break(
            g, TA_ERR_TIMEOUT,
            "rank %d of %d waited %d ms for " TA_CCL_NAME " to start a call that needs %s %d",
            g->group.rank, g->group.size, g->group.timeout_ms,
            peer < 0 ? "all ranks, of a group of" : "rank", peer < 0 ? g->group.size : peer);
    return ta_ccl_break(g, TA_ERR_DEVICE, "rank %d: a call of " TA_CCL_NAME " failed: %s",
                        g->group.rank, words);
}

ta_status ta_ccl_wait(ta_group *group, void *stream)
{
    ta_ccl_group *g = ta_ccl_of(group);
    const ta_gpu_device *gpu = ta_gpu_of(group->device);
    int64_t end = ta_clock_ms() + group->timeout_ms;
    int before;
    TA_TRY(ta_gpu_enter(gpu, &before));
    hipError_t error;
    while ((error = hipStreamQuery((hipStream_t)stream)) == hipErrorNotReady) {
        (void)hipGetLastError();
        if (atomic_load(&g->world->broken))
            break;
        if (ta_clock_ms() > end)
            (void)ta_ccl_break(g, TA_ERR_TIMEOUT,
                               "rank %d of %d waited %d ms for the others of a " TA_CCL_NAME
                               " group",
                               group->rank, group->size, group->timeout_ms);
        ta_ccl_pause();
    }
    if (error == hipErrorNotReady) /* the abort ends what is under way, unless it is not ours */
        error = g->adopted ? hipSuccess : hipStreamSynchronize((hipStream_t)stream);
    ta_status status = ta_gpu_check(gpu, error, "waiting for the other ranks");
    ta_gpu_leave(gpu, before);
    TA_TRY(ta_ccl_broken(g));
    return status;
}
