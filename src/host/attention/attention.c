/* The host device's table for attention over full sequences, see device/attention.h; and the parts
 * of it that are one pass over rows. */
#include "base/dtype.h"
#include "base/partial.h"
#include "host/host.h"
#include "job.h"

/* Rows that one piece of a loop takes. */
#define ROWS_PER_PIECE 16

/* Numbers, where there are no rows. */
#define NUMBERS_PER_PIECE 16384

static ta_host *host_of(ta_device *device)
{
    return (ta_host *)device;
}

/* ---- Forward and backward -------------------------------------------------------------------- */

static size_t line(size_t bytes)
{
    return (bytes + 63) / 64 * 64;
}

/* What an order takes when it is written out: in front of the rest of the workspace. */
static size_t order_bytes(const ta_attention_work *shape)
{
    size_t queries = (size_t)shape->queries, keys = (size_t)shape->keys;
    return line(queries * sizeof *shape->visible) + line(queries * sizeof *shape->query_rows) +
           line(keys * sizeof *shape->key_rows);
}

static size_t host_bytes(const ta_device *device, const ta_attention_work *shape, int backward)
{
    int threads = ta_pool_threads(((const ta_host *)device)->pool);
    return order_bytes(shape) + (backward ? ta_attention_backward_bytes(shape, threads)
                                          : (size_t)threads * ta_attention_forward_scratch(shape));
}

typedef struct writing {
    const ta_token_order *order;
    int32_t *query_rows, *key_rows;
    ta_visible *visible;
} writing;

static void write_piece(void *context, int64_t piece, int thread)
{
    const writing *w = context;
    int64_t first = piece * NUMBERS_PER_PIECE, end = first + NUMBERS_PER_PIECE;
    int64_t queries = end < w->order->queries ? end : w->order->queries;
    int64_t keys = end < w->order->keys ? end : w->order->keys;
    (void)thread;
    if (first < queries)
        ta_order_write_queries(w->order, (int32_t)first, (int32_t)queries, w->query_rows,
                               w->visible);
    if (first < keys)
        ta_order_write_keys(w->order, (int32_t)first, (int32_t)keys, w->key_rows);
}

/* The work with its order written out; returns the workspace behind it. */
static char *write_order(ta_device *device, const ta_token_order *order, void *workspace,
                         ta_attention_work *work)
{
    char *at = workspace;
    int64_t most = order->queries > order->keys ? order->queries : order->keys;
    writing w = {.order = order, .visible = (ta_visible *)at};
    w.query_rows = (int32_t *)(at += line((size_t)order->queries * sizeof *w.visible));
    w.key_rows = (int32_t *)(at += line((size_t)order->queries * sizeof *w.query_rows));
    ta_pool_run(host_of(device)->pool, (most + NUMBERS_PER_PIECE - 1) / NUMBERS_PER_PIECE,
                write_piece, &w);
    work->visible = w.visible;
    work->query_rows = w.query_rows;
    work->key_rows = w.key_rows;
    return (char *)workspace + order_bytes(work);
}

/* The job of this work, `written` out in its order; its scratch is the workspace behind that. */
static ta_attention_job prepare(ta_device *device, const ta_attention_work *work,
                                const ta_token_order *order, void *workspace,
                                ta_attention_work *written)
{
    *written = *work;
    char *scratch = write_order(device, order, workspace, written);
    ta_attention_job job = ta_attention_job_of(host_of(device)->kernels, written);
    job.scratch = scratch;
    return job;
}

static ta_status host_forward(ta_device *device, const ta_attention_work *work,
                              const ta_token_order *order, float *records, void *workspace,
                              void *stream)
{
    ta_attention_work written;
    ta_attention_job job = prepare(device, work, order, workspace, &written);
    (void)stream;
    job.records = records;
    ta_host_attention_forward(host_of(device)->pool, &job);
    return TA_OK;
}

static ta_status host_backward(ta_device *device, const ta_attention_work *work,
                               const ta_token_order *order,
                               const ta_attention_work_gradient *gradient, void *workspace,
                               void *stream)
{
    ta_attention_work written;
    ta_attention_job job = prepare(device, work, order, workspace, &written);
    (void)stream;
    job.gradient = gradient;
    ta_host_attention_backward(host_of(device)->pool, &job);
    return TA_OK;
}

/* ---- Passes over rows ------------------------------------------------------------------------ */

/* A pass over the rows and heads of a tensor. */
typedef struct pass {
    const ta_host_kernels *kernels;
    int32_t rows, heads, dim;
    ta_dtype dtype;
    const float *from;
    const ta_tensor *to, *other; /* delta only reads both */
    float *numbers;              /* one for each row and head */
} pass;

static int64_t element_of(const pass *p, const ta_tensor *tensor, int64_t i)
{
    return i / p->heads * tensor->token_stride + i % p->heads * tensor->head_stride;
}

