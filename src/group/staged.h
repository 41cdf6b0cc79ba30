/* Groups of host memory for the memory of a device. */
#ifndef TA_GROUP_STAGED_H
#define TA_GROUP_STAGED_H

#include "group.h"

/* A group of the same ranks as `inner`, which moves host memory, that moves memory of `device`:
 * every message goes through pinned host memory, and the host waits for the stream. Not
 * collective. The inner group outlives it and is used by nobody else meanwhile. Destroy with
 * ta_group_destroy(). */
ta_status ta_group_stage(ta_group *inner, ta_device *device, ta_group **group);

#endif
