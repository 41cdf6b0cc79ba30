/* The kernels of kernels.h over vectors of 8 floats. A SIMD level is a file that defines the type
 * `vf` and the operations used here, includes this header and exports a table; see kernels_avx2.c,
 * whose operations say what each must do. Head dimensions are multiples of 8, so only token counts
 * have tails.
 *
 * K and V are read 16 elements at a time, a pair of vectors. Which elements are in which vector of
 * a pair is up to the level: bf16 is widened with the fewest operations as the even and the odd
 * elements. arrange() puts a query row into the same order, and finish_sums() puts sums over V
 * back.
 *
 * Functions that are inlined take the element type and the shape of a register block as constants;
 * loops over a block disappear. */
#include <math.h>

#include "../device.h"
#include "../dtype.h"
#include "../partial.h"
#include "kernels.h"
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
#define PAIR (2 * LANES)

/* Sums of values that are kept in registers, beside values and a weight. */
#define WEIGH_SUMS (SIMD_REGISTERS == 32 ? 16 : 8)

/* ---- Elements ------------------------------------------------------------------------------ */

/* 8 elements in their own order. */
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

/* Vector `half` of the pair that starts at `index`. */
INLINE vf load_half(ta_dtype dtype, const void *data, int64_t index, int half)
{
    if (dtype == TA_BF16)
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
    for (int32_t i = 0; i < n; i += LANES) {
        vf x = vf_mul(vf_load(from + i), vf_set(factor));
        if (dtype == TA_F32)
            vf_store((float *)to + i, x);
        else if (dtype == TA_F16)
            vf_store_f16((uint16_t *)to + i, x);
        else
            vf_store_bf16((uint16_t *)to + i, x);
    }
}

static void arrange_as_is(float *q, int32_t k_dim)
{
    (void)q;
    (void)k_dim;
}

/* Each 16 numbers: the even ones, then the odd ones. */
static void arrange_even_odd(float *q, int32_t k_dim)
{
    for (int32_t i = 0; i + PAIR <= k_dim; i += PAIR) {
        float pair[PAIR];
        for (int j = 0; j < PAIR; j++)
            pair[j % 2 * LANES + j / 2] = q[i + j];
        for (int j = 0; j < PAIR; j++)
            q[i + j] = pair[j];
    }
}

/* ---- Scores -------------------------------------------------------------------------------- */

/* Beside the element types: K in bf16 for packed query rows, of levels that define SIMD_DOTS. */
#define PACKED ((ta_dtype)TA_DTYPES)

INLINE int key_bytes(ta_dtype dtype)
{
    return (int)ta_dtype_bytes(dtype == PACKED ? TA_BF16 : dtype);
}

/* Add 8 products for each of `rows` query rows and `tokens` keys. */
INLINE void score_step(int rows, int tokens, const float *q, int64_t q_stride, const vf *key,
                       vf *sums)
{
    UNROLL
    for (int r = 0; r < rows; r++) {
        vf query = vf_load(q + r * q_stride);
        UNROLL
        for (int t = 0; t < tokens; t++)
            sums[t * rows + r] = vf_fma(query, key[t], sums[t * rows + r]);
    }
}

/* The same for `count` products at once, 16 or 8, from dimension i on. */
INLINE void score_dots(int rows, int tokens, int count, const float *q, int64_t q_stride,
                       const char *const *from, int32_t i, vf *sums)
{
#ifdef SIMD_DOTS
    vd key[4];
    UNROLL
    for (int t = 0; t < tokens; t++)
        key[t] = vd_load(from[t], i, count);
    UNROLL
    for (int r = 0; r < rows; r++) {
        vd query = vd_load(q + r * q_stride, i, count);
        UNROLL
        for (int t = 0; t < tokens; t++)
            sums[t * rows + r] = vf_add_dots(sums[t * rows + r], query, key[t]);
    }
#else
    (void)rows, (void)tokens, (void)count, (void)q, (void)q_stride, (void)from, (void)i, (void)sums;
#endif
}

