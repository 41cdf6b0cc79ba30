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

static void choose_dims(random_source *r, decode_case *c)
{
    static const int dims[] = {64, 128, 128, 256};
    c->plan.k_dim = c->plan.v_dim = RANDOM_PICK(r, dims);
    c->v_in_k = false;
}

static void choose_rows(random_source *r, decode_case *c)
{
    static const int tokens[] = {1, 1, 1, 1, 2, 3, 4, 8}, longest[] = {5, 40, 40, 200, 700, 3000};
    c->plan.query_tokens = RANDOM_PICK(r, tokens);
    c->plan.kv_heads = random_int(r, 1, 3);
    int most = random_one_in(r, 5) ? 40 : 16; /* rows; above 16 in several groups */
    c->plan.query_heads = c->plan.kv_heads * random_int(r, 1, most / c->plan.query_tokens);
    most = RANDOM_PICK(r, longest);
    direct_choose_lengths(r, c, most, most > 200 ? 2 : 6);
}

static const direct_kernel taken = {7777, 250, false, choose_dims, choose_rows};

static decode_case case_of(int dim, int heads, int tokens, int32_t length)
{
    decode_case c = case_plain();
    c.seed = (uint64_t)(1000 * dim + 100 * heads + 10 * tokens + length);
    c.plan.kv_dtype = c.plan.query_dtype = length % 2 ? TA_BF16 : TA_F16;
    c.plan.k_dim = c.plan.v_dim = dim;
    c.plan.query_heads = heads;
    c.plan.query_tokens = tokens;
    c.lengths[0] = length;
    c.spare_tokens = 1000; /* so that sequences are cut for a whole device */
    return c;
}

/* A launch that is refused says which kernel it was. */
static void test_they_run(void)
{
    static const int dims[] = {64, 96, 128, 256};
    for (int d = 0; d < 4; ++d)
        for (int heads = 1; heads <= 17; heads += 8) {
            decode_case c = case_of(dims[d], heads, 1, 200);
            simt_fail_launch(1);
            TEST_ASSERT_FALSE(case_run(&c, &direct_worst, failure, sizeof failure));
            simt_fail_launch(0);
            bool direct = strstr(failure, "launching kernel attend_direct") != NULL;
            TEST_ASSERT_TRUE_MESSAGE(direct == (dims[d] != 96), failure);
        }
}

/* Just below, at and above tiles of 16, units of 64, and shares of several pieces. */
static void test_lengths_around_tiles_and_shares(void)
{
    static const int edges[] = {16, 32, 64, 128, 192, 1024, 2048, 4096};
    for (int i = 0; i < 8; ++i)
        for (int off = -1; off <= 1; ++off) {
            decode_case c = case_of(64, 1 + i * 2, 1 + i % 2, edges[i] + off);
            direct_around_edge(c, edges[i], off);
        }
}

/* One long sequence among short ones and empty ones: most blocks have a part of it. */
static void test_unequal_lengths(void)
{
    static const int32_t lengths[] = {3, 5000, 0, 17, 64, 0, 130, 1};
    for (int heads = 1; heads <= 3; ++heads) {
        decode_case c = case_of(64, 2 * heads, 1, 0);
        c.plan.kv_heads = heads;
        direct_unequal_lengths(c, lengths);
    }
}

static void test_values_that_are_not_finite(void)
{
    for (int variant = 0; variant < 24; ++variant)
        direct_not_finite(case_of(variant % 3 ? 64 : 128, 2, 4, 30 + variant), variant);
}

static void test_pages_that_are_none(void)
{
    direct_pages_that_are_none(TA_BF16, 64, 64);
}

static void test_any_query(void)
{
    static const int dims[] = {64, 128, 256};
    for (int i = 0; i < 6; ++i) {
        decode_case c = case_of(dims[i % 3], 9, 2, 99 + i);
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
        decode_case c = case_of(dims[i % 3], 3, 1 + i % 2 * 2, 700 + 13 * i);
        c.plan.window = i % 2 ? 0 : 300;
        direct_same_bits(c);
    }
}

static void test_all(void)
{
    RUN_TEST(test_random_cases);
    RUN_TEST(test_they_run);
    RUN_TEST(test_lengths_around_tiles_and_shares);
    RUN_TEST(test_unequal_lengths);
    RUN_TEST(test_values_that_are_not_finite);
    RUN_TEST(test_pages_that_are_none);
    RUN_TEST(test_any_query);
    RUN_TEST(test_ranks_and_pages_of_reproducible_mode);
}

int main(int argc, char **argv)
{
    return direct_main(argc, argv, &taken, test_all);
}
