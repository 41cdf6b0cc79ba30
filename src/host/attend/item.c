/* One item of attend(): see item.h. It starts here, with its query rows loaded, goes over its
 * tokens in item_tokens.c, and ends here. */
#include <float.h>
#include <string.h>

#include "base/dtype.h"
#include "item.h"
#include "tally.h"

static size_t round_to_line(size_t bytes)
{
    return (bytes + 63) / 64 * 64;
}

size_t ta_item_scratch_bytes(const ta_problem *problem, const ta_division *division)
{
    size_t rows = (size_t)division->group_rows, all = rows * (size_t)division->group_heads;
    size_t record = problem->tally_tile ? round_to_line((size_t)problem->v_dim * sizeof(float)) : 0;
    return round_to_line(sizeof(ta_item_buffers)) + round_to_line(rows * sizeof(ta_query_row)) +
           3 * round_to_line(all * sizeof(float)) +
           round_to_line(all * (size_t)problem->k_dim * sizeof(float)) + all * record;
}

ta_visible ta_job_row_visible(const ta_attend_job *job, int32_t sequence, int32_t token)
{
    const ta_problem *p = job->problem;
    int32_t length = job->kv->lengths[sequence];
    return ta_shard_visible(&p->shard, ta_kv_bounds(job->kv, sequence), length,
                            length - ta_problem_query_tokens(p, sequence) + token, p->causal,
                            p->window);
}

ta_visible ta_job_visible(const ta_attend_job *job, int32_t sequence)
{
    const ta_problem *p = job->problem;
    return ta_shard_seen(&p->shard, ta_kv_bounds(job->kv, sequence), job->kv->lengths[sequence],
                         ta_problem_query_tokens(p, sequence), p->causal, p->window);
}

ta_visible ta_job_divided(const ta_attend_job *job, int32_t sequence)
{
    ta_visible all = ta_job_visible(job, sequence);
    if (all.first < all.end && job->problem->tally_tile)
        all.first -= all.first % job->problem->tally_tile;
    return all;
}

ta_visible ta_job_item_range(const ta_attend_job *job, ta_item item)
{
    ta_visible all = ta_job_divided(job, item.sequence);
    int64_t split_tokens =
        ta_division_split_tokens(&job->divisions[item.sequence], all.end - all.first);
    int64_t first = all.first + item.split * split_tokens;
    int64_t end = first + split_tokens < all.end ? first + split_tokens : all.end;
    return first < end ? (ta_visible){(int32_t)first, (int32_t)end} : (ta_visible){0, 0};
}

static ta_item_state prepare(const ta_attend_job *job, ta_item item, char *scratch)
{
    const ta_division *d = &job->divisions[item.sequence];
    size_t rows = (size_t)d->group_rows;
    size_t all = round_to_line(rows * (size_t)d->group_heads * sizeof(float));
    ta_item_state s = {
        .job = job, .division = d, .item = item, .buffers = (ta_item_buffers *)scratch};
    scratch += round_to_line(sizeof(ta_item_buffers));
    s.rows = (ta_query_row *)scratch;
    scratch += round_to_line(rows * sizeof(ta_query_row));
    s.slopes = (float *)scratch;
    s.m = (float *)(scratch + all);
    s.l = (float *)(scratch + 2 * all);
    s.q = (float *)(scratch + 3 * all);
    s.source = ta_tile_source_of(job->problem, job->kv, item.sequence, item.kv_head);
    s.records = ta_job_record(job, item.sequence, item.kv_head, item.row, item.split);
    s.record_stride = d->record_floats;
    s.record_head_stride = (int64_t)d->splits * d->rows * d->record_floats;
    if (job->problem->tally_tile) {
        size_t k_bytes = (size_t)job->problem->k_dim * sizeof(float);
        s.tallies = s.records;
        s.tally_stride = s.record_stride;
        s.tally_head_stride = s.record_head_stride;
        s.records = (float *)((char *)s.q + round_to_line(rows * (size_t)d->group_heads * k_bytes));
        s.record_stride = (int64_t)(round_to_line((size_t)job->problem->v_dim * 4) / 4);
        s.record_head_stride = ta_row_index(&s, 1, 0) * s.record_stride;
    }
    return s;
}

/* ---- Its query rows ---- */

static void empty_row(const ta_item_state *s, int head, int32_t row)
{
    int64_t index = ta_row_index(s, head, row);
    s->m[index] = -INFINITY;
    s->l[index] = 0.0f;
    memset(ta_row_record(s, head, row), 0, (size_t)s->job->problem->v_dim * sizeof(float));
}

/* Which query token a row belongs to, and which query head. */
static int32_t token_of(const ta_item_state *s, int32_t row)
{
    return (s->item.row + row) / (s->job->problem->query_heads / s->job->problem->kv_heads);
}

static int32_t query_head_of(const ta_item_state *s, int head, int32_t row)
{
    int32_t query_heads = s->job->problem->query_heads / s->job->problem->kv_heads;
    return (s->item.kv_head + head) * query_heads + (s->item.row + row) % query_heads;
}

