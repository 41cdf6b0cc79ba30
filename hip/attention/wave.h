/* What a wave of the kernels for matrix cores does with the 16 · Steps rows of a stage (stage.h):
 * dot products with 16 rows of its own, and sums of its rows by weights. forward_mma.hip and
 * backward_mma.hip are made of it.
 *
 * Which lane has what is as in the direct kernels (attend/direct_lanes.h). What follows from it: a
 * score is where the product that uses it as a weight wants it, so weights never leave their
 * registers. Waves of 32 take the rows of a stage as B by ldmatrix, waves of 64 as A by loads of 16
 * bytes, with the elements numbered alike in both operands. */
#ifndef TA_HIP_ATTENTION_WAVE_H
#define TA_HIP_ATTENTION_WAVE_H

#include "attend/direct_lanes.h"
#include "stage.h"

/* 16 rows of the wave's own as operands: kept in registers, or, where those are too few, read from
 * shared memory each time. Operand k has 16 elements of each row, which they are is as each width
 * has them in ta_multiply_rows() too. */
template <int Dim, int Wave, bool Kept> struct ta_own_rows {
    ta_operand<Wave> kept[Kept ? Dim / 16 : 1];
    const char *stage;
    int32_t first;

    __device__ __forceinline__ void load(const char *from, int32_t row)
    {
        stage = from;
        first = row;
        if constexpr (Kept) {
#pragma unroll
            for (int k = 0; k < Dim / 16; k += 2)
                load_two(k, kept[k], kept[k + 1]);
        }
    }

    __device__ __forceinline__ void load_two(int k, ta_operand<Wave> &a, ta_operand<Wave> &b) const
    {
        int32_t at = ta_stage<Dim>::at_first(ta_lane() % 16, ta_lane() / 16);
        const char *from = stage + first * ta_stage<Dim>::row_bytes;
        if constexpr (Wave == 32) {
            a = ta_load_matrices(from + ta_stage<Dim>::at_pair(at, k));
            b = ta_load_matrices(from + ta_stage<Dim>::at_pair(at, k + 1));
        } else {
            ta_vec16 x = ta_load16(from + ta_stage<Dim>::at_pair(at, k));
            a = ta_operand<Wave>{{x.word[0], x.word[1]}};
            b = ta_operand<Wave>{{x.word[2], x.word[3]}};
        }
    }

    __device__ __forceinline__ void get_two(int k, ta_operand<Wave> &a, ta_operand<Wave> &b) const
    {
        if constexpr (Kept) {
            a = kept[k];
            b = kept[k + 1];
        } else {
            load_two(k, a, b);
        }
    }
};

/* How many of its own rows a lane has scores of, and of which row and column element (slot, i) of
 * the scores with 16 · Steps rows is. */
template <int Wave> constexpr int ta_own_slots = Wave == 32 ? 2 : 1;

template <int Wave> TA_DEVICE int32_t ta_score_column(int i)
{
    return i / 4 * 16 + ta_lanes<Wave>::v_token(i % 4);
}

/* The dot products of the wave's own rows with all rows of a stage. Columns from `dim` on are
 * zeros in both: of 256 dimensions waves of 32 leave them out, those of 64 have no scalar registers
 * for it. */
