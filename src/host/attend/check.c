/* The check_kv() slot of the host device: everything about a ta_kv that could make attend() read
 * what is not there. It runs at every step, so it reads lengths,
 * bounds and the page table entries in use once, and nothing else. */
#include <stdbool.h>

#include "base/dtype.h"
#include "base/status.h"
#include "device/device.h"

static ta_status check_tensor(const ta_problem *p, const char *name, const ta_tensor *tensor,
                              bool needed)
{
    size_t size = ta_dtype_bytes(p->kv_dtype);
    if (!tensor->data && needed)
        return ta_fail(TA_ERR_INVALID, "kv.%s.data is NULL, but this rank holds tokens", name);
    if ((uintptr_t)tensor->data % size != 0)
        return ta_fail(TA_ERR_INVALID, "kv.%s.data is %p: must be aligned to %zu bytes for %s",
                       name, tensor->data, size, ta_dtype_name(p->kv_dtype));
    return TA_OK;
}

/* Whether bounds and a page table are there where they must be, and have room for their entries. */
static ta_status check_arguments(const ta_problem *p, const ta_kv *kv)
{
    const ta_shard *shard = &p->shard;
    if (!kv->lengths)
        return ta_fail(TA_ERR_INVALID, "kv.lengths is NULL: must be %d lengths", p->batch);
    if (kv->bounds && shard->cyclic)
        return ta_fail(TA_ERR_INVALID,
                       "kv.bounds is set: must be NULL with a block-cyclic shard map");
    if (!kv->bounds && !shard->cyclic && shard->ranks > 1 && shard->block == 0)
        return ta_fail(TA_ERR_INVALID,
                       "kv.bounds is NULL: a contiguous map of %d ranks without a block needs it",
                       shard->ranks);
    if (kv->bounds && kv->bounds_stride != 0 && kv->bounds_stride < shard->ranks + 1)
        return ta_fail(TA_ERR_INVALID, "kv.bounds_stride is %lld: must be 0 or at least %d",
                       (long long)kv->bounds_stride, shard->ranks + 1);
    if (kv->page_table && kv->page_tokens < 1)
        return ta_fail(TA_ERR_INVALID, "kv.page_tokens is %d: must be 1 or more with a page table",
                       kv->page_tokens);
    return TA_OK;
}

static ta_status check_bounds(const ta_problem *p, const int32_t *bounds, int32_t sequence,
                              int32_t length)
{
    int32_t ranks = p->shard.ranks;
    if (bounds[0] != 0)
        return ta_fail(TA_ERR_INVALID, "kv.bounds of sequence %d start at %d: must start at 0",
                       sequence, bounds[0]);
    for (int32_t r = 0; r < ranks; r++) {
        if (bounds[r + 1] < bounds[r])
            return ta_fail(TA_ERR_INVALID,
                           "kv.bounds of sequence %d fall from %d to %d at rank %d: must ascend",
                           sequence, bounds[r], bounds[r + 1], r);
        if (p->tally_tile && bounds[r] < length && bounds[r] % p->tally_tile)
            return ta_fail(TA_ERR_INVALID,
                           "kv.bounds of sequence %d are %d at rank %d: must be a multiple of "
                           "config.reproducible_tile, %d",
                           sequence, bounds[r], r, p->tally_tile);
    }
    if (bounds[ranks] < length)
        return ta_fail(TA_ERR_INVALID,
                       "kv.bounds of sequence %d end at %d: must reach kv.lengths[%d], %d",
                       sequence, bounds[ranks], sequence, length);
    return TA_OK;
}

/* Pages of tokens that no query sees may have been given back, so only those of the others
 * count. */
static ta_status check_pages(const ta_problem *p, const ta_kv *kv, const int32_t *bounds,
                             int32_t sequence, int32_t held)
{
    int64_t pages = ((int64_t)held + kv->page_tokens - 1) / kv->page_tokens;
    if (kv->page_table_stride < pages)
        return ta_fail(TA_ERR_INVALID,
                       "kv.page_table_stride is %lld: sequence %d needs %lld pages of %d tokens",
                       (long long)kv->page_table_stride, sequence, (long long)pages,
                       kv->page_tokens);
    int32_t length = kv->lengths[sequence];
    ta_visible seen = ta_shard_seen(&p->shard, bounds, length, ta_problem_query_tokens(p, sequence),
                                    p->causal, p->window);
    if (seen.first >= seen.end)
        return TA_OK;
    const int32_t *table = kv->page_table + sequence * kv->page_table_stride;
    int32_t first = seen.first / kv->page_tokens, last = (seen.end - 1) / kv->page_tokens;
    uint32_t largest = 0; /* as an unsigned number a negative page is large too */
    for (int32_t i = first; i <= last; i++)
        largest = (uint32_t)table[i] > largest ? (uint32_t)table[i] : largest;
    if (kv->page_count > 0 && largest < (uint32_t)kv->page_count)
        return TA_OK;
    int32_t i = first;
    while (table[i] >= 0 && table[i] < kv->page_count)
        i++;
    return ta_fail(TA_ERR_INVALID,
                   "page %d of sequence %d in kv.page_table is %d: must be from 0 to "
                   "kv.page_count - 1, %d",
                   i, sequence, table[i], kv->page_count - 1);
}

ta_status ta_host_check_kv(ta_device *device, const ta_problem *problem, const ta_kv *kv)
{
    const ta_problem *p = problem;
    (void)device;
    TA_TRY(check_arguments(p, kv));
    bool holds_tokens = false;
    for (int32_t b = 0; b < p->batch; b++) {
        int32_t length = kv->lengths[b];
        if (length < 0)
            return ta_fail(TA_ERR_INVALID, "kv.lengths[%d] is %d: must be 0 or more", b, length);
        const int32_t *bounds = kv->bounds ? kv->bounds + b * kv->bounds_stride : NULL;
        if (bounds)
            TA_TRY(check_bounds(p, bounds, b, length));
        int32_t held = ta_shard_held(&p->shard, bounds, length);
        if (held > p->max_tokens)
            return ta_fail(TA_ERR_INVALID,
                           "kv.lengths[%d] is %d: rank %d would hold %d tokens of it, more than "
                           "max_tokens, %d",
                           b, length, p->shard.rank, held, p->max_tokens);
        if (held == 0)
            continue;
        holds_tokens = true;
        if (kv->page_table)
            TA_TRY(check_pages(p, kv, bounds, b, held));
    }
    TA_TRY(check_tensor(p, "k", &kv->k, holds_tokens));
    return check_tensor(p, "v", &kv->v, holds_tokens);
}
