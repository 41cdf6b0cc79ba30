/* Values and element types; see elements.h. kv_cache.c fills with them, check_output.c reads
 * them back. */
#include "elements.h"

#include <math.h>
#include <string.h>

/* Every f16 as a float. Reading a large cache through the general conversion would be slow. */
static float f16_values[65536];

size_t element_bytes(ta_dtype dtype)
{
    return dtype == TA_F32 ? 4 : 2;
}

const char *element_name(ta_dtype dtype)
{
    return dtype == TA_F32 ? "f32" : dtype == TA_F16 ? "f16" : "bf16";
}

double element_roundoff(ta_dtype dtype)
{
    return dtype == TA_F32 ? 0x1p-24 : dtype == TA_F16 ? 0x1p-11 : 0x1p-8;
}

/* A counter-based generator: the bits depend on the counter alone, so threads can fill any part.
 * The finaliser is that of SplitMix64. */
static uint64_t random_bits(uint64_t counter)
{
    uint64_t x = counter * 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

/* k / steps for a random k from -steps to steps. With as many steps as the type has significand
 * values, each is exact. */
static float grid_value(uint32_t bits, int bit_count, int32_t steps)
{
    int32_t k = (int32_t)((uint64_t)bits * (2u * (uint32_t)steps + 1u) >> bit_count) - steps;
    return (float)k / (float)steps;
}

static uint32_t float_bits(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

/* Only for 0 and for normal numbers that the type holds exactly, which the grid's are. */
static uint16_t exact_f16(float value)
{
    uint32_t bits = float_bits(value);
    uint32_t sign = bits >> 16 & 0x8000u;
    return (uint16_t)(value == 0 ? sign : sign | ((bits & 0x7fffffffu) - (112u << 23)) >> 13);
}

static uint16_t half_value(ta_dtype dtype, uint32_t bits, float range)
{
    if (dtype == TA_F16)
        return exact_f16(range * grid_value(bits, 16, 1 << 11));
    return (uint16_t)(float_bits(range * grid_value(bits, 16, 1 << 8)) >> 16);
}

/* Inlined once for each type, so that the type is not asked for at every element. */
static inline __attribute__((always_inline)) void fill(ta_dtype dtype, void *data, int64_t first,
                                                       int64_t count, uint64_t seed, float range)
{
    /* 64 random bits serve two elements of 32 bits or four of 16. */
    const uint64_t per_word = dtype == TA_F32 ? 2 : 4;
    uint64_t word = 0;
    for (int64_t i = 0; i < count; i++) {
        uint64_t index = (uint64_t)(first + i), lane = index % per_word;
        if (i == 0 || lane == 0)
            word = random_bits(seed + index / per_word);
        if (dtype == TA_F32)
            ((float *)data)[i] = range * grid_value((uint32_t)(word >> 32 * lane), 32, 1 << 23);
        else
            ((uint16_t *)data)[i] = half_value(dtype, word >> 16 * lane & 0xffffu, range);
    }
}

void element_fill(ta_dtype dtype, void *data, int64_t first, int64_t count, uint64_t seed,
                  float range)
{
    if (dtype == TA_F32)
        fill(TA_F32, data, first, count, seed, range);
    else if (dtype == TA_F16)
        fill(TA_F16, data, first, count, seed, range);
    else
        fill(TA_BF16, data, first, count, seed, range);
}

static float f16_value(uint32_t half)
{
    int exponent = (int)(half >> 10 & 0x1fu);
    int fraction = (int)(half & 0x3ffu);
    double value;
    if (exponent == 0x1f)
        value = fraction ? (double)NAN : (double)INFINITY;
    else if (exponent == 0)
        value = ldexp(fraction, -24);
    else
        value = ldexp(1024 + fraction, exponent - 25);
    return (float)(half & 0x8000u ? -value : value);
}

void element_init(void)
{
    for (uint32_t half = 0; half < 65536; half++)
        f16_values[half] = f16_value(half);
}

void element_read(ta_dtype dtype, const void *data, int64_t count, double *values)
{
    const uint16_t *halves = data;
    if (dtype == TA_F32) {
        for (int64_t i = 0; i < count; i++)
            values[i] = ((const float *)data)[i];
    } else if (dtype == TA_F16) {
        for (int64_t i = 0; i < count; i++)
            values[i] = f16_values[halves[i]];
    } else {
        for (int64_t i = 0; i < count; i++) {
            uint32_t bits = (uint32_t)halves[i] << 16;
            float value;
            memcpy(&value, &bits, sizeof value);
            values[i] = value;
        }
    }
}
