/* Attention on a grid of ranks. Rank (r, c) attends with the queries of row r to the keys of column
 * c. Forward: gather Q along the row, K and V along the column, attend once, then every rank of the
 * row gets the partials of its own queries from the others and merges them. Backward: gather also
 * dO, lse and delta along the row, compute the gradients of the block once, then sum dQ along the
 * row, dK and dV along the column. A line with one rank moves nothing. docs/attention2d.md has
 * pictures. */
#include "grid.h"

#include "base/dtype.h"
#include "base/partial.h"
#include "base/status.h"
#include "exchange/rounds.h"

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
                       char *to, size_t to_stride_bytes, void *stream)
{
    const ta_attention *a = attention;
    size_t each = ta_dtype_bytes(a->shape.dtype), row_bytes = (size_t)dim * each;
    size_t token_bytes = (size_t)heads * row_bytes;
    ta_device *device = a->device;
    int whole_tokens = from->head_stride == dim;
    if (whole_tokens && from->token_stride == (int64_t)heads * dim &&
        to_stride_bytes == token_bytes)
        return device->ops->copy(device, to, from->data, (size_t)a->tokens * token_bytes, stream);
    if (a->ops->pack)
        return a->ops->pack(device, from, a->tokens, heads, dim, a->shape.dtype, to,
                            to_stride_bytes, stream);
    for (int32_t token = 0; token < a->tokens; ++token)
        for (int32_t head = 0; head < (whole_tokens ? 1 : heads); ++head)
            TA_TRY(
                device->ops->copy(device, to + token * to_stride_bytes + head * row_bytes,
                                  ta_element(a->shape.dtype, from->data,
                                             token * from->token_stride + head * from->head_stride),
                                  whole_tokens ? token_bytes : row_bytes, stream));
    return TA_OK;
}

/* Bring the tokens of a line's ranks together; with one rank they are where they were. */
ta_status ta_grid_gather(ta_attention *attention, const ta_line *line, const ta_tensor *own,
                         int32_t heads, int32_t dim, void *buffer, ta_tensor *all, void *stream)
{
    ta_attention *a = attention;
    if (line->ranks == 1) {
        *all = *own;
        return TA_OK;
    }
    size_t token_bytes = (size_t)heads * (size_t)dim * ta_dtype_bytes(a->shape.dtype);
    const size_t *offsets = offsets_of(line, token_bytes);
    TA_TRY(ta_grid_pack(a, own, heads, dim, (char *)buffer + offsets[line->member], token_bytes,
                        stream));
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
    TA_TRY(a->device->ops->copy(a->device, (char *)buffer + offsets[line->member], own,
                                (size_t)a->tokens * token_bytes, stream));
    return ta_group_all_gather(line->group, buffer, offsets, stream);
}

/* The work of this rank in this call, with Q, K and V gathered. */
static ta_status gather_input(ta_attention *a, const ta_attention_input *input,
                              ta_attention_work *work, void *stream)
{
    ta_attention_find_order(a, input, -1, -1, work);
    TA_TRY(ta_grid_gather(a, &a->row, &input->q, work->query_heads, work->k_dim, a->q, &work->q,
                          stream));
    TA_TRY(ta_grid_gather(a, &a->column, &input->k, work->kv_heads, work->k_dim, a->k, &work->k,
                          stream));
    return ta_grid_gather(a, &a->column, &input->v, work->kv_heads, work->v_dim, a->v, &work->v,
                          stream);
}

/* Bring together what the ranks of a line have for each other: everybody sends every other rank the
 * part of that rank's tokens, and merges or adds what it gets for its own. The rounds are those of
 * a pairwise exchange (exchange/rounds.h) with a rank's tokens as its part; the order depends on
 * the ranks alone. Returns with this rank's part, at `own`, complete. */
