/* One item of attend(): see item.h. Tokens go by in tiles; for each tile the addresses of its K and V
 * vectors are looked up once, whatever the layout, and the rows use them in blocks. A token that no row
 * sees is never looked up, and a row never reads a token that it does not see. */
#include "item.h"

#include <math.h>
#include <string.h>

#include "../dtype.h"

/* A query row of the item. */
typedef struct query_row {
    ta_visible visible; /* local positions */
    int32_t position;
    float slope; /* of ALiBi, for scores in base 2 */
} query_row;

/* The rows of an item and where its tokens are. */
typedef struct item_state {
    const ta_attend_job *job;
    const int32_t *bounds;
    const int32_t *pages; /* of the sequence, or NULL */
    const char *k, *v;    /* of the KV head; without pages, of the sequence */
    query_row *rows;
    int32_t row_count;
    float *q;       /* [row_count][k_dim], ready to give scores in base 2 */
    float *records; /* the rows' records, `record_stride` floats apart */
    int64_t record_stride;
} item_state;

/* The tokens of a tile. */
typedef struct token_tile {
    int32_t first; /* local position */
    int32_t count;
    const void *k[TA_TILE], *v[TA_TILE];
    int32_t positions[TA_TILE]; /* only with ALiBi */
} token_tile;

static const int32_t *sequence_bounds(const ta_kv *kv, int32_t sequence)
{
    return kv->bounds ? kv->bounds + sequence * kv->bounds_stride : NULL;
}

static size_t round_to_line(size_t bytes)
{
    return (bytes + 63) / 64 * 64;
}

size_t ta_item_scratch_bytes(const ta_problem *problem, const ta_division *division)
{
    size_t rows = (size_t)division->group_rows;
    return round_to_line(rows * sizeof(query_row)) +
           round_to_line(rows * (size_t)problem->k_dim * sizeof(float));
}

static ta_visible row_visible(const ta_attend_job *job, int32_t sequence, int32_t token)
{
    const ta_problem *p = job->problem;
    int32_t length = job->kv->lengths[sequence];
    return ta_shard_visible(&p->shard, sequence_bounds(job->kv, sequence), length,
                            length - p->query_tokens + token, p->causal, p->window);
}

ta_visible ta_job_visible(const ta_attend_job *job, int32_t sequence, int32_t first_token,
                          int32_t last_token)
{
    ta_visible all = row_visible(job, sequence, first_token);
    all.end = row_visible(job, sequence, last_token).end;
    return all;
}

static void look_up_tile(const item_state *s, int32_t first, int32_t count, token_tile *tile)
{
    const ta_problem *p = s->job->problem;
    const ta_kv *kv = s->job->kv;
    int64_t size = (int64_t)ta_dtype_bytes(p->kv_dtype);
    int64_t k_step = kv->k.token_stride * size, v_step = kv->v.token_stride * size;
    tile->first = first;
    tile->count = count;
    int32_t t = 0;
    while (t < count) {
        const char *k = s->k, *v = s->v;
        int32_t at = first + t, run = count - t;
        if (s->pages) {
            int64_t page = s->pages[at / kv->page_tokens];
            at %= kv->page_tokens;
            run = run < kv->page_tokens - at ? run : kv->page_tokens - at;
            k += page * kv->k.batch_stride * size;
            v += page * kv->v.batch_stride * size;
        }
        for (int32_t i = 0; i < run; i++, t++) {
            tile->k[t] = k + (at + i) * k_step;
            tile->v[t] = v + (at + i) * v_step;
        }
    }
    for (t = 0; p->alibi_slopes && t < count; t++)
        tile->positions[t] = (int32_t)ta_shard_global(&p->shard, s->bounds, first + t);
}

/* Add the values of a row's tokens except the hidden ones, run by run. */
static void weigh_visible(const item_state *s, int32_t row, float rescale, const float *weights,
                          const void *const *v, int n, uint64_t hidden)
{
    const ta_problem *p = s->job->problem;
    for (int t = 0; t < n;) {
        if (hidden >> t & 1) {
            t++;
            continue;
        }
        int end = t;
        while (end < n && !(hidden >> end & 1))
            end++;
        s->job->kernels->weigh[p->kv_dtype](s->records + row * s->record_stride, s->record_stride,
                                            1, &rescale, weights + t, v + t, end - t, p->v_dim);
        rescale = 1.0f; /* only once; with no run at all it is 1, since no maximum was found */
        t = end;
    }
}

/* Rows [row, row + rows) against the tokens [from, from + n) of a tile, which all of them see. */
static void attend_block(const item_state *s, int32_t row, int rows, const token_tile *tile,
                         int from, int n)
{
    const ta_problem *p = s->job->problem;
    const ta_host_kernels *kernels = s->job->kernels;
    float scores[TA_ROW_BLOCK * TA_TILE], rescale[TA_ROW_BLOCK];
    uint64_t hidden[TA_ROW_BLOCK], any_hidden = 0;

    kernels->score[p->kv_dtype](s->q + (int64_t)row * p->k_dim, p->k_dim, rows, tile->k + from, n,
                                p->k_dim, scores);
    for (int r = 0; r < rows; r++) {
        float *row_scores = scores + r * TA_TILE;
        float *record = s->records + (row + r) * s->record_stride;
        const query_row *query = &s->rows[row + r];
        if (p->softcap > 0.0f)
            kernels->softcap(row_scores, n, (float)(p->softcap * M_LOG2E));
        if (p->alibi_slopes)
            kernels->alibi(row_scores, n, query->slope, query->position, tile->positions + from);
        hidden[r] =
            kernels->softmax(row_scores, n, &record[p->v_dim], &record[p->v_dim + 1], &rescale[r]);
        any_hidden |= hidden[r];
    }
    if (!any_hidden) {
        kernels->weigh[p->kv_dtype](s->records + row * s->record_stride, s->record_stride, rows,
                                    rescale, scores, tile->v + from, n, p->v_dim);
        return;
    }
    for (int r = 0; r < rows; r++)
        weigh_visible(s, row + r, rescale[r], scores + r * TA_TILE, tile->v + from, n, hidden[r]);
}

