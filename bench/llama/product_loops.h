/* The loops of matrix products, compiled once for each SIMD level: product_plain.c, product_avx2.c
 * and product_avx512.c define PRODUCT_NAME, ROW_BLOCK and OUTPUT_BLOCK and include this.
 * products.c chooses among them.
 *
 * Every output is the sum over 16 lanes, lane l of which adds up the inputs l, l + 16, … in their
 * order; then the lanes are added in halves. That order depends on the number of inputs alone: not
 * on how many rows there are, nor on threads, so a token's numbers are the same in a prompt and
 * alone.
 *
 * One row is a read of the weights, one of their rows after the other, converted as they come.
 * Several rows are done in blocks of ROW_BLOCK × OUTPUT_BLOCK sums that stay in registers. */
#ifndef BENCH_LLAMA_PRODUCT_LOOPS_H
#define BENCH_LLAMA_PRODUCT_LOOPS_H

#include <string.h>
#if defined(__F16C__)
#include <immintrin.h>
#endif

#include "products.h"

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wpsabi" /* all that takes or returns vectors is inlined */
#endif

#define LANES 16
#define LINE_BYTES 64
/* For one row of inputs: so many bytes ahead of the loads, in the order of memory, lines are asked
 * for. The CPU follows by itself only to the end of a page. */
#define AHEAD_BYTES (8 << 10)
#define INLINE static inline __attribute__((always_inline))

typedef float lanes __attribute__((vector_size(64)));
typedef uint32_t lane_bits __attribute__((vector_size(64)));
typedef uint16_t halves __attribute__((vector_size(32)));
/* In memory, aligned to nothing. */
typedef float lanes_at __attribute__((vector_size(64), aligned(1), may_alias));
typedef uint16_t halves_at __attribute__((vector_size(32), aligned(1), may_alias));

INLINE lanes load_bf16(const char *at)
{
    halves h = *(const halves_at *)(const void *)at;
    return (lanes)(__builtin_convertvector(h, lane_bits) << 16);
}

#if defined(__AVX512F__)
INLINE lanes load_f16(const char *at)
{
    return (lanes)_mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)at));
}
#elif defined(__F16C__)
INLINE lanes load_f16(const char *at)
{
    union {
        __m256 parts[2];
        lanes all;
    } u;
    u.parts[0] = _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)at));
    u.parts[1] = _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)(at + 16)));
    return u.all;
}
#else
/* Exponent and fraction go to their places; a product with 2^112 makes the exponent right, and
 * with it subnormal numbers. Infinities and NaN have an exponent that is all ones. */
INLINE lanes load_f16(const char *at)
{
    lane_bits h = __builtin_convertvector(*(const halves_at *)(const void *)at, lane_bits);
    lane_bits magnitude = (h & 0x7fff) << 13, special = (lane_bits)(magnitude >= 0x0f800000);
    lanes value = (lanes)magnitude * 0x1p112f;
    return (lanes)((lane_bits)value | (special & 0x7f800000) | (h & 0x8000) << 16);
}
#endif

/* The types that there are loops for, a constant wherever these are called. */
INLINE lanes load_weights(ta_dtype dtype, const char *at)
{
    if (dtype == TA_BF16)
        return load_bf16(at);
    if (dtype == TA_F16)
        return load_f16(at);
    return *(const lanes_at *)(const void *)at;
}

INLINE int64_t weight_bytes(ta_dtype dtype)
{
    return dtype == TA_BF16 || dtype == TA_F16 ? (int64_t)sizeof(uint16_t) : (int64_t)sizeof(float);
}

INLINE float add_lanes(const lanes *v)
{
    float sums[LANES];
    memcpy(sums, v, sizeof sums);
    for (int half = LANES / 2; half > 0; half /= 2)
        for (int i = 0; i < half; i++)
            sums[i] += sums[i + half];
    return sums[0];
}

/* LANES inputs from number i on. */
INLINE void add_products(const product_job *job, ta_dtype dtype, int rows, int outputs,
                         const char *w, const float *x, int64_t i, lanes sums[6][4])
{
    const int64_t each = weight_bytes(dtype);
    lanes weights[4];
#pragma GCC unroll 8
    for (int o = 0; o < outputs; o++)
        weights[o] = load_weights(dtype, w + (o * job->w.stride + i) * each);
#pragma GCC unroll 8
    for (int r = 0; r < rows; r++) {
        lanes inputs = *(const lanes_at *)(const void *)(x + r * job->w.columns + i);
#pragma GCC unroll 8
        for (int o = 0; o < outputs; o++)
            sums[r][o] += inputs * weights[o];
    }
}

/* Ask for `bytes` of weights that one row of inputs meets AHEAD_BYTES later: of a matrix whose rows
 * follow each other, else in the next row of the same columns. */
INLINE void ask_ahead(const product_job *job, int64_t each, const char *at, int64_t bytes)
{
    const int64_t row_bytes = job->w.stride * each;
    const char *ahead = at + (job->w.stride == job->w.columns ? AHEAD_BYTES : row_bytes);
    for (int64_t line = 0; line < bytes; line += LINE_BYTES)
        __builtin_prefetch(ahead + line, 0, 3);
}

