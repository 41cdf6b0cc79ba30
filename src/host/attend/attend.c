/* The local attention of the host device: the work divided into items (attend.h), the items on the
 * thread pool (item.h), each of which writes the records of one split of the tokens, then the merge
 * of each row's splits in ascending order. host.c calls this. */
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

/* ---- The division ---- */

/* Enough items that some tens of threads finish at about the same time. */
#define ITEMS_WANTED 128

/* At least 8 splits, so that one long sequence among short ones does not keep a single thread busy
 * at the end; at most 64, to bound the merging. */
#define SPLITS_MIN 8
#define SPLITS_MAX 64

/* A split shorter than this costs more to merge than it gains. */
#define SPLIT_TOKENS_MIN 512

/* Rows of all heads of an item, and the bytes of their queries and sums: beyond that they leave the
 * second cache level. Rows past it form another group, which reads K and V again: with hundreds of
 * rows, arithmetic takes many times longer than reading. */
#define GROUP_BYTES (1 << 20)
#define GROUP_ROWS_MAX 1024
#define HEADS_TOGETHER_ROWS 256

/* The most memory for the records of all splits, unless one split alone needs more. */
#define RECORDS_BYTES (64ll << 20)

static int64_t round_up(int64_t n, int64_t multiple)
{
    return (n + multiple - 1) / multiple * multiple;
}

static int64_t ceil_div(int64_t n, int64_t d)
{
    return (n + d - 1) / d;
}

static int64_t clamp(int64_t n, int64_t low, int64_t high)
{
    return n < low ? low : n > high ? high : n;
}

static int32_t choose_group_heads(const ta_problem *p, int32_t rows)
{
    int32_t block_rows = rows < TA_ROW_BLOCK ? 1 : TA_ROW_BLOCK;
    int64_t heads = TA_BLOCK_VALUES / (block_rows * p->v_dim);
    int64_t few_rows = HEADS_TOGETHER_ROWS / rows;
    heads = heads < few_rows ? heads : few_rows;
    heads = heads < TA_HEADS_MAX ? heads : TA_HEADS_MAX;
    return (int32_t)clamp(heads, 1, p->kv_heads);
}

static int32_t choose_group_rows(const ta_problem *p, int32_t rows)
{
    int64_t most = GROUP_BYTES / (((int64_t)p->k_dim + p->v_dim) * (int64_t)sizeof(float));
    most = clamp(most / 16 * 16, 16, GROUP_ROWS_MAX);
    return (int32_t)(rows < most ? rows : most);
}

static int32_t choose_splits(const ta_problem *p, const ta_division *d)
{
    int64_t per_split = (int64_t)p->plan_batch * d->head_groups * d->row_groups;
    int64_t splits = clamp(ceil_div(ITEMS_WANTED, per_split), SPLITS_MIN, SPLITS_MAX);
    int64_t useful = ceil_div(p->max_tokens, SPLIT_TOKENS_MIN);
    int64_t bytes = p->plan_rows * p->query_heads * d->record_floats * 4;
    int64_t affordable = RECORDS_BYTES / bytes;
    splits = splits < useful ? splits : useful;
    return (int32_t)clamp(splits, 1, affordable > 1 ? affordable : 1);
}

ta_division ta_divide(const ta_problem *problem, int32_t query_tokens, int heads_together)
{
    const ta_problem *p = problem;
    ta_division d = {0};
    if (query_tokens == 0)
        return d;
    d.rows = p->query_heads / p->kv_heads * query_tokens;
    d.group_rows = choose_group_rows(p, d.rows);
    d.row_groups = (int32_t)ceil_div(d.rows, d.group_rows);
    d.group_heads = heads_together ? choose_group_heads(p, d.rows) : 1;
    d.head_groups = (int32_t)ceil_div(p->kv_heads, d.group_heads);
    d.record_floats = (int32_t)round_up(ta_problem_record_floats(p), 16); /* on cache lines */
    d.tally_tile = p->tally_tile;
    d.splits = choose_splits(p, &d);
    d.items = (int64_t)d.head_groups * d.row_groups * d.splits;
    return d;
}

void ta_divide_all(const ta_problem *problem, int heads_together, ta_division *divisions)
{
    const ta_problem *p = problem;
    int64_t item = 0, record = 0;
    for (int32_t b = 0; b < p->batch; b++) {
        ta_division *d = &divisions[b];
        int32_t tokens = ta_problem_query_tokens(p, b);
        if (b > 0 && tokens == ta_problem_query_tokens(p, b - 1))
            *d = divisions[b - 1];
        else
            *d = ta_divide(p, tokens, heads_together);
        d->first_item = item;
        d->first_record = record;
        item += d->items;
        record += (int64_t)p->kv_heads * d->splits * d->rows;
    }
}

int32_t ta_division_split_tokens(const ta_division *division, int32_t tokens)
{
    int64_t even = round_up(ceil_div(tokens, division->splits), TA_TOKEN_BLOCK);
    if (division->tally_tile)
        even = round_up(clamp(even, SPLIT_TOKENS_MIN, INT32_MAX), division->tally_tile);
    return (int32_t)clamp(even, SPLIT_TOKENS_MIN, INT32_MAX);
}

static int32_t smaller(int32_t a, int32_t b)
{
    return a < b ? a : b;
}

/* The last sequence that does not begin after the item. */
static int32_t sequence_of(const ta_division *divisions, int32_t batch, int64_t item)
{
    int32_t first = 0, end = batch;
    while (end - first > 1) {
        int32_t middle = first + (end - first) / 2;
        if (divisions[middle].first_item <= item)
            first = middle;
        else
            end = middle;
    }
    return first;
}

ta_item ta_division_item(const ta_division *divisions, const ta_problem *problem, int64_t item)
{
    int32_t sequence = sequence_of(divisions, problem->batch, item);
    const ta_division *d = &divisions[sequence];
    ta_item i = {.sequence = sequence};
    item -= d->first_item;
    i.split = (int32_t)(item % d->splits);
    item /= d->splits;
    i.row = (int32_t)(item % d->row_groups) * d->group_rows;
    item /= d->row_groups;
    i.kv_head = (int32_t)(item % d->head_groups) * d->group_heads;
    i.rows = smaller(d->rows - i.row, d->group_rows);
    i.heads = smaller(problem->kv_heads - i.kv_head, d->group_heads);
    return i;
}

/* ---- The items, and the merge of splits ---- */

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
