/* The buffers of one rank in a decode case: see case.h. All memory is poisoned first; then only
 * what the rank holds is written, so a read of anything else shows in the result. */
#include "case.h"

#include <stdlib.h>
#include <string.h>

#include "device/device.h"
#include "number.h"

enum { BATCH, TOKEN, HEAD };

/* The axes from the outermost to the innermost. */
static const int orders[6][3] = {{BATCH, TOKEN, HEAD}, {BATCH, HEAD, TOKEN}, {TOKEN, BATCH, HEAD},
                                 {TOKEN, HEAD, BATCH}, {HEAD, BATCH, TOKEN}, {HEAD, TOKEN, BATCH}};

static void *allocate(size_t bytes)
{
    void *memory = malloc(bytes ? bytes : 1);
    if (!memory)
        abort();
    return memory;
}

int64_t case_buffer_index(const case_buffer *buffer, int batch, int token, int head, int d)
{
    int64_t start = ((char *)buffer->tensor.data - (char *)buffer->memory) /
                    (int64_t)number_bytes(buffer->dtype);
    return start + batch * buffer->stride[BATCH] + token * buffer->stride[TOKEN] +
           head * buffer->stride[HEAD] + d;
}

static void buffer_make(const case_layout *layout, ta_dtype dtype, int64_t batch, int64_t tokens,
                        int64_t heads, int dim, case_buffer *buffer)
{
    int64_t extent[3] = {batch, tokens, heads}, next = dim, last = dim - 1;
    const int pad[3] = {layout->pad_batch, layout->pad_token, layout->pad_head};
    memset(buffer, 0, sizeof *buffer);
    buffer->dtype = dtype;
    if (batch * tokens * heads == 0)
        return;
    for (int i = 2; i >= 0; --i) {
        int axis = orders[layout->order][i];
        buffer->stride[axis] = next + pad[axis];
        next = buffer->stride[axis] * extent[axis];
        last += buffer->stride[axis] * (extent[axis] - 1);
    }
    /* Ends with the last element, so that a sanitizer sees a read beyond it. */
    buffer->count = layout->offset + last + 1;
    buffer->memory = allocate((size_t)buffer->count * number_bytes(dtype));
    number_poison(dtype, buffer->memory, buffer->count);
    buffer->tensor.data = (char *)buffer->memory + (size_t)layout->offset * number_bytes(dtype);
    if (layout->strides_given) {
        buffer->tensor.batch_stride = buffer->stride[BATCH];
        buffer->tensor.token_stride = buffer->stride[TOKEN];
        buffer->tensor.head_stride = buffer->stride[HEAD];
    }
}

/* The heads of a tensor that a rank has. */
static void place_heads(const decode_case *c, ta_placement placement, int root, int rank,
                        int *first, int *count)
{
    int heads = c->plan.query_heads;
    *first = 0;
    *count = placement == TA_PLACE_ROOT && rank != root ? 0 : heads;
    if (placement == TA_PLACE_HEADS) {
        *first = heads * rank / c->ranks;
        *count = heads * (rank + 1) / c->ranks - *first;
    }
}

/* Copy vector `row` of a dense array to an index in a buffer. */
static void store_vector(case_buffer *buffer, int64_t index, const void *dense, int64_t row,
                         int dim)
{
    size_t bytes = number_bytes(buffer->dtype);
    memcpy((char *)buffer->memory + (size_t)index * bytes,
           (const char *)dense + (size_t)(row * dim) * bytes, (size_t)dim * bytes);
}

int64_t case_row_index(const decode_case *c, const case_buffer *buffer, int sequence, int token,
                       int head)
{
    if (c->ragged)
        return case_buffer_index(buffer, 0, (int)case_first_row(c, sequence) + token, head, 0);
    return case_buffer_index(buffer, sequence, token, head, 0);
}

/* A query or output: packed if the call is ragged. */
static void make_rows(const decode_case *c, const case_layout *layout, ta_dtype dtype, int heads,
                      int dim, case_buffer *buffer)
{
    if (c->ragged)
        buffer_make(layout, dtype, 1, case_rows(c), heads, dim, buffer);
    else
        buffer_make(layout, dtype, c->plan.batch, c->plan.query_tokens, heads, dim, buffer);
}

