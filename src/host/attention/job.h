/* What forward and backward share on the host: which rows there are, and how tiles of them are
 * loaded. forward.c and backward.c compute, attention.c has the device's table.
 *
 * All query heads of a KV head share its keys. So for one KV head the rows are its queries times
 * its query heads: row r is head r % heads of query r / heads, and rows see ascending ranges of
 * keys, as queries do. */
#ifndef TA_HOST_ATTENTION_JOB_H
#define TA_HOST_ATTENTION_JOB_H

#include <math.h>
#include <string.h>

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
    float query_factor;  /* makes scores of the query: base 2, or for the tanh */
    float cap;           /* the soft-cap in base 2; 0: none */
    int multiplies_bf16; /* are rows of this work, where they pack, multiplied as bf16? */
    char *scratch;       /* of the threads */
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
    job.multiplies_bf16 = kernels->panels->dots_bf16 && work->dtype == TA_BF16 &&
                          fabsf(job.query_factor) <= TA_PACK_MOST;
    return job;
}

/* Numbers of a row in a tile: not a power of two, which would crowd one part of the cache, and a
 * few more than `dim`, which kernels may read. */
static inline int64_t ta_tile_stride(int32_t dim)
{
    return dim + 8;
}

/* Floats of a panel that sums() writes: with some dimensions beyond. */
static inline int64_t ta_sums_floats(int32_t dim)
{
    return (int64_t)(dim + TA_PANEL_ROWS_MOST) * TA_PANEL_LANES;
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

/* Where a row of a tensor with query heads is. */
static inline const void *ta_row_data(const ta_attention_job *job, const ta_tensor *tensor,
                                      int32_t kv_head, int64_t row)
{
    return ta_element(job->work->dtype, tensor->data, ta_row_element(job, tensor, kv_head, row));
}

/* Where the key or value of number `key` of key_rows is. */
static inline const void *ta_key_data(const ta_attention_job *job, const ta_tensor *tensor,
                                      int32_t kv_head, int32_t key)
{
    int64_t at = job->work->key_rows[key] * tensor->token_stride + kv_head * tensor->head_stride;
    return ta_element(job->work->dtype, tensor->data, at);
}

/* Load n rows of a tensor with query heads, times `factor`, into a tile. */
static inline void ta_tile_load_rows(const ta_attention_job *job, const ta_tensor *tensor,
                                     int32_t dim, int32_t kv_head, int64_t row, int n, float factor,
                                     float *tile)
{
    for (int i = 0; i < n; i++)
        job->kernels->load[job->work->dtype](ta_row_data(job, tensor, kv_head, row + i), dim,
                                             factor, tile + i * ta_tile_stride(dim));
}

/* Load the keys or values of n keys from number `key` of key_rows on. */
static inline void ta_tile_load_keys(const ta_attention_job *job, const ta_tensor *tensor,
                                     int32_t dim, int32_t kv_head, int32_t key, int n, float *tile)
{
    for (int i = 0; i < n; i++)
        job->kernels->load[job->work->dtype](ta_key_data(job, tensor, kv_head, key + i), dim, 1.0f,
                                             tile + i * ta_tile_stride(dim));
}

/* ---- bf16 that is multiplied as such, see panel.h ---- */

/* Pairs of a row, and from one row of such a tile to the next. */
static inline int32_t ta_pairs(int32_t dim)
{
    return dim / 2;
}

static inline int64_t ta_pairs_stride(int32_t dim)
{
    return ta_tile_stride(ta_pairs(dim));
}

/* Are n elements such that it makes no difference: nothing below 2^-126, which the instruction
 * takes for 0, and nothing so large that what it then leaves out would count? A NaN is what it is
 * anyway, and must not decide about other rows. */
static inline int ta_bf16_packs(const void *elements, int32_t n)
{
    int packs = 1;
    for (int32_t i = 0; i < n; i++) {
        uint16_t bits;
        memcpy(&bits, (const char *)elements + 2 * i, sizeof bits);
        bits &= 0x7fff;
        packs &= bits == 0 || (bits >= 0x0080 && bits <= TA_PACK_MOST_BF16) || bits > 0x7f80;
    }
    return packs;
}

/* Copy n rows of a tensor with query heads into a tile; returns whether all of them pack. */
static inline int ta_tile_copy_rows(const ta_attention_job *job, const ta_tensor *tensor,
                                    int32_t dim, int32_t kv_head, int64_t row, int n, float *tile)
{
    int packs = 1;
    for (int i = 0; i < n; i++) {
        const void *from = ta_row_data(job, tensor, kv_head, row + i);
        memcpy(tile + i * ta_pairs_stride(dim), from, (size_t)dim * sizeof(uint16_t));
        packs &= ta_bf16_packs(from, dim);
    }
    return packs;
}

static inline void ta_tile_copy_keys(const ta_attention_job *job, const ta_tensor *tensor,
                                     int32_t dim, int32_t kv_head, int32_t key, int n, float *tile)
{
    for (int i = 0; i < n; i++)
        memcpy(tile + i * ta_pairs_stride(dim), ta_key_data(job, tensor, kv_head, key + i),
               (size_t)dim * sizeof(uint16_t));
}

/* Turn 16 rows of such a tile into a panel [pair][lane], with some pairs beyond. */
static inline void ta_panel_of_pairs(const ta_attention_job *job, const float *tile, int32_t dim,
                                     float *panel)
{
    job->kernels->panels->transpose(tile, ta_pairs_stride(dim), TA_PANEL_LANES,
                                    (ta_pairs(dim) + 7) / 8 * 8, panel, TA_PANEL_LANES);
}

/* ---- What is loaded next is asked for while the present tile is computed with: rows are apart in
 * memory, which the CPU does not guess ---- */

static inline void ta_fetch_vector(const ta_attention_job *job, const void *vector, int32_t dim)
{
    const char *at = vector;
    for (int64_t i = 0; i < dim * (int64_t)ta_dtype_bytes(job->work->dtype); i += 64)
        __builtin_prefetch(at + i, 0, 2);
}

static inline void ta_fetch_rows(const ta_attention_job *job, const ta_tensor *tensor, int32_t dim,
                                 int32_t kv_head, int64_t row, int64_t end)
{
    for (; row < end; row++)
        ta_fetch_vector(job, ta_row_data(job, tensor, kv_head, row), dim);
}

static inline void ta_fetch_keys(const ta_attention_job *job, const ta_tensor *tensor, int32_t dim,
                                 int32_t kv_head, int32_t key, int32_t end)
{
    for (; key < end; key++)
        ta_fetch_vector(job, ta_key_data(job, tensor, kv_head, key), dim);
}

/* forward.c: bytes of scratch of one thread, and the whole of forward(). */
size_t ta_attention_forward_scratch(const ta_attention_work *shape);
void ta_host_attention_forward(ta_pool *pool, ta_attention_job *job);

/* backward.c: bytes of scratch of all threads, with the sums of dQ behind it, and the whole of
 * backward(). */
size_t ta_attention_backward_bytes(const ta_attention_work *shape, int threads);
void ta_host_attention_backward(ta_pool *pool, ta_attention_job *job);

#endif
