/* The kernels of attend_simd.h with the registers of AVX-512 (F, BW, DQ, VL), and vectors of 16
 * floats where one query row meets values, and for weights: that halves the instructions between
 * two loads from memory. Several rows stay with vectors of 8. Their weights are loaded into all
 * lanes, which costs nothing with 8, but a place in the pipes that multiply with 16; and the lanes
 * of scores must be added up in the end.
 *
 * V is read 32 elements at a time where there are so many. As in attend_simd.h, bf16 is widened as
 * the even and the odd elements of such a pair of vectors; what is left over at the end of a row is
 * in its own order. */
#include "host/simd_avx2.h"
#include "host/words_avx2.h"

#define SIMD_REGISTERS 32
#define SIMD_SCORE score_any_wide
#define SIMD_WEIGH weigh_any_wide
#define SIMD_SOFTMAX softmax_wide
#define SIMD_WIDEN widen_wide
#define SIMD_LOAD load_any_wide
#define SIMD_MERGE_CHAIN merge_chain_wide
#define SIMD_NARROW_ROW TA_DTYPE_NARROW_LIST
#define SIMD_READS_NARROW reads_narrow
#define SIMD_PANEL_WIDE

#include "attend_simd.h"
#include "host/panel_simd.h"

#include "widen_wide.h"

#define WIDE 16
#define WIDE_PAIR (2 * WIDE)

/* 16 floats. */
typedef __m512 wf;

/* ---- Elements ------------------------------------------------------------------------------ */

/* 16 elements in their own order. */
INLINE wf load16(ta_dtype dtype, const void *data, int64_t index)
{
    const uint16_t *halves = (const uint16_t *)data + index; /* of those that have 16 bits */
    switch (dtype) {
    default:
        break;
    case TA_F32:
        return _mm512_loadu_ps((const float *)data + index);
    case TA_F16:
        return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)halves));
    case TA_BF16:
        return _mm512_castsi512_ps(_mm512_slli_epi32(
            _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(const void *)halves)), 16));
    }
    return _mm512_set1_ps(NAN);
}

/* Vector `half` of the pair that starts at `index`. */
INLINE wf load_wide_half(ta_dtype dtype, const void *data, int64_t index, int half)
{
    if (!EVEN_ODD(dtype))
        return load16(dtype, data, index + half * WIDE);
    __m512i both = _mm512_loadu_si512((const uint16_t *)data + index);
    return _mm512_castsi512_ps(half ? _mm512_and_si512(both, _mm512_set1_epi32((int)0xffff0000u))
                                    : _mm512_slli_epi32(both, 16));
}

INLINE void load_any_wide(ta_dtype dtype, const void *from, int32_t n, float factor, float *to)
{
    int32_t i = 0;
    for (; i + WIDE <= n; i += WIDE)
        _mm512_storeu_ps(to + i, _mm512_mul_ps(load16(dtype, from, i), _mm512_set1_ps(factor)));
    if (i < n)
        vf_store(to + i, vf_mul(load8(dtype, from, i), vf_set(factor)));
}

/* The last 8 elements of a row, and zeros. */
INLINE wf load_rest(ta_dtype dtype, const void *data, int64_t index)
{
    return _mm512_zextps256_ps512(load8(dtype, data, index));
}

/* From the even and the odd elements of 32 to the first 16 and the last 16. */
INLINE void interleave_wide(wf *even, wf *odd)
{
    const __m512i first = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
    const __m512i last = _mm512_add_epi32(first, _mm512_set1_epi32(8));
    wf low = _mm512_permutex2var_ps(*even, first, *odd);
    *odd = _mm512_permutex2var_ps(*even, last, *odd);
    *even = low;
}

#include "row_wide.h"

/* ---- Values -------------------------------------------------------------------------------- */

/* One pass over values: those of tokens [first, first + n) of a block, of one head. */
typedef struct wide_pass {
    int first, n;
    int64_t offset; /* of the head, in bytes */
    const float *weights;
    float *sums; /* of the tokens before, unless this is the first pass */
    float *o;
    float rescale;
    int is_first, is_last;
} wide_pass;

/* o = o · rescale + Σ weight · value for one row and one head: the dimensions [at, at +
 * 16·vectors). With 0 vectors it is the last 8 dimensions. */
