/* Values and element types; see elements.h. kv_cache.c fills with them, check_output.c reads
 * them back. A type is a row of the table at the end. */
#include "elements.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Every f16 as a float. Reading a large cache through the general conversion would be slow. */
static float f16_values[65536];

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

/* Only for numbers that the type holds exactly, which the grid's are. */
static uint16_t exact_f16(float value)
{
    uint32_t bits = float_bits(value);
    uint32_t sign = bits >> 16 & 0x8000u;
    if (fabsf(value) < 0x1p-14f) /* subnormal */
        return (uint16_t)(sign | (uint32_t)(fabsf(value) * 0x1p24f));
    return (uint16_t)(sign | ((bits & 0x7fffffffu) - (112u << 23)) >> 13);
}

/* The 64 random bits that element `index` takes its own from; *word keeps them for the next one. */
static uint64_t bits_of(uint64_t seed, uint64_t index, uint64_t per_word, int first, uint64_t *word)
{
    if (first || index % per_word == 0)
        *word = random_bits(seed + index / per_word);
    return *word >> 64 / per_word * (index % per_word);
}

static void fill_f32(void *data, int64_t first, int64_t count, uint64_t seed, float range)
{
    uint64_t word = 0;
    for (int64_t i = 0; i < count; i++) {
        uint64_t bits = bits_of(seed, (uint64_t)(first + i), 2, i == 0, &word);
        ((float *)data)[i] = range * grid_value((uint32_t)bits, 32, 1 << 23);
    }
}

static void fill_f16(void *data, int64_t first, int64_t count, uint64_t seed, float range)
{
    uint64_t word = 0;
    for (int64_t i = 0; i < count; i++) {
        uint64_t bits = bits_of(seed, (uint64_t)(first + i), 4, i == 0, &word);
        ((uint16_t *)data)[i] = exact_f16(range * grid_value(bits & 0xffffu, 16, 1 << 11));
    }
}

static void fill_bf16(void *data, int64_t first, int64_t count, uint64_t seed, float range)
{
    uint64_t word = 0;
    for (int64_t i = 0; i < count; i++) {
        uint64_t bits = bits_of(seed, (uint64_t)(first + i), 4, i == 0, &word);
        float value = range * grid_value(bits & 0xffffu, 16, 1 << 8);
        ((uint16_t *)data)[i] = (uint16_t)(float_bits(value) >> 16);
    }
}

/* ---- 8 bits ---- */

enum { NARROW_FIRST = TA_E4M3, NARROW_TYPES = TA_E5M2_FNUZ - TA_E4M3 + 1 };

/* What every byte means, by type from TA_E4M3 on. */
static float narrow_values[NARROW_TYPES][256];

static float narrow_value(ta_dtype dtype, int byte)
{
    int is_e4m3 = dtype == TA_E4M3 || dtype == TA_E4M3_FNUZ;
    int is_fnuz = dtype == TA_E4M3_FNUZ || dtype == TA_E5M2_FNUZ;
    int bits = is_e4m3 ? 3 : 2, bias = (is_e4m3 ? 7 : 15) + is_fnuz, code = byte & 0x7f;
    int exponent = code >> bits, fraction = code & ((1 << bits) - 1);
    double value = exponent ? ldexp((1 << bits) + fraction, exponent - bias - bits)
                            : ldexp(fraction, 1 - bias - bits);
    if (is_fnuz ? byte == 0x80 : is_e4m3 ? code == 0x7f : code > 0x7c)
        return NAN;
    if (dtype == TA_E5M2 && code == 0x7c)
        value = INFINITY;
    return (float)(byte & 0x80 ? -value : value);
}

static void fill_narrow(ta_dtype dtype, void *data, int64_t first, int64_t count, uint64_t seed,
                        float range)
{
    const float *values = narrow_values[dtype - NARROW_FIRST];
    int32_t steps = dtype == TA_E4M3 || dtype == TA_E4M3_FNUZ ? 1 << 4 : 1 << 3;
    uint8_t codes[256];
    uint64_t word = 0;
    for (uint32_t bits = 0; bits < 256; bits++) {
        float value = range * grid_value(bits, 8, steps);
        codes[bits] = 0;
        for (int byte = 0; byte < 256; byte++)
            if (value != 0 && values[byte] == value)
                codes[bits] = (uint8_t)byte;
    }
    for (int64_t i = 0; i < count; i++) {
        uint64_t bits = bits_of(seed, (uint64_t)(first + i), 8, i == 0, &word);
        ((uint8_t *)data)[i] = codes[bits & 0xff];
    }
}

