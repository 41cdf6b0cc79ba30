/* The host device: the table that device.h describes, in C on this machine's CPUs. attend() is in
 * host/attend/attend.c, merge() and finish() in host/attend/merge.c, check_kv() in
 * device/check_kv.c, attention over full sequences in host/attention/attention.c, the arithmetic
 * in the kernels_*.c of each SIMD level; what is left is here: opening, memory, and packing. */
#include <stdlib.h>
#include <string.h>

#include "base/dtype.h"
#include "base/status.h"
#include "device/cpus.h"
#include "device/device.h"
#include "host.h"
#include "host/attend/append.h"
#include "host/attend/attend.h"
#include "host/attend/merge.h"
#include "host/attend/pack.h"
#include "host/attend/records.h"

static ta_host *host_of(ta_device *device)
{
    return (ta_host *)device;
}

static void host_close(ta_device *device)
{
    ta_host *host = host_of(device);
    ta_pool_destroy(host->pool);
    free(host);
}

static void host_describe(const ta_device *device, ta_text *text)
{
    const ta_host *host = (const ta_host *)device;
    ta_text_add(text, "host threads: %d\n", ta_pool_threads(host->pool));
    ta_text_add(text, "host simd: %s\n", host->kernels->name);
}

static ta_status host_alloc(ta_device *device, size_t bytes, void **memory)
{
    (void)device;
    void *p = NULL;
    if (posix_memalign(&p, 64, bytes > 0 ? bytes : 1) != 0)
        return ta_fail(TA_ERR_NO_MEMORY, "%zu bytes of host memory could not be allocated", bytes);
    *memory = p;
    return TA_OK;
}

static void host_free(ta_device *device, void *memory)
{
    (void)device;
    free(memory);
}

static ta_status host_copy(ta_device *device, void *to, const void *from, size_t bytes,
                           void *stream)
{
    (void)device;
    (void)stream;
    if (bytes > 0)
        memcpy(to, from, bytes);
    return TA_OK;
}

static int host_has_dtype(const ta_device *device, ta_dtype dtype, ta_dtype_role role)
{
    return ta_host_kernels_have(((const ta_host *)device)->kernels, dtype, role);
}

static size_t host_attend_bytes(const ta_device *device, const ta_problem *problem)
{
    const ta_host *host = (const ta_host *)device;
    return ta_host_attend_bytes(problem, ta_pool_threads(host->pool));
}

static ta_status host_pack_query(ta_device *device, const ta_problem *problem, const ta_tensor *q,
                                 int32_t heads, void *packed, void *stream)
{
    const ta_problem *p = problem;
    size_t row_bytes = (size_t)p->k_dim * ta_dtype_bytes(p->query_dtype);
    char *to = packed;
    (void)device;
    (void)stream;
    for (int32_t h = 0; h < heads; h++) {
        for (int64_t row = 0; row < ta_problem_rows(p); row++) {
            int64_t at = ta_problem_row_at(p, q, row) + h * q->head_stride;
            memcpy(to, ta_element(p->query_dtype, q->data, at), row_bytes);
            to += row_bytes;
        }
    }
    return TA_OK;
}

static ta_status host_pack_kv(ta_device *device, const ta_problem *problem, const ta_kv *kv,
                              int32_t slots, void *packed, void *stream)
{
    (void)stream;
    ta_host_pack_kv(host_of(device)->pool, problem, kv, slots, packed);
    return TA_OK;
}

static const ta_device_ops host_ops = {
    .close = host_close,
    .describe = host_describe,
    .alloc = host_alloc,
    .free = host_free,
    .copy = host_copy,
    .has_dtype = host_has_dtype,
    .attend_bytes = host_attend_bytes,
    .check_kv = ta_check_host_kv,
    .pack_query = host_pack_query,
    .pack_kv = host_pack_kv,
    .attend = ta_host_attend,
    .make_records = ta_host_make_records,
    .append = ta_host_append,
    .merge = ta_host_merge,
    .finish = ta_host_finish,
    .attention = &ta_host_attention,
};

ta_status ta_host_open(const ta_device_config *config, ta_device **device)
{
    const char *simd = config ? config->simd : NULL;
    int threads = config ? config->threads : 0;
    if (threads < 0 || threads > TA_POOL_MAX_THREADS)
        return ta_fail(TA_ERR_INVALID, "config.threads is %d: must be from 0 to %d", threads,
                       TA_POOL_MAX_THREADS);
    const ta_host_kernels *kernels = ta_host_kernels_find(simd);
    if (!kernels)
        return ta_fail(TA_ERR_UNSUPPORTED, "config.simd is \"%s\": this CPU and build have %s",
                       simd, ta_host_simd_levels());
    ta_host *host = calloc(1, sizeof *host);
    if (!host)
        return ta_fail(TA_ERR_NO_MEMORY, "no memory for the host device");
    host->device.ops = &host_ops;
    strcpy(host->device.name, "host");
    host->kernels = kernels;
    host->row_ahead_bytes = ta_host_row_ahead_bytes(kernels);
    ta_status status = ta_pool_create(threads > 0 ? threads : ta_cpus(), &host->pool);
    if (status != TA_OK) {
        free(host);
        return status;
    }
    ta_log_info("host device: %d threads, %s", ta_pool_threads(host->pool), kernels->name);
    *device = &host->device;
    return TA_OK;
}
