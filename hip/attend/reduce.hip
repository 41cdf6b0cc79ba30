/* reduce_ranks. Grid: as many blocks as needed to take every element once, reduce_threads threads.
 *
 * Adds up what the ranks of a group gave, in the order of the ranks, or takes the largest. A NaN is
 * larger than anything. ccl/reduce.c launches it. */
#include "rows.h"

static const int reduce_threads = 256;

TA_DEVICE float reduce_two(float a, float b, int32_t sum)
{
    if (sum)
        return a + b;
    return a != a || a >= b ? a : b;
}

TA_DEVICE int64_t reduce_two(int64_t a, int64_t b, int32_t sum)
{
    if (sum) /* wraps around */
        return static_cast<int64_t>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
    return a > b ? a : b;
}

template <class T> TA_DEVICE void reduce_all(const ta_reduce_params &p)
{
    const T *own = static_cast<const T *>(p.own), *others = static_cast<const T *>(p.others);
    int64_t step = static_cast<int64_t>(gridDim.x) * reduce_threads;
    for (int64_t i = static_cast<int64_t>(blockIdx.x) * reduce_threads + threadIdx.x; i < p.count;
         i += step) {
        T total = p.rank == 0 ? own[i] : others[i];
        for (int32_t r = 1; r < p.ranks; r++)
            total = reduce_two(total, r == p.rank ? own[i] : others[r * p.stride + i], p.sum);
        static_cast<T *>(p.to)[i] = total;
    }
}

__global__ void __launch_bounds__(reduce_threads) reduce_ranks(ta_reduce_params p)
{
    if (p.integers)
        reduce_all<int64_t>(p);
    else
        reduce_all<float>(p);
}

ta_launched ta_launch_reduce(const ta_reduce_params *params, void *stream)
{
    int64_t blocks = ta_ceil_div(params->count, reduce_threads);
    if (blocks > INT32_MAX)
        blocks = INT32_MAX;
    ta_launch_result result =
        TA_LAUNCH(reduce_ranks, dim3(static_cast<unsigned>(blocks)), reduce_threads, 0,
                  static_cast<hipStream_t>(stream), *params);
    return ta_launched_of(result);
}
