/* Checked mode: see check_more.h. What is in device memory is copied to the host, in the order of
 * the stream, and looked at there; so it is slow, and allocates. */
#include "check_more.h"

#include <stdlib.h>
#include <string.h>

#include "append_scales.h"
#include "base/arguments.h"
#include "base/dtype.h"
#include "base/format.h"
#include "base/hash.h"
#include "base/status.h"
#include "call.h"
#include "step.h"

/* Copies of device memory. On the host they are what they are copies of. */
typedef struct tables {
    int32_t *lengths, *bounds, *pages, *starts, *selected, *prefix_starts, *prefix_lengths;
    uint64_t *marks;
    float *sinks, *slopes, *k_scales, *v_scales, *new_scales;
    char *query;
} tables;

/* After a failure copies that were queued before may be on their way to what is freed here. The
 * first error stays. */
static void free_tables(tables *t, ta_device *device, void *stream, ta_status status)
{
    char why[1024];
    if (status != TA_OK && device->ops->synchronize) {
        ta_format(why, sizeof why, "%s", ta_last_error());
        if (device->ops->synchronize(device, stream) != TA_OK)
            ta_fail_quietly(status, "%s", why);
    }
    free(t->lengths);
    free(t->bounds);
    free(t->pages);
    free(t->starts);
    free(t->selected);
    free(t->prefix_starts);
    free(t->prefix_lengths);
    free(t->marks);
    free(t->sinks);
    free(t->slopes);
    free(t->k_scales);
    free(t->v_scales);
    free(t->new_scales);
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
    TA_TRY(make_copy((size_t)p->batch * (size_t)stride, sizeof *t->pages, &t->pages));
    for (int32_t b = 0; b < p->batch; ++b) {
        const int32_t *bounds = ta_kv_bounds(kv, b);
        int32_t held = ta_shard_held(&p->shard, bounds, kv->lengths[b]);
        int64_t pages = ((int64_t)held + kv->page_tokens - 1) / kv->page_tokens;
        if (held <= p->max_tokens && pages <= stride)
            TA_TRY(fetch(plan->device, t->pages + b * stride, kv->page_table + b * stride,
                         (size_t)pages * sizeof *t->pages, stream));
    }
    kv->page_table = t->pages;
    return plan->device->ops->synchronize(plan->device, stream);
}

/* Those that are the same for all tokens. Others, which the check does not look at, stay in device
 * memory, so it is given none of them. */
static ta_status fetch_scales(const ta_plan *plan, const ta_problem *p, const ta_kv *kv,
                              ta_scales *scales, float **copy, void *stream)
{
    int64_t sequences = scales->batch_stride ? p->batch : 1, heads = p->kv_heads;
    if (!scales->data || scales->token_stride || (kv->page_table && scales->batch_stride)) {
        *scales = (ta_scales){NULL, 0, 0, 0};
        return TA_OK;
    }
    TA_TRY(make_copy((size_t)(sequences * heads), sizeof **copy, copy));
    for (int64_t i = 0; i < sequences * heads; ++i)
        TA_TRY(
            fetch(plan->device, *copy + i,
                  scales->data + i / heads * scales->batch_stride + i % heads * scales->head_stride,
                  sizeof **copy, stream));
    *scales = (ta_scales){*copy, sequences > 1 ? heads : 0, 0, 1};
    return plan->device->ops->synchronize(plan->device, stream);
}

/* Sinks and slopes, the plan's or the call's: ranks that share plans may differ in whose they use.
 * A plan's own were looked at when it was made. */
static ta_status fetch_heads(const ta_plan *plan, const ta_problem *p, tables *t, void *stream)
{
    ta_device *device = plan->device;
    size_t heads = (size_t)p->query_heads, bytes = heads * sizeof(float);
    int sinks = p->sinks != plan->problem.sinks;
    int slopes = p->alibi_slopes != plan->problem.alibi_slopes;
    TA_TRY(make_copy(heads, sizeof *t->sinks, &t->sinks));
    TA_TRY(make_copy(heads, sizeof *t->slopes, &t->slopes));
    if (p->sinks)
        TA_TRY(fetch(device, t->sinks, p->sinks, bytes, stream));
    if (p->alibi_slopes)
        TA_TRY(fetch(device, t->slopes, p->alibi_slopes, bytes, stream));
    TA_TRY(device->ops->synchronize(device, stream));
    return ta_call_check_heads(p, sinks ? t->sinks : NULL, slopes ? t->slopes : NULL);
}

/* What the call points to. Afterwards the problem has a copy of the starts. */
static ta_status check_call(const ta_plan *plan, ta_problem *p, tables *t, void *stream)
{
    ta_device *device = plan->device;
    size_t starts = p->starts ? (size_t)p->batch + 1 : 0;
    TA_TRY(make_copy(starts, sizeof *t->starts, &t->starts));
    TA_TRY(fetch(device, t->starts, p->starts, starts * sizeof *t->starts, stream));
    TA_TRY(device->ops->synchronize(device, stream));
    p->starts = p->starts ? t->starts : NULL;
    TA_TRY(ta_call_check_starts(p, p->starts));
    return fetch_heads(plan, p, t, stream);
}

