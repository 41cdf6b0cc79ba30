/* Attention over full sequences on a ring: the baseline for the grid. Every rank keeps its queries;
 * K and V of all ranks go round, P - 1 hops, in native heads, and while one block is attended to
 * the next is under way. Backward: dK and dV go round with their block, one hop behind it, and are
 * home after P hops; dQ stays. Partials and the merge are the grid's. */
#include "grid.h"

#include "base/dtype.h"
#include "base/neighbors.h"
#include "base/partial.h"
#include "base/status.h"

/* K and V of one rank's tokens, dense, one behind the other. */
static size_t key_bytes(const ta_attention *a, int rank)
{
    return (size_t)a->counts[rank] * (size_t)a->shape.kv_heads * (size_t)a->shape.k_dim *
           ta_dtype_bytes(a->shape.dtype);
}

static size_t block_bytes(const ta_attention *a, int rank)
{
    return key_bytes(a, rank) + (size_t)a->counts[rank] * (size_t)a->shape.kv_heads *
                                    (size_t)a->shape.v_dim * ta_dtype_bytes(a->shape.dtype);
}

/* Numbers of dK and dV of one rank's tokens, likewise. */
static int64_t key_numbers(const ta_attention *a, int rank)
{
    return (int64_t)a->counts[rank] * a->shape.kv_heads * a->shape.k_dim;
}

static int64_t block_numbers(const ta_attention *a, int rank)
{
    return key_numbers(a, rank) + (int64_t)a->counts[rank] * a->shape.kv_heads * a->shape.v_dim;
}

/* Whose block is here after so many hops. */
static int owner_after(const ta_attention *a, int hops)
{
    return (a->rank + a->ranks - hops % a->ranks) % a->ranks;
}

static int next_rank(const ta_attention *a)
{
    return ta_next_rank(a->rank, a->ranks);
}

static int previous_rank(const ta_attention *a)
{
    return ta_previous_rank(a->rank, a->ranks);
}

static ta_status pack_block(ta_attention *a, const ta_attention_input *input, void *stream)
{
    const ta_attention_work *s = &a->shape;
    size_t key = (size_t)s->kv_heads * (size_t)s->k_dim * ta_dtype_bytes(s->dtype);
    size_t value = (size_t)s->kv_heads * (size_t)s->v_dim * ta_dtype_bytes(s->dtype);
    TA_TRY(ta_grid_pack(a, &input->k, s->kv_heads, s->k_dim, a->ring_kv[0], key, stream));
    return ta_grid_pack(a, &input->v, s->kv_heads, s->v_dim, a->ring_kv[0] + key_bytes(a, a->rank),
                        value, stream);
}

/* Send this block on while it is worked on; the last one is not needed any further. */
static ta_status start_hop(ta_attention *a, int hop, void *stream)
{
    if (hop == a->ranks - 1)
        return TA_OK;
    return ta_group_start(a->group, a->ring_kv[hop % 2], block_bytes(a, owner_after(a, hop)),
                          next_rank(a), a->ring_kv[(hop + 1) % 2],
                          block_bytes(a, owner_after(a, hop + 1)), previous_rank(a), stream);
}

static ta_status finish_hop(ta_attention *a, int hop, void *stream)
{
    return hop == a->ranks - 1 ? TA_OK : ta_group_finish(a->group, stream);
}

/* This rank's queries against the block that is here. */
static void find_block(ta_attention *a, const ta_attention_input *input, int hop,
                       ta_attention_work *work)
{
    const ta_attention_work *s = &a->shape;
    int owner = owner_after(a, hop);
    char *block = a->ring_kv[hop % 2];
    ta_attention_find_order(a, input, a->rank, owner, work);
    work->q = input->q;
    work->k = ta_grid_dense(block, s->kv_heads, s->k_dim);
    work->v = ta_grid_dense(block + key_bytes(a, owner), s->kv_heads, s->v_dim);
}

static ta_status attend_block(ta_attention *a, const ta_attention_input *input, int hop,
                              void *stream)
{
    ta_attention_work work;
    find_block(a, input, hop, &work);
    TA_TRY(ta_attention_attend(a, &work, hop == 0 ? a->records : a->received, stream));
    if (hop == 0)
        return TA_OK;
    return ta_device_merge(a->device, a->records, a->received,
                           (int64_t)a->tokens * a->shape.query_heads, a->shape.v_dim, stream);
}

