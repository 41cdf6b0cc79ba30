/* The direct kernels (hip/attend/direct_kernel.h) on the executor: random cases that they are for,
 * with every head dimension, row count, page size and option, compared with the oracle; that they
 * are what runs; lengths around tiles and shares; pages that are none; and that it does not matter
 * how a query is aligned. `--seed N` runs that case alone. */
#include <string.h>

#include "lib/case.h"
#include "lib/direct_case.h"
#include "simt/simt_control.h"
#include "unity.h"

static char failure[2048];

void setUp(void)
{
}

void tearDown(void)
{
}

static const direct_kernel taken = {7777, 250, DIRECT_16_BITS, direct_choose_dims,
                                    direct_choose_rows};

/* A launch that is refused says which kernel it was. */
static void test_they_run(void)
{
    static const int dims[] = {64, 96, 128, 256};
    for (int d = 0; d < 4; ++d)
        for (int heads = 1; heads <= 17; heads += 8) {
            decode_case c = direct_plain(dims[d], heads, 1, 200);
            simt_fail_launch(1);
            TEST_ASSERT_FALSE(case_run(&c, &direct_worst, failure, sizeof failure));
            simt_fail_launch(0);
            bool direct = strstr(failure, "launching kernel attend_direct<") != NULL;
            TEST_ASSERT_TRUE_MESSAGE(direct == (dims[d] != 96), failure);
        }
}

/* Just below, at and above tiles of 16, units of 64, and shares of several pieces. */
static void test_lengths_around_tiles_and_shares(void)
{
    static const int edges[] = {16, 32, 64, 128, 192, 1024, 2048, 4096};
    for (int i = 0; i < 8; ++i)
        for (int off = -1; off <= 1; ++off) {
            decode_case c = direct_plain(64, 1 + i * 2, 1 + i % 2, edges[i] + off);
            direct_around_edge(c, edges[i], off);
        }
}

/* One long sequence among short ones and empty ones: most blocks have a part of it. */
static void test_unequal_lengths(void)
{
    static const int32_t lengths[] = {3, 5000, 0, 17, 64, 0, 130, 1};
    for (int heads = 1; heads <= 3; ++heads) {
        decode_case c = direct_plain(64, 2 * heads, 1, 0);
        c.plan.kv_heads = heads;
        direct_unequal_lengths(c, lengths);
    }
}

static void test_values_that_are_not_finite(void)
{
    for (int variant = 0; variant < 24; ++variant)
        direct_not_finite(direct_plain(variant % 3 ? 64 : 128, 2, 4, 30 + variant), variant);
}

static void test_pages_that_are_none(void)
{
    direct_pages_that_are_none(TA_BF16, 64, 64);
}

static void test_any_query(void)
{
    static const int dims[] = {64, 128, 256};
    for (int i = 0; i < 6; ++i) {
        decode_case c = direct_plain(dims[i % 3], 9, 2, 99 + i);
        c.want_lse = true;
        if (i >= 3)
            case_reproducible(&c, 32);
        direct_any_query(c);
    }
}

static void test_ranks_and_pages_of_reproducible_mode(void)
{
    static const int dims[] = {64, 128, 256};
    for (int i = 0; i < 6; ++i) {
        decode_case c = direct_plain(dims[i % 3], 3, 1 + i % 2 * 2, 700 + 13 * i);
        c.plan.window = i % 2 ? 0 : 300;
        direct_same_bits(c);
    }
}

static void test_all(void)
{
    RUN_DIRECT_TESTS();
    RUN_TEST(test_they_run);
    RUN_TEST(test_pages_that_are_none);
    RUN_TEST(test_any_query);
    RUN_TEST(test_ranks_and_pages_of_reproducible_mode);
}

int main(int argc, char **argv)
{
    return direct_main(argc, argv, &taken, test_all);
}