static void read_narrow(ta_dtype dtype, const void *data, int64_t count, double *values)
{
    for (int64_t i = 0; i < count; i++)
        values[i] = narrow_values[dtype - NARROW_FIRST][((const uint8_t *)data)[i]];
}

#define NARROW_TYPE(name, dtype)                                                                   \
    static void fill_##name(void *data, int64_t first, int64_t count, uint64_t seed, float range)  \
    {                                                                                              \
        fill_narrow(dtype, data, first, count, seed, range);                                       \
    }                                                                                              \
    static void read_##name(const void *data, int64_t count, double *values)                       \
    {                                                                                              \
        read_narrow(dtype, data, count, values);                                                   \
    }
NARROW_TYPE(e4m3, TA_E4M3)
NARROW_TYPE(e5m2, TA_E5M2)
NARROW_TYPE(e4m3fnuz, TA_E4M3_FNUZ)
NARROW_TYPE(e5m2fnuz, TA_E5M2_FNUZ)

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
    for (int i = 0; i < NARROW_TYPES * 256; i++)
        narrow_values[i / 256][i % 256] = narrow_value((ta_dtype)(NARROW_FIRST + i / 256), i % 256);
}

static void read_f32(const void *data, int64_t count, double *values)
{
    for (int64_t i = 0; i < count; i++)
        values[i] = ((const float *)data)[i];
}

static void read_f16(const void *data, int64_t count, double *values)
{
    for (int64_t i = 0; i < count; i++)
        values[i] = f16_values[((const uint16_t *)data)[i]];
}

static void read_bf16(const void *data, int64_t count, double *values)
{
    for (int64_t i = 0; i < count; i++) {
        uint32_t bits = (uint32_t)((const uint16_t *)data)[i] << 16;
        float value;
        memcpy(&value, &bits, sizeof value);
        values[i] = value;
    }
}

/* ---- The table ----------------------------------------------------------------------------- */

typedef struct element_type {
    const char *name;
    ta_dtype dtype;
    size_t bytes;
    double roundoff, floor;
    void (*fill)(void *data, int64_t first, int64_t count, uint64_t seed, float range);
    void (*read)(const void *data, int64_t count, double *values);
} element_type;

#define ELEMENT_TYPES(X)                                                                           \
    X("f32", TA_F32, 4, 0, 0, fill_f32, read_f32)                                                  \
    X("f16", TA_F16, 2, 0x1p-11, 0x1p-25, fill_f16, read_f16)                                      \
    X("bf16", TA_BF16, 2, 0x1p-8, 0, fill_bf16, read_bf16)

/* Of K and V alone: nothing is rounded to them. */
#define NARROW_TYPES_LIST(X)                                                                       \
    X("e4m3", TA_E4M3, 1, 0, 0, fill_e4m3, read_e4m3)                                              \
    X("e5m2", TA_E5M2, 1, 0, 0, fill_e5m2, read_e5m2)                                              \
    X("e4m3fnuz", TA_E4M3_FNUZ, 1, 0, 0, fill_e4m3fnuz, read_e4m3fnuz)                             \
    X("e5m2fnuz", TA_E5M2_FNUZ, 1, 0, 0, fill_e5m2fnuz, read_e5m2fnuz)

#define ROW(...) {__VA_ARGS__},
static const element_type types[] = {ELEMENT_TYPES(ROW) NARROW_TYPES_LIST(ROW)};
#define WORD(name, ...) name,
const char *const element_words[] = {ELEMENT_TYPES(WORD) NULL};
const char *const element_kv_words[] = {ELEMENT_TYPES(WORD) NARROW_TYPES_LIST(WORD) NULL};
enum { TYPES = sizeof types / sizeof *types };

static const element_type *type_of(ta_dtype dtype)
{
    for (int i = 0; i < TYPES; i++)
        if (types[i].dtype == dtype)
            return &types[i];
    fprintf(stderr, "dtype %d has no row in bench/common/elements.c\n", (int)dtype);
    abort();
}

ta_dtype element_dtype(int64_t word)
{
    return types[word].dtype;
}

size_t element_bytes(ta_dtype dtype)
{
    return type_of(dtype)->bytes;
}

const char *element_name(ta_dtype dtype)
{
    return type_of(dtype)->name;
}

double element_roundoff(ta_dtype dtype)
{
    return type_of(dtype)->roundoff;
}

double element_floor(ta_dtype dtype)
{
    return type_of(dtype)->floor;
}

void element_fill(ta_dtype dtype, void *data, int64_t first, int64_t count, uint64_t seed,
                  float range)
{
    type_of(dtype)->fill(data, first, count, seed, range);
}

void element_read(ta_dtype dtype, const void *data, int64_t count, double *values)
{
    type_of(dtype)->read(data, count, values);
}