static void make_query(const decode_case *c, const case_data *data, case_shard *shard)
{
    const ta_plan_config *p = &c->plan;
    ta_dtype dtype = p->query_dtype ? p->query_dtype : p->kv_dtype;
    make_rows(c, &c->q, dtype, shard->query_count, p->k_dim, &shard->q);
    for (int b = 0; b < p->batch; ++b)
        for (int t = 0; t < case_query_tokens(c, b); ++t)
            for (int h = 0; h < shard->query_count; ++h) {
                int64_t row = (int64_t)t * p->query_heads + shard->query_first + h;
                store_vector(&shard->q, case_row_index(c, &shard->q, b, t, h), data->q_stored[b],
                             row, p->k_dim);
            }
}

static void make_output(const decode_case *c, case_shard *shard)
{
    const ta_plan_config *p = &c->plan;
    ta_dtype dtype = p->out_dtype ? p->out_dtype : shard->q.dtype;
    make_rows(c, &c->out, dtype, shard->out_count, p->v_dim, &shard->out);
    shard->out.used = calloc((size_t)shard->out.count + 1, sizeof(bool));
    for (int b = 0; b < p->batch; ++b)
        for (int t = 0; t < case_query_tokens(c, b); ++t)
            for (int h = 0; h < shard->out_count; ++h)
                memset(shard->out.used + case_row_index(c, &shard->out, b, t, h), true,
                       (size_t)p->v_dim);
    shard->lse_count = case_rows(c) * shard->out_count;
    shard->lse = allocate((size_t)(shard->lse_count + 2 * CASE_GUARD) * sizeof(float));
    number_poison(TA_F32, shard->lse, shard->lse_count + 2 * CASE_GUARD);
}

/* Give every sequence enough pages, in random or nearly ascending order, and leave some unused.
 * Entries that are not in use are no page at all. */
static void make_page_table(const decode_case *c, const case_data *data, const int32_t *held,
                            random_source *r, case_shard *shard)
{
    int batch = c->plan.batch, entries = data->max_tokens / c->page_tokens + 2, needed = 0;
    for (int b = 0; b < batch; ++b)
        needed += (held[b] + c->page_tokens - 1) / c->page_tokens;
    int pages = needed + c->spare_pages > 0 ? needed + c->spare_pages : 1;
    int32_t *pool = allocate((size_t)pages * sizeof *pool);
    for (int i = 0; i < pages; ++i) {
        int in_place = c->orderly_pages && !random_one_in(r, c->orderly_pages);
        int other = in_place ? i : random_int(r, 0, i);
        pool[i] = pool[other];
        pool[other] = i;
    }
    shard->page_table_count = (size_t)(batch * entries);
    shard->page_table = allocate(shard->page_table_count * sizeof *shard->page_table);
    int taken = 0;
    for (int b = 0; b < batch; ++b)
        for (int i = 0; i < entries; ++i)
            shard->page_table[b * entries + i] =
                (int64_t)i * c->page_tokens < held[b] ? pool[taken++] : INT32_MIN + i;
    free(pool);
    shard->kv.page_table = shard->page_table;
    shard->kv.page_table_stride = entries;
    shard->kv.page_tokens = c->page_tokens;
    shard->kv.page_count = pages;
}

/* The scales of one side, of just the size that they must have, poisoned but for those of the
 * tokens that the rank holds. Token and head may come in either order, with a gap. */
static void make_scales(const decode_case *c, case_scales kind, float *const *dense, int64_t outer,
                        int64_t inner, float **memory, size_t *count, ta_scales *scales)
{
    int64_t heads = c->plan.kv_heads, gap = (int64_t)(c->seed % 3);
    if (kind == CASE_SCALES_NONE || outer * inner == 0)
        return;
    if (kind == CASE_SCALES_HEADS)
        scales->head_stride = 1 + gap;
    if (kind == CASE_SCALES_TOKENS && c->seed % 2) {
        scales->head_stride = inner + gap;
        scales->token_stride = 1;
        scales->batch_stride = heads * scales->head_stride;
    } else if (kind == CASE_SCALES_TOKENS) {
        scales->head_stride = 1;
        scales->token_stride = heads + gap;
        scales->batch_stride = inner * scales->token_stride;
    }
    *count = (size_t)((outer - 1) * scales->batch_stride + (inner - 1) * scales->token_stride +
                      (heads - 1) * scales->head_stride + 1);
    *memory = allocate(*count * sizeof(float));
    number_poison(TA_F32, *memory, (int64_t)*count);
    scales->data = *memory;
    for (int b = 0; b < c->plan.batch; ++b) /* those of all tokens: also where no token is */
        for (int h = 0; kind != CASE_SCALES_TOKENS && h < heads; ++h)
            if (b == 0 || c->lengths[b])
                (*memory)[h * scales->head_stride] = c->lengths[b] ? dense[b][h] : 1.0f;
}

