/* Making a group: from an id that every rank was given, from a communicator that the caller has, or
 * over another group of the same ranks, which hands the id round. */
#include "ccl.h"

#include <stdlib.h>

_Static_assert(TA_CCL_ID_BYTES == NCCL_UNIQUE_ID_BYTES, "an id is handed over as bytes");

ta_status ta_ccl_new_id(ta_device *device, void *id)
{
    const ta_ccl_library *nccl;
    ncclUniqueId made;
    (void)device;
    TA_TRY(ta_ccl_open(&nccl));
    ncclResult_t result = nccl->ncclGetUniqueId(&made);
    if (result != ncclSuccess)
        return ta_gpu_core->fail(TA_ERR_DEVICE, TA_CCL_NAME " gave no id: %s",
                                 ta_ccl_words(nccl, NULL, result));
    memcpy(id, &made, sizeof made);
    return TA_OK;
}

ta_status ta_ccl_make(ta_device *device, const char *id, int rank, int ranks, int timeout_ms,
                      ta_ccl_group **made)
{
    const ta_gpu_device *gpu = ta_gpu_of(device);
    ta_ccl_group *g = calloc(1, sizeof *g);
    ta_status status;
    int before;
    if (!g)
        return ta_gpu_core->fail(TA_ERR_NO_MEMORY, "no memory for a group of %d ranks", ranks);
    g->group = (ta_group){.ops = &ta_ccl_ops,
                          .rank = rank,
                          .size = ranks,
                          .timeout_ms = timeout_ms,
                          .device = device,
                          .stats = TA_GROUP_STATS_INIT};
    g->index = gpu->index;
    pthread_mutex_init(&g->calls, NULL);
    TA_TRY_GOTO(ta_ccl_open(&g->nccl), free_group);
    g->offsets = calloc((size_t)ranks + 1, sizeof *g->offsets);
    if (!g->offsets) {
        status = ta_gpu_core->fail(TA_ERR_NO_MEMORY, "no memory for a group of %d ranks", ranks);
        goto free_group;
    }
    TA_TRY_GOTO(ta_gpu_enter(gpu, &before), free_group);
    status = ta_ccl_take(g);
    if (status == TA_OK)
        status = ta_ccl_register(g, id);
    ta_gpu_leave(gpu, before);
    if (status != TA_OK)
        goto free_group;
    *made = g;
    return TA_OK;

free_group:
    ta_ccl_free(g, 1);
    return status;
}

void ta_ccl_give(ta_ccl_group *g, ncclComm_t comm, int adopted)
{
    pthread_mutex_lock(&g->calls);
    g->comm = comm;
    g->adopted = adopted;
    pthread_mutex_unlock(&g->calls);
}

/* ---- A library that can only start by waiting ---------------------------------------------- */

/* Shared by the group's thread and the one that waits in the library; freed by the last. */
typedef struct slow_start {
    const ta_ccl_library *nccl;
    ncclUniqueId id;
    int index, rank, ranks;
    pthread_mutex_t mutex;
    int done, abandoned;
    ncclComm_t comm;
    ncclResult_t result;
} slow_start;

static void *start_slowly(void *argument)
{
    slow_start *s = argument;
    ncclComm_t comm = NULL;
    ncclResult_t result = ncclUnhandledCudaError;
    if (hipSetDevice(s->index) == hipSuccess)
        result = s->nccl->ncclCommInitRank(&comm, s->ranks, s->id, s->rank);
    pthread_mutex_lock(&s->mutex);
    s->comm = comm;
    s->result = result;
    s->done = 1;
    int abandoned = s->abandoned;
    pthread_mutex_unlock(&s->mutex);
    if (abandoned) {
        if (result == ncclSuccess)
            (void)s->nccl->ncclCommAbort(comm);
        free(s);
    }
    return NULL;
}

