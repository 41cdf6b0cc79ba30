/* Conversions between binary32 and the narrower types (src/base/dtype.h, src/base/narrow.h),
 * against double arithmetic written apart from them: all halves and all bytes, and random, tie and
 * neighbouring binary32 numbers. */
#include "base/dtype.h"

#include <math.h>
#include <stdio.h>

#include "base/arguments.h"
#include "lib/number.h"
#include "lib/random.h"
#include "unity.h"

void setUp(void)
{
}

void tearDown(void)
{
}

static float from_half(ta_dtype dtype, uint16_t half)
{
    return dtype == TA_F16 ? ta_f16_to_f32(half) : ta_bf16_to_f32(half);
}

static uint16_t to_half(ta_dtype dtype, float value)
{
    return dtype == TA_F16 ? ta_f32_to_f16(value) : ta_f32_to_bf16(value);
}

static void fail_for(ta_dtype dtype, uint32_t bits, uint32_t got, uint32_t expected)
{
    char text[120];
    snprintf(text, sizeof text, "%s: 0x%08x gave 0x%04x, expected 0x%04x", ta_dtype_name(dtype),
             (unsigned)bits, (unsigned)got, (unsigned)expected);
    TEST_FAIL_MESSAGE(text);
}

static void check_every_half(ta_dtype dtype)
{
    for (uint32_t bits = 0; bits < 0x10000u; ++bits) {
        uint16_t half = (uint16_t)bits;
        float value = from_half(dtype, half);
        double expected = number_decode(dtype, &half, 0);
        uint16_t back = to_half(dtype, value);
        if (isnan(expected)) {
            if (!isnan(value) || !isnan(number_decode(dtype, &back, 0)))
                fail_for(dtype, bits, ta_float_bits(value), bits);
            continue;
        }
        if ((double)value != expected || !signbit(value) != !signbit(expected))
            fail_for(dtype, bits, ta_float_bits(value), ta_float_bits((float)expected));
        if (back != half)
            fail_for(dtype, bits, back, bits);
    }
}

static void test_every_half(void)
{
    check_every_half(TA_F16);
    check_every_half(TA_BF16);
}

static void check_rounding(ta_dtype dtype, float value)
{
    uint16_t got = to_half(dtype, value);
    uint16_t expected = (uint16_t)number_bits(dtype, (double)value);
    if (isnan(value) ? !isnan(number_decode(dtype, &got, 0)) : got != expected)
        fail_for(dtype, ta_float_bits(value), got, expected);
}

/* A half, the tie between it and the next, and the binary32 numbers around each. */
static void check_around_halves(ta_dtype dtype)
{
    for (uint32_t bits = 0; bits < 0x10000u; ++bits) {
        uint16_t half = (uint16_t)bits, next = (uint16_t)(bits + 1);
        float low = from_half(dtype, half), high = from_half(dtype, next);
        float tie = (float)((double)low / 2 + (double)high / 2);
        check_rounding(dtype, tie);
        check_rounding(dtype, nextafterf(tie, -INFINITY));
        check_rounding(dtype, nextafterf(tie, INFINITY));
        check_rounding(dtype, nextafterf(low, -INFINITY));
        check_rounding(dtype, nextafterf(low, INFINITY));
    }
}

static void test_ties_and_neighbours(void)
{
    check_around_halves(TA_F16);
    check_around_halves(TA_BF16);
}

static void test_random_bits(void)
{
    random_source source = random_from(3);
    for (int i = 0; i < 1000000; ++i) {
        float value = ta_float_from_bits((uint32_t)random_bits(&source));
        check_rounding(TA_F16, value);
        check_rounding(TA_BF16, value);
        /* Most random bits are out of the range of f16. */
        check_rounding(TA_F16,
                       (float)(random_normal(&source) * ldexp(1, random_int(&source, -28, 16))));
    }
}

/* ---- 8 bits ---- */

static int is_same(double a, double b)
{
    return isnan(a) ? isnan(b) : a == b && !signbit(a) == !signbit(b);
}

/* All 256 codes of all dialects; each number is one of bf16, and is stored as the same code. */
static void test_every_byte(void)
{
    for (int number = NUMBER_DTYPE_END; number < NUMBER_NARROW_END; ++number)
        for (uint32_t bits = 0; bits < 256; ++bits) {
            ta_dtype dtype = (ta_dtype)number;
            uint8_t code = (uint8_t)bits, back;
            float value = ta_narrow_to_f32(dtype, code);
            if (!is_same(number_decode(dtype, &code, 0), (double)value))
                fail_for(dtype, bits, ta_float_bits(value), bits);
            TEST_ASSERT_EQUAL_HEX32(0, ta_float_bits(value) & 0xffffu);
            back = ta_f32_to_narrow(dtype, value);
            if (isnan(value) ? !isnan(number_decode(dtype, &back, 0))
                             : back != (uint8_t)number_bits(dtype, (double)value))
                fail_for(dtype, bits, back, bits);
            if (isfinite(value))
                TEST_ASSERT_EQUAL_HEX8(code, back);
        }
}