static void *address_of(const pass *p, int64_t i)
{
    return (char *)p->to->data + element_of(p, p->to, i) * (int64_t)ta_dtype_bytes(p->dtype);
}

static void finish_one(const pass *p, int64_t i)
{
    const float *record = p->from + i * ta_record_floats(p->dim);
    float m = record[p->dim], l = record[p->dim + 1];
    p->kernels->store[p->dtype](record, p->dim, ta_partial_normalizer(m, l), address_of(p, i));
    if (p->numbers)
        p->numbers[i] = ta_partial_lse(m, l);
}

static void store_one(const pass *p, int64_t i)
{
    p->kernels->store[p->dtype](p->from + i * p->dim, p->dim, 1.0f, address_of(p, i));
}

/* In 8 interleaved sums, like a score. */
static void delta_one(const pass *p, int64_t i)
{
    float a[TA_ATTENTION_MAX_DIM], b[TA_ATTENTION_MAX_DIM], sums[8] = {0};
    p->kernels->load[p->dtype](ta_element(p->dtype, p->to->data, element_of(p, p->to, i)), p->dim,
                               1.0f, a);
    p->kernels->load[p->dtype](ta_element(p->dtype, p->other->data, element_of(p, p->other, i)),
                               p->dim, 1.0f, b);
    for (int32_t d = 0; d < p->dim; d++)
        sums[d % 8] += a[d] * b[d];
    p->numbers[i] =
        ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7]));
}

#define DEFINE_PIECE(name, one)                                                                    \
    static void name(void *context, int64_t piece, int thread)                                     \
    {                                                                                              \
        const pass *p = context;                                                                   \
        int64_t end =                                                                              \
            (piece + 1) * ROWS_PER_PIECE < p->rows ? (piece + 1) * ROWS_PER_PIECE : p->rows;       \
        (void)thread;                                                                              \
        for (int64_t i = piece * ROWS_PER_PIECE * p->heads; i < end * p->heads; i++)               \
            one(p, i);                                                                             \
    }
DEFINE_PIECE(finish_piece, finish_one)
DEFINE_PIECE(store_piece, store_one)
DEFINE_PIECE(delta_piece, delta_one)

static pass pass_over(int32_t rows, int32_t heads, int32_t dim, ta_dtype dtype, const ta_tensor *to)
{
    return (pass){.rows = rows, .heads = heads, .dim = dim, .dtype = dtype, .to = to};
}

static ta_status run(ta_device *device, pass *p, ta_pool_fn piece)
{
    p->kernels = host_of(device)->kernels;
    ta_pool_run(host_of(device)->pool, (p->rows + ROWS_PER_PIECE - 1) / ROWS_PER_PIECE, piece, p);
    return TA_OK;
}

static ta_status host_finish(ta_device *device, const ta_attention_work *shape,
                             const float *records, int32_t rows, const ta_tensor *out, float *lse,
                             void *stream)
{
    pass p = pass_over(rows, shape->query_heads, shape->v_dim, shape->dtype, out);
    (void)stream;
    p.from = records;
    p.numbers = lse;
    return run(device, &p, finish_piece);
}

static ta_status host_delta(ta_device *device, const ta_attention_work *shape,
                            const ta_tensor *dout, const ta_tensor *out, int32_t rows, float *delta,
                            void *stream)
{
    pass p = pass_over(rows, shape->query_heads, shape->v_dim, shape->dtype, dout);
    (void)stream;
    p.other = out;
    p.numbers = delta;
    return run(device, &p, delta_piece);
}

static ta_status host_store(ta_device *device, const float *from, int32_t rows, int32_t heads,
                            int32_t dim, ta_dtype dtype, const ta_tensor *to, void *stream)
{
    pass p = pass_over(rows, heads, dim, dtype, to);
    (void)stream;
    p.from = from;
    return run(device, &p, store_piece);
}

typedef struct addition {
    float *into;
    const float *from;
    int64_t count;
} addition;

static void add_piece(void *context, int64_t piece, int thread)
{
    const addition *a = context;
    int64_t end =
        (piece + 1) * NUMBERS_PER_PIECE < a->count ? (piece + 1) * NUMBERS_PER_PIECE : a->count;
    (void)thread;
    for (int64_t i = piece * NUMBERS_PER_PIECE; i < end; i++)
        a->into[i] += a->from[i];
}

static ta_status host_add(ta_device *device, float *into, const float *from, int64_t count,
                          void *stream)
{
    addition a = {into, from, count};
    (void)stream;
    ta_pool_run(host_of(device)->pool, (count + NUMBERS_PER_PIECE - 1) / NUMBERS_PER_PIECE,
                add_piece, &a);
    return TA_OK;
}

const ta_attention_ops ta_host_attention = {
    .bytes = host_bytes,
    .forward = host_forward,
    .finish = host_finish,
    .delta = host_delta,
    .backward = host_backward,
    .add = host_add,
    .store = host_store,
};
