/* The make_records() slot of the host device: see device.h. Implemented in records.c. */
#ifndef TA_HOST_RECORDS_H
#define TA_HOST_RECORDS_H

#include "device/device.h"

ta_status ta_host_make_records(ta_device *device, const ta_problem *problem,
                               const ta_shard_output *given, float *records, const ta_tell *tell,
                               void *stream);

#endif
