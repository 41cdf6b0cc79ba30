/* One item of attend(): see item.h. Tokens go by in tiles (tile.h), and the rows use each tile in
 * blocks, so that K and V come from memory once for all rows. A token that no row sees is never
 * looked up, and a row never reads a token that it does not see. */
#include "item.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "../dtype.h"
#include "tally.h"
#include "tile.h"

/* Bytes of K or V between what kernels read and what they fetch ahead, as far as blocks allow. */
#define AHEAD_BYTES (32 << 10)

/* The most of a number of a packed query row, and of the factor of its scores. */
#define PACK_MOST 0x1p40f

/* What a query row sees, the same for all heads. */
typedef struct query_row {
    ta_visible visible; /* local positions */
    int32_t position;
} query_row;

/* The present tile, and the weights of its tokens for one block of rows. */
typedef struct item_buffers {
    ta_tile tile;
    float weights[TA_TILE_BLOCKS][TA_BLOCK_SCORES]; /* [block of tokens][head] */
    float rescale[TA_TILE_BLOCKS][TA_ROW_BLOCK];
    uint64_t hidden[TA_TILE_BLOCKS][TA_ROW_BLOCK];
    int any_hidden[TA_TILE_BLOCKS];
    _Alignas(64) float sums[TA_BLOCK_VALUES];
} item_buffers;

/* The rows of an item, and its tokens. All arrays are in the thread's scratch, [head][row] with
 * group_rows rows, except for the records. */
typedef struct item_state {
    const ta_attend_job *job;
    ta_item item;
    ta_tile_source source;
    item_buffers *buffers;
    query_row *rows; /* [row] */
    float *slopes;   /* of ALiBi, for scores in base 2 */
    float *m, *l;    /* of the rows' partials */
    float *q;        /* k_dim each, arranged or packed, ready to give scores in base 2 */
    int packed;
    float *records; /* of the first head and row; o is summed in place */
    int64_t record_stride, record_head_stride;
    /* Reproducible mode: tallies of the first head and row, strides as the workspace has them. Then
     * `records` are in the scratch, for one tile after the other. */
    float *tallies;
    int64_t tally_stride, tally_head_stride;
} item_state;

static size_t round_to_line(size_t bytes)
{
    return (bytes + 63) / 64 * 64;
}

