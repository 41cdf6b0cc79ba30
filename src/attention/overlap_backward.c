/* Attention on a grid of ranks, backward, with overlap. The row's queries are gathered as without
 * it (grid.c). K and V rotate along the column with the gradients for them (rotation.h), while each
 * rank computes the gradients of the row's queries with the block that is there. So what moves
 * along the column is hidden, the first hop behind the row's gathers; the sum of dQ along the row
 * comes last. The bytes are the grid's, and there is room for two blocks of K, V, dK and dV in
 * place of the whole column's. */
#include "base/dtype.h"
#include "base/status.h"
#include "grid.h"
#include "rotation.h"

/* A block is K, then V of a rank's tokens; its sums dK, then dV. */
static ta_rotation column_rotation(const ta_attention *a)
{
    const ta_attention_work *s = &a->shape;
    size_t numbers = (size_t)s->kv_heads * (size_t)(s->k_dim + s->v_dim);
    return (ta_rotation){.line = &a->column,
                         .buffers = a->travel,
                         .block = numbers * ta_dtype_bytes(s->dtype),
                         .sums = numbers * sizeof(float)};
}

/* Numbers of K alone, of so many tokens; of K and V. */
static int64_t key_numbers(const ta_attention *a, int32_t tokens)
{
    return (int64_t)tokens * a->shape.kv_heads * a->shape.k_dim;
}

static int64_t block_numbers(const ta_attention *a, int32_t tokens)
{
    return key_numbers(a, tokens) + (int64_t)tokens * a->shape.kv_heads * a->shape.v_dim;
}

static int32_t tokens_after(const ta_attention *a, int hop)
{
    int owner = ta_rotation_owner(&a->column, hop);
    return a->column.starts[owner + 1] - a->column.starts[owner];
}

static ta_status pack_block(ta_attention *a, const ta_attention_input *input, char *block,
                            void *stream)
{
    const ta_attention_work *s = &a->shape;
    size_t each = ta_dtype_bytes(s->dtype);
    size_t key = (size_t)s->kv_heads * (size_t)s->k_dim * each;
    size_t value = (size_t)s->kv_heads * (size_t)s->v_dim * each;
    TA_TRY(ta_grid_pack(a, &input->k, s->kv_heads, s->k_dim, block, key, stream));
    return ta_grid_pack(a, &input->v, s->kv_heads, s->v_dim, block + (size_t)a->tokens * key, value,
                        stream);
}

/* The row's queries, and what is known of them, with the block that is here. `g` has what was
 * gathered. */
static ta_status add_block(ta_attention *a, const ta_attention_input *input, const ta_tensor *q,
                           ta_attention_work_gradient g, const ta_rotation *rotation, int hop,
                           void *stream)
{
    const ta_attention_work *s = &a->shape;
    ta_attention_work work;
    int32_t tokens = tokens_after(a, hop);
    char *block = ta_rotation_block(rotation, hop);
    float *dq = hop == 0 ? a->dq : a->ring_dq;
    float *sums = hop == 0                ? a->dk
                  : ta_rotation_adds(hop) ? a->received
                                          : ta_rotation_sums(rotation, hop);
    ta_attention_find_order(
        a, input, -1, ta_rotation_owner(&a->column, hop) * a->grid_columns + a->row.member, &work);
    work.q = *q;
    work.k = ta_grid_dense(block, s->kv_heads, s->k_dim);
    work.v = ta_grid_dense(block + (size_t)key_numbers(a, tokens) * ta_dtype_bytes(s->dtype),
                           s->kv_heads, s->v_dim);
    g.dq = ta_grid_dense(dq, s->query_heads, s->k_dim);
    g.dk = ta_grid_dense(sums, s->kv_heads, s->k_dim);
    g.dv = ta_grid_dense(sums + key_numbers(a, tokens), s->kv_heads, s->v_dim);
    TA_TRY(ta_attention_differentiate(a, &work, &g, stream));
    if (hop == 0)
        return TA_OK;
    return a->ops->add(a->device, a->dq, dq, (int64_t)work.queries * s->query_heads * s->k_dim,
                       stream);
}

/* Bring the row together; K and V are under way meanwhile. */
static ta_status gather_row(ta_attention *a, const ta_attention_input *input,
                            const ta_attention_gradient *gradient, ta_tensor *q,
                            ta_attention_work_gradient *g, void *stream)
{
    const ta_attention_work *s = &a->shape;
    TA_TRY(ta_grid_gather(a, &a->row, &input->q, s->query_heads, s->k_dim, a->q, q, stream));
    return ta_grid_gather_gradient(a, gradient, g, stream);
}

static ta_status rotate(ta_attention *a, const ta_attention_input *input,
                        const ta_attention_gradient *gradient, const ta_rotation *rotation,
                        void *stream)
{
    ta_tensor q;
    ta_attention_work_gradient g = {.dq_dtype = TA_F32, .kv_dtype = TA_F32};
    ta_status status = TA_OK;
    for (int hop = 0; hop < a->column.ranks; ++hop) {
        TA_TRY(ta_rotation_start(rotation, hop, stream));
        if (hop == 0)
            status = gather_row(a, input, gradient, &q, &g, stream);
        if (status == TA_OK)
            status = add_block(a, input, &q, g, rotation, hop, stream);
        TA_TRY(ta_rotation_finish(rotation, hop, stream)); /* also after a failure */
        TA_TRY(status);
        if (ta_rotation_adds(hop))
            TA_TRY(a->ops->add(a->device, ta_rotation_sums(rotation, hop), a->received,
                               block_numbers(a, tokens_after(a, hop)), stream));
    }
    TA_TRY(ta_rotation_home(rotation, a->received, stream));
    return a->ops->add(a->device, a->dk, a->received, block_numbers(a, a->tokens), stream);
}

ta_status ta_grid_overlap_backward(ta_attention *attention, const ta_attention_input *input,
                                   const ta_attention_gradient *gradient, void *stream)
{
    ta_attention *a = attention;
    const ta_attention_work *s = &a->shape;
    if (a->column.ranks == 1) /* nothing rotates */
        return ta_grid_backward(a, input, gradient, stream);
    ta_rotation rotation = column_rotation(a);
    TA_TRY(pack_block(a, input, ta_rotation_block(&rotation, 0), stream));
    TA_TRY(rotate(a, input, gradient, &rotation, stream));
    TA_TRY(a->ops->store(a->device, a->dk, a->tokens, s->kv_heads, s->k_dim, s->dtype,
                         &gradient->dk, stream));
    TA_TRY(a->ops->store(a->device, a->dk + key_numbers(a, a->tokens), a->tokens, s->kv_heads,
                         s->v_dim, s->dtype, &gradient->dv, stream));
    if (a->row.ranks > 1)
        return ta_grid_scatter(a, &a->row, s->query_heads, s->k_dim, a->dq, &gradient->dq, stream);
    return a->ops->store(a->device, a->dq, a->tokens, s->query_heads, s->k_dim, s->dtype,
                         &gradient->dq, stream);
}
