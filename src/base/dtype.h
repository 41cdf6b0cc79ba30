/* Element types: their sizes and names, and exact conversions one number at a time. SIMD code has
 * its own conversions and is tested against these. */
#ifndef TA_DTYPE_H
#define TA_DTYPE_H

#include <stdint.h>
#include <string.h>

#include <treeattn/treeattn.h>

static inline int ta_dtype_valid(ta_dtype dtype)
{
    return dtype == TA_F32 || dtype == TA_F16 || dtype == TA_BF16;
}

static inline size_t ta_dtype_bytes(ta_dtype dtype)
{
    return dtype == TA_F32 ? 4 : 2;
}

static inline const char *ta_dtype_name(ta_dtype dtype)
{
    switch (dtype) {
    case TA_F32:
        return "f32";
    case TA_F16:
        return "f16";
    case TA_BF16:
        return "bf16";
    default:
        return "none";
    }
}

static inline float ta_float_from_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline uint32_t ta_float_bits(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static inline float ta_bf16_to_f32(uint16_t half)
{
    return ta_float_from_bits((uint32_t)half << 16);
}

/* Round to nearest, ties to even; a NaN stays a (quiet) NaN. */
static inline uint16_t ta_f32_to_bf16(float value)
{
    uint32_t bits = ta_float_bits(value);
    if ((bits & 0x7fffffffu) > 0x7f800000u)
        return (uint16_t)((bits >> 16) | 0x40u);
    return (uint16_t)((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

static inline float ta_f16_to_f32(uint16_t half)
{
    uint32_t sign = (uint32_t)(half & 0x8000u) << 16;
    uint32_t exponent = (half >> 10) & 0x1fu;
    uint32_t fraction = half & 0x3ffu;
    if (exponent == 0x1fu) /* infinity, or a NaN made quiet */
        return ta_float_from_bits(sign | 0x7f800000u | fraction << 13 |
                                  (fraction ? 0x400000u : 0u));
    if (exponent == 0) { /* zero or subnormal: an integer times 2^-24, exact in binary32 */
        float value = (float)fraction * 0x1p-24f;
        return sign ? -value : value;
    }
    return ta_float_from_bits(sign | (exponent + 112u) << 23 | fraction << 13);
}

/* Round to nearest, ties to even; beyond the largest finite number to infinity. */
static inline uint16_t ta_f32_to_f16(float value)
{
    uint32_t bits = ta_float_bits(value);
    uint16_t sign = (uint16_t)((bits >> 16) & 0x8000u);
    uint32_t magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u)
        return (uint16_t)(sign | 0x7e00u | ((magnitude >> 13) & 0x3ffu));
    if (magnitude >= 0x477ff000u) /* 65520 and up round to infinity */
        return (uint16_t)(sign | 0x7c00u);
    if (magnitude < 0x38800000u) {
        /* Subnormal: adding 0.5 leaves value / 2^-24, rounded to even, in the low fraction bits. */
        float shifted = ta_float_from_bits(magnitude) + 0.5f;
        return (uint16_t)(sign | (ta_float_bits(shifted) - 0x3f000000u));
    }
    uint32_t rounded = magnitude + 0xfffu + ((magnitude >> 13) & 1u);
    return (uint16_t)(sign | ((rounded - 0x38000000u) >> 13));
}

/* Element `index` of an array of any type. */
static inline float ta_load(ta_dtype dtype, const void *data, int64_t index)
{
    switch (dtype) {
    case TA_F32:
        return ((const float *)data)[index];
    case TA_F16:
        return ta_f16_to_f32(((const uint16_t *)data)[index]);
    default:
        return ta_bf16_to_f32(((const uint16_t *)data)[index]);
    }
}

static inline void ta_store(ta_dtype dtype, void *data, int64_t index, float value)
{
    switch (dtype) {
    case TA_F32:
        ((float *)data)[index] = value;
        break;
    case TA_F16:
        ((uint16_t *)data)[index] = ta_f32_to_f16(value);
        break;
    default:
        ((uint16_t *)data)[index] = ta_f32_to_bf16(value);
        break;
    }
}

/* The address of element `index`. */
static inline const void *ta_element(ta_dtype dtype, const void *data, int64_t index)
{
    return (const char *)data + index * (int64_t)ta_dtype_bytes(dtype);
}

#endif