size_t ta_item_scratch_bytes(const ta_problem *problem, const ta_division *division)
{
    size_t rows = (size_t)division->group_rows, all = rows * (size_t)division->group_heads;
    size_t record = problem->tally_tile ? round_to_line((size_t)problem->v_dim * sizeof(float)) : 0;
    return round_to_line(sizeof(item_buffers)) + round_to_line(rows * sizeof(query_row)) +
           3 * round_to_line(all * sizeof(float)) +
           round_to_line(all * (size_t)problem->k_dim * sizeof(float)) + all * record;
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

ta_visible ta_job_divided(const ta_attend_job *job, int32_t sequence)
{
    ta_visible all = ta_job_visible(job, sequence);
    if (all.first < all.end && job->problem->tally_tile)
        all.first -= all.first % job->problem->tally_tile;
    return all;
}

/* The place of a head's row in the arrays of an item. */
static int64_t row_index(const item_state *s, int head, int32_t row)
{
    return (int64_t)head * s->job->division.group_rows + row;
}

static float *row_record(const item_state *s, int head, int32_t row)
{
    return s->records + head * s->record_head_stride + row * s->record_stride;
}

/* Scores come out in base 2; a soft-cap needs them natural, divided by the cap. */
static float score_factor(const ta_problem *p)
{
    return (float)(p->scale * (p->softcap > 0.0f ? 1.0 / p->softcap : M_LOG2E));
}

/* scores[t·rows + r] -= slope_r · |x_r - y_t|. */
static void add_alibi(const query_row *query, const float *slopes, int rows,
                      const int32_t *positions, int n, float *scores)
{
    for (int t = 0; t < n; t++) {
        for (int r = 0; r < rows; r++) {
            float distance = fabsf((float)(query[r].position - positions[t]));
            scores[t * rows + r] -= slopes[r] * distance;
        }
    }
}

/* What is fetched ahead of a block: up to n vectors from place `at` of one side on. After the last
 * of its K come the first of V, and after the last V the first K of the next tile. Rows after the
 * first ones find everything in the cache. */
static ta_vectors ahead_of(const ta_tile *tile, const ta_tile_side *side, int32_t row, int at,
                           int n)
{
    int left = tile->count - at;
    if (left <= 0 && side == &tile->k)
        return ahead_of(tile, &tile->v, row, -left, n);
    if (left <= 0) {
        side = &tile->k;
        left += tile->more;
    }
    return row > 0 || left <= 0 ? (ta_vectors){0}
                                : ta_tile_vectors(tile, side, at, left < n ? left : n);
}

/* How far ahead that is, in tokens. Kernels read the block ahead line by line of all tokens, so
 * that half of a small block is wanted at once: that much must have come by then. */
static int ahead_tokens(const item_state *s, int32_t dim)
{
    int64_t token_bytes =
        (int64_t)s->item.heads * dim * (int)ta_dtype_bytes(s->job->problem->kv_dtype);
    return token_bytes * TA_TOKEN_BLOCK <= AHEAD_BYTES / 2 ? 2 * TA_TOKEN_BLOCK : TA_TOKEN_BLOCK;
}

/* The weights of the n tokens from place `at` of the tile on, for rows [row, row + rows) of all
 * heads: into buffers `slot` on, one for each head. */
static void find_weights(const item_state *s, int32_t row, int rows, int at, int n, int slot)
{
    const ta_problem *p = s->job->problem;
    const ta_host_kernels *kernels = s->job->kernels;
    item_buffers *b = s->buffers;
    const ta_tile *tile = &b->tile;
    ta_block block = {.rows = rows,
                      .heads = s->item.heads,
                      .row_stride = p->k_dim,
                      .head_stride = row_index(s, 1, 0) * p->k_dim,
                      .tokens = ta_tile_vectors(tile, &tile->k, at, n),
                      .ahead = ahead_of(tile, &tile->k, row, at + ahead_tokens(s, p->k_dim), n),
                      .token_head_bytes = s->source.k_head_bytes,
                      .dim = p->k_dim,
                      .scores = b->weights[slot],
                      .factor = score_factor(p)};
    (s->packed ? kernels->score_packed
               : kernels->score[p->kv_dtype])(&block, s->q + (int64_t)row * p->k_dim);
    for (int h = 0; h < s->item.heads; h++, slot++) {
        int64_t index = row_index(s, h, row);
        float *scores = b->weights[slot];
        if (p->softcap > 0.0f)
            kernels->softcap(scores, n * rows, (float)(p->softcap * M_LOG2E));
        if (p->alibi_slopes)
            add_alibi(s->rows + row, s->slopes + index, rows, b->tile.positions + at, n, scores);
        b->any_hidden[slot] = kernels->softmax(scores, n, rows, s->m + index, s->l + index,
                                               b->rescale[slot], b->hidden[slot]);
    }
}

/* Add the values of one row's tokens except the hidden ones, run by run. */
static void add_visible_values(const item_state *s, ta_block block, float *o, float rescale,
                               const float *weights, int step, uint64_t hidden)
{
    float run_weights[TA_BLOCK_SCORES];
    ta_vectors all = block.tokens;
    block.scores = run_weights;
    for (int t = 0; t < all.n; t++) {
        int n = 0;
        for (; t < all.n && !(hidden >> t & 1); t++)
            run_weights[n++] = weights[t * step];
        if (n == 0)
            continue;
        block.tokens = (ta_vectors){.n = n, .each = all.each + t - n};
        s->job->kernels->weigh[s->job->problem->kv_dtype](&block, o, &rescale);
        rescale = 1.0f; /* once is enough; without any run no maximum was found and it is 1 */
    }
}

/* Add the values of the tokens that find_weights() weighed. */
static void add_values(const item_state *s, int32_t row, int rows, int at, int n, int slot)
{
    const ta_problem *p = s->job->problem;
    item_buffers *b = s->buffers;
    const ta_tile *tile = &b->tile;
    ta_block block = {.rows = rows,
                      .heads = s->item.heads,
                      .row_stride = s->record_stride,
                      .head_stride = s->record_head_stride,
                      .tokens = ta_tile_vectors(tile, &tile->v, at, n),
                      .ahead = ahead_of(tile, &tile->v, row, at + ahead_tokens(s, p->v_dim), n),
                      .token_head_bytes = s->source.v_head_bytes,
                      .dim = p->v_dim,
                      .scores = b->weights[slot],
                      .sums = b->sums};
    int any_hidden = 0;
    for (int h = 0; h < s->item.heads; h++)
        any_hidden |= b->any_hidden[slot + h];
    if (!any_hidden) {
        s->job->kernels->weigh[p->kv_dtype](&block, row_record(s, 0, row), b->rescale[slot]);
        return;
    }
    const void *of_head[TA_TOKEN_BLOCK];
    ta_vectors all = block.tokens;
    block.rows = block.heads = 1;
    block.tokens = (ta_vectors){.n = n, .each = of_head};
    block.ahead = (ta_vectors){0};
    for (int h = 0; h < s->item.heads; h++, slot++) {
        for (int t = 0; t < n; t++)
            of_head[t] = ta_vector_at(&all, t) + h * s->source.v_head_bytes;
        for (int r = 0; r < rows; r++)
            add_visible_values(s, block, row_record(s, h, row + r), b->rescale[slot][r],
                               b->weights[slot] + r, rows,
                               b->any_hidden[slot] ? b->hidden[slot][r] : 0);
    }
}

/* Rows [row, row + rows) against the places [from, end) of the tile, which all of them see: all K
 * first, then all V. */
static void attend_block(const item_state *s, int32_t row, int rows, int from, int end)
{
    int slot = 0;
    for (int at = from; at < end; at += TA_TOKEN_BLOCK, slot += s->item.heads)
        find_weights(s, row, rows, at, end - at < TA_TOKEN_BLOCK ? end - at : TA_TOKEN_BLOCK, slot);
    slot = 0;
    for (int at = from; at < end; at += TA_TOKEN_BLOCK, slot += s->item.heads)
        add_values(s, row, rows, at, end - at < TA_TOKEN_BLOCK ? end - at : TA_TOKEN_BLOCK, slot);
}

/* What a row sees of the tile, as places in it; may be empty. */
static ta_visible row_in_tile(const item_state *s, int32_t row)
{
    const ta_tile *tile = &s->buffers->tile;
    ta_visible seen = {0, tile->count};
    ta_visible visible = s->rows[row].visible;
    if (visible.first > tile->first)
        seen.first = visible.first - tile->first;
    if (visible.end - tile->first < seen.end)
        seen.end = visible.end - tile->first;
    return seen;
}

/* All rows against the tile: in blocks where neighbours see the same of it, else one by one. */
static void attend_tile(const item_state *s)
{
    int32_t row = 0;
    while (row < s->item.rows) {
        ta_visible seen = row_in_tile(s, row);
        int alike = 1;
        while (alike < TA_ROW_BLOCK && row + alike < s->item.rows) {
            ta_visible other = row_in_tile(s, row + alike);
            if (other.first != seen.first || other.end != seen.end)
                break;
            alike++;
        }
        int rows = alike == TA_ROW_BLOCK ? TA_ROW_BLOCK : 1;
        if (seen.first < seen.end)
            attend_block(s, row, rows, seen.first, seen.end);
        row += rows;
    }
}

/* The tokens that are looked up at once. In reproducible mode, blocks of tokens begin where a tile
 * begins, for all rows that see that place. */
static int32_t most_at_once(const item_state *s, int32_t first, int32_t end)
{
    int all_see = s->rows[s->item.rows - 1].visible.first <= first && s->rows[0].visible.end >= end;
    if (s->tallies && !all_see)
        return TA_TOKEN_BLOCK;
    return ta_tile_tokens(s->job->problem, s->item.heads, s->item.rows);
}

/* All rows against the tokens [first, end). */
static void attend_range(const item_state *s, int32_t first, int32_t end)
{
    int32_t most = most_at_once(s, first, end);
    if (!s->tallies && s->item.heads > 1 && s->item.rows == 1) { /* see tile.h */
        int32_t lane_tokens = (end - first) / TA_TILE_LANES;
        for (int32_t left = lane_tokens; left > 0; left -= most / TA_TILE_LANES) {
            int count = left < most / TA_TILE_LANES ? left : most / TA_TILE_LANES;
            ta_tile_find_lanes(&s->source, first + lane_tokens - left, lane_tokens, count,
                               &s->buffers->tile);
            attend_tile(s);
        }
        first += lane_tokens * TA_TILE_LANES;
    }
    for (int32_t left; (left = end - first) > 0; first += most) {
        ta_tile_find(&s->source, first, left < most ? left : most, end, &s->buffers->tile);
        attend_tile(s);
    }
}

static void empty_partial(const item_state *s, int head, int32_t row)
{
    int64_t index = row_index(s, head, row);
    s->m[index] = -INFINITY;
    s->l[index] = 0.0f;
    memset(row_record(s, head, row), 0, (size_t)s->job->problem->v_dim * sizeof(float));
}

static void start_row(const item_state *s, int head, int32_t row)
{
    const ta_problem *p = s->job->problem;
    int32_t query_heads = p->query_heads / p->kv_heads;
    int32_t token = (s->item.row + row) / query_heads;
    int32_t query_head = (s->item.kv_head + head) * query_heads + (s->item.row + row) % query_heads;
    s->rows[row].visible = row_visible(s->job, s->item.sequence, token);
    s->rows[row].position = s->job->kv->lengths[s->item.sequence] - p->query_tokens + token;
    s->slopes[row_index(s, head, row)] =
        p->alibi_slopes ? (float)(p->alibi_slopes[query_head] * M_LOG2E) : 0.0f;
    empty_partial(s, head, row);
}

/* The query row times `factor`. */
static float *load_query(const item_state *s, int head, int32_t row, float factor)
{
    const ta_problem *p = s->job->problem;
    const ta_tensor *q = s->job->q;
    int32_t query_heads = p->query_heads / p->kv_heads;
    int32_t token = (s->item.row + row) / query_heads;
    int32_t query_head = (s->item.kv_head + head) * query_heads + (s->item.row + row) % query_heads;
    int64_t at =
        s->item.sequence * q->batch_stride + token * q->token_stride + query_head * q->head_stride;
    float *to = s->q + row_index(s, head, row) * p->k_dim;
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
        can &= magnitude <= PACK_MOST && (magnitude >= FLT_MIN || magnitude == 0.0f);
    }
    return can;
}

