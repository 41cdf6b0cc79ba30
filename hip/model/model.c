/* A decoder's operations beside attention, as device/model.h lists them: each is one kernel
 * (layers.hip, product.hip), and products of many rows go to the vendor's BLAS (blas.c) where it is
 * here. */
#include "blas.h"
#include "gpu.h"
#include "params.h"

#include <stdlib.h>
#include <string.h>

struct ta_model {
    ta_gpu_device *gpu;
    ta_blas *blas;  /* NULL: the kernel computes all products */
    void *narrowed; /* inputs of a product in the type of its weights; only with a BLAS */
    int64_t most_inputs;
};

/* Fewer rows are a read of the weights, which the kernel does at once and with inputs as floats. */
enum { BLAS_ROWS = 9 };

static ta_status open_blas(ta_model *m, const ta_model_config *config)
{
    int own = config->products && strcmp(config->products, "own") == 0;
    if (own)
        return TA_OK;
    ta_status status = ta_blas_open(config->products, &m->blas);
    if (status == TA_ERR_NOT_FOUND && !config->products) {
        ta_gpu_core->log_info("%s: products of many rows by the kernel: %s", m->gpu->device.name,
                              ta_gpu_core->last_error());
        return TA_OK;
    }
    if (status == TA_ERR_NOT_FOUND) { /* it was asked for by name */
        char why[512];
        snprintf(why, sizeof why, "%s", ta_gpu_core->last_error());
        return ta_gpu_core->fail(status, "products is '%s': %s", config->products, why);
    }
    return status;
}

static ta_status make(ta_model *m, const ta_model_config *config)
{
    TA_TRY(open_blas(m, config));
    size_t bytes = (size_t)config->most_inputs * sizeof(uint16_t);
    m->most_inputs = config->most_inputs;
    if (!m->blas || bytes == 0)
        return TA_OK;
    return ta_gpu_check(m->gpu, hipMalloc(&m->narrowed, bytes), "allocating %zu bytes", bytes);
}

static void destroy_here(ta_model *m)
{
    ta_blas_close(m->blas);
    if (m->narrowed)
        (void)hipFree(m->narrowed);
    free(m);
}

static ta_status create(ta_device *device, const ta_model_config *config, ta_model **model)
{
    int before;
    if (config->most_inputs < 0)
        return ta_gpu_core->fail(TA_ERR_INVALID, "most_inputs is %lld: must not be negative",
                                 (long long)config->most_inputs);
    ta_model *m = calloc(1, sizeof *m);
    if (!m)
        return ta_gpu_core->fail(TA_ERR_NO_MEMORY, "no memory for the operations of a model");
    m->gpu = ta_gpu_of(device);
    ta_status status = ta_gpu_enter(m->gpu, &before);
    if (status != TA_OK) {
        free(m);
        return status;
    }
    status = make(m, config);
    if (status == TA_OK)
        *model = m;
    else
        destroy_here(m);
    ta_gpu_leave(ta_gpu_of(device), before);
    return status;
}

static void destroy(ta_model *m)
{
    int before;
    if (!m)
        return;
    ta_gpu_device *gpu = m->gpu;
    if (ta_gpu_enter(gpu, &before) != TA_OK)
        return;
    destroy_here(m);
    ta_gpu_leave(gpu, before);
}

static const char *products(const ta_model *m)
{
    return m->blas ? ta_blas_name() : "own kernel";
}

/* ---- Rows ---------------------------------------------------------------------------------- */

typedef ta_launched (*launch_fn)(const ta_model_params *params, void *stream);

/* `blocks`: one for each row, or 0 if the launcher decides; nothing to do without numbers. */
static ta_status run(ta_model *m, launch_fn launch, const ta_model_params *params, int64_t blocks,
                     int64_t numbers, void *stream)
{
    if (numbers <= 0)
        return TA_OK;
    if (blocks > INT32_MAX)
        return ta_gpu_core->fail(TA_ERR_UNSUPPORTED, "%lld rows at a time: a grid has at most %d",
                                 (long long)blocks, INT32_MAX);
    TA_ON_GPU(m->gpu, ta_gpu_check_launch(m->gpu, launch(params, stream)));
}

static ta_status embed(ta_model *m, const ta_model_matrix *table, const int32_t *words,
                       int64_t tokens, float *to, void *stream)
{
    ta_model_params p = {.from = table->data,
                         .words = words,
                         .to = to,
                         .rows = tokens,
                         .width = table->columns,
                         .stride = table->stride,
                         .dtype = table->dtype,
                         .table_rows = table->rows};
    return run(m, ta_launch_model_embed, &p, tokens, tokens * table->columns, stream);
}

static ta_status norm(ta_model *m, const float *from, const float *weight, float epsilon,
                      int64_t rows, int64_t width, float *to, void *stream)
{
    ta_model_params p = {
        .from = from, .more = weight, .to = to, .rows = rows, .width = width, .epsilon = epsilon};
    return run(m, ta_launch_model_norm, &p, rows, rows * width, stream);
}

static ta_status rope(ta_model *m, float *x, int64_t tokens, int64_t heads, int64_t dim,
                      const float *cosines, const float *sines, void *stream)
{
    ta_model_params p = {
        .to = x, .cosines = cosines, .sines = sines, .rows = tokens, .heads = heads, .width = dim};
    return run(m, ta_launch_model_rope, &p, tokens, tokens * heads * dim, stream);
}

