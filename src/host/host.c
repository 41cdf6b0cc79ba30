/* The host device: the table that device.h describes, in C on this machine's CPUs. attend() is in
 * host/attend/attend.c, check_kv() in host/attend/check.c, attention over full sequences in
 * host/attention/attention.c, the arithmetic in the kernels_*.c of each SIMD level; what is left is
 * here: opening, memory, and the steps around attend(). */
#include <stdlib.h>
#include <string.h>

#include "base/dtype.h"
#include "base/partial.h"
#include "base/status.h"
#include "device/device.h"
#include "host.h"
#include "host/attend/attend.h"
#include "host/attend/check.h"
#include "host/attend/pack.h"
#include "host/attend/tally.h"
#include "host/cpus.h"

/* Fewer records than this are merged or finished faster by one thread than others wake. */
#define FLOATS_WORTH_WAKING (64 << 10)

/* Records that one piece of a loop over records takes. */
#define RECORDS_PER_PIECE 16

static ta_host *host_of(ta_device *device)
{
    return (ta_host *)device;
}

static void host_close(ta_device *device)
{
    ta_host *host = host_of(device);
    ta_pool_destroy(host->pool);
    free(host);
}

static void host_describe(const ta_device *device, ta_text *text)
{
    const ta_host *host = (const ta_host *)device;
    ta_text_add(text, "host threads: %d\n", ta_pool_threads(host->pool));
    ta_text_add(text, "host simd: %s\n", host->kernels->name);
}

static ta_status host_alloc(ta_device *device, size_t bytes, void **memory)
{
    (void)device;
    void *p = NULL;
    if (posix_memalign(&p, 64, bytes > 0 ? bytes : 1) != 0)
        return ta_fail(TA_ERR_NO_MEMORY, "%zu bytes of host memory could not be allocated", bytes);
    *memory = p;
    return TA_OK;
}

static void host_free(ta_device *device, void *memory)
{
    (void)device;
    free(memory);
}

static ta_status host_copy(ta_device *device, void *to, const void *from, size_t bytes,
                           void *stream)
{
    (void)device;
    (void)stream;
    if (bytes > 0)
        memcpy(to, from, bytes);
    return TA_OK;
}

static int host_has_dtype(const ta_device *device, ta_dtype dtype, ta_dtype_role role)
{
    return ta_host_kernels_have(((const ta_host *)device)->kernels, dtype, role);
}

static size_t host_attend_bytes(const ta_device *device, const ta_problem *problem)
{
    const ta_host *host = (const ta_host *)device;
    return ta_host_attend_bytes(problem, ta_pool_threads(host->pool));
}

static ta_status host_pack_query(ta_device *device, const ta_problem *problem, const ta_tensor *q,
                                 int32_t heads, void *packed, void *stream)
{
    const ta_problem *p = problem;
    size_t row_bytes = (size_t)p->k_dim * ta_dtype_bytes(p->query_dtype);
    char *to = packed;
    (void)device;
    (void)stream;
    for (int32_t h = 0; h < heads; h++) {
        for (int64_t row = 0; row < ta_problem_rows(p); row++) {
            int64_t at = row / p->query_tokens * q->batch_stride +
                         row % p->query_tokens * q->token_stride + h * q->head_stride;
            memcpy(to, ta_element(p->query_dtype, q->data, at), row_bytes);
            to += row_bytes;
        }
    }
    return TA_OK;
}

static ta_status host_pack_kv(ta_device *device, const ta_problem *problem, const ta_kv *kv,
                              int32_t slots, void *packed, void *stream)
{
    (void)stream;
    ta_host_pack_kv(host_of(device)->pool, problem, kv, slots, packed);
    return TA_OK;
}

static ta_status host_attend(ta_device *device, const ta_problem *problem, const ta_tensor *q,
                             const ta_kv *kv, float *records, void *workspace, void *stream)
{
    ta_host *host = host_of(device);
    (void)stream;
    ta_host_attend(host->pool, host->kernels, problem, q, kv, records, workspace);
    return TA_OK;
}

/* Call fn for pieces that cover `records`; with other threads only if that pays. */
static void for_records(ta_host *host, int64_t records, int32_t v_dim, ta_pool_fn fn, void *context)
{
    int64_t pieces = (records + RECORDS_PER_PIECE - 1) / RECORDS_PER_PIECE;
    if (records * ta_record_floats(v_dim) < FLOATS_WORTH_WAKING)
        ta_pool_run_here(host->pool, pieces, fn, context);
    else
        ta_pool_run(host->pool, pieces, fn, context);
}

static int64_t piece_end(int64_t piece, int64_t records)
{
    int64_t end = (piece + 1) * RECORDS_PER_PIECE;
    return end < records ? end : records;
}

typedef struct merge_job {
    const ta_host_kernels *kernels;
    float *into;
    const float *from;
    int64_t records;
    int32_t v_dim;
} merge_job;

static void merge_piece(void *context, int64_t piece, int thread)
{
    const merge_job *job = context;
    int64_t floats = ta_record_floats(job->v_dim);
    (void)thread;
    for (int64_t i = piece * RECORDS_PER_PIECE; i < piece_end(piece, job->records); i++)
        job->kernels->merge(job->into + i * floats, job->from + i * floats, job->v_dim);
}

static ta_status host_merge(ta_device *device, float *into, const float *from, int64_t records,
                            int32_t v_dim, void *stream)
{
    ta_host *host = host_of(device);
    merge_job job = {host->kernels, into, from, records, v_dim};
    (void)stream;
    for_records(host, records, v_dim, merge_piece, &job);
    return TA_OK;
}

