/* The kernels of kernels.h over vectors of 8 floats. A SIMD level is a file that defines the type
 * `vf` and the operations used here, includes this header and exports a table; see kernels_avx2.c,
 * whose operations say what each must do. Head dimensions are multiples of 8, so only token counts
 * have tails.
 *
 * K and V are read 16 elements at a time, a pair of vectors. Which elements are in which vector of
 * a pair is up to the type, see EVEN_ODD: bf16 is widened with the fewest operations as the even
 * and the odd elements. arrange() puts a query row into the same order, and finish_row() puts sums
 * over V back.
 *
 * Functions that are inlined take the element type and the shape of a register block as constants;
 * loops over a block disappear. */
#include <math.h>

#include "base/dtype.h"
#include "base/partial.h"
#include "device/device.h"
#include "host/kernels.h"
#include "walk.h"

#define INLINE static inline __attribute__((always_inline))
#if defined(__clang__)
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 24")
#endif

#define LANES 8

/* Vector registers of the level, and how many keys meet a block of query rows at a time: sums,
 * keys and a query are in registers. */
#ifndef SIMD_REGISTERS
#define SIMD_REGISTERS 16
#endif
#define SCORE_TOKENS (SIMD_REGISTERS == 32 ? 4 : 3)
#define SCORE_TOKENS_MANY 3 /* with the most rows */
#define SCORE_SUMS (SIMD_REGISTERS == 32 ? SCORE_TOKENS_MANY * TA_ROWS_MOST : 12)
#define PAIR (2 * LANES)

/* Sums of values that are kept in registers, beside values and a weight. */
#define WEIGH_SUMS (SIMD_REGISTERS == 32 ? 16 : 8)

/* The most rows of a block. */
#define SIMD_ROWS (SIMD_REGISTERS == 32 ? TA_ROWS_MOST : TA_ROW_BLOCK)

/* ---- Elements ------------------------------------------------------------------------------ */

/* 8 elements in their own order; of a type that is not narrow. */
INLINE vf load8(ta_dtype dtype, const void *data, int64_t index)
{
    switch (dtype) {
    default:
        break;
    case TA_F32:
        return vf_load((const float *)data + index);
    case TA_F16:
        return vf_load_f16((const uint16_t *)data + index);
    case TA_BF16:
        return vf_load_bf16((const uint16_t *)data + index);
    }
    return vf_set(NAN);
}

INLINE void store8(ta_dtype dtype, void *data, int64_t index, vf x)
{
    switch (dtype) {
    default:
        break;
    case TA_F32:
        vf_store((float *)data + index, x);
        break;
    case TA_F16:
        vf_store_f16((uint16_t *)data + index, x);
        break;
    case TA_BF16:
        vf_store_bf16((uint16_t *)data + index, x);
        break;
    }
}

/* Are the vectors of a pair its even and its odd elements, not its first and its last ones? */
#define EVEN_ODD(dtype) ((dtype) == TA_BF16)

