/* Numbers of 8 bits in kernels (hip/narrow.h): all codes of all dialects, on devices without
 * instructions for them, with those of sm_89 and later, and with those of gfx942, against the
 * scalar conversion of src/base/narrow.h. And what those instructions make of the other dialect. */
#include "simt_test.h"

#include <string>

#include "narrow.h"

void setUp(void)
{
    simt_reset();
}

void tearDown(void)
{
    simt_reset();
}

static const simt_narrow instructions[] = {SIMT_NARROW_NONE, SIMT_NARROW_OCP, SIMT_NARROW_FNUZ};
static const ta_dtype dialects[] = {TA_E4M3, TA_E5M2, TA_E4M3_FNUZ, TA_E5M2_FNUZ};
static const bool reads_fnuz[] = {false, false, true, true};

static bool is_nan(uint32_t bits)
{
    return (bits & 0x7fffffffu) > 0x7f800000u;
}

/* Of a binary32, or of bf16 above zeros: NaN is any NaN, the rest is bit by bit. */
static void check_code(ta_dtype dtype, uint32_t code, uint32_t got)
{
    uint32_t expected = ta_narrow_decode(ta_narrow_format_of(dtype), code);
    if (is_nan(expected) ? is_nan(got) : expected == got)
        return;
    std::string text = "dtype " + std::to_string(dtype) + ": code " + std::to_string(code) +
                       " is " + std::to_string(ta_as_float(got)) + ", expected " +
                       std::to_string(ta_as_float(expected)) + " [" + simt_settings() + "]";
    TEST_FAIL_MESSAGE(text.c_str());
}

template <class Test> static void on_all_devices(Test test)
{
    for (simt_narrow narrow : instructions)
        for (int wave = 32; wave <= 64; wave *= 2) {
            simt_set_narrow(narrow);
            simt_set_wave(wave);
            test(narrow);
        }
}

template <class Test> static void on_all_dialects(Test test)
{
    on_all_devices([test](simt_narrow) {
        for (ta_dtype dtype : dialects)
            test(dtype);
    });
}

/* What a kernel makes of 256 codes. */
template <class To, class Launch> static std::vector<To> results_of(Launch launch)
{
    device_array<To> to(256);
    launch(static_cast<unsigned>(device_wave()), to.data);
    return to.read();
}
#define RESULTS_OF(kernel, dtype, To)                                                              \
    results_of<To>(                                                                                \
        [dtype](unsigned wave, To *to) { LAUNCH_WAVE(kernel, 1, wave, 0, nullptr, dtype, to); })

/* ---- What kernels get ---------------------------------------------------------------------- */

template <int Wave> __global__ void widen_codes(ta_dtype dtype, uint32_t *to)
{
    TA_ONLY_WAVE(Wave);
    ta_narrow_rule rule = ta_narrow_rule_of(dtype);
    for (uint32_t code = threadIdx.x; code < 256; code += Wave)
        to[code] = ta_widen_code(rule, code);
}

static void test_single_codes(void)
{
    on_all_dialects([](ta_dtype dtype) {
        std::vector<uint32_t> got = RESULTS_OF(widen_codes, dtype, uint32_t);
        for (uint32_t code = 0; code < 256; code++)
            check_code(dtype, code, got[code]);
    });
}

/* Eight codes from each one on, so that every code is in every place of a load. */
template <int Wave> __global__ void widen_eights(ta_dtype dtype, ta_vec16 *to)
{
    TA_ONLY_WAVE(Wave);
    ta_narrow_rule rule = ta_narrow_rule_of(dtype);
    for (uint32_t first = threadIdx.x; first < 256; first += Wave) {
        ta_vec16 from = {{0, 0, ~0u, ~0u}};
        for (uint32_t i = 0; i < 8; i++)
            from.word[i / 4] |= ((first + i) & 0xffu) << i % 4 * 8;
        to[first] = ta_widen8(rule, from);
    }
}

