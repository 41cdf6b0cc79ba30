/* The local attention of the host device: the work divided into items (division.c), the items on
 * the thread pool (item.h), each of which writes the records of one split of the tokens, then the
 * merge of each row's splits in ascending order. host.c calls this. */
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

/* ---- The items, and the merge of splits ---- */

/* Less K and V than this is read faster by one thread than it takes to wake a second. */
#define BYTES_WORTH_WAKING (256 << 10)

/* Rows that one piece of the merging loop takes. */
#define ROWS_PER_PIECE 4

static size_t divisions_bytes(const ta_problem *problem)
{
    size_t parts = (size_t)problem->batch * (problem->shares_prefixes ? 2 : 1);
    return (parts * sizeof(ta_division) + 63) / 64 * 64;
}

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

/* Past so many query tokens a prefix has several groups of rows, and items do not grow. */
#define PREFIX_TOKENS_MOST 1024

/* A call may have any number of query tokens for each sequence, up to the most; and so has a group
 * that shares a prefix, up to those of the call. */
size_t ta_host_attend_bytes(const ta_problem *problem, int threads)
{
    size_t records = (size_t)ta_problem_rows(problem) * (size_t)problem->query_heads;
    size_t scratch = 0, split_bytes[2] = {0, 0};
    for (int prefix = 0; prefix <= (problem->shares_prefixes != 0); prefix++) {
        int64_t most = prefix ? ta_problem_rows(problem) : problem->query_tokens;
        most = prefix && most > PREFIX_TOKENS_MOST ? PREFIX_TOKENS_MOST : most;
        for (int32_t i = 0; i < 2 * most; i++) {
            ta_division d = ta_divide(problem, i / 2 + 1, i % 2, prefix);
            size_t bytes = (size_t)d.splits * (size_t)d.record_floats * sizeof(float);
            scratch = larger(scratch, ta_item_scratch_bytes(problem, &d));
            split_bytes[prefix] = larger(split_bytes[prefix], bytes);
        }
    }
    return divisions_bytes(problem) + (size_t)threads * scratch +
           records * (split_bytes[0] + split_bytes[1]);
}

/* Scratch of one thread in this call. */
static size_t scratch_bytes(const ta_attend_job *job)
{
    size_t most = 0;
    for (int32_t part = 0; part < ta_division_parts(job->problem); part++) {
        const ta_division *d = &job->divisions[part];
        if (d->items == 0 || (part > 0 && d->rows == d[-1].rows))
            continue;
        most = larger(most, ta_item_scratch_bytes(job->problem, d));
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

/* Merge the splits of a part for a row and head into the result, where `begun` says if there is
 * anything yet. Returns if there is afterwards. */
static int merge_splits(const ta_attend_job *job, int32_t part, int64_t result_row, int32_t head,
                        float *result, int begun)
{
    const ta_problem *p = job->problem;
    const ta_division *d = &job->divisions[part];
    int32_t heads = p->query_heads / p->kv_heads;
    int32_t row = (int32_t)(result_row - d->first_row) * heads + head % heads;
    int64_t floats = ta_problem_record_floats(p);
    ta_visible all = d->divided;
    if (all.first >= all.end)
        return begun;
    int32_t split_tokens = ta_division_split_tokens(d, all.end - all.first);
    const float *record = ta_job_record(job, part, head / heads, row, 0);
    for (int64_t at = all.first; at < all.end; at += split_tokens, begun = 1) {
        if (!begun)
            memcpy(result, record, (size_t)floats * sizeof *result);
        else if (p->tally_tile)
            ta_tally_merge(result, record, p->v_dim);
        else
            job->kernels->merge(result, record, p->v_dim);
        record += (int64_t)d->rows * d->record_floats;
    }
    return begun;
}

/* The result of a row and head: its prefix if it shares one, then its own tokens. */
static void merge_row(const ta_attend_job *job, int32_t sequence, int64_t result_row, int32_t head)
{
    const ta_problem *p = job->problem;
    float *result =
        job->records + (head * ta_problem_rows(p) + result_row) * ta_problem_record_floats(p);
    int begun = 0;
    if (job->divisions[sequence].from > 0)
        begun = merge_splits(job, p->batch + ta_problem_group(p, sequence), result_row, head,
                             result, begun);
    begun = merge_splits(job, sequence, result_row, head, result, begun);
    if (begun)
        return;
    if (p->tally_tile) {
        ta_tally_clear(result, p->v_dim);
        return;
    }
    memset(result, 0, (size_t)p->v_dim * sizeof *result);
    result[p->v_dim] = -INFINITY;
    result[p->v_dim + 1] = 0.0f;
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
    for (int32_t part = 0; part < ta_division_parts(p) && bytes < BYTES_WORTH_WAKING; part++) {
        const ta_division *d = &job->divisions[part];
        int64_t tokens = d->divided.end - d->divided.first;
        if (p->selected && tokens > p->selected_count)
            tokens = p->selected_count;
        bytes += tokens * token_bytes * (1 + d->rows / 8); /* many rows make up for few tokens */
    }
    return bytes >= BYTES_WORTH_WAKING;
}

ta_status ta_host_attend(ta_device *device, const ta_problem *problem, const ta_tensor *q,
                         const ta_kv *kv, float *records, void *workspace, const ta_tell *tell,
                         void *stream)
{
    const ta_host *host = (const ta_host *)device;
    ta_pool *pool = host->pool;
    ta_attend_job job = {.problem = problem,
                         .q = q,
                         .kv = kv,
                         .kernels = host->kernels,
                         .row_ahead_bytes = host->row_ahead_bytes,
                         .pool = pool};
    (void)tell, (void)stream;
    ta_divide_all(problem, kv, heads_together(kv), workspace);
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
