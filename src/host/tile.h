/* Tiles: the next tokens of a sequence and KV head, as addresses of their K and V vectors, whatever
 * the layout is. item.c walks over a split of the tokens tile by tile.
 *
 * A tile can take its tokens in turn from several places of the split, "lanes". Memory is read
 * fastest as a few sequential streams side by side: one stream alone leaves a third of the
 * bandwidth unused. */
#ifndef TA_HOST_TILE_H
#define TA_HOST_TILE_H

#include "../device.h"
#include "kernels.h"

/* Lanes of a tile whose tokens need not be neighbours. With K and V that is 8 streams, as many as
 * CPUs follow well. */
#define TA_TILE_LANES 4

/* Where the tokens of one sequence and KV head are. */
typedef struct ta_tile_source {
    const ta_problem *problem;
    const ta_kv *kv;
    const int32_t *bounds; /* of the sequence, or NULL */
    const int32_t *pages;  /* of the sequence, or NULL */
    const char *k, *v;     /* token 0, or with pages: token 0 of page 0 */
} ta_tile_source;

typedef struct ta_tile {
    int32_t first; /* local position of the first token */
    int32_t lanes;
    int count;
    const void *k[TA_TILE], *v[TA_TILE];
    int32_t positions[TA_TILE]; /* in the whole sequence; only with ALiBi */
} ta_tile;

/* The bounds of a sequence, or NULL. */
static inline const int32_t *ta_kv_bounds(const ta_kv *kv, int32_t sequence)
{
    return kv->bounds ? kv->bounds + sequence * kv->bounds_stride : NULL;
}

ta_tile_source ta_tile_source_of(const ta_problem *problem, const ta_kv *kv, int32_t sequence,
                                 int32_t kv_head);

/* The `count` tokens from local position `first` on. */
void ta_tile_neighbours(const ta_tile_source *source, int32_t first, int count, ta_tile *tile);

/* TA_TILE tokens: as many neighbours from each of the local positions first, first + lane_tokens,
 * … */
void ta_tile_of_lanes(const ta_tile_source *source, int32_t first, int32_t lane_tokens,
                      ta_tile *tile);

#endif
