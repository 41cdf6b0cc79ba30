/* Rows and tiles of attention over full sequences: see job.h. */
#include "job.h"

#include <math.h>

#include "base/dtype.h"

ta_attention_job ta_attention_job_of(const ta_host_kernels *kernels, const ta_attention_work *work)
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

void ta_tile_load_rows(const ta_attention_job *job, const ta_tensor *tensor, int32_t dim,
                       int32_t kv_head, int64_t row, int n, float factor, float *tile)
{
    ta_dtype dtype = job->work->dtype;
    for (int i = 0; i < n; i++) {
        int64_t at = ta_row_element(job, tensor, kv_head, row + i);
        job->kernels->load[dtype](ta_element(dtype, tensor->data, at), dim, factor,
                                  tile + i * ta_tile_stride(dim));
    }
}

void ta_tile_load_keys(const ta_attention_job *job, const ta_tensor *tensor, int32_t dim,
                       int32_t kv_head, int32_t key, int n, float *tile)
{
    ta_dtype dtype = job->work->dtype;
    for (int i = 0; i < n; i++) {
        int64_t at =
            job->work->key_rows[key + i] * tensor->token_stride + kv_head * tensor->head_stride;
        job->kernels->load[dtype](ta_element(dtype, tensor->data, at), dim, 1.0f,
                                  tile + i * ta_tile_stride(dim));
    }
}
