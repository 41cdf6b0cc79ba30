/* Tiles: the next tokens of a sequence and KV head, as addresses of their K and V vectors, whatever
 * the layout is. item.c walks over a split of the tokens tile by tile: first over all K of the
 * tile, then over all V.
 *
 * Memory is read fastest as a few long sequential streams side by side: one stream alone leaves a
 * third of the bandwidth unused, and so does changing streams often. So a tile is large, and takes
 * its tokens in turn from several places of the split, "lanes". */
#ifndef TA_HOST_TILE_H
#define TA_HOST_TILE_H

#include "../device.h"
#include "kernels.h"

/* Lanes of a tile. With K and V that is 8 streams, about as many as CPUs follow. */
#define TA_TILE_LANES 4

/* The most tokens of a tile, and the most pairs of a KV head and a block of tokens in it. */
#define TA_TILE_MAX 2048
#define TA_TILE_BLOCKS 64

/* The most bytes of K or V in a tile that several blocks of query rows use, if that is more than
 * one block of tokens: the second cache level keeps it for them. */
#define TA_TILE_BYTES (128 << 10)

/* Where the tokens of one sequence are, for its KV heads from one on. */
typedef struct ta_tile_source {
    const ta_problem *problem;
    const ta_kv *kv;
    const int32_t *bounds;              /* of the sequence, or NULL */
    const int32_t *pages;               /* of the sequence, or NULL */
    const char *k, *v;                  /* token 0, or with pages: token 0 of page 0 */
    int64_t k_head_bytes, v_head_bytes; /* from one KV head to the next */
} ta_tile_source;

typedef struct ta_tile {
    int32_t first; /* local position of the first token */
    int32_t lanes;
    int count;
    const void *k[TA_TILE_MAX], *v[TA_TILE_MAX];
    int32_t positions[TA_TILE_MAX]; /* in the whole sequence; only with ALiBi */
} ta_tile;

/* The bounds of a sequence, or NULL. */
static inline const int32_t *ta_kv_bounds(const ta_kv *kv, int32_t sequence)
{
    return kv->bounds ? kv->bounds + sequence * kv->bounds_stride : NULL;
}

ta_tile_source ta_tile_source_of(const ta_problem *problem, const ta_kv *kv, int32_t sequence,
                                 int32_t kv_head);

/* How many tokens are a tile when `rows` query rows of each of `heads` KV heads use it: a multiple
 * of TA_TOKEN_BLOCK. */
int ta_tile_tokens(const ta_problem *problem, int heads, int rows);

/* The `count` tokens from local position `first` on. */
void ta_tile_neighbours(const ta_tile_source *source, int32_t first, int count, ta_tile *tile);

/* TA_TILE_LANES times `count` tokens: neighbours from each of the local positions first, first +
 * lane_tokens, … */
void ta_tile_of_lanes(const ta_tile_source *source, int32_t first, int32_t lane_tokens, int count,
                      ta_tile *tile);

#endif
