/* Collectives of host memory over any group: directly, or through memory of the group's device.
 * Used where ranks agree on something, outside of steps. */
#include "base/status.h"
#include "device/device.h"
#include "group.h"

/* Copy in or out, in the order of the null stream; done when it returns. */
static ta_status copy(ta_group *group, void *to, const void *from, size_t bytes)
{
    ta_device *device = group->device;
    if (bytes > 0)
        TA_TRY(device->ops->copy(device, to, from, bytes, NULL));
    return device->ops->synchronize(device, NULL);
}

/* What comes out of the wait also tells whether all ranks took part. */
static ta_status fetch(ta_group *group, void *to, const void *from, size_t bytes)
{
    TA_TRY(group->ops->wait(group, NULL));
    return copy(group, to, from, bytes);
}

ta_status ta_group_broadcast_host(ta_group *group, void *data, size_t bytes, int root)
{
    void *memory;
    if (!group->device)
        return ta_group_broadcast(group, data, bytes, root, NULL);
    if (bytes == 0)
        return TA_OK;
    TA_TRY(ta_device_alloc(group->device, bytes, &memory));
    ta_status status;
    TA_TRY_GOTO(copy(group, memory, data, bytes), free_memory);
    TA_TRY_GOTO(ta_group_broadcast(group, memory, bytes, root, NULL), free_memory);
    status = fetch(group, data, memory, bytes);

free_memory:
    ta_device_free(group->device, memory);
    return status;
}

ta_status ta_group_all_gather_host(ta_group *group, void *data, const size_t *offsets)
{
    size_t bytes = offsets[group->size];
    void *memory;
    if (!group->device)
        return ta_group_all_gather(group, data, offsets, NULL);
    if (bytes == 0)
        return TA_OK;
    TA_TRY(ta_device_alloc(group->device, bytes, &memory));
    ta_status status;
    TA_TRY_GOTO(copy(group, memory, data, bytes), free_memory);
    TA_TRY_GOTO(ta_group_all_gather(group, memory, offsets, NULL), free_memory);
    status = fetch(group, data, memory, bytes);

free_memory:
    ta_device_free(group->device, memory);
    return status;
}

static ta_status max_through(ta_group *group, int64_t *numbers, size_t count, void *memory,
                             void *stream)
{
    ta_device *device = group->device;
    size_t bytes = count * sizeof *numbers;
    TA_TRY(device->ops->copy(device, memory, numbers, bytes, stream));
    TA_TRY(
        ta_group_all_reduce(group, memory, memory, count, TA_ELEMENT_I64, TA_REDUCE_MAX, stream));
    TA_TRY(group->ops->wait(group, stream));
    TA_TRY(device->ops->copy(device, numbers, memory, bytes, stream));
    return device->ops->synchronize(device, stream);
}

ta_status ta_group_max_host(ta_group *group, int64_t *numbers, size_t count, void *memory,
                            void *stream)
{
    void *own;
    if (!group->device)
        return ta_group_all_reduce(group, numbers, numbers, count, TA_ELEMENT_I64, TA_REDUCE_MAX,
                                   NULL);
    if (memory)
        return max_through(group, numbers, count, memory, stream);
    TA_TRY(ta_device_alloc(group->device, count * sizeof *numbers, &own));
    ta_status status = max_through(group, numbers, count, own, stream);
    ta_device_free(group->device, own);
    return status;
}
