/* How a block makes one partial of many of a row: reductions and sums in an order that never
 * changes. Included by merge.hip. */
#ifndef TA_HIP_MERGE_BLOCK_H
#define TA_HIP_MERGE_BLOCK_H

#include "rows.h"

static const int merge_threads = 256; /* of the block */

/* Threads that reduce by exchanges; divides every wave. */
static const int reduce_lanes = 32;
static const int reduce_groups = merge_threads / reduce_lanes;

/* NaN is larger than anything. */
TA_DEVICE float larger(float a, float b)
{
    return a != a || a >= b ? a : b;
}

struct take_larger {
    __device__ __forceinline__ float operator()(float a, float b) const
    {
        return larger(a, b);
    }
};

struct take_sum {
    __device__ __forceinline__ float operator()(float a, float b) const
    {
        return a + b;
    }
};

/* What all threads have, put together in an order that never changes. `scratch` has a place for
 * each group of lanes. */
template <class Take> TA_DEVICE float reduce_block(float x, Take take, float *scratch)
{
    int thread = static_cast<int>(threadIdx.x);
    for (int mask = reduce_lanes / 2; mask > 0; mask /= 2)
        x = take(x, ta_shfl_xor(x, mask));
    ta_syncthreads(); /* the last reduction has been read */
    if (thread % reduce_lanes == 0)
        scratch[thread / reduce_lanes] = x;
    ta_syncthreads();
    x = scratch[0];
    for (int i = 1; i < reduce_groups; i++)
        x = take(x, scratch[i]);
    return x;
}

/* Four columns at a time; `groups` threads share a column, each takes every groups-th split. Splits
 * are `stride` floats apart, but the first one is `beside` floats further on. */
TA_DEVICE void merge_columns(const float *from, int64_t beside, int64_t stride, int32_t splits,
                             int32_t v_dim, const float *scales, float *scratch, float *to)
{
    int32_t thread = static_cast<int32_t>(threadIdx.x);
    int32_t columns = v_dim / 4, groups = merge_threads / columns;
    int32_t column = thread % columns, group = thread / columns;
    float sum[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    if (group < groups) {
#pragma unroll 4
        for (int32_t split = group; split < splits; split += groups) {
            ta_vec16 o = ta_load16(from + split * stride + (split ? 0 : beside) + column * 4);
            for (int i = 0; i < 4; i++)
                sum[i] = fmaf(ta_as_float(o.word[i]), scales[split], sum[i]);
        }
        for (int i = 0; i < 4; i++)
            scratch[(group * columns + column) * 4 + i] = sum[i];
    }
    ta_syncthreads();
    for (int32_t i = thread; i < v_dim; i += merge_threads) {
        float total = scratch[i];
        for (int32_t g = 1; g < groups; g++)
            total += scratch[g * v_dim + i];
        to[i] = total;
    }
}

#endif
