/* Element types in double arithmetic: see number.h. */
#include "number.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct format {
    const char *name;
    int bytes;
    int precision;    /* significant bits, the hidden one included */
    int min_exponent; /* of the smallest normal number */
    int max_exponent;
    uint32_t poison;
    double largest; /* of 8 bits: what is beyond becomes it */
    bool fnuz;      /* 0x80 is the only NaN, and there is no negative zero */
} format;

static const format formats[NUMBER_NARROW_END] = {
    [TA_F32] = {"f32", 4, 24, -126, 127, 0x7fe5a5a5u, 0, false},
    [TA_F16] = {"f16", 2, 11, -14, 15, 0x7fa5u, 0, false},
    [TA_BF16] = {"bf16", 2, 8, -126, 127, 0x7fe5u, 0, false},
    [TA_E4M3] = {"e4m3", 1, 4, -6, 8, 0xffu, 448, false},
    [TA_E5M2] = {"e5m2", 1, 3, -14, 15, 0xfdu, 57344, false},
    [TA_E4M3_FNUZ] = {"e4m3fnuz", 1, 4, -7, 7, 0x80u, 240, true},
    [TA_E5M2_FNUZ] = {"e5m2fnuz", 1, 3, -15, 15, 0x80u, 57344, true},
};

static const format *format_of(ta_dtype dtype)
{
    int number = (int)dtype;
    if (number < 0 || number >= NUMBER_NARROW_END || !formats[number].name) {
        fprintf(stderr, "dtype %d has no row in tests/lib/number.c\n", number);
        abort();
    }
    return &formats[number];
}

const char *number_name(ta_dtype dtype)
{
    return format_of(dtype)->name;
}

size_t number_bytes(ta_dtype dtype)
{
    return (size_t)format_of(dtype)->bytes;
}

static uint32_t load_bits(ta_dtype dtype, const void *data, int64_t index)
{
    uint32_t wide;
    uint16_t narrow;
    if (format_of(dtype)->bytes == 1)
        return ((const uint8_t *)data)[index];
    if (format_of(dtype)->bytes == 4) {
        memcpy(&wide, (const char *)data + 4 * index, 4);
        return wide;
    }
    memcpy(&narrow, (const char *)data + 2 * index, 2);
    return narrow;
}

static void store_bits(ta_dtype dtype, void *data, int64_t index, uint32_t bits)
{
    uint16_t narrow = (uint16_t)bits;
    if (format_of(dtype)->bytes == 1)
        ((uint8_t *)data)[index] = (uint8_t)bits;
    else if (format_of(dtype)->bytes == 4)
        memcpy((char *)data + 4 * index, &bits, 4);
    else
        memcpy((char *)data + 2 * index, &narrow, 2);
}

/* A byte, by the definition of its dialect. */
static double decode_narrow(const format *f, ta_dtype dtype, uint32_t bits)
{
    int fraction_bits = f->precision - 1, code = (int)(bits & 0x7fu);
    double sign = bits & 0x80u ? -1 : 1;
    int field = code >> fraction_bits, fraction = code % (1 << fraction_bits);
    if (f->fnuz ? bits == 0x80u : dtype == TA_E4M3 ? code == 0x7f : code > 0x7c)
        return NAN;
    if (dtype == TA_E5M2 && code == 0x7c)
        return sign * INFINITY;
    return sign * ldexp(fraction + (field ? 1 << fraction_bits : 0),
                        (field ? field - 1 : 0) + f->min_exponent - fraction_bits);
}

double number_decode(ta_dtype dtype, const void *data, int64_t index)
{
    const format *f = format_of(dtype);
    uint32_t bits = load_bits(dtype, data, index);
    if (f->bytes == 1)
        return decode_narrow(f, dtype, bits);
    int fraction_bits = f->precision - 1;
    uint32_t fraction = bits & ((1u << fraction_bits) - 1);
    int top = f->max_exponent - f->min_exponent + 2; /* the exponent field of infinity and NaN */
    int field = (int)(bits >> fraction_bits) & (2 * f->max_exponent + 1);
    double sign = bits >> (8 * f->bytes - 1) ? -1 : 1;
    if (field == top)
        return fraction ? NAN : sign * INFINITY;
    double significand = fraction + (field ? ldexp(1, fraction_bits) : 0);
    int exponent = (field ? field - 1 : 0) + f->min_exponent - fraction_bits;
    return sign * ldexp(significand, exponent);
}

/* The distance between neighbouring numbers at this magnitude. */
static double spacing(const format *f, double magnitude)
{
    int exponent = magnitude > 0 ? ilogb(magnitude) : f->min_exponent;
    if (exponent < f->min_exponent)
        exponent = f->min_exponent;
    return ldexp(1, exponent - f->precision + 1);
}

uint32_t number_bits(ta_dtype dtype, double value)
{
    const format *f = format_of(dtype);
    int fraction_bits = f->precision - 1;
    uint32_t sign = (uint32_t)(signbit(value) != 0) << (8 * f->bytes - 1);
    uint32_t infinity = (uint32_t)(2 * f->max_exponent + 1) << fraction_bits;
    if (isnan(value))
        return f->bytes == 1 ? f->poison : infinity | 1u << (fraction_bits - 1);
    double magnitude = fabs(value);
    if (!isinf(magnitude)) {
        double step = spacing(f, magnitude);
        magnitude = nearbyint(magnitude / step) * step;
    }
    if (f->bytes == 1)
        magnitude = fmin(magnitude, f->largest);
    else if (magnitude >= ldexp(1, f->max_exponent + 1))
        return sign | infinity;
    if (f->fnuz && magnitude == 0)
        return 0;
    /* Counted in steps from the start of its binade; a subnormal number counts from 0. */
    double step = spacing(f, magnitude);
    uint32_t steps = (uint32_t)(magnitude / step);
    int binade = magnitude >= ldexp(1, f->min_exponent) ? ilogb(magnitude) - f->min_exponent : 0;
    return sign | (((uint32_t)binade << fraction_bits) + steps);
}

void number_encode(ta_dtype dtype, void *data, int64_t index, double value)
{
    float single = (float)value;
    if (dtype == TA_F32) /* the compiler's own conversion is one more witness, and quick */
        memcpy((char *)data + 4 * index, &single, 4);
    else
        store_bits(dtype, data, index, number_bits(dtype, value));
}

double number_half_ulp(ta_dtype dtype, double magnitude)
{
    return spacing(format_of(dtype), magnitude) / 2;
}

void number_poison(ta_dtype dtype, void *data, int64_t count)
{
    for (int64_t i = 0; i < count; ++i)
        store_bits(dtype, data, i, format_of(dtype)->poison);
}

int number_is_poison(ta_dtype dtype, const void *data, int64_t index)
{
    return load_bits(dtype, data, index) == format_of(dtype)->poison;
}
