/* What the kernels for matrix cores are made of: the product of 8 columns with operands in
 * registers, and loads of 8 × 8 matrices, against the layouts that NVIDIA documents for
 * mma.m16n8k16 and ldmatrix, written down here once more; asynchronous copies; votes; halves of
 * words; and weights as sums of 16-bit numbers. */
#include "simt_test.h"

#include "weights.h"

#include "mma.h"

void setUp(void)
{
    simt_reset();
}

void tearDown(void)
{
    simt_reset();
}

/* A is 16 × 16, B 16 × 8, both as bits of the type; C is 16 × 8. */
template <class Type> __global__ void multiply(const uint16_t *a, const uint16_t *b, float *c)
{
    TA_ONLY_WAVE(32);
    int g = ta_lane() / 4, q = ta_lane() % 4;
    ta_operand<32> left = {};
    uint32_t right[2] = {0, 0};
    float sum[4] = {1.0f, 2.0f, 3.0f, 4.0f};
    for (int half = 0; half < 2; half++) {
        for (int w = 0; w < 4; w++)
            left.word[w] |=
                static_cast<uint32_t>(a[(g + w % 2 * 8) * 16 + q * 2 + w / 2 * 8 + half])
                << half * 16;
        for (int w = 0; w < 2; w++)
            right[w] |= static_cast<uint32_t>(b[(q * 2 + w * 8 + half) * 8 + g]) << half * 16;
    }
    ta_mma_columns8<Type>(sum, left, right);
    for (int i = 0; i < 4; i++)
        c[(g + i / 2 * 8) * 8 + q * 2 + i % 2] = sum[i] - static_cast<float>(1 + i);
}

template <class Type> static void check_product()
{
    std::vector<uint16_t> a(256), b(128);
    for (size_t i = 0; i < 256; i++)
        a[i] = Type::to(static_cast<float>(i * 5 % 13) - 6);
    for (size_t i = 0; i < 128; i++)
        b[i] = Type::to(static_cast<float>(i * 7 % 11) - 5);
    device_array<uint16_t> left(a), right(b);
    device_array<float> c(128);
    CHECK_HIP(TA_LAUNCH((multiply<Type>), 1, 32, 0, nullptr, left.data, right.data, c.data).error);
    std::vector<float> expected(128), got = c.read();
    for (size_t i = 0; i < 128; i++)
        for (size_t k = 0; k < 16; k++)
            expected[i] += Type::from(a[i / 8 * 16 + k]) * Type::from(b[k * 8 + i % 8]);
    CHECK_VALUES(expected, got);
}

static void test_product_of_8_columns(void)
{
    simt_set_wave(32);
    for (simt_order order : {SIMT_FORWARD, SIMT_REVERSE, SIMT_RANDOM}) {
        simt_set_order(order, 3);
        check_product<ta_type_f16>();
        check_product<ta_type_bf16>();
    }
}

/* Four 8 × 8 matrices whose rows lie 32 bytes apart. */
__global__ void load_matrices(const uint16_t *from, uint32_t *plain, uint32_t *transposed)
{
    TA_ONLY_WAVE(32);
    TA_SHARED(uint16_t, rows, [32 * 16]);
    for (int i = 0; i < 8; i++)
        rows[ta_lane() * 16 + i] = from[ta_lane() * 8 + i];
    ta_syncwave();
    const char *row = reinterpret_cast<const char *>(rows) + ta_lane() * 32;
    ta_operand<32> a = ta_load_matrices(row), b = ta_load_matrices_transposed(row);
    for (int i = 0; i < 4; i++) {
        plain[ta_lane() * 4 + i] = a.word[i];
        transposed[ta_lane() * 4 + i] = b.word[i];
    }
}

static void test_loads_of_matrices(void)
{
    std::vector<uint16_t> elements(256);
    for (size_t i = 0; i < 256; i++)
        elements[i] = static_cast<uint16_t>(i * 257);
    device_array<uint16_t> from(elements);
    device_array<uint32_t> plain(128), transposed(128);
    simt_set_wave(32);
    for (simt_order order : {SIMT_FORWARD, SIMT_REVERSE, SIMT_RANDOM}) {
        simt_set_order(order, 3);
        CHECK_HIP(
            TA_LAUNCH(load_matrices, 1, 32, 0, nullptr, from.data, plain.data, transposed.data)
                .error);
        std::vector<uint32_t> rows = plain.read(), columns = transposed.read();
        for (size_t i = 0; i < 128; i++) {
            size_t matrix = i % 4 * 64, g = i / 4 / 4, q = i / 4 % 4 * 2;
            TEST_ASSERT_EQUAL_HEX32(elements[matrix + g * 8 + q] |
                                        static_cast<uint32_t>(elements[matrix + g * 8 + q + 1])
                                            << 16,
                                    rows[i]);
            TEST_ASSERT_EQUAL_HEX32(elements[matrix + q * 8 + g] |
                                        static_cast<uint32_t>(elements[matrix + (q + 1) * 8 + g])
                                            << 16,
                                    columns[i]);
        }
    }
}

