/* model_embed, model_norm, model_rope. Grid: one block for each row (token), model_threads threads.
 * model_swiglu, model_add, model_narrow, model_widen, model_bias, model_repeat. Grid: enough blocks
 * for every number once, model_threads threads.
 * model_argmax. Grid: one block of model_threads threads.
 *
 * The passes over rows of a decoder layer, with activations as floats. model.c launches them;
 * device/model.h says what each computes. */
#include "launched.h" /* first: it says what TA_INLINE is for the headers below */

#include "number.h"
#include "params.h"

static const int model_threads = 256;

TA_DEVICE int64_t first_number()
{
    return static_cast<int64_t>(blockIdx.x) * model_threads + threadIdx.x;
}

TA_DEVICE int64_t all_threads()
{
    return static_cast<int64_t>(gridDim.x) * model_threads;
}

__global__ void __launch_bounds__(model_threads) model_embed(ta_model_params p)
{
    int32_t word = p.words[blockIdx.x];
    bool there = word >= 0 && word < p.table_rows;
    float *to = static_cast<float *>(p.to) + blockIdx.x * p.width;
    for (int64_t i = threadIdx.x; i < p.width; i += model_threads) {
        float value = NAN;
        if (there)
            value = ta_load_element(p.dtype, p.from, word * p.stride + i);
        to[i] = value;
    }
}

/* The sum of a block's numbers, on all of its threads; `sums` is free after the next barrier. The
 * order is that of a tree, whatever the wave is. */
TA_DEVICE float block_sum(float *sums, float own)
{
    int thread = static_cast<int>(threadIdx.x);
    sums[thread] = own;
    for (int half = model_threads / 2; half > 0; half /= 2) {
        ta_syncthreads();
        if (thread < half)
            sums[thread] += sums[thread + half];
    }
    ta_syncthreads();
    return sums[0];
}

/* A thread writes only what it alone has read, so that `to` may be `from`. */
__global__ void __launch_bounds__(model_threads) model_norm(ta_model_params p)
{
    TA_SHARED(float, sums, [model_threads]);
    const float *from = static_cast<const float *>(p.from) + blockIdx.x * p.width;
    float *to = static_cast<float *>(p.to) + blockIdx.x * p.width;
    float squares = 0.0f;
    for (int64_t i = threadIdx.x; i < p.width; i += model_threads)
        squares = fmaf(from[i], from[i], squares);
    squares = block_sum(sums, squares);
    float scale = 1.0f / sqrtf(squares / static_cast<float>(p.width) + p.epsilon);
    for (int64_t i = threadIdx.x; i < p.width; i += model_threads)
        to[i] = from[i] * scale * p.more[i];
}

__global__ void __launch_bounds__(model_threads) model_rope(ta_model_params p)
{
    int64_t half = p.width / 2;
    const float *cosines = p.cosines + blockIdx.x * half, *sines = p.sines + blockIdx.x * half;
    float *token = static_cast<float *>(p.to) + blockIdx.x * p.heads * p.width;
    for (int64_t i = threadIdx.x; i < p.heads * half; i += model_threads) {
        float *a = token + i / half * p.width + i % half, *b = a + half;
        float c = cosines[i % half], s = sines[i % half], x = *a, y = *b;
        *a = x * c - y * s;
        *b = y * c + x * s;
    }
}

__global__ void __launch_bounds__(model_threads) model_swiglu(ta_model_params p)
{
    float *gate = static_cast<float *>(p.to);
    for (int64_t i = first_number(); i < p.width; i += all_threads())
        gate[i] = gate[i] / (1.0f + expf(-gate[i])) * p.more[i];
}

__global__ void __launch_bounds__(model_threads) model_add(ta_model_params p)
{
    float *to = static_cast<float *>(p.to);
    for (int64_t i = first_number(); i < p.width; i += all_threads())
        to[i] += p.more[i];
}

__global__ void __launch_bounds__(model_threads) model_bias(ta_model_params p)
{
    float *to = static_cast<float *>(p.to);
    for (int64_t i = first_number(); i < p.rows * p.width; i += all_threads())
        to[i] += p.more[i % p.width];
}

__global__ void __launch_bounds__(model_threads) model_narrow(ta_model_params p)
{
    for (int64_t i = first_number(); i < p.width; i += all_threads())
        ta_store_element(p.dtype, p.to, i, static_cast<const float *>(p.from)[i]);
}

