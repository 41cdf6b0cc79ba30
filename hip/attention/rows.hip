/* attention_finish, attention_delta. Grid: one block for each (row, head), rows_threads threads.
 * attention_store, attention_pack, attention_add. Grid: enough blocks for every number once,
 * rows_threads threads.
 *
 * The passes over rows of attention over full sequences: partials become outputs, delta of
 * backward, sums become gradients, dense copies for the ranks that need them, sums of two.
 * attention.c launches them. */
#include "launched.h" /* first: it says what TA_INLINE is for the headers below */

#include "attention.h"
#include "base/partial.h"
#include "number.h"
#include "softmax.h"

static const int rows_threads = 128;
static const int row_lanes = 32; /* that share the sum of a row: no wave is narrower */

TA_DEVICE int64_t element_of(const ta_attention_rows_params &p, const ta_tensor &t, int64_t row)
{
    return row / p.heads * t.token_stride + row % p.heads * t.head_stride;
}

__global__ void __launch_bounds__(rows_threads) attention_finish(ta_attention_rows_params p)
{
    int64_t row = blockIdx.x;
    const float *record = p.from + row * ta_record_floats(p.dim);
    float m = record[p.dim], l = record[p.dim + 1];
    float factor = ta_partial_normalizer(m, l);
    int64_t at = element_of(p, p.a, row);
    for (int32_t i = static_cast<int32_t>(threadIdx.x); i < p.dim; i += rows_threads)
        ta_store_element(p.dtype, p.a.data, at + i, record[i] * factor);
    if (p.numbers && threadIdx.x == 0)
        p.numbers[row] = ta_partial_lse(m, l);
}

/* This lane's part of a product of two rows, from element `lane` on. */
template <class Type>
TA_DEVICE float multiply_rows(const void *a, const void *b, int32_t lane, int32_t dim)
{
    typedef typename Type::element element;
    float sum = 0.0f;
    for (int32_t i = lane; i < dim; i += row_lanes)
        sum = fmaf(Type::from(static_cast<const element *>(a)[i]),
                   Type::from(static_cast<const element *>(b)[i]), sum);
    return sum;
}

/* A row is for one wave of a block, or for half of one: the others would have little to do. */
__global__ void __launch_bounds__(rows_threads) attention_delta(ta_attention_rows_params p)
{
    const int at_once = rows_threads / row_lanes;
    int32_t lane = static_cast<int32_t>(threadIdx.x) % row_lanes;
    int64_t row = static_cast<int64_t>(blockIdx.x) * at_once + threadIdx.x / row_lanes;
    int64_t rows = static_cast<int64_t>(p.rows) * p.heads;
    float sum = 0.0f;
    if (row < rows) {
        int64_t size = p.element_bytes;
        const char *a = static_cast<const char *>(p.a.data) + element_of(p, p.a, row) * size;
        const char *b = static_cast<const char *>(p.b.data) + element_of(p, p.b, row) * size;
        TA_TYPE_SWITCH_IN_KERNEL(TA_ALL_TYPES, p.dtype, Type,
                                 sum = multiply_rows<Type>(a, b, lane, p.dim))
    }
    sum = ta_lanes_sum<row_lanes>(sum);
    if (row < rows && lane == 0)
        p.numbers[row] = sum;
}

__global__ void __launch_bounds__(rows_threads) attention_store(ta_attention_rows_params p)
{
    int64_t count = static_cast<int64_t>(p.rows) * p.heads * p.dim;
    int64_t step = static_cast<int64_t>(gridDim.x) * rows_threads;
    for (int64_t i = static_cast<int64_t>(blockIdx.x) * rows_threads + threadIdx.x; i < count;
         i += step)
        ta_store_element(p.dtype, p.a.data, element_of(p, p.a, i / p.dim) + i % p.dim,
                         p.from ? p.from[i] : 0.0f);
}

/* A row of the copy has the heads side by side; dimensions are multiples of 8, so 16 bytes are of
 * one head. */
