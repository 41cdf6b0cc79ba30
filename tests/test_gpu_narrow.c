/* The direct kernels over K and V of 8 bits (hip/attend/direct_elements.h) on the executor: random
 * cases that they are for, in every dialect, with scales of every kind, on devices with and without
 * instructions for it, compared with the oracle; that they are what runs, and where not; lengths
 * around tiles and shares; codes that are no numbers, in tiles that all queries see and in those of
 * which they see parts; scales that no row may use; and that it does not matter how a query is
 * aligned. test_narrow has every code, test_replay other scales and lengths in a recorded step.
 * `--seed N` runs that case alone. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "lib/case.h"
#include "lib/device_array.h"
#include "lib/direct_case.h"
#include "lib/expect.h"
#include "lib/expect_case.h"
#include "lib/options.h"
#include "lib/plan_config.h"
#include "simt/simt_control.h"
#include "unity.h"

static char failure[2048];

static const ta_dtype dialects[] = {TA_E4M3, TA_E5M2, TA_E4M3_FNUZ, TA_E5M2_FNUZ};
static const simt_narrow instructions[] = {SIMT_NARROW_NONE, SIMT_NARROW_OCP, SIMT_NARROW_FNUZ};

void setUp(void)
{
}

void tearDown(void)
{
    simt_set_narrow(SIMT_NARROW_NONE);
}

static void choose_dims(random_source *r, decode_case *c)
{
    direct_choose_dims(r, c);
    simt_set_narrow(RANDOM_PICK(r, instructions));
}

static const direct_kernel taken = {9999, 100, DIRECT_8_BITS, choose_dims, direct_choose_rows};

static decode_case case_of(ta_dtype dtype, int dim, int heads, int tokens, int32_t length)
{
    decode_case c = direct_plain(dim, heads, tokens, length);
    c.plan.kv_dtype = dtype;
    c.plan.query_dtype = TA_BF16;
    c.plan.out_dtype = TA_F32;
    return c;
}

static int device_wave(void)
{
    int wave = 0;
    TEST_ASSERT_EQUAL_INT(hipSuccess, hipDeviceGetAttribute(&wave, hipDeviceAttributeWarpSize, 0));
    return wave;
}

/* ---- That they run: a launch that is refused says which kernel it was ---- */

static bool runs_directly(const decode_case *c)
{
    simt_fail_launch(1);
    bool done = case_run(c, &direct_worst, failure, sizeof failure);
    simt_fail_launch(0);
    TEST_ASSERT_FALSE(done);
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(failure, "launching kernel "), failure);
    return strstr(failure, "launching kernel attend_direct") != NULL;
}

static void test_they_run(void)
{
    static const int dims[] = {64, 96, 128, 256};
    for (int i = 0; i < 4 * 4 * 3; ++i) {
        int dim = dims[i / 4 % 4];
        decode_case c = case_of(dialects[i % 4], dim, 1 + i / 16 * 8, 1, 200);
        c.k_scale = (case_scales)(i % 4);
        c.v_scale = (case_scales)(i / 4 % 4);
        bool direct = dim != 96 && (dim != 256 || device_wave() == 32);
        TEST_ASSERT_TRUE_MESSAGE(runs_directly(&c) == direct, failure);
        expect_case(&c, &direct_worst);
    }
}

/* What is left to the kernels with shared memory gives the same numbers there. */
static void expect_other(decode_case c)
{
    TEST_ASSERT_FALSE_MESSAGE(runs_directly(&c), failure);
    expect_case(&c, &direct_worst);
}

static void test_what_others_take(void)
{
    decode_case c = case_of(TA_E4M3, 128, 8, 1, 200), other = c;
    other.plan.query_dtype = TA_F32;
    expect_other(other);
    other.plan.query_dtype = TA_F16;
    expect_other(other);
    other = c;
    other.k = (case_layout){.pad_token = 8, .strides_given = true};
    expect_other(other);
    other = c;
    other.v.offset = 8;
    expect_other(other);
    other = c;
    other.selected = 50;
    other.plan.algorithm = TA_ALGORITHM_TREE;
    case_select(&other);
    expect_other(other);
}

/* ---- Lengths ---- */

/* Just below, at and above tiles of 16, units of 64, and shares of several pieces. */
static void test_lengths_around_tiles_and_shares(void)
{
    static const int edges[] = {16, 32, 64, 128, 192, 1024, 2048};
    for (int i = 0; i < 7; ++i)
        for (int off = -1; off <= 1; ++off) {
            decode_case c = case_of(dialects[i % 4], 64, 1 + i * 2, 1 + i % 2, edges[i] + off);
            c.k_scale = c.v_scale = (case_scales)((i + off) & 3);
            simt_set_narrow(instructions[i % 3]);
            direct_around_edge(c, edges[i], off);
        }
}