static void check_byte(ta_dtype dtype, float value)
{
    uint8_t got = ta_f32_to_narrow(dtype, value);
    uint8_t expected = (uint8_t)number_bits(dtype, (double)value);
    if (isnan(value) ? !isnan(number_decode(dtype, &got, 0)) : got != expected)
        fail_for(dtype, ta_float_bits(value), got, expected);
}

static void test_bytes_are_rounded_and_clamped(void)
{
    random_source source = random_from(4);
    for (int number = NUMBER_DTYPE_END; number < NUMBER_NARROW_END; ++number) {
        ta_dtype dtype = (ta_dtype)number;
        for (uint32_t bits = 0; bits < 256; ++bits) {
            float low = ta_narrow_to_f32(dtype, (uint8_t)bits);
            float tie = low / 2 + ta_narrow_to_f32(dtype, (uint8_t)(bits + 1)) / 2;
            check_byte(dtype, tie);
            check_byte(dtype, nextafterf(tie, -INFINITY));
            check_byte(dtype, nextafterf(tie, INFINITY));
            check_byte(dtype, nextafterf(low, INFINITY));
        }
        for (int i = 0; i < 300000; ++i) {
            check_byte(dtype, ta_float_from_bits((uint32_t)random_bits(&source)));
            check_byte(dtype,
                       (float)(random_normal(&source) * ldexp(1, random_int(&source, -20, 18))));
        }
        static const float far[] = {1e6f, -1e6f, INFINITY, -INFINITY, 3.4028235e38f};
        for (int i = 0; i < 5; ++i) {
            double stored = (double)ta_narrow_to_f32(dtype, ta_f32_to_narrow(dtype, far[i]));
            TEST_ASSERT_TRUE(fabs(stored) == (double)ta_narrow_largest(dtype));
            TEST_ASSERT_TRUE(!signbit(stored) == !signbit(far[i]));
        }
    }
    TEST_ASSERT_TRUE(ta_narrow_largest(TA_E4M3) == 448.0f);
    TEST_ASSERT_TRUE(ta_narrow_largest(TA_E5M2) == 57344.0f);
    TEST_ASSERT_TRUE(ta_narrow_largest(TA_E4M3_FNUZ) == 240.0f);
    TEST_ASSERT_TRUE(ta_narrow_largest(TA_E5M2_FNUZ) == 57344.0f);
}

/* FNUZ has no negative zero: its code is NaN, so that nothing may be stored as it. */
static void test_negative_zeros(void)
{
    TEST_ASSERT_EQUAL_HEX8(0x80, ta_f32_to_narrow(TA_E4M3, -0.0f));
    TEST_ASSERT_EQUAL_HEX8(0x80, ta_f32_to_narrow(TA_E5M2, -1e-9f));
    TEST_ASSERT_EQUAL_HEX8(0x00, ta_f32_to_narrow(TA_E4M3_FNUZ, -0.0f));
    TEST_ASSERT_EQUAL_HEX8(0x00, ta_f32_to_narrow(TA_E5M2_FNUZ, -1e-9f));
}

static void test_overflow_edges(void)
{
    TEST_ASSERT_EQUAL_HEX16(0x7bff, ta_f32_to_f16(65504.0f));
    TEST_ASSERT_EQUAL_HEX16(0x7bff, ta_f32_to_f16(nextafterf(65520.0f, 0)));
    TEST_ASSERT_EQUAL_HEX16(0x7c00, ta_f32_to_f16(65520.0f));
    TEST_ASSERT_EQUAL_HEX16(0xfc00, ta_f32_to_f16(-INFINITY));
    TEST_ASSERT_EQUAL_HEX16(0x0000, ta_f32_to_f16(0x1p-25f));
    TEST_ASSERT_EQUAL_HEX16(0x0001, ta_f32_to_f16(nextafterf(0x1p-25f, 1)));
    TEST_ASSERT_EQUAL_HEX16(0x8000, ta_f32_to_f16(-0.0f));
    TEST_ASSERT_EQUAL_HEX16(0x7f80, ta_f32_to_bf16(3.4028235e38f));
}

static void test_load_and_store(void)
{
    for (int number = TA_DTYPE_NONE + 1; number < TA_DTYPE_END; ++number) {
        ta_dtype dtype = (ta_dtype)number;
        uint32_t data[3] = {0, 0, 0};
        TEST_ASSERT_EQUAL_size_t(number_bytes(dtype), ta_dtype_bytes(dtype));
        ta_store(dtype, data, 2, 1.25f);
        TEST_ASSERT_TRUE(number_decode(dtype, data, 2) == 1.25);
        TEST_ASSERT_TRUE(ta_load(dtype, data, 2) == 1.25f);
        TEST_ASSERT_TRUE(ta_load(dtype, data, 1) == 0.0f);
        TEST_ASSERT_EQUAL_PTR((char *)data + 2 * number_bytes(dtype), ta_element(dtype, data, 2));
    }
}