/* Vector `half` of the pair that starts at `index`. */
INLINE vf load_half(ta_dtype dtype, const void *data, int64_t index, int half)
{
    if (EVEN_ODD(dtype))
        return half ? vf_load_bf16_odd((const uint16_t *)data + index)
                    : vf_load_bf16_even((const uint16_t *)data + index);
    return load8(dtype, data, index + half * LANES);
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

/* Each 16 numbers as they are, or the even ones and then the odd ones. */
INLINE void arrange_any(ta_dtype dtype, float *q, int32_t k_dim)
{
    for (int32_t i = 0; EVEN_ODD(dtype) && i + PAIR <= k_dim; i += PAIR) {
        float pair[PAIR];
        for (int j = 0; j < PAIR; j++)
            pair[j % 2 * LANES + j / 2] = q[i + j];
        for (int j = 0; j < PAIR; j++)
            q[i + j] = pair[j];
    }
}

#include "score_simd.h"
#include "weigh_simd.h"
#include "widen_simd.h"

/* ---- Weights ------------------------------------------------------------------------------- */

/* 2^f for f from -1/2 to 1/2, the highest power first: 1 and f times the minimax polynomial for
 * (2^f - 1) / f with the relative error of 2^f in mind, 2e-9. */
static const float exp2_polynomial[] = {0x1.41fbbcp-13f,
                                        0x1.5f3e52p-10f,
                                        0x1.3b2d4cp-7f,
                                        0x1.c6aee8p-5f,
                                        0x1.ebfbdcp-3f,
                                        0x1.62e430p-1f,
                                        1.0f};
#define EXP2_POLYNOMIAL ((int)(sizeof exp2_polynomial / sizeof *exp2_polynomial))

/* 2^x for x ≤ 0, to within 1 unit in the last place; 0 below -126.5; a NaN stays one. 2^0 is
 * exactly 1. */
INLINE vf exp2_negative(vf x)
{
    /* Adding 1.5·2^23 rounds to an integer, which is then in the low bits; another 127 makes it the
     * exponent of a float. */
    const vf rounder = vf_set(0x1.8p23f + 127.0f);
    x = vf_max(vf_set(-127.0f), x);
    vf shifted = vf_add(x, rounder);
    vf f = vf_sub(x, vf_sub(shifted, rounder)); /* from -1/2 to 1/2 */
    vf p = vf_set(exp2_polynomial[0]);
    UNROLL
    for (int i = 1; i < EXP2_POLYNOMIAL; i++)
        p = vf_fma(p, f, vf_set(exp2_polynomial[i]));
    return vf_mul(p, vf_low_bits_as_exponent(shifted));
}

/* tanh to within 2 units in the last place; a NaN stays one. */
INLINE vf tanh_any(vf x)
{
    vf magnitude = vf_abs(x);
    /* tanh|x| = (1 - e) / (1 + e) with e = exp(-2|x|); near 0 it cancels and a polynomial is
     * better. */
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
                       ta_token_set *hidden)
{
    int count = n * rows, whole = count / LANES * LANES;
    vf before = vf_load_rows(m, rows), after = before;
    vf any_low = vf_zero(); /* is a score -inf or NaN? */
    for (int i = 0; i < whole; i += LANES) {
        vf s = vf_load(scores + i);
        after = vf_max(s, after); /* if the row is NaN already, it stays so */
        any_low = vf_or(any_low, vf_low(s));
    }
    unsigned low = vf_bits(any_low);
    if (whole < count) {
        for (int i = count; i < whole + LANES; i++)
            scores[i] = -INFINITY;
        vf s = vf_load(scores + whole);
        after = vf_max(s, after);
        low |= vf_bits(vf_low(s)) & ((1u << (count - whole)) - 1);
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
                   ta_token_set *hidden)
{
    return rows == 1              ? softmax_any(1, scores, n, m, l, rescale, hidden)
           : rows == TA_ROW_BLOCK ? softmax_any(TA_ROW_BLOCK, scores, n, m, l, rescale, hidden)
                                  : softmax_any(SIMD_ROWS, scores, n, m, l, rescale, hidden);
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

/* Two vectors at a time, each with one record after the other. */
INLINE void merge_chain_vectors(int vectors, const ta_merge_chain *c, float factor, float *to,
                                int32_t at)
{
    vf sums[2];
    UNROLL
    for (int i = 0; i < vectors; i++)
        sums[i] = vf_load(c->first + at + i * LANES);
    for (int k = 0; k < c->count; k++) {
        const float *from = c->others + k * c->stride + at;
        vf a = vf_set(c->scales[k].a), b = vf_set(c->scales[k].b);
        int alone = c->scales[k].a == 1.0f; /* as in merge() */
        UNROLL
        for (int i = 0; i < vectors; i++) {
            vf other = vf_load(from + i * LANES);
            sums[i] = alone ? vf_fma(other, b, sums[i]) : vf_fma(sums[i], a, vf_mul(other, b));
        }
    }
    UNROLL
    for (int i = 0; i < vectors; i++)
        vf_store(to + at + i * LANES, vf_mul(sums[i], vf_set(factor)));
}

INLINE void merge_chain(const ta_merge_chain *chain, int32_t v_dim, float factor, float *to)
{
    int32_t at = 0;
    for (; at + PAIR <= v_dim; at += PAIR)
        merge_chain_vectors(2, chain, factor, to, at);
    if (at < v_dim)
        merge_chain_vectors(1, chain, factor, to, at);
}

/* ---- The table ----------------------------------------------------------------------------- */

#define FOR_DTYPE(suffix, dtype, ...)                                                              \
    static void load_##suffix(const void *from, int32_t n, float factor, float *to)                \
    {                                                                                              \
        SIMD_LOAD(dtype, from, n, factor, to);                                                     \
    }                                                                                              \
    static void store_##suffix(const float *from, int32_t n, float factor, void *to)               \
    {                                                                                              \
        store_any(dtype, from, n, factor, to);                                                     \
    }                                                                                              \
    static void arrange_##suffix(float *q, int32_t k_dim)                                          \
    {                                                                                              \
        arrange_any(dtype, q, k_dim);                                                              \
    }                                                                                              \
    static void score_##suffix(const ta_block *block, const float *q)                              \
    {                                                                                              \
        SIMD_SCORE(dtype, block, q);                                                               \
    }                                                                                              \
    static void weigh_##suffix(const ta_block *block, float *o, const float *rescale)              \
    {                                                                                              \
        SIMD_WEIGH(dtype, block, o, rescale);                                                      \
    }

/* To types of 8 bits: the scalar conversion, of which compilers make vectors of the level. */
INLINE void store_narrow(ta_dtype dtype, const float *from, int32_t n, float factor, void *to)
{
    const ta_narrow_format format = ta_narrow_format_of(dtype);
    for (int32_t i = 0; i < n; i++)
        ((uint8_t *)to)[i] = (uint8_t)ta_narrow_encode(format, ta_float_bits(from[i] * factor));
}

#define FOR_NARROW(suffix, dtype, ...)                                                             \
    static void load_##suffix(const void *from, int32_t n, float factor, float *to)                \
    {                                                                                              \
        ta_kernels_scalar.load[dtype](from, n, factor, to);                                        \
    }                                                                                              \
    static void store_##suffix(const float *from, int32_t n, float factor, void *to)               \
    {                                                                                              \
        store_narrow(dtype, from, n, factor, to);                                                  \
    }                                                                                              \
    static void widen_##suffix(const void *from, int32_t n, uint16_t *to)                          \
    {                                                                                              \
        SIMD_WIDEN(dtype, from, n, to);                                                            \
    }

/* A level that has better versions defines these. */
#ifndef SIMD_WEIGH
#define SIMD_SCORE score_any
#define SIMD_WEIGH weigh_any
#define SIMD_SOFTMAX softmax
#define SIMD_WIDEN widen_any
#define SIMD_LOAD load_any
#define SIMD_MERGE_CHAIN merge_chain
#endif
#ifndef SIMD_NARROW_ROW
#define SIMD_NARROW_ROW(...)
#define SIMD_READS_NARROW NULL
#endif
#ifndef SIMD_PACK
#define SIMD_PACK NULL
#define SIMD_SCORE_PACKED NULL
#endif

#define SIMD_SLOTS(name)                                                                           \
    {                                                                                              \
        TA_DTYPE_WIDE_LIST(TA_DTYPE_SLOT, name) SIMD_NARROW_ROW(TA_DTYPE_SLOT, name)               \
    }

#define TA_SIMD_TABLE(level)                                                                       \
    {                                                                                              \
        .name = level, .rows_most = SIMD_ROWS, .load = {TA_DTYPE_LIST(TA_DTYPE_SLOT, load_)},      \
        .store = {TA_DTYPE_LIST(TA_DTYPE_SLOT, store_)},                                           \
        .widen = {TA_DTYPE_NARROW_LIST(TA_DTYPE_SLOT, widen_)}, .reads_narrow = SIMD_READS_NARROW, \
        .arrange = SIMD_SLOTS(arrange_), .score = SIMD_SLOTS(score_), .softcap = softcap,          \
        .softmax = SIMD_SOFTMAX, .weigh = SIMD_SLOTS(weigh_), .pack = {SIMD_PACK},                 \
        .score_packed = {SIMD_SCORE_PACKED}, .merge = merge, .merge_chain = SIMD_MERGE_CHAIN,      \
        .panels = &simd_panels,                                                                    \
    }
