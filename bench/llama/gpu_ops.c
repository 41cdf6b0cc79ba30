/* The operations that a device brings with it (src/device/model.h), as the table of ops.h. All of
 * it is queued on the null stream. */
#include <stdlib.h>

#include <treeattn/extension.h>

#include "common/elements.h"
#include "device/model.h"
#include "ops.h"

typedef struct gpu_ops {
    llama_ops base; /* first */
    const ta_model_ops *table;
    ta_model *model;
} gpu_ops;

static const gpu_ops *gpu_of(const llama_ops *ops)
{
    return (const gpu_ops *)ops;
}

static ta_model_matrix matrix_of(const llama_matrix *m)
{
    return (ta_model_matrix){m->data, m->dtype, m->rows, m->columns, m->stride};
}

static ta_status embed(llama_ops *ops, const llama_matrix *table, const int32_t *words,
                       int64_t tokens, float *to)
{
    const gpu_ops *g = gpu_of(ops);
    ta_model_matrix matrix = matrix_of(table);
    return g->table->embed(g->model, &matrix, words, tokens, to, NULL);
}

static ta_status norm(llama_ops *ops, const float *from, const float *weight, float epsilon,
                      int64_t rows, int64_t width, float *to)
{
    const gpu_ops *g = gpu_of(ops);
    return g->table->norm(g->model, from, weight, epsilon, rows, width, to, NULL);
}

static ta_status linear(llama_ops *ops, const llama_matrix *w, const float *bias, const float *from,
                        int64_t rows, float *to)
{
    const gpu_ops *g = gpu_of(ops);
    ta_model_matrix matrix = matrix_of(w);
    return g->table->linear(g->model, &matrix, bias, from, rows, to, NULL);
}

static ta_status rope(llama_ops *ops, float *x, int64_t tokens, int64_t heads, int64_t dim,
                      const float *cosines, const float *sines)
{
    const gpu_ops *g = gpu_of(ops);
    return g->table->rope(g->model, x, tokens, heads, dim, cosines, sines, NULL);
}

static ta_status swiglu(llama_ops *ops, float *gate, const float *up, int64_t count)
{
    const gpu_ops *g = gpu_of(ops);
    return g->table->swiglu(g->model, gate, up, count, NULL);
}

static ta_status add(llama_ops *ops, float *to, const float *from, int64_t count)
{
    const gpu_ops *g = gpu_of(ops);
    return g->table->add(g->model, to, from, count, NULL);
}

static ta_status narrow(llama_ops *ops, ta_dtype dtype, const float *from, void *to, int64_t count)
{
    const gpu_ops *g = gpu_of(ops);
    return g->table->narrow(g->model, dtype, from, to, count, NULL);
}

static ta_status widen(llama_ops *ops, ta_dtype dtype, const void *from, float *to, int64_t count)
{
    const gpu_ops *g = gpu_of(ops);
    return g->table->widen(g->model, dtype, from, to, count, NULL);
}

static ta_status repeat(llama_ops *ops, ta_dtype dtype, const void *from, int64_t rows,
                        int64_t heads, int64_t times, int64_t dim, void *to)
{
    const gpu_ops *g = gpu_of(ops);
    int each = (int)element_bytes(dtype);
    return g->table->repeat(g->model, each, from, rows, heads, times, dim, to, NULL);
}

static ta_status argmax(llama_ops *ops, const float *from, int64_t count, int32_t *best)
{
    const gpu_ops *g = gpu_of(ops);
    return g->table->argmax(g->model, from, count, best, NULL);
}

static const char *products(const llama_ops *ops, int many)
{
    const gpu_ops *g = gpu_of(ops);
    return many ? g->table->products(g->model) : "own kernel";
}

static void destroy(llama_ops *ops)
{
    if (ops)
        gpu_of(ops)->table->destroy(gpu_of(ops)->model);
    free(ops);
}

static const llama_ops_table gpu_table = {embed,  norm,  linear, rope,   swiglu,   add,
                                          narrow, widen, repeat, argmax, products, destroy};

ta_status llama_ops_gpu(ta_device *device, const char *products_by, int64_t most_inputs,
                        llama_ops **ops)
{
    const void *table;
    ta_model_config config = {products_by, most_inputs};
    ta_status status = ta_device_extension(device, TA_MODEL_NAME, TA_MODEL_VERSION, &table);
    gpu_ops *made = status == TA_OK ? calloc(1, sizeof *made) : NULL;
    if (status == TA_OK && !made)
        status = TA_ERR_NO_MEMORY;
    if (status != TA_OK)
        return status;
    made->base.table = &gpu_table;
    made->table = table;
    status = made->table->create(device, &config, &made->model);
    if (status == TA_OK)
        *ops = &made->base;
    else
        free(made);
    return status;
}