/* The sums of `rows` rows of inputs with `outputs` rows of weights; both are constants where this
 * is called. */
INLINE void block(const product_job *job, ta_dtype dtype, int rows, int outputs, int64_t row,
                  int64_t output)
{
    const int64_t each = weight_bytes(dtype), count = job->w.columns;
    const char *w = (const char *)job->w.data + output * job->w.stride * each;
    const float *x = job->from + row * count;
    lanes sums[6][4];
    char tail[4 * LANES];
    int64_t i = 0;
#pragma GCC unroll 8
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 8
        for (int o = 0; o < outputs; o++)
            sums[r][o] = (lanes){0};
    while (rows == 1 && outputs == 1 && i + 4 * LANES <= count) {
        ask_ahead(job, each, w + i * each, 4 * LANES * each);
#pragma GCC unroll 4
        for (int step = 0; step < 4; step++, i += LANES)
            add_products(job, dtype, rows, outputs, w, x, i, sums);
    }
    for (; i + LANES <= count; i += LANES)
        add_products(job, dtype, rows, outputs, w, x, i, sums);
    if (i < count) { /* fewer than LANES are left: zeros follow them */
        for (int o = 0; o < outputs; o++) {
            memset(tail, 0, sizeof tail);
            memcpy(tail, w + (o * job->w.stride + i) * each, (size_t)((count - i) * each));
            lanes weights = load_weights(dtype, tail);
            for (int r = 0; r < rows; r++) {
                lanes inputs = {0};
                memcpy(&inputs, x + r * count + i, (size_t)(count - i) * sizeof *x);
                sums[r][o] += inputs * weights;
            }
        }
    }
    for (int r = 0; r < rows; r++)
        for (int o = 0; o < outputs; o++)
            job->to[(row + r) * job->w.rows + output + o] =
                add_lanes(&sums[r][o]) + (job->bias ? job->bias[output + o] : 0.0f);
}

/* Outputs [first, last) of rows [row, end). */
INLINE void outputs_of_rows(const product_job *job, ta_dtype dtype, int64_t row, int64_t end,
                            int64_t first, int64_t last)
{
    int64_t output = first;
    for (; output + OUTPUT_BLOCK <= last; output += OUTPUT_BLOCK) {
        int64_t r = row;
        for (; r + ROW_BLOCK <= end; r += ROW_BLOCK)
            block(job, dtype, ROW_BLOCK, OUTPUT_BLOCK, r, output);
        for (; r < end; r++)
            block(job, dtype, 1, OUTPUT_BLOCK, r, output);
    }
    for (; output < last; output++)
        for (int64_t r = row; r < end; r++)
            block(job, dtype, 1, 1, r, output);
}

/* Ask for a line of each page of the outputs [first, last). Walks through the page tables then
 * overlap, which is most of the time that ordinary pages take. */
INLINE void touch(const product_job *job, int64_t each, int64_t first, int64_t last)
{
    const int64_t page = 4096;
    for (int64_t output = first; output < last; output++) {
        const char *at = (const char *)job->w.data + output * job->w.stride * each;
        const char *end = at + job->w.columns * each;
        for (; at < end; at += page)
            __builtin_prefetch(at, 0, 2);
    }
}

INLINE void one_row(const product_job *job, ta_dtype dtype, int64_t first, int64_t last)
{
    const int64_t each = weight_bytes(dtype), batch_bytes = 64 << 10;
    int64_t batch = job->w.columns ? batch_bytes / (job->w.columns * each) : last - first;
    batch = batch < 1 ? 1 : batch;
    for (int64_t at = first; at < last; at += batch) {
        int64_t end = at + batch < last ? at + batch : last;
        touch(job, each, end, end + batch < last ? end + batch : last);
        for (int64_t output = at; output < end; output++)
            block(job, dtype, 1, 1, 0, output);
    }
}

/* Rows of inputs go in groups that a cache near the CPU holds; the weights are read once for
 * each. */
INLINE void outputs(const product_job *job, ta_dtype dtype, int64_t first, int64_t last)
{
    const int64_t near_bytes = 384 << 10;
    int64_t row_bytes = job->w.columns * (int64_t)sizeof *job->from;
    int64_t group = row_bytes ? near_bytes / row_bytes : job->rows; /* a rank may have no heads */
    group = group < ROW_BLOCK ? ROW_BLOCK : group / ROW_BLOCK * ROW_BLOCK;
    if (job->rows == 1) {
        one_row(job, dtype, first, last);
        return;
    }
    for (int64_t row = 0; row < job->rows; row += group) {
        int64_t end = row + group < job->rows ? row + group : job->rows;
        outputs_of_rows(job, dtype, row, end, first, last);
    }
}

void PRODUCT_NAME(const product_job *job, int64_t first, int64_t last)
{
    if (job->w.dtype == TA_BF16)
        outputs(job, TA_BF16, first, last);
    else if (job->w.dtype == TA_F16)
        outputs(job, TA_F16, first, last);
    else if (job->w.dtype == TA_F32)
        outputs(job, TA_F32, first, last);
}

#endif