/* What a row sees of a tile, as places in the tile; may be empty. */
static ta_visible row_in_tile(const item_state *s, int32_t row, const token_tile *tile)
{
    ta_visible seen = s->rows[row].visible;
    seen.first = seen.first > tile->first ? seen.first - tile->first : 0;
    seen.end = seen.end - tile->first < tile->count ? seen.end - tile->first : tile->count;
    return seen;
}

static void attend_tile(const item_state *s, const token_tile *tile)
{
    int32_t row = 0;
    while (row < s->row_count) {
        ta_visible seen = row_in_tile(s, row, tile);
        int rows = 1;
        while (rows < TA_ROW_BLOCK && row + rows < s->row_count) {
            ta_visible other = row_in_tile(s, row + rows, tile);
            if (other.first != seen.first || other.end != seen.end)
                break;
            rows++;
        }
        if (rows < TA_ROW_BLOCK)
            rows = 1;
        if (seen.first < seen.end)
            attend_block(s, row, rows, tile, seen.first, seen.end - seen.first);
        row += rows;
    }
}

/* Load the query rows and empty their records. */
static void start_rows(const item_state *s, ta_item item)
{
    const ta_problem *p = s->job->problem;
    const ta_tensor *q = s->job->q;
    int32_t heads = p->query_heads / p->kv_heads;
    /* Scores come out in base 2; a soft-cap needs them natural, divided by the cap. */
    double factor = p->scale * (p->softcap > 0.0f ? 1.0 / p->softcap : M_LOG2E);
    for (int32_t i = 0; i < s->row_count; i++) {
        int32_t row = item.group * s->job->division.group_rows + i;
        int32_t token = row / heads;
        int32_t head = item.kv_head * heads + row % heads;
        int64_t at =
            item.sequence * q->batch_stride + token * q->token_stride + head * q->head_stride;
        s->job->kernels->load[p->query_dtype](ta_element(p->query_dtype, q->data, at), p->k_dim,
                                              (float)factor, s->q + (int64_t)i * p->k_dim);
        s->rows[i].visible = row_visible(s->job, item.sequence, token);
        s->rows[i].position = s->job->kv->lengths[item.sequence] - p->query_tokens + token;
        s->rows[i].slope = p->alibi_slopes ? (float)(p->alibi_slopes[head] * M_LOG2E) : 0.0f;
        float *record = s->records + i * s->record_stride;
        memset(record, 0, (size_t)p->v_dim * sizeof *record);
        record[p->v_dim] = -INFINITY;
        record[p->v_dim + 1] = 0.0f;
    }
}

static item_state prepare(const ta_attend_job *job, ta_item item, void *scratch)
{
    const ta_problem *p = job->problem;
    const ta_kv *kv = job->kv;
    const ta_division *d = &job->division;
    int32_t first_row = item.group * d->group_rows;
    item_state s = {.job = job, .bounds = sequence_bounds(kv, item.sequence)};
    if (kv->page_table)
        s.pages = kv->page_table + item.sequence * kv->page_table_stride;
    int64_t sequence = kv->page_table ? 0 : item.sequence;
    s.k = ta_element(p->kv_dtype, kv->k.data,
                     sequence * kv->k.batch_stride + item.kv_head * kv->k.head_stride);
    s.v = ta_element(p->kv_dtype, kv->v.data,
                     sequence * kv->v.batch_stride + item.kv_head * kv->v.head_stride);
    s.row_count = d->rows - first_row < d->group_rows ? d->rows - first_row : d->group_rows;
    s.rows = scratch;
    s.q = (float *)((char *)scratch + round_to_line((size_t)d->group_rows * sizeof(query_row)));
    s.records = ta_job_record(job, item.sequence, item.kv_head, first_row, item.split);
    s.record_stride = d->record_floats;
    return s;
}

void ta_item_attend(const ta_attend_job *job, ta_item item, void *scratch)
{
    const ta_problem *p = job->problem;
    ta_visible all = ta_job_visible(job, item.sequence, 0, p->query_tokens - 1);
    int64_t split_tokens = ta_division_split_tokens(&job->division, all.end - all.first);
    int64_t first = all.first + item.split * split_tokens;
    if (first >= all.end)
        return;
    int64_t end = first + split_tokens < all.end ? first + split_tokens : all.end;

    item_state s = prepare(job, item, scratch);
    start_rows(&s, item);
    /* This group's rows may see less than all rows of the sequence. */
    int64_t group_first = s.rows[0].visible.first, group_end = s.rows[s.row_count - 1].visible.end;
    first = first > group_first ? first : group_first;
    end = end < group_end ? end : group_end;
    token_tile tile;
    for (int64_t at = first; at < end; at += TA_TILE) {
        look_up_tile(&s, (int32_t)at, (int32_t)(end - at < TA_TILE ? end - at : TA_TILE), &tile);
        attend_tile(&s, &tile);
    }
}
