/* The rows of an item against its tokens. Tokens go by in tiles (tile.h), and the rows use each
 * tile in blocks, so that K and V come from memory once for all rows. A token that no row sees
 * is never looked up, and a row never reads a token that it does not see. */
#include "base/dtype.h"
#include "item.h"
#include "touch.h"

/* Bytes of K or V of a block that is read in little time, see ahead_tokens(). */
#define SMALL_BLOCK_BYTES (16 << 10)

/* scores[t·rows + r] -= slope_r · |x_r - y_t|. */
static void add_alibi(const ta_query_row *query, const float *slopes, int rows,
                      const int32_t *positions, int n, float *scores)
{
    for (int t = 0; t < n; t++) {
        for (int r = 0; r < rows; r++) {
            float distance = fabsf((float)(query[r].position - positions[t]));
            scores[t * rows + r] -= slopes[r] * distance;
        }
    }
}

/* The tokens that this thread will probably read after this item; empty after the last one. */
static ta_visible next_item(const ta_item_state *s, ta_item *item)
{
    const ta_attend_job *job = s->job;
    int64_t next = ta_pool_next(job->pool);
    if (next >= ta_division_items(job->divisions, job->problem))
        return (ta_visible){0, 0};
    *item = ta_division_item(job->divisions, job->problem, next);
    return ta_job_item_range(job, *item);
}

/* Up to n vectors of K of that item from index `at` on. */
static ta_vectors next_item_keys(const ta_item_state *s, int at, int n)
{
    ta_item item;
    ta_visible range = s->job->kv->page_table ? (ta_visible){0, 0} : next_item(s, &item);
    int left = range.end - range.first - at;
    if (left <= 0)
        return (ta_vectors){0};
    ta_tile_source source =
        ta_tile_source_of(s->job->problem, s->job->kv, item.sequence, item.kv_head);
    int64_t step = s->buffers->tile.k.step;
    return (ta_vectors){
        .n = left < n ? left : n, .first = source.k + (range.first + at) * step, .step = step};
}

/* What is fetched ahead of a block: up to n vectors from index `at` of one side on. After the last
 * of its K come the first of V, and after the last V the first K of the next tile or item. Rows
 * after the first ones find everything in the cache, and one row alone that meets its vectors in
 * the order of memory is followed by the CPU itself. */
static ta_vectors ahead_of(const ta_item_state *s, const ta_tile_side *side, int32_t row, int rows,
                           int at, int n)
{
    const ta_tile *tile = &s->buffers->tile;
    int left = tile->count - at;
    if (row > 0 || (rows == 1 && !tile->run_tokens))
        return (ta_vectors){0};
    if (left <= 0 && side == &tile->k)
        return ahead_of(s, &tile->v, row, rows, -left, n);
    if (left <= 0) {
        side = &tile->k;
        left += tile->more;
    }
    return left <= 0 ? next_item_keys(s, -left, n)
                     : ta_tile_vectors(tile, side, at, left < n ? left : n);
}

/* How many tokens kernels take at a time. Several rows of one head in a 16-bit type compute more
 * than they wait for memory: fewer and longer calls suit them. */
static int block_tokens(const ta_item_state *s, int rows)
{
    int longer = rows == TA_ROW_BLOCK && s->item.heads == 1 &&
                 ta_dtype_bytes(s->job->problem->kv_dtype) == 2;
    return longer ? TA_TOKENS_MOST : TA_TOKEN_BLOCK;
}

/* How far ahead of a block that is. Its last token is wanted soon after its first, because kernels
 * take a line of each token in turn: blocks that are read in little time are fetched two ahead. */
static int ahead_tokens(const ta_item_state *s, int rows, int32_t dim)
{
    int64_t token_bytes =
        (int64_t)s->item.heads * dim * (int)ta_dtype_bytes(s->job->problem->kv_dtype);
    int tokens = block_tokens(s, rows);
    int small = token_bytes * tokens <= SMALL_BLOCK_BYTES;
    return small && !ta_tile_is_scattered(&s->buffers->tile) ? 2 * tokens : tokens;
}

/* The n tokens from index `at` of one side of the tile on, and what is fetched ahead of them, for
 * rows [row, row + rows) of all heads. */