__global__ void __launch_bounds__(model_threads) model_widen(ta_model_params p)
{
    for (int64_t i = first_number(); i < p.width; i += all_threads())
        static_cast<float *>(p.to)[i] = ta_load_element(p.dtype, p.from, i);
}

__global__ void __launch_bounds__(model_threads) model_repeat(ta_model_params p)
{
    int64_t each = p.times * p.width, count = p.rows * p.heads * each;
    for (int64_t i = first_number(); i < count; i += all_threads()) {
        int64_t at = i / each * p.width + i % p.width;
        if (p.element_bytes == 4)
            static_cast<uint32_t *>(p.to)[i] = static_cast<const uint32_t *>(p.from)[at];
        else
            static_cast<uint16_t *>(p.to)[i] = static_cast<const uint16_t *>(p.from)[at];
    }
}

/* Is number `index` ahead of the best one so far? -1 is none; equal ones go by their place. */
TA_DEVICE bool is_ahead(float value, int32_t index, float best_value, int32_t best)
{
    if (index < 0 || value != value)
        return false;
    return best < 0 || value > best_value || (value == best_value && index < best);
}

__global__ void __launch_bounds__(model_threads) model_argmax(ta_model_params p)
{
    TA_SHARED(float, values, [model_threads]);
    TA_SHARED(int32_t, places, [model_threads]);
    const float *from = static_cast<const float *>(p.from);
    int thread = static_cast<int>(threadIdx.x);
    float value = 0.0f;
    int32_t best = -1;
    for (int64_t i = thread; i < p.width; i += model_threads) {
        if (is_ahead(from[i], static_cast<int32_t>(i), value, best)) {
            value = from[i];
            best = static_cast<int32_t>(i);
        }
    }
    values[thread] = value;
    places[thread] = best;
    for (int half = model_threads / 2; half > 0; half /= 2) {
        ta_syncthreads();
        if (thread < half && is_ahead(values[thread + half], places[thread + half], values[thread],
                                      places[thread])) {
            values[thread] = values[thread + half];
            places[thread] = places[thread + half];
        }
    }
    if (thread == 0)
        *static_cast<int32_t *>(p.to) = places[0];
}

/* ---- Launchers ----------------------------------------------------------------------------- */

/* Threads go round if there are more numbers than this many blocks have. */
static unsigned blocks_of(int64_t numbers)
{
    int64_t blocks = (numbers + model_threads - 1) / model_threads;
    return static_cast<unsigned>(blocks < 65536 ? blocks : 65536);
}

#define LAUNCH(kernel, blocks)                                                                     \
    return ta_launched_of(TA_LAUNCH(kernel, dim3(static_cast<unsigned>(blocks)), model_threads, 0, \
                                    static_cast<hipStream_t>(stream), *params))

ta_launched ta_launch_model_embed(const ta_model_params *params, void *stream)
{
    TA_NEED_TYPE("model_embed", params->dtype);
    LAUNCH(model_embed, params->rows);
}

ta_launched ta_launch_model_norm(const ta_model_params *params, void *stream)
{
    LAUNCH(model_norm, params->rows);
}

ta_launched ta_launch_model_rope(const ta_model_params *params, void *stream)
{
    LAUNCH(model_rope, params->rows);
}

ta_launched ta_launch_model_swiglu(const ta_model_params *params, void *stream)
{
    LAUNCH(model_swiglu, blocks_of(params->width));
}

ta_launched ta_launch_model_add(const ta_model_params *params, void *stream)
{
    LAUNCH(model_add, blocks_of(params->width));
}

ta_launched ta_launch_model_bias(const ta_model_params *params, void *stream)
{
    LAUNCH(model_bias, blocks_of(params->rows * params->width));
}

ta_launched ta_launch_model_narrow(const ta_model_params *params, void *stream)
{
    TA_NEED_TYPE("model_narrow", params->dtype);
    LAUNCH(model_narrow, blocks_of(params->width));
}

ta_launched ta_launch_model_widen(const ta_model_params *params, void *stream)
{
    TA_NEED_TYPE("model_widen", params->dtype);
    LAUNCH(model_widen, blocks_of(params->width));
}

ta_launched ta_launch_model_repeat(const ta_model_params *params, void *stream)
{
    LAUNCH(model_repeat, blocks_of(params->rows * params->heads * params->times * params->width));
}

ta_launched ta_launch_model_argmax(const ta_model_params *params, void *stream)
{
    LAUNCH(model_argmax, 1);
}
