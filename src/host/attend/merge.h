/* The merge() and finish() slots of the host device: see device.h. Implemented in merge.c. */
#ifndef TA_HOST_MERGE_H
#define TA_HOST_MERGE_H

#include "device/device.h"

ta_status ta_host_merge(ta_device *device, const ta_merge *merge, void *stream);
ta_status ta_host_finish(ta_device *device, const ta_finish *finish, void *stream);

#endif