/* Each thread brings 16 bytes, every third zeros, and reads those of a neighbour. */
template <int Wave>
__global__ void copy_words(const uint32_t *from, uint32_t *to, int waits, int finishes)
{
    TA_ONLY_WAVE(Wave);
    TA_SHARED(ta_vec16, place, [Wave]);
    ta_copy16 copy;
    ta_copy_start(copy, &place[ta_lane()], from + ta_lane() * 4, ta_lane() % 3 != 0);
    if (waits)
        ta_copies_wait();
    if (finishes)
        ta_copy_finish(copy, &place[ta_lane()]);
    ta_syncthreads();
    ta_vec16 x = ta_load16(&place[ta_lane() ^ 1]);
    for (int i = 0; i < 4; i++)
        to[(ta_lane() ^ 1) * 4 + i] = x.word[i];
}

static std::vector<uint32_t> copied(int wave, int waits, int finishes)
{
    size_t count = static_cast<size_t>(wave) * 4;
    std::vector<uint32_t> words(count);
    for (size_t i = 0; i < count; i++)
        words[i] = static_cast<uint32_t>(i);
    device_array<uint32_t> from(words), to(count);
    simt_set_wave(wave);
    LAUNCH_WAVE(copy_words, 1, static_cast<unsigned>(wave), 0, nullptr, from.data, to.data, waits,
                finishes);
    return to.read();
}

static void test_copies(void)
{
    for (int wave = 32; wave <= 64; wave *= 2) {
        std::vector<uint32_t> got = copied(wave, 1, 1);
        for (size_t i = 0; i < got.size(); i++)
            TEST_ASSERT_EQUAL_HEX32(i / 4 % 3 ? i : 0, got[i]);
    }
}

/* On NVIDIA a copy that was not waited for, on AMD one that was not finished. */
static void test_a_copy_that_is_read_too_early_is_nan(void)
{
    for (uint32_t word : copied(32, 0, 1))
        TEST_ASSERT_EQUAL_HEX32(~0u, word);
    for (uint32_t word : copied(64, 1, 0))
        TEST_ASSERT_EQUAL_HEX32(~0u, word);
}

template <int Wave> __global__ void vote(const int *given, int *found)
{
    TA_ONLY_WAVE(Wave);
    for (int i = 0; i < 3; i++)
        found[i * Wave + ta_lane()] = ta_any(given[i * Wave + ta_lane()] != 0);
}

static void test_votes(void)
{
    for (int wave = 32; wave <= 64; wave *= 2) {
        simt_set_wave(wave);
        size_t lanes = static_cast<size_t>(wave);
        std::vector<int> given(3 * lanes, 0);
        given[2 * lanes - 1] = 1; /* one lane of the second vote */
        for (size_t i = 2 * lanes; i < 3 * lanes; i++)
            given[i] = 1;
        device_array<int> in(given), found(3 * lanes);
        LAUNCH_WAVE(vote, 1, static_cast<unsigned>(wave), 0, nullptr, in.data, found.data);
        std::vector<int> got = found.read();
        for (size_t i = 0; i < 3 * lanes; i++)
            TEST_ASSERT_EQUAL_INT(i >= lanes, got[i]);
    }
}

static void test_halves_of_words(void)
{
    TEST_ASSERT_EQUAL_HEX32(0x65432109u, ta_low_halves(0x87652109u, 0xfedc6543u));
    TEST_ASSERT_EQUAL_HEX32(0xfedc8765u, ta_high_halves(0x87652109u, 0xfedc6543u));
    TEST_ASSERT_EQUAL_HEX32(0xbc003c00u, ta_to_f16_pair(1.0f, -1.0f));
}

