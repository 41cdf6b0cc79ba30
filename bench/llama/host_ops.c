/* The operations on the host; see ops.h. Rows are divided over the threads of a team; every row is
 * computed by one of them, so that results do not depend on their number. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/elements.h"
#include "ops.h"
#include "products.h"
#include "sample.h"
#include "team.h"

typedef struct host_ops {
    llama_ops base; /* first */
    team *team;
} host_ops;

static team *team_of(llama_ops *ops)
{
    return ((host_ops *)ops)->team;
}

/* What the functions below hand to their threads. */
typedef struct rows_job {
    const llama_matrix *table;
    const int32_t *words;
    const float *from, *weight, *cosines, *sines;
    float epsilon;
    int64_t width, heads;
    float *to;
} rows_job;

/* Elements that are worth another thread. */
#define PORTION 16384

static void run_rows(llama_ops *ops, int64_t rows, int64_t width, team_fn fn, rows_job *job)
{
    team_run(team_of(ops), rows, width ? (PORTION + width - 1) / width : rows, fn, job);
}

/* ---- Types --------------------------------------------------------------------------------- */

static float widen_one(ta_dtype dtype, const char *at)
{
    uint16_t half;
    double value;
    if (dtype == TA_F32) {
        float number;
        memcpy(&number, at, sizeof number);
        return number;
    }
    memcpy(&half, at, sizeof half);
    if (dtype == TA_BF16) {
        uint32_t bits = (uint32_t)half << 16;
        float number;
        memcpy(&number, &bits, sizeof number);
        return number;
    }
    element_read(dtype, &half, 1, &value);
    return (float)value;
}