static void test_eight_codes_at_a_time(void)
{
    on_all_dialects([](ta_dtype dtype) {
        std::vector<ta_vec16> got = RESULTS_OF(widen_eights, dtype, ta_vec16);
        for (uint32_t first = 0; first < 256; first++)
            for (uint32_t i = 0; i < 8; i++) {
                uint32_t half = got[first].word[i / 2] >> i % 2 * 16 & 0xffffu;
                check_code(dtype, (first + i) & 0xffu, half << 16);
            }
    });
}

/* Each code in every byte of a word, with another one beside it. */
template <int Wave> __global__ void widen_pairs(ta_dtype dtype, int native, uint32_t *to)
{
    TA_ONLY_WAVE(Wave);
    ta_pair_rule rule = ta_pair_rule_of(dtype);
    for (uint32_t first = threadIdx.x; first < 256; first += Wave) {
        uint32_t codes = first * 0x01010101u + 0x03020100u; /* carries change other bytes alone */
        codes = (codes & 0xffffff00u) | first;
        uint32_t *words = to + first * 4;
        words[0] = codes;
        if (native) {
            words[1] = ta_widen_pair<true, 0>(rule, codes);
            words[2] = ta_widen_pair<true, 1>(rule, codes);
        } else {
            words[1] = ta_widen_pair<false, 0>(rule, codes);
            words[2] = ta_widen_pair<false, 1>(rule, codes);
        }
        words[3] = ta_find_special(rule, codes);
    }
}

static void check_pairs(ta_dtype dtype, bool native)
{
    device_array<uint32_t> to(4 * 256);
    unsigned wave = static_cast<unsigned>(device_wave());
    LAUNCH_WAVE(widen_pairs, 1, wave, 0, nullptr, dtype, native ? 1 : 0, to.data);
    std::vector<uint32_t> got = to.read();
    for (size_t first = 0; first < 256; first++) {
        const uint32_t *words = &got[first * 4];
        bool special = false;
        for (size_t i = 0; i < 4; i++) {
            uint32_t code = words[0] >> i * 8 & 0xffu;
            check_code(dtype, code, (words[1 + i / 2] >> i % 2 * 16 & 0xffffu) << 16);
            uint32_t number = ta_narrow_decode(ta_narrow_format_of(dtype), code);
            special |= (number & 0x7f800000u) == 0x7f800000u;
        }
        TEST_ASSERT_EQUAL_INT(special, words[3] != 0);
    }
}

/* Where pairs have an instruction, of e4m3 alone, also without it. */
static void test_pairs_of_codes(void)
{
    on_all_devices([](simt_narrow has) {
        for (ta_dtype dtype : dialects) {
            check_pairs(dtype, false);
            if ((dtype == TA_E4M3 && has == SIMT_NARROW_OCP) ||
                (dtype == TA_E4M3_FNUZ && has == SIMT_NARROW_FNUZ))
                check_pairs(dtype, true);
        }
    });
}

/* ---- What instructions do ------------------------------------------------------------------ */

__global__ void ask_device(uint32_t *native)
{
    for (int i = 0; i < 4; i++)
        native[i] = ta_narrow_rule_of(dialects[i]).native;
}

/* They are used for the dialect that they read, and for no other. */
static void test_the_choice(void)
{
    on_all_devices([](simt_narrow has) {
        device_array<uint32_t> native(4);
        CHECK_HIP(TA_LAUNCH(ask_device, 1, 1, 0, nullptr, native.data).error);
        std::vector<uint32_t> got = native.read();
        for (size_t i = 0; i < 4; i++)
            TEST_ASSERT_EQUAL_UINT(has == (reads_fnuz[i] ? SIMT_NARROW_FNUZ : SIMT_NARROW_OCP),
                                   got[i]);
    });
}

/* In pairs, each code with the next one. */
__global__ void convert_codes(int e4m3, float *to)
{
    for (uint32_t code = 0; code < 256; code += 2) {
        float first, second;
        ta_convert_narrow(e4m3 != 0, code | (code + 1) << 8 | 0xabcd0000u, first, second);
        to[code] = first;
        to[code + 1] = second;
    }
}

