/* Element types: one row for each, and exact conversions one number at a time. Whatever differs
 * from type to type in src/ comes from the row, so that a number without a row can't be taken for
 * another type. dtype.c has the table of rows for a type that is only known at run time;
 * host/kernels.h has the tables of functions. SIMD code has its own conversions and is tested
 * against these. */
#ifndef TA_DTYPE_H
#define TA_DTYPE_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#include <treeattn/treeattn.h>

#include "narrow.h"

/* What elements of a type may be; bits. */
typedef enum ta_dtype_role {
    TA_AS_QUERY = 1,
    TA_AS_KV = 2,
    TA_AS_OUT = 4,
    TA_AS_ATTENTION = 8, /* anything of attention over full sequences */
    TA_AS_ANY = 15
} ta_dtype_role;

/* X(suffix, number, bytes of an element, roles, …): the rows in the order of their numbers. The
 * suffix is the type's name; ta_load_SUFFIX() and ta_store_SUFFIX() below convert it. Types of one
 * size that differ in their dialect (8 bits) are rows of their own, whose conversions are one
 * function with the dialect as a constant. */
#define TA_DTYPE_LIST(X, ...)                                                                      \
    TA_DTYPE_WIDE_LIST(X, __VA_ARGS__)                                                             \
    TA_DTYPE_NARROW_LIST(X, __VA_ARGS__)

/* Wide types are those that kernels compute with; narrow ones, of 8 bits, are widened first: as
 * bf16, exactly (host/attend/widen.h). */
#define TA_DTYPE_WIDE_LIST(X, ...)                                                                 \
    X(f32, TA_F32, 4, TA_AS_ANY, __VA_ARGS__)                                                      \
    X(f16, TA_F16, 2, TA_AS_ANY, __VA_ARGS__)                                                      \
    X(bf16, TA_BF16, 2, TA_AS_ANY, __VA_ARGS__)
#define TA_DTYPE_NARROW_LIST(X, ...)                                                               \
    X(e4m3, TA_E4M3, 1, TA_AS_KV, __VA_ARGS__)                                                     \
    X(e5m2, TA_E5M2, 1, TA_AS_KV, __VA_ARGS__)                                                     \
    X(e4m3fnuz, TA_E4M3_FNUZ, 1, TA_AS_KV, __VA_ARGS__)                                            \
    X(e5m2fnuz, TA_E5M2_FNUZ, 1, TA_AS_KV, __VA_ARGS__)

/* One more than the largest number: the size of a table that is indexed by ta_dtype. */
#define TA_DTYPE_COUNT_ROW(suffix, number, bytes, roles, ...) +1
enum { TA_DTYPE_END = 1 TA_DTYPE_LIST(TA_DTYPE_COUNT_ROW, ) };

/* An entry of such a table: TA_DTYPE_LIST(TA_DTYPE_SLOT, load_) are load_f32, load_f16, … */
#define TA_DTYPE_SLOT(suffix, number, bytes, roles, name) [number] = name##suffix,

typedef struct ta_dtype_traits {
    const char *name;     /* "f32" */
    const char *constant; /* "TA_F32" */
    size_t bytes;         /* of an element */
    unsigned roles;       /* of ta_dtype_role */
} ta_dtype_traits;

/* The row of a type; NULL: there is no such type. */
const ta_dtype_traits *ta_dtype_find(ta_dtype dtype);

/* "none" if there is no such type. */
const char *ta_dtype_name(ta_dtype dtype);

/* The bytes of an element; 0 if there is no such type. Here, so that SIMD code has it as a
 * constant. Without a default, so that compilers warn of a number of ta_dtype that has no row. */
static inline size_t ta_dtype_bytes(ta_dtype dtype)
{
    switch (dtype) {
    case TA_DTYPE_NONE:
        break;
#define TA_DTYPE_CASE(suffix, number, bytes, roles, ...)                                           \
    case number:                                                                                   \
        return bytes;
        TA_DTYPE_LIST(TA_DTYPE_CASE, )
#undef TA_DTYPE_CASE
    }
    return 0;
}

/* ---- Numbers ------------------------------------------------------------------------------- */

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

static inline float ta_narrow_to_f32(ta_dtype dtype, uint8_t code)
{
    return ta_float_from_bits(ta_narrow_decode(ta_narrow_format_of(dtype), code));
}

/* Clamped to the largest number: narrow.h. */
static inline uint8_t ta_f32_to_narrow(ta_dtype dtype, float value)
{
    return (uint8_t)ta_narrow_encode(ta_narrow_format_of(dtype), ta_float_bits(value));
}

static inline int ta_dtype_is_narrow(ta_dtype dtype)
{
    return ta_dtype_bytes(dtype) == 1;
}

/* The largest number of a type of 8 bits. */
static inline float ta_narrow_largest(ta_dtype dtype)
{
    return ta_narrow_to_f32(dtype, (uint8_t)ta_narrow_format_of(dtype).largest);
}

/* ---- Elements of an array ------------------------------------------------------------------ */

static inline float ta_load_f32(const void *data, int64_t index)
{
    return ((const float *)data)[index];
}

static inline void ta_store_f32(void *data, int64_t index, float value)
{
    ((float *)data)[index] = value;
}

static inline float ta_load_f16(const void *data, int64_t index)
{
    return ta_f16_to_f32(((const uint16_t *)data)[index]);
}

static inline void ta_store_f16(void *data, int64_t index, float value)
{
    ((uint16_t *)data)[index] = ta_f32_to_f16(value);
}

static inline float ta_load_bf16(const void *data, int64_t index)
{
    return ta_bf16_to_f32(((const uint16_t *)data)[index]);
}

static inline void ta_store_bf16(void *data, int64_t index, float value)
{
    ((uint16_t *)data)[index] = ta_f32_to_bf16(value);
}

#define TA_NARROW_ELEMENTS(suffix, dtype, ...)                                                     \
    static inline float ta_load_##suffix(const void *data, int64_t index)                          \
    {                                                                                              \
        return ta_narrow_to_f32(dtype, ((const uint8_t *)data)[index]);                            \
    }                                                                                              \
    static inline void ta_store_##suffix(void *data, int64_t index, float value)                   \
    {                                                                                              \
        ((uint8_t *)data)[index] = ta_f32_to_narrow(dtype, value);                                 \
    }
TA_DTYPE_NARROW_LIST(TA_NARROW_ELEMENTS, )
#undef TA_NARROW_ELEMENTS

/* Element `index` of an array of any type; NaN if there is no such type. */
static inline float ta_load(ta_dtype dtype, const void *data, int64_t index)
{
    switch (dtype) {
#define TA_DTYPE_CASE(suffix, number, bytes, roles, ...)                                           \
    case number:                                                                                   \
        return ta_load_##suffix(data, index);
        TA_DTYPE_LIST(TA_DTYPE_CASE, )
#undef TA_DTYPE_CASE
    default:
        return NAN;
    }
}

/* Nothing is written if there is no such type. */
static inline void ta_store(ta_dtype dtype, void *data, int64_t index, float value)
{
    switch (dtype) {
#define TA_DTYPE_CASE(suffix, number, bytes, roles, ...)                                           \
    case number:                                                                                   \
        ta_store_##suffix(data, index, value);                                                     \
        break;
        TA_DTYPE_LIST(TA_DTYPE_CASE, )
#undef TA_DTYPE_CASE
    default:
        break;
    }
}

/* The address of element `index`. */
static inline const void *ta_element(ta_dtype dtype, const void *data, int64_t index)
{
    return (const char *)data + index * (int64_t)ta_dtype_bytes(dtype);
}

#endif
