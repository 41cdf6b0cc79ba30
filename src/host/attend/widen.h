/* K and V of 8 bits on the host: the tokens of a tile become bf16, exactly, in memory of the
 * thread that the second cache level keeps, and kernels then take them from there as if the cache
 * were of that type. So a tile is widened once for all rows that see it, and types of 8 bits need
 * no kernels of their own but the one that widens (kernels.h). Scales stay apart: they are listed
 * by token, and item_tokens.c multiplies scores and weights by them.
 *
 * One row alone is another matter: where the CPU can widen in registers, its kernels read the bytes
 * themselves (narrow_wide.h), and scales are all that is listed.
 *
 * While kernels compute with a tile, they ask for the bytes of the next one: see ahead_of() in
 * item_tokens.c. */
#ifndef TA_HOST_WIDEN_H
#define TA_HOST_WIDEN_H

#include "tile.h"

/* Bytes of widened K or V in a tile, if that is more than one block of tokens. */
#define TA_WIDENED_BYTES (64 << 10)

/* The most bytes that a block of tokens of several KV heads may have. */
#define TA_WIDENED_MOST (128 << 10)

/* A widened tile, [head][token][dim] for each side, and its scales, [head][token]. */
typedef struct ta_widened {
    char *k, *v;
    float *k_scales, *v_scales; /* NULL: all are 1 */
    int capacity;               /* tokens from head to head */
} ta_widened;

/* The type that kernels see. */
static inline ta_dtype ta_widened_dtype(ta_dtype kv_dtype)
{
    return ta_dtype_is_narrow(kv_dtype) ? TA_BF16 : kv_dtype;
}

/* The most neighbouring KV heads that are widened together. */
int ta_widened_heads(const ta_problem *problem);

/* Memory for up to `heads` KV heads, a multiple of 64; 0 if there is nothing to widen. */
size_t ta_widened_memory(const ta_problem *problem, int heads);

/* Are tiles widened for items of so many rows? */
int ta_widens(const ta_host_kernels *kernels, const ta_problem *problem, int32_t rows);

/* The scales of a tile's tokens, of so many heads, into that memory. */
ta_widened ta_tile_scales(const ta_tile_source *source, const ta_tile *tile, int heads,
                          char *memory);

/* The same, and the tokens widened. */
ta_widened ta_widen_tile(const ta_host_kernels *kernels, const ta_tile_source *source,
                         const ta_tile *tile, int heads, char *memory);

/* scores[t·rows + r] *= scales[t]. */
void ta_scale_tokens(float *scores, int n, int rows, const float *scales);

#endif