template <class Type, int Dim, int Wave, int Steps, bool Kept>
TA_DEVICE void ta_multiply_rows(const ta_own_rows<Dim, Wave, Kept> &own, const char *stage,
                                int32_t dim, float (&dots)[ta_own_slots<Wave>][Steps * 4])
{
    int32_t lane = ta_lane();
    const int32_t at = Wave == 32 ? ta_stage<Dim>::at_first(lane % 8 + lane / 16 * 8, lane / 8 % 2)
                                  : ta_stage<Dim>::at_first(lane % 16, lane / 16);
    ta_product<Wave> c[Steps];
#pragma unroll
    for (int i = 0; i < Steps; i++)
        ta_product_clear(c[i]);
#pragma unroll
    for (int k = 0; k < Dim / 16; k += 2) {
        if (Wave == 32 && Dim == 256 && k * 16 >= dim)
            continue;
        ta_operand<Wave> a, b;
        own.get_two(k, a, b);
#pragma unroll
        for (int i = 0; i < Steps; i++) {
            const char *from = stage + i * 16 * ta_stage<Dim>::row_bytes;
            if constexpr (Wave == 32) {
                ta_mma<Type>(c[i], a, ta_load_matrices(from + ta_stage<Dim>::at_pair(at, k)));
                ta_mma<Type>(c[i], b, ta_load_matrices(from + ta_stage<Dim>::at_pair(at, k + 1)));
            } else {
                ta_vec16 x = ta_load16(from + ta_stage<Dim>::at_pair(at, k));
                ta_mma<Type>(c[i], ta_operand<Wave>{{x.word[0], x.word[1]}}, a);
                ta_mma<Type>(c[i], ta_operand<Wave>{{x.word[2], x.word[3]}}, b);
            }
        }
    }
#pragma unroll
    for (int i = 0; i < Steps * 4; i++)
#pragma unroll
        for (int slot = 0; slot < ta_own_slots<Wave>; slot++)
            dots[slot][i] = c[i / 4].x[Wave == 32 ? i % 4 / 2 * 4 + slot * 2 + i % 2 : i % 4];
}

/* Scores that became weights, as operands: their parts, words of 16 rows each. */
template <class Type, int Wave> struct ta_weight_words {
    uint32_t word[Type::weight_parts][4]; /* as ta_multiply_rows() takes them */

    /* `x` are the weights of 16 rows with one of the wave's own, scaled already. */
    __device__ __forceinline__ void take(float (&x)[4], int slot)
    {
#pragma unroll
        for (int part = 0; part < Type::weight_parts; part++) {
            word[part][slot] = ta_take_part(Type(), x[0], x[1]);
            word[part][slot + 2] = ta_take_part(Type(), x[2], x[3]);
        }
    }
};

/* Sums over rows of a stage that a wave has, for 16 rows of its own: how many products a row of Dim
 * columns takes, elements of each that a lane has of a row, and the column of one. */
template <int Dim, int Wave> struct ta_sums {
    static const int slots = ta_own_slots<Wave>;
    static const int products = Dim / ta_lanes<Wave>::columns;
    static const int elements = ta_lanes<Wave>::elements;
    float x[slots][products][elements];

    __device__ __forceinline__ void clear()
    {
#pragma unroll
        for (int i = 0; i < slots * products * elements; i++)
            x[i / (products * elements)][i / elements % products][i % elements] = 0.0f;
    }

    TA_DEVICE int32_t column(int product, int element)
    {
        if constexpr (Wave == 32)
            return product * 8 + ta_lane() % 4 * 2 + element;
        else
            return ta_value_column<Wave, Dim>(product, element);
    }

    /* One product more. `factor` is of each row: what the sums so far are multiplied by if
     * Rescales, else the product. */
    template <bool Rescales>
    __device__ __forceinline__ void add(int product, const float (&c)[4],
                                        const float (&factor)[slots])
    {
#pragma unroll
        for (int e = 0; e < slots * elements; e++) {
            float &sum = x[e / elements][product][e % elements];
            sum = Rescales ? fmaf(sum, factor[e / elements], c[e])
                           : fmaf(c[e], factor[e / elements], sum);
        }
    }
};

/* sums = sums · factor + weights · rows of the stage, or if not Rescales, sums + factor · weights ·
 * rows. Columns from `dim` on are left out if they are many. */
