/* Pinned memory and the copies through it: see staging.h. */
#include "staging.h"

#include <string.h>

#include "base/status.h"

ta_status ta_staging_make(ta_device *device, size_t bytes, ta_staging *staging)
{
    void *memory;
    TA_TRY(device->ops->alloc_host(device, bytes, &memory));
    memset(memory, 0, bytes);
    *staging = (ta_staging){device, memory, bytes};
    return TA_OK;
}

void ta_staging_free(ta_staging *staging)
{
    if (staging->memory)
        staging->device->ops->free_host(staging->device, staging->memory);
    *staging = (ta_staging){NULL, NULL, 0};
}

ta_status ta_staging_copy(const ta_staging *staging, void *to, const void *from, size_t bytes,
                          void *stream)
{
    if (to == from || bytes == 0)
        return TA_OK;
    return staging->device->ops->copy(staging->device, to, from, bytes, stream);
}

ta_status ta_staging_wait(const ta_staging *staging, void *stream)
{
    return staging->device->ops->synchronize(staging->device, stream);
}

ta_status ta_staging_out(const ta_staging *staging, void *to, const void *from, size_t bytes,
                         void *stream)
{
    if (to == from || bytes == 0)
        return TA_OK;
    TA_TRY(ta_staging_copy(staging, to, from, bytes, stream));
    return ta_staging_wait(staging, stream);
}