static ta_status reduce_line(ta_attention *a, const ta_line *line, float *all, int64_t token_floats,
                             int merges, float **own, void *stream)
{
    int64_t floats = a->tokens * token_floats;
    *own = all + line->starts[line->member] * token_floats;
    for (int index = 0; line->ranks > 1 && index < ta_pairwise_count(line->ranks); ++index) {
        ta_round round = {.to = -1, .from = -1};
        ta_pairwise_block(line->ranks, line->member, index, line->ranks, &round);
        int64_t first = line->starts[round.given.first], end = line->starts[round.given.end];
        TA_TRY(ta_group_exchange(line->group, all + first * token_floats,
                                 (size_t)((end - first) * token_floats) * sizeof(float), round.to,
                                 a->received, (size_t)floats * sizeof(float), round.from, stream));
        if (merges)
            TA_TRY(ta_device_merge(a->device, *own, a->received,
                                   (int64_t)a->tokens * a->shape.query_heads, a->shape.v_dim,
                                   stream));
        else
            TA_TRY(a->ops->add(a->device, *own, a->received, floats, stream));
    }
    return TA_OK;
}

/* Returns with this rank's records complete. */
static ta_status merge_row(ta_attention *a, float **own, void *stream)
{
    int64_t token_floats = (int64_t)a->shape.query_heads * ta_record_floats(a->shape.v_dim);
    return reduce_line(a, &a->row, a->records, token_floats, 1, own, stream);
}

ta_status ta_grid_forward(ta_attention *attention, const ta_attention_input *input,
                          const ta_tensor *out, float *lse, void *stream)
{
    ta_attention *a = attention;
    ta_attention_work work;
    float *own;
    TA_TRY(gather_input(a, input, &work, stream));
    TA_TRY(ta_attention_attend(a, &work, a->records, stream));
    TA_TRY(merge_row(a, &own, stream));
    return a->ops->finish(a->device, &a->shape, own, a->tokens, out, lse, stream);
}

/* Sum one of the gradients along a line and store this rank's part; with one rank in the line it
 * is stored already. */
ta_status ta_grid_scatter(ta_attention *attention, const ta_line *line, int32_t heads, int32_t dim,
                          float *all, const ta_tensor *to, void *stream)
{
    ta_attention *a = attention;
    if (line->ranks == 1)
        return TA_OK;
    float *own;
    TA_TRY(reduce_line(a, line, all, (int64_t)heads * dim, 0, &own, stream));
    return a->ops->store(a->device, own, a->tokens, heads, dim, a->shape.dtype, to, stream);
}

ta_status ta_grid_gather_gradient(ta_attention *attention, const ta_attention_gradient *gradient,
                                  ta_attention_work_gradient *g, void *stream)
{
    ta_attention *a = attention;
    const ta_attention_work *s = &a->shape;
    TA_TRY(a->ops->delta(a->device, s, &gradient->dout, &gradient->out, a->tokens, a->own_delta,
                         stream));
    TA_TRY(ta_grid_gather(a, &a->row, &gradient->dout, s->query_heads, s->v_dim, a->dout, &g->dout,
                          stream));
    TA_TRY(gather_numbers(a, gradient->lse, a->lse, &g->lse, stream));
    return gather_numbers(a, a->own_delta, a->delta, &g->delta, stream);
}

ta_status ta_grid_backward(ta_attention *attention, const ta_attention_input *input,
                           const ta_attention_gradient *gradient, void *stream)
{
    ta_attention *a = attention;
    const ta_attention_work *s = &a->shape;
    ta_attention_work work;
    ta_attention_work_gradient g = {.dq_dtype = s->dtype, .kv_dtype = s->dtype};
    TA_TRY(gather_input(a, input, &work, stream));
    TA_TRY(ta_grid_gather_gradient(a, gradient, &g, stream));
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
    TA_TRY(ta_attention_differentiate(a, &work, &g, stream));
    TA_TRY(ta_grid_scatter(a, &a->row, s->query_heads, s->k_dim, a->dq, &gradient->dq, stream));
    TA_TRY(ta_grid_scatter(a, &a->column, s->kv_heads, s->k_dim, a->dk, &gradient->dk, stream));
    return ta_grid_scatter(a, &a->column, s->kv_heads, s->v_dim, a->dv, &gradient->dv, stream);
}
