/* Tiles: the next tokens of a sequence and KV head, as addresses of their K and V vectors, whatever
 * the layout is. item.c goes over a split of the tokens tile by tile: first over all K of the tile,
 * then over all V. Tiles are large, because memory is read fastest in long sequences.
 *
 * Where the heads of a token are neighbours and each has one query row, several tokens are read
 * side by side, head by head. Then a tile takes its tokens in turn from several places of the
 * split, "lanes", each of which is read as a sequence of its own. Where the row asks for its lines
 * itself (row_wide.h), tokens are read one after the other, and there are no lanes. */
#ifndef TA_HOST_TILE_H
#define TA_HOST_TILE_H

#include "device/device.h"
#include "host/kernels.h"

/* Lanes of such a tile: as many as the tokens that kernels read side by side. */
#define TA_TILE_LANES 4

/* The most tokens of a tile, and the most pairs of a KV head and a block of tokens in it. */
#define TA_TILE_MAX 2048
#define TA_TILE_BLOCKS 64

/* Tokens after those of a tile that are looked up with it, to be fetched ahead. */
#define TA_TILE_AHEAD (2 * TA_TOKENS_MOST)

/* The most bytes of K or V in a tile that is used more than once, if that is more than
 * one block of tokens: the second cache level keeps it for them. */
#define TA_TILE_BYTES (128 << 10)

/* Where the tokens of one sequence are, for its KV heads from one on. */
typedef struct ta_tile_source {
    const ta_problem *problem;
    const ta_kv *kv;
    int32_t sequence, kv_head;
    const int32_t *bounds;              /* of the sequence, or NULL */
    const int32_t *pages;               /* of the sequence, or NULL */
    const char *k, *v;                  /* token 0, or with pages: token 0 of page 0 */
    int64_t k_head_bytes, v_head_bytes; /* from one KV head to the next */
} ta_tile_source;

/* The vectors of K or of V. */
typedef struct ta_tile_side {
    const char *first;
    int64_t step;
    const void *each[TA_TILE_MAX + TA_TILE_AHEAD]; /* only if not all are at equal distances */
} ta_tile_side;

typedef struct ta_tile {
    int32_t first; /* local position of the first token */
    int count;
    int32_t more;        /* tokens of the next tiles that are known already; none with lanes */
    int32_t after;       /* tokens of the next tiles of the item, with lanes of each */
    int32_t run_tokens;  /* how many are at equal distances: of a page, or 1; 0: all */
    int32_t lane_tokens; /* from one lane to the next; 0: without lanes */
    ta_tile_side k, v;
    int32_t positions[TA_TILE_MAX]; /* in the whole sequence; only with ALiBi */
    int listed;                     /* were they added one list after the other? Then also: */
    int32_t locals[TA_TILE_MAX];    /* their local positions */
} ta_tile;

/* From one token to the next where they follow each other; from page to page where each token has a
 * page of its own. */
static inline int64_t ta_kv_token_stride(const ta_kv *kv, const ta_tensor *k_or_v)
{
    return kv->page_table && kv->page_tokens == 1 ? k_or_v->batch_stride : k_or_v->token_stride;
}

ta_tile_source ta_tile_source_of(const ta_problem *problem, const ta_kv *kv, int32_t sequence,
                                 int32_t kv_head);

/* How many tokens of `heads` KV heads are a tile, a multiple of TA_TOKEN_BLOCK. One that is reused
 * or widened is small enough for the second cache level. */
int ta_tile_tokens(const ta_problem *problem, int heads, int reused, int widened);

/* The first `count` of the tokens [first, end), local positions; the others are wanted next. */
void ta_tile_find(const ta_tile_source *source, int32_t first, int count, int32_t end,
                  ta_tile *tile);

/* TA_TILE_LANES times `count` tokens: those from each of the local positions first, first +
 * lane_tokens, … on. The `after` that follow are wanted next. */
void ta_tile_find_lanes(const ta_tile_source *source, int32_t first, int32_t lane_tokens, int count,
                        int32_t after, ta_tile *tile);

/* A tile of tokens from anywhere: begin it, then list runs of them, `count` from local position
 * `first` on, one run after the other. */
void ta_tile_begin(const ta_tile_source *source, ta_tile *tile);
void ta_tile_list(const ta_tile_source *source, int32_t first, int count, ta_tile *tile);

/* Are neighbours mostly apart in memory? */
static inline int ta_tile_is_scattered(const ta_tile *tile)
{
    return tile->run_tokens > 0 && tile->run_tokens < 4;
}

/* Do the runs of the n tokens from index `at` on follow each other, as pages in their order do? */
static inline int ta_tile_is_even(const ta_tile *tile, const ta_tile_side *side, int at, int n)
{
    int next = tile->run_tokens - (tile->first + at) % tile->run_tokens;
    for (; next < n; next += tile->run_tokens) {
        if ((const char *)side->each[at + next] - (const char *)side->each[at + next - 1] !=
            side->step)
            return 0;
    }
    return 1;
}

/* The vectors of n tokens from index `at` of the tile on. */
static inline ta_vectors ta_tile_vectors(const ta_tile *tile, const ta_tile_side *side, int at,
                                         int n)
{
    ta_vectors all = {.n = n,
                      .first = side->first + at * side->step,
                      .step = side->step,
                      .more = tile->count - at - n};
    if (!tile->run_tokens)
        return all;
    return (ta_vectors){.n = n,
                        .first = side->each[at],
                        .step = ta_tile_is_even(tile, side, at, n) ? side->step : 0,
                        .each = side->each + at};
}

#endif
