/* Attention on a grid of ranks. Rank (r, c) attends with the queries of row r to the keys of column
 * c. Forward: gather Q along the row, K and V along the column, attend once, then every rank of the
 * row gets the partials of its own queries from the others and merges them. Backward: gather also
 * dO, lse and delta along the row, compute the gradients of the block once, then sum dQ along the
 * row, dK and dV along the column. A line with one rank moves nothing. docs/attention2d.md has
 * pictures. */
#include "grid.h"

#include "../dtype.h"
#include "../partial.h"
#include "../status.h"

/* Offsets of a line's ranks in a gathered buffer, `each` for every token. */
static const size_t *offsets_of(const ta_line *line, size_t each)
{
    for (int i = 0; i <= line->ranks; ++i)
        line->offsets[i] = (size_t)line->starts[i] * each;
    return line->offsets;
}

ta_tensor ta_grid_dense(void *data, int32_t heads, int32_t dim)
{
    return (ta_tensor){
        .data = data, .token_stride = (int64_t)heads * dim, .head_stride = (int64_t)dim};
}

ta_status ta_grid_pack(ta_attention *attention, const ta_tensor *from, int32_t heads, int32_t dim,
                       char *to, void *stream)
{
    const ta_attention *a = attention;
    size_t each = ta_dtype_bytes(a->shape.dtype), row_bytes = (size_t)dim * each;
    ta_device *device = a->device;
    if (from->head_stride == dim && from->token_stride == (int64_t)heads * dim)
        return device->ops->copy(device, to, from->data,
                                 (size_t)a->tokens * (size_t)heads * row_bytes, stream);
    if (a->local->pack)
        return a->local->pack(device, from, a->tokens, heads, dim, a->shape.dtype, to,
                              (size_t)heads * row_bytes, stream);
    for (int32_t token = 0; token < a->tokens; ++token)
        for (int32_t head = 0; head < heads; ++head, to += row_bytes)
            TA_TRY(
                device->ops->copy(device, to,
                                  ta_element(a->shape.dtype, from->data,
                                             token * from->token_stride + head * from->head_stride),
                                  row_bytes, stream));
    return TA_OK;
}

/* Bring the tokens of a line's ranks together; with one rank they are where they were. */
static ta_status gather(ta_attention *a, const ta_line *line, const ta_tensor *own, int32_t heads,
                        int32_t dim, void *buffer, ta_tensor *all, void *stream)
{
    if (line->ranks == 1) {
        *all = *own;
        return TA_OK;
    }
    size_t token_bytes = (size_t)heads * (size_t)dim * ta_dtype_bytes(a->shape.dtype);
    const size_t *offsets = offsets_of(line, token_bytes);
    TA_TRY(ta_grid_pack(a, own, heads, dim, (char *)buffer + offsets[line->place], stream));
    *all = ta_grid_dense(buffer, heads, dim);
    return ta_group_all_gather(line->group, buffer, offsets, stream);
}

/* The same for one number of each query head. */
static ta_status gather_numbers(ta_attention *a, const float *own, float *buffer, const float **all,
                                void *stream)
{
    const ta_line *line = &a->row;
    size_t token_bytes = (size_t)a->shape.query_heads * sizeof(float);
    *all = own;
    if (line->ranks == 1)
        return TA_OK;
    const size_t *offsets = offsets_of(line, token_bytes);
    *all = buffer;
    TA_TRY(a->device->ops->copy(a->device, (char *)buffer + offsets[line->place], own,
                                (size_t)a->tokens * token_bytes, stream));
    return ta_group_all_gather(line->group, buffer, offsets, stream);
}

/* The work of this rank in this call, with Q, K and V gathered. */
static ta_status gather_input(ta_attention *a, const ta_attention_input *input, ta_local *work,
                              void *stream)
{
    *work = a->shape;
    work->queries = a->row.starts[a->row.ranks];
    work->keys = a->column.starts[a->column.ranks];
    work->query_rows = a->row.rows;
    work->key_rows = a->column.rows;
    work->visible = a->visible;
    TA_TRY(gather(a, &a->row, &input->q, work->query_heads, work->k_dim, a->q, &work->q, stream));
    TA_TRY(gather(a, &a->column, &input->k, work->kv_heads, work->k_dim, a->k, &work->k, stream));
    return gather(a, &a->column, &input->v, work->kv_heads, work->v_dim, a->v, &work->v, stream);
}