template <class Word>
TA_DEVICE void pack_words(const ta_attention_rows_params &p, int32_t element_bytes)
{
    const int32_t size = static_cast<int32_t>(sizeof(Word));
    int32_t words = p.dim * element_bytes / size;
    int64_t count = static_cast<int64_t>(p.rows) * p.heads * words;
    int64_t step = static_cast<int64_t>(gridDim.x) * rows_threads;
    for (int64_t i = static_cast<int64_t>(blockIdx.x) * rows_threads + threadIdx.x; i < count;
         i += step) {
        int64_t row = i / words / p.heads, within = i % (words * p.heads) * size;
        const char *from = static_cast<const char *>(p.a.data) +
                           element_of(p, p.a, i / words) * element_bytes + i % words * size;
        *reinterpret_cast<Word *>(static_cast<char *>(p.packed) + row * p.packed_stride + within) =
            *reinterpret_cast<const Word *>(from);
    }
}

__global__ void __launch_bounds__(rows_threads) attention_pack(ta_attention_rows_params p)
{
    if (p.aligned)
        pack_words<ta_vec16>(p, p.element_bytes);
    else
        TA_WORD_SWITCH_IN_KERNEL(p.element_bytes, Word, pack_words<Word>(p, sizeof(Word)))
}

__global__ void __launch_bounds__(rows_threads)
    attention_add(float *into, const float *from, int64_t count)
{
    int64_t step = static_cast<int64_t>(gridDim.x) * rows_threads;
    for (int64_t i = static_cast<int64_t>(blockIdx.x) * rows_threads + threadIdx.x; i < count;
         i += step)
        into[i] += from[i];
}

static dim3 blocks_for(int64_t threads)
{
    int64_t blocks = ta_ceil_div(threads, rows_threads);
    return dim3(static_cast<unsigned>(blocks > INT32_MAX ? INT32_MAX : blocks));
}

static int64_t numbers_of(const ta_attention_rows_params *p)
{
    return static_cast<int64_t>(p->rows) * p->heads * p->dim;
}

ta_launched ta_launch_attention_finish(const ta_attention_rows_params *params, void *stream)
{
    TA_NEED_TYPE("attention_finish", params->dtype);
    dim3 blocks(static_cast<unsigned>(params->rows) * static_cast<unsigned>(params->heads));
    return ta_launched_of(TA_LAUNCH(attention_finish, blocks, rows_threads, 0,
                                    static_cast<hipStream_t>(stream), *params));
}

ta_launched ta_launch_attention_delta(const ta_attention_rows_params *params, void *stream)
{
    TA_NEED_TYPE("attention_delta", params->dtype);
    dim3 blocks = blocks_for(static_cast<int64_t>(params->rows) * params->heads * row_lanes);
    return ta_launched_of(TA_LAUNCH(attention_delta, blocks, rows_threads, 0,
                                    static_cast<hipStream_t>(stream), *params));
}

ta_launched ta_launch_attention_store(const ta_attention_rows_params *params, void *stream)
{
    TA_NEED_TYPE("attention_store", params->dtype);
    return ta_launched_of(TA_LAUNCH(attention_store, blocks_for(numbers_of(params)), rows_threads,
                                    0, static_cast<hipStream_t>(stream), *params));
}

ta_launched ta_launch_attention_pack(const ta_attention_rows_params *params, void *stream)
{
    TA_NEED_TYPE("attention_pack", params->dtype);
    int64_t each = params->aligned ? 16 / params->element_bytes : 1;
    return ta_launched_of(TA_LAUNCH(attention_pack, blocks_for(numbers_of(params) / each),
                                    rows_threads, 0, static_cast<hipStream_t>(stream), *params));
}

ta_launched ta_launch_attention_add(float *into, const float *from, int64_t count, void *stream)
{
    return ta_launched_of(TA_LAUNCH(attention_add, blocks_for(count), rows_threads, 0,
                                    static_cast<hipStream_t>(stream), into, from, count));
}