/* One long sequence among short ones and empty ones: most blocks have a part of it. */
static void test_unequal_lengths(void)
{
    static const int32_t lengths[] = {3, 3000, 0, 17, 64, 0, 130, 1};
    for (int heads = 1; heads <= 3; ++heads) {
        decode_case c = case_of(dialects[heads], 64, 2 * heads, 1, 0);
        c.plan.kv_heads = heads;
        c.k_scale = CASE_SCALES_TOKENS;
        c.v_scale = heads % 2 ? CASE_SCALES_TOKENS : CASE_SCALES_HEADS;
        direct_unequal_lengths(c, lengths);
    }
}

/* ---- Codes that are no numbers ---- */

static void test_values_that_are_not_finite(void)
{
    for (int variant = 1; variant < 48; variant += 2) { /* NaN: 8 bits have no other in a case */
        decode_case c =
            case_of(dialects[variant / 2 % 4], variant % 3 ? 64 : 128, 2, 4, 30 + variant);
        c.k_scale = c.v_scale = (case_scales)(variant / 8 % 4);
        direct_not_finite(c, variant);
    }
}

static void test_pages_that_are_none(void)
{
    direct_pages_that_are_none(TA_E4M3, 64, 64);
    direct_pages_that_are_none(TA_E5M2_FNUZ, 128, 128);
}

/* ---- Any code, anywhere ---- */

enum { DIM = 128, TOKENS = 80, HEADS = 5, WAVE_TILE = 16 };

/* A sequence of ones, whose tokens' scores are all the same, on a device. */
typedef struct ones {
    ta_dtype dtype;
    ta_device *device;
    device_array q, k, v, lengths, k_scales, v_scales, out;
} ones;

static void ones_open(ones *s, ta_dtype dtype)
{
    s->dtype = dtype;
    EXPECT_OK(ta_device_open(options.device, NULL, &s->device));
    EXPECT_OK(device_array_make(s->device, HEADS * DIM, 2, &s->q));
    EXPECT_OK(device_array_make(s->device, TOKENS * DIM, 1, &s->k));
    EXPECT_OK(device_array_make(s->device, TOKENS * DIM, 1, &s->v));
    EXPECT_OK(device_array_make(s->device, 1, sizeof(int32_t), &s->lengths));
    EXPECT_OK(device_array_make(s->device, TOKENS, sizeof(float), &s->k_scales));
    EXPECT_OK(device_array_make(s->device, TOKENS, sizeof(float), &s->v_scales));
    EXPECT_OK(device_array_make(s->device, HEADS * DIM, sizeof(float), &s->out));
    ((int32_t *)s->lengths.host)[0] = TOKENS;
    uint8_t one = (uint8_t)number_bits(dtype, 1.0);
    memset(s->v.host, one, TOKENS * DIM);
    for (int i = 0; i < TOKENS; ++i)
        ((float *)s->k_scales.host)[i] = ((float *)s->v_scales.host)[i] = 1.0f;
}

static void ones_close(ones *s)
{
    device_array *arrays[] = {&s->q,        &s->k,        &s->v,  &s->lengths,
                              &s->k_scales, &s->v_scales, &s->out};
    for (int i = 0; i < 7; ++i)
        device_array_free(arrays[i]);
    ta_device_close(s->device);
}

/* Decode with the window; the scales are of tokens. */
static const float *ones_decode(ones *s, int32_t window)
{
    const device_array *given[] = {&s->q, &s->k, &s->v, &s->lengths, &s->k_scales, &s->v_scales};
    ta_plan *plan = NULL;
    ta_plan_config config = plan_config(s->dtype, 1, 1, DIM, TOKENS);
    config.query_heads = HEADS;
    config.kv_heads = 1;
    config.query_dtype = TA_BF16;
    config.out_dtype = TA_F32;
    config.window = window;
    ta_kv kv = TA_KV_INIT;
    ta_tensor q = {.data = s->q.device}, out = {.data = s->out.device};
    kv.k.data = s->k.device;
    kv.v.data = s->v.device;
    kv.lengths = s->lengths.device;
    kv.k_scale = (ta_scales){s->k_scales.device, 0, 1, 1};
    kv.v_scale = (ta_scales){s->v_scales.device, 0, 1, 1};
    for (int i = 0; i < 6; ++i)
        EXPECT_OK(device_array_to(given[i], NULL));
    EXPECT_OK(ta_plan_create(NULL, s->device, &config, &plan));
    EXPECT_OK(ta_decode(plan, &q, &kv, &out, NULL, NULL, NULL));
    EXPECT_OK(device_array_from(&s->out, NULL));
    ta_plan_destroy(plan);
    return s->out.host;
}

