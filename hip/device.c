/* The device vtable over the GPU's runtime: memory, copies, waiting, and the small kernels.
 * attend/attend.c has the attend slots, attend/pieces.c those that merge and finish. Every slot
 * makes its device current and puts the caller's back. */
#include "archs.h"
#include "attention/attention.h"
#include "gpu.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

ta_status ta_gpu_check(const ta_gpu_device *gpu, hipError_t error, const char *action, ...)
{
    if (error == hipSuccess)
        return TA_OK;
    char what[256];
    va_list arguments;
    va_start(arguments, action);
    vsnprintf(what, sizeof what, action, arguments);
    va_end(arguments);
    const char *words = hipGetErrorString(error);
    ta_status status = error == hipErrorOutOfMemory ? TA_ERR_NO_MEMORY : TA_ERR_DEVICE;
    status = ta_gpu_core->fail(status, "%s failed on %s: %s (%s)", what, gpu->device.name, words,
                               hipGetErrorName(error));
    (void)hipGetLastError(); /* the next call is not to blame for it */
    return status;
}

/* A kernel's name for "%.*s". With template arguments it is in parentheses, as macros need it. */
#define KERNEL_NAME(kernel) name_length(kernel), (kernel) + ((kernel)[0] == '(')
#define LAST_KERNEL(gpu) KERNEL_NAME((gpu)->last_kernel ? (gpu)->last_kernel : "none")

static int name_length(const char *kernel)
{
    return (int)strlen(kernel) - (kernel[0] == '(' ? 2 : 0);
}

ta_status ta_gpu_check_launch(ta_gpu_device *gpu, ta_launched launched)
{
    if (launched.no_type)
        return ta_gpu_core->fail(TA_ERR_UNSUPPORTED, "kernel %.*s of %s has none for dtype %d",
                                 KERNEL_NAME(launched.kernel), gpu->device.name, launched.dtype);
    /* The error may be of a kernel that was queued earlier. */
    TA_TRY(ta_gpu_check(gpu, (hipError_t)launched.error,
                        "launching kernel %.*s (last kernel: %.*s)", KERNEL_NAME(launched.kernel),
                        LAST_KERNEL(gpu)));
    gpu->last_kernel = launched.kernel;
    ta_device_count(&gpu->device.stats.launches, 1);
    return TA_OK;
}

ta_status ta_gpu_enter(const ta_gpu_device *gpu, int *before)
{
    TA_TRY(ta_gpu_check(gpu, hipGetDevice(before), "asking for the current device"));
    if (*before == gpu->index)
        return TA_OK;
    return ta_gpu_check(gpu, hipSetDevice(gpu->index), "choosing the device");
}

void ta_gpu_leave(const ta_gpu_device *gpu, int before)
{
    if (before != gpu->index)
        (void)hipSetDevice(before);
}

static void gpu_close(ta_device *device)
{
    ta_gpu_close_peers(ta_gpu_of(device));
    ta_gpu_free_arrays(ta_gpu_of(device));
    ta_gpu_free_graphs(ta_gpu_of(device));
    free(device);
}

/* Other GPUs whose memory this one addresses, as a direct exchange needs it. */
static void describe_peers(const ta_gpu_device *gpu, ta_text *text)
{
    int devices = 0, peers = 0;
    (void)hipGetDeviceCount(&devices);
    for (int i = 0; i < devices; ++i) {
        int can = 0;
        if (i != gpu->index && hipDeviceCanAccessPeer(&can, gpu->index, i) == hipSuccess)
            peers += can != 0;
    }
    (void)hipGetLastError();
    ta_gpu_core->text_add(text, "%s peers: addresses memory of %d of %d other devices\n",
                          gpu->device.name, peers, devices > 0 ? devices - 1 : 0);
}

static void gpu_describe(const ta_device *device, ta_text *text)
{
    const ta_gpu *g = &((const ta_gpu_device *)device)->properties;
    const ta_gpu_limits *limits = &((const ta_gpu_device *)device)->limits;
    ta_gpu_core->text_add(text, "%s: %s, %s, %.1f GiB\n", device->name, g->name, g->arch,
                          (double)g->memory_bytes / (1 << 30));
    ta_gpu_core->text_add(text, "%s units: %d, waves of %d, %d bytes of shared memory, %s\n",
                          device->name, g->compute_units, g->wave, g->shared_bytes,
                          limits->matrix ? "matrix cores" : "no matrix cores");
    describe_peers((const ta_gpu_device *)device, text);
}

static ta_status gpu_alloc(ta_device *device, size_t bytes, void **memory)
{
    ta_gpu_device *gpu = ta_gpu_of(device);
    TA_ON_GPU(gpu, ta_gpu_check(gpu, hipMalloc(memory, bytes), "allocating %zu bytes", bytes));
}

static void gpu_free(ta_device *device, void *memory)
{
    ta_gpu_device *gpu = ta_gpu_of(device);
    int before;
    if (ta_gpu_enter(gpu, &before) != TA_OK)
        return;
    (void)hipFree(memory);
    ta_gpu_leave(gpu, before);
}