static void merge_tallies_piece(void *context, int64_t piece, int thread)
{
    const merge_job *job = context;
    int64_t floats = ta_tally_floats(job->v_dim);
    (void)thread;
    for (int64_t i = piece * RECORDS_PER_PIECE; i < piece_end(piece, job->records); i++)
        ta_tally_merge(job->into + i * floats, job->from + i * floats, job->v_dim);
}

static ta_status host_merge_tallies(ta_device *device, float *into, const float *from,
                                    int64_t records, int32_t v_dim, ta_fault *fault,
                                    const ta_fault *theirs, void *stream)
{
    ta_host *host = host_of(device);
    merge_job job = {host->kernels, into, from, records, v_dim};
    (void)fault; /* the host follows every step */
    (void)theirs;
    (void)stream;
    for_records(host, records, v_dim, merge_tallies_piece, &job);
    return TA_OK;
}

typedef struct finish_job {
    const ta_host_kernels *kernels;
    const ta_problem *problem;
    const float *records; /* of the first head to finish */
    int32_t first_head, heads;
    const ta_tensor *out;
    float *lse;
} finish_job;

/* Where the output of a row goes; NULL: nobody wants it. */
static void *out_at(const finish_job *job, int32_t head, int64_t row)
{
    const ta_problem *p = job->problem;
    const ta_tensor *out = job->out;
    if (!out || !out->data)
        return NULL;
    int64_t at = row / p->query_tokens * out->batch_stride +
                 row % p->query_tokens * out->token_stride + head * out->head_stride;
    return (char *)out->data + at * (int64_t)ta_dtype_bytes(p->out_dtype);
}

static void finish_tally(const finish_job *job, int32_t head, int64_t row, const float *tally)
{
    const ta_problem *p = job->problem;
    float sink = p->sinks ? (float)(p->sinks[job->first_head + head] * M_LOG2E) : -INFINITY;
    float values[TA_MAX_DIM], lse = ta_tally_finish(tally, p->v_dim, sink, values);
    void *to = out_at(job, head, row);
    if (to)
        job->kernels->store[p->out_dtype](values, p->v_dim, 1.0f, to);
    if (job->lse)
        job->lse[row * job->heads + head] = lse;
}

static void finish_record(const finish_job *job, int32_t head, int64_t row, const float *record)
{
    const ta_problem *p = job->problem;
    float m = record[p->v_dim], l = record[p->v_dim + 1];
    float o_scale = 1.0f;
    if (p->sinks) { /* a partial with this score, a sum of 1 and no value */
        ta_merge_scales s = ta_merge_scale(m, (float)(p->sinks[job->first_head + head] * M_LOG2E));
        l = ta_merge_add(l, 1.0f, s);
        m = s.m;
        o_scale = s.a;
    }
    void *to = out_at(job, head, row);
    if (to)
        job->kernels->store[p->out_dtype](record, p->v_dim, o_scale * ta_partial_normalizer(m, l),
                                          to);
    if (job->lse)
        job->lse[row * job->heads + head] = ta_partial_lse(m, l);
}

static void finish_piece(void *context, int64_t piece, int thread)
{
    const finish_job *job = context;
    int64_t rows = ta_problem_rows(job->problem);
    int64_t floats = ta_problem_record_floats(job->problem);
    (void)thread;
    for (int64_t i = piece * RECORDS_PER_PIECE; i < piece_end(piece, rows * job->heads); i++)
        (job->problem->tally_tile ? finish_tally : finish_record)(
            job, (int32_t)(i / rows), i % rows, job->records + i * floats);
}

static ta_status host_finish(ta_device *device, const ta_problem *problem, const float *records,
                             int32_t first_head, int32_t heads, const ta_tensor *out, float *lse,
                             void *stream)
{
    ta_host *host = host_of(device);
    finish_job job = {host->kernels, problem, records, first_head, heads, out, lse};
    (void)stream;
    for_records(host, ta_problem_rows(problem) * heads, problem->v_dim, finish_piece, &job);
    return TA_OK;
}

static const ta_device_ops host_ops = {
    .close = host_close,
    .describe = host_describe,
    .alloc = host_alloc,
    .free = host_free,
    .copy = host_copy,
    .has_dtype = host_has_dtype,
    .attend_bytes = host_attend_bytes,
    .check_kv = ta_host_check_kv,
    .pack_query = host_pack_query,
    .pack_kv = host_pack_kv,
    .attend = host_attend,
    .merge = host_merge,
    .merge_tallies = host_merge_tallies,
    .finish = host_finish,
    .attention = &ta_host_attention,
};

ta_status ta_host_open(const ta_device_config *config, ta_device **device)
{
    const char *simd = config ? config->simd : NULL;
    int threads = config ? config->threads : 0;
    if (threads < 0 || threads > TA_POOL_MAX_THREADS)
        return ta_fail(TA_ERR_INVALID, "config.threads is %d: must be from 0 to %d", threads,
                       TA_POOL_MAX_THREADS);
    const ta_host_kernels *kernels = ta_host_kernels_find(simd);
    if (!kernels)
        return ta_fail(TA_ERR_UNSUPPORTED, "config.simd is \"%s\": this CPU and build have %s",
                       simd, ta_host_simd_levels());
    ta_host *host = calloc(1, sizeof *host);
    if (!host)
        return ta_fail(TA_ERR_NO_MEMORY, "no memory for the host device");
    host->device.ops = &host_ops;
    strcpy(host->device.name, "host");
    host->kernels = kernels;
    ta_status status = ta_pool_create(threads > 0 ? threads : ta_cpus(), &host->pool);
    if (status != TA_OK) {
        free(host);
        return status;
    }
    ta_log_info("host device: %d threads, %s", ta_pool_threads(host->pool), kernels->name);
    *device = &host->device;
    return TA_OK;
}