INLINE void weigh_dims_wide(ta_dtype dtype, int even, int vectors, const ta_block *b,
                            const wide_pass *p, ta_walk *walk, int32_t at)
{
    const int count = vectors ? vectors : 1;
    const int bytes = vectors * WIDE * (int)ta_dtype_bytes(dtype), lines = bytes / TA_LINE_BYTES;
    const int64_t at_bytes = at * (int64_t)ta_dtype_bytes(dtype);
    const __mmask16 lanes = vectors ? 0xffff : 0x00ff;
    wf sums[8];
    UNROLL
    for (int i = 0; i < count; i++)
        sums[i] = p->is_first ? _mm512_setzero_ps()
                              : _mm512_maskz_loadu_ps(lanes, p->sums + at + i * WIDE);
    for (int t = 0; t < p->n; t++) {
        const char *from = ta_walk_at(walk, even, p->first + t) + p->offset;
        wf weight = _mm512_set1_ps(p->weights[t]);
        if (b->row_ahead)
            ask_for_lines(row_next(b, p->first + t) + p->offset + at_bytes, bytes ? bytes : 1);
        else if (ta_walk_fetches(walk, even))
            ta_walk_fetch(walk, even, lines ? lines : 1);
        UNROLL
        for (int i = 0; i < count; i++) {
            wf value = vectors == 0   ? load_rest(dtype, from, at)
                       : vectors == 1 ? load16(dtype, from, at)
                                      : load_wide_half(dtype, from, at + i / 2 * WIDE_PAIR, i % 2);
            sums[i] = _mm512_fmadd_ps(weight, value, sums[i]);
        }
    }
    UNROLL
    for (int i = 0; i < vectors / 2; i++) {
        if (EVEN_ODD(dtype) && p->is_last)
            interleave_wide(&sums[2 * i], &sums[2 * i + 1]);
    }
    UNROLL
    for (int i = 0; i < count; i++) {
        float *into = (p->is_last ? p->o : p->sums) + at + i * WIDE;
        if (p->is_last)
            sums[i] = _mm512_fmadd_ps(_mm512_maskz_loadu_ps(lanes, into),
                                      _mm512_set1_ps(p->rescale), sums[i]);
        _mm512_mask_storeu_ps(into, lanes, sums[i]);
    }
}

/* The sums stay in registers over a whole pass. */
INLINE void weigh_pass_wide(ta_dtype dtype, int even, const ta_block *b, const wide_pass *p,
                            ta_walk *walk)
{
    int32_t at = 0;
    for (; at + 8 * WIDE <= b->dim; at += 8 * WIDE)
        weigh_dims_wide(dtype, even, 8, b, p, walk, at);
    for (; at + WIDE_PAIR <= b->dim; at += WIDE_PAIR)
        weigh_dims_wide(dtype, even, 2, b, p, walk, at);
    if (at + WIDE <= b->dim) {
        weigh_dims_wide(dtype, even, 1, b, p, walk, at);
        at += WIDE;
    }
    if (at < b->dim)
        weigh_dims_wide(dtype, even, 0, b, p, walk, at);
}

/* One head takes all tokens in one pass, several of them one token after the other. */
INLINE void weigh_row_wide(ta_dtype dtype, int even, const ta_block *b, ta_walk walk, float *o,
                           const float *rescale)
{
    const int most = b->heads > 1 ? 1 : b->tokens.n;
    for (int t = 0; t < b->tokens.n; t += most) {
        for (int h = 0; h < b->heads; h++) {
            wide_pass pass = {.first = t,
                              .n = most,
                              .offset = h * b->token_head_bytes,
                              .weights = b->scores + h * TA_BLOCK_SCORES + t,
                              .sums = b->sums + (int64_t)h * b->dim,
                              .o = o + h * b->head_stride,
                              .rescale = rescale[h * TA_ROWS_MOST],
                              .is_first = t == 0,
                              .is_last = t + most == b->tokens.n};
            weigh_pass_wide(dtype, even, b, &pass, &walk);
        }
    }
}

INLINE void weigh_any_wide(ta_dtype dtype, const ta_block *b, float *o, const float *rescale)
{
    if (b->rows > 1 || (b->heads > 1 && !b->row_ahead)) {
        weigh_any(dtype, b, o, rescale);
        return;
    }
    ta_walk walk = ta_walk_start(b, ta_dtype_bytes(dtype));
    if (ta_walk_is_even(&walk))
        weigh_row_wide(dtype, 1, b, walk, o, rescale);
    else
        weigh_row_wide(dtype, 0, b, walk, o, rescale);
}

#include "narrow_wide.h"

/* ---- Weights ------------------------------------------------------------------------------- */