static ta_status gpu_alloc_host(ta_device *device, size_t bytes, void **memory)
{
    ta_gpu_device *gpu = ta_gpu_of(device);
    TA_ON_GPU(gpu, ta_gpu_check(gpu, hipHostMalloc(memory, bytes, hipHostMallocDefault),
                                "allocating %zu bytes of pinned memory", bytes));
}

static void gpu_free_host(ta_device *device, void *memory)
{
    ta_gpu_device *gpu = ta_gpu_of(device);
    int before;
    if (ta_gpu_enter(gpu, &before) != TA_OK)
        return;
    (void)hipDeviceSynchronize(); /* copies that are still to come may use it */
    (void)hipHostFree(memory);
    ta_gpu_leave(gpu, before);
}

static ta_status wait(ta_gpu_device *gpu, void *stream)
{
    ta_device_count(&gpu->device.stats.waits, 1);
    return ta_gpu_check(gpu, hipStreamSynchronize((hipStream_t)stream),
                        "the work on a stream (last kernel: %.*s)", LAST_KERNEL(gpu));
}

/* Lower case, as the rest of the system writes it. */
static ta_status gpu_bus_id(ta_device *device, char *text, size_t capacity)
{
    ta_gpu_device *gpu = ta_gpu_of(device);
    TA_TRY(ta_gpu_check(gpu, hipDeviceGetPCIBusId(text, (int)capacity, gpu->index),
                        "asking for the place on the PCI bus"));
    for (char *c = text; *c; ++c)
        *c = (char)tolower((unsigned char)*c);
    return TA_OK;
}

static ta_status gpu_synchronize(ta_device *device, void *stream)
{
    ta_gpu_device *gpu = ta_gpu_of(device);
    TA_ON_GPU(gpu, wait(gpu, stream));
}

static int gpu_capturing(ta_device *device, void *stream)
{
    hipStreamCaptureStatus capture = hipStreamCaptureStatusNone;
    (void)device;
    if (!stream) /* the null stream can't be captured */
        return 0;
    if (hipStreamIsCapturing((hipStream_t)stream, &capture) != hipSuccess) {
        (void)hipGetLastError();
        return 0;
    }
    return capture != hipStreamCaptureStatusNone;
}

/* A copy from memory that is not pinned may read it at any time until it is done. */
static ta_status copy(ta_gpu_device *gpu, void *to, const void *from, size_t bytes, void *stream)
{
    ta_memory source = ta_memory_of(from), target = ta_memory_of(to);
    if (source == TA_MEMORY_HOST && gpu_capturing(&gpu->device, stream))
        return ta_gpu_core->fail(TA_ERR_UNSUPPORTED,
                                 "copying %zu bytes of host memory that is not pinned has to wait "
                                 "for stream %p, which is being captured",
                                 bytes, stream);
    TA_TRY(ta_gpu_check(gpu, hipMemcpyAsync(to, from, bytes, hipMemcpyDefault, (hipStream_t)stream),
                        "copying %zu bytes (last kernel: %.*s)", bytes, LAST_KERNEL(gpu)));
    ta_device_count(&gpu->device.stats.copies, 1);
    if (source != TA_MEMORY_DEVICE && target == TA_MEMORY_DEVICE)
        ta_device_count(&gpu->device.stats.bytes_to_device, bytes);
    if (source == TA_MEMORY_DEVICE && target != TA_MEMORY_DEVICE)
        ta_device_count(&gpu->device.stats.bytes_from_device, bytes);
    return source == TA_MEMORY_HOST ? wait(gpu, stream) : TA_OK;
}

static ta_status gpu_copy(ta_device *device, void *to, const void *from, size_t bytes, void *stream)
{
    ta_gpu_device *gpu = ta_gpu_of(device);
    if (bytes == 0)
        return TA_OK;
    TA_ON_GPU(gpu, copy(gpu, to, from, bytes, stream));
}

static int gpu_has_dtype(const ta_device *device, ta_dtype dtype, ta_dtype_role role)
{
    (void)device;
    return role == TA_AS_ATTENTION ? ta_type_exists(dtype) : ta_type_in_caches(dtype);
}

static ta_status gpu_pack_query(ta_device *device, const ta_problem *problem, const ta_tensor *q,
                                int32_t heads, void *packed, void *stream)
{
    ta_gpu_device *gpu = ta_gpu_of(device);
    ta_pack_params params = {.q = *q,
                             .rows = (int32_t)ta_problem_rows(problem),
                             .query_tokens =
                                 (int32_t)(problem->starts ? problem->rows : problem->query_tokens),
                             .heads = heads,
                             .k_dim = problem->k_dim,
                             .dtype = problem->query_dtype,
                             .element_bytes = (int32_t)ta_dtype_bytes(problem->query_dtype),
                             .packed = packed};
    TA_ON_GPU(gpu, ta_gpu_check_launch(gpu, ta_launch_pack(&params, stream)));
}