ta_status ta_ring_forward(ta_attention *attention, const ta_attention_input *input,
                          const ta_tensor *out, float *lse, void *stream)
{
    ta_attention *a = attention;
    TA_TRY(pack_block(a, input, stream));
    for (int hop = 0; hop < a->ranks; ++hop) {
        TA_TRY(start_hop(a, hop, stream));
        ta_status status = attend_block(a, input, hop, stream);
        TA_TRY(finish_hop(a, hop, stream)); /* also after a failure: the buffers are in use */
        TA_TRY(status);
    }
    return a->ops->finish(a->device, &a->shape, a->records, a->tokens, out, lse, stream);
}

/* The gradients of one block; those of its keys are added to what came with it. */
static ta_status add_block(ta_attention *a, const ta_attention_input *input,
                           const ta_attention_gradient *gradient, int hop, void *stream)
{
    const ta_attention_work *s = &a->shape;
    ta_attention_work work;
    int owner = owner_after(a, hop);
    float *dq = hop == 0 ? a->dq : a->ring_dq;
    float *block = hop == 0 ? a->ring_sums[0] : a->ring_block;
    find_block(a, input, hop, &work);
    ta_attention_work_gradient g = {
        .dout = gradient->dout,
        .lse = gradient->lse,
        .delta = a->own_delta,
        .dq_dtype = TA_F32,
        .kv_dtype = TA_F32,
        .dq = ta_grid_dense(dq, s->query_heads, s->k_dim),
        .dk = ta_grid_dense(block, s->kv_heads, s->k_dim),
        .dv = ta_grid_dense(block + key_numbers(a, owner), s->kv_heads, s->v_dim)};
    TA_TRY(ta_attention_differentiate(a, &work, &g, stream));
    if (hop == 0)
        return TA_OK;
    TA_TRY(
        a->ops->add(a->device, a->dq, dq, (int64_t)a->tokens * s->query_heads * s->k_dim, stream));
    return a->ops->add(a->device, a->ring_sums[hop % 2], block, block_numbers(a, owner), stream);
}

/* Pass the gradients of the block that was here on to where the block is now. */
static ta_status pass_sums(ta_attention *a, int hop, void *stream)
{
    size_t each = sizeof(float);
    return ta_group_exchange(
        a->group, a->ring_sums[hop % 2], (size_t)block_numbers(a, owner_after(a, hop)) * each,
        next_rank(a), a->ring_sums[(hop + 1) % 2],
        (size_t)block_numbers(a, owner_after(a, hop + 1)) * each, previous_rank(a), stream);
}

ta_status ta_ring_backward(ta_attention *attention, const ta_attention_input *input,
                           const ta_attention_gradient *gradient, void *stream)
{
    ta_attention *a = attention;
    const ta_attention_work *s = &a->shape;
    TA_TRY(a->ops->delta(a->device, s, &gradient->dout, &gradient->out, a->tokens, a->own_delta,
                         stream));
    TA_TRY(pack_block(a, input, stream));
    for (int hop = 0; hop < a->ranks; ++hop) {
        TA_TRY(start_hop(a, hop, stream));
        ta_status status = add_block(a, input, gradient, hop, stream);
        TA_TRY(finish_hop(a, hop, stream));
        TA_TRY(status);
        if (a->ranks > 1)
            TA_TRY(pass_sums(a, hop, stream));
    }
    const float *own = a->ring_sums[a->ranks > 1 ? a->ranks % 2 : 0];
    TA_TRY(a->ops->store(a->device, a->dq, a->tokens, s->query_heads, s->k_dim, s->dtype,
                         &gradient->dq, stream));
    TA_TRY(a->ops->store(a->device, own, a->tokens, s->kv_heads, s->k_dim, s->dtype, &gradient->dk,
                         stream));
    return a->ops->store(a->device, own + key_numbers(a, a->rank), a->tokens, s->kv_heads, s->v_dim,
                         s->dtype, &gradient->dv, stream);
}
