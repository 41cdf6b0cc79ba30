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
           round_to_line(all * (size_t)problem->k_dim * sizeof(float)) + all * record +
           ta_widened_memory(problem, division->group_heads) + ta_item_marks_bytes(problem);
}

ta_visible ta_job_item_range(const ta_attend_job *job, ta_item item)
{
    const ta_division *d = &job->divisions[item.part];
    ta_visible all = d->divided;
    int64_t split_tokens = ta_division_split_tokens(d, all.end - all.first);
    int64_t first = all.first + item.split * split_tokens;
    int64_t end = first + split_tokens < all.end ? first + split_tokens : all.end;
    return first < end ? (ta_visible){(int32_t)first, (int32_t)end} : (ta_visible){0, 0};
}

static ta_item_state prepare(const ta_attend_job *job, ta_item item, char *scratch)
{
    const ta_division *d = &job->divisions[item.part];
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
    s.widens = ta_widens(job->kernels, job->problem, item.rows);
    s.dtype = s.widens ? TA_BF16 : job->problem->kv_dtype;
    scratch = (char *)s.q + round_to_line(rows * (size_t)d->group_heads *
                                          (size_t)job->problem->k_dim * sizeof(float));
    s.source = ta_tile_source_of(job->problem, job->kv, d->sequence, item.kv_head);
    s.records = ta_job_record(job, item.part, item.kv_head, item.row, item.split);
    s.record_stride = d->record_floats;
    s.record_head_stride = (int64_t)d->splits * d->rows * d->record_floats;
    if (job->problem->tally_tile) {
        s.tallies = s.records;
        s.tally_stride = s.record_stride;
        s.tally_head_stride = s.record_head_stride;
        s.records = (float *)scratch;
        s.record_stride = (int64_t)(round_to_line((size_t)job->problem->v_dim * 4) / 4);
        s.record_head_stride = ta_row_index(&s, 1, 0) * s.record_stride;
        scratch += d->group_heads * s.record_head_stride * (int64_t)sizeof(float);
    }
    if (ta_dtype_is_narrow(job->problem->kv_dtype))
        s.narrow = scratch;
    if (job->problem->selected) /* the last piece */
        s.marks = (uint64_t *)(void *)((char *)s.buffers + ta_item_scratch_bytes(job->problem, d) -
                                       ta_item_marks_bytes(job->problem));
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
    if (head == 0)
        s->rows[row] = ta_division_row(s->division, p, s->job->kv, token_of(s, row));
    s->slopes[ta_row_index(s, head, row)] =
        p->alibi_slopes ? (float)(p->alibi_slopes[query_head_of(s, head, row)] * M_LOG2E) : 0.0f;
    empty_row(s, head, row);
}

/* The query row times `factor`. */
static float *load_query(const ta_item_state *s, int head, int32_t row, float factor)
{
    const ta_problem *p = s->job->problem;
    const ta_tensor *q = s->job->q;
    int64_t at = ta_problem_row_at(p, q, s->division->first_row + token_of(s, row)) +
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
    s->packed = kernels->pack[s->dtype] && p->query_dtype == ta_widened_dtype(s->dtype) &&
                fabsf(factor) <= TA_PACK_MOST;
    for (int i = 0; i < count && s->packed; i++)
        s->packed = can_pack(load_query(s, i / s->item.rows, i % s->item.rows, 1.0f), p->k_dim);
    for (int i = 0; i < count; i++) {
        int head = i / s->item.rows, row = i % s->item.rows;
        if (s->packed)
            kernels->pack[s->dtype](s->q + ta_row_index(s, head, row) * p->k_dim, p->k_dim);
        else
            kernels->arrange[s->dtype](load_query(s, head, row, factor), p->k_dim);
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

static void attend_range(const ta_item_state *s, int32_t first, int32_t end, int32_t last)
{
    if (s->marks)
        ta_item_attend_marked(s, first, end);
    else
        ta_item_attend_tokens(s, first, end, last);
}

/* Tile by tile, each from an empty partial, so that its bits depend on nothing outside of it. */
static void attend_tiles(const ta_item_state *s, int32_t first, int32_t end)
{
    int32_t tile = s->job->problem->tally_tile, v_dim = s->job->problem->v_dim;
    for (int i = 0; i < s->item.heads * s->item.rows; i++)
        ta_tally_clear(row_tally(s, i / s->item.rows, i % s->item.rows), v_dim);
    while (first < end) {
        int32_t next = end - first < tile - first % tile ? end : first + tile - first % tile;
        attend_range(s, first, next, end);
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

/* All of it that these rows see: maybe less than all rows of the part. */
static void attend_rows(ta_item_state *s, ta_visible range)
{
    int32_t v_dim = s->job->problem->v_dim, first = range.end, end = range.first;
    for (int32_t row = 0; row < s->item.rows; row++) {
        ta_visible seen = s->rows[row].visible;
        if (seen.first < seen.end) {
            first = first < seen.first ? first : seen.first;
            end = end > seen.end ? end : seen.end;
        }
    }
    first = first > range.first ? first : range.first;
    end = end < range.end ? end : range.end;
    if (s->marks)
        ta_item_mark(s, first, end);
    if (s->tallies) {
        attend_tiles(s, first, end);
        return;
    }
    attend_range(s, first, end, end);
    for (int i = 0; i < s->item.heads * s->item.rows; i++) {
        float *record = ta_row_record(s, i / s->item.rows, i % s->item.rows);
        int64_t index = ta_row_index(s, i / s->item.rows, i % s->item.rows);
        record[v_dim] = s->m[index];
        record[v_dim + 1] = s->l[index];
    }
}

/* The rows of an item from one on that are of the same query token. */
static ta_item_state rows_of_token(const ta_item_state *s, int32_t row)
{
    ta_item_state one = *s;
    const ta_problem *p = s->job->problem;
    int32_t heads = p->query_heads / p->kv_heads, left = s->item.rows - row;
    one.item.row += row;
    one.item.rows = heads - one.item.row % heads;
    one.item.rows = one.item.rows < left ? one.item.rows : left;
    one.rows += row;
    one.slopes += row;
    one.m += row;
    one.l += row;
    one.q += (int64_t)row * p->k_dim;
    one.records += row * s->record_stride;
    if (s->tallies)
        one.tallies += row * s->tally_stride;
    return one;
}

void ta_item_attend(const ta_attend_job *job, ta_item item, void *scratch)
{
    ta_visible range = ta_job_item_range(job, item);
    if (range.first >= range.end)
        return;
    ta_item_state s = prepare(job, item, scratch);
    start_rows(&s);
    if (!s.marks) {
        attend_rows(&s, range);
        return;
    }
    for (int32_t row = 0; row < item.rows;) { /* each query token has lists of its own */
        ta_item_state one = rows_of_token(&s, row);
        attend_rows(&one, range);
        row += one.item.rows;
    }
}
