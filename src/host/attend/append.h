/* The append() slot of the host device: see device.h. Implemented in append.c. */
#ifndef TA_HOST_APPEND_H
#define TA_HOST_APPEND_H

#include "device/device.h"

ta_status ta_host_append(ta_device *device, const ta_problem *problem, const ta_kv *kv,
                         const ta_new_tokens *tokens, void *stream);

#endif
