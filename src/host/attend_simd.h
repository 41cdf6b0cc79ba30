/* The kernels of kernels.h over vectors of 8 floats. A SIMD level is a file that defines the type `vf`, the
 * operations used here and TA_SIMD_NAME, includes this header and exports the table it ends with; see
 * kernels_avx2.c, whose operations say what each must do. Head dimensions are multiples of 8, so only
 * token counts have tails.
 *
 * Functions that are inlined take the element type and the shape of a register block as constants; loops
 * over a block disappear. */
#include <math.h>

#include "../device.h"
#include "../dtype.h"
#include "../partial.h"
#include "kernels.h"

#define INLINE static inline __attribute__((always_inline))
#if defined(__clang__)
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif

#define LANES 8

/* 8 elements of any type. */
INLINE vf load8(ta_dtype dtype, const void *data, int64_t index)
{
    switch (dtype) {
    case TA_F32:
        return vf_load((const float *)data + index);
    case TA_F16:
        return vf_load_f16((const uint16_t *)data + index);
    default:
        return vf_load_bf16((const uint16_t *)data + index);
    }
}

INLINE void store8(ta_dtype dtype, void *data, int64_t index, vf value)
{
    switch (dtype) {
    case TA_F32:
        vf_store((float *)data + index, value);
        break;
    case TA_F16:
        vf_store_f16((uint16_t *)data + index, value);
        break;
    default:
        for (int i = 0; i < LANES; i++) {
            float lanes[LANES];
            vf_store(lanes, value);
            ((uint16_t *)data)[index + i] = ta_f32_to_bf16(lanes[i]);
        }
        break;
    }
}

INLINE void load_any(ta_dtype dtype, const void *from, int32_t n, float factor, float *to)
{
    for (int32_t i = 0; i < n; i += LANES)
        vf_store(to + i, vf_mul(load8(dtype, from, i), vf_set(factor)));
}

INLINE void store_any(ta_dtype dtype, const float *from, int32_t n, float factor, void *to)
{
    for (int32_t i = 0; i < n; i += LANES)
        store8(dtype, to, i, vf_mul(vf_load(from + i), vf_set(factor)));
}

/* ---- Scores -------------------------------------------------------------------------------- */

/* `rows` query rows against `tokens` keys, 8 products at a time: at most 8 sums. Writes 8 scores, the last of
 * which mean nothing if there are fewer sums. */
INLINE void score_block(ta_dtype dtype, int rows, int tokens, const float *q, int64_t q_stride,
                        const void *const *k, int32_t k_dim, float *scores)
{
    vf sums[8];
    UNROLL for (int i = 0; i < 8; i++) sums[i] = vf_zero();
    for (int32_t i = 0; i < k_dim; i += LANES) {
        vf query[TA_ROW_BLOCK];
        UNROLL for (int r = 0; r < rows; r++) query[r] = vf_load(q + r * q_stride + i);
        UNROLL for (int t = 0; t < tokens; t++)
        {
            vf key = load8(dtype, k[t], i);
            UNROLL for (int r = 0; r < rows; r++) sums[t * rows + r] =
                vf_fma(query[r], key, sums[t * rows + r]);
        }
    }
    vf_store(scores, vf_sum8(sums));
}

INLINE void score_any(ta_dtype dtype, const float *q, int64_t q_stride, int rows,
                      const void *const *k, int n, int32_t k_dim, float *scores)
{
    int t = 0;
    if (rows == TA_ROW_BLOCK) {
        for (; t + 2 <= n; t += 2)
            score_block(dtype, TA_ROW_BLOCK, 2, q, q_stride, k + t, k_dim,
                        scores + t * TA_ROW_BLOCK);
        if (t < n)
            score_block(dtype, TA_ROW_BLOCK, 1, q, q_stride, k + t, k_dim,
                        scores + t * TA_ROW_BLOCK);
    } else {
        for (; t + 8 <= n; t += 8)
            score_block(dtype, 1, 8, q, q_stride, k + t, k_dim, scores + t);
        for (; t < n; t++)
            score_block(dtype, 1, 1, q, q_stride, k + t, k_dim, scores + t);
    }
}

