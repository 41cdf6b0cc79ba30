/* Narrow numbers, which is those of 8 bits: what tells their dialects apart, and exact conversions
 * from and to the bits of a binary32, one number at a time and in integers alone. C and HIP code
 * include this file. dtype.h makes elements of it, host/attend/widen.h widens many bytes at a time;
 * both are tested against tests/lib/number.c.
 *
 * A number is sign · 2^(exponent − bias) · 1.fraction, or with an exponent of 0 sign · 2^(1 − bias)
 * · 0.fraction. OCP's e4m3 and e5m2 have a negative zero and several NaN; FNUZ has one NaN, 0x80,
 * where the others have −0, and a bias that is one larger. */
#ifndef TA_NARROW_H
#define TA_NARROW_H

#include <stdint.h>

#include <treeattn/treeattn.h>

#include "inline.h"

typedef struct ta_narrow_format {
    int32_t fraction_bits, bias;
    uint32_t largest; /* the code of the largest number */
    uint32_t nan;     /* a code of NaN; 0x80: FNUZ */
    uint32_t limit;   /* codes above it, without their sign, are NaN; one above `largest`: +inf */
} ta_narrow_format;

/* Of a type of 8 bits; zeros for any other. */
TA_INLINE ta_narrow_format ta_narrow_format_of(ta_dtype dtype)
{
    ta_narrow_format f = {0, 0, 0, 0, 0};
    if (dtype == TA_E4M3) {
        ta_narrow_format e4m3 = {3, 7, 0x7e, 0x7f, 0x7e};
        f = e4m3;
    } else if (dtype == TA_E5M2) {
        ta_narrow_format e5m2 = {2, 15, 0x7b, 0x7e, 0x7c};
        f = e5m2;
    } else if (dtype == TA_E4M3_FNUZ) {
        ta_narrow_format e4m3fnuz = {3, 8, 0x7f, 0x80, 0x7f};
        f = e4m3fnuz;
    } else if (dtype == TA_E5M2_FNUZ) {
        ta_narrow_format e5m2fnuz = {2, 16, 0x7f, 0x80, 0x7f};
        f = e5m2fnuz;
    }
    return f;
}

/* The bits of the binary32 that a code means. All of them are numbers of bf16 too. */
TA_INLINE uint32_t ta_narrow_decode(ta_narrow_format f, uint32_t code)
{
    uint32_t sign = (code & 0x80u) << 24, magnitude = code & 0x7fu;
    if (magnitude > f.limit || (f.nan == 0x80u && code == 0x80u))
        return 0x7fc00000u;
    if (magnitude > f.largest)
        return sign | 0x7f800000u;
    if (magnitude >> f.fraction_bits)
        return sign | ((magnitude << (23 - f.fraction_bits)) + ((uint32_t)(127 - f.bias) << 23));
    if (magnitude == 0)
        return sign;
    /* Subnormal: below 8, its highest bit becomes the hidden one. */
    int32_t highest = magnitude >= 4 ? 2 : magnitude >= 2 ? 1 : 0;
    uint32_t exponent = (uint32_t)(127 + 1 - f.bias - f.fraction_bits + highest);
    return sign | exponent << 23 | (magnitude << (23 - highest) & 0x7fffffu);
}

/* The code of a binary32: rounded to nearest, ties to even. What is beyond the largest number
 * becomes that number, an infinity too, so that a cache gets no NaN that was not given; a NaN stays
 * one. FNUZ has no −0: it becomes 0. */
TA_INLINE uint32_t ta_narrow_encode(ta_narrow_format f, uint32_t bits)
{
    /* Without a branch, so that compilers make vectors of it. */
    uint32_t magnitude = bits & 0x7fffffffu, sign = bits >> 24 & 0x80u;
    int32_t dropped = 23 - f.fraction_bits;
    uint32_t rounded = magnitude + ((1u << (dropped - 1)) - 1u) + (magnitude >> dropped & 1u);
    uint32_t normal = (rounded - ((uint32_t)(127 - f.bias) << 23)) >> dropped;
    /* Below the smallest normal number it is counted in steps of the subnormal ones. */
    int32_t below = 127 + 1 - f.bias - (int32_t)(magnitude >> 23), by = dropped + below;
    uint32_t shift = (uint32_t)(by > 25 ? 25 : by < 1 ? 1 : by);
    uint32_t whole = (magnitude & 0x7fffffu) | (magnitude >> 23 ? 0x800000u : 0u);
    uint32_t rest = whole & ((1u << shift) - 1u), half = 1u << (shift - 1u);
    uint32_t steps = whole >> shift;
    steps += (rest > half ? 1u : 0u) | (rest == half ? steps & 1u : 0u);
    uint32_t code = below > 0 ? steps : normal;
    code = code > f.largest ? f.largest : code;
    sign = f.nan == 0x80u && code == 0 ? 0u : sign;
    uint32_t nan = f.nan == 0x80u ? f.nan : f.nan | sign;
    return magnitude > 0x7f800000u ? nan : code | sign;
}

#endif