static void load_queries(item_state *s)
{
    const ta_problem *p = s->job->problem;
    const ta_host_kernels *kernels = s->job->kernels;
    int count = s->item.heads * s->item.rows;
    float factor = score_factor(p);
    s->packed = kernels->pack && p->query_dtype == TA_BF16 && p->kv_dtype == TA_BF16 &&
                fabsf(factor) <= PACK_MOST;
    for (int i = 0; i < count && s->packed; i++)
        s->packed = can_pack(load_query(s, i / s->item.rows, i % s->item.rows, 1.0f), p->k_dim);
    for (int i = 0; i < count; i++) {
        int head = i / s->item.rows, row = i % s->item.rows;
        if (s->packed)
            kernels->pack(s->q + row_index(s, head, row) * p->k_dim, p->k_dim);
        else
            kernels->arrange[p->kv_dtype](load_query(s, head, row, factor), p->k_dim);
    }
}

static item_state prepare(const ta_attend_job *job, ta_item item, char *scratch)
{
    const ta_division *d = &job->division;
    size_t rows = (size_t)d->group_rows;
    size_t all = round_to_line(rows * (size_t)d->group_heads * sizeof(float));
    item_state s = {.job = job, .item = item, .buffers = (item_buffers *)scratch};
    scratch += round_to_line(sizeof(item_buffers));
    s.rows = (query_row *)scratch;
    scratch += round_to_line(rows * sizeof(query_row));
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
        s.record_head_stride = row_index(&s, 1, 0) * s.record_stride;
    }
    return s;
}