/* Everybody in the row sends each other rank the partials of that rank's queries, first to the next
 * one, and merges what it gets for its own: the order depends on the ranks alone. Returns with this
 * rank's records complete. */
static ta_status merge_row(ta_attention *a, float **own, void *stream)
{
    const ta_line *line = &a->row;
    int64_t token_floats = (int64_t)a->shape.query_heads * ta_record_floats(a->shape.v_dim);
    size_t own_bytes = (size_t)(a->tokens * token_floats) * sizeof(float);
    *own = a->records + line->starts[line->place] * token_floats;
    for (int distance = 1; distance < line->ranks; ++distance) {
        int next = (line->place + distance) % line->ranks;
        int previous = (line->place + line->ranks - distance) % line->ranks;
        int64_t theirs = line->starts[next + 1] - line->starts[next];
        TA_TRY(ta_group_exchange(line->group, a->records + line->starts[next] * token_floats,
                                 (size_t)(theirs * token_floats) * sizeof(float), next, a->received,
                                 own_bytes, previous, stream));
        TA_TRY(a->device->ops->merge(a->device, *own, a->received,
                                     (int64_t)a->tokens * a->shape.query_heads, a->shape.v_dim,
                                     stream));
    }
    return TA_OK;
}

ta_status ta_grid_forward(ta_attention *attention, const ta_attention_input *input,
                          const ta_tensor *out, float *lse, void *stream)
{
    ta_attention *a = attention;
    ta_local work;
    float *own;
    TA_TRY(gather_input(a, input, &work, stream));
    TA_TRY(a->local->forward(a->device, &work, a->records, a->workspace, stream));
    TA_TRY(merge_row(a, &own, stream));
    return a->local->finish(a->device, &a->shape, own, a->tokens, out, lse, stream);
}

/* Sum one of the gradients along a line and store this rank's part; with one rank in the line it
 * is stored already. */
static ta_status scatter(ta_attention *a, const ta_line *line, int32_t heads, int32_t dim,
                         float *all, const ta_tensor *to, void *stream)
{
    if (line->ranks == 1)
        return TA_OK;
    const size_t *offsets = offsets_of(line, (size_t)heads * (size_t)dim);
    float *own = all + offsets[line->place];
    TA_TRY(ta_group_reduce_scatter(line->group, all, own, offsets, TA_ELEMENT_F32, TA_REDUCE_SUM,
                                   stream));
    return a->local->store(a->device, own, a->tokens, heads, dim, a->shape.dtype, to, stream);
}

ta_status ta_grid_backward(ta_attention *attention, const ta_attention_input *input,
                           const ta_attention_gradient *gradient, void *stream)
{
    ta_attention *a = attention;
    const ta_local *s = &a->shape;
    ta_local work;
    ta_local_gradient g = {.dq_dtype = s->dtype, .kv_dtype = s->dtype};
    TA_TRY(gather_input(a, input, &work, stream));
    TA_TRY(a->local->delta(a->device, s, &gradient->dout, &gradient->out, a->tokens, a->own_delta,
                           stream));
    TA_TRY(gather(a, &a->row, &gradient->dout, s->query_heads, s->v_dim, a->dout, &g.dout, stream));
    TA_TRY(gather_numbers(a, gradient->lse, a->lse, &g.lse, stream));
    TA_TRY(gather_numbers(a, a->own_delta, a->delta, &g.delta, stream));
    g.dq = gradient->dq;
    g.dk = gradient->dk;
    g.dv = gradient->dv;
    if (a->row.ranks > 1) {
        g.dq_dtype = TA_F32;
        g.dq = ta_grid_dense(a->dq, s->query_heads, s->k_dim);
    }
    if (a->column.ranks > 1) {
        g.kv_dtype = TA_F32;
        g.dk = ta_grid_dense(a->dk, s->kv_heads, s->k_dim);
        g.dv = ta_grid_dense(a->dv, s->kv_heads, s->v_dim);
    }
    TA_TRY(a->local->backward(a->device, &work, &g, a->workspace, stream));
    TA_TRY(scatter(a, &a->row, s->query_heads, s->k_dim, a->dq, &gradient->dq, stream));
    TA_TRY(scatter(a, &a->column, s->kv_heads, s->k_dim, a->dk, &gradient->dk, stream));
    return scatter(a, &a->column, s->kv_heads, s->v_dim, a->dv, &gradient->dv, stream);
}
