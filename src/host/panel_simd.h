/* The functions of panel.h over vectors of 8 floats, and products over those of 16 where a level
 * has them (panel_wide.h). Included after attend_simd.h by the file of a SIMD level, whose
 * operations it uses; see kernels_avx2.c. No result depends on how wide the vectors are: each lane
 * adds up by itself, in the order of the sum. */
#include "panel.h"

#define PANEL TA_PANEL_LANES

#ifdef SIMD_PANEL_WIDE
#include "panel_wide.h"
#else
typedef vf pv; /* a vector of a panel's row */
#define PV_LANES LANES
#define pv_zero vf_zero
#define pv_set vf_set
#define pv_load vf_load
#define pv_store vf_store
#define pv_load_all vf_load_all
#define pv_mul vf_mul
#define pv_fma vf_fma
#ifdef SIMD_DOTS
#define pv_add_dots(sums, a, b) vf_add_dots(sums, (vd)(a), (vd)(b))
#endif
#endif

/* Rows of a block of sums, and of the block that is taken where there are so many: all registers
 * but those of a panel's row and a number. */
#define PANEL_VECTORS (PANEL / PV_LANES)
#define PANEL_ROWS (SIMD_REGISTERS == 32 ? 8 : 6)
#define PANEL_ROWS_MANY (PANEL_VECTORS == 1 ? 2 * PANEL_ROWS : PANEL_ROWS)

/* sum + x · y, or the products of both elements of a pair. */
INLINE pv panel_multiply(int pairs, pv x, pv y, pv sum)
{
#ifdef SIMD_DOTS
    if (pairs)
        return pv_add_dots(sum, x, y);
#endif
    (void)pairs;
    return pv_fma(x, y, sum);
}

/* The product that all time is spent in: c[i][j] = Σ_k a[k·a_k + i·a_i] · b[k][j], for a block of
 * sums in registers. One of a_k and a_i is 1, a constant after inlining, as `rows` is. */
INLINE void multiply_block(int pairs, int rows, const float *a, int64_t a_k, int64_t a_i,
                           const float *b, int n, pv *c)
{
    UNROLL
    for (int i = 0; i < PANEL_VECTORS * rows; i++)
        c[i] = pv_zero();
    for (int k = 0; k < n; k++) {
        pv row[PANEL_VECTORS];
        UNROLL
        for (int v = 0; v < PANEL_VECTORS; v++)
            row[v] = pv_load(b + v * PV_LANES);
        UNROLL
        for (int i = 0; i < rows; i++) {
            pv x = pv_load_all(a + i * a_i);
            UNROLL
            for (int v = 0; v < PANEL_VECTORS; v++)
                c[i * PANEL_VECTORS + v] =
                    panel_multiply(pairs, x, row[v], c[i * PANEL_VECTORS + v]);
        }
        a += a_k;
        b += PANEL;
    }
}

/* The sums of `rows` rows of a tile, times `factor` if they are of pairs. */
INLINE void dots_block(int pairs, int rows, const float *tile, int64_t stride, int dim,
                       const float *panel, float factor, float *to)
{
    pv c[PANEL_VECTORS * PANEL_ROWS_MANY];
    multiply_block(pairs, rows, tile, 1, stride, panel, dim, c);
    UNROLL
    for (int v = 0; v < PANEL_VECTORS * rows; v++)
        pv_store(to + v * PV_LANES, pairs ? pv_mul(c[v], pv_set(factor)) : c[v]);
}

INLINE void dots_of(int pairs, const float *tile, int64_t stride, int n, int dim,
                    const float *panel, float factor, float *to)
{
    int i = 0;
    for (; i + PANEL_ROWS_MANY <= n; i += PANEL_ROWS_MANY)
        dots_block(pairs, PANEL_ROWS_MANY, tile + i * stride, stride, dim, panel, factor,
                   to + i * PANEL);
    for (; i < n; i += PANEL_ROWS)
        dots_block(pairs, PANEL_ROWS, tile + i * stride, stride, dim, panel, factor,
                   to + i * PANEL);
}

static void panel_dots(const float *tile, int64_t stride, int n, int dim, const float *panel,
                       float *to)
{
    dots_of(0, tile, stride, n, dim, panel, 1.0f, to);
}

#ifdef SIMD_DOTS
static void panel_dots_bf16(const float *tile, int64_t stride, int n, int dim, const float *panel,
                            float factor, float *to)
{
    dots_of(1, tile, stride, n, dim, panel, factor, to);
}
#endif

/* The sums of `rows` dimensions, added to those of before. */
INLINE void sums_block(int rows, const float *tile, int64_t stride, int n, const float *weights,
                       const pv *scale, float *to)
{
    pv c[PANEL_VECTORS * PANEL_ROWS_MANY];
    multiply_block(0, rows, tile, stride, 1, weights, n, c);
    UNROLL
    for (int v = 0; v < PANEL_VECTORS * rows; v++) {
        float *sums = to + v * PV_LANES;
        pv_store(sums, pv_fma(pv_load(sums), scale[v % PANEL_VECTORS], c[v]));
    }
}

