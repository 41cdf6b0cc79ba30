/* model_product. Grid: x, one block for each product_waves outputs; y, one for each Rows rows of
 * inputs; product_waves waves.
 *
 * Inputs times weights. A wave has one output, and reads its row of weights once for Rows rows of
 * inputs: of one row it is a read of the weights, which is what this is made for; of many it stands
 * in where there is no BLAS. Inputs stay floats. A sum's order depends on the number of inputs, on
 * `aligned` and on the wave, never on how many rows there are. model.c launches it. */
#include "launched.h" /* first: it says what TA_INLINE is for the headers below */

#include "number.h"
#include "params.h"
#include "softmax.h"

static const int product_waves = 4;
static const int product_most_rows = 8;

/* 16 bytes of weights from element `at` on, times the inputs there. */
template <class Type, int Rows>
TA_DEVICE void multiply_unit(const typename Type::element *weights,
                             const float *const (&from)[Rows], int64_t at, float (&sums)[Rows])
{
    float w[Type::unit];
    Type::unpack(ta_load16_stream(weights + at), w);
#pragma unroll
    for (int row = 0; row < Rows; row++) {
#pragma unroll
        for (int i = 0; i < Type::unit; i += 4) {
            ta_vec16 x = ta_load16(from[row] + at + i);
#pragma unroll
            for (int j = 0; j < 4; j++)
                sums[row] = fmaf(w[i + j], ta_as_float(x.word[j]), sums[row]);
        }
    }
}

template <class Type, int Wave, int Rows>
__global__ void __launch_bounds__(product_waves *Wave) model_product(ta_product_params p)
{
    TA_ONLY_WAVE(Wave);
    typedef typename Type::element element;
    int64_t output = static_cast<int64_t>(blockIdx.x) * product_waves + ta_wave_id();
    int64_t first = static_cast<int64_t>(blockIdx.y) * Rows;
    if (output >= p.w.rows) /* the whole wave */
        return;
    const element *weights = static_cast<const element *>(p.w.data) + output * p.w.stride;
    const float *from[Rows];
    float sums[Rows];
#pragma unroll
    for (int row = 0; row < Rows; row++) {
        /* Rows behind the last are computed as the last, and thrown away. */
        int64_t at = first + row < p.rows ? first + row : p.rows - 1;
        from[row] = p.from + at * p.w.columns;
        sums[row] = 0.0f;
    }
    int64_t units = p.aligned ? p.w.columns / Type::unit : 0;
    for (int64_t unit = ta_lane(); unit < units; unit += Wave)
        multiply_unit<Type, Rows>(weights, from, unit * Type::unit, sums);
    for (int64_t i = units * Type::unit + ta_lane(); i < p.w.columns; i += Wave) {
        float w = Type::from(weights[i]);
#pragma unroll
        for (int row = 0; row < Rows; row++)
            sums[row] = fmaf(w, from[row][i], sums[row]);
    }
    float bias = p.bias ? p.bias[output] : 0.0f;
#pragma unroll
    for (int row = 0; row < Rows; row++) {
        float sum = ta_lanes_sum<Wave>(sums[row]) + bias;
        if (ta_lane() == 0 && first + row < p.rows)
            p.to[(first + row) * p.w.rows + output] = sum;
    }
}

template <class Type, int Wave, int Rows>
static ta_launch_result launch(const ta_product_params *params, void *stream)
{
    unsigned outputs = static_cast<unsigned>((params->w.rows + product_waves - 1) / product_waves);
    unsigned rows = static_cast<unsigned>((params->rows + Rows - 1) / Rows);
    return TA_LAUNCH((model_product<Type, Wave, Rows>), dim3(outputs, rows), product_waves * Wave,
                     0, static_cast<hipStream_t>(stream), *params);
}

ta_launched ta_launch_model_product(const ta_product_params *params, int wave, void *stream)
{
    ta_launch_result result = ta_no_type("model_product", params->w.dtype);
    TA_WAVE_SWITCH(
        wave, Wave,
        TA_TYPE_SWITCH(TA_ALL_TYPES, params->w.dtype, Type,
                       result = params->rows == 1
                                    ? launch<Type, Wave, 1>(params, stream)
                                    : launch<Type, Wave, product_most_rows>(params, stream)))
    return ta_launched_of(result);
}
