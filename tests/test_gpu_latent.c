/* attend_latent (hip/attend/latent.hip) on the executor: random cases of 576 and 512 dimensions
 * with V a view of K, with every row count, page size and option, compared with the oracle; that it
 * is what runs, and only where it can; lengths around tiles and shares; values that are not finite;
 * pages that are none; and that it does not matter how a query is aligned. `--seed N` runs that
 * case alone. */
#include <string.h>

#include "lib/case.h"
#include "lib/direct_case.h"
#include "simt/simt_control.h"
#include "unity.h"

enum { K_DIM = 576, V_DIM = 512 };

static char failure[2048];

void setUp(void)
{
}

void tearDown(void)
{
}

static void choose_dims(random_source *r, decode_case *c)
{
    (void)r;
    c->plan.k_dim = K_DIM;
    c->plan.v_dim = V_DIM;
    c->v_in_k = true;
}

static void choose_rows(random_source *r, decode_case *c)
{
    static const int rows[] = {1, 5, 16, 17, 32, 33, 40, 64, 65, 100};
    static const int tokens[] = {1, 1, 1, 2, 3, 5}, longest[] = {5, 40, 40, 120, 200};
    int most = RANDOM_PICK(r, rows);
    c->plan.query_tokens = RANDOM_PICK(r, tokens);
    if (c->plan.query_tokens > most)
        c->plan.query_tokens = 1;
    c->plan.kv_heads = most <= 17 && random_one_in(r, 3) ? 2 : 1;
    c->plan.query_heads = c->plan.kv_heads * (most / c->plan.query_tokens);
    most = RANDOM_PICK(r, longest);
    direct_choose_lengths(r, c, most, most > 40 ? 2 : 4);
}

static const direct_kernel taken = {8888, 24, DIRECT_16_BITS, choose_dims, choose_rows};

static decode_case case_of(int heads, int tokens, int32_t length)
{
    decode_case c = direct_plain(K_DIM, heads, tokens, length);
    c.seed = (uint64_t)(100 * heads + 10 * tokens + length);
    c.plan.v_dim = V_DIM;
    c.v_in_k = true;
    return c;
}

/* The kernel of the first launch. A launch that is refused says which kernel it was. */
static const char *first_kernel(const decode_case *c)
{
    simt_fail_launch(1);
    TEST_ASSERT_FALSE(case_run(c, &direct_worst, failure, sizeof failure));
    simt_fail_launch(0);
    const char *name = strstr(failure, "launching kernel ");
    TEST_ASSERT_NOT_NULL_MESSAGE(name, failure);
    return name + strlen("launching kernel ");
}

static void assert_runs(const decode_case *c, const char *kernel)
{
    const char *name = first_kernel(c);
    TEST_ASSERT_TRUE_MESSAGE(strncmp(name, kernel, strlen(kernel)) == 0, name);
}

static void test_it_runs(void)
{
    decode_case c = case_of(16, 1, 40);
    assert_runs(&c, "attend_latent<16>");
    c = case_of(32, 1, 40);
    assert_runs(&c, "attend_latent<32>");
    c = case_of(33, 1, 41);
    assert_runs(&c, "attend_latent<64>");
    c = case_of(64, 2, 41);
    assert_runs(&c, "attend_latent<64>");
    c.v_in_k = false; /* V has memory of its own */
    assert_runs(&c, "attend_mma");
    c.v_in_k = true;
    c.v_offset = 8;
    assert_runs(&c, "attend_mma");
    c.v_offset = 0;
    c.k.strides_given = true;
    c.k.pad_token = 1;
    assert_runs(&c, "attend_fma");
}

/* Just below, at and above tiles of 16, units of 64, and shares of several pieces. */
static void test_lengths_around_tiles_and_shares(void)
{
    static const int edges[] = {16, 32, 64, 128, 192, 1024}, heads[] = {1, 16, 32, 64, 40, 16};
    for (int i = 0; i < 6; ++i)
        for (int off = -1; off <= 1; ++off) {
            decode_case c = case_of(heads[i], 1 + i % 2, edges[i] + off);
            direct_around_edge(c, edges[i], off);
        }
}

/* One long sequence among short ones and empty ones: most blocks have a part of it. */
static void test_unequal_lengths(void)
{
    static const int32_t lengths[] = {3, 700, 0, 17, 64, 0, 130, 1};
    direct_unequal_lengths(case_of(16, 1, 0), lengths);
}

static void test_values_that_are_not_finite(void)
{
    for (int variant = 0; variant < 12; ++variant)
        direct_not_finite(case_of(variant % 3 ? 5 : 11, 4, 30 + variant), variant);
}

static void test_pages_that_are_none(void)
{
    direct_pages_that_are_none(TA_BF16, K_DIM, V_DIM);
}

static void test_any_query(void)
{
    decode_case c = case_of(17, 2, 90);
    c.want_lse = true;
    direct_any_query(c);
    case_reproducible(&c, 32);
    direct_any_query(c);
}

static void test_all(void)
{
    RUN_TEST(test_random_cases);
    RUN_TEST(test_it_runs);
    RUN_TEST(test_pages_that_are_none);
    RUN_TEST(test_any_query);
    RUN_TEST(test_values_that_are_not_finite);
    RUN_TEST(test_lengths_around_tiles_and_shares);
    RUN_TEST(test_unequal_lengths);
}

int main(int argc, char **argv)
{
    return direct_main(argc, argv, &taken, test_all);
}
