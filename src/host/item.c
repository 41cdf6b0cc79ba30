/* One item of attend(): see item.h. Tokens go by in tiles (tile.h), and the rows use each tile in
 * blocks, so that K and V come from memory once for all rows. A token that no row sees is never
 * looked up, and a row never reads a token that it does not see. */
#include "item.h"

#include <math.h>
#include <string.h>

#include "../dtype.h"
#include "tile.h"

/* What a query row of the item sees. */
typedef struct query_row {
    ta_visible visible; /* local positions */
    int32_t position;
    float slope; /* of ALiBi, for scores in base 2 */
} query_row;

/* The rows of an item, and its tokens. The arrays are in the thread's scratch. */
typedef struct item_state {
    const ta_attend_job *job;
    ta_tile_source source;
    int32_t row_count;
    query_row *rows;
    float *m, *l;   /* of the rows' partials */
    float *q;       /* [row_count][k_dim], ready to give scores in base 2 */
    float *records; /* of the first row; o is summed in place */
} item_state;

static size_t round_to_line(size_t bytes)
{
    return (bytes + 63) / 64 * 64;
}

size_t ta_item_scratch_bytes(const ta_problem *problem, const ta_division *division)
{
    size_t rows = (size_t)division->group_rows;
    return round_to_line(rows * sizeof(query_row)) + 2 * round_to_line(rows * sizeof(float)) +
           round_to_line(rows * (size_t)problem->k_dim * sizeof(float));
}

static ta_visible row_visible(const ta_attend_job *job, int32_t sequence, int32_t token)
{
    const ta_problem *p = job->problem;
    int32_t length = job->kv->lengths[sequence];
    return ta_shard_visible(&p->shard, ta_kv_bounds(job->kv, sequence), length,
                            length - p->query_tokens + token, p->causal, p->window);
}

ta_visible ta_job_visible(const ta_attend_job *job, int32_t sequence)
{
    ta_visible all = row_visible(job, sequence, 0);
    all.end = row_visible(job, sequence, job->problem->query_tokens - 1).end;
    return all;
}

static float *row_record(const item_state *s, int32_t row)
{
    return s->records + (int64_t)row * s->job->division.record_floats;
}

/* scores[t·rows + r] -= slope_r · |x_r - y_t|. */
static void add_alibi(const query_row *query, int rows, const int32_t *positions, int n,
                      float *scores)
{
    for (int t = 0; t < n; t++) {
        for (int r = 0; r < rows; r++) {
            float distance = fabsf((float)(query[r].position - positions[t]));
            scores[t * rows + r] -= query[r].slope * distance;
        }
    }
}

/* Add the values of one row's tokens except the hidden ones, run by run. */
static void weigh_visible(const item_state *s, int32_t row, float rescale, const float *weights,
                          int step, const void *const *v, int n, uint64_t hidden)
{
    const ta_problem *p = s->job->problem;
    float run_weights[TA_TOKEN_BLOCK];
    for (int t = 0; t < n;) {
        int run = 0;
        for (; t + run < n && !(hidden >> (t + run) & 1); run++)
            run_weights[run] = weights[(t + run) * step];
        if (run == 0) {
            t++;
            continue;
        }
        s->job->kernels->weigh[p->kv_dtype](row_record(s, row), 0, 1, &rescale, run_weights, v + t,
                                            run, p->v_dim);
        rescale = 1.0f; /* once is enough; without any run no maximum was found and it is 1 */
        t += run;
    }
}

/* The weights of up to TA_TOKEN_BLOCK tokens for a block of rows. */
typedef struct block_weights {
    float weights[TA_BLOCK_SCORES];
    float rescale[TA_ROW_BLOCK];
    uint64_t hidden[TA_ROW_BLOCK];
    int any_hidden;
} block_weights;

static void score_block(const item_state *s, int32_t row, int rows, const ta_tile *tile, int from,
                        int n, block_weights *w)
{
    const ta_problem *p = s->job->problem;
    const ta_host_kernels *kernels = s->job->kernels;
    kernels->score[p->kv_dtype](s->q + (int64_t)row * p->k_dim, p->k_dim, rows, tile->k + from, n,
                                p->k_dim, w->weights);
    if (p->softcap > 0.0f)
        kernels->softcap(w->weights, n * rows, (float)(p->softcap * M_LOG2E));
    if (p->alibi_slopes)
        add_alibi(s->rows + row, rows, tile->positions + from, n, w->weights);
    w->any_hidden =
        kernels->softmax(w->weights, n, rows, s->m + row, s->l + row, w->rescale, w->hidden);
}