/* As exp2_negative() of attend_simd.h. */
INLINE wf exp2_negative_wide(wf x)
{
    const wf rounder = _mm512_set1_ps(0x1.8p23f + 127.0f);
    x = _mm512_max_ps(_mm512_set1_ps(-127.0f), x);
    wf shifted = _mm512_add_ps(x, rounder);
    wf f = _mm512_sub_ps(x, _mm512_sub_ps(shifted, rounder));
    wf p = _mm512_set1_ps(exp2_polynomial[0]);
    UNROLL
    for (int i = 1; i < EXP2_POLYNOMIAL; i++)
        p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(exp2_polynomial[i]));
    __m512i exponent = _mm512_slli_epi32(_mm512_castps_si512(shifted), 23);
    return _mm512_mul_ps(p, _mm512_castsi512_ps(exponent));
}

/* Numbers of 4 or 8 rows, repeated to fill a vector; and the first ones of a vector. */
INLINE wf load_rows_wide(const float *from, int rows)
{
    return rows == TA_ROW_BLOCK ? _mm512_broadcast_f32x4(_mm_loadu_ps(from))
                                : _mm512_broadcast_f32x8(_mm256_loadu_ps(from));
}

INLINE void store_rows_wide(float *to, int rows, wf x)
{
    vf_store_rows(to, rows, _mm512_castps512_ps256(x));
}

INLINE int softmax_rows_wide(int rows, float *scores, int n, float *m, float *l, float *rescale,
                             ta_token_set *hidden)
{
    int count = n * rows;
    const wf low = _mm512_set1_ps(-INFINITY);
    wf before = load_rows_wide(m, rows), after = before, sum = _mm512_setzero_ps();
    __mmask16 any_low = 0; /* is a score -inf or NaN? */
    for (int i = 0; i < count; i += WIDE) {
        wf s = _mm512_loadu_ps(scores + i);
        after = _mm512_max_ps(s, after); /* if the row is NaN already, it stays so */
        any_low |= _mm512_cmp_ps_mask(s, low, _CMP_NGT_UQ);
    }
    if (any_low) /* rare, and it matters which */
        return ta_kernels_scalar.softmax(scores, n, rows, m, l, rescale, hidden);
    after = _mm512_max_ps(_mm512_shuffle_f32x4(after, after, 0x4e), after);
    if (rows == TA_ROW_BLOCK)
        after = _mm512_max_ps(_mm512_shuffle_f32x4(after, after, 0xb1), after);
    for (int i = 0; i < count; i += WIDE) {
        wf weight = exp2_negative_wide(_mm512_sub_ps(_mm512_loadu_ps(scores + i), after));
        _mm512_storeu_ps(scores + i, weight);
        sum = _mm512_add_ps(sum, weight);
    }
    sum = _mm512_add_ps(sum, _mm512_shuffle_f32x4(sum, sum, 0x4e));
    if (rows == TA_ROW_BLOCK)
        sum = _mm512_add_ps(sum, _mm512_shuffle_f32x4(sum, sum, 0xb1));
    wf scale = exp2_negative_wide(_mm512_sub_ps(before, after));
    store_rows_wide(rescale, rows, scale);
    store_rows_wide(l, rows, _mm512_fmadd_ps(load_rows_wide(l, rows), scale, sum));
    store_rows_wide(m, rows, after);
    return 0;
}

/* Whole vectors of several rows; the rest is left to the narrow version. */
static int softmax_wide(float *scores, int n, int rows, float *m, float *l, float *rescale,
                        ta_token_set *hidden)
{
    if (rows == 1 || n * rows % WIDE)
        return softmax(scores, n, rows, m, l, rescale, hidden);
    return rows == TA_ROW_BLOCK ? softmax_rows_wide(TA_ROW_BLOCK, scores, n, m, l, rescale, hidden)
                                : softmax_rows_wide(TA_ROWS_MOST, scores, n, m, l, rescale, hidden);
}

/* ---- Merge --------------------------------------------------------------------------------- */

/* As merge_chain() of attend_simd.h, which does what is left over. */
static void merge_chain_wide(const ta_merge_chain *chain, int32_t v_dim, float factor, float *to)
{
    int32_t at = 0;
    for (; at + WIDE <= v_dim; at += WIDE) {
        wf sum = _mm512_loadu_ps(chain->first + at);
        for (int k = 0; k < chain->count; k++) {
            wf other = _mm512_loadu_ps(chain->others + k * chain->stride + at);
            wf a = _mm512_set1_ps(chain->scales[k].a), b = _mm512_set1_ps(chain->scales[k].b);
            sum = chain->scales[k].a == 1.0f ? _mm512_fmadd_ps(other, b, sum)
                                             : _mm512_fmadd_ps(sum, a, _mm512_mul_ps(other, b));
        }
        _mm512_storeu_ps(to + at, _mm512_mul_ps(sum, _mm512_set1_ps(factor)));
    }
    if (at < v_dim)
        merge_chain_vectors(1, chain, factor, to, at);
}