static void store_scale(const ta_scales *scales, int64_t outer, int64_t inner, int head,
                        const float *dense, int64_t index)
{
    if (scales->data)
        scales->data[outer * scales->batch_stride + inner * scales->token_stride +
                     head * scales->head_stride] = dense[index];
}

static void store_token(const decode_case *c, const case_data *data, int b, int32_t position,
                        int32_t local, case_shard *shard)
{
    const ta_plan_config *p = &c->plan;
    int outer = b, inner = local;
    if (c->paged) {
        outer = shard->page_table[b * shard->kv.page_table_stride + local / c->page_tokens];
        inner = local % c->page_tokens;
    }
    for (int h = 0; h < p->kv_heads; ++h) {
        int64_t index = (int64_t)position * p->kv_heads + h;
        store_vector(&shard->k, case_buffer_index(&shard->k, outer, inner, h, 0), data->k_stored[b],
                     index, p->k_dim);
        if (!c->v_in_k)
            store_vector(&shard->v, case_buffer_index(&shard->v, outer, inner, h, 0),
                         data->v_stored[b], index, p->v_dim);
        store_scale(&shard->kv.k_scale, outer, inner, h, data->k_scales[b], index);
        store_scale(&shard->kv.v_scale, outer, inner, h, data->v_scales[b], index);
    }
}

static void make_cache(const decode_case *c, const case_data *data, int rank, random_source *r,
                       case_shard *shard)
{
    const ta_plan_config *p = &c->plan;
    int32_t held[CASE_MAX_BATCH] = {0};
    for (int b = 0; b < p->batch; ++b)
        for (int32_t y = 0; y < c->lengths[b]; ++y)
            held[b] += case_owner(c, data, b, y) == rank;
    int64_t outer = p->batch, inner = data->max_tokens;
    if (c->paged) {
        make_page_table(c, data, held, r, shard);
        outer = shard->kv.page_count;
        inner = c->page_tokens;
    }
    buffer_make(&c->k, p->kv_dtype, outer, inner, p->kv_heads, p->k_dim, &shard->k);
    if (c->v_in_k) {
        shard->v.tensor.data =
            (char *)shard->k.tensor.data + (size_t)c->v_offset * number_bytes(p->kv_dtype);
        shard->v.tensor.batch_stride = shard->k.stride[BATCH];
        shard->v.tensor.token_stride = shard->k.stride[TOKEN];
        shard->v.tensor.head_stride = shard->k.stride[HEAD];
    } else {
        buffer_make(&c->v, p->kv_dtype, outer, inner, p->kv_heads, p->v_dim, &shard->v);
    }
    make_scales(c, c->k_scale, data->k_scales, outer, inner, &shard->k_scales,
                &shard->k_scales_count, &shard->kv.k_scale);
    make_scales(c, c->v_scale, data->v_scales, outer, inner, &shard->v_scales,
                &shard->v_scales_count, &shard->kv.v_scale);
    for (int b = 0; b < p->batch; ++b)
        for (int32_t y = 0, local = 0; y < c->lengths[b]; ++y)
            if (case_owner(c, data, b, y) == rank) {
                if (y >= case_borrowed(c, b)) /* the rest is the other's, and not looked at here */
                    store_token(c, data, b, y, local, shard);
                ++local;
            }
}

/* What the call adds to the plan: of exactly the size that it must have. */
static void make_call(const decode_case *c, const case_data *data, case_shard *shard)
{
    const ta_plan_config *p = &c->plan;
    ta_call *call = &shard->call;
    size_t bytes = (size_t)p->query_heads * sizeof(float);
    *call = (ta_call)TA_CALL_INIT;
    shard->head_count = (size_t)p->query_heads;
    call->batch = c->spare_batch ? p->batch : 0;
    if (c->ragged) {
        call->tokens = (int32_t)case_rows(c);
        shard->starts_count = (size_t)p->batch + 1;
        call->starts = shard->starts = allocate(shard->starts_count * sizeof *shard->starts);
        for (int b = 0; b <= p->batch; ++b)
            shard->starts[b] = (int32_t)case_first_row(c, b);
    }
    if (c->call_window)
        call->window = p->window ? p->window : -1;
    if (c->call_softcap)
        call->softcap = p->softcap != 0.0f ? p->softcap : -1.0f;
    if (c->call_alibi)
        call->alibi_slopes = shard->slopes = memcpy(allocate(bytes), data->alibi, bytes);
    if (c->call_sinks)
        call->sinks = shard->sinks = memcpy(allocate(bytes), data->sinks, bytes);
}

