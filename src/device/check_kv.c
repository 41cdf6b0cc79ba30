/* Everything about a ta_kv in host memory that could make attend() read what is not there: the
 * check_kv() slot of the host device, and, of tables that were copied from another device, a part
 * of its checks (decode/check_more.c). It runs at every step, so it reads lengths, bounds and the
 * page table entries in use once, and nothing else. */
#include <math.h>
#include <stdbool.h>

#include "base/dtype.h"
#include "base/status.h"
#include "device.h"

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

/* Scales that are the same for all tokens, which are few. Of the others, one that is no number
 * makes the rows that see it NaN. */
static ta_status check_scales(const ta_problem *p, const ta_kv *kv, const char *name,
                              const ta_scales *scales)
{
    int64_t sequences = kv->page_table || !scales->batch_stride ? 1 : p->batch;
    if (!scales->data || scales->token_stride || (kv->page_table && scales->batch_stride))
        return TA_OK;
    for (int64_t i = 0; i < sequences * (scales->head_stride ? p->kv_heads : 1); i++) {
        int64_t sequence = i % sequences, head = i / sequences;
        float scale = scales->data[sequence * scales->batch_stride + head * scales->head_stride];
        if (!(scale > 0.0f) || isinf(scale))
            return ta_fail(TA_ERR_INVALID,
                           "kv.%s of sequence %d and KV head %d is %g: must be finite and above 0",
                           name, (int)sequence, (int)head, (double)scale);
    }
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

/* The first sequence of a group has the prefix for all of it, the others have none of it. */
static ta_visible with_group(const ta_problem *p, const ta_kv *kv, const int32_t *bounds,
                             int32_t sequence, ta_visible seen)
{
    int32_t shared = ta_problem_shared(p, sequence);
    if (!shared)
        return seen;
    int32_t held = ta_shard_held(&p->shard, bounds, shared), group = ta_problem_group(p, sequence);
    int32_t first = p->prefix_starts[group], end = p->prefix_starts[group + 1];
    if (sequence != first) {
        seen.first = seen.first > held ? seen.first : held;
        return seen;
    }
    for (int32_t b = first + 1; b < end; b++) {
        ta_visible other = ta_shard_seen(&p->shard, bounds, kv->lengths[b],
                                         ta_problem_query_tokens(p, b), p->causal, p->window);
        other.end = other.end < held ? other.end : held;
        if (other.first >= other.end)
            continue;
        int empty = seen.first >= seen.end;
        seen.first = empty || other.first < seen.first ? other.first : seen.first;
        seen.end = empty || other.end > seen.end ? other.end : seen.end;
    }
    return seen;
}

static ta_status check_prefix(const ta_problem *p, const ta_kv *kv, int32_t group)
{
    int32_t first = p->prefix_starts[group];
    if (p->prefix_lengths[group] > kv->lengths[first])
        return ta_fail(TA_ERR_INVALID,
                       "call.prefix_lengths[%d] is %d: must be at most kv.lengths[%d], %d, of the "
                       "first sequence of the group, whose cache has the prefix",
                       group, p->prefix_lengths[group], first, kv->lengths[first]);
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
    if (p->selected) /* check_selected.c looks at those in use */
        return TA_OK;
    int32_t length = kv->lengths[sequence];
    ta_visible seen = ta_shard_seen(&p->shard, bounds, length, ta_problem_query_tokens(p, sequence),
                                    p->causal, p->window);
    seen = with_group(p, kv, bounds, sequence, seen);
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

ta_status ta_check_host_kv(ta_device *device, const ta_problem *problem, const ta_kv *kv)
{
    const ta_problem *p = problem;
    (void)device;
    TA_TRY(check_arguments(p, kv));
    bool holds_tokens = false;
    for (int32_t b = 0; b < p->batch; b++)
        if (kv->lengths[b] < 0)
            return ta_fail(TA_ERR_INVALID, "kv.lengths[%d] is %d: must be 0 or more", b,
                           kv->lengths[b]);
    for (int32_t g = 0; p->prefix_starts && g < p->prefix_groups; g++)
        TA_TRY(check_prefix(p, kv, g));
    for (int32_t b = 0; b < p->batch; b++) {
        int32_t length = kv->lengths[b];
        const int32_t *bounds = ta_kv_bounds(kv, b);
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
    TA_TRY(check_tensor(p, "v", &kv->v, holds_tokens));
    TA_TRY(check_scales(p, kv, "k_scale", &kv->k_scale));
    return check_scales(p, kv, "v_scale", &kv->v_scale);
}
