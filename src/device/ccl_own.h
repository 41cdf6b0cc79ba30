/* What NCCL and RCCL do by themselves where the library goes another way, on groups that they
 * connect: what `treeattn-bench exchange` needs to show their numbers beside ours. hip/ccl/own.c
 * implements the table; a device without such groups has none.
 *
 * It is no part of the public interface: a program that is built from this tree gets the table with
 * ta_device_extension(device, TA_CCL_OWN_NAME, TA_CCL_OWN_VERSION, …), and the number grows
 * whenever anything here changes. So this header needs the public one alone. */
#ifndef TA_DEVICE_CCL_OWN_H
#define TA_DEVICE_CCL_OWN_H

#include <treeattn/treeattn.h>

#define TA_CCL_OWN_NAME "ccl"
#define TA_CCL_OWN_VERSION 1

typedef struct ta_ccl_own_ops {
    /* ncclAllReduce in place: data[i] = the sum of all ranks' data[i], added in the order that NCCL
     * chooses, where ta_all_reduce() has one of its own. `data` is device memory of `count` floats,
     * as many on all ranks. Queued on the stream like any call of the group, of which it is one:
     * the timeout, errors and counts are the group's. TA_ERR_UNSUPPORTED for a group of another
     * kind, which goes on to work. */
    ta_status (*all_reduce_sum)(ta_group *group, float *data, size_t count, void *stream);
} ta_ccl_own_ops;

#endif
