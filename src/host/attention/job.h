/* What forward and backward share on the host: which rows there are, and how tiles of them are
 * loaded. forward.c and backward.c compute, attention.c has the device's table.
 *
 * All query heads of a KV head share its keys. So for one KV head the rows are its queries times
 * its query heads: row r is head r % heads of query r / heads, and rows see ascending ranges of
 * keys, as queries do. */
#ifndef TA_HOST_ATTENTION_JOB_H
#define TA_HOST_ATTENTION_JOB_H

#include <math.h>

#include "base/dtype.h"
#include "device/attention.h"
#include "host/kernels.h"
#include "host/pool.h"

typedef struct ta_attention_job {
    const ta_host_kernels *kernels;
    const ta_attention_work *work;
    const ta_attention_work_gradient *gradient; /* NULL: forward */
    int32_t heads;                              /* query heads of one KV head */
    int64_t rows;                               /* of one KV head */
    float query_factor; /* makes scores of the query: base 2, or for the tanh */
    float cap;          /* the soft-cap in base 2; 0: none */
    char *scratch;      /* of the threads */
    size_t scratch_bytes;
    float *records; /* forward: the result */
    /* Backward: how the keys are divided, and the sums of dQ of each part. */
    int32_t splits, split_keys;
    float *dq_panels;
} ta_attention_job;

static inline ta_attention_job ta_attention_job_of(const ta_host_kernels *kernels,
                                                   const ta_attention_work *work)
{
    ta_attention_job job = {.kernels = kernels, .work = work};
    job.heads = work->query_heads / work->kv_heads;
    job.rows = (int64_t)work->queries * job.heads;
    /* Scores come out in base 2; a soft-cap needs them natural, divided by the cap. */
    job.query_factor =
        (float)(work->scale * (work->softcap > 0.0f ? 1.0 / work->softcap : M_LOG2E));
    job.cap = work->softcap > 0.0f ? (float)(work->softcap * M_LOG2E) : 0.0f;
    return job;
}

/* Numbers of a row in a tile: not a power of two, which would crowd one part of the cache, and a
 * few more than `dim`, which kernels may read. */
static inline int64_t ta_tile_stride(int32_t dim)
{
    return dim + 8;
}

/* Floats of a panel that sums() writes. */
static inline int64_t ta_sums_floats(int32_t dim)
{
    return (int64_t)(dim + TA_PANEL_ROWS - 1) / TA_PANEL_ROWS * TA_PANEL_ROWS * TA_PANEL_LANES;
}

static inline ta_visible ta_row_visible(const ta_attention_job *job, int64_t row)
{
    return job->work->visible[row / job->heads];
}

/* Where numbers of a row are that are kept as [row of the tensor][query head]. */
static inline int64_t ta_row_index(const ta_attention_job *job, int32_t kv_head, int64_t row)
{
    return (int64_t)job->work->query_rows[row / job->heads] * job->work->query_heads +
           (int64_t)kv_head * job->heads + row % job->heads;
}

/* The element of a tensor [row][query head][dim] where a row starts. */
static inline int64_t ta_row_element(const ta_attention_job *job, const ta_tensor *tensor,
                                     int32_t kv_head, int64_t row)
{
    return job->work->query_rows[row / job->heads] * tensor->token_stride +
           ((int64_t)kv_head * job->heads + row % job->heads) * tensor->head_stride;
}

/* Load n rows of a tensor with query heads, times `factor`, into a tile. */
static inline void ta_tile_load_rows(const ta_attention_job *job, const ta_tensor *tensor,
                                     int32_t dim, int32_t kv_head, int64_t row, int n, float factor,
                                     float *tile)
{
    ta_dtype dtype = job->work->dtype;
    for (int i = 0; i < n; i++) {
        int64_t at = ta_row_element(job, tensor, kv_head, row + i);
        job->kernels->load[dtype](ta_element(dtype, tensor->data, at), dim, factor,
                                  tile + i * ta_tile_stride(dim));
    }
}

/* Load the keys or values of n keys from number `key` of key_rows on. */
static inline void ta_tile_load_keys(const ta_attention_job *job, const ta_tensor *tensor,
                                     int32_t dim, int32_t kv_head, int32_t key, int n, float *tile)
{
    ta_dtype dtype = job->work->dtype;
    for (int i = 0; i < n; i++) {
        int64_t at =
            job->work->key_rows[key + i] * tensor->token_stride + kv_head * tensor->head_stride;
        job->kernels->load[dtype](ta_element(dtype, tensor->data, at), dim, 1.0f,
                                  tile + i * ta_tile_stride(dim));
    }
}

/* forward.c: bytes of scratch of one thread, and the whole of forward(). */
size_t ta_attention_forward_scratch(const ta_attention_work *shape);
void ta_host_attention_forward(ta_pool *pool, ta_attention_job *job);

/* backward.c: bytes of the workspace, which starts with the threads' scratch, and the whole
 * of backward(). */
size_t ta_attention_backward_bytes(const ta_attention_work *shape, int threads);
void ta_host_attention_backward(ta_pool *pool, ta_attention_job *job, void *workspace);

#endif
