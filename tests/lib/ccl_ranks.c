/* See ccl_ranks.h. */
#include "ccl_ranks.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "base/status.h"
#include "device/device.h"
#include "patience.h"
#include "simt/simt_ccl.h"

typedef struct whole {
    ccl_rank_fn fn;
    void *context;
    int timeout_ms;
} whole;

static ta_status check(hipError_t error)
{
    return error == hipSuccess ? TA_OK : ta_fail(TA_ERR_DEVICE, "%s", hipGetErrorString(error));
}

static ta_status make_rank(ccl_rank *r, int timeout_ms)
{
    char name[32];
    ta_group_config config = TA_GROUP_CONFIG_INIT;
    ta_ccl_config ccl = TA_CCL_CONFIG_INIT;
    snprintf(name, sizeof name, "simt:%d", r->rank);
    TA_TRY(ta_device_open(name, NULL, &r->device));
    TA_TRY(check(hipSetDevice(r->rank)));
    for (int i = 0; i < 2; ++i)
        TA_TRY(
            check(hipStreamCreateWithFlags((hipStream_t *)&r->streams[i], hipStreamNonBlocking)));
    config.timeout_ms = timeout_ms;
    ccl.bootstrap = r->threads;
    return ta_group_create_ccl(r->device, &ccl, &config, &r->group);
}

static ta_status run_rank(ta_group *threads, void *context)
{
    whole *w = context;
    ccl_rank r = {.rank = ta_group_rank(threads),
                  .ranks = ta_group_size(threads),
                  .threads = threads,
                  .context = w->context,
                  .mutex = PTHREAD_MUTEX_INITIALIZER};
    ta_status status = make_rank(&r, w->timeout_ms);
    if (status == TA_OK)
        status = w->fn(&r);
    if (status != TA_OK)
        ta_group_abort(r.group, ta_last_error());
    for (size_t i = 0; i < r.freed_count; ++i)
        r.device->ops->free(r.device, r.freed[i]);
    free(r.freed);
    for (int i = 0; i < 2; ++i)
        if (r.streams[i])
            (void)hipStreamDestroy((hipStream_t)r.streams[i]);
    ta_group_destroy(r.group);
    ta_device_close(r.device);
    return status;
}

ta_status ccl_run(int ranks, int timeout_ms, ccl_rank_fn fn, void *context)
{
    whole w = {fn, context, timeout_ms};
    ta_group_config config = TA_GROUP_CONFIG_INIT;
    config.timeout_ms = LONG_WAIT_MS;
    return ta_group_run_threads(ranks, &config, run_rank, &w);
}

static ta_status memory_alloc(void *context, size_t bytes, void **memory)
{
    ta_device *device = ((ccl_rank *)context)->device;
    return device->ops->alloc(device, bytes, memory);
}

static void memory_free(void *context, void *memory)
{
    ccl_rank *r = context;
    pthread_mutex_lock(&r->mutex);
    r->freed = realloc(r->freed, (r->freed_count + 1) * sizeof *r->freed);
    r->freed[r->freed_count++] = memory;
    pthread_mutex_unlock(&r->mutex);
}

static ta_status memory_finish(void *context, void *stream)
{
    ta_device *device = ((ccl_rank *)context)->device;
    return device->ops->synchronize(device, stream);
}

static ta_status memory_copy(void *context, void *to, const void *from, size_t bytes, void *stream)
{
    ta_device *device = ((ccl_rank *)context)->device;
    TA_TRY(device->ops->copy(device, to, from, bytes, stream));
    return memory_finish(context, stream);
}

conformance_memory ccl_memory(ccl_rank *rank)
{
    return (conformance_memory){
        .context = rank,
        .alloc = memory_alloc,
        .free = memory_free,
        .write = memory_copy,
        .read = memory_copy,
        .finish = memory_finish,
        .streams = {rank->streams[0], rank->streams[1]},
        .threads = true,
    };
}

bool ccl_all_gone(void)
{
    struct timespec moment = {0, 5000000};
    for (int i = 0; i < 12000; ++i) {
        if (simt_ccl_communicators() == 0)
            return true;
        nanosleep(&moment, NULL);
    }
    return false;
}
