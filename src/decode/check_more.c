/* Checked mode: see check_more.h. What is in device memory is copied to the host, in the order of
 * the stream, and looked at there; so it is slow, and allocates. */
#include "check_more.h"

#include <stdlib.h>
#include <string.h>

#include "base/arguments.h"
#include "base/dtype.h"
#include "base/hash.h"
#include "base/status.h"
#include "call.h"
#include "step.h"

/* Copies of device memory. On the host they are what they are copies of. */
typedef struct tables {
    int32_t *lengths, *bounds, *pages, *starts;
    float *sinks, *slopes;
    char *query;
} tables;

static void free_tables(tables *t)
{
    free(t->lengths);
    free(t->bounds);
    free(t->pages);
    free(t->starts);
    free(t->sinks);
    free(t->slopes);
    free(t->query);
}

/* ---- Overlaps ---- */

typedef struct range {
    const char *name, *data;
    size_t bytes;
} range;

static ta_status check_apart(const range *written, const range *read)
{
    uintptr_t to = (uintptr_t)written->data, from = (uintptr_t)read->data;
    if (!to || !from || to >= from + read->bytes || from >= to + written->bytes)
        return TA_OK;
    return ta_fail(TA_ERR_INVALID,
                   "%s is %p and %zu bytes long: must not overlap %s, %p and %zu bytes long",
                   written->name, (const void *)written->data, written->bytes, read->name,
                   (const void *)read->data, read->bytes);
}

static ta_status check_overlaps(const ta_plan *plan, const ta_step *step)
{
    const ta_problem *p = &step->problem;
    const ta_kv *kv = &step->kv;
    int64_t blocks = kv->page_table ? kv->page_count : p->batch;
    int64_t tokens = kv->page_table ? kv->page_tokens : p->max_tokens;
    int first, heads;
    ta_plan_heads(plan, plan->out_placement, plan->out_root, plan->rank, &first, &heads);
    if (heads == 0)
        return TA_OK;
    ta_tensor_shape k = {"kv.k", blocks, tokens, p->kv_heads, p->k_dim, p->kv_dtype};
    ta_tensor_shape v = {"kv.v", blocks, tokens, p->kv_heads, p->v_dim, p->kv_dtype};
    ta_tensor_shape out = ta_call_shape(p, "out", heads, p->v_dim, p->out_dtype);
    const range written[] = {
        {"out", step->out.data, ta_tensor_reach(&step->out, &out)},
        {"lse", (const char *)step->lse, (size_t)(p->rows * heads) * sizeof(float)}};
    const range read[] = {{"kv.k", kv->k.data, ta_tensor_reach(&kv->k, &k)},
                          {"kv.v", kv->v.data, ta_tensor_reach(&kv->v, &v)}};
    for (int i = 0; i < 4; ++i)
        TA_TRY(check_apart(&written[i / 2], &read[i % 2]));
    return TA_OK;
}

/* ---- Tables in device memory ---- */

static ta_status make_copy(size_t count, size_t each, void *copy)
{
    void *memory = calloc(count ? count : 1, each);
    if (!memory)
        return ta_fail(TA_ERR_NO_MEMORY, "no memory to check %zu times %zu bytes of device memory",
                       count, each);
    memcpy(copy, &memory, sizeof memory);
    return TA_OK;
}

static ta_status fetch(ta_device *device, void *to, const void *from, size_t bytes, void *stream)
{
    return bytes ? device->ops->copy(device, to, from, bytes, stream) : TA_OK;
}

static ta_status fetch_lengths(const ta_plan *plan, const ta_problem *p, ta_kv *kv, tables *t,
                               void *stream)
{
    ta_device *device = plan->device;
    size_t batch = (size_t)p->batch, each = (size_t)p->shard.ranks + 1;
    TA_TRY(make_copy(batch, sizeof *t->lengths, &t->lengths));
    TA_TRY(make_copy(batch * each, sizeof *t->bounds, &t->bounds));
    TA_TRY(fetch(device, t->lengths, kv->lengths, batch * sizeof *t->lengths, stream));
    for (size_t b = 0; kv->bounds && b < batch; ++b)
        TA_TRY(fetch(device, t->bounds + b * each, kv->bounds + (int64_t)b * kv->bounds_stride,
                     each * sizeof *t->bounds, stream));
    TA_TRY(device->ops->synchronize(device, stream));
    kv->lengths = t->lengths;
    if (kv->bounds) {
        kv->bounds = t->bounds;
        kv->bounds_stride = (int64_t)each;
    }
    return TA_OK;
}

/* The entries that sequences in order would use; of others the check needs none. */
static ta_status fetch_pages(const ta_plan *plan, const ta_problem *p, ta_kv *kv, tables *t,
                             void *stream)
{
    int64_t stride = kv->page_table_stride;
    if (stride < 0)
        return ta_fail(TA_ERR_INVALID, "kv.page_table_stride is %lld: must be 0 or more",
                       (long long)stride);
    TA_TRY(make_copy((size_t)p->batch * (size_t)stride, sizeof *t->pages, &t->pages));
    for (int32_t b = 0; b < p->batch; ++b) {
        const int32_t *bounds = kv->bounds ? kv->bounds + b * kv->bounds_stride : NULL;
        int32_t held = ta_shard_held(&p->shard, bounds, kv->lengths[b]);
        int64_t pages = ((int64_t)held + kv->page_tokens - 1) / kv->page_tokens;
        if (held <= p->max_tokens && pages <= stride)
            TA_TRY(fetch(plan->device, t->pages + b * stride, kv->page_table + b * stride,
                         (size_t)pages * sizeof *t->pages, stream));
    }
    kv->page_table = t->pages;
    return plan->device->ops->synchronize(plan->device, stream);
}

