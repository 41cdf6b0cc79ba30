/* NCCL's own calls, for programs that compare the library's with them: the table of
 * device/ccl_own.h. Nothing in the library uses it. */
#include "ccl.h"

static ta_status check(const ta_group *group, const float *data, size_t count)
{
    if (!group)
        return ta_gpu_core->fail(TA_ERR_INVALID, "group is NULL: must be one of " TA_CCL_NAME);
    if (group->ops != &ta_ccl_ops)
        return ta_gpu_core->fail(TA_ERR_UNSUPPORTED, "group is one of %s: must be one of %s",
                                 group->ops->name, TA_CCL_NAME);
    if (count > PTRDIFF_MAX / sizeof *data)
        return ta_gpu_core->fail(TA_ERR_INVALID, "count is %zu: would exceed the address space",
                                 count);
    if (!data && count)
        return ta_gpu_core->fail(TA_ERR_INVALID, "data is NULL: must point to %zu floats", count);
    return TA_OK;
}

/* Counted as ta_all_reduce() is where an engine has it: one message out, and one in. */
static ta_status all_reduce_sum(ta_group *group, float *data, size_t count, void *stream)
{
    TA_TRY(check(group, data, count));
    ta_ccl_group *g = ta_ccl_of(group);
    if (count == 0)
        return ta_ccl_broken(g);
    TA_TRY(ta_ccl_begin(g));
    ncclResult_t result = g->nccl->ncclAllReduce(data, data, count, ncclFloat32, ncclSum, g->comm,
                                                 (hipStream_t)stream);
    TA_TRY(ta_ccl_end(g, result, stream, TA_CCL_ALL));
    group->stats.messages_sent += 1;
    group->stats.messages_received += 1;
    group->stats.bytes_sent += count * sizeof *data;
    group->stats.bytes_received += count * sizeof *data;
    return TA_OK;
}

const ta_ccl_own_ops ta_gpu_ccl_own_ops = {.all_reduce_sum = all_reduce_sum};