static void weigh_block(const item_state *s, int32_t row, int rows, const ta_tile *tile, int from,
                        int n, const block_weights *w)
{
    const ta_problem *p = s->job->problem;
    if (!w->any_hidden) {
        s->job->kernels->weigh[p->kv_dtype](row_record(s, row), s->job->division.record_floats,
                                            rows, w->rescale, w->weights, tile->v + from, n,
                                            p->v_dim);
        return;
    }
    for (int r = 0; r < rows; r++)
        weigh_visible(s, row + r, w->rescale[r], w->weights + r, rows, tile->v + from, n,
                      w->hidden[r]);
}

/* Rows [row, row + rows) against the tokens [from, end) of a tile, which all of them see. */
static void attend_block(const item_state *s, int32_t row, int rows, const ta_tile *tile, int from,
                         int end)
{
    block_weights weights[TA_TILE_MAX / TA_TOKEN_BLOCK];
    block_weights *w = weights;
    for (int at = from; at < end; at += TA_TOKEN_BLOCK)
        score_block(s, row, rows, tile, at, end - at < TA_TOKEN_BLOCK ? end - at : TA_TOKEN_BLOCK,
                    w++);
    w = weights;
    for (int at = from; at < end; at += TA_TOKEN_BLOCK)
        weigh_block(s, row, rows, tile, at, end - at < TA_TOKEN_BLOCK ? end - at : TA_TOKEN_BLOCK,
                    w++);
}

/* What a row sees of a tile, as places in the tile; may be empty. Tiles of lanes are seen whole. */
static ta_visible row_in_tile(const item_state *s, int32_t row, const ta_tile *tile)
{
    ta_visible seen = {0, tile->count};
    if (tile->lanes > 1)
        return seen;
    ta_visible visible = s->rows[row].visible;
    if (visible.first > tile->first)
        seen.first = visible.first - tile->first;
    if (visible.end - tile->first < seen.end)
        seen.end = visible.end - tile->first;
    return seen;
}

/* All rows against a tile: in blocks where neighbours see the same of it, else one by one. */
static void attend_tile(const item_state *s, const ta_tile *tile)
{
    int32_t row = 0;
    while (row < s->row_count) {
        ta_visible seen = row_in_tile(s, row, tile);
        int alike = 1;
        while (alike < TA_ROW_BLOCK && row + alike < s->row_count) {
            ta_visible other = row_in_tile(s, row + alike, tile);
            if (other.first != seen.first || other.end != seen.end)
                break;
            alike++;
        }
        int rows = alike == TA_ROW_BLOCK ? TA_ROW_BLOCK : 1;
        if (seen.first < seen.end)
            attend_block(s, row, rows, tile, seen.first, seen.end);
        row += rows;
    }
}

static void attend_neighbours(const item_state *s, int32_t first, int32_t end)
{
    int32_t most = ta_tile_tokens(s->job->problem);
    ta_tile tile;
    for (int32_t left; (left = end - first) > 0; first += tile.count) {
        ta_tile_neighbours(&s->source, first, left < most ? left : most, &tile);
        attend_tile(s, &tile);
    }
}

/* `lane_tokens` tokens in each of the lanes from `first` on, all of which all rows see. */
static void attend_lanes(const item_state *s, int32_t first, int32_t lane_tokens)
{
    int32_t most = ta_tile_tokens(s->job->problem) / TA_TILE_LANES;
    ta_tile tile;
    for (int32_t at = 0; at < lane_tokens; at += most) {
        int32_t left = lane_tokens - at;
        ta_tile_of_lanes(&s->source, first + at, lane_tokens, left < most ? left : most, &tile);
        attend_tile(s, &tile);
    }
}

/* All rows against the tokens [first, end). What all rows see goes by in lanes, as far as whole
 * blocks can be made of it; what only some see, and the rest, in its own order. */