static uint16_t narrow_bf16(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    if ((bits & 0x7fffffffu) > 0x7f800000u)
        return (uint16_t)(bits >> 16 | 0x40);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/* Rounded as the FPU does it: adding 2^k and taking it away leaves as many bits as f16 has. */
static uint16_t narrow_f16(float value)
{
    uint32_t bits, sign;
    memcpy(&bits, &value, sizeof bits);
    sign = bits >> 16 & 0x8000u;
    float size = fabsf(value);
    if (!(size <= 65519.996f))
        return (uint16_t)(sign | (size != size ? 0x7e00u : 0x7c00u));
    if (size < 0x1p-14f)
        return (uint16_t)(sign | (uint32_t)lrintf(size * 0x1p24f));
    bits &= 0x7fffffffu;
    bits += 0xfff + (bits >> 13 & 1);
    return (uint16_t)(sign | (bits - (112u << 23)) >> 13);
}

static ta_status narrow(llama_ops *ops, ta_dtype dtype, const float *from, void *to, int64_t count)
{
    (void)ops;
    if (dtype == TA_F32)
        memcpy(to, from, (size_t)count * sizeof *from);
    for (int64_t i = 0; dtype == TA_BF16 && i < count; i++)
        ((uint16_t *)to)[i] = narrow_bf16(from[i]);
    for (int64_t i = 0; dtype == TA_F16 && i < count; i++)
        ((uint16_t *)to)[i] = narrow_f16(from[i]);
    return TA_OK;
}

static ta_status widen(llama_ops *ops, ta_dtype dtype, const void *from, float *to, int64_t count)
{
    size_t each = element_bytes(dtype);
    (void)ops;
    for (int64_t i = 0; i < count; i++)
        to[i] = widen_one(dtype, (const char *)from + (size_t)i * each);
    return TA_OK;
}

/* ---- Rows ---------------------------------------------------------------------------------- */

static void embed_rows(void *context, int64_t first, int64_t last)
{
    const rows_job *job = context;
    const llama_matrix *m = job->table;
    for (int64_t row = first; row < last; row++) {
        size_t at = (size_t)(job->words[row] * m->stride) * element_bytes(m->dtype);
        widen(NULL, m->dtype, (const char *)m->data + at, job->to + row * m->columns, m->columns);
    }
}

static ta_status embed(llama_ops *ops, const llama_matrix *table, const int32_t *words,
                       int64_t tokens, float *to)
{
    rows_job job = {.table = table, .words = words, .to = to};
    run_rows(ops, tokens, table->columns, embed_rows, &job);
    return TA_OK;
}

static void norm_rows(void *context, int64_t first, int64_t last)
{
    const rows_job *job = context;
    for (int64_t row = first; row < last; row++) {
        const float *from = job->from + row * job->width;
        float *to = job->to + row * job->width;
        double squares = 0; /* of doubles the order does not matter to a float */
        for (int64_t i = 0; i < job->width; i++)
            squares += (double)from[i] * from[i];
        float scale = (float)(1 / sqrt(squares / (double)job->width + job->epsilon));
        for (int64_t i = 0; i < job->width; i++)
            to[i] = from[i] * scale * job->weight[i];
    }
}

static ta_status norm(llama_ops *ops, const float *from, const float *weight, float epsilon,
                      int64_t rows, int64_t width, float *to)
{
    rows_job job = {.from = from, .weight = weight, .epsilon = epsilon, .width = width, .to = to};
    run_rows(ops, rows, width, norm_rows, &job);
    return TA_OK;
}

static ta_status linear(llama_ops *ops, const llama_matrix *w, const float *bias, const float *from,
                        int64_t rows, float *to)
{
    product_job job = {*w, bias, from, rows, to, NULL};
    return product_run(&job, team_of(ops));
}

static void rope_rows(void *context, int64_t first, int64_t last)
{
    const rows_job *job = context;
    int64_t half = job->width / 2;
    for (int64_t token = first; token < last; token++) {
        const float *c = job->cosines + token * half, *s = job->sines + token * half;
        for (int64_t head = 0; head < job->heads; head++) {
            float *a = job->to + (token * job->heads + head) * job->width, *b = a + half;
            for (int64_t i = 0; i < half; i++) {
                float x = a[i], y = b[i];
                a[i] = x * c[i] - y * s[i];
                b[i] = y * c[i] + x * s[i];
            }
        }
    }
}

static ta_status rope(llama_ops *ops, float *x, int64_t tokens, int64_t heads, int64_t dim,
                      const float *cosines, const float *sines)
{
    rows_job job = {.cosines = cosines, .sines = sines, .width = dim, .heads = heads, .to = x};
    run_rows(ops, tokens, heads * dim, rope_rows, &job);
    return TA_OK;
}

static void swiglu_some(void *context, int64_t first, int64_t last)
{
    const rows_job *job = context;
    for (int64_t i = first; i < last; i++)
        job->to[i] = job->to[i] / (1 + expf(-job->to[i])) * job->from[i];
}

static ta_status swiglu(llama_ops *ops, float *gate, const float *up, int64_t count)
{
    rows_job job = {.from = up, .to = gate};
    team_run(team_of(ops), count, PORTION / 4, swiglu_some, &job);
    return TA_OK;
}

static void add_some(void *context, int64_t first, int64_t last)
{
    const rows_job *job = context;
    for (int64_t i = first; i < last; i++)
        job->to[i] += job->from[i];
}

static ta_status add(llama_ops *ops, float *to, const float *from, int64_t count)
{
    rows_job job = {.from = from, .to = to};
    team_run(team_of(ops), count, 2 * PORTION, add_some, &job);
    return TA_OK;
}

static ta_status repeat(llama_ops *ops, ta_dtype dtype, const void *from, int64_t rows,
                        int64_t heads, int64_t times, int64_t dim, void *to)
{
    size_t head = (size_t)dim * element_bytes(dtype);
    (void)ops;
    for (int64_t i = 0; i < rows * heads * times; i++)
        memcpy((char *)to + (size_t)i * head, (const char *)from + (size_t)(i / times) * head,
               head);
    return TA_OK;
}

static ta_status argmax(llama_ops *ops, const float *from, int64_t count, int32_t *best)
{
    (void)ops;
    *best = sample_greedy(from, (int32_t)count);
    return TA_OK;
}

static const char *products(const llama_ops *ops, int many)
{
    (void)ops;
    return many ? products_many_name() : products_one_name();
}

static void destroy(llama_ops *ops)
{
    if (ops)
        team_destroy(team_of(ops));
    free(ops);
}

static const llama_ops_table host_table = {embed,  norm,  linear, rope,   swiglu,   add,
                                           narrow, widen, repeat, argmax, products, destroy};

llama_ops *llama_ops_host(int threads)
{
    host_ops *ops = calloc(1, sizeof *ops);
    if (!ops)
        return NULL;
    ops->base.table = &host_table;
    ops->team = team_create(threads);
    if (ops->team)
        return &ops->base;
    free(ops);
    return NULL;
}
