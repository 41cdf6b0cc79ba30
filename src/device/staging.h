/* Staging: pinned host memory of a device, and copies through it, for groups that move host memory
 * only. Decode plans cut theirs up and copy once each way a step; group/staged.c sends whatever
 * comes in pieces. Implemented in staging.c. */
#ifndef TA_STAGING_H
#define TA_STAGING_H

#include "device.h"

typedef struct ta_staging {
    ta_device *device;
    void *memory; /* NULL: there is none */
    size_t bytes;
} ta_staging;

/* Memory that is all zero. */
ta_status ta_staging_make(ta_device *device, size_t bytes, ta_staging *staging);
void ta_staging_free(ta_staging *staging);

/* Begin to copy from device memory to a place in the staging memory, or the other way; in the
 * order of the stream. Does nothing if `to` is `from`: what need not be staged has its place in
 * device memory. */
ta_status ta_staging_copy(const ta_staging *staging, void *to, const void *from, size_t bytes,
                          void *stream);

/* Wait until the copies are done. So whatever was staged in before has been read too, and its place
 * may be written again. */
ta_status ta_staging_wait(const ta_staging *staging, void *stream);

/* Copy to the staging memory and wait; nothing for no bytes. */
ta_status ta_staging_out(const ta_staging *staging, void *to, const void *from, size_t bytes,
                         void *stream);

#endif
