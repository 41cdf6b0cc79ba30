/* The order of attention over full sequences, on its way to the device, where kernels want it
 * written out: as arrays of rows and ranges. A plan makes it anew for each call, and a ring for
 * each hop, while the stream may be far behind. So the arrays are written into one of a few pinned
 * pieces, used one after the other; from there the copy is in stream order, and an event behind it
 * says when the piece is free again. The host waits only if it is TA_GPU_PINNED calls ahead of the
 * device. attention.c calls this. */
#include <string.h>

#include "attention.h"
#include "gpu.h"

#define LINE 64

static size_t lines(size_t bytes)
{
    return (bytes + LINE - 1) / LINE * LINE;
}

size_t ta_gpu_arrays_bytes(const ta_attention_work *shape)
{
    size_t queries = (size_t)shape->queries, keys = (size_t)shape->keys;
    return lines(queries * sizeof *shape->visible) + lines(queries * sizeof *shape->query_rows) +
           lines(keys * sizeof *shape->key_rows);
}

static void free_pinned(ta_gpu_device *gpu)
{
    for (int i = 0; i < TA_GPU_PINNED; i++) {
        ta_gpu_pinned *piece = &gpu->pinned[i];
        if (piece->used)
            (void)hipEventSynchronize(piece->event);
        if (piece->event)
            (void)hipEventDestroy(piece->event);
        if (piece->memory)
            (void)hipHostFree(piece->memory);
        memset(piece, 0, sizeof *piece);
    }
    gpu->pinned_bytes = 0;
}

static ta_status make_pinned(ta_gpu_device *gpu, size_t bytes)
{
    free_pinned(gpu);
    for (int i = 0; i < TA_GPU_PINNED; i++) {
        ta_gpu_pinned *piece = &gpu->pinned[i];
        TA_TRY(ta_gpu_check(gpu, hipHostMalloc(&piece->memory, bytes, hipHostMallocDefault),
                            "allocating %zu bytes of pinned memory", bytes));
        TA_TRY(ta_gpu_check(gpu, hipEventCreateWithFlags(&piece->event, hipEventDisableTiming),
                            "creating an event"));
    }
    gpu->pinned_bytes = bytes;
    return TA_OK;
}

ta_status ta_gpu_reserve_arrays(ta_device *device, const ta_attention_work *largest)
{
    ta_gpu_device *gpu = ta_gpu_of(device);
    size_t bytes = ta_gpu_arrays_bytes(largest);
    int before;
    if (bytes <= gpu->pinned_bytes)
        return TA_OK;
    TA_TRY(ta_gpu_enter(gpu, &before));
    ta_status status = make_pinned(gpu, bytes);
    if (status != TA_OK)
        free_pinned(gpu);
    ta_gpu_leave(gpu, before);
    return status;
}

void ta_gpu_free_arrays(ta_gpu_device *gpu)
{
    int before;
    if (ta_gpu_enter(gpu, &before) != TA_OK)
        return;
    free_pinned(gpu);
    ta_gpu_leave(gpu, before);
}

/* Write the order out into the piece, and note where it will be on the device. */
static void write_arrays(const ta_token_order *order, char *piece, char *to,
                         ta_attention_work *work)
{
    size_t query_rows_at = lines((size_t)order->queries * sizeof *work->visible);
    size_t key_rows_at = query_rows_at + lines((size_t)order->queries * sizeof *work->query_rows);
    ta_order_write_queries(order, 0, order->queries, (int32_t *)(piece + query_rows_at),
                           (ta_visible *)piece);
    ta_order_write_keys(order, 0, order->keys, (int32_t *)(piece + key_rows_at));
    work->visible = (const ta_visible *)to;
    work->query_rows = (const int32_t *)(to + query_rows_at);
    work->key_rows = (const int32_t *)(to + key_rows_at);
}

ta_status ta_gpu_bring_arrays(ta_gpu_device *gpu, const ta_token_order *order,
                              ta_attention_work *work, void *to, void *stream)
{
    ta_gpu_pinned *piece = &gpu->pinned[gpu->next_pinned];
    size_t bytes = ta_gpu_arrays_bytes(work);
    if (bytes > gpu->pinned_bytes)
        return ta_gpu_core->fail(TA_ERR_INVALID, "%zu bytes of arrays, and %zu are reserved", bytes,
                                 gpu->pinned_bytes);
    if (piece->used)
        TA_TRY(ta_gpu_check(gpu, hipEventSynchronize(piece->event), "waiting for an earlier call"));
    write_arrays(order, piece->memory, to, work);
    TA_TRY(ta_gpu_check(
        gpu, hipMemcpyAsync(to, piece->memory, bytes, hipMemcpyHostToDevice, (hipStream_t)stream),
        "copying %zu bytes of arrays", bytes));
    TA_TRY(
        ta_gpu_check(gpu, hipEventRecord(piece->event, (hipStream_t)stream), "recording an event"));
    piece->used = 1;
    gpu->next_pinned = (gpu->next_pinned + 1) % TA_GPU_PINNED;
    ta_device_count(&gpu->device.stats.bytes_to_device, bytes);
    return TA_OK;
}
