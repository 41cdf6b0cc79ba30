/* Tiles: see tile.h. */
#include "tile.h"

#include "base/dtype.h"
#include "widen.h"

ta_tile_source ta_tile_source_of(const ta_problem *problem, const ta_kv *kv, int32_t sequence,
                                 int32_t kv_head)
{
    ta_tile_source s = {.problem = problem,
                        .kv = kv,
                        .sequence = sequence,
                        .kv_head = kv_head,
                        .bounds = ta_kv_bounds(kv, sequence)};
    int64_t size = (int64_t)ta_dtype_bytes(problem->kv_dtype);
    int64_t block = sequence;
    if (kv->page_table) {
        s.pages = kv->page_table + sequence * kv->page_table_stride;
        block = 0;
    }
    s.k = ta_element(problem->kv_dtype, kv->k.data,
                     block * kv->k.batch_stride + kv_head * kv->k.head_stride);
    s.v = ta_element(problem->kv_dtype, kv->v.data,
                     block * kv->v.batch_stride + kv_head * kv->v.head_stride);
    s.k_head_bytes = kv->k.head_stride * size;
    s.v_head_bytes = kv->v.head_stride * size;
    return s;
}

int ta_tile_tokens(const ta_problem *problem, int heads, int reused, int widened)
{
    int blocks = TA_TILE_BLOCKS / heads;
    if (blocks > TA_TILE_MAX / TA_TOKEN_BLOCK)
        blocks = TA_TILE_MAX / TA_TOKEN_BLOCK;
    if (reused || widened) {
        int32_t dim = problem->k_dim > problem->v_dim ? problem->k_dim : problem->v_dim;
        int token_bytes =
            heads * dim *
            (widened ? (int)sizeof(uint16_t) : (int)ta_dtype_bytes(problem->kv_dtype));
        int kept = (widened ? TA_WIDENED_BYTES : TA_TILE_BYTES) / token_bytes / TA_TOKEN_BLOCK;
        blocks = kept < blocks ? kept : blocks;
    }
    return blocks > 1 ? blocks * TA_TOKEN_BLOCK : TA_TOKEN_BLOCK;
}

static void start(const ta_tile_source *source, int32_t first, int count, ta_tile *tile)
{
    int64_t size = (int64_t)ta_dtype_bytes(source->problem->kv_dtype);
    tile->first = first;
    tile->count = count;
    tile->more = 0;
    tile->listed = 0;
    tile->lane_tokens = 0;
    tile->k.step = ta_kv_token_stride(source->kv, &source->kv->k) * size;
    tile->v.step = ta_kv_token_stride(source->kv, &source->kv->v) * size;
    tile->run_tokens = source->pages ? source->kv->page_tokens : 0;
    tile->k.first = source->k + first * tile->k.step; /* without pages */
    tile->v.first = source->v + first * tile->v.step;
}

/* List `count` tokens from local position `first` on, into every `step`-th slot of the tile. */
static void list(const ta_tile_source *source, int32_t first, int count, int slot, int step,
                 ta_tile *tile)
{
    const ta_kv *kv = source->kv;
    int64_t size = (int64_t)ta_dtype_bytes(source->problem->kv_dtype);
    for (int32_t at = first, end = first + count; at < end;) {
        const char *k = source->k, *v = source->v;
        int32_t in_block = at, run = end - at;
        if (source->pages) {
            int64_t page = source->pages[at / kv->page_tokens];
            in_block = at % kv->page_tokens;
            run = run < kv->page_tokens - in_block ? run : kv->page_tokens - in_block;
            k += page * kv->k.batch_stride * size;
            v += page * kv->v.batch_stride * size;
        }
        at += run;
        for (int32_t i = in_block; i < in_block + run; i++, slot += step) {
            tile->k.each[slot] = k + i * tile->k.step;
            tile->v.each[slot] = v + i * tile->v.step;
        }
    }
}

static void find_positions(const ta_tile_source *source, int32_t first, int count, int slot,
                           int step, ta_tile *tile)
{
    if (!source->problem->alibi_slopes)
        return;
    for (int i = 0; i < count; i++)
        tile->positions[slot + i * step] =
            (int32_t)ta_shard_global(&source->problem->shard, source->bounds, first + i);
}

void ta_tile_find(const ta_tile_source *source, int32_t first, int count, int32_t end,
                  ta_tile *tile)
{
    start(source, first, count, tile);
    tile->after = tile->more = end - first - count;
    if (source->pages) {
        tile->more = tile->more < TA_TILE_AHEAD ? tile->more : TA_TILE_AHEAD;
        list(source, first, count + tile->more, 0, 1, tile);
    }
    find_positions(source, first, count, 0, 1, tile);
}

void ta_tile_find_lanes(const ta_tile_source *source, int32_t first, int32_t lane_tokens, int count,
                        int32_t after, ta_tile *tile)
{
    start(source, first, TA_TILE_LANES * count, tile);
    tile->run_tokens = 1;
    tile->lane_tokens = lane_tokens;
    tile->after = after;
    for (int lane = 0; lane < TA_TILE_LANES; lane++, first += lane_tokens) {
        list(source, first, count, lane, TA_TILE_LANES, tile);
        find_positions(source, first, count, lane, TA_TILE_LANES, tile);
    }
}

void ta_tile_begin(const ta_tile_source *source, ta_tile *tile)
{
    start(source, 0, 0, tile);
    tile->run_tokens = 1;
    tile->after = 0;
}

void ta_tile_list(const ta_tile_source *source, int32_t first, int count, ta_tile *tile)
{
    list(source, first, count, tile->count, 1, tile);
    find_positions(source, first, count, tile->count, 1, tile);
    for (int i = 0; i < count; i++)
        tile->locals[tile->count + i] = first + i;
    tile->listed = 1;
    tile->count += count;
}
