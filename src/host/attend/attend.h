/* The local attention of the host device: the attend() slot of device.h, and its workspace. */
#ifndef TA_HOST_ATTEND_H
#define TA_HOST_ATTEND_H

#include "device/device.h"

/* Bytes of workspace for a problem on so many threads. */
size_t ta_host_attend_bytes(const ta_problem *problem, int threads);

/* The slot. `kv` was checked. */
ta_status ta_host_attend(ta_device *device, const ta_problem *problem, const ta_tensor *q,
                         const ta_kv *kv, float *records, void *workspace, const ta_tell *tell,
                         void *stream);

#endif
