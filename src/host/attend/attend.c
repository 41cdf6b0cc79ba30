/* The local attention of the host device: items on the thread pool (item.h), each of which writes
 * the records of one split of the tokens, then the merge of each row's splits in ascending order.
 * host.c calls this. */
#include "attend.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/dtype.h"
#include "base/partial.h"
#include "host/host.h"
#include "item.h"
#include "tally.h"
#include "tile.h"

/* Less K and V than this is read faster by one thread than it takes to wake a second. */
#define BYTES_WORTH_WAKING (256 << 10)

/* Rows that one piece of the merging loop takes. */
#define ROWS_PER_PIECE 4

static size_t divisions_bytes(const ta_problem *problem)
{
    return ((size_t)problem->batch * sizeof(ta_division) + 63) / 64 * 64;
}

/* A call may have any number of query tokens for each sequence, up to the most. */
size_t ta_host_attend_bytes(const ta_problem *problem, int threads)
{
    size_t records = (size_t)ta_problem_rows(problem) * (size_t)problem->query_heads;
    size_t scratch = 0, splits = 0;
    for (int32_t i = 0; i < 2 * problem->query_tokens; i++) {
        ta_division d = ta_divide(problem, i / 2 + 1, i % 2);
        size_t bytes = ta_item_scratch_bytes(problem, &d);
        size_t split_bytes = (size_t)d.splits * (size_t)d.record_floats * sizeof(float);
        scratch = bytes > scratch ? bytes : scratch;
        splits = split_bytes > splits ? split_bytes : splits;
    }
    return divisions_bytes(problem) + (size_t)threads * scratch + records * splits;
}

/* Scratch of one thread in this call. */
static size_t scratch_bytes(const ta_attend_job *job)
{
    size_t most = 0;
    for (int32_t b = 0; b < job->problem->batch; b++) {
        const ta_division *d = &job->divisions[b];
        if (d->items == 0 || (b > 0 && d->rows == d[-1].rows))
            continue;
        size_t bytes = ta_item_scratch_bytes(job->problem, d);
        most = bytes > most ? bytes : most;
    }
    return most;
}

/* Is a token's next head nearer in memory than a head's next token? */
static int heads_together(const ta_kv *kv)
{
    return llabs(kv->k.head_stride) < llabs(ta_kv_token_stride(kv, &kv->k)) &&
           llabs(kv->v.head_stride) < llabs(ta_kv_token_stride(kv, &kv->v));
}

static void run_item(void *context, int64_t item, int thread)
{
    const ta_attend_job *job = context;
    ta_item_attend(job, ta_division_item(job->divisions, job->problem, item),
                   job->scratch + (size_t)thread * job->scratch_bytes);
}

/* Merge the splits of a row and head into the result. */
static void merge_row(const ta_attend_job *job, int32_t sequence, int64_t result_row, int32_t head)
{
    const ta_problem *p = job->problem;
    const ta_division *d = &job->divisions[sequence];
    int32_t heads = p->query_heads / p->kv_heads;
    int32_t token = (int32_t)(result_row - ta_problem_first_row(p, sequence));
    int64_t floats = ta_problem_record_floats(p);
    float *result = job->records + (head * ta_problem_rows(p) + result_row) * floats;

    ta_visible all = ta_job_divided(job, sequence);
    if (all.first >= all.end && p->tally_tile) {
        ta_tally_clear(result, p->v_dim);
        return;
    }
    if (all.first >= all.end) {
        memset(result, 0, (size_t)p->v_dim * sizeof *result);
        result[p->v_dim] = -INFINITY;
        result[p->v_dim + 1] = 0.0f;
        return;
    }
    int32_t split_tokens = ta_division_split_tokens(d, all.end - all.first);
    const float *record =
        ta_job_record(job, sequence, head / heads, token * heads + head % heads, 0);
    memcpy(result, record, (size_t)floats * sizeof *result);
    for (int64_t at = (int64_t)all.first + split_tokens; at < all.end; at += split_tokens) {
        record += (int64_t)d->rows * d->record_floats;
        if (p->tally_tile)
            ta_tally_merge(result, record, p->v_dim);
        else
            job->kernels->merge(result, record, p->v_dim);
    }
}

static void merge_rows(void *context, int64_t piece, int thread)
{
    const ta_attend_job *job = context;
    const ta_problem *p = job->problem;
    int64_t all = ta_problem_rows(p) * p->query_heads;
    (void)thread;
    for (int64_t i = piece * ROWS_PER_PIECE; i < all && i < (piece + 1) * ROWS_PER_PIECE; i++) {
        int64_t row = i / p->query_heads;
        merge_row(job, ta_problem_sequence_of(p, row), row, (int32_t)(i % p->query_heads));
    }
}

/* Is there enough to read that other threads should help? */
static int worth_waking(const ta_attend_job *job)
{
    const ta_problem *p = job->problem;
    int64_t token_bytes =
        (int64_t)ta_dtype_bytes(p->kv_dtype) * (p->k_dim + p->v_dim) * p->kv_heads;
    int64_t bytes = 0;
    for (int32_t b = 0; b < p->batch && bytes < BYTES_WORTH_WAKING; b++) {
        ta_visible all = ta_job_visible(job, b);
        /* Many rows make up for few tokens. */
        bytes += (int64_t)(all.end - all.first) * token_bytes * (1 + job->divisions[b].rows / 8);
    }
    return bytes >= BYTES_WORTH_WAKING;
}

ta_status ta_host_attend(ta_device *device, const ta_problem *problem, const ta_tensor *q,
                         const ta_kv *kv, float *records, void *workspace, const ta_tell *tell,
                         void *stream)
{
    const ta_host *host = (const ta_host *)device;
    ta_pool *pool = host->pool;
    ta_attend_job job = {
        .problem = problem, .q = q, .kv = kv, .kernels = host->kernels, .pool = pool};
    (void)tell, (void)stream;
    ta_divide_all(problem, heads_together(kv), workspace);
    job.divisions = workspace;
    job.records = records;
    job.scratch = (char *)workspace + divisions_bytes(problem);
    job.scratch_bytes = scratch_bytes(&job);
    job.split_records = (float *)(job.scratch + (size_t)ta_pool_threads(pool) * job.scratch_bytes);

    int64_t rows = ta_problem_rows(problem) * problem->query_heads;
    int64_t pieces = (rows + ROWS_PER_PIECE - 1) / ROWS_PER_PIECE;
    int64_t items = ta_division_items(job.divisions, problem);
    if (worth_waking(&job)) {
        ta_pool_run(pool, items, run_item, &job);
        ta_pool_run(pool, pieces, merge_rows, &job);
    } else {
        ta_pool_run_here(pool, items, run_item, &job);
        ta_pool_run_here(pool, pieces, merge_rows, &job);
    }
    return TA_OK;
}
