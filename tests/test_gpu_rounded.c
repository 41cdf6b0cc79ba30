/* Weights that may be rounded (config.weights), on the executor: which kernels round them, that the
 * sum of the weights is not touched, what stays exact, and that the error bound is tight. Random
 * cases of all kernels draw the option too (lib/case.c). */
#include <stdlib.h>

#include "lib/case.h"
#include "lib/direct_case.h"
#include "lib/expect_case.h"
#include "lib/options.h"
#include "unity.h"

void setUp(void)
{
}

void tearDown(void)
{
}

static case_kept keep(decode_case c, ta_weights weights)
{
    bound_worst worst = {{0}, 0};
    c.plan.weights = weights;
    return keep_case(&c, &worst);
}

/* Does the output have other bits if weights may be rounded? The lse never has. */
static void expect_rounding(decode_case c, bool rounds)
{
    static char line[1024];
    c.plan.out_dtype = TA_F32;
    case_describe(&c, line, sizeof line);
    case_kept exact = keep(c, TA_WEIGHTS_EXACT), other = keep(c, TA_WEIGHTS_ROUNDED);
    bool same = same_bits(&exact, &other, false);
    TEST_ASSERT_TRUE_MESSAGE(same != rounds, line);
    TEST_ASSERT_EQUAL_MEMORY_MESSAGE(exact.lse, other.lse,
                                     (size_t)exact.lse_count * sizeof *exact.lse, line);
    case_kept_free(&exact);
    case_kept_free(&other);
}

/* So many query heads of one KV head; f16 if the length is even. */
static decode_case latent(int heads, int32_t length)
{
    decode_case c = direct_plain(576, heads, 1, length);
    c.plan.v_dim = 512;
    c.v_in_k = true;
    return c;
}

static decode_case of_8_bits(int dim, int heads, int32_t length)
{
    decode_case c = direct_plain(dim, heads, 1, length);
    c.plan.kv_dtype = TA_E4M3;
    c.plan.query_dtype = TA_BF16;
    c.k_scale = c.v_scale = CASE_SCALES_TOKENS;
    return c;
}

/* Lengths with tiles that all rows see, and with a tail; and tiles at edges alone. */
static void test_matrix_cores_round(void)
{
    static const int dims[] = {64, 128, 256, 96};
    for (int32_t length = 150; length <= 151; ++length) {
        for (int d = 0; d < 4; ++d) {
            decode_case c = direct_plain(dims[d], 9, 2, length);
            expect_rounding(c, true);
            c.alibi = true;
            expect_rounding(c, true);
            case_reproducible(&c, 32);
            expect_rounding(c, true);
        }
        for (int heads = 16; heads <= 64; heads *= 2)
            expect_rounding(latent(heads, length), true);
        expect_rounding(of_8_bits(64, 3, length), true);
        expect_rounding(of_8_bits(128, 12, length), true);
        expect_rounding(of_8_bits(96, 12, length), true);
    }
}

static void test_other_kernels_do_not(void)
{
    expect_rounding(direct_plain(96, 1, 1, 150), false);
    decode_case c = direct_plain(128, 9, 1, 150);
    c.plan.kv_dtype = c.plan.query_dtype = TA_F32;
    expect_rounding(c, false);
}

/* A weight of 1 is one number of either type. */
static void test_a_single_key_has_a_weight_of_1(void)
{
    static const int dims[] = {64, 96};
    for (int d = 0; d < 2; ++d)
        for (int bf16 = 0; bf16 < 2; ++bf16) {
            decode_case c = direct_plain(dims[d], 9, 1, 1);
            c.plan.kv_dtype = c.plan.query_dtype = bf16 ? TA_BF16 : TA_F16;
            expect_rounding(c, false);
            c = latent(16, 1);
            c.plan.kv_dtype = c.plan.query_dtype = bf16 ? TA_BF16 : TA_F16;
            expect_rounding(c, false);
        }
}

static void test_values_that_are_not_finite(void)
{
    for (int variant = 0; variant < 16; ++variant) {
        decode_case c = variant % 4 == 3 ? latent(16, 30 + variant)
                                         : direct_plain(variant % 4 ? 64 : 96, 8, 2, 30 + variant);
        c.plan.weights = TA_WEIGHTS_ROUNDED;
        direct_not_finite(c, variant);
        c.special = CASE_NAN_KEY;
        expect_case(&c, &direct_worst);
    }
}

/* Few keys, whose roundings can't cancel: weights that were cut off, or rounded to bf16 in place of
 * f16, exceed the bound. */
static void test_the_bound_is_tight(void)
{
    for (int kind = 0; kind < 6; ++kind) {
        bound_worst worst = {{0}, 0};
        for (int i = 0; i < 20; ++i) {
            int32_t length = 2 + 2 * (i % 3) + kind % 2;
            decode_case c = kind < 2   ? direct_plain(64, 8, 1, length)
                            : kind < 4 ? direct_plain(96, 8, 1, length)
                                       : latent(16, length);
            c.seed = (uint64_t)(100 * kind + i);
            c.plan.weights = TA_WEIGHTS_ROUNDED;
            c.plan.out_dtype = TA_F32;
            expect_case(&c, &worst);
        }
        bound_worst_print(&worst);
        TEST_ASSERT_TRUE(worst.out[TA_F32] >= 0.125 && worst.out[TA_F32] <= 1);
    }
}

int main(int argc, char **argv)
{
    if (!options_read(argc, argv))
        return 2;
    if (!getenv("TA_TEST_DEVICE"))
        options.device = "simt";
    UNITY_BEGIN();
    RUN_TEST(test_matrix_cores_round);
    RUN_TEST(test_other_kernels_do_not);
    RUN_TEST(test_a_single_key_has_a_weight_of_1);
    RUN_TEST(test_values_that_are_not_finite);
    RUN_TEST(test_the_bound_is_tight);
    return UNITY_END() != 0;
}
