/* The GPU's table for attention over full sequences (device/attention.h): choose the kernels and
 * launch them. The order that says who sees what is host memory that may change as soon as a slot
 * returns; arrays.c brings it, written out, to the front of the workspace. */
#include <math.h>
#include <string.h>

#include "attention.h"
#include "gpu.h"

static int aligned16(const ta_tensor *t, ta_dtype dtype)
{
    int64_t size = (int64_t)ta_dtype_bytes(dtype);
    return (uintptr_t)t->data % 16 == 0 && t->token_stride * size % 16 == 0 &&
           t->head_stride * size % 16 == 0;
}

static size_t attention_bytes(const ta_device *device, const ta_attention_work *shape, int backward)
{
    size_t arrays = ta_gpu_arrays_bytes(shape);
    if (!backward)
        return arrays;
    return arrays + ta_gpu_backward_bytes(&((const ta_gpu_device *)device)->limits, shape);
}

static ta_attention_params params_of(const ta_attention_work *work)
{
    ta_attention_params p;
    memset(&p, 0, sizeof p);
    p.work = *work;
    /* Scores come out in base 2; a soft-cap needs them natural, divided by the cap. */
    p.rule.factor =
        (float)(work->softcap > 0.0f ? (double)work->scale / work->softcap : work->scale * M_LOG2E);
    p.rule.cap = (float)(work->softcap * M_LOG2E);
    p.aligned = aligned16(&work->q, work->dtype) && aligned16(&work->k, work->dtype) &&
                aligned16(&work->v, work->dtype);
    return p;
}

/* Blocks of a launch are counted in 32 bits; no kernel has more than one for each of these. */
static ta_status check_count(const char *name, int64_t rows, int64_t heads)
{
    if (rows * heads > INT32_MAX)
        return ta_gpu_core->fail(TA_ERR_UNSUPPORTED, "%lld %s of %lld heads: a GPU can launch %d",
                                 (long long)rows, name, (long long)heads, INT32_MAX);
    return TA_OK;
}

static ta_status forward(ta_gpu_device *gpu, const ta_attention_work *work,
                         const ta_token_order *order, float *records, void *workspace, void *stream)
{
    ta_attention_work here = *work;
    TA_TRY(ta_gpu_bring_arrays(gpu, order, &here, workspace, stream));
    ta_attention_params p = params_of(&here);
    int32_t dim = ta_forward_mma_dim(&gpu->limits, &here);
    if (p.aligned && dim > 0)
        return ta_gpu_check_launch(
            gpu, ta_launch_attention_forward_mma(&p, gpu->limits.wave, dim, records, stream));
    return ta_gpu_check_launch(gpu, ta_launch_attention_forward(&p, records, stream));
}

static ta_status attention_forward(ta_device *device, const ta_attention_work *work,
                                   const ta_token_order *order, float *records, void *workspace,
                                   void *stream)
{
    ta_gpu_device *gpu = ta_gpu_of(device);
    if (work->queries == 0)
        return TA_OK;
    TA_TRY(check_count("queries", work->queries, work->query_heads));
    TA_ON_GPU(gpu, forward(gpu, work, order, records, workspace, stream));
}

/* A pass over rows; none of them is launched for nothing. */
static ta_status attention_pass(ta_device *device, const ta_attention_rows_params *params,
                                ta_launched (*launch)(const ta_attention_rows_params *, void *),
                                void *stream)
{
    ta_gpu_device *gpu = ta_gpu_of(device);
    if (params->rows == 0)
        return TA_OK;
    TA_TRY(check_count("rows", params->rows, params->heads));
    TA_ON_GPU(gpu, ta_gpu_check_launch(gpu, launch(params, stream)));
}

static ta_attention_rows_params rows_of(int32_t rows, int32_t heads, int32_t dim, ta_dtype dtype,
                                        const ta_tensor *tensor)
{
    ta_attention_rows_params p;
    memset(&p, 0, sizeof p);
    p.rows = rows;
    p.heads = heads;
    p.dim = dim;
    p.dtype = dtype;
    p.element_bytes = (int32_t)ta_dtype_bytes(dtype);
    p.a = *tensor;
    return p;
}

static ta_status attention_store(ta_device *device, const float *from, int32_t rows, int32_t heads,
                                 int32_t dim, ta_dtype dtype, const ta_tensor *to, void *stream)
{
    ta_attention_rows_params p = rows_of(rows, heads, dim, dtype, to);
    p.from = from;
    return attention_pass(device, &p, ta_launch_attention_store, stream);
}

