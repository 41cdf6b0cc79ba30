/* The functions of panel.h over vectors of 8 floats. Included after attend_simd.h by the file of a
 * SIMD level, whose operations it uses; see kernels_avx2.c. */
#include "panel.h"

#define PANEL TA_PANEL_LANES

/* Rows of the block of sums, which has two vectors of each, beside two vectors of a panel and a
 * number. */
#define PANEL_ROWS (SIMD_REGISTERS == 32 ? 8 : 6)

/* sum + x · y, or the products of both elements of a pair. */
INLINE vf panel_multiply(int pairs, vf x, vf y, vf sum)
{
#ifdef SIMD_DOTS
    if (pairs)
        return vf_add_dots(sum, (vd)x, (vd)y);
#endif
    (void)pairs;
    return vf_fma(x, y, sum);
}

/* The product that all time is spent in: c[i][j] = Σ_k a[k·a_k + i·a_i] · b[k][j], for a block of
 * sums in registers. One of a_k and a_i is 1, a constant after inlining. */
INLINE void multiply_block(int pairs, const float *a, int64_t a_k, int64_t a_i, const float *b,
                           int n, vf *c)
{
    UNROLL
    for (int i = 0; i < 2 * PANEL_ROWS; i++)
        c[i] = vf_zero();
    for (int k = 0; k < n; k++) {
        vf b0 = vf_load(b), b1 = vf_load(b + LANES);
        UNROLL
        for (int i = 0; i < PANEL_ROWS; i++) {
            vf x = vf_load_all(a + i * a_i);
            c[2 * i] = panel_multiply(pairs, x, b0, c[2 * i]);
            c[2 * i + 1] = panel_multiply(pairs, x, b1, c[2 * i + 1]);
        }
        a += a_k;
        b += PANEL;
    }
}

static void panel_dots(const float *tile, int64_t stride, int n, int dim, const float *panel,
                       float *to)
{
    for (int i = 0; i < n; i += PANEL_ROWS) {
        vf c[2 * PANEL_ROWS];
        multiply_block(0, tile + i * stride, 1, stride, panel, dim, c);
        UNROLL
        for (int v = 0; v < 2 * PANEL_ROWS; v++)
            vf_store(to + i * PANEL + v * LANES, c[v]);
    }
}

static void panel_sums(const float *tile, int64_t stride, int n, int dim, const float *weights,
                       const float *rescale, float *to)
{
    vf scale[2] = {vf_set(1.0f), vf_set(1.0f)};
    if (rescale) {
        scale[0] = vf_load(rescale);
        scale[1] = vf_load(rescale + LANES);
    }
    for (int d = 0; d < dim; d += PANEL_ROWS) {
        vf c[2 * PANEL_ROWS];
        multiply_block(0, tile + d, stride, 1, weights, n, c);
        UNROLL
        for (int v = 0; v < 2 * PANEL_ROWS; v++) {
            float *sums = to + d * PANEL + v * LANES;
            vf_store(sums, vf_fma(vf_load(sums), scale[v % 2], c[v]));
        }
    }
}

#ifdef SIMD_DOTS
static void panel_dots_bf16(const float *tile, int64_t stride, int n, int dim, const float *panel,
                            float factor, float *to)
{
    for (int i = 0; i < n; i += PANEL_ROWS) {
        vf c[2 * PANEL_ROWS];
        multiply_block(1, tile + i * stride, 1, stride, panel, dim, c);
        UNROLL
        for (int v = 0; v < 2 * PANEL_ROWS; v++)
            vf_store(to + i * PANEL + v * LANES, vf_mul(c[v], vf_set(factor)));
    }
}
#endif

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
