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

/* List the vectors, which are in pages. */
static void look_up(const ta_tile_source *source, ta_tile *tile)
{
    const ta_kv *kv = source->kv;
    int64_t size = (int64_t)ta_dtype_bytes(source->problem->kv_dtype);
    for (int place = 0; place < tile->count;) {
        int32_t in_page = (tile->first + place) % kv->page_tokens, run = tile->count - place;
        int64_t page = source->pages[(tile->first + place) / kv->page_tokens];
        const char *k = source->k + page * kv->k.batch_stride * size;
        const char *v = source->v + page * kv->v.batch_stride * size;
        run = run < kv->page_tokens - in_page ? run : kv->page_tokens - in_page;
        for (int32_t i = in_page; i < in_page + run; i++, place++) {
            tile->k.each[place] = k + i * tile->k.step;
            tile->v.each[place] = v + i * tile->v.step;
        }
    }
}

void ta_tile_find(const ta_tile_source *source, int32_t first, int count, ta_tile *tile)
{
    const ta_kv *kv = source->kv;
    int64_t size = (int64_t)ta_dtype_bytes(source->problem->kv_dtype);
    tile->first = first;
    tile->count = count;
    tile->k.step = kv->k.token_stride * size;
    tile->v.step = kv->v.token_stride * size;
    tile->page_tokens = source->pages ? kv->page_tokens : 0;
    if (source->pages) {
        look_up(source, tile);
    } else {
        tile->k.first = source->k + first * tile->k.step;
        tile->v.first = source->v + first * tile->v.step;
    }
    for (int place = 0; source->problem->alibi_slopes && place < count; place++)
        tile->positions[place] =
            (int32_t)ta_shard_global(&source->problem->shard, source->bounds, first + place);
}
