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

size_t ta_host_attend_bytes(const ta_problem *problem, int threads)
{
    size_t most = 0;
    for (int heads_together = 0; heads_together < 2; heads_together++) {
        ta_division d = ta_divide(problem, heads_together);
        size_t records = (size_t)ta_problem_rows(problem) * (size_t)problem->query_heads;
        size_t bytes = (size_t)threads * ta_item_scratch_bytes(problem, &d) +
                       records * (size_t)d.splits * (size_t)d.record_floats * sizeof(float);
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
    ta_item_attend(job, ta_division_item(&job->division, job->problem, item),
                   job->scratch + (size_t)thread * job->scratch_bytes);
}

/* Merge the splits of row `row` of KV head `kv_head` into the result. */
static void merge_row(const ta_attend_job *job, int32_t sequence, int32_t kv_head, int32_t row)
{
    const ta_problem *p = job->problem;
    int32_t heads = p->query_heads / p->kv_heads;
    int64_t head = (int64_t)kv_head * heads + row % heads;
    int64_t result_row = (int64_t)sequence * p->query_tokens + row / heads;
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
    int32_t split_tokens = ta_division_split_tokens(&job->division, all.end - all.first);
    const float *record = ta_job_record(job, sequence, kv_head, row, 0);
    memcpy(result, record, (size_t)floats * sizeof *result);
    for (int64_t at = (int64_t)all.first + split_tokens; at < all.end; at += split_tokens) {
        record += (int64_t)job->division.rows * job->division.record_floats;
        if (p->tally_tile)
            ta_tally_merge(result, record, p->v_dim);
        else
            job->kernels->merge(result, record, p->v_dim);
    }
}

static void merge_rows(void *context, int64_t piece, int thread)
{
    const ta_attend_job *job = context;
    int64_t rows = job->division.rows;
    int64_t all = (int64_t)job->problem->batch * job->problem->kv_heads * rows;
    (void)thread;
    for (int64_t i = piece * ROWS_PER_PIECE; i < all && i < (piece + 1) * ROWS_PER_PIECE; i++) {
        int64_t head = i / rows;
        merge_row(job, (int32_t)(head / job->problem->kv_heads),
                  (int32_t)(head % job->problem->kv_heads), (int32_t)(i % rows));
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
        bytes += (int64_t)(all.end - all.first) * token_bytes * (1 + job->division.rows / 8);
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
    job.division = ta_divide(problem, heads_together(kv));
    job.records = records;
    job.scratch = workspace;
    job.scratch_bytes = ta_item_scratch_bytes(problem, &job.division);
    job.split_records = (float *)(job.scratch + (size_t)ta_pool_threads(pool) * job.scratch_bytes);

    int64_t rows = ta_problem_rows(problem) * problem->query_heads;
    int64_t pieces = (rows + ROWS_PER_PIECE - 1) / ROWS_PER_PIECE;
    if (worth_waking(&job)) {
        ta_pool_run(pool, job.division.items, run_item, &job);
        ta_pool_run(pool, pieces, merge_rows, &job);
    } else {
        ta_pool_run_here(pool, job.division.items, run_item, &job);
        ta_pool_run_here(pool, pieces, merge_rows, &job);
    }
    return TA_OK;
}
