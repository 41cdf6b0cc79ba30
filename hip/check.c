/* The check_kv() slot of a GPU: whatever can be seen without reading device memory, where lengths,
 * bounds and page tables are. A token that those give no place is read as NaN (attend/tile.h). */
#include "gpu.h"

/* Positions are counted in 32 bits, some beyond the end. */
#define TOKENS_MAX (INT32_MAX - 1024)

static ta_status check_tensor(const ta_problem *p, const char *name, const ta_tensor *tensor)
{
    uintptr_t size = ta_dtype_bytes(p->kv_dtype);
    if ((uintptr_t)tensor->data % size != 0)
        return ta_gpu_core->fail(TA_ERR_INVALID,
                                 "kv.%s.data is %p: must be aligned to %d bytes, an element", name,
                                 tensor->data, (int)size);
    return TA_OK;
}

static ta_status check_bounds(const ta_problem *p, const ta_kv *kv)
{
    const ta_shard *shard = &p->shard;
    if (kv->bounds && shard->cyclic)
        return ta_gpu_core->fail(TA_ERR_INVALID,
                                 "kv.bounds is set: must be NULL with a block-cyclic shard map");
    if (!kv->bounds && !shard->cyclic && shard->ranks > 1 && shard->block == 0)
        return ta_gpu_core->fail(
            TA_ERR_INVALID,
            "kv.bounds is NULL: a contiguous map of %d ranks without a block needs it",
            shard->ranks);
    if (kv->bounds && kv->bounds_stride != 0 && kv->bounds_stride < shard->ranks + 1)
        return ta_gpu_core->fail(TA_ERR_INVALID,
                                 "kv.bounds_stride is %lld: must be 0 or at least %d",
                                 (long long)kv->bounds_stride, shard->ranks + 1);
    return TA_OK;
}

ta_status ta_gpu_check_kv(ta_device *device, const ta_problem *problem, const ta_kv *kv)
{
    (void)device;
    if (problem->max_tokens > TOKENS_MAX)
        return ta_gpu_core->fail(TA_ERR_UNSUPPORTED,
                                 "max_tokens is %d: a GPU holds at most %d tokens of a sequence",
                                 problem->max_tokens, TOKENS_MAX);
    if (!kv->lengths)
        return ta_gpu_core->fail(TA_ERR_INVALID, "kv.lengths is NULL: must be %d lengths",
                                 problem->batch);
    if ((uintptr_t)kv->lengths % 4 || (uintptr_t)kv->bounds % 4 || (uintptr_t)kv->page_table % 4)
        return ta_gpu_core->fail(TA_ERR_INVALID,
                                 "kv.lengths, bounds or page_table is not aligned to 4 bytes");
    TA_TRY(check_bounds(problem, kv));
    if (kv->page_table && kv->page_tokens < 1)
        return ta_gpu_core->fail(TA_ERR_INVALID,
                                 "kv.page_tokens is %d: must be 1 or more with a page table",
                                 kv->page_tokens);
    TA_TRY(check_tensor(problem, "k", &kv->k));
    return check_tensor(problem, "v", &kv->v);
}