static void panel_sums(const float *tile, int64_t stride, int n, int dim, const float *weights,
                       const float *rescale, float *to)
{
    pv scale[PANEL_VECTORS];
    UNROLL
    for (int v = 0; v < PANEL_VECTORS; v++)
        scale[v] = rescale ? pv_load(rescale + v * PV_LANES) : pv_set(1.0f);
    int d = 0;
    for (; d + PANEL_ROWS_MANY <= dim; d += PANEL_ROWS_MANY)
        sums_block(PANEL_ROWS_MANY, tile + d, stride, n, weights, scale, to + d * PANEL);
    for (; d < dim; d += PANEL_ROWS)
        sums_block(PANEL_ROWS, tile + d, stride, n, weights, scale, to + d * PANEL);
}

static void panel_transpose(const float *from, int64_t from_stride, int rows, int columns,
                            float *to, int64_t to_stride)
{
    for (int i = 0; i < rows; i += LANES) {
        for (int j = 0; j < columns; j += LANES) {
            vf x[LANES];
            UNROLL
            for (int r = 0; r < LANES; r++)
                x[r] = vf_load(from + (i + r) * from_stride + j);
            vf_transpose8(x);
            UNROLL
            for (int r = 0; r < LANES; r++)
                vf_store(to + (j + r) * to_stride + i, x[r]);
        }
    }
}

/* 8 lanes of softmax(): half a panel. */
INLINE void softmax_half(float *scores, int n, const ta_panel_mask *mask, int half,
                         ta_panel_partial *partial)
{
    const vf low = vf_set(-INFINITY);
    vf before = vf_load(partial->m + half), after = before, sum = vf_zero();
    vf first = mask ? vf_load(mask->first + half) : low,
       end = mask ? vf_load(mask->end + half) : low;
    for (int i = 0; i < n; i++) {
        vf s = vf_load(scores + i * PANEL + half);
        if (mask) {
            s = vf_if_less(vf_set((float)i), end, s, low);
            s = vf_if_less(vf_set((float)i), first, low, s);
            vf_store(scores + i * PANEL + half, s);
        }
        after = vf_max(s, after);
    }
    vf start = vf_if_less(low, after, after, vf_zero()); /* the difference of two -inf is NaN */
    for (int i = 0; i < n; i++) {
        vf s = vf_load(scores + i * PANEL + half);
        vf weight = exp2_negative(vf_sub(s, start));
        sum = vf_add(sum, weight);
        if (mask) {
            weight = vf_if_less(vf_set((float)i), end, weight, vf_set(-0.0f));
            weight = vf_if_less(vf_set((float)i), first, vf_set(-0.0f), weight);
        }
        vf_store(scores + i * PANEL + half, weight);
    }
    vf rescale = exp2_negative(vf_sub(before, start));
    vf_store(partial->rescale + half, rescale);
    vf_store(partial->l + half, vf_fma(vf_load(partial->l + half), rescale, sum));
    vf_store(partial->m + half, after);
}

static void panel_softmax(float *scores, int n, const ta_panel_mask *mask,
                          ta_panel_partial *partial)
{
    for (int half = 0; half < PANEL; half += LANES) {
        if (mask)
            softmax_half(scores, n, mask, half, partial);
        else
            softmax_half(scores, n, NULL, half, partial);
    }
}

INLINE void gradient_row(float *scores, float *products, float lse, float delta, vf cap, int capped)
{
    UNROLL
    for (int half = 0; half < PANEL; half += LANES) {
        vf t = vf_load(scores + half), s = capped ? vf_mul(t, cap) : t;
        vf p = exp2_negative(vf_sub(s, vf_set(lse)));
        vf ds = vf_mul(p, vf_sub(vf_load(products + half), vf_set(delta)));
        if (capped)
            ds = vf_mul(ds, vf_sub(vf_set(1.0f), vf_mul(t, t)));
        vf_store(scores + half, p);
        vf_store(products + half, ds);
    }
}

static void panel_gradient(float *scores, float *products, int n, const float *lse,
                           const float *delta, const float *first, const float *end, float cap)
{
    for (int i = 0; i < n; i++, scores += PANEL, products += PANEL) {
        if (cap > 0.0f)
            gradient_row(scores, products, lse[i], delta[i], vf_set(cap), 1);
        else
            gradient_row(scores, products, lse[i], delta[i], vf_set(cap), 0);
        if (first[i] <= 0.0f && end[i] >= (float)PANEL)
            continue;
        for (int j = 0; j < PANEL; j++) {
            if ((float)j < first[i] || (float)j >= end[i])
                scores[j] = products[j] = -0.0f;
        }
    }
}

static const ta_panel_kernels simd_panels = {
    .rows = PANEL_ROWS,
    .dots = panel_dots,
#ifdef SIMD_DOTS
    .dots_bf16 = panel_dots_bf16,
#endif
    .sums = panel_sums,
    .transpose = panel_transpose,
    .softmax = panel_softmax,
    .gradient = panel_gradient,
};
