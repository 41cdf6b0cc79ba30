/* Widening K and V of 8 bits: see widen.h. item_tokens.c calls this for each tile. */
#include "widen.h"

#include "base/dtype.h"

static size_t round_to_line(size_t bytes)
{
    return (bytes + 63) / 64 * 64;
}

static int32_t larger_dim(const ta_problem *p)
{
    return p->k_dim > p->v_dim ? p->k_dim : p->v_dim;
}

int ta_widened_heads(const ta_problem *problem)
{
    int heads = TA_WIDENED_MOST / (TA_TOKEN_BLOCK * larger_dim(problem) * (int)sizeof(uint16_t));
    return heads > 1 ? heads : 1;
}

/* Of one side: a tile of TA_WIDENED_BYTES, or one block of tokens of all heads. */
static size_t side_bytes(const ta_problem *p, int heads)
{
    size_t block = (size_t)heads * TA_TOKEN_BLOCK * (size_t)larger_dim(p) * sizeof(uint16_t);
    return block > TA_WIDENED_BYTES ? block : TA_WIDENED_BYTES;
}

/* Vectors have 8 elements at least, so that there are never more scales than eighths of those. */
static size_t scales_bytes(const ta_problem *p, int heads)
{
    return round_to_line(side_bytes(p, heads) / (8 * sizeof(uint16_t)) * sizeof(float));
}

size_t ta_widened_memory(const ta_problem *problem, int heads)
{
    if (!ta_dtype_is_narrow(problem->kv_dtype))
        return 0;
    return 2 * (round_to_line(side_bytes(problem, heads)) + scales_bytes(problem, heads));
}

/* Vectors that follow each other in memory are widened in one call. */
static void widen_head(void (*widen)(const void *from, int32_t n, uint16_t *to),
                       const ta_vectors *tokens, int64_t offset, int32_t dim, char *to)
{
    for (int t = 0, run; t < tokens->n; t += run) {
        const char *from = ta_vector_at(tokens, t);
        run = 1;
        while (t + run < tokens->n && ta_vector_at(tokens, t + run) == from + (int64_t)run * dim)
            run++;
        widen(from + offset, run * dim, (uint16_t *)(void *)(to + (int64_t)t * dim * 2));
    }
}

/* The scales of `count` tokens from local position `first` on, into every step-th slot. */
static void list_scales(const ta_tile_source *source, const ta_scales *scales, int64_t head,
                        int32_t first, int count, int step, float *to)
{
    const float *data = scales->data + head * scales->head_stride;
    int32_t page_tokens = source->pages ? source->kv->page_tokens : INT32_MAX;
    int32_t in_block = first % page_tokens;
    int64_t block = source->sequence;
    for (int32_t i = 0, run; i < count; i += run, in_block = 0) {
        run = count - i < page_tokens - in_block ? count - i : page_tokens - in_block;
        if (source->pages)
            block = source->pages[(first + i) / page_tokens];
        const float *from = data + block * scales->batch_stride;
        for (int32_t j = 0; j < run; j++, to += step)
            *to = from[(in_block + j) * scales->token_stride];
    }
}

static void find_scales(const ta_tile_source *source, const ta_tile *tile, const ta_scales *scales,
                        int head, float *to)
{
    int lanes = tile->lane_tokens ? TA_TILE_LANES : 1;
    for (int i = 0, run; tile->listed && i < tile->count; i += run) {
        run = 1;
        while (i + run < tile->count && tile->locals[i + run] == tile->locals[i] + run)
            run++;
        list_scales(source, scales, source->kv_head + head, tile->locals[i], run, 1, to + i);
    }
    if (tile->listed)
        return;
    for (int lane = 0; lane < lanes; lane++)
        list_scales(source, scales, source->kv_head + head, tile->first + lane * tile->lane_tokens,
                    tile->count / lanes, lanes, to + lane);
}

int ta_widens(const ta_host_kernels *kernels, const ta_problem *problem, int32_t rows)
{
    int reads = rows == 1 && kernels->reads_narrow && kernels->reads_narrow();
    return ta_dtype_is_narrow(problem->kv_dtype) && !reads;
}

ta_widened ta_tile_scales(const ta_tile_source *source, const ta_tile *tile, int heads,
                          char *memory)
{
    const ta_problem *p = source->problem;
    const ta_kv *kv = source->kv;
    float *scales = (float *)(void *)(memory + 2 * round_to_line(side_bytes(p, heads)));
    ta_widened w = {.capacity = tile->count};
    w.k_scales = kv->k_scale.data ? scales : NULL;
    w.v_scales = kv->v_scale.data ? scales + scales_bytes(p, heads) / sizeof(float) : NULL;
    for (int h = 0; h < heads; h++) {
        int64_t first = (int64_t)h * w.capacity;
        if (w.k_scales)
            find_scales(source, tile, &kv->k_scale, h, w.k_scales + first);
        if (w.v_scales)
            find_scales(source, tile, &kv->v_scale, h, w.v_scales + first);
    }
    return w;
}

ta_widened ta_widen_tile(const ta_host_kernels *kernels, const ta_tile_source *source,
                         const ta_tile *tile, int heads, char *memory)
{
    const ta_problem *p = source->problem;
    ta_widened w = ta_tile_scales(source, tile, heads, memory);
    w.k = memory;
    w.v = memory + round_to_line(side_bytes(p, heads));
    ta_vectors k = ta_tile_vectors(tile, &tile->k, 0, tile->count);
    ta_vectors v = ta_tile_vectors(tile, &tile->v, 0, tile->count);
    for (int h = 0; h < heads; h++) {
        int64_t first = (int64_t)h * w.capacity;
        widen_head(kernels->widen[p->kv_dtype], &k, h * source->k_head_bytes, p->k_dim,
                   w.k + first * p->k_dim * 2);
        widen_head(kernels->widen[p->kv_dtype], &v, h * source->v_head_bytes, p->v_dim,
                   w.v + first * p->v_dim * 2);
    }
    return w;
}

void ta_scale_tokens(float *scores, int n, int rows, const float *scales)
{
    if (rows == 1) {
        for (int t = 0; t < n; t++)
            scores[t] *= scales[t];
        return;
    }
    for (int t = 0; t < n; t++)
        for (int r = 0; r < rows; r++)
            scores[t * rows + r] *= scales[t];
}