static ta_status gpu_make_records(ta_device *device, const ta_problem *problem,
                                  const ta_shard_output *given, float *records, const ta_tell *tell,
                                  void *stream)
{
    ta_gpu_device *gpu = ta_gpu_of(device);
    ta_make_records_params params = {*problem, *given, records, *tell};
    TA_ON_GPU(gpu, ta_gpu_check_launch(gpu, ta_launch_make_records(&params, stream)));
}

static ta_status gpu_append(ta_device *device, const ta_problem *problem, const ta_kv *kv,
                            const ta_new_tokens *tokens, void *stream)
{
    ta_gpu_device *gpu = ta_gpu_of(device);
    ta_append_params params = {.problem = *problem,
                               .kv = *kv,
                               .tokens = *tokens,
                               .element_bytes = (int32_t)ta_dtype_bytes(tokens->dtype),
                               .stored_bytes = (int32_t)ta_dtype_bytes(problem->kv_dtype)};
    TA_ON_GPU(gpu, ta_gpu_check_launch(gpu, ta_launch_append(&params, stream)));
}

static const ta_device_ops gpu_ops = {
    .has_streams = 1,
    .close = gpu_close,
    .bus_id = gpu_bus_id,
    .describe = gpu_describe,
    .alloc = gpu_alloc,
    .free = gpu_free,
    .alloc_host = gpu_alloc_host,
    .free_host = gpu_free_host,
    .synchronize = gpu_synchronize,
    .capturing = gpu_capturing,
    .copy = gpu_copy,
    .has_dtype = gpu_has_dtype,
    .attend_bytes = ta_gpu_attend_bytes,
    .check_kv = ta_gpu_check_kv,
    .pack_query = gpu_pack_query,
    .pack_kv = ta_gpu_pack_kv,
    .attend = ta_gpu_attend,
    .attend_and_finish = ta_gpu_attend_and_finish,
    .tell = ta_gpu_tell,
    .make_records = gpu_make_records,
    .append = gpu_append,
    .merge = ta_gpu_merge,
    .finish = ta_gpu_finish,
    .attention = &ta_gpu_attention_ops,
    .peers = &ta_gpu_peer_ops,
    .model = &ta_gpu_model_ops,
#ifdef TA_CCL
    .ccl_own = &ta_gpu_ccl_own_ops,
#endif
    .timer_start = ta_gpu_timer_start,
    .timer_read = ta_gpu_timer_read,
    .span = ta_gpu_span,
    .record = ta_gpu_record,
    .recorded = ta_gpu_recorded,
    .replay = ta_gpu_replay,
    .drop = ta_gpu_drop,
};

/* What the runtime knows of the device, and what the kernels need to be told. */
static ta_status prepare(ta_gpu_device *gpu)
{
    const ta_gpu *g = &gpu->properties;
    char refused[400];
    ta_arch_refused(g->arch, TA_ARCHS, refused, sizeof refused);
    if (refused[0])
        return ta_gpu_core->fail_quietly(TA_ERR_UNSUPPORTED, "%s %s", gpu->device.name, refused);
    gpu->limits.units = g->compute_units;
    gpu->limits.wave = g->wave;
    gpu->limits.matrix = ta_mma_runs(g->wave);
    gpu->limits.shared_bytes = g->shared_bytes;
    gpu->limits.shared_bytes_per_unit = g->shared_bytes_per_unit;
    gpu->limits.converts_f16 = ta_arch_converts_f16(g->arch);
    if (!gpu->limits.matrix)
        return TA_OK;
    static ta_launched (*const prepares[])(int, int) = {ta_prepare_attend_mma, ta_prepare_latent,
                                                        ta_prepare_attention_forward_mma,
                                                        ta_prepare_attention_backward};
    for (size_t i = 0; i < sizeof prepares / sizeof *prepares; i++) {
        ta_launched prepared = prepares[i](g->wave, g->shared_bytes);
        TA_TRY(ta_gpu_check(gpu, (hipError_t)prepared.error, "preparing kernel %.*s",
                            KERNEL_NAME(prepared.kernel)));
    }
    return TA_OK;
}

ta_status ta_gpu_open(int index, const ta_device_config *config, ta_device **device)
{
    (void)config; /* what it says is for the host */
    int before;
    ta_gpu_device *gpu = calloc(1, sizeof *gpu);
    if (!gpu)
        return ta_gpu_core->fail(TA_ERR_NO_MEMORY, "no memory for device %d", index);
    gpu->device.ops = &gpu_ops;
    gpu->index = index;
    snprintf(gpu->device.name, sizeof gpu->device.name, TA_VENDOR ":%d", index);
    ta_status status = ta_gpu_enter(gpu, &before);
    if (status == TA_OK) {
        status = ta_gpu_check(gpu, ta_gpu_query(index, &gpu->properties), "asking what it can do");
        if (status == TA_OK)
            status = prepare(gpu);
        ta_gpu_leave(gpu, before);
    }
    if (status != TA_OK) {
        free(gpu);
        return status;
    }
    ta_gpu_open_peers(gpu);
    *device = &gpu->device;
    return TA_OK;
}
