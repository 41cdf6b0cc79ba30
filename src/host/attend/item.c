/* One item of attend(): see item.h. */
#include "item.h"

#include "base/dtype.h"
#include "item_state.h"
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
                            length - p->query_tokens + token, p->causal, p->window);
}

ta_visible ta_job_visible(const ta_attend_job *job, int32_t sequence)
{
    ta_visible all = ta_job_row_visible(job, sequence, 0);
    all.end = ta_job_row_visible(job, sequence, job->problem->query_tokens - 1).end;
    return all;
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
    int64_t split_tokens = ta_division_split_tokens(&job->division, all.end - all.first);
    int64_t first = all.first + item.split * split_tokens;
    int64_t end = first + split_tokens < all.end ? first + split_tokens : all.end;
    return first < end ? (ta_visible){(int32_t)first, (int32_t)end} : (ta_visible){0, 0};
}

static ta_item_state prepare(const ta_attend_job *job, ta_item item, char *scratch)
{
    const ta_division *d = &job->division;
    size_t rows = (size_t)d->group_rows;
    size_t all = round_to_line(rows * (size_t)d->group_heads * sizeof(float));
    ta_item_state s = {.job = job, .item = item, .buffers = (ta_item_buffers *)scratch};
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
        ta_item_attend_tokens(s, first, next);
        for (int i = 0; i < s->item.heads * s->item.rows; i++) {
            int head = i / s->item.rows, row = i % s->item.rows;
            int64_t index = ta_row_index(s, head, row);
            ta_tally_add_partial(row_tally(s, head, row), s->m[index], s->l[index],
                                 ta_row_record(s, head, row), v_dim);
            ta_item_empty_row(s, head, row);
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
    ta_item_start_rows(&s);
    /* These rows may see less than all rows of the sequence. */
    ta_visible seen = {s.rows[0].visible.first, s.rows[item.rows - 1].visible.end};
    first = first > seen.first ? first : seen.first;
    end = end < seen.end ? end : seen.end;
    if (s.tallies) {
        attend_tiles(&s, first, end);
        return;
    }
    ta_item_attend_tokens(&s, first, end);
    for (int i = 0; i < item.heads * item.rows; i++) {
        float *record = ta_row_record(&s, i / item.rows, i % item.rows);
        int64_t index = ta_row_index(&s, i / item.rows, i % item.rows);
        record[p->v_dim] = s.m[index];
        record[p->v_dim + 1] = s.l[index];
    }
}