/* ---- Weights ------------------------------------------------------------------------------- */

/* 2^x for x ≤ 0, to within 1 unit in the last place; 0 below -126.5; a NaN stays one. 2^0 is exactly 1. */
INLINE vf exp2_negative(vf x)
{
    x = vf_max(vf_set(-127.0f), x);
    vf whole = vf_round(x);
    vf f = vf_sub(x, whole); /* from -1/2 to 1/2 */
    /* Minimax polynomial for (2^f - 1) / f with the relative error of 2^f in mind: 2e-9. */
    vf p = vf_set(0x1.41fbbcp-13f);
    p = vf_fma(p, f, vf_set(0x1.5f3e52p-10f));
    p = vf_fma(p, f, vf_set(0x1.3b2d4cp-7f));
    p = vf_fma(p, f, vf_set(0x1.c6aee8p-5f));
    p = vf_fma(p, f, vf_set(0x1.ebfbdcp-3f));
    p = vf_fma(p, f, vf_set(0x1.62e430p-1f));
    p = vf_fma(p, f, vf_set(1.0f));
    return vf_mul(p, vf_power_of_2(whole));
}

/* tanh to within 2 units in the last place; a NaN stays one. */
INLINE vf tanh_any(vf x)
{
    vf magnitude = vf_abs(x);
    /* tanh|x| = (1 - e) / (1 + e) with e = exp(-2|x|); near 0 it cancels and a polynomial is better. */
    vf e = exp2_negative(vf_mul(magnitude, vf_set(-2.0f * TA_LOG2E)));
    vf far = vf_div(vf_sub(vf_set(1.0f), e), vf_add(vf_set(1.0f), e));
    /* Minimax polynomial in x² for (tanh(x) / x - 1) / x², up to 0.55: 1e-9. */
    vf u = vf_mul(x, x);
    vf p = vf_set(-0.00627423963f);
    p = vf_fma(p, u, vf_set(0.0210716799f));
    p = vf_fma(p, u, vf_set(-0.0538523085f));
    p = vf_fma(p, u, vf_set(0.13332586f));
    p = vf_fma(p, u, vf_set(-0.333333164f));
    vf near = vf_fma(vf_mul(x, u), p, x);
    return vf_if_less(magnitude, vf_set(0.55f), near, vf_copysign(far, x));
}

static void softcap(float *scores, int n, float cap)
{
    for (int i = 0; i < n; i += LANES)
        vf_store(scores + i, vf_mul(tanh_any(vf_load(scores + i)), vf_set(cap)));
}

/* For `rows` rows at once: lane i of a vector belongs to row i % rows. */
INLINE int softmax_any(int rows, float *scores, int n, float *m, float *l, float *rescale,
                       uint64_t *hidden)
{
    int count = n * rows;
    unsigned low = 0; /* is a score -inf or NaN? */
    vf before = vf_load_rows(m, rows), after = before;
    for (int i = count; i % LANES != 0; i++)
        scores[i] = -INFINITY;
    for (int i = 0; i < count; i += LANES) {
        unsigned counted = count - i < LANES ? (1u << (count - i)) - 1 : ~0u;
        vf s = vf_load(scores + i);
        after = vf_max(s, after); /* if the row is NaN already, it stays so */
        low |= vf_low_bits(s) & counted;
    }
    if (low) /* rare, and it matters which */
        return ta_kernels_scalar.softmax(scores, n, rows, m, l, rescale, hidden);
    after = vf_max_rows(after, rows);
    vf sum = vf_zero();
    for (int i = 0; i < count; i += LANES) {
        vf weight = exp2_negative(vf_sub(vf_load(scores + i), after));
        vf_store(scores + i, weight);
        sum = vf_add(sum, weight);
    }
    vf scale = exp2_negative(vf_sub(before, after));
    vf_store_rows(rescale, rows, scale);
    vf_store_rows(l, rows, vf_fma(vf_load_rows(l, rows), scale, vf_sum_rows(sum, rows)));
    vf_store_rows(m, rows, after);
    return 0;
}

