/* Products of tiles and panels in plain C: what every SIMD level must reproduce, see panel.h. And
 * what is too rare for a SIMD version: tiles with a NaN or an infinity. Products are fused with
 * their additions, so that dots() and sums() have the same bits at every level, and with hidden
 * weights. */
#include "panel.h"

#include <math.h>

#define LANES TA_PANEL_LANES

static void dots(const float *tile, int64_t stride, int n, int dim, const float *panel, float *to)
{
    for (int i = 0; i < n; i++) {
        for (int j = 0; j < LANES; j++) {
            float sum = 0.0f;
            for (int d = 0; d < dim; d++)
                sum = fmaf(tile[i * stride + d], panel[d * LANES + j], sum);
            to[i * LANES + j] = sum;
        }
    }
}

static void sums(const float *tile, int64_t stride, int n, int dim, const float *weights,
                 const float *rescale, float *to)
{
    for (int d = 0; d < dim; d++) {
        for (int j = 0; j < LANES; j++) {
            float sum = 0.0f;
            for (int i = 0; i < n; i++)
                sum = fmaf(tile[i * stride + d], weights[i * LANES + j], sum);
            to[d * LANES + j] = fmaf(to[d * LANES + j], rescale ? rescale[j] : 1.0f, sum);
        }
    }
}

void ta_panel_sums_hidden(const float *tile, int64_t stride, int n, int dim, const float *weights,
                          const float *rescale, float *to)
{
    for (int d = 0; d < dim; d++) {
        for (int j = 0; j < LANES; j++) {
            float sum = 0.0f;
            for (int i = 0; i < n; i++) {
                float weight = weights[i * LANES + j];
                if (weight != 0.0f || !signbit(weight))
                    sum = fmaf(tile[i * stride + d], weight, sum);
            }
            to[d * LANES + j] = fmaf(to[d * LANES + j], rescale ? rescale[j] : 1.0f, sum);
        }
    }
}

int ta_tile_finite(const float *tile, int64_t stride, int n, int dim)
{
    float zero[8] = {0}; /* stay 0: only a NaN or an infinity times 0 is not */
    for (int i = 0; i < n; i++)
        for (int d = 0; d < dim; d += 8)
            for (int j = 0; j < 8; j++) /* a multiple of 8: compilers make vectors of it */
                zero[j] += tile[i * stride + d + j] * 0.0f;
    return zero[0] + zero[1] + zero[2] + zero[3] + zero[4] + zero[5] + zero[6] + zero[7] == 0.0f;
}

static void transpose(const float *from, int64_t from_stride, int rows, int columns, float *to,
                      int64_t to_stride)
{
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < columns; j++)
            to[j * to_stride + i] = from[i * from_stride + j];
}

static int hidden(const ta_panel_mask *mask, int row, int lane)
{
    return mask && !((float)row >= mask->first[lane] && (float)row < mask->end[lane]);
}

static void softmax(float *scores, int n, const ta_panel_mask *mask, ta_panel_partial *partial)
{
    for (int j = 0; j < LANES; j++) {
        float before = partial->m[j], after = before, sum = 0.0f;
        for (int i = 0; i < n; i++) {
            if (hidden(mask, i, j))
                scores[i * LANES + j] = -INFINITY;
            if (scores[i * LANES + j] > after)
                after = scores[i * LANES + j];
        }
        float from = after == -INFINITY ? 0.0f : after; /* the difference of two -inf is NaN */
        for (int i = 0; i < n; i++) {
            float weight = exp2f(scores[i * LANES + j] - from);
            scores[i * LANES + j] = hidden(mask, i, j) ? -0.0f : weight;
            sum += weight;
        }
        partial->rescale[j] = exp2f(before - from);
        partial->l[j] = partial->l[j] * partial->rescale[j] + sum;
        partial->m[j] = after;
    }
}

static void gradient(float *scores, float *products, int n, const float *lse, const float *delta,
                     const float *first, const float *end, float cap)
{
    for (int i = 0; i < n; i++) {
        for (int j = 0; j < LANES; j++) {
            float t = scores[i * LANES + j], slope = cap > 0.0f ? 1.0f - t * t : 1.0f;
            float p = exp2f((cap > 0.0f ? cap * t : t) - lse[i]);
            float ds = p * (products[i * LANES + j] - delta[i]) * slope;
            int seen = (float)j >= first[i] && (float)j < end[i];
            scores[i * LANES + j] = seen ? p : -0.0f;
            products[i * LANES + j] = seen ? ds : -0.0f;
        }
    }
}

const ta_panel_kernels ta_panels_scalar = {
    .rows = 6,
    .dots = dots,
    .sums = sums,
    .transpose = transpose,
    .softmax = softmax,
    .gradient = gradient,
};
