/* Products of matrices in cache, for attention over full sequences: the part of the arithmetic that
 * must run near the peak of the CPU. panel_scalar.c is the truth and readable, panel_simd.h the
 * same over vector operations. forward.c and backward.c call them.
 *
 * A panel is [n][16] floats: 16 lanes, one for each query (or key), and a row for each thing that
 * all lanes share. All products are of a tile (rows of floats, `stride` apart) and a panel, and
 * both kinds keep a block of 6 × 16 or 8 × 16 sums in registers:
 *
 *     dots   for every row of the tile and every lane, a sum over the dimensions
 *     sums   for every dimension of the tile and every lane, a sum over the rows, with weights
 *
 * So scores come out of dots() as sums() takes weights, and nothing is rearranged in between.
 *
 * Tiles and panels of bf16 have a pair of neighbouring dimensions in the place of each float. */
#ifndef TA_HOST_PANEL_H
#define TA_HOST_PANEL_H

#include <stdint.h>

#define TA_PANEL_LANES 16
#define TA_PANEL_ROWS_MOST 8 /* of the block in registers, see `rows` below */

/* Which rows of a panel each lane sees: first[j] ≤ row < end[j], small integers as floats. */
typedef struct ta_panel_mask {
    _Alignas(32) float first[TA_PANEL_LANES], end[TA_PANEL_LANES];
} ta_panel_mask;

/* A partial of each lane but for o, which is a panel [v_dim]. */
typedef struct ta_panel_partial {
    _Alignas(32) float m[TA_PANEL_LANES], l[TA_PANEL_LANES];
    _Alignas(32) float rescale[TA_PANEL_LANES]; /* what o must be multiplied by */
} ta_panel_partial;

typedef struct ta_panel_kernels {
    /* Rows (or dimensions) of the block of sums: whole blocks are computed fastest. */
    int rows;

    /* to[i][j] = Σ_d tile[i·stride + d] · panel[d][j]. Computes whole blocks of rows, so up to 7
     * beyond n, from whatever is there. */
    void (*dots)(const float *tile, int64_t stride, int n, int dim, const float *panel, float *to);

    /* to[d][j] = to[d][j] · rescale[j] + Σ_i tile[i·stride + d] · weights[i][j]. The sum over the n
     * rows is made first, which keeps rounding errors small over long sequences. Computes whole
     * blocks of dimensions, so up to 5 beyond dim, which is a multiple of 8, from whatever is
     * there. `rescale` NULL: 1. */
    void (*sums)(const float *tile, int64_t stride, int n, int dim, const float *weights,
                 const float *rescale, float *to);

    /* For levels that multiply bf16 with bf16, else NULL: as dots() with a tile and a panel of
     * bf16, and sums times `factor`. Stride and dim count pairs. Numbers below 2^-126 may be taken
     * for 0. */
    void (*dots_bf16)(const float *tile, int64_t stride, int n, int dim, const float *panel,
                      float factor, float *to);

    /* to[j·to_stride + i] = from[i·from_stride + j] for multiples of 8 rows and columns. */
    void (*transpose)(const float *from, int64_t from_stride, int rows, int columns, float *to,
                      int64_t to_stride);

    /* Turn n rows of scores in base 2 into weights exp2(s - m) with the new m, and bring the lanes'
     * partials up to date. What the mask hides gets the weight -0; NULL hides nothing. NaN scores
     * make l and the weight NaN and leave m alone. */
    void (*softmax)(float *scores, int n, const ta_panel_mask *mask, ta_panel_partial *partial);

    /* For n rows, here queries with their own lse (base 2) and delta, and 16 keys: turn scores into
     * probabilities p = exp2(s - lse), and `products` dO·V into dS = p · (product - delta). With
     * cap > 0 the scores are tanh(s / c) and cap is c in base 2: p = exp2(cap · t - lse), and dS is
     * multiplied by 1 - t². Row i sees the lanes from first[i] up to end[i]; the others get -0. */
    void (*gradient)(float *scores, float *products, int n, const float *lse, const float *delta,
                     const float *first, const float *end, float cap);
} ta_panel_kernels;

extern const ta_panel_kernels ta_panels_scalar;

/* As sums(), where the tile has a NaN or infinity: a weight of -0 is one that is hidden, and what
 * it would weigh is not looked at. */
void ta_panel_sums_hidden(const float *tile, int64_t stride, int n, int dim, const float *weights,
                          const float *rescale, float *to);

/* Is there no NaN and no infinity in the tile? */
int ta_tile_finite(const float *tile, int64_t stride, int n, int dim);

#endif
