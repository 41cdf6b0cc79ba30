/* What an item asks of memory before it needs it: lines of the vectors that its kernels fetch while
 * they compute, and pages that are touched (touch.h). No result depends on it. item_tokens.c asks,
 * block by block; implemented in item_ahead.c. */
#ifndef TA_HOST_ITEM_AHEAD_H
#define TA_HOST_ITEM_AHEAD_H

#include "item.h"
#include "touch.h"

/* Is V a part of K, as in a latent cache? */
int ta_item_values_in_keys(const ta_item_state *s);

/* Does each use fetch its part of the next tile, so that memory is read while all of them compute?
 * With few rows the first block does it all: what it waits is less than what asking costs. */
int ta_item_shares_fetching(const ta_item_state *s);

/* What rows [row, row + rows) then fetch of the next tile while they use n tokens of one side from
 * index `at` on: of the same side, or of K all the time if V is in it. */
ta_vectors ta_item_part_of_next(const ta_item_state *s, const ta_tile_side *side, int32_t row,
                                int rows, int at, int n);

/* Else what is fetched ahead of a block: up to n vectors from index `at` of one side on. After the
 * last of its K come the first of V, and after the last V the first K of the next tile or item.
 * Rows after the first ones find everything in the cache, and one row alone that meets its vectors
 * in the order of memory is followed by the CPU itself. */
ta_vectors ta_item_vectors_ahead(const ta_item_state *s, const ta_tile_side *side, int32_t row,
                                 int rows, int at, int n);

/* The tokens [from, end) of the tile are taken in batches, by kernels that take `most`. Before that
 * from index `at` on is read, touch what is read after it. */
void ta_item_touch_ahead(const ta_item_state *s, ta_touch touch, int most, int from, int at,
                         int end);

/* Touch the first tokens after the tile, of the next one or of the next item. */
void ta_item_touch_next(const ta_item_state *s, ta_touch touch, int batch);

#endif
