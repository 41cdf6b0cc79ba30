/* The check_kv() slot of the host device: everything about a ta_kv that could make attend() read
 * what is not there. */
#ifndef TA_HOST_CHECK_H
#define TA_HOST_CHECK_H

#include "device/device.h"

ta_status ta_host_check_kv(ta_device *device, const ta_problem *problem, const ta_kv *kv);

#endif