static void attend_range(const item_state *s, int32_t first, int32_t end)
{
    int32_t shared = first, shared_end = end;
    for (int32_t i = 0; i < s->row_count; i++) {
        ta_visible visible = s->rows[i].visible;
        shared = visible.first > shared ? visible.first : shared;
        shared_end = visible.end < shared_end ? visible.end : shared_end;
    }
    int32_t tokens = shared_end - shared;
    if (tokens < TA_TOKEN_BLOCK) {
        attend_neighbours(s, first, end);
        return;
    }
    tokens -= tokens % TA_TOKEN_BLOCK;
    attend_neighbours(s, first, shared);
    attend_lanes(s, shared, tokens / TA_TILE_LANES);
    attend_neighbours(s, shared + tokens, end);
}

/* Load the query rows and empty their partials. */
static void start_rows(const item_state *s, ta_item item)
{
    const ta_problem *p = s->job->problem;
    const ta_tensor *q = s->job->q;
    const ta_host_kernels *kernels = s->job->kernels;
    int32_t heads = p->query_heads / p->kv_heads;
    /* Scores come out in base 2; a soft-cap needs them natural, divided by the cap. */
    double factor = p->scale * (p->softcap > 0.0f ? 1.0 / p->softcap : M_LOG2E);
    for (int32_t i = 0; i < s->row_count; i++) {
        int32_t row = item.group * s->job->division.group_rows + i;
        int32_t token = row / heads, head = item.kv_head * heads + row % heads;
        int64_t at =
            item.sequence * q->batch_stride + token * q->token_stride + head * q->head_stride;
        float *query = s->q + (int64_t)i * p->k_dim;
        kernels->load[p->query_dtype](ta_element(p->query_dtype, q->data, at), p->k_dim,
                                      (float)factor, query);
        kernels->arrange[p->kv_dtype](query, p->k_dim);
        s->rows[i].visible = row_visible(s->job, item.sequence, token);
        s->rows[i].position = s->job->kv->lengths[item.sequence] - p->query_tokens + token;
        s->rows[i].slope = p->alibi_slopes ? (float)(p->alibi_slopes[head] * M_LOG2E) : 0.0f;
        s->m[i] = -INFINITY;
        s->l[i] = 0.0f;
        memset(row_record(s, i), 0, (size_t)p->v_dim * sizeof(float));
    }
}

static item_state prepare(const ta_attend_job *job, ta_item item, char *scratch)
{
    const ta_division *d = &job->division;
    int32_t first_row = item.group * d->group_rows;
    size_t rows = (size_t)d->group_rows;
    item_state s = {.job = job};
    s.source = ta_tile_source_of(job->problem, job->kv, item.sequence, item.kv_head);
    s.row_count = d->rows - first_row < d->group_rows ? d->rows - first_row : d->group_rows;
    s.rows = (query_row *)scratch;
    s.m = (float *)(scratch + round_to_line(rows * sizeof(query_row)));
    s.l = s.m + round_to_line(rows * sizeof(float)) / sizeof(float);
    s.q = s.l + round_to_line(rows * sizeof(float)) / sizeof(float);
    s.records = ta_job_record(job, item.sequence, item.kv_head, first_row, item.split);
    return s;
}

void ta_item_attend(const ta_attend_job *job, ta_item item, void *scratch)
{
    ta_visible all = ta_job_visible(job, item.sequence);
    int64_t split_tokens = ta_division_split_tokens(&job->division, all.end - all.first);
    int64_t first = all.first + item.split * split_tokens;
    if (first >= all.end)
        return;
    int64_t end = first + split_tokens < all.end ? first + split_tokens : all.end;

    item_state s = prepare(job, item, scratch);
    start_rows(&s, item);
    /* This group's rows may see less than all rows of the sequence. */
    ta_visible group = {s.rows[0].visible.first, s.rows[s.row_count - 1].visible.end};
    first = first > group.first ? first : group.first;
    end = end < group.end ? end : group.end;
    attend_range(&s, (int32_t)first, (int32_t)end);
    for (int32_t i = 0; i < s.row_count; i++) {
        float *record = row_record(&s, i);
        record[job->problem->v_dim] = s.m[i];
        record[job->problem->v_dim + 1] = s.l[i];
    }
}
