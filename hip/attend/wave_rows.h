/* What a wave of the direct kernels (direct_wave.h) and of attend_latent (latent_wave.h) knows of
 * its query rows: the largest score and the sum of the weights, how the scores of a tile become
 * weights and operands, and how o takes these. A lane has 4 of 16 tokens of each of its rows. */
#ifndef TA_HIP_WAVE_ROWS_H
#define TA_HIP_WAVE_ROWS_H

#include "direct_lanes.h"

/* Queries may be aligned to their elements alone. If another kernel took those, ranks whose queries
 * are aligned differently would have other bits. */
TA_DEVICE uint32_t ta_load_halves(const char *from)
{
    const uint16_t *halves = reinterpret_cast<const uint16_t *>(from);
    return halves[0] | static_cast<uint32_t>(halves[1]) << 16;
}

TA_DEVICE bool ta_is_multiple(const char *address, uint32_t bytes)
{
    return reinterpret_cast<uintptr_t>(address) % bytes == 0;
}

template <class Type, int Wave, int Slots> struct ta_wave_rows {
    typedef ta_lanes<Wave> lanes;

    float m[Slots], l[Slots]; /* l of this lane's tokens alone */

    __device__ __forceinline__ void start_rows()
    {
#pragma unroll
        for (int r = 0; r < Slots; r++) {
            m[r] = -INFINITY;
            l[r] = 0.0f;
        }
    }

    /* Scores of a row become weights, and m and l are brought up to date. Returns what o must be
     * multiplied by. A NaN makes its weight and then l NaN, never m. */
    __device__ __forceinline__ float weigh(float (&x)[4], int r)
    {
        float largest = fmaxf(fmaxf(x[0], x[1]), fmaxf(x[2], x[3]));
        largest = fmaxf(m[r], largest);
#pragma unroll
        for (int mask = lanes::first_mask; mask < lanes::end_mask; mask *= 2)
            largest = fmaxf(largest, ta_shfl_xor(largest, mask));
        /* Nothing seen yet: a difference to -inf would be NaN. */
        float base = largest == -INFINITY ? 0.0f : largest;
        float rescale = ta_exp2(m[r] - base);
        m[r] = largest;
#pragma unroll
        for (int i = 0; i < 4; i++)
            x[i] = ta_exp2(x[i] - base);
        l[r] = fmaf(l[r], rescale, (x[0] + x[1]) + (x[2] + x[3]));
        return rescale;
    }

    /* In a wave of 32 with one slot nobody looks at rows g + 8. Words of no meaning, because the
     * compiler would put ones that it knows into their places for each product again. */
    static __device__ __forceinline__ void fill_other_rows(const float (&x)[4], uint32_t (&w)[4])
    {
        if (Wave == 32 && Slots == 1) {
            w[1] = ta_low_halves(ta_as_bits(x[0]), ta_as_bits(x[1]));
            w[3] = ta_low_halves(ta_as_bits(x[2]), ta_as_bits(x[3]));
        }
    }

    /* The weights of a row as words of an operand: if they must be exact in parts, of which the
     * first is the largest, else rounded, and without the other parts. */
    __device__ __forceinline__ void
    take_weights(float (&x)[4], int r, uint32_t (&w)[Type::weight_parts][4], bool exact) const
    {
        if (ta_weight_scale(Type()) != 1.0f)
#pragma unroll
            for (int i = 0; i < 4; i++)
                x[i] *= ta_weight_scale(Type());
        if (!exact) {
            w[0][r] = ta_round_weights(Type(), x[0], x[1]);
            w[0][r + 2] = ta_round_weights(Type(), x[2], x[3]);
            fill_other_rows(x, w[0]);
            return;
        }
#pragma unroll
        for (int part = 0; part < Type::weight_parts; part++) {
            w[part][r] = ta_take_part(Type(), x[0], x[1]);
            w[part][r + 2] = ta_take_part(Type(), x[2], x[3]);
            fill_other_rows(x, w[part]);
        }
    }

    /* o = o · rescale + weights · values, in the columns of product t; with Some only of the rows
     * in `rows`, a bit for each slot. */
    template <bool Some, int Products>
    static __device__ __forceinline__ void
    add_product(const uint32_t (&w)[Type::weight_parts][4], bool exact, const uint32_t (&values)[2],
                const float (&rescale)[Slots], uint32_t rows, int t,
                float (&o)[Slots][Products][lanes::elements])
    {
        float c[4] = {0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll
        for (int part = Type::weight_parts - 1; part >= 0; part--)
            if (part == 0 || exact)
                ta_multiply_rows<Type, Wave>(c, w[part], values);
#pragma unroll
        for (int e = 0; e < Slots * lanes::elements; e++) {
            int r = e / lanes::elements;
            float &sum = o[r][t][e % lanes::elements];
            if (!Some || rows >> r & 1)
                sum = fmaf(sum, rescale[r], c[e]);
        }
    }

    /* The sum of the weights of a row, of all lanes that share it. */
    __device__ __forceinline__ float whole_l(int r) const
    {
        float sum = l[r];
#pragma unroll
        for (int mask = lanes::first_mask; mask < lanes::end_mask; mask *= 2)
            sum += ta_shfl_xor(sum, mask);
        return sum;
    }
};

#endif