static int softmax(float *scores, int n, int rows, float *m, float *l, float *rescale,
                   uint64_t *hidden)
{
    return rows == 1 ? softmax_any(1, scores, n, m, l, rescale, hidden)
                     : softmax_any(TA_ROW_BLOCK, scores, n, m, l, rescale, hidden);
}

/* ---- Values -------------------------------------------------------------------------------- */

/* Tokens whose values are read at a time, dimension by dimension. Few, so that memory is still read almost in
 * its own order, and the sums of a chunk do not have to be fetched and put back too often. */
#define CHUNK1 4
#define CHUNK4 8

/* Add `vectors` times 8 numbers of the values of n tokens, weighed for `rows` rows, to the rows' sums. */
INLINE void weigh_block(ta_dtype dtype, int rows, int vectors, float *sums, const float *weights,
                        const void *const *v, int n, int32_t at)
{
    vf part[8];
    UNROLL for (int r = 0; r < rows; r++)
    {
        UNROLL for (int i = 0; i < vectors; i++) part[r * vectors + i] =
            vf_load(sums + r * TA_MAX_DIM + at + i * LANES);
    }
    for (int t = 0; t < n; t++) {
        vf value[8];
        UNROLL for (int i = 0; i < vectors; i++) value[i] = load8(dtype, v[t], at + i * LANES);
        UNROLL for (int r = 0; r < rows; r++)
        {
            vf weight = vf_set(weights[t * rows + r]);
            UNROLL for (int i = 0; i < vectors; i++) part[r * vectors + i] =
                vf_fma(weight, value[i], part[r * vectors + i]);
        }
    }
    UNROLL for (int r = 0; r < rows; r++)
    {
        UNROLL for (int i = 0; i < vectors; i++)
            vf_store(sums + r * TA_MAX_DIM + at + i * LANES, part[r * vectors + i]);
    }
}

INLINE void weigh_chunk(ta_dtype dtype, int rows, float *sums, const float *weights,
                        const void *const *v, int n, int32_t v_dim)
{
    int32_t at = 0;
    if (rows == TA_ROW_BLOCK) {
        for (; at + 2 * LANES <= v_dim; at += 2 * LANES)
            weigh_block(dtype, TA_ROW_BLOCK, 2, sums, weights, v, n, at);
        for (; at < v_dim; at += LANES)
            weigh_block(dtype, TA_ROW_BLOCK, 1, sums, weights, v, n, at);
    } else {
        for (; at + 8 * LANES <= v_dim; at += 8 * LANES)
            weigh_block(dtype, 1, 8, sums, weights, v, n, at);
        for (; at < v_dim; at += LANES)
            weigh_block(dtype, 1, 1, sums, weights, v, n, at);
    }
}

INLINE void weigh_tile(ta_dtype dtype, int rows, int chunk, float *o, int64_t o_stride,
                       const float *rescale, const float *weights, const void *const *v, int n,
                       int32_t v_dim)
{
    float sums[TA_ROW_BLOCK * TA_MAX_DIM];
    UNROLL for (int r = 0; r < rows; r++)
    {
        for (int32_t i = 0; i < v_dim; i += LANES)
            vf_store(sums + r * TA_MAX_DIM + i, vf_zero());
    }
    int t = 0;
    for (; t + chunk <= n; t += chunk)
        weigh_chunk(dtype, rows, sums, weights + t * rows, v + t, chunk, v_dim);
    if (t < n)
        weigh_chunk(dtype, rows, sums, weights + t * rows, v + t, n - t, v_dim);
    UNROLL for (int r = 0; r < rows; r++)
    {
        for (int32_t i = 0; i < v_dim; i += LANES) {
            float *to = o + r * o_stride + i;
            vf_store(to,
                     vf_fma(vf_load(to), vf_set(rescale[r]), vf_load(sums + r * TA_MAX_DIM + i)));
        }
    }
}