/* On a thread of its own, which is left behind if it takes longer than the timeout. */
static ncclResult_t init_slowly(ta_ccl_group *g, const ncclUniqueId *id)
{
    pthread_t thread;
    slow_start *s = calloc(1, sizeof *s);
    if (!s) {
        (void)ta_ccl_break(g, TA_ERR_NO_MEMORY, "rank %d of %d could not join: no memory",
                           g->group.rank, g->group.size);
        return ncclSystemError;
    }
    s->nccl = g->nccl;
    s->id = *id;
    s->index = g->index;
    s->rank = g->group.rank;
    s->ranks = g->group.size;
    pthread_mutex_init(&s->mutex, NULL);
    if (pthread_create(&thread, NULL, start_slowly, s) != 0) {
        free(s);
        return ncclSystemError;
    }
    pthread_detach(thread);
    int64_t end = ta_clock_ms() + g->group.timeout_ms;
    for (;;) {
        pthread_mutex_lock(&s->mutex);
        int done = s->done;
        s->abandoned = !done && (ta_clock_ms() > end || atomic_load(&g->world->broken));
        int abandoned = s->abandoned;
        pthread_mutex_unlock(&s->mutex);
        if (abandoned)
            return ncclInProgress;
        if (done)
            break;
        ta_ccl_pause();
    }
    ncclResult_t result = s->result;
    ta_ccl_give(g, s->comm, 0);
    free(s);
    return result;
}

/* ---- Joining ------------------------------------------------------------------------------- */

static ncclResult_t init(ta_ccl_group *g, const ncclUniqueId *id)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    if (!g->nccl->ncclCommInitRankConfig)
        return init_slowly(g, id);
    config.blocking = 0;
    pthread_mutex_lock(&g->calls);
    ncclResult_t result =
        g->nccl->ncclCommInitRankConfig(&g->comm, g->group.size, *id, g->group.rank, &config);
    if (g->comm)
        result = ta_ccl_settle(g, g->comm, result);
    pthread_mutex_unlock(&g->calls);
    return result;
}

ta_status ta_ccl_join(ta_ccl_group *g)
{
    const ta_gpu_device *gpu = ta_gpu_of(g->group.device);
    ncclUniqueId id;
    int before;
    memcpy(&id, g->world->id, sizeof id);
    TA_TRY(ta_gpu_enter(gpu, &before));
    ncclResult_t result = init(g, &id);
    ta_gpu_leave(gpu, before);
    TA_TRY(ta_ccl_broken(g));
    if (result == ncclSuccess)
        return TA_OK;
    if (result != ncclInProgress)
        return ta_ccl_break(g, TA_ERR_DEVICE, "rank %d of %d could not join: " TA_CCL_NAME ": %s",
                            g->group.rank, g->group.size, ta_ccl_words(g->nccl, NULL, result));
    char joined[160];
    ta_ccl_describe_joined(g->world, joined, sizeof joined);
    return ta_ccl_break(g, TA_ERR_TIMEOUT,
                        "rank %d waited %d ms for the %d ranks of a " TA_CCL_NAME " group: %s",
                        g->group.rank, g->group.timeout_ms, g->group.size, joined);
}

static ta_status create_by_id(ta_device *device, const char *id, int rank, int ranks,
                              int timeout_ms, ta_group **group)
{
    ta_ccl_group *g;
    TA_TRY(ta_ccl_make(device, id, rank, ranks, timeout_ms, &g));
    ta_status status = ta_ccl_join(g);
    if (status != TA_OK) {
        ta_ccl_destroy(&g->group);
        return status;
    }
    *group = &g->group;
    return TA_OK;
}

/* ---- What ranks tell each other ------------------------------------------------------------ */

/* What the ranks tell each other: rank 0 the id, all of them how they fared. */
typedef struct bootstrap_message {
    int32_t status;
    char error[252];
    char id[TA_CCL_ID_BYTES];
} bootstrap_message;