/* The products of the dimensions from i on: 16, or the last 8. */
INLINE void score_dims(ta_dtype dtype, int rows, int tokens, int count, const float *q,
                       int64_t q_stride, const char *const *from, int32_t i, vf *sums)
{
    vf key[4];
    if (dtype == PACKED) {
        score_dots(rows, tokens, count, q, q_stride, from, i, sums);
        return;
    }
    UNROLL
    for (int half = 0; half < count / LANES; half++) {
        UNROLL
        for (int t = 0; t < tokens; t++)
            key[t] = count == LANES ? load8(dtype, from[t], i)
                     : dtype == TA_BF16 && half && SIMD_REGISTERS == 16
                         ? vf_load_bf16_odd_tight((const uint16_t *)(const void *)from[t] + i)
                         : load_half(dtype, from[t], i, half);
        score_step(rows, tokens, q + i + half * LANES, q_stride, key, sums);
    }
}

/* `rows` query rows against `tokens` keys from `first` on, which start `offset` bytes after those
 * of the first head. Writes scores by fours; those beyond the sums mean nothing. */
INLINE void score_tokens(ta_dtype dtype, int rows, int even, int tokens, const float *q,
                         int64_t q_stride, ta_walk *walk, int first, int64_t offset, int32_t k_dim,
                         float *scores)
{
    const int lines = (tokens * PAIR * key_bytes(dtype) + TA_LINE_BYTES - 1) / TA_LINE_BYTES;
    const int eights = rows * tokens / 8 * 8;
    const char *from[4];
    vf sums[TA_ROW_BLOCK * SCORE_TOKENS];
    UNROLL
    for (int t = 0; t < tokens; t++)
        from[t] = ta_walk_at(walk, even, first + t) + offset;
    UNROLL
    for (int i = 0; i < TA_ROW_BLOCK * SCORE_TOKENS; i++)
        sums[i] = vf_zero();
    int32_t i = 0;
    for (; i + PAIR <= k_dim; i += PAIR) {
        ta_walk_fetch(walk, even, lines);
        score_dims(dtype, rows, tokens, PAIR, q, q_stride, from, i, sums);
    }
    if (i < k_dim)
        score_dims(dtype, rows, tokens, LANES, q, q_stride, from, i, sums);
    UNROLL
    for (int s = 0; s < eights; s += 8)
        vf_store_sum8(scores + s, sums + s);
    UNROLL
    for (int s = eights; s < rows * tokens; s += 4)
        vf_store_sum4(scores + s, sums + s);
}

/* One query row against up to 4 keys, one after the other: memory is read in its own order, which
 * is what counts here. */
INLINE void score_in_order(ta_dtype dtype, int even, const float *q, ta_walk *walk, int first,
                           int tokens, int32_t k_dim, float *scores)
{
    const int key_lines = k_dim * key_bytes(dtype) / TA_LINE_BYTES;
    vf sums[4] = {vf_zero(), vf_zero(), vf_zero(), vf_zero()};
    for (int t = 0; t < tokens; t++) {
        const char *key = ta_walk_at(walk, even, first + t);
        vf half[2] = {vf_zero(), vf_zero()};
        if (!even) /* else the CPU follows by itself */
            ta_walk_fetch(walk, even, key_lines);
        int32_t i = 0;
        for (; i + PAIR <= k_dim; i += PAIR) {
            if (dtype == PACKED) {
                score_dots(1, 1, PAIR, q, 0, &key, i, half);
            } else {
                half[0] = vf_fma(vf_load(q + i), load_half(dtype, key, i, 0), half[0]);
                half[1] = vf_fma(vf_load(q + i + LANES), load_half(dtype, key, i, 1), half[1]);
            }
        }
        if (i < k_dim)
            score_dims(dtype, 1, 1, LANES, q, 0, &key, i, half);
        sums[t] = vf_add(half[0], half[1]);
    }
    vf_store_sum4(scores, sums);
}