/* The parts of two weights add up to them: exactly in bf16, within 2^-23 in f16. */
template <class Type> static void check_parts(float low, float high, double lost)
{
    float scale = ta_weight_scale(Type()), x = low * scale, y = high * scale;
    double sum[2] = {0, 0};
    for (int part = 0; part < Type::weight_parts; part++) {
        uint32_t word = ta_take_part(Type(), x, y);
        sum[0] += static_cast<double>(Type::from(static_cast<uint16_t>(word)));
        sum[1] += static_cast<double>(Type::from(static_cast<uint16_t>(word >> 16)));
    }
    double smallest = lost > 0 ? 0x1p-40 : 0;
    TEST_ASSERT_TRUE(fabs(sum[0] / scale - low) <= lost * low + smallest);
    TEST_ASSERT_TRUE(fabs(sum[1] / scale - high) <= lost * high + smallest);
}

static void test_weights_in_parts(void)
{
    uint32_t bits = 1;
    for (int i = 0; i < 100000; i++) {
        bits = bits * 1664525u + 1013904223u;
        float low = ta_as_float(0x3f800000u - (bits >> 3) % 0x20000000u);
        float high = ta_as_float(0x3f800000u - (bits >> 9));
        check_parts<ta_type_bf16>(low, high, 0);
        check_parts<ta_type_f16>(low, high, 0x1p-23);
    }
    check_parts<ta_type_bf16>(0.0f, 1.0f, 0);
    check_parts<ta_type_f16>(0.0f, 1.0f, 0);
}

static void test_a_weight_that_is_nan_stays_one(void)
{
    float x = ta_exp2(NAN), y = 0.25f;
    for (int part = 0; part < 3; part++) {
        uint32_t word = ta_take_part(ta_type_bf16(), x, y);
        TEST_ASSERT_TRUE(isnan(ta_from_bf16(static_cast<uint16_t>(word))));
        TEST_ASSERT_EQUAL_HEX16(part ? 0 : 0x3e80, word >> 16);
    }
}

/* The nearest number of the type; of two that are as near, the one whose last bit is 0. */
template <class Type> static void check_rounded(float weight, double unit)
{
    float x = weight * ta_weight_scale(Type()), other = 0.75f * ta_weight_scale(Type());
    uint32_t word = ta_round_weights(Type(), x, other);
    uint16_t got = static_cast<uint16_t>(word);
    TEST_ASSERT_EQUAL_FLOAT(other, Type::from(static_cast<uint16_t>(word >> 16)));
    double step = ldexp(unit, ilogb(x)), nearest = nearbyint(x / step) * step;
    TEST_ASSERT_TRUE(static_cast<double>(Type::from(got)) == nearest);
    TEST_ASSERT_TRUE(fabs(nearest - static_cast<double>(x)) <= unit / 2 * static_cast<double>(x));
}

/* Weights of any size that both types have as normal numbers, and those half-way between two. */
static void test_weights_that_are_rounded(void)
{
    uint32_t bits = 1;
    for (int i = 0; i < 100000; i++) {
        bits = bits * 1664525u + 1013904223u;
        uint32_t weight = 0x3f800000u - (bits >> 4) % 0x0c000000u;
        check_rounded<ta_type_bf16>(ta_as_float(weight), 0x1p-7);
        check_rounded<ta_type_f16>(ta_as_float(weight), 0x1p-10);
        check_rounded<ta_type_bf16>(ta_as_float((weight & 0xffff0000u) | 0x8000u), 0x1p-7);
        check_rounded<ta_type_f16>(ta_as_float((weight & 0xffffe000u) | 0x1000u), 0x1p-10);
    }
    TEST_ASSERT_EQUAL_HEX32(0x3f800000u, ta_round_weights(ta_type_bf16(), 0.0f, 1.0f));
    TEST_ASSERT_EQUAL_HEX32(0x78000000u, ta_round_weights(ta_type_f16(), 0.0f, 32768.0f));
    for (uint32_t nan : {0x7fc00000u, 0x7fffffffu, 0xffffffffu}) {
        uint32_t bf16 = ta_round_weights(ta_type_bf16(), ta_as_float(nan), 0.5f);
        uint32_t f16 = ta_round_weights(ta_type_f16(), ta_as_float(nan), 0.5f);
        TEST_ASSERT_TRUE(isnan(ta_from_bf16(static_cast<uint16_t>(bf16))));
        TEST_ASSERT_TRUE(isnan(ta_from_f16(static_cast<uint16_t>(f16))));
    }
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(test_product_of_8_columns);
    RUN_TEST(test_loads_of_matrices);
    RUN_TEST(test_copies);
    RUN_TEST(test_a_copy_that_is_read_too_early_is_nan);
    RUN_TEST(test_votes);
    RUN_TEST(test_halves_of_words);
    RUN_TEST(test_weights_in_parts);
    RUN_TEST(test_a_weight_that_is_nan_stays_one);
    RUN_TEST(test_weights_that_are_rounded);
    return UNITY_END() != 0;
}
