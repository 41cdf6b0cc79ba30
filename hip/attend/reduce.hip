/* reduce_ranks. Grid: as many blocks as needed to take every element once, reduce_threads threads.
 *
 * Adds up what the ranks of a group gave, in the order of the ranks, or takes the largest. A NaN is
 * larger than anything; elements of 16 bits are added as floats. ccl/reduce.c launches it. */
#include "number.h"
#include "rows.h"

static const int reduce_threads = 256;

TA_DEVICE float reduce_two(float a, float b, int32_t sum)
{
    if (sum)
        return a + b;
    return a != a || a >= b ? a : b;
}

template <class Integer, class Unsigned>
TA_DEVICE Integer reduce_integers(Integer a, Integer b, int32_t sum)
{
    if (sum) /* wraps around */
        return static_cast<Integer>(static_cast<Unsigned>(a) + static_cast<Unsigned>(b));
    return a > b ? a : b;
}

TA_DEVICE int32_t reduce_two(int32_t a, int32_t b, int32_t sum)
{
    return reduce_integers<int32_t, uint32_t>(a, b, sum);
}

TA_DEVICE int64_t reduce_two(int64_t a, int64_t b, int32_t sum)
{
    return reduce_integers<int64_t, uint64_t>(a, b, sum);
}

/* Integers as they are, like the types of number.h. */
template <class Integer> struct reduce_integer {
    typedef Integer element;
    TA_DEVICE Integer from(Integer x)
    {
        return x;
    }
    TA_DEVICE Integer to(Integer x)
    {
        return x;
    }
};

template <class Type> TA_DEVICE void reduce_all(const ta_reduce_params &p)
{
    typedef typename Type::element element;
    const element *own = static_cast<const element *>(p.own);
    const element *others = static_cast<const element *>(p.others);
    int64_t step = static_cast<int64_t>(gridDim.x) * reduce_threads;
    for (int64_t i = static_cast<int64_t>(blockIdx.x) * reduce_threads + threadIdx.x; i < p.count;
         i += step) {
        auto total = Type::from(p.rank == 0 ? own[i] : others[i]);
        for (int32_t r = 1; r < p.ranks; r++)
            total = reduce_two(total, Type::from(r == p.rank ? own[i] : others[r * p.stride + i]),
                               p.sum);
        static_cast<element *>(p.to)[i] = Type::to(total);
    }
}

__global__ void __launch_bounds__(reduce_threads) reduce_ranks(ta_reduce_params p)
{
    switch (p.element) {
    case TA_ELEMENT_F32:
        return reduce_all<ta_type_f32>(p);
    case TA_ELEMENT_F16:
        return reduce_all<ta_type_f16>(p);
    case TA_ELEMENT_BF16:
        return reduce_all<ta_type_bf16>(p);
    case TA_ELEMENT_I32:
        return reduce_all<reduce_integer<int32_t>>(p);
    default:
        return reduce_all<reduce_integer<int64_t>>(p);
    }
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