template <class Type, bool Rescales, int Dim, int Steps>
TA_DEVICE void ta_add_rows(const ta_weight_words<Type, 32> (&weights)[Steps], const char *stage,
                           int32_t dim, const float (&factor)[2], ta_sums<Dim, 32> &sums)
{
    const int32_t at = ta_stage<Dim>::at_first(ta_lane() % 16, ta_lane() / 16);
    const int at_once = 2; /* so that products do not wait for each other */
#pragma unroll
    for (int n = 0; n < Dim / 16; n += at_once) {
        if (Dim == 256 && n * 16 >= dim)
            continue;
        float c[at_once * 2][4] = {};
#pragma unroll
        for (int i = 0; i < Steps; i++) {
            const char *from = stage + i * 16 * ta_stage<Dim>::row_bytes;
            ta_operand<32> v[at_once];
#pragma unroll
            for (int j = 0; j < at_once; j++)
                v[j] = ta_load_matrices_transposed(from + ta_stage<Dim>::at_pair(at, n + j));
#pragma unroll
            for (int part = Type::weight_parts - 1; part >= 0; part--)
#pragma unroll
                for (int j = 0; j < at_once * 2; j++) {
                    uint32_t values[2] = {v[j / 2].word[j % 2 * 2], v[j / 2].word[j % 2 * 2 + 1]};
                    ta_multiply_rows<Type, 32>(c[j], weights[i].word[part], values);
                }
        }
#pragma unroll
        for (int j = 0; j < at_once * 2; j++)
            sums.template add<Rescales>(2 * n + j, c[j], factor);
        /* Never so. Without a branch more rows would be loaded ahead than there are registers
         * for. */
        if (n + at_once == Dim / 32 && dim < 0)
            return;
    }
}

template <class Type, bool Rescales, int Dim, int Steps>
TA_DEVICE void ta_add_rows(const ta_weight_words<Type, 64> (&weights)[Steps], const char *stage,
                           int32_t, const float (&factor)[1], ta_sums<Dim, 64> &sums)
{
    typedef ta_v_words<64, Dim> v_words;
    typedef ta_lanes<64> lanes;
    const int products = ta_sums<Dim, 64>::products;
    float c[products][4] = {};
#pragma unroll
    for (int i = 0; i < Steps; i++) {
        uint32_t v[4][v_words::words];
#pragma unroll
        for (int j = 0; j < 4 * v_words::loads; j++) {
            int32_t byte = (lanes::v_chunk() + j / 4 * v_words::chunks) * v_words::bytes;
            const char *from = stage + i * 16 * ta_stage<Dim>::row_bytes + byte % 16 +
                               ta_stage<Dim>::at(lanes::v_token(j % 4), byte / 16);
            if constexpr (v_words::bytes == 8) {
                ta_vec8 x = *reinterpret_cast<const ta_vec8 *>(from);
                v[j][0] = x.word[0];
                v[j][1] = x.word[1];
            } else {
                ta_vec16 x = ta_load16(from);
#pragma unroll
                for (int w = 0; w < 4; w++)
                    v[j % 4][j / 4 * 4 + w] = x.word[w];
            }
        }
#pragma unroll
        for (int t = 0; t < products; t++) {
            uint32_t values[2];
            ta_take_values(v, t, values);
#pragma unroll
            for (int part = Type::weight_parts - 1; part >= 0; part--)
                ta_multiply_rows<Type, 64>(c[t], weights[i].word[part], values);
        }
    }
#pragma unroll
    for (int t = 0; t < products; t++)
        sums.template add<Rescales>(t, c[t], factor);
}

/* Sums that must see an element that is not finite become NaN, and stay so; then the element may be
 * hidden from all, and other sums have the bits that they always have. `sees(slot, row of the
 * stage)` says whether one of the wave's own rows sees it. */
template <class Type, int Rows, int Dim, int Wave, class Sees>
TA_DEVICE void ta_show_not_finite(const char *stage, ta_sums<Dim, Wave> &sums, Sees sees)
{
    const int elements = ta_sums<Dim, Wave>::elements;
#pragma unroll
    for (int i = 0; i < ta_sums<Dim, Wave>::products * elements; i++) {
        int32_t column = ta_sums<Dim, Wave>::column(i / elements, i % elements);
#pragma unroll 1
        for (int32_t row = 0; row < Rows; row++) {
            const char *from = stage + ta_stage<Dim>::at(row, column / 8) + column % 8 * 2;
            bool finite = ta_not_finite(Type(), *reinterpret_cast<const uint16_t *>(from)) == 0;
#pragma unroll
            for (int slot = 0; slot < ta_own_slots<Wave>; slot++)
                if (!finite && sees(slot, row))
                    sums.x[slot][i / elements][i % elements] = NAN;
        }
    }
}

#endif
