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

/* ---- Two at a time ----
 *
 * The same in both halves of a word, where the codes go straight to registers of an operand: a code
 * in the upper byte of a half, shifted to the place of bf16's exponent and fraction, times a power
 * of two. What is no number is found by an addition that makes the highest bit of its half 1. */

struct ta_pair_rule {
    uint32_t shift;
    uint32_t factor;  /* bf16, in both halves, as all of these */
    uint32_t above;   /* plus a magnitude: its highest bit is 1 if that is above the limit … */
    uint32_t fnuz;    /* … or with all bits here: if it is not 0, else its code may be 0x80 */
    uint32_t special; /* bits that then are set, as in ta_narrow_rule */
};

TA_DEVICE ta_pair_rule ta_pair_rule_of(ta_dtype dtype)
{
    bool fnuz = dtype == TA_E4M3_FNUZ || dtype == TA_E5M2_FNUZ;
    bool e4m3 = dtype == TA_E4M3 || dtype == TA_E4M3_FNUZ;
    uint32_t exponent = 127u + 127u - (e4m3 ? 7u : 15u) - (fnuz ? 1u : 0u);
    ta_pair_rule rule;
    int32_t factor = static_cast<int32_t>(exponent << 7 | exponent << 23);
    int32_t above = fnuz ? 0x7f007f00 : e4m3 ? 0x01000100 : 0x04000400;
    int32_t special = fnuz ? 0x7fc07fc0 : 0x7f807f80;
    ta_opaque(factor); /* as above */
    ta_opaque(above);
    ta_opaque(special);
    rule.shift = e4m3 ? 4u : 3u;
    rule.factor = static_cast<uint32_t>(factor);
    rule.above = static_cast<uint32_t>(above);
    rule.fnuz = fnuz ? ~0u : 0u;
    rule.special = static_cast<uint32_t>(special);
    return rule;
}

/* Has the device an instruction for the dialect that is worth a version of a loop? */
TA_DEVICE bool ta_pairs_native(ta_dtype dtype)
{
    return (dtype == TA_E4M3 && ta_converts_narrow(false)) ||
           (dtype == TA_E4M3_FNUZ && ta_converts_narrow(true));
}

/* The first two codes of a word, or of Half 1 the last, as two of bf16. Native: by the instruction,
 * of whose dialect they are. */
template <bool Native, int Half>
TA_DEVICE uint32_t ta_widen_pair(const ta_pair_rule &rule, uint32_t codes)
{
    if constexpr (Native) {
        float first, second;
        ta_convert_narrow(true, codes >> 16 * Half, first, second);
        return ta_high_halves(ta_as_bits(ta_quiet(first)), ta_as_bits(ta_quiet(second)));
    } else {
        uint32_t x = ta_spread_bytes<Half>(codes), magnitude = x & 0x7f007f00u;
        uint32_t number = ta_scale_pair(magnitude >> rule.shift | (x & 0x80008000u), rule.factor);
        uint32_t found = magnitude + rule.above;
        found = (found & ~rule.fnuz) | (x & ~found & rule.fnuz);
        return number | (ta_spread_signs(found) & rule.special);
    }
}

/* Not 0 if one of 4 codes is no finite number. */
TA_DEVICE uint32_t ta_find_special(const ta_pair_rule &rule, uint32_t codes)
{
    uint32_t found = (codes & 0x7f7f7f7fu) + (rule.above | rule.above >> 8);
    return ((found & ~rule.fnuz) | (codes & ~found & rule.fnuz)) & 0x80808080u;
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
