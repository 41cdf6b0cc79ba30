/* Arrays on the host and on a device: see device_array.h. */
#include "device_array.h"

#include <stdlib.h>

#include "base/status.h"

ta_status device_array_make(ta_device *device, size_t count, size_t each, device_array *array)
{
    *array = (device_array){.owner = device, .bytes = count * each};
    array->host = calloc(count + 1, each);
    if (!array->host)
        return ta_fail(TA_ERR_NO_MEMORY, "no memory for %zu times %zu bytes", count, each);
    return ta_device_alloc(device, array->bytes, &array->device);
}

void device_array_free(device_array *array)
{
    ta_device_free(array->owner, array->device);
    free(array->host);
}

ta_status device_array_to(const device_array *array, void *stream)
{
    return ta_device_copy(array->owner, array->device, array->host, array->bytes, stream);
}

ta_status device_array_from(const device_array *array, void *stream)
{
    TA_TRY(ta_device_copy(array->owner, array->host, array->device, array->bytes, stream));
    return ta_device_synchronize(array->owner, stream);
}