/* The tokens [t, end) of one head, `most` at a time. */
INLINE void score_head(ta_dtype dtype, int rows, int even, int most, const ta_block *b,
                       const float *q, ta_walk *walk, int t, int end, int64_t offset, float *scores)
{
    for (; t + most <= end && (most == 4 || end - t != 4); t += most)
        score_tokens(dtype, rows, even, most, q, b->row_stride, walk, t, offset, b->dim,
                     scores + t * rows);
    for (; t + 2 <= end; t += 2)
        score_tokens(dtype, rows, even, 2, q, b->row_stride, walk, t, offset, b->dim,
                     scores + t * rows);
    if (t < end)
        score_tokens(dtype, rows, even, 1, q, b->row_stride, walk, t, offset, b->dim,
                     scores + t * rows);
}

INLINE void score_block(ta_dtype dtype, int rows, int even, ta_block b, ta_walk walk,
                        const float *q)
{
    const int most = rows == 1 ? 4 : SCORE_TOKENS;
    int n = b.tokens.n, group = rows == 1 ? 4 : ta_pass_tokens(&b, (size_t)key_bytes(dtype));
    for (int t = 0; rows == 1 && b.heads == 1 && t < n; t += 4)
        score_in_order(dtype, even, q, &walk, t, n - t < 4 ? n - t : 4, b.dim, b.scores + t);
    for (int t = 0; (rows > 1 || b.heads > 1) && t < n; t += group) {
        int end = t + group < n ? t + group : n;
        for (int h = 0; h < b.heads; h++)
            score_head(dtype, rows, even, most, &b, q + h * b.head_stride, &walk, t, end,
                       h * b.token_head_bytes, b.scores + h * TA_BLOCK_SCORES);
    }
}

INLINE void score_rows(ta_dtype dtype, int rows, const ta_block *b, const float *q)
{
    ta_walk walk = ta_walk_start(b, (size_t)key_bytes(dtype));
    if (ta_walk_is_even(&walk))
        score_block(dtype, rows, 1, *b, walk, q);
    else
        score_block(dtype, rows, 0, *b, walk, q);
}

INLINE void score_any(ta_dtype dtype, const ta_block *b, const float *q)
{
    if (b->rows == TA_ROW_BLOCK)
        score_rows(dtype, TA_ROW_BLOCK, b, q);
    else
        score_rows(dtype, 1, b, q);
}

/* ---- Weights ------------------------------------------------------------------------------- */

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
    /* Minimax polynomial for (2^f - 1) / f with the relative error of 2^f in mind: 2e-9. */
    vf p = vf_set(0x1.41fbbcp-13f);
    p = vf_fma(p, f, vf_set(0x1.5f3e52p-10f));
    p = vf_fma(p, f, vf_set(0x1.3b2d4cp-7f));
    p = vf_fma(p, f, vf_set(0x1.c6aee8p-5f));
    p = vf_fma(p, f, vf_set(0x1.ebfbdcp-3f));
    p = vf_fma(p, f, vf_set(0x1.62e430p-1f));
    p = vf_fma(p, f, vf_set(1.0f));
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
                       uint64_t *hidden)
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
                   uint64_t *hidden)
{
    return rows == 1 ? softmax_any(1, scores, n, m, l, rescale, hidden)
                     : softmax_any(TA_ROW_BLOCK, scores, n, m, l, rescale, hidden);
}

/* ---- Values -------------------------------------------------------------------------------- */

/* One pass over values: those of tokens [first, first + n) of a block, of the head that is `offset`
 * bytes after the first one. The sums of the block's `rows` rows are v_dim apart, and o is
 * row_stride apart. */
typedef struct weigh_pass {
    int first, n;
    int64_t offset;
    const float *weights;
    float *sums; /* of the tokens before, unless this is the first pass; see is_last */
    float *o;
    const float *rescale;
    int64_t row_stride;
    int32_t v_dim;
    int is_first, is_last;
} weigh_pass;

/* o = o · rescale + sums, for the vectors of one row from dimension `at` on. */
INLINE void finish_row(ta_dtype dtype, int vectors, const weigh_pass *p, int row, int32_t at,
                       vf *sums)
{
    float *o = p->o + row * p->row_stride + at;
    vf rescale = vf_set(p->rescale[row]);
    UNROLL
    for (int i = 0; i < vectors; i++) {
        if (dtype == TA_BF16 && vectors > 1 && i % 2 == 0)
            vf_interleave(&sums[i], &sums[i + 1]);
        vf_store(o + i * LANES, vf_fma(vf_load(o + i * LANES), rescale, sums[i]));
    }
}

