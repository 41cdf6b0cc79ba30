/* Tiles: see tile.h. */
#include "tile.h"

#include "../dtype.h"

ta_tile_source ta_tile_source_of(const ta_problem *problem, const ta_kv *kv, int32_t sequence,
                                 int32_t kv_head)
{
    ta_tile_source s = {.problem = problem, .kv = kv, .bounds = ta_kv_bounds(kv, sequence)};
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

int ta_tile_tokens(const ta_problem *problem, int heads, int rows)
{
    int blocks = TA_TILE_BLOCKS / heads;
    if (blocks > TA_TILE_MAX / TA_TOKEN_BLOCK)
        blocks = TA_TILE_MAX / TA_TOKEN_BLOCK;
    if (rows > TA_ROW_BLOCK) {
        int32_t dim = problem->k_dim > problem->v_dim ? problem->k_dim : problem->v_dim;
        int token_bytes = heads * dim * (int)ta_dtype_bytes(problem->kv_dtype);
        int kept = TA_TILE_BYTES / token_bytes / TA_TOKEN_BLOCK;
        blocks = kept < blocks ? kept : blocks;
    }
    return blocks > 1 ? blocks * TA_TOKEN_BLOCK : TA_TOKEN_BLOCK;
}

/* Neighbours from local position `first` on, into every `step`-th place of the tile. */
static void look_up(const ta_tile_source *s, int32_t first, int count, int place, int step,
                    ta_tile *tile)
{
    const ta_kv *kv = s->kv;
    int64_t size = (int64_t)ta_dtype_bytes(s->problem->kv_dtype);
    int64_t k_step = kv->k.token_stride * size, v_step = kv->v.token_stride * size;
    int32_t at = first, end = first + count;
    while (at < end) {
        const char *k = s->k, *v = s->v;
        int32_t in_block = at, run = end - at;
        if (s->pages) {
            int64_t page = s->pages[at / kv->page_tokens];
            in_block = at % kv->page_tokens;
            run = run < kv->page_tokens - in_block ? run : kv->page_tokens - in_block;
            k += page * kv->k.batch_stride * size;
            v += page * kv->v.batch_stride * size;
        }
        for (int32_t i = 0; i < run; i++, place += step) {
            tile->k[place] = k + (in_block + i) * k_step;
            tile->v[place] = v + (in_block + i) * v_step;
            if (s->problem->alibi_slopes)
                tile->positions[place] =
                    (int32_t)ta_shard_global(&s->problem->shard, s->bounds, at + i);
        }
        at += run;
    }
}

void ta_tile_neighbours(const ta_tile_source *source, int32_t first, int count, ta_tile *tile)
{
    tile->first = first;
    tile->lanes = 1;
    tile->count = count;
    look_up(source, first, count, 0, 1, tile);
}

void ta_tile_of_lanes(const ta_tile_source *source, int32_t first, int32_t lane_tokens, int count,
                      ta_tile *tile)
{
    tile->first = first;
    tile->lanes = TA_TILE_LANES;
    tile->count = TA_TILE_LANES * count;
    for (int lane = 0; lane < TA_TILE_LANES; lane++)
        look_up(source, first + lane * lane_tokens, count, lane, TA_TILE_LANES, tile);
}
