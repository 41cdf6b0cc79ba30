/* The arithmetic of the host device in plain C: what every SIMD level must reproduce (see
 * kernels.h). Each function takes the element type as a constant, so that the compiler makes one
 * version for each. */
#include <math.h>

#include "base/dtype.h"
#include "base/partial.h"
#include "kernels.h"

/* 8 interleaved sums, added in pairs. */
static float sum8(const float *s)
{
    return ((s[0] + s[2]) + (s[1] + s[3])) + ((s[4] + s[6]) + (s[5] + s[7]));
}

static inline void load(ta_dtype dtype, const void *from, int32_t n, float factor, float *to)
{
    for (int32_t i = 0; i < n; i++)
        to[i] = ta_load(dtype, from, i) * factor;
}

static inline void store(ta_dtype dtype, const float *from, int32_t n, float factor, void *to)
{
    for (int32_t i = 0; i < n; i++)
        ta_store(dtype, to, i, from[i] * factor);
}

/* The numbers of 8 bits have few digits: nothing is lost. */
static inline void widen(ta_dtype dtype, const void *from, int32_t n, uint16_t *to)
{
    ta_narrow_format format = ta_narrow_format_of(dtype);
    for (int32_t i = 0; i < n; i++)
        to[i] = (uint16_t)(ta_narrow_decode(format, ((const uint8_t *)from)[i]) >> 16);
}

static inline void score(ta_dtype dtype, const ta_block *b, const float *q)
{
    for (int h = 0; h < b->heads; h++) {
        for (int r = 0; r < b->rows; r++) {
            const float *query = q + h * b->head_stride + r * b->row_stride;
            for (int t = 0; t < b->tokens.n; t++) {
                const char *key = ta_vector_at(&b->tokens, t) + h * b->token_head_bytes;
                float sums[8] = {0};
                for (int32_t i = 0; i < b->dim; i++)
                    sums[i % 8] += query[i] * ta_load(dtype, key, i);
                b->scores[h * TA_BLOCK_SCORES + t * b->rows + r] = sum8(sums);
            }
        }
    }
}

static inline void weigh(ta_dtype dtype, const ta_block *b, float *o, const float *rescale)
{
    for (int h = 0; h < b->heads; h++) {
        for (int r = 0; r < b->rows; r++) {
            const float *weights = b->scores + h * TA_BLOCK_SCORES + r;
            float *to = o + h * b->head_stride + r * b->row_stride;
            for (int32_t i = 0; i < b->dim; i++) {
                float sum = 0.0f;
                for (int t = 0; t < b->tokens.n; t++) {
                    const char *value = ta_vector_at(&b->tokens, t) + h * b->token_head_bytes;
                    sum += weights[t * b->rows] * ta_load(dtype, value, i);
                }
                to[i] = to[i] * rescale[h * TA_ROWS_MOST + r] + sum;
            }
        }
    }
}

/* The functions above for one element type each. */
#define FOR_DTYPE(suffix, dtype, ...)                                                              \
    static void load_##suffix(const void *from, int32_t n, float factor, float *to)                \
    {                                                                                              \
        load(dtype, from, n, factor, to);                                                          \
    }                                                                                              \
    static void store_##suffix(const float *from, int32_t n, float factor, void *to)               \
    {                                                                                              \
        store(dtype, from, n, factor, to);                                                         \
    }
TA_DTYPE_LIST(FOR_DTYPE, )

#define FOR_NARROW(suffix, dtype, ...)                                                             \
    static void widen_##suffix(const void *from, int32_t n, uint16_t *to)                          \
    {                                                                                              \
        widen(dtype, from, n, to);                                                                 \
    }
TA_DTYPE_NARROW_LIST(FOR_NARROW, )

#define FOR_WIDE(suffix, dtype, ...)                                                               \
    static void arrange_##suffix(float *q, int32_t k_dim)                                          \
    {                                                                                              \
        (void)q, (void)k_dim; /* as they are */                                                    \
    }                                                                                              \
    static void score_##suffix(const ta_block *block, const float *q)                              \
    {                                                                                              \
        score(dtype, block, q);                                                                    \
    }                                                                                              \
    static void weigh_##suffix(const ta_block *block, float *o, const float *rescale)              \
    {                                                                                              \
        weigh(dtype, block, o, rescale);                                                           \
    }
TA_DTYPE_WIDE_LIST(FOR_WIDE, )

static void softcap(float *scores, int n, float cap)
{
    for (int t = 0; t < n; t++)
        scores[t] = cap * tanhf(scores[t]);
}

/* One row, whose scores are `rows` apart; returns how many tokens are hidden. */
static int softmax_row(float *scores, int n, int rows, float *m, float *l, float *rescale,
                       ta_token_set *hidden)
{
    int count = 0;
    float before = *m, after = *m;
    for (int t = 0; t < n; t++) {
        float s = scores[t * rows];
        if (!(s <= after)) /* larger, or NaN, which nothing replaces */
            after = after != after ? after : s;
        if (s == -INFINITY) {
            hidden->words[t / 64] |= 1ull << t % 64;
            count++;
        }
    }
    *rescale = 1.0f;
    if (after == -INFINITY) /* nothing seen yet: a difference to it would be NaN */
        return count;
    float sum = 0.0f;
    for (int t = 0; t < n; t++) {
        scores[t * rows] = exp2f(scores[t * rows] - after);
        sum += scores[t * rows];
    }
    if (before != after)
        *rescale = exp2f(before - after);
    *l = *l * *rescale + sum;
    *m = after;
    return count;
}

static int softmax(float *scores, int n, int rows, float *m, float *l, float *rescale,
                   ta_token_set *hidden)
{
    int count = 0;
    for (int r = 0; r < rows; r++) {
        hidden[r] = (ta_token_set){0};
        count += softmax_row(scores + r, n, rows, &m[r], &l[r], &rescale[r], &hidden[r]);
    }
    return count > 0;
}

static void merge(float *into, const float *from, int32_t v_dim)
{
    ta_merge_scales s = ta_merge_scale(into[v_dim], from[v_dim]);
    for (int32_t i = 0; i < v_dim; i++)
        into[i] = ta_merge_add(into[i], from[i], s);
    into[v_dim] = s.m;
    into[v_dim + 1] = ta_merge_add(into[v_dim + 1], from[v_dim + 1], s);
}

static void merge_chain(const ta_merge_chain *chain, int32_t v_dim, float factor, float *to)
{
    for (int32_t i = 0; i < v_dim; i++) {
        float sum = chain->first[i];
        for (int k = 0; k < chain->count; k++)
            sum = ta_merge_add(sum, chain->others[k * chain->stride + i], chain->scales[k]);
        to[i] = sum * factor;
    }
}

const ta_host_kernels ta_kernels_scalar = {
    .name = "scalar",
    .rows_most = TA_ROW_BLOCK,
    .load = {TA_DTYPE_LIST(TA_DTYPE_SLOT, load_)},
    .store = {TA_DTYPE_LIST(TA_DTYPE_SLOT, store_)},
    .widen = {TA_DTYPE_NARROW_LIST(TA_DTYPE_SLOT, widen_)},
    .arrange = {TA_DTYPE_WIDE_LIST(TA_DTYPE_SLOT, arrange_)},
    .score = {TA_DTYPE_WIDE_LIST(TA_DTYPE_SLOT, score_)},
    .softcap = softcap,
    .softmax = softmax,
    .weigh = {TA_DTYPE_WIDE_LIST(TA_DTYPE_SLOT, weigh_)},
    .merge = merge,
    .merge_chain = merge_chain,
    .panels = &ta_panels_scalar,
};