/* The dimensions [at, at + 8·vectors) of a pass. */
INLINE void weigh_dims(ta_dtype dtype, int rows, int even, int vectors, const weigh_pass *p,
                       ta_walk *walk, int32_t at)
{
    /* Of vectors smaller than a line, one that begins a line asks for the next. */
    const int bytes = vectors * LANES * (int)ta_dtype_bytes(dtype);
    int lines = bytes >= TA_LINE_BYTES ? bytes / TA_LINE_BYTES
                                       : at * (int)ta_dtype_bytes(dtype) % TA_LINE_BYTES == 0;
    const int64_t offset = p->offset + at * (int64_t)ta_dtype_bytes(dtype);
    const float *weights = p->weights;
    vf part[WEIGH_SUMS];
    UNROLL
    for (int i = 0; i < rows * vectors; i++)
        part[i] = p->is_first
                      ? vf_zero()
                      : vf_load(p->sums + i / vectors * p->v_dim + at + i % vectors * LANES);
    for (int t = 0; t < p->n; t++) {
        const char *from = ta_walk_at(walk, even, p->first + t) + offset;
        vf value[8];
        if (rows > 1 || !even)
            ta_walk_fetch(walk, even, lines);
        if (rows > 1)
            ta_walk_fetch_near(walk, even, from);
        UNROLL
        for (int i = 0; i < vectors; i++)
            value[i] =
                vectors == 1 ? load8(dtype, from, 0) : load_half(dtype, from, i / 2 * PAIR, i % 2);
        UNROLL
        for (int r = 0; r < rows; r++) {
            vf weight = vf_load_all(weights + r);
            UNROLL
            for (int i = 0; i < vectors; i++)
                part[r * vectors + i] = vf_fma(weight, value[i], part[r * vectors + i]);
        }
        weights += rows;
    }
    UNROLL
    for (int r = 0; r < rows; r++) {
        if (p->is_last) {
            finish_row(dtype, vectors, p, r, at, part + r * vectors);
            continue;
        }
        UNROLL
        for (int i = 0; i < vectors; i++)
            vf_store(p->sums + r * p->v_dim + at + i * LANES, part[r * vectors + i]);
    }
}

/* Nearly all values of several rows are weighed here. Functions of their own: in larger ones,
 * compilers run out of registers. */
#define WEIGH_MANY(suffix, dtype, even)                                                            \
    static __attribute__((noinline)) void weigh_many_##suffix(const weigh_pass *p, ta_walk *walk,  \
                                                              int32_t at)                          \
    {                                                                                              \
        weigh_dims(dtype, TA_ROW_BLOCK, even, WEIGH_SUMS / TA_ROW_BLOCK, p, walk, at);             \
    }

WEIGH_MANY(f32, TA_F32, 0)
WEIGH_MANY(f16, TA_F16, 0)
WEIGH_MANY(bf16, TA_BF16, 0)
WEIGH_MANY(f32_even, TA_F32, 1)
WEIGH_MANY(f16_even, TA_F16, 1)
WEIGH_MANY(bf16_even, TA_BF16, 1)

INLINE void weigh_many(ta_dtype dtype, int even, const weigh_pass *p, ta_walk *walk, int32_t at)
{
    if (dtype == TA_F32)
        even ? weigh_many_f32_even(p, walk, at) : weigh_many_f32(p, walk, at);
    else if (dtype == TA_F16)
        even ? weigh_many_f16_even(p, walk, at) : weigh_many_f16(p, walk, at);
    else
        even ? weigh_many_bf16_even(p, walk, at) : weigh_many_bf16(p, walk, at);
}

INLINE void weigh_tokens(ta_dtype dtype, int rows, int even, const weigh_pass *p, ta_walk *walk)
{
    const int most = rows == 1 ? 8 : WEIGH_SUMS / rows;
    int32_t at = 0;
    for (; rows > 1 && at + most * LANES <= p->v_dim; at += most * LANES)
        weigh_many(dtype, even, p, walk, at);
    for (; rows == 1 && at + most * LANES <= p->v_dim; at += most * LANES)
        weigh_dims(dtype, rows, even, most, p, walk, at);
    for (; most > 2 && at + PAIR <= p->v_dim; at += PAIR)
        weigh_dims(dtype, rows, even, 2, p, walk, at);
    if (at < p->v_dim)
        weigh_dims(dtype, rows, even, 1, p, walk, at);
}

