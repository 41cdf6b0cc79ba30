/* What comes after a block, a tile and an item, and when it is asked for: see item_ahead.h. */
#include "item_ahead.h"

#include "base/dtype.h"

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

/* Up to n vectors of one side of that item from index `at` on. */
static ta_vectors next_item_vectors(const ta_item_state *s, const ta_tile_side *side, int at, int n)
{
    ta_item item;
    int known = !s->job->kv->page_table && !s->marks;
    ta_visible range = known ? next_item(s, &item) : (ta_visible){0, 0};
    int left = range.end - range.first - at;
    if (left <= 0 || n <= 0)
        return (ta_vectors){0};
    ta_tile_source source = ta_tile_source_of(s->job->problem, s->job->kv,
                                              s->job->divisions[item.part].sequence, item.kv_head);
    const char *token = side == &s->buffers->tile.v ? source.v : source.k;
    return (ta_vectors){.n = left < n ? left : n,
                        .first = token + (range.first + at) * side->step,
                        .step = side->step};
}

ta_vectors ta_item_vectors_ahead(const ta_item_state *s, const ta_tile_side *side, int32_t row,
                                 int rows, int at, int n)
{
    const ta_tile *tile = &s->buffers->tile;
    int left = tile->count - at;
    if (row > 0 || (rows == 1 && !tile->run_tokens))
        return (ta_vectors){0};
    if (left <= 0 && side == &tile->k)
        return ta_item_vectors_ahead(s, &tile->v, row, rows, -left, n);
    if (left <= 0) {
        side = &tile->k;
        left += tile->more;
    }
    return left <= 0 ? next_item_vectors(s, side, -left, n)
                     : ta_tile_vectors(tile, side, at, left < n ? left : n);
}

int ta_item_values_in_keys(const ta_item_state *s)
{
    const ta_tensor *k = &s->job->kv->k, *v = &s->job->kv->v;
    int64_t size = (int64_t)ta_dtype_bytes(s->job->problem->kv_dtype);
    int64_t offset = (const char *)v->data - (const char *)k->data;
    return offset >= 0 && offset < s->job->problem->k_dim * size &&
           k->token_stride == v->token_stride;
}

int ta_item_shares_fetching(const ta_item_state *s)
{
    int several = s->item.rows > TA_ROWS_MOST || ta_item_values_in_keys(s);
    return several && !s->marks; /* with marks no next tile is known */
}

ta_vectors ta_item_part_of_next(const ta_item_state *s, const ta_tile_side *side, int32_t row,
                                int rows, int at, int n)
{
    const ta_tile *tile = &s->buffers->tile;
    int sides = ta_item_values_in_keys(s) ? 2 : 1;
    int64_t before = (int64_t)sides * row * tile->count + (int64_t)at * rows;
    if (sides == 2 && side == &tile->v)
        before += (int64_t)rows * tile->count;
    int first = (int)(before / (sides * s->item.rows));
    int count = (int)((before + (int64_t)n * rows) / (sides * s->item.rows)) - first;
    int left = tile->more - first;
    if (sides == 2)
        side = &tile->k;
    if (tile->lane_tokens || count <= 0 || (tile->more > 0 && left <= 0))
        return (ta_vectors){0};
    return tile->more > 0
               ? ta_tile_vectors(tile, side, tile->count + first, left < count ? left : count)
               : next_item_vectors(s, side, first, count);
}

/* ---- Pages of memory ---- */

/* `batch` tokens of the tile from index `at` on, at most up to `end`. */
static void touch_tile(const ta_touch *touch, const ta_tile *tile, int at, int batch, int end)
{
    int lanes = tile->lane_tokens ? TA_TILE_LANES : 1;
    ta_touch_pages(touch, tile->first + at / lanes, end - at < batch ? end - at : batch);
}

void ta_item_touch_next(const ta_item_state *s, ta_touch touch, int batch)
{
    const ta_tile *tile = &s->buffers->tile;
    int lanes = tile->lane_tokens ? TA_TILE_LANES : 1;
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
    ta_tile_source source = ta_tile_source_of(s->job->problem, s->job->kv,
                                              s->job->divisions[item.part].sequence, item.kv_head);
    touch.source = &source;
    touch.heads = item.heads;
    touch.lane_tokens = lanes > 1 ? (range.end - range.first) / lanes : 0;
    ta_touch_pages(&touch, range.first,
                   range.end - range.first < batch ? range.end - range.first : batch);
}

void ta_item_touch_ahead(const ta_item_state *s, ta_touch touch, int most, int from, int at,
                         int end)
{
    const ta_tile *tile = &s->buffers->tile;
    int batch = ta_touch_tokens(&touch, most);
    if (ta_item_shares_fetching(s)) {
        if (at == from && !(touch.of_values && ta_item_values_in_keys(s)))
            ta_item_touch_next(s, touch, tile->count);
        return;
    }
    if ((at - from) % batch)
        return;
    if (at + batch < end) {
        touch_tile(&touch, tile, at + batch, batch, end);
    } else if (!touch.of_values) {
        touch.of_values = 1;
        touch_tile(&touch, tile, from, ta_touch_tokens(&touch, most), end);
    } else {
        touch.of_values = 0;
        ta_item_touch_next(s, touch, batch);
    }
}