static void say(bootstrap_message *message, ta_status status)
{
    message->status = status;
    snprintf(message->error, sizeof message->error, "%s",
             status == TA_OK ? "" : ta_gpu_core->last_error());
}

/* Every rank hears every other in turn, without memory for all of them at once. */
ta_status ta_ccl_hear_all(ta_group *group, ta_status status)
{
    ta_status heard = status;
    for (int rank = 0; rank < group->size; rank++) {
        bootstrap_message message = {0};
        if (rank == group->rank)
            say(&message, status);
        TA_TRY(ta_gpu_core->broadcast_host(group, &message, sizeof message, rank));
        if (message.status != TA_OK && heard == TA_OK)
            heard = ta_gpu_core->fail((ta_status)message.status,
                                      "rank %d could not join a " TA_CCL_NAME " group: %s", rank,
                                      message.error);
    }
    return heard;
}

/* ---- Over another group -------------------------------------------------------------------- */

static ta_status create_over(ta_device *device, ta_group *bootstrap, int timeout_ms,
                             ta_group **group)
{
    bootstrap_message message = {0};
    ta_ccl_group *g = NULL;
    if (bootstrap->rank == 0)
        say(&message, ta_ccl_new_id(device, message.id));
    TA_TRY(ta_gpu_core->broadcast_host(bootstrap, &message, sizeof message, 0));
    if (message.status != TA_OK)
        return bootstrap->rank == 0
                   ? (ta_status)message.status
                   : ta_gpu_core->fail((ta_status)message.status, "rank 0: %s", message.error);
    /* Whoever has no memory says so before the others wait for it in the library. */
    ta_status status =
        ta_ccl_make(device, message.id, bootstrap->rank, bootstrap->size, timeout_ms, &g);
    status = ta_ccl_hear_all(bootstrap, status);
    if (status == TA_OK)
        status = ta_ccl_hear_all(bootstrap, ta_ccl_join(g));
    if (status != TA_OK) {
        if (g)
            ta_ccl_destroy(&g->group);
        return status;
    }
    *group = &g->group;
    return TA_OK;
}

/* ---- A communicator that there is already -------------------------------------------------- */

static ta_status adopt(ta_device *device, void *communicator, int timeout_ms, ta_group **group)
{
    static atomic_uint number;
    const ta_ccl_library *nccl;
    ncclComm_t comm = communicator;
    char id[TA_CCL_ID_BYTES] = "";
    int rank, ranks, index;
    ta_ccl_group *g;
    TA_TRY(ta_ccl_open_callers(&nccl));
    ncclResult_t result = nccl->ncclCommCount(comm, &ranks);
    result = ta_ccl_first(result, nccl->ncclCommUserRank(comm, &rank));
    result = ta_ccl_first(result, nccl->ncclCommCuDevice(comm, &index));
    if (result != ncclSuccess)
        return ta_gpu_core->fail(TA_ERR_INVALID, "ccl.communicator can't be used: %s",
                                 ta_ccl_words(nccl, NULL, result));
    if (index != ta_gpu_of(device)->index)
        return ta_gpu_core->fail(TA_ERR_INVALID,
                                 "ccl.communicator is on device %d: must be that of %s", index,
                                 device->name);
    snprintf(id, sizeof id, "adopted %u", ++number);
    TA_TRY(ta_ccl_make(device, id, rank, ranks, timeout_ms, &g));
    ta_ccl_give(g, comm, 1);
    *group = &g->group;
    return TA_OK;
}

ta_status ta_ccl_create(ta_device *device, const ta_ccl_config *ccl, const ta_group_config *config,
                        ta_group **group)
{
    if (ccl->communicator)
        return adopt(device, ccl->communicator, config->timeout_ms, group);
    if (ccl->bootstrap)
        return create_over(device, ccl->bootstrap, config->timeout_ms, group);
    return create_by_id(device, ccl->id, ccl->rank, ccl->ranks, config->timeout_ms, group);
}