static ta_status swiglu(ta_model *m, float *gate, const float *up, int64_t count, void *stream)
{
    ta_model_params p = {.to = gate, .more = up, .width = count};
    return run(m, ta_launch_model_swiglu, &p, 0, count, stream);
}

static ta_status add(ta_model *m, float *to, const float *from, int64_t count, void *stream)
{
    ta_model_params p = {.to = to, .more = from, .width = count};
    return run(m, ta_launch_model_add, &p, 0, count, stream);
}

static ta_status narrow(ta_model *m, ta_dtype dtype, const float *from, void *to, int64_t count,
                        void *stream)
{
    ta_model_params p = {.from = from, .to = to, .width = count, .dtype = dtype};
    return run(m, ta_launch_model_narrow, &p, 0, count, stream);
}

static ta_status widen(ta_model *m, ta_dtype dtype, const void *from, float *to, int64_t count,
                       void *stream)
{
    ta_model_params p = {.from = from, .to = to, .width = count, .dtype = dtype};
    return run(m, ta_launch_model_widen, &p, 0, count, stream);
}

static ta_status repeat(ta_model *m, int element_bytes, const void *from, int64_t rows,
                        int64_t heads, int64_t times, int64_t dim, void *to, void *stream)
{
    ta_model_params p = {.from = from,
                         .to = to,
                         .rows = rows,
                         .heads = heads,
                         .times = times,
                         .width = dim,
                         .element_bytes = element_bytes};
    if (element_bytes != 2 && element_bytes != 4)
        return ta_gpu_core->fail(TA_ERR_INVALID, "element_bytes is %d: must be 2 or 4",
                                 element_bytes);
    return run(m, ta_launch_model_repeat, &p, 0, rows * heads * times * dim, stream);
}

static ta_status argmax(ta_model *m, const float *from, int64_t count, int32_t *best, void *stream)
{
    ta_model_params p = {.from = from, .to = best, .width = count};
    if (count > INT32_MAX)
        return ta_gpu_core->fail(TA_ERR_INVALID, "count is %lld: must be at most %d",
                                 (long long)count, INT32_MAX);
    return run(m, ta_launch_model_argmax, &p, 1, 1, stream);
}

/* ---- Products ------------------------------------------------------------------------------ */

static int is_aligned(const void *address, int64_t bytes)
{
    return (uintptr_t)address % 16 == 0 && bytes % 16 == 0;
}

static ta_status by_kernel(ta_model *m, const ta_model_matrix *w, const float *bias,
                           const float *from, int64_t rows, float *to, void *stream)
{
    int64_t each = (int64_t)ta_dtype_bytes(w->dtype);
    ta_product_params p = {*w, bias, from, to, rows, 0};
    p.aligned = is_aligned(w->data, w->stride * each) &&
                is_aligned(from, w->columns * (int64_t)sizeof *from);
    TA_ON_GPU(m->gpu, ta_gpu_check_launch(
                          m->gpu, ta_launch_model_product(&p, m->gpu->properties.wave, stream)));
}

static ta_status by_blas(ta_model *m, const ta_model_matrix *w, const float *bias,
                         const float *from, int64_t rows, float *to, void *stream)
{
    const void *inputs = from;
    if (w->dtype != TA_F32) {
        TA_TRY(narrow(m, w->dtype, from, m->narrowed, rows * w->columns, stream));
        inputs = m->narrowed;
    }
    int before;
    TA_TRY(ta_gpu_enter(m->gpu, &before));
    ta_status status = ta_blas_product(m->blas, w, inputs, rows, to, stream);
    ta_gpu_leave(m->gpu, before);
    if (status != TA_OK || !bias)
        return status;
    ta_model_params p = {.to = to, .more = bias, .rows = rows, .width = w->rows};
    return run(m, ta_launch_model_bias, &p, 0, rows * w->rows, stream);
}

static ta_status linear(ta_model *m, const ta_model_matrix *w, const float *bias, const float *from,
                        int64_t rows, float *to, void *stream)
{
    if (rows <= 0 || w->rows <= 0)
        return TA_OK;
    if (rows > INT32_MAX / 2 || w->rows > INT32_MAX || w->columns > INT32_MAX ||
        w->stride > INT32_MAX || w->columns < 0 || w->stride < w->columns)
        return ta_gpu_core->fail(TA_ERR_INVALID,
                                 "a product of %lld rows with weights [%lld][%lld], %lld apart: "
                                 "each must fit an int, and rows may not overlap",
                                 (long long)rows, (long long)w->rows, (long long)w->columns,
                                 (long long)w->stride);
    if (!ta_type_exists(w->dtype))
        return ta_gpu_core->fail(
            TA_ERR_UNSUPPORTED, "weights are of dtype %d: must be f32, f16 or bf16", (int)w->dtype);
    int fits = w->dtype == TA_F32 || rows * w->columns <= m->most_inputs;
    if (m->blas && rows >= BLAS_ROWS && w->columns > 0 && fits)
        return by_blas(m, w, bias, from, rows, to, stream);
    return by_kernel(m, w, bias, from, rows, to, stream);
}

const ta_model_ops ta_gpu_model_ops = {
    .create = create,
    .destroy = destroy,
    .products = products,
    .embed = embed,
    .norm = norm,
    .linear = linear,
    .rope = rope,
    .swiglu = swiglu,
    .add = add,
    .narrow = narrow,
    .widen = widen,
    .repeat = repeat,
    .argmax = argmax,
};