/* Values are taken in passes of a few tokens: within a pass dimension by dimension, with sums in
 * registers. Short passes load and store the sums more often, long ones read memory less in its own
 * order, which is worth it where arithmetic is the limit. */
INLINE void weigh_block(ta_dtype dtype, int rows, int even, ta_block b, ta_walk walk, float *o,
                        const float *rescale)
{
    int most = rows == 1 || dtype == TA_F32 ? 4 : ta_pass_tokens(&b, ta_dtype_bytes(dtype));
    for (int t = 0; t < b.tokens.n; t += most) {
        int n = b.tokens.n - t < most ? b.tokens.n - t : most;
        for (int h = 0; h < b.heads; h++) {
            weigh_pass pass = {.first = t,
                               .n = n,
                               .offset = h * b.token_head_bytes,
                               .weights = b.scores + h * TA_BLOCK_SCORES + t * rows,
                               .sums = b.sums + h * rows * b.dim,
                               .o = o + h * b.head_stride,
                               .rescale = rescale + h * TA_ROW_BLOCK,
                               .row_stride = b.row_stride,
                               .v_dim = b.dim,
                               .is_first = t == 0,
                               .is_last = t + n == b.tokens.n};
            weigh_tokens(dtype, rows, even, &pass, &walk);
        }
    }
}

INLINE void weigh_rows(ta_dtype dtype, int rows, const ta_block *b, float *o, const float *rescale)
{
    ta_walk walk = ta_walk_start(b, ta_dtype_bytes(dtype));
    if (ta_walk_is_even(&walk))
        weigh_block(dtype, rows, 1, *b, walk, o, rescale);
    else
        weigh_block(dtype, rows, 0, *b, walk, o, rescale);
}

INLINE void weigh_any(ta_dtype dtype, const ta_block *b, float *o, const float *rescale)
{
    if (b->rows == TA_ROW_BLOCK)
        weigh_rows(dtype, TA_ROW_BLOCK, b, o, rescale);
    else
        weigh_rows(dtype, 1, b, o, rescale);
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
    static void score_##suffix(const ta_block *block, const float *q)                              \
    {                                                                                              \
        score_any(dtype, block, q);                                                                \
    }                                                                                              \
    static void weigh_##suffix(const ta_block *block, float *o, const float *rescale)              \
    {                                                                                              \
        SIMD_WEIGH(dtype, block, o, rescale);                                                      \
    }

/* A level that has better versions defines these. */
#ifndef SIMD_WEIGH
#define SIMD_WEIGH weigh_any
#define SIMD_SOFTMAX softmax
#endif
#ifndef SIMD_PACK
#define SIMD_PACK NULL
#define SIMD_SCORE_PACKED NULL
#endif

#define TA_SIMD_TABLE(level)                                                                       \
    {                                                                                              \
        .name = level, .load = {[TA_F32] = load_f32, [TA_F16] = load_f16, [TA_BF16] = load_bf16},  \
        .store = {[TA_F32] = store_f32, [TA_F16] = store_f16, [TA_BF16] = store_bf16},             \
        .arrange =                                                                                 \
            {[TA_F32] = arrange_as_is, [TA_F16] = arrange_as_is, [TA_BF16] = arrange_even_odd},    \
        .score = {[TA_F32] = score_f32, [TA_F16] = score_f16, [TA_BF16] = score_bf16},             \
        .softcap = softcap, .softmax = SIMD_SOFTMAX,                                               \
        .weigh = {[TA_F32] = weigh_f32, [TA_F16] = weigh_f16, [TA_BF16] = weigh_bf16},             \
        .pack = SIMD_PACK, .score_packed = SIMD_SCORE_PACKED, .merge = merge,                      \
        .panels = &simd_panels,                                                                    \
    }
