/* Narrow elements, which is those of 8 bits, in kernels. They are widened to bf16, which has all of
 * their numbers, between the load and the product, and from there on everything is as with bf16: so
 * there is one type for all dialects, whose conversion has the dialect as numbers that are the same
 * for all threads.
 *
 * A code without its sign, shifted to the place of a binary32's exponent and fraction, is the
 * number but for a power of two: one product makes it right, subnormal numbers too. base/narrow.h
 * says what the codes mean; what is stored is converted there. */
#ifndef TA_HIP_NARROW_H
#define TA_HIP_NARROW_H

#include "number.h"

#include "base/narrow.h"

struct ta_narrow_rule {
    uint32_t shift;
    float factor;
    uint32_t limit;   /* codes above it, without their sign, are no numbers … */
    uint32_t nan;     /* … and neither is this one; 0x100: there is none */
    uint32_t special; /* bits that then are set: of e5m2 its fraction says whether it is infinite */
    bool e4m3, native; /* native: the device has instructions for the dialect */
};

TA_DEVICE ta_narrow_rule ta_narrow_rule_of(ta_dtype dtype)
{
    bool fnuz = dtype == TA_E4M3_FNUZ || dtype == TA_E5M2_FNUZ;
    bool e4m3 = dtype == TA_E4M3 || dtype == TA_E4M3_FNUZ;
    ta_narrow_rule rule;
    /* 2^(127 − bias) */
    int32_t factor = (127 + 127 - (e4m3 ? 7 : 15) - (fnuz ? 1 : 0)) << 23;
    int32_t limit = fnuz ? 0x7f : e4m3 ? 0x7e : 0x7b, special = fnuz ? 0x7fc00000 : 0x7f800000;
    ta_opaque(factor); /* AMD's devices have too few scalar registers for them */
    ta_opaque(limit);
    ta_opaque(special);
    rule.shift = e4m3 ? 20 : 21;
    rule.factor = ta_as_float(static_cast<uint32_t>(factor));
    rule.limit = static_cast<uint32_t>(limit);
    rule.nan = fnuz ? 0x80u : 0x100u;
    rule.special = static_cast<uint32_t>(special);
    rule.e4m3 = e4m3;
    rule.native = ta_converts_narrow(fnuz);
    return rule;
}

/* The bits of a code's binary32. */
TA_DEVICE uint32_t ta_widen_code(const ta_narrow_rule &rule, uint32_t code)
{
    uint32_t magnitude = code & 0x7fu;
    uint32_t bits = magnitude << rule.shift | (code & 0x80u) << 24;
    uint32_t number = ta_as_bits(ta_as_float(bits) * rule.factor);
    return magnitude > rule.limit || code == rule.nan ? bits | rule.special : number;
}

/* 8 codes, in the first two words, as 8 of bf16. */
TA_DEVICE ta_vec16 ta_widen8(const ta_narrow_rule &rule, const ta_vec16 &from)
{
    ta_vec16 to;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        uint32_t two = from.word[i / 2] >> i % 2 * 16;
        float first, second;
        if (rule.native) {
            ta_convert_narrow(rule.e4m3, two, first, second);
            to.word[i] = ta_high_halves(ta_as_bits(ta_quiet(first)), ta_as_bits(ta_quiet(second)));
        } else {
            to.word[i] = ta_high_halves(ta_widen_code(rule, two & 0xffu),
                                        ta_widen_code(rule, two >> 8 & 0xffu));
        }
    }
    return to;
}

/* Single elements of any type that a cache may have, for copies that convert. */
TA_DEVICE float ta_load_any(ta_dtype dtype, const void *data, int64_t index)
{
    if (ta_type_is_narrow(dtype))
        return ta_as_float(ta_narrow_decode(ta_narrow_format_of(dtype),
                                            static_cast<const uint8_t *>(data)[index]));
    return ta_load_element(dtype, data, index);
}

TA_DEVICE void ta_store_any(ta_dtype dtype, void *data, int64_t index, float value)
{
    if (ta_type_is_narrow(dtype))
        static_cast<uint8_t *>(data)[index] =
            static_cast<uint8_t>(ta_narrow_encode(ta_narrow_format_of(dtype), ta_as_bits(value)));
    else
        ta_store_element(dtype, data, index, value);
}

#endif