/* Where code number i of a round is. 5 has no divisor of DIM: each has a column of its own. */
static int column_of(int i, int round)
{
    return (i * 5 + round) % DIM;
}

static int token_of(int i, int round)
{
    return (i * 7 + round * 11) % TOKENS;
}

/* Half of all codes in V, with keys that are 0: the output is the mean. What is no number is in its
 * own column alone. */
static void check_codes(ones *s, int round)
{
    uint8_t one = (uint8_t)number_bits(s->dtype, 1.0), *v = s->v.host;
    int first = round % 2 * DIM;
    for (int i = 0; i < DIM; ++i)
        v[token_of(i, round) * DIM + column_of(i, round)] = (uint8_t)(first + i);
    const float *out = ones_decode(s, 0);
    for (int i = 0; i < HEADS * DIM; ++i) {
        uint8_t code = (uint8_t)(first + i % DIM);
        int at = i / DIM * DIM + column_of(i % DIM, round);
        double number = number_decode(s->dtype, &code, 0), mean = (TOKENS - 1 + number) / TOKENS;
        double most = (TOKENS + fabs(number)) / TOKENS * 0x1p-21;
        bool right = isfinite(mean) ? fabs((double)out[at] - mean) <= most : !isfinite(out[at]);
        snprintf(failure, sizeof failure, "dtype %d, code 0x%02x, round %d: element %d is %g: %g",
                 (int)s->dtype, (unsigned)code, round, at, (double)out[at], mean);
        TEST_ASSERT_TRUE_MESSAGE(right, failure);
    }
    for (int i = 0; i < DIM; ++i)
        v[token_of(i, round) * DIM + column_of(i, round)] = one;
}

/* In every lane, word and byte one after the other. */
static void test_every_code_in_every_place(void)
{
    for (int i = 0; i < 12; ++i) {
        ones s;
        simt_set_narrow(instructions[i / 4]);
        ones_open(&s, dialects[i % 4]);
        for (int round = 0; round < 8; ++round)
            check_codes(&s, round);
        ones_close(&s);
    }
}

/* A token before the window, in the same tile as some that are seen: whatever its codes and scales
 * are, it is not there. */
static void test_what_is_not_seen(void)
{
    for (int i = 0; i < 4; ++i) {
        ones s;
        ones_open(&s, dialects[i]);
        int hidden = TOKENS - WAVE_TILE - 3; /* of 19 that the window sees none */
        for (int d = 0; d < DIM; ++d) {
            ((uint8_t *)s.k.host)[(hidden - 1) * DIM + d] = i < 2 ? 0x7f : 0x80;
            ((uint8_t *)s.v.host)[(hidden - 1) * DIM + d] = i < 2 ? 0x7f : 0x80;
        }
        for (int t = 0; t < hidden; ++t)
            ((float *)s.k_scales.host)[t] = ((float *)s.v_scales.host)[t] = t % 2 ? NAN : INFINITY;
        const float *out = ones_decode(&s, TOKENS - hidden);
        for (int d = 0; d < HEADS * DIM; ++d)
            TEST_ASSERT_EQUAL_FLOAT(1.0f, out[d]);
        ones_close(&s);
    }
}

static void test_any_query(void)
{
    static const int dims[] = {64, 128, 256};
    for (int i = 0; i < 6; ++i) {
        decode_case c = case_of(dialects[i % 4], dims[i % 3], 9, 2, 99 + i);
        c.want_lse = true;
        c.k_scale = CASE_SCALES_HEADS;
        if (i >= 3)
            case_reproducible(&c, 32);
        direct_any_query(c);
    }
}

static void test_ranks_and_pages_of_reproducible_mode(void)
{
    for (int i = 0; i < 8; ++i) {
        decode_case c = case_of(dialects[i % 4], i < 4 ? 64 : 128, 3, 1 + i % 2 * 2, 700 + 13 * i);
        c.k_scale = c.v_scale = (case_scales)(i % 4);
        c.plan.window = i % 3 ? 0 : 300;
        direct_same_bits(c);
    }
}

static void test_all(void)
{
    RUN_TEST(test_random_cases);
    RUN_TEST(test_they_run);
    RUN_TEST(test_what_others_take);
    RUN_TEST(test_lengths_around_tiles_and_shares);
    RUN_TEST(test_unequal_lengths);
    RUN_TEST(test_values_that_are_not_finite);
    RUN_TEST(test_pages_that_are_none);
    RUN_TEST(test_every_code_in_every_place);
    RUN_TEST(test_what_is_not_seen);
    RUN_TEST(test_any_query);
    RUN_TEST(test_ranks_and_pages_of_reproducible_mode);
}

int main(int argc, char **argv)
{
    return direct_main(argc, argv, &taken, test_all);
}