/* Pages that have only tokens of another sequence are none. */
static void drop_borrowed_pages(const decode_case *c, const case_data *data, int rank,
                                case_shard *shard)
{
    for (int b = 0; b < c->plan.batch; ++b) {
        int32_t held = 0;
        for (int32_t y = 0; y < case_borrowed(c, b); ++y)
            held += case_owner(c, data, b, y) == rank;
        for (int32_t i = 0; i < held / c->page_tokens; ++i)
            shard->page_table[b * shard->kv.page_table_stride + i] = INT32_MIN + i;
    }
}

static int32_t *copy_of(const int32_t *from, size_t count)
{
    return memcpy(allocate(count * sizeof *from), from, count * sizeof *from);
}

static void make_lists(const decode_case *c, const case_data *data, case_shard *shard)
{
    ta_call *call = &shard->call;
    if (c->selected) {
        shard->selected_count = (size_t)data->selected_words;
        call->selected = shard->selected = copy_of(data->selected, shard->selected_count);
        call->selected_count = c->selected;
        call->selected_lists = c->selected_each ? c->plan.kv_heads : (int)(c->seed % 2);
    }
    if (!c->prefixes)
        return;
    int32_t starts[CASE_MAX_BATCH + 1], lengths[CASE_MAX_BATCH];
    for (int b = 0; b < c->plan.batch; ++b)
        if (c->group[b] == b) {
            starts[call->prefix_groups] = b;
            lengths[call->prefix_groups++] = c->prefix[b];
        }
    starts[call->prefix_groups] = c->plan.batch;
    call->prefix_starts = shard->prefix_starts = copy_of(starts, (size_t)call->prefix_groups + 1);
    call->prefix_lengths = shard->prefix_lengths = copy_of(lengths, (size_t)call->prefix_groups);
}

void case_shard_make(const decode_case *c, const case_data *data, int rank, case_shard *shard)
{
    const ta_plan_config *p = &c->plan;
    random_source source = random_from(c->seed + 77u * (unsigned)rank);
    memset(shard, 0, sizeof *shard);
    shard->kv = (ta_kv)TA_KV_INIT;
    place_heads(c, p->query_placement, p->query_root, rank, &shard->query_first,
                &shard->query_count);
    place_heads(c, p->out_placement, p->out_root, rank, &shard->out_first, &shard->out_count);
    make_query(c, data, shard);
    make_output(c, shard);
    make_cache(c, data, rank, &source, shard);
    shard->kv.k = shard->k.tensor;
    shard->kv.v = shard->v.tensor;
    shard->lengths_count = (size_t)p->batch;
    shard->lengths = allocate(shard->lengths_count * sizeof *shard->lengths);
    memcpy(shard->lengths, c->lengths, shard->lengths_count * sizeof *shard->lengths);
    shard->kv.lengths = shard->lengths;
    make_call(c, data, shard);
    make_lists(c, data, shard);
    if (c->paged)
        drop_borrowed_pages(c, data, rank, shard);
    if (c->bounds == CASE_BOUNDS_NONE)
        return;
    int rows = c->bounds == CASE_BOUNDS_EACH ? p->batch : 1, stride = c->ranks + 1 + 2;
    shard->bounds_count = (size_t)(rows * stride);
    shard->bounds = allocate(shard->bounds_count * sizeof *shard->bounds);
    memset(shard->bounds, 0xa5, shard->bounds_count * sizeof *shard->bounds);
    for (int b = 0; b < rows; ++b)
        memcpy(shard->bounds + b * stride, data->bounds[b],
               (size_t)(c->ranks + 1) * sizeof *shard->bounds);
    shard->kv.bounds = shard->bounds;
    shard->kv.bounds_stride = c->bounds == CASE_BOUNDS_EACH ? stride : 0;
}

void case_shard_free(case_shard *shard)
{
    for (int i = 0; i < shard->copy_count; ++i)
        shard->device->ops->free(shard->device, shard->copies[i].device);
    free(shard->q.memory);
    free(shard->k.memory);
    free(shard->v.memory);
    free(shard->out.memory);
    free(shard->out.used);
    free(shard->lse);
    free(shard->lengths);
    free(shard->page_table);
    free(shard->bounds);
    free(shard->starts);
    free(shard->selected);
    free(shard->prefix_starts);
    free(shard->prefix_lengths);
    free(shard->slopes);
    free(shard->sinks);
    free(shard->k_scales);
    free(shard->v_scales);
}
