/* The rows of an item against its tokens. Tokens go by in tiles (tile.h), and the rows use each
 * tile in blocks, so that K and V come from memory once for all rows. A token that no row sees
 * is never looked up, and a row never reads a token that it does not see. item_ahead.c is what they
 * ask of memory meanwhile. */
#include "base/dtype.h"
#include "item_ahead.h"

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

/* The most rows of a block. Eight of them gain less in f16 than longer calls with four. */
static int rows_most(const ta_item_state *s)
{
    return s->job->problem->kv_dtype == TA_F16 ? TA_ROW_BLOCK : s->job->kernels->rows_most;
}

/* Is each tile used several times, by blocks of rows or as K and as V? Then it is small enough for
 * the second level of cache. */
static int reuses_tiles(const ta_item_state *s)
{
    return s->item.rows > rows_most(s) || ta_item_values_in_keys(s);
}

/* How many tokens kernels take at a time. Several rows of one head in a 16-bit type compute more
 * than they wait for memory: fewer and longer calls suit them. They suit one row that reads 8 bits,
 * too, whose blocks take little time. */
static int block_tokens(const ta_item_state *s, int rows)
{
    int longer =
        rows == TA_ROW_BLOCK && s->item.heads == 1 && ta_dtype_bytes(s->dtype) == 2 && !s->widens;
    return longer || ta_dtype_is_narrow(s->dtype) ? TA_TOKENS_MOST : TA_TOKEN_BLOCK;
}

/* How far ahead vectors are fetched: a block, or two of those that are read in little time. For the
 * last token of a block is wanted soon after its first: kernels take a line of each in turn. */
static int ahead_tokens(const ta_item_state *s, int rows, int32_t dim)
{
    int64_t token_bytes =
        (int64_t)s->item.heads * dim * (int)ta_dtype_bytes(s->job->problem->kv_dtype);
    int tokens = block_tokens(s, rows);
    int small = token_bytes * tokens <= SMALL_BLOCK_BYTES;
    return small && !ta_tile_is_scattered(&s->buffers->tile) ? 2 * tokens : tokens;
}

/* How many tokens ahead the one row of an item asks for lines itself; 0 if it does not. What is
 * used again, by other rows or as V, should stay in the second level of cache. */
static int row_ahead_tokens(const ta_item_state *s, int32_t dim)
{
    int size = (int)ta_dtype_bytes(s->dtype);
    if (s->item.rows > 1 || ta_dtype_is_narrow(s->dtype) || s->widens || ta_item_values_in_keys(s))
        return 0;
    int64_t token_bytes = (int64_t)s->item.heads * dim * size;
    return (int)((s->job->row_ahead_bytes + token_bytes - 1) / token_bytes);
}

/* The n tokens from index `at` of one side of the tile on, and what is fetched ahead of them, for
 * rows [row, row + rows) of all heads. */
