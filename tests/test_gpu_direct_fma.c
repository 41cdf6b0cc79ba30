/* attend_direct_fma (hip/attend/direct_fma.hip) on the executor: random cases with every type of K,
 * V and the query, dimensions, rows, page sizes and options, compared with the oracle; that it is
 * what runs, and only where it can; lengths around tiles and shares; values that are not finite;
 * pages that are none; and that neither how a query is aligned nor ranks and pages of reproducible
 * mode change a bit. `--seed N` runs that case alone. */
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

/* Do matrix cores multiply these? */
static bool for_matrix(const decode_case *c)
{
    return c->plan.kv_dtype != TA_F32 && c->plan.query_dtype == c->plan.kv_dtype;
}

static void choose_dims(random_source *r, decode_case *c)
{
    static const int dims[] = {64, 80, 96, 112, 128, 128, 192, 256};
    c->v_in_k = false;
    c->plan.k_dim = RANDOM_PICK(r, dims);
    c->plan.v_dim = random_one_in(r, 2) ? c->plan.k_dim : RANDOM_PICK(r, dims);
    if (random_one_in(r, 3)) {
        c->plan.k_dim = 8 * random_int(r, 1, 32);
        c->plan.v_dim = 8 * random_int(r, 1, 32);
    }
    if (for_matrix(c) && c->plan.k_dim == c->plan.v_dim && c->plan.k_dim % 64 == 0)
        c->plan.k_dim -= 8; /* those of 64, 128 and 256 are for other kernels */
}

static void choose_rows(random_source *r, decode_case *c)
{
    static const int tokens[] = {1, 1, 1, 1, 2, 3, 4, 7}, longest[] = {5, 40, 40, 200, 500, 1500};
    c->plan.query_tokens = RANDOM_PICK(r, tokens);
    c->plan.kv_heads = random_int(r, 1, 3);
    int most = for_matrix(c) || random_one_in(r, 3) ? 7 : 32; /* rows, above 4 in several groups */
    int heads = random_one_in(r, 3) ? 1 : random_int(r, 1, most / c->plan.query_tokens);
    c->plan.query_heads = c->plan.kv_heads * heads;
    most = RANDOM_PICK(r, longest);
    direct_choose_lengths(r, c, most, most > 200 ? 2 : 6);
}

static const direct_kernel taken = {6666, 250, DIRECT_ANY, choose_dims, choose_rows};

/* Types and dimensions of which each variant has others. */
static decode_case case_of(int variant, int heads, int tokens, int32_t length)
{
    static const struct {
        ta_dtype kv, query;
        int k_dim, v_dim;
    } variants[] = {
        {TA_F32, TA_F32, 128, 128},  {TA_BF16, TA_F32, 128, 128}, {TA_F16, TA_F16, 96, 80},
        {TA_F32, TA_BF16, 192, 128}, {TA_F16, TA_BF16, 256, 256}, {TA_F32, TA_F32, 64, 200},
    };
    int i = variant % 6;
    decode_case c = direct_plain(variants[i].k_dim, heads, tokens, length);
    c.seed += 100000u * (unsigned)variant;
    c.plan.kv_dtype = variants[i].kv;
    c.plan.query_dtype = variants[i].query;
    c.plan.v_dim = variants[i].v_dim;
    return c;
}

/* A launch that is refused says which kernel it was. */
static void expect_kernel(const decode_case *c, const char *kernel)
{
    simt_fail_launch(1);
    TEST_ASSERT_FALSE(case_run(c, &direct_worst, failure, sizeof failure));
    simt_fail_launch(0);
    const char *name = strstr(failure, "launching kernel ");
    TEST_ASSERT_NOT_NULL_MESSAGE(name, failure);
    name += strlen("launching kernel ");
    TEST_ASSERT_TRUE_MESSAGE(strncmp(name, kernel, strlen(kernel)) == 0, failure);
}

static void test_it_runs(void)
{
    for (int variant = 0; variant < 6; ++variant)
        for (int heads = 1; heads <= 17; heads += 4) {
            decode_case c = case_of(variant, heads, 1, 200);
            if (for_matrix(&c) && heads >= 8)
                expect_kernel(&c, "attend_mma<");
            else
                expect_kernel(&c, "attend_direct_fma<");
        }
    decode_case c = case_of(0, 1, 1, 200);
    c.plan.k_dim = 264;
    expect_kernel(&c, "attend_fma<");
    c.plan.k_dim = 128;
    c.plan.kv_dtype = TA_E4M3;
    expect_kernel(&c, "attend_fma<");
    c = case_of(0, 1, 1, 200);
    c.k.strides_given = true;
    c.k.pad_token = 1;
    expect_kernel(&c, "attend_fma<");
}

/* Just below, at and above tiles, units of 64, and shares of several pieces. */
static void test_lengths_around_tiles_and_shares(void)
{
    static const int edges[] = {8, 16, 32, 64, 128, 192, 1024, 2048};
    for (int i = 0; i < 8; ++i)
        for (int off = -1; off <= 1; ++off)
            direct_around_edge(case_of(i, 1 + i % 3 * 2, 1 + i % 2, edges[i] + off), edges[i], off);
}

/* One long sequence among short ones and empty ones: most blocks have a part of it. */
static void test_unequal_lengths(void)
{
    static const int32_t lengths[] = {3, 3000, 0, 17, 64, 0, 130, 1};
    for (int heads = 1; heads <= 3; ++heads) {
        decode_case c = case_of(heads - 1, 2 * heads, 1, 0);
        c.plan.kv_heads = heads;
        direct_unequal_lengths(c, lengths);
    }
}

static void test_values_that_are_not_finite(void)
{
    for (int variant = 0; variant < 24; ++variant)
        direct_not_finite(case_of(variant, 1, variant % 2 ? 4 : 6, 30 + variant), variant);
}

static void test_pages_that_are_none(void)
{
    direct_pages_that_are_none(TA_F32, 128, 128);
    direct_pages_that_are_none(TA_F16, 128, 72);
    direct_pages_that_are_none(TA_F32, 256, 192);
}

static void test_any_query(void)
{
    for (int i = 0; i < 12; ++i) {
        decode_case c = case_of(i, 1 + i % 3, 2, 99 + i);
        c.want_lse = true;
        if (i >= 6)
            case_reproducible(&c, 32);
        direct_any_query(c);
    }
}

static void test_ranks_and_pages_of_reproducible_mode(void)
{
    for (int i = 0; i < 6; ++i) {
        decode_case c = case_of(i, 1 + i % 3, 1 + i % 2 * 2, 500 + 13 * i);
        c.plan.window = i % 2 ? 0 : 300;
        direct_same_bits(c);
    }
}

static void test_all(void)
{
    RUN_DIRECT_TESTS();
    RUN_TEST(test_it_runs);
    RUN_TEST(test_pages_that_are_none);
    RUN_TEST(test_any_query);
    RUN_TEST(test_ranks_and_pages_of_reproducible_mode);
}

int main(int argc, char **argv)
{
    return direct_main(argc, argv, &taken, test_all);
}
