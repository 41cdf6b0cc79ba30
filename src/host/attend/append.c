/* The append() slot of the host device: new tokens into the cache, in pieces that the threads of
 * the pool share. device/new_token.h says which token goes where. host.c lists it. */
#include "append.h"

#include <math.h>
#include <string.h>

#include "base/dtype.h"
#include "device/new_token.h"
#include "host/host.h"

/* Less than this is copied faster by one thread than it takes to wake a second. */
#define BYTES_WORTH_WAKING (256 << 10)

/* Rows that one piece has. */
#define ROWS_PER_PIECE 16

typedef struct append_job {
    const ta_host_kernels *kernels;
    const ta_problem *problem;
    const ta_kv *kv;
    const ta_new_tokens *tokens;
} append_job;

static float largest_of(const float *numbers, int32_t n)
{
    float largest = 0.0f;
    for (int32_t i = 0; i < n; i++)
        largest = fabsf(numbers[i]) > largest ? fabsf(numbers[i]) : largest;
    return largest;
}

/* One vector of K or V. Elements of the cache's type stay as they are. `scale` may be NULL. */
static void store(const append_job *job, int32_t dim, const void *from, void *to, float *scale)
{
    ta_dtype given = job->tokens->dtype, stored = job->problem->kv_dtype;
    float numbers[TA_MAX_DIM];
    if (given == stored) {
        memcpy(to, from, (size_t)dim * ta_dtype_bytes(stored));
        return;
    }
    job->kernels->load[given](from, dim, 1.0f, numbers);
    if (scale && job->tokens->make_scales)
        *scale = ta_scale_for(largest_of(numbers, dim), ta_narrow_largest(stored));
    for (int32_t i = 0; scale && i < dim; i++)
        numbers[i] /= *scale;
    job->kernels->store[stored](numbers, dim, 1.0f, to);
}

/* One token of K or of V, all heads. `before` as in new_token.h. */
static void store_token(const append_job *job, const ta_new_token *t, int64_t row, int64_t before,
                        int values)
{
    const ta_problem *p = job->problem;
    const ta_new_tokens *tokens = job->tokens;
    const ta_tensor *from = values ? &tokens->v : &tokens->k;
    const ta_tensor *to = values ? &job->kv->v : &job->kv->k;
    int32_t dim = values ? p->v_dim : p->k_dim;
    int64_t size = (int64_t)ta_dtype_bytes(tokens->dtype), rows = ta_problem_rows(p);
    int64_t begin = t->block * to->batch_stride + t->within * to->token_stride;
    for (int32_t head = 0; head < p->kv_heads; head++) {
        const char *source = tokens->gathered;
        if (source)
            source += ta_gathered_head(p, rows, size, head, values) + row * dim * size;
        else
            source =
                (const char *)from->data +
                (ta_new_token_from(p, tokens, from, t, row, before) + head * from->head_stride) *
                    size;
        store(job, dim, source,
              (char *)to->data +
                  (begin + head * to->head_stride) * (int64_t)ta_dtype_bytes(p->kv_dtype),
              ta_new_token_scale(values ? &job->kv->v_scale : &job->kv->k_scale, t, head));
    }
}

static void append_piece(void *context, int64_t piece, int thread)
{
    const append_job *job = context;
    const ta_problem *p = job->problem;
    int64_t row = piece * ROWS_PER_PIECE, rows = ta_problem_rows(p), before = 0;
    int32_t counted = 0; /* sequences that `before` counts */
    int64_t end = row + ROWS_PER_PIECE < rows ? row + ROWS_PER_PIECE : rows;
    (void)thread;
    for (; row < end; row++) {
        ta_new_token t = ta_find_new_token(p, job->kv, row);
        for (; job->tokens->local && counted < t.sequence; counted++)
            before += ta_new_tokens_held(p, job->kv, counted);
        if (!t.found)
            continue;
        store_token(job, &t, row, before, 0);
        store_token(job, &t, row, before, 1);
    }
}

/* What the ranks tell in their pieces. */
static ta_fault gathered_fault(const ta_problem *p, const ta_new_tokens *tokens)
{
    int64_t size = (int64_t)ta_dtype_bytes(tokens->dtype), rows = ta_problem_rows(p);
    ta_fault all = {0};
    for (int32_t rank = 0; rank < p->shard.ranks; rank++) {
        ta_fault next;
        memcpy(&next, (const char *)tokens->gathered + ta_gathered_piece(p, rows, size, rank),
               sizeof next);
        all = rank ? ta_fault_merge(all, next) : next;
    }
    return all;
}

ta_status ta_host_append(ta_device *device, const ta_problem *problem, const ta_kv *kv,
                         const ta_new_tokens *tokens, void *stream)
{
    ta_host *host = (ta_host *)device;
    append_job job = {host->kernels, problem, kv, tokens};
    int64_t rows = ta_problem_rows(problem);
    int64_t pieces = (rows + ROWS_PER_PIECE - 1) / ROWS_PER_PIECE;
    size_t bytes = (size_t)rows * (size_t)problem->kv_heads *
                   (size_t)(problem->k_dim + problem->v_dim) * ta_dtype_bytes(tokens->dtype);
    (void)stream;
    if (tokens->gathered && tokens->report) {
        ta_fault fault = gathered_fault(problem, tokens);
        if (fault.status != TA_OK) {
            if (tokens->report->status == TA_OK)
                *tokens->report = fault;
            return TA_OK;
        }
    }
    if (bytes < BYTES_WORTH_WAKING)
        ta_pool_run_here(host->pool, pieces, append_piece, &job);
    else
        ta_pool_run(host->pool, pieces, append_piece, &job);
    return TA_OK;
}