static ta_block block_of(const ta_item_state *s, const ta_tile_side *side, int32_t row, int rows,
                         int at, int n)
{
    const ta_tile *tile = &s->buffers->tile;
    int of_values = side == &tile->v;
    int32_t dim = of_values ? s->job->problem->v_dim : s->job->problem->k_dim;
    int64_t uses = (int64_t)s->item.rows / rows * (ta_item_values_in_keys(s) ? 2 : 1);
    if (s->widens) {
        const ta_widened *w = &s->buffers->widened;
        int64_t step = dim * (int64_t)sizeof(uint16_t);
        return (ta_block){.rows = rows,
                          .heads = s->item.heads,
                          .tokens = {.n = n,
                                     .first = (of_values ? w->v : w->k) + at * step,
                                     .step = step,
                                     .more = tile->count - at - n},
                          .ahead = ta_item_part_of_next(s, side, row, rows, at, n),
                          .ahead_parts = (int)uses,
                          .ahead_halved = 1,
                          .token_head_bytes = w->capacity * step,
                          .dim = dim};
    }
    int shares = ta_item_shares_fetching(s), row_ahead = row_ahead_tokens(s, dim);
    ta_vectors tokens = ta_tile_vectors(tile, side, at, n);
    if (s->item.heads == 1 && tile->run_tokens && tokens.step)
        row_ahead = 0; /* pages that are that long are fetched as fast from further ahead */
    ta_vectors ahead = {0};
    if (shares)
        ahead = ta_item_part_of_next(s, side, row, rows, at, n);
    else if (!row_ahead)
        ahead = ta_item_vectors_ahead(s, side, row, rows, at + ahead_tokens(s, rows, dim), n);
    return (ta_block){.rows = rows,
                      .heads = s->item.heads,
                      .row_ahead = row_ahead,
                      .row_each = tile->run_tokens ? side->each + at : NULL,
                      .row_known = tile->count + tile->more - at,
                      .tokens = tokens,
                      .ahead = ahead,
                      .ahead_parts = shares ? (int)uses : 1,
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
    (s->packed ? kernels->score_packed[s->dtype]
               : kernels->score[s->dtype])(&block, s->q + (int64_t)row * p->k_dim);
    const ta_widened *w = &b->widened;
    const float *k_scales = s->narrow ? w->k_scales : NULL;
    const float *v_scales = s->narrow ? w->v_scales : NULL;
    for (int h = 0; h < s->item.heads; h++, slot++) {
        int64_t index = ta_row_index(s, h, row);
        float *scores = b->weights[slot];
        if (k_scales)
            ta_scale_tokens(scores, n, rows, k_scales + h * w->capacity + at);
        if (p->softcap > 0.0f)
            kernels->softcap(scores, n * rows, (float)(p->softcap * M_LOG2E));
        if (p->alibi_slopes)
            add_alibi(s->rows + row, s->slopes + index, rows, b->tile.positions + at, n, scores);
        b->any_hidden[slot] = kernels->softmax(scores, n, rows, s->m + index, s->l + index,
                                               b->rescale[slot], b->hidden[slot]);
        if (v_scales)
            ta_scale_tokens(scores, n, rows, v_scales + h * w->capacity + at);
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
        s->job->kernels->weigh[s->dtype](&block, o, &rescale);
        rescale = 1.0f; /* once is enough; without any run no maximum was found and it is 1 */
    }
}

/* Add the values of the tokens that find_weights() weighed. */
static void add_values(const ta_item_state *s, int32_t row, int rows, int at, int n, int slot)
{
    ta_item_buffers *b = s->buffers;
    ta_block block = block_of(s, &b->tile.v, row, rows, at, n);
    block.row_stride = s->record_stride;
    block.head_stride = s->record_head_stride;
    block.scores = b->weights[slot];
    block.sums = b->sums;
    block.scattered = !s->widens && ta_tile_is_scattered(&b->tile);
    block.shared = s->item.rows > rows;
    int any_hidden = 0;
    for (int h = 0; h < s->item.heads; h++)
        any_hidden |= b->any_hidden[slot + h];
    if (!any_hidden) {
        s->job->kernels->weigh[s->dtype](&block, ta_row_record(s, 0, row), b->rescale[slot]);
        return;
    }
    const ta_token_set none = {0};
    const void *of_head[TA_TOKENS_MOST];
    ta_vectors all = block.tokens;
    block.rows = block.heads = 1;
    block.tokens = (ta_vectors){.n = n, .each = of_head};
    block.ahead = (ta_vectors){0};
    block.row_ahead = 0;
    for (int h = 0; h < s->item.heads; h++, slot++) {
        for (int t = 0; t < n; t++)
            of_head[t] = ta_vector_at(&all, t) + h * block.token_head_bytes;
        for (int r = 0; r < rows; r++)
            add_visible_values(s, block, ta_row_record(s, h, row + r), b->rescale[slot][r],
                               b->weights[slot] + r, rows,
                               b->any_hidden[slot] ? &b->hidden[slot][r] : &none);
    }
}

/* ---- All of it ---- */

/* Rows [row, row + rows) against the tokens [from, end) of the tile, which all of them see: all K
 * first, then all V. */
static void attend_block(const ta_item_state *s, int32_t row, int rows, int from, int end)
{
    int most = block_tokens(s, rows), slot = 0;
    /* Other rows find everything in the cache, and what is widened was touched before. */
    int touches = row == 0 && !s->marks && !s->widens;
    ta_touch touch = {&s->source, s->item.heads, 0, s->buffers->tile.lane_tokens};
    for (int at = from; at < end; at += most, slot += s->item.heads) {
        if (touches)
            ta_item_touch_ahead(s, touch, most, from, at, end);
        find_weights(s, row, rows, at, end - at < most ? end - at : most, slot);
    }
    slot = 0;
    touch.of_values = 1;
    for (int at = from; at < end; at += most, slot += s->item.heads) {
        if (touches)
            ta_item_touch_ahead(s, touch, most, from, at, end);
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

/* Touch the pages of the next tile, or item, and widen this one. */
static void widen(const ta_item_state *s)
{
    ta_item_buffers *b = s->buffers;
    ta_touch touch = {&s->source, s->item.heads, 0, b->tile.lane_tokens};
    for (touch.of_values = 0; touch.of_values < 2 && !s->marks; touch.of_values++)
        ta_item_touch_next(s, touch, b->tile.count);
    b->widened = ta_widen_tile(s->job->kernels, &s->source, &b->tile, s->item.heads, s->narrow);
}

/* All rows against the tile: in blocks where neighbours see the same of it, else one by one. */
void ta_item_attend_tile(const ta_item_state *s)
{
    int32_t row = 0;
    if (s->widens)
        widen(s);
    else if (s->narrow)
        s->buffers->widened =
            ta_tile_scales(&s->source, &s->buffers->tile, s->item.heads, s->narrow);
    while (row < s->item.rows) {
        ta_visible seen = row_in_tile(s, row);
        int alike = 1;
        while (alike < rows_most(s) && row + alike < s->item.rows) {
            ta_visible other = row_in_tile(s, row + alike);
            if (other.first != seen.first || other.end != seen.end)
                break;
            alike++;
        }
        int rows = alike >= TA_ROWS_MOST ? TA_ROWS_MOST : alike >= TA_ROW_BLOCK ? TA_ROW_BLOCK : 1;
        if (seen.first < seen.end)
            attend_block(s, row, rows, seen.first, seen.end);
        row += rows;
    }
}

/* The tokens that are looked up at once. In reproducible mode, blocks of tokens begin where a tile
 * begins, for all rows that see that token. */
static int32_t most_at_once(const ta_item_state *s, int32_t first, int32_t end)
{
    int all_see = 1;
    for (int32_t row = 0; row < s->item.rows && s->tallies; row++)
        all_see &= s->rows[row].visible.first <= first && s->rows[row].visible.end >= end;
    if (s->tallies && !all_see)
        return TA_TOKEN_BLOCK;
    return ta_tile_tokens(s->job->problem, s->item.heads, reuses_tiles(s), s->widens);
}

/* All rows against the tokens [first, end). */
void ta_item_attend_tokens(const ta_item_state *s, int32_t first, int32_t end, int32_t last)
{
    int32_t most = most_at_once(s, first, end);
    int in_lanes = s->item.heads > 1 && s->item.rows == 1; /* see tile.h */
    if (in_lanes && !s->tallies && !row_ahead_tokens(s, s->job->problem->k_dim)) {
        int32_t lane_tokens = (end - first) / TA_TILE_LANES;
        for (int32_t left = lane_tokens; left > 0; left -= most / TA_TILE_LANES) {
            int count = left < most / TA_TILE_LANES ? left : most / TA_TILE_LANES;
            ta_tile_find_lanes(&s->source, first + lane_tokens - left, lane_tokens, count,
                               left - count, &s->buffers->tile);
            ta_item_attend_tile(s);
        }
        first += lane_tokens * TA_TILE_LANES;
    }
    for (int32_t left; (left = end - first) > 0; first += most) {
        ta_tile_find(&s->source, first, left < most ? left : most, last, &s->buffers->tile);
        ta_item_attend_tile(s);
    }
}