static std::vector<uint32_t> converted(simt_narrow narrow, bool e4m3)
{
    device_array<float> to(256);
    simt_set_narrow(narrow);
    CHECK_HIP(TA_LAUNCH(convert_codes, 1, 1, 0, nullptr, e4m3 ? 1 : 0, to.data).error);
    std::vector<uint32_t> bits;
    for (float x : to.read())
        bits.push_back(ta_as_bits(x));
    return bits;
}

/* gfx942 reads OCP's codes as half of what they are, but for three: one is a number in place of
 * NaN, with either sign, and −0 is NaN. Of e5m2 all of the highest exponent too. */
static void test_fnuz_reads_ocp_as_something_else(void)
{
    for (int e4m3 = 0; e4m3 < 2; e4m3++) {
        std::vector<uint32_t> got = converted(SIMT_NARROW_FNUZ, e4m3);
        ta_narrow_format ocp = ta_narrow_format_of(e4m3 ? TA_E4M3 : TA_E5M2);
        ta_narrow_format fnuz = ta_narrow_format_of(e4m3 ? TA_E4M3_FNUZ : TA_E5M2_FNUZ);
        for (uint32_t code = 0; code < 256; code++) {
            uint32_t meant = ta_narrow_decode(ocp, code), read = got[code];
            bool differs = (code & 0x7fu) > ocp.largest || code == 0x80;
            bool half = ta_as_float(meant) == 2 * ta_as_float(read);
            TEST_ASSERT_EQUAL_INT_MESSAGE(!differs, half, std::to_string(code).c_str());
            TEST_ASSERT_EQUAL_INT(code == 0x80, is_nan(read));
            TEST_ASSERT_EQUAL_INT(is_nan(ta_narrow_decode(fnuz, code)), is_nan(read));
        }
    }
    TEST_ASSERT_EQUAL_HEX32(ta_as_bits(240.0f), converted(SIMT_NARROW_FNUZ, true)[0x7f]);
    TEST_ASSERT_EQUAL_HEX32(ta_as_bits(-240.0f), converted(SIMT_NARROW_FNUZ, true)[0xff]);
}

/* NaN of such an instruction would be an infinity if it were cut off. */
static void test_a_nan_of_lower_bits(void)
{
    for (simt_narrow narrow : {SIMT_NARROW_OCP, SIMT_NARROW_FNUZ})
        for (int e4m3 = 0; e4m3 < 2; e4m3++) {
            uint32_t nan = narrow == SIMT_NARROW_FNUZ ? 0x80u : 0x7fu;
            TEST_ASSERT_EQUAL_HEX32(0x7f800001u, converted(narrow, e4m3)[nan]);
        }
    float nan = ta_as_float(0x7f800001u);
    TEST_ASSERT_TRUE(is_nan(ta_as_bits(ta_quiet(nan)) & 0xffff0000u));
    TEST_ASSERT_EQUAL_HEX32(0xff800000u, ta_as_bits(ta_quiet(-INFINITY)));
    TEST_ASSERT_EQUAL_HEX32(0x80000000u, ta_as_bits(ta_quiet(-0.0f)));
}

static void test_no_instruction(void)
{
    device_array<float> to(256);
    simt_set_narrow(SIMT_NARROW_NONE);
    CHECK_HIP(TA_LAUNCH(convert_codes, 1, 1, 0, nullptr, 1, to.data).error);
    CHECK_ERROR(hipErrorLaunchFailure, hipDeviceSynchronize(), "the device has no instruction");
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(test_single_codes);
    RUN_TEST(test_eight_codes_at_a_time);
    RUN_TEST(test_pairs_of_codes);
    RUN_TEST(test_the_choice);
    RUN_TEST(test_fnuz_reads_ocp_as_something_else);
    RUN_TEST(test_a_nan_of_lower_bits);
    RUN_TEST(test_no_instruction);
    return UNITY_END() != 0;
}