static ta_block block_of(const ta_item_state *s, const ta_tile_side *side, int32_t row, int rows,
                         int at, int n)
{
    const ta_tile *tile = &s->buffers->tile;
    int of_values = side == &tile->v;
    int32_t dim = of_values ? s->job->problem->v_dim : s->job->problem->k_dim;
    return (ta_block){.rows = rows,
                      .heads = s->item.heads,
                      .tokens = ta_tile_vectors(tile, side, at, n),
                      .ahead = ahead_of(s, side, row, rows, at + ahead_tokens(s, rows, dim), n),
                      .token_head_bytes =
                          of_values ? s->source.v_head_bytes : s->source.k_head_bytes,
                      .dim = dim};
}

/* The weights of the n tokens from index `at` of the tile on, for rows [row, row + rows) of all
 * heads: into buffers `slot` on, one for each head. */
static void find_weights(const ta_item_state *s, int32_t row, int rows, int at, int n, int slot)
{
    const ta_problem *p = s->job->problem;
    const ta_host_kernels *kernels = s->job->kernels;
    ta_item_buffers *b = s->buffers;
    ta_block block = block_of(s, &b->tile.k, row, rows, at, n);
    block.row_stride = p->k_dim;
    block.head_stride = ta_row_index(s, 1, 0) * p->k_dim;
    block.scores = b->weights[slot];
    block.factor = ta_score_factor(p);
    (s->packed ? kernels->score_packed[p->kv_dtype]
               : kernels->score[p->kv_dtype])(&block, s->q + (int64_t)row * p->k_dim);
    for (int h = 0; h < s->item.heads; h++, slot++) {
        int64_t index = ta_row_index(s, h, row);
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
static void add_visible_values(const ta_item_state *s, ta_block block, float *o, float rescale,
                               const float *weights, int step, const ta_token_set *hidden)
{
    float run_weights[TA_BLOCK_SCORES];
    ta_vectors all = block.tokens;
    block.scores = run_weights;
    for (int t = 0; t < all.n; t++) {
        int n = 0;
        for (; t < all.n && !(hidden->words[t / 64] >> t % 64 & 1); t++)
            run_weights[n++] = weights[t * step];
        if (n == 0)
            continue;
        block.tokens = (ta_vectors){.n = n, .each = all.each + t - n};
        s->job->kernels->weigh[s->job->problem->kv_dtype](&block, o, &rescale);
        rescale = 1.0f; /* once is enough; without any run no maximum was found and it is 1 */
    }
}

/* Add the values of the tokens that find_weights() weighed. */
static void add_values(const ta_item_state *s, int32_t row, int rows, int at, int n, int slot)
{
    const ta_problem *p = s->job->problem;
    ta_item_buffers *b = s->buffers;
    ta_block block = block_of(s, &b->tile.v, row, rows, at, n);
    block.row_stride = s->record_stride;
    block.head_stride = s->record_head_stride;
    block.scores = b->weights[slot];
    block.sums = b->sums;
    block.scattered = ta_tile_is_scattered(&b->tile);
    block.shared = s->item.rows > TA_ROW_BLOCK;
    int any_hidden = 0;
    for (int h = 0; h < s->item.heads; h++)
        any_hidden |= b->any_hidden[slot + h];
    if (!any_hidden) {
        s->job->kernels->weigh[p->kv_dtype](&block, ta_row_record(s, 0, row), b->rescale[slot]);
        return;
    }
    const ta_token_set none = {0};
    const void *of_head[TA_TOKENS_MOST];
    ta_vectors all = block.tokens;
    block.rows = block.heads = 1;
    block.tokens = (ta_vectors){.n = n, .each = of_head};
    block.ahead = (ta_vectors){0};
    for (int h = 0; h < s->item.heads; h++, slot++) {
        for (int t = 0; t < n; t++)
            of_head[t] = ta_vector_at(&all, t) + h * s->source.v_head_bytes;
        for (int r = 0; r < rows; r++)
            add_visible_values(s, block, ta_row_record(s, h, row + r), b->rescale[slot][r],
                               b->weights[slot] + r, rows,
                               b->any_hidden[slot] ? &b->hidden[slot][r] : &none);
    }
}

/* ---- Pages of memory: see touch.h ---- */

/* `batch` tokens of the tile from index `at` on, at most up to `end`. */
static void touch_tile(const ta_touch *touch, const ta_tile *tile, int at, int batch, int end)
{
    int lanes = tile->lane_tokens ? TA_TILE_LANES : 1;
    ta_touch_pages(touch, tile->first + at / lanes, end - at < batch ? end - at : batch);
}

/* The first K after the tile, of the next one or of the next item. */
static void touch_next_keys(const ta_item_state *s, ta_touch touch, int batch)
{
    const ta_tile *tile = &s->buffers->tile;
    int lanes = tile->lane_tokens ? TA_TILE_LANES : 1;
    touch.of_values = 0;
    if (tile->after > 0) {
        int most = batch < tile->count ? batch : tile->count; /* the next one is not larger */
        int64_t after = (int64_t)tile->after * lanes;
        ta_touch_pages(&touch, tile->first + tile->count / lanes, after < most ? (int)after : most);
        return;
    }
    ta_item item;
    ta_visible range = next_item(s, &item);
    if (range.first >= range.end)
        return;
    ta_tile_source source =
        ta_tile_source_of(s->job->problem, s->job->kv, item.sequence, item.kv_head);
    touch.source = &source;
    touch.heads = item.heads;
    touch.lane_tokens = lanes > 1 ? (range.end - range.first) / lanes : 0;
    ta_touch_pages(&touch, range.first,
                   range.end - range.first < batch ? range.end - range.first : batch);
}

/* The tokens [from, end) of the tile are taken in batches. Before that from index `at` on is read,
 * touch what is read after it. */
static void touch_ahead(const ta_item_state *s, ta_touch touch, int most, int from, int at, int end)
{
    const ta_tile *tile = &s->buffers->tile;
    int batch = ta_touch_tokens(&touch, most);
    if ((at - from) % batch)
        return;
    if (at + batch < end) {
        touch_tile(&touch, tile, at + batch, batch, end);
    } else if (!touch.of_values) {
        touch.of_values = 1;
        touch_tile(&touch, tile, from, ta_touch_tokens(&touch, most), end);
    } else {
        touch_next_keys(s, touch, batch);
    }
}

/* ---- All of it ---- */

/* Rows [row, row + rows) against the tokens [from, end) of the tile, which all of them see: all K
 * first, then all V. */
static void attend_block(const ta_item_state *s, int32_t row, int rows, int from, int end)
{
    int most = block_tokens(s, rows), slot = 0;
    ta_touch touch = {&s->source, s->item.heads, 0, s->buffers->tile.lane_tokens};
    for (int at = from; at < end; at += most, slot += s->item.heads) {
        if (row == 0) /* the others find everything in the cache */
            touch_ahead(s, touch, most, from, at, end);
        find_weights(s, row, rows, at, end - at < most ? end - at : most, slot);
    }
    slot = 0;
    touch.of_values = 1;
    for (int at = from; at < end; at += most, slot += s->item.heads) {
        if (row == 0)
            touch_ahead(s, touch, most, from, at, end);
        add_values(s, row, rows, at, end - at < most ? end - at : most, slot);
    }
}

/* What a row sees of the tile, as a range of its tokens; may be empty. */
static ta_visible row_in_tile(const ta_item_state *s, int32_t row)
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
static void attend_tile(const ta_item_state *s)
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
 * begins, for all rows that see that token. */
static int32_t most_at_once(const ta_item_state *s, int32_t first, int32_t end)
{
    int all_see = s->rows[s->item.rows - 1].visible.first <= first && s->rows[0].visible.end >= end;
    if (s->tallies && !all_see)
        return TA_TOKEN_BLOCK;
    return ta_tile_tokens(s->job->problem, s->item.heads, s->item.rows);
}

/* All rows against the tokens [first, end). */
void ta_item_attend_tokens(const ta_item_state *s, int32_t first, int32_t end, int32_t last)
{
    int32_t most = most_at_once(s, first, end);
    if (!s->tallies && s->item.heads > 1 && s->item.rows == 1) { /* see tile.h */
        int32_t lane_tokens = (end - first) / TA_TILE_LANES;
        for (int32_t left = lane_tokens; left > 0; left -= most / TA_TILE_LANES) {
            int count = left < most / TA_TILE_LANES ? left : most / TA_TILE_LANES;
            ta_tile_find_lanes(&s->source, first + lane_tokens - left, lane_tokens, count,
                               left - count, &s->buffers->tile);
            attend_tile(s);
        }
        first += lane_tokens * TA_TILE_LANES;
    }
    for (int32_t left; (left = end - first) > 0; first += most) {
        ta_tile_find(&s->source, first, left < most ? left : most, last, &s->buffers->tile);
        attend_tile(s);
    }
}