static void start_row(const ta_item_state *s, int head, int32_t row)
{
    const ta_problem *p = s->job->problem;
    int32_t token = token_of(s, row);
    s->rows[row].visible = ta_job_row_visible(s->job, s->item.sequence, token);
    s->rows[row].position = s->job->kv->lengths[s->item.sequence] -
                            ta_problem_query_tokens(p, s->item.sequence) + token;
    s->slopes[ta_row_index(s, head, row)] =
        p->alibi_slopes ? (float)(p->alibi_slopes[query_head_of(s, head, row)] * M_LOG2E) : 0.0f;
    empty_row(s, head, row);
}

/* The query row times `factor`. */
static float *load_query(const ta_item_state *s, int head, int32_t row, float factor)
{
    const ta_problem *p = s->job->problem;
    const ta_tensor *q = s->job->q;
    int64_t at = ta_problem_token_at(p, q, s->item.sequence, token_of(s, row)) +
                 query_head_of(s, head, row) * q->head_stride;
    float *to = s->q + ta_row_index(s, head, row) * p->k_dim;
    s->job->kernels->load[p->query_dtype](ta_element(p->query_dtype, q->data, at), p->k_dim, factor,
                                          to);
    return to;
}

/* Can score_packed() take this query row? With such numbers, what it takes for 0 changes a score by
 * less than 2^-36. */
static int can_pack(const float *q, int32_t k_dim)
{
    int can = 1;
    for (int32_t i = 0; i < k_dim; i++) {
        float magnitude = fabsf(q[i]);
        can &= magnitude <= TA_PACK_MOST && (magnitude >= FLT_MIN || magnitude == 0.0f);
    }
    return can;
}

static void load_queries(ta_item_state *s)
{
    const ta_problem *p = s->job->problem;
    const ta_host_kernels *kernels = s->job->kernels;
    int count = s->item.heads * s->item.rows;
    float factor = ta_score_factor(p);
    s->packed = kernels->pack[p->kv_dtype] && p->query_dtype == p->kv_dtype &&
                fabsf(factor) <= TA_PACK_MOST;
    for (int i = 0; i < count && s->packed; i++)
        s->packed = can_pack(load_query(s, i / s->item.rows, i % s->item.rows, 1.0f), p->k_dim);
    for (int i = 0; i < count; i++) {
        int head = i / s->item.rows, row = i % s->item.rows;
        if (s->packed)
            kernels->pack[p->kv_dtype](s->q + ta_row_index(s, head, row) * p->k_dim, p->k_dim);
        else
            kernels->arrange[p->kv_dtype](load_query(s, head, row, factor), p->k_dim);
    }
}

static void start_rows(ta_item_state *s)
{
    for (int i = 0; i < s->item.heads * s->item.rows; i++)
        start_row(s, i / s->item.rows, i % s->item.rows);
    load_queries(s);
}

/* ---- All of it ---- */

static float *row_tally(const ta_item_state *s, int head, int32_t row)
{
    return s->tallies + head * s->tally_head_stride + row * s->tally_stride;
}

/* Tile by tile, each from an empty partial, so that its bits depend on nothing outside of it. */
static void attend_tiles(const ta_item_state *s, int32_t first, int32_t end)
{
    int32_t tile = s->job->problem->tally_tile, v_dim = s->job->problem->v_dim;
    for (int i = 0; i < s->item.heads * s->item.rows; i++)
        ta_tally_clear(row_tally(s, i / s->item.rows, i % s->item.rows), v_dim);
    while (first < end) {
        int32_t next = end - first < tile - first % tile ? end : first + tile - first % tile;
        ta_item_attend_tokens(s, first, next, end);
        for (int i = 0; i < s->item.heads * s->item.rows; i++) {
            int head = i / s->item.rows, row = i % s->item.rows;
            int64_t index = ta_row_index(s, head, row);
            ta_tally_add_partial(row_tally(s, head, row), s->m[index], s->l[index],
                                 ta_row_record(s, head, row), v_dim);
            empty_row(s, head, row);
        }
        first = next;
    }
}

void ta_item_attend(const ta_attend_job *job, ta_item item, void *scratch)
{
    const ta_problem *p = job->problem;
    ta_visible range = ta_job_item_range(job, item);
    int32_t first = range.first, end = range.end;
    if (first >= end)
        return;

    ta_item_state s = prepare(job, item, scratch);
    start_rows(&s);
    /* These rows may see less than all rows of the sequence. */
    ta_visible seen = {s.rows[0].visible.first, s.rows[item.rows - 1].visible.end};
    first = first > seen.first ? first : seen.first;
    end = end < seen.end ? end : seen.end;
    if (s.tallies) {
        attend_tiles(&s, first, end);
        return;
    }
    ta_item_attend_tokens(&s, first, end, end);
    for (int i = 0; i < item.heads * item.rows; i++) {
        float *record = ta_row_record(&s, i / item.rows, i % item.rows);
        int64_t index = ta_row_index(&s, i / item.rows, i % item.rows);
        record[p->v_dim] = s.m[index];
        record[p->v_dim + 1] = s.l[index];
    }
}
