/* Numbers of fp32 as sums of numbers of 16 bits, which is what the matrix cores multiply: enough of
 * them that nothing is lost beyond fp32's own rounding, 2 of f16 (11 bits each), 3 of bf16 (8 bits
 * each). The kernels that multiply weights by values use it. Where a plan lets weights be rounded,
 * decode kernels multiply one such number in place of the sum. */
#ifndef TA_HIP_WEIGHTS_H
#define TA_HIP_WEIGHTS_H

#include "device/problem.h"
#include "number.h"

/* A weight in [0, 1] has Type::weight_parts parts. What it is multiplied by first: f16 has few
 * exponents, so 1 is moved to 2^15 near their upper end, and what is lost below the smallest is
 * below 2^-40. */
TA_DEVICE constexpr float ta_weight_scale(ta_type_f16)
{
    return 32768.0f;
}

TA_DEVICE constexpr float ta_weight_scale(ta_type_bf16)
{
    return 1.0f;
}

/* The first part of two weights, which are scaled already, as a word; they become what is left of
 * them. Of bf16 it is the upper half of the bits: what is left is exact, and after 3 parts of 8
 * bits nothing is. A NaN stays one in each part: what exp2 gives has its upper bit set. */
TA_DEVICE uint32_t ta_take_part(ta_type_bf16, float &low, float &high)
{
    uint32_t part = ta_high_halves(ta_as_bits(low), ta_as_bits(high));
    low -= ta_as_float(ta_as_bits(low) & 0xffff0000u);
    high -= ta_as_float(ta_as_bits(high) & 0xffff0000u);
    return part;
}

TA_DEVICE uint32_t ta_take_part(ta_type_f16, float &low, float &high)
{
    uint32_t part = ta_to_f16_pair(low, high);
    low -= ta_from_f16(static_cast<uint16_t>(part));
    high -= ta_from_f16(static_cast<uint16_t>(part >> 16));
    return part;
}

/* Two weights, which are scaled already, rounded to nearest, ties to even: what is cut off would
 * make all sums too small. 1 stays 1, and a NaN one. */
TA_DEVICE uint32_t ta_round_weights(ta_type_bf16, float low, float high)
{
    return ta_to_bf16_pair(low, high);
}

TA_DEVICE uint32_t ta_round_weights(ta_type_f16, float low, float high)
{
    return ta_to_f16_pair(low, high);
}

/* Must weights be exact in this call? */
TA_DEVICE bool ta_keeps_weights(const ta_problem &p)
{
    return ta_uniform(!p.rounds_weights);
}

/* Store the parts of a weight `stride` bytes apart; if it need not be exact, the first place has it
 * rounded, and the others nothing. */
template <class Type>
TA_DEVICE void ta_store_weight(char *to, int32_t stride, float weight, bool exact)
{
    float rest = weight * ta_weight_scale(Type()), none = 0.0f;
    if (!exact) {
        *reinterpret_cast<uint16_t *>(to) =
            static_cast<uint16_t>(ta_round_weights(Type(), rest, none));
        return;
    }
#pragma unroll
    for (int part = 0; part < Type::weight_parts; part++)
        *reinterpret_cast<uint16_t *>(to + part * stride) =
            static_cast<uint16_t>(ta_take_part(Type(), rest, none));
}

/* Bit 15 or 31 is set if that half of a word is an infinity or NaN: one more would be too large an
 * exponent. */
TA_DEVICE uint32_t ta_not_finite(ta_type_f16, uint32_t word)
{
    return ((word & 0x7c007c00u) + 0x04000400u) & 0x80008000u;
}

TA_DEVICE uint32_t ta_not_finite(ta_type_bf16, uint32_t word)
{
    return ((word & 0x7f807f80u) + 0x00800080u) & 0x80008000u;
}

#endif