/* Compilers warn of a number of ta_dtype that is not in this switch: then it goes into both. */
static int has_row(ta_dtype dtype)
{
    switch (dtype) {
    case TA_DTYPE_NONE:
        return ta_dtype_find(dtype) == NULL;
    case TA_F32:
    case TA_F16:
    case TA_BF16:
    case TA_E4M3:
    case TA_E5M2:
    case TA_E4M3_FNUZ:
    case TA_E5M2_FNUZ:
        return ta_dtype_find(dtype) != NULL;
    }
    return 0;
}

static void test_every_number_has_a_row(void)
{
    for (int number = TA_DTYPE_NONE; number < TA_DTYPE_END; ++number)
        TEST_ASSERT_TRUE(has_row((ta_dtype)number));
    const ta_dtype_traits *f16 = ta_dtype_find(TA_F16);
    TEST_ASSERT_EQUAL_STRING("f16", f16->name);
    TEST_ASSERT_EQUAL_STRING("TA_F16", f16->constant);
    TEST_ASSERT_EQUAL_size_t(2, f16->bytes);
    TEST_ASSERT_EQUAL_UINT(TA_AS_ANY, f16->roles);
    for (int number = TA_DTYPE_NONE + 1; number < TA_DTYPE_END; ++number) {
        const ta_dtype_traits *traits = ta_dtype_find((ta_dtype)number);
        TEST_ASSERT_EQUAL_size_t(traits->bytes, ta_dtype_bytes((ta_dtype)number));
        TEST_ASSERT_EQUAL_STRING(traits->name, ta_dtype_name((ta_dtype)number));
        TEST_ASSERT_TRUE(traits->roles != 0);
    }
}

/* An unknown number is none of the types: it has no row, no size and no value. */
static void test_unknown_numbers(void)
{
    static const int unknown[] = {TA_DTYPE_NONE, TA_DTYPE_END, 255, 1 << 30, -1};
    for (int i = 0; i < 5; ++i) {
        ta_dtype dtype = (ta_dtype)unknown[i];
        float data = 1.0f;
        TEST_ASSERT_NULL(ta_dtype_find(dtype));
        TEST_ASSERT_EQUAL_STRING("none", ta_dtype_name(dtype));
        TEST_ASSERT_EQUAL_size_t(0, ta_dtype_bytes(dtype));
        TEST_ASSERT_TRUE(isnan(ta_load(dtype, &data, 0)));
        ta_store(dtype, &data, 0, 2.0f);
        TEST_ASSERT_TRUE(data == 1.0f);
    }
}

/* The sentence lists what may be in that place, and says which of the two is wrong. */
static void test_roles(void)
{
    ta_dtype_role nobody = (ta_dtype_role)(2 * (TA_AS_ANY + 1));
    TEST_ASSERT_EQUAL_INT(TA_OK, ta_check_dtype("kv_dtype", TA_F16, TA_AS_KV));
    TEST_ASSERT_EQUAL_INT(TA_ERR_INVALID, ta_check_dtype("kv_dtype", (ta_dtype)77, TA_AS_KV));
    TEST_ASSERT_NOT_NULL(strstr(ta_last_error(), "config.kv_dtype is 77: must be TA_F32, TA_F16"));
    TEST_ASSERT_NOT_NULL(strstr(ta_last_error(), " or TA_"));
    TEST_ASSERT_EQUAL_INT(TA_ERR_UNSUPPORTED, ta_check_dtype("out_dtype", TA_BF16, nobody));
    TEST_ASSERT_NOT_NULL(strstr(ta_last_error(), "config.out_dtype is TA_BF16: must be"));
    for (int number = NUMBER_DTYPE_END; number < NUMBER_NARROW_END; ++number) {
        ta_dtype dtype = (ta_dtype)number;
        TEST_ASSERT_EQUAL_INT(TA_OK, ta_check_dtype("kv_dtype", dtype, TA_AS_KV));
        TEST_ASSERT_EQUAL_INT(TA_ERR_UNSUPPORTED,
                              ta_check_dtype("query_dtype", dtype, TA_AS_QUERY));
        TEST_ASSERT_NOT_NULL(strstr(ta_last_error(), "must be TA_F32, TA_F16 or TA_BF16"));
        TEST_ASSERT_EQUAL_INT(TA_ERR_UNSUPPORTED, ta_check_dtype("out_dtype", dtype, TA_AS_OUT));
        TEST_ASSERT_EQUAL_INT(TA_ERR_UNSUPPORTED, ta_check_dtype("dtype", dtype, TA_AS_ATTENTION));
    }
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(test_every_half);
    RUN_TEST(test_ties_and_neighbours);
    RUN_TEST(test_random_bits);
    RUN_TEST(test_every_byte);
    RUN_TEST(test_bytes_are_rounded_and_clamped);
    RUN_TEST(test_negative_zeros);
    RUN_TEST(test_overflow_edges);
    RUN_TEST(test_load_and_store);
    RUN_TEST(test_every_number_has_a_row);
    RUN_TEST(test_unknown_numbers);
    RUN_TEST(test_roles);
    return UNITY_END() != 0;
}
