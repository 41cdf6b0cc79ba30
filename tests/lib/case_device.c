/* The buffers of a decode case in a device's memory: see case.h. On the host device they are used
 * where they are, so that sanitizers see every access. */
#include "case.h"

#include "base/status.h"
#include "device/device.h"
#include "number.h"

static ta_status add_copy(case_shard *shard, void *host, size_t bytes)
{
    if (!host || !bytes)
        return TA_OK;
    case_copy *copy = &shard->copies[shard->copy_count];
    TA_TRY(shard->device->ops->alloc(shard->device, bytes, &copy->device));
    copy->host = host;
    copy->bytes = bytes;
    ++shard->copy_count;
    return TA_OK;
}

static ta_status add_buffer(case_shard *shard, const case_buffer *buffer)
{
    if (!buffer->memory) /* V that is in K, an output that this rank does not get */
        return TA_OK;
    return add_copy(shard, buffer->memory, (size_t)buffer->count * number_bytes(buffer->dtype));
}

void *case_on_device(const case_shard *shard, const void *host)
{
    for (int i = 0; i < shard->copy_count; ++i) {
        const case_copy *copy = &shard->copies[i];
        uintptr_t distance = (uintptr_t)host - (uintptr_t)copy->host;
        if (distance < copy->bytes)
            return (char *)copy->device + distance;
    }
    return (void *)host;
}

ta_status case_copy_all(const case_shard *shard, bool to_device)
{
    for (int i = 0; i < shard->copy_count; ++i) {
        const case_copy *copy = &shard->copies[i];
        TA_TRY(shard->device->ops->copy(shard->device, to_device ? copy->device : copy->host,
                                        to_device ? copy->host : copy->device, copy->bytes, NULL));
    }
    if (!to_device && shard->device->ops->synchronize)
        return shard->device->ops->synchronize(shard->device, NULL);
    return TA_OK;
}

ta_status case_shard_to_device(case_shard *shard, ta_device *device)
{
    shard->device = device;
    if (!device->ops->alloc_host)
        return TA_OK;
    TA_TRY(add_buffer(shard, &shard->q));
    TA_TRY(add_buffer(shard, &shard->k));
    TA_TRY(add_buffer(shard, &shard->v));
    TA_TRY(add_buffer(shard, &shard->out));
    size_t floats = (size_t)shard->lse_count + 2 * CASE_GUARD;
    TA_TRY(add_copy(shard, shard->lse, floats * sizeof(float)));
    TA_TRY(add_copy(shard, shard->lengths, shard->lengths_count * sizeof(int32_t)));
    TA_TRY(add_copy(shard, shard->page_table, shard->page_table_count * sizeof(int32_t)));
    TA_TRY(add_copy(shard, shard->bounds, shard->bounds_count * sizeof(int32_t)));
    TA_TRY(add_copy(shard, shard->starts, shard->starts_count * sizeof(int32_t)));
    TA_TRY(add_copy(shard, shard->slopes, shard->head_count * sizeof(float)));
    TA_TRY(add_copy(shard, shard->sinks, shard->head_count * sizeof(float)));
    TA_TRY(add_copy(shard, shard->k_scales, shard->k_scales_count * sizeof(float)));
    TA_TRY(add_copy(shard, shard->v_scales, shard->v_scales_count * sizeof(float)));
    shard->kv.k_scale.data = case_on_device(shard, shard->k_scales);
    shard->kv.v_scale.data = case_on_device(shard, shard->v_scales);
    size_t groups = (size_t)shard->call.prefix_groups;
    TA_TRY(add_copy(shard, shard->selected, shard->selected_count * sizeof(int32_t)));
    TA_TRY(add_copy(shard, shard->prefix_starts, (groups + 1) * sizeof(int32_t)));
    TA_TRY(add_copy(shard, shard->prefix_lengths, groups * sizeof(int32_t)));
    shard->call.selected = case_on_device(shard, shard->selected);
    shard->call.prefix_starts = case_on_device(shard, shard->prefix_starts);
    shard->call.prefix_lengths = case_on_device(shard, shard->prefix_lengths);
    shard->call.starts = case_on_device(shard, shard->starts);
    shard->call.alibi_slopes = case_on_device(shard, shard->slopes);
    shard->call.sinks = case_on_device(shard, shard->sinks);
    shard->kv.k.data = case_on_device(shard, shard->kv.k.data);
    shard->kv.v.data = case_on_device(shard, shard->kv.v.data);
    shard->kv.lengths = case_on_device(shard, shard->lengths);
    shard->kv.page_table = case_on_device(shard, shard->page_table);
    shard->kv.bounds = case_on_device(shard, shard->bounds);
    return case_copy_all(shard, true);
}