static float *row_tally(const item_state *s, int head, int32_t row)
{
    return s->tallies + head * s->tally_head_stride + row * s->tally_stride;
}

/* Tile by tile, each from an empty partial, so that its bits depend on nothing outside of it. */
static void attend_tiles(const item_state *s, int32_t first, int32_t end)
{
    int32_t tile = s->job->problem->tally_tile, v_dim = s->job->problem->v_dim;
    for (int i = 0; i < s->item.heads * s->item.rows; i++)
        ta_tally_clear(row_tally(s, i / s->item.rows, i % s->item.rows), v_dim);
    while (first < end) {
        int32_t next = end - first < tile - first % tile ? end : first + tile - first % tile;
        attend_range(s, first, next);
        for (int i = 0; i < s->item.heads * s->item.rows; i++) {
            int head = i / s->item.rows, row = i % s->item.rows;
            int64_t index = row_index(s, head, row);
            ta_tally_add_partial(row_tally(s, head, row), s->m[index], s->l[index],
                                 row_record(s, head, row), v_dim);
            empty_partial(s, head, row);
        }
        first = next;
    }
}

void ta_item_attend(const ta_attend_job *job, ta_item item, void *scratch)
{
    const ta_problem *p = job->problem;
    ta_visible all = ta_job_divided(job, item.sequence);
    int64_t split_tokens = ta_division_split_tokens(&job->division, all.end - all.first);
    int64_t first = all.first + item.split * split_tokens;
    if (first >= all.end)
        return;
    int64_t end = first + split_tokens < all.end ? first + split_tokens : all.end;

    item_state s = prepare(job, item, scratch);
    for (int i = 0; i < item.heads * item.rows; i++)
        start_row(&s, i / item.rows, i % item.rows);
    load_queries(&s);
    /* These rows may see less than all rows of the sequence. */
    ta_visible seen = {s.rows[0].visible.first, s.rows[item.rows - 1].visible.end};
    first = first > seen.first ? first : seen.first;
    end = end < seen.end ? end : seen.end;
    if (s.tallies) {
        attend_tiles(&s, (int32_t)first, (int32_t)end);
        return;
    }
    attend_range(&s, (int32_t)first, (int32_t)end);
    for (int i = 0; i < item.heads * item.rows; i++) {
        float *record = row_record(&s, i / item.rows, i % item.rows);
        int64_t index = row_index(&s, i / item.rows, i % item.rows);
        record[p->v_dim] = s.m[index];
        record[p->v_dim + 1] = s.l[index];
    }
}
