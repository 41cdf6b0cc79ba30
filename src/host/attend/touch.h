/* Pages of memory are touched in batches, before they are read.
 *
 * Programs have their caches in ordinary pages of 4 KiB, and a sequence of some thousand tokens has
 * more of them than the CPU remembers. So each page costs a walk through the page tables, and what
 * reads memory in its order waits for one walk after the other. Asking for every line ahead does
 * not help, since the first line of each page waits for its walk. But walks that are asked for
 * together overlap: a batch asks for one line of each page of the next batch. docs/performance.md
 * has what this gives. item_ahead.c touches, in the order in which tokens are read. */
#ifndef TA_HOST_TOUCH_H
#define TA_HOST_TOUCH_H

#include "tile.h"

/* Bytes of K or V in a batch. Larger ones cost more where pages are huge and nothing has to be
 * walked: the first lines then come in an order that the CPU does not guess. */
#define TA_TOUCH_BYTES (64 << 10)

/* A page at least has so many bytes. */
#define TA_MEMORY_PAGE 4096

/* One side of the tokens of `heads` neighbouring KV heads. */
typedef struct ta_touch {
    const ta_tile_source *source;
    int heads, of_values;
    int32_t lane_tokens; /* as in a tile */
} ta_touch;

/* How many tokens are a batch, for kernels that take `block` at a time: a multiple of them. */
int ta_touch_tokens(const ta_touch *touch, int block);

/* Touch the pages of `count` tokens from local position `first` on, with lanes of each an equal
 * part. */
void ta_touch_pages(const ta_touch *touch, int32_t first, int count);

/* Call fn with the lines that this asks for: at least one of each page that has a vector. Public
 * for tests/test_touch.c alone: no program sees what was asked of the CPU. */
void ta_touch_lines(const ta_touch *touch, int32_t first, int count,
                    void (*fn)(void *context, const char *line), void *context);

#endif
