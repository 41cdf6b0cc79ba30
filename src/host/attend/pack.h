/* The pack_kv() slot of the host device: a slice of a shard, out of any layout, as one dense
 * block. */
#ifndef TA_HOST_PACK_H
#define TA_HOST_PACK_H

#include "device/device.h"
#include "host/pool.h"

void ta_host_pack_kv(ta_pool *pool, const ta_problem *problem, const ta_kv *kv, int32_t slots,
                     void *packed);

#endif