/* What the call points to, where it is not the plan's. Afterwards the problem has a copy of the
 * starts. */
static ta_status check_call(const ta_plan *plan, ta_problem *p, tables *t, void *stream)
{
    ta_device *device = plan->device;
    size_t starts = p->starts ? (size_t)p->batch + 1 : 0, heads = (size_t)p->query_heads;
    int sinks = p->sinks != plan->problem.sinks;
    int slopes = p->alibi_slopes != plan->problem.alibi_slopes;
    TA_TRY(make_copy(starts, sizeof *t->starts, &t->starts));
    TA_TRY(make_copy(heads, sizeof *t->sinks, &t->sinks));
    TA_TRY(make_copy(heads, sizeof *t->slopes, &t->slopes));
    TA_TRY(fetch(device, t->starts, p->starts, starts * sizeof *t->starts, stream));
    if (sinks)
        TA_TRY(fetch(device, t->sinks, p->sinks, heads * sizeof *t->sinks, stream));
    if (slopes)
        TA_TRY(fetch(device, t->slopes, p->alibi_slopes, heads * sizeof *t->slopes, stream));
    TA_TRY(device->ops->synchronize(device, stream));
    p->starts = p->starts ? t->starts : NULL;
    TA_TRY(ta_call_check_starts(p, p->starts));
    return ta_call_check_heads(p, t->sinks, t->slopes);
}

static ta_status check_tables(const ta_plan *plan, const ta_step *step, tables *t, void *stream)
{
    ta_kv kv = step->kv, unpaged;
    ta_problem p = step->problem;
    TA_TRY(check_call(plan, &p, t, stream));
    TA_TRY(fetch_lengths(plan, &p, &kv, t, stream));
    unpaged = kv;
    unpaged.page_table = NULL; /* which entries there are, lengths and bounds say */
    TA_TRY(ta_host_check_kv(plan->device, &p, &unpaged));
    if (!kv.page_table)
        return TA_OK;
    TA_TRY(fetch_pages(plan, &p, &kv, t, stream));
    return ta_host_check_kv(plan->device, &p, &kv);
}

/* ---- The query ---- */

/* A row of all heads, dense, where the host can see it. */
static ta_status bring_row(const ta_plan *plan, const ta_step *step, int64_t row, char *to,
                           void *stream)
{
    const ta_problem *p = &step->problem;
    const ta_tensor *q = &step->q;
    size_t size = ta_dtype_bytes(p->query_dtype), bytes = (size_t)p->k_dim * size;
    int64_t at = ta_problem_row_at(p, q, row);
    for (int32_t h = 0; h < p->query_heads; ++h) {
        const char *from = (const char *)q->data + (size_t)(at + h * q->head_stride) * size;
        TA_TRY(plan->device->ops->copy(plan->device, to + (size_t)h * bytes, from, bytes, stream));
    }
    return TA_OK;
}

static ta_status hash_query(const ta_plan *plan, const ta_step *step, tables *t, uint64_t *hash,
                            void *stream)
{
    const ta_problem *p = &step->problem;
    size_t row_bytes = (size_t)p->query_heads * (size_t)p->k_dim * ta_dtype_bytes(p->query_dtype);
    int64_t rows = ta_problem_rows(p);
    TA_TRY(make_copy((size_t)rows, row_bytes, &t->query));
    for (int64_t row = 0; row < rows; ++row)
        TA_TRY(bring_row(plan, step, row, t->query + (size_t)row * row_bytes, stream));
    if (plan->device->ops->synchronize)
        TA_TRY(plan->device->ops->synchronize(plan->device, stream));
    *hash = 0;
    for (int64_t row = 0; row < rows; ++row)
        *hash += ta_fault_mix(
            ta_hash_words(t->query + (size_t)row * row_bytes, (uint32_t)(row_bytes / 4)) +
            (uint64_t)row);
    return TA_OK;
}

static ta_status check_capture(const ta_plan *plan, void *stream)
{
    const ta_device_ops *ops = plan->device->ops;
    if (ops->capturing && ops->capturing(plan->device, stream))
        return ta_fail(TA_ERR_UNSUPPORTED,
                       "stream %p is being captured: a step in checked mode waits for the device; "
                       "leave config.check at 0, and TREEATTN_CHECK unset",
                       stream);
    return TA_OK;
}

ta_status ta_check_tables(ta_plan *plan, const ta_step *step, void *stream)
{
    tables t = {0};
    if (!plan->device->ops->alloc_host)
        return TA_OK;
    TA_TRY(check_capture(plan, stream));
    ta_status status = check_tables(plan, step, &t, stream);
    free_tables(&t);
    return status;
}

ta_status ta_check_more(ta_plan *plan, const ta_step *step, uint64_t *query, void *stream)
{
    const ta_device_ops *ops = plan->device->ops;
    tables t = {0};
    ta_status status;
    TA_TRY(check_overlaps(plan, step));
    TA_TRY(check_capture(plan, stream));
    if (ops->alloc_host)
        TA_TRY_GOTO(check_tables(plan, step, &t, stream), free_tables);
    if (plan->ranks > 1 && plan->query_placement == TA_PLACE_ALL)
        TA_TRY_GOTO(hash_query(plan, step, &t, query, stream), free_tables);
    status = TA_OK;

free_tables:
    free_tables(&t);
    return status;
}