static ta_status backward(ta_gpu_device *gpu, const ta_attention_work *work,
                          const ta_token_order *order, const ta_attention_work_gradient *gradient,
                          void *workspace, void *stream)
{
    ta_attention_work here = *work;
    ta_attention_backward_params p;
    memset(&p, 0, sizeof p);
    TA_TRY(ta_gpu_bring_arrays(gpu, order, &here, workspace, stream));
    p.common = params_of(&here);
    p.common.aligned = p.common.aligned && aligned16(&gradient->dout, work->dtype);
    p.gradient = *gradient;
    p.workspace = (char *)workspace + ta_gpu_arrays_bytes(work);
    int steps = ta_attention_backward_steps(&gpu->limits, &p);
    for (int step = 0; step < steps; step++)
        TA_TRY(
            ta_gpu_check_launch(gpu, ta_launch_attention_backward(&gpu->limits, &p, step, stream)));
    return TA_OK;
}

static ta_status attention_backward(ta_device *device, const ta_attention_work *work,
                                    const ta_token_order *order,
                                    const ta_attention_work_gradient *gradient, void *workspace,
                                    void *stream)
{
    ta_gpu_device *gpu = ta_gpu_of(device);
    const ta_attention_work *w = work;
    const ta_attention_work_gradient *g = gradient;
    TA_TRY(check_count("queries", w->queries, w->query_heads));
    TA_TRY(check_count("keys", w->keys, w->kv_heads));
    if (w->queries == 0 || w->keys == 0) { /* then there are no pairs, and all gradients are 0 */
        TA_TRY(attention_store(device, NULL, w->queries, w->query_heads, w->k_dim, g->dq_dtype,
                               &g->dq, stream));
        TA_TRY(attention_store(device, NULL, w->keys, w->kv_heads, w->k_dim, g->kv_dtype, &g->dk,
                               stream));
        return attention_store(device, NULL, w->keys, w->kv_heads, w->v_dim, g->kv_dtype, &g->dv,
                               stream);
    }
    TA_ON_GPU(gpu, backward(gpu, w, order, g, workspace, stream));
}

static ta_status attention_finish(ta_device *device, const ta_attention_work *shape,
                                  const float *records, int32_t rows, const ta_tensor *out,
                                  float *lse, void *stream)
{
    ta_attention_rows_params p = rows_of(rows, shape->query_heads, shape->v_dim, shape->dtype, out);
    p.from = records;
    p.numbers = lse;
    return attention_pass(device, &p, ta_launch_attention_finish, stream);
}

static ta_status attention_delta(ta_device *device, const ta_attention_work *shape,
                                 const ta_tensor *dout, const ta_tensor *out, int32_t rows,
                                 float *delta, void *stream)
{
    ta_attention_rows_params p =
        rows_of(rows, shape->query_heads, shape->v_dim, shape->dtype, dout);
    p.b = *out;
    p.numbers = delta;
    return attention_pass(device, &p, ta_launch_attention_delta, stream);
}

static ta_status attention_add(ta_device *device, float *into, const float *from, int64_t count,
                               void *stream)
{
    ta_gpu_device *gpu = ta_gpu_of(device);
    if (count == 0)
        return TA_OK;
    TA_ON_GPU(gpu, ta_gpu_check_launch(gpu, ta_launch_attention_add(into, from, count, stream)));
}

static ta_status attention_pack(ta_device *device, const ta_tensor *from, int32_t rows,
                                int32_t heads, int32_t dim, ta_dtype dtype, void *to,
                                size_t to_stride_bytes, void *stream)
{
    ta_attention_rows_params p = rows_of(rows, heads, dim, dtype, from);
    p.packed = to;
    p.packed_stride = (int64_t)to_stride_bytes;
    p.aligned = aligned16(from, dtype) && (uintptr_t)to % 16 == 0 && to_stride_bytes % 16 == 0;
    return attention_pass(device, &p, ta_launch_attention_pack, stream);
}

const ta_attention_ops ta_gpu_attention_ops = {
    .bytes = attention_bytes,
    .reserve = ta_gpu_reserve_arrays,
    .forward = attention_forward,
    .finish = attention_finish,
    .delta = attention_delta,
    .backward = attention_backward,
    .add = attention_add,
    .store = attention_store,
    .pack = attention_pack,
};