INLINE void weigh_any(ta_dtype dtype, float *o, int64_t o_stride, int rows, const float *rescale,
                      const float *weights, const void *const *v, int n, int32_t v_dim)
{
    if (rows == TA_ROW_BLOCK)
        weigh_tile(dtype, TA_ROW_BLOCK, CHUNK4, o, o_stride, rescale, weights, v, n, v_dim);
    else
        weigh_tile(dtype, 1, CHUNK1, o, o_stride, rescale, weights, v, n, v_dim);
}

/* ---- Merge --------------------------------------------------------------------------------- */

/* The same operations as ta_merge_add(), whose condition is the same for the whole record. */
static void merge(float *into, const float *from, int32_t v_dim)
{
    ta_merge_scales s = ta_merge_scale(into[v_dim], from[v_dim]);
    vf a = vf_set(s.a), b = vf_set(s.b);
    if (s.a == 1.0f) {
        for (int32_t i = 0; i < v_dim; i += LANES)
            vf_store(into + i, vf_fma(vf_load(from + i), b, vf_load(into + i)));
    } else {
        for (int32_t i = 0; i < v_dim; i += LANES)
            vf_store(into + i, vf_fma(vf_load(into + i), a, vf_mul(vf_load(from + i), b)));
    }
    into[v_dim] = s.m;
    into[v_dim + 1] = ta_merge_add(into[v_dim + 1], from[v_dim + 1], s);
}

/* ---- The table ----------------------------------------------------------------------------- */

#define FOR_DTYPE(suffix, dtype)                                                                   \
    static void load_##suffix(const void *from, int32_t n, float factor, float *to)                \
    {                                                                                              \
        load_any(dtype, from, n, factor, to);                                                      \
    }                                                                                              \
    static void store_##suffix(const float *from, int32_t n, float factor, void *to)               \
    {                                                                                              \
        store_any(dtype, from, n, factor, to);                                                     \
    }                                                                                              \
    static void score_##suffix(const float *q, int64_t q_stride, int rows, const void *const *k,   \
                               int n, int32_t k_dim, float *scores)                                \
    {                                                                                              \
        score_any(dtype, q, q_stride, rows, k, n, k_dim, scores);                                  \
    }                                                                                              \
    static void weigh_##suffix(float *o, int64_t o_stride, int rows, const float *rescale,         \
                               const float *weights, const void *const *v, int n, int32_t v_dim)   \
    {                                                                                              \
        weigh_any(dtype, o, o_stride, rows, rescale, weights, v, n, v_dim);                        \
    }
FOR_DTYPE(f32, TA_F32)
FOR_DTYPE(f16, TA_F16)
FOR_DTYPE(bf16, TA_BF16)

#define TA_SIMD_TABLE                                                                              \
    {                                                                                              \
        .name = TA_SIMD_NAME,                                                                      \
        .load = {[TA_F32] = load_f32, [TA_F16] = load_f16, [TA_BF16] = load_bf16},                 \
        .store = {[TA_F32] = store_f32, [TA_F16] = store_f16, [TA_BF16] = store_bf16},             \
        .score = {[TA_F32] = score_f32, [TA_F16] = score_f16, [TA_BF16] = score_bf16},             \
        .softcap = softcap, .softmax = softmax,                                                    \
        .weigh = {[TA_F32] = weigh_f32, [TA_F16] = weigh_f16, [TA_BF16] = weigh_bf16},             \
        .merge = merge,                                                                            \
    }