/* The lists of the call. Afterwards the problem has copies of them. */
static ta_status fetch_lists(const ta_plan *plan, ta_problem *p, tables *t, void *stream)
{
    ta_device *device = plan->device;
    size_t each = sizeof(int32_t), groups = p->prefix_starts ? (size_t)p->prefix_groups : 0;
    size_t words = p->selected ? (size_t)(p->rows * p->selected_stride) : 0;
    TA_TRY(make_copy(words, each, &t->selected));
    TA_TRY(make_copy(groups + 1, each, &t->prefix_starts));
    TA_TRY(make_copy(groups, each, &t->prefix_lengths));
    TA_TRY(make_copy(1, ta_selected_marks_bytes(p), &t->marks));
    TA_TRY(fetch(device, t->selected, p->selected, words * each, stream));
    if (groups)
        TA_TRY(fetch(device, t->prefix_starts, p->prefix_starts, (groups + 1) * each, stream));
    TA_TRY(fetch(device, t->prefix_lengths, p->prefix_lengths, groups * each, stream));
    TA_TRY(device->ops->synchronize(device, stream));
    p->selected = p->selected ? t->selected : NULL;
    p->prefix_starts = groups ? t->prefix_starts : NULL;
    p->prefix_lengths = groups ? t->prefix_lengths : NULL;
    return ta_call_check_prefixes(p);
}

/* Problem and cache, copies of the step's, get the tables that the host can see. */
static ta_status check_tables(const ta_plan *plan, ta_problem *p, ta_kv *kv, tables *t,
                              void *stream)
{
    ta_kv unpaged;
    TA_TRY(check_call(plan, p, t, stream));
    TA_TRY(fetch_lists(plan, p, t, stream));
    TA_TRY(fetch_lengths(plan, p, kv, t, stream));
    TA_TRY(fetch_scales(plan, p, kv, &kv->k_scale, &t->k_scales, stream));
    TA_TRY(fetch_scales(plan, p, kv, &kv->v_scale, &t->v_scales, stream));
    unpaged = *kv;
    unpaged.page_table = NULL; /* which entries there are, lengths and bounds say */
    TA_TRY(ta_check_host_kv(plan->device, p, &unpaged));
    if (kv->page_table) {
        TA_TRY(fetch_pages(plan, p, kv, t, stream));
        TA_TRY(ta_check_host_kv(plan->device, p, kv));
    }
    return p->selected ? ta_check_host_selected(p, kv, t->marks) : TA_OK;
}

/* As check_tables(), and the scales of the new tokens. */
static ta_status check_append(const ta_plan *plan, const ta_step *step, tables *t, void *stream)
{
    ta_problem p = step->problem;
    ta_kv kv = step->kv;
    TA_TRY(check_tables(plan, &p, &kv, t, stream));
    kv.k_scale = step->kv.k_scale;
    kv.v_scale = step->kv.v_scale;
    TA_TRY(make_copy(2 * (size_t)p.kv_heads, sizeof *t->new_scales, &t->new_scales));
    return ta_check_new_scales(plan->device, &p, &kv, &step->tokens, t->new_scales, stream);
}

/* ---- What ranks must share beside what they always compare: query, sinks and slopes ---- */

/* 0 if there are none. `t` has copies if the host cannot see them. */
static uint64_t hash_heads(const ta_plan *plan, const ta_problem *p, const tables *t)
{
    int visible = !plan->device->ops->alloc_host;
    uint32_t heads = (uint32_t)p->query_heads;
    uint64_t hash = 0;
    if (p->sinks)
        hash += ta_fault_mix(ta_hash_words(visible ? p->sinks : t->sinks, heads));
    if (p->alibi_slopes)
        hash += ta_fault_mix(~ta_hash_words(visible ? p->alibi_slopes : t->slopes, heads));
    return hash;
}

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

/* Add to *hash. */
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
    for (int64_t row = 0; row < rows; ++row)
        *hash += ta_fault_mix(
            ta_hash_words(t->query + (size_t)row * row_bytes, (uint32_t)(row_bytes / 4)) +
            (uint64_t)row);
    return TA_OK;
}

static ta_status check_capture(const ta_plan *plan, void *stream)
{
    if (ta_device_captures(plan->device, stream))
        return ta_fail(TA_ERR_UNSUPPORTED,
                       "stream %p is being captured: a step in checked mode waits for the device; "
                       "leave config.check at 0, and TREEATTN_CHECK unset",
                       stream);
    return TA_OK;
}

ta_status ta_check_append(ta_plan *plan, const ta_step *step, void *stream)
{
    tables t = {0};
    TA_TRY(check_capture(plan, stream));
    ta_status status = check_append(plan, step, &t, stream);
    free_tables(&t, plan->device, stream, status);
    return status;
}

ta_status ta_check_heads(ta_plan *plan, const ta_step *step, uint64_t *shared, void *stream)
{
    const ta_problem *p = &step->problem;
    tables t = {0};
    ta_status status = TA_OK;
    if (!p->sinks && !p->alibi_slopes)
        return TA_OK;
    TA_TRY(check_capture(plan, stream));
    if (plan->device->ops->alloc_host)
        status = fetch_heads(plan, p, &t, stream);
    if (status == TA_OK)
        *shared = hash_heads(plan, p, &t);
    free_tables(&t, plan->device, stream, status);
    return status;
}

ta_status ta_check_more(ta_plan *plan, const ta_step *step, uint64_t *shared, void *stream)
{
    const ta_device_ops *ops = plan->device->ops;
    ta_problem p = step->problem;
    ta_kv kv = step->kv;
    tables t = {0};
    ta_status status;
    TA_TRY(check_overlaps(plan, step));
    TA_TRY(check_capture(plan, stream));
    if (ops->alloc_host)
        TA_TRY_GOTO(check_tables(plan, &p, &kv, &t, stream), free_tables);
    *shared = hash_heads(plan, &step->problem, &t);
    if (plan->ranks > 1 && plan->query_placement == TA_PLACE_ALL)
        TA_TRY_GOTO(hash_query(plan, step, &t, shared, stream), free_tables);
    status = TA_OK;

free_tables:
    free_tables(&t, plan->device, stream, status);
    return status;
}
