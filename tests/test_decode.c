/* Random decode cases over the whole product of features, each named by a seed. A failing case
 * prints its parameters; `test_decode --seed N` runs that one again. */
#include <stdio.h>

#include "lib/case.h"
#include "lib/expect_case.h"
#include "lib/options.h"
#include "lib/patience.h"
#include "lib/seed_main.h"
#include "unity.h"

static bound_worst worst;

void setUp(void)
{
}

void tearDown(void)
{
}

static void run_seed(uint64_t seed)
{
    decode_case c = case_random(seed);
    expect_case(&c, &worst);
}

static void test_small_cases(void)
{
    run_seeds(run_seed, 0, options.cases ? options.cases : 3000);
}

static void test_large_cases(void)
{
    run_seeds(run_seed, CASE_LARGE_SEEDS, options.cases ? options.cases / 100 : 24);
}

static void run_one(decode_case c)
{
    expect_case(&c, &worst);
}

/* Lengths just below, at and above the sizes that work is divided into. */
static void test_lengths_around_tiles_and_splits(void)
{
    static const int edges[] = {8, 64, 128, 192, 512, 576, 1024, 1536, 4096};
    for (int i = 0; i < 9; ++i)
        for (int off = -1; off <= 1; ++off) {
            decode_case c = case_plain();
            c.seed = (uint64_t)(edges[i] + off);
            c.plan.query_heads = 5;
            c.plan.query_tokens = 1 + i % 3;
            c.lengths[0] = edges[i] + off;
            c.threads = options_host() ? 1 + i % 3 : 1;
            if (!options_chosen(c.seed))
                continue;
            run_one(c);
            c.plan.window = edges[i] / 2 + off;
            run_one(c);
        }
}

/* More query rows than fit one pass over K and V. */
static void test_many_query_rows(void)
{
    decode_case c = case_plain();
    c.plan.query_tokens = PATIENCE_FACTOR > 1 ? 2 : 64;
    c.plan.query_heads = 9;
    c.plan.k_dim = 576;
    c.plan.v_dim = 512;
    c.v_in_k = true;
    c.plan.kv_dtype = TA_BF16;
    c.lengths[0] = 90;
    run_one(c);
    c = case_plain();
    c.ranks = 2;
    c.plan.query_tokens = PATIENCE_FACTOR > 1 ? 24 : 1024; /* TSan takes minutes for more */
    c.plan.query_heads = 3;
    c.lengths[0] = 1100;
    c.plan.window = 100;
    run_one(c);
}

/* Partials that are exchanged in chunks: more than two MiB. */
static void test_large_partials(void)
{
    if (PATIENCE_FACTOR > 1 && !options_host())
        TEST_IGNORE_MESSAGE("too much for TSan on the executor");
    for (int variant = 0; variant < 4; ++variant) {
        decode_case c = case_plain();
        c.ranks = 3;
        c.plan.query_tokens = 700;
        c.plan.query_heads = c.plan.kv_heads = 5;
        c.plan.k_dim = 8;
        c.plan.v_dim = 160;
        c.plan.window = 16;
        c.lengths[0] = 750;
        c.plan.map.kind = TA_SHARD_BLOCK_CYCLIC;
        c.plan.map.block = 8;
        c.plan.out_placement = (ta_placement)(variant % 3);
        c.plan.out_root = variant == TA_PLACE_ROOT ? 2 : 0;
        c.plan.query_placement = variant == 3 ? TA_PLACE_HEADS : TA_PLACE_ALL;
        run_one(c);
    }
}

/* Scores that overflow to −inf: such keys count for nothing, wherever they stand. */
static void test_scores_below_the_range_of_binary32(void)
{
    static const int lengths[] = {2, 9, 64, 65, 300};
    for (int i = 0; i < 5; ++i)
        for (int variant = 0; variant < 8; ++variant) {
            decode_case c = case_plain();
            c.seed = (uint64_t)(100 * i + variant);
            if (!options_chosen(c.seed))
                continue;
            c.ranks = 1 + variant % 3;
            c.plan.query_heads = 1 + variant;
            c.plan.query_tokens = 1 + variant % 2;
            c.plan.k_dim = 24;
            c.plan.kv_dtype = variant % 2 ? TA_BF16 : TA_F32;
            c.lengths[0] = lengths[i];
            c.far_keys = true;
            if (options_host() && variant >= 4)
                snprintf(c.simd, sizeof c.simd, "scalar");
            run_one(c);
        }
}

/* Over all of these cases the bound is reached to at least an eighth, so it can catch a mistake. */
static void test_the_bound_is_tight(void)
{
    if (options.every > 1)
        TEST_IGNORE_MESSAGE("too few cases to tell");
    for (int dtype = TA_F32; dtype < NUMBER_DTYPE_END; ++dtype)
        TEST_ASSERT_TRUE(worst.out[dtype] >= 0.125 && worst.out[dtype] <= 1);
    TEST_ASSERT_TRUE(worst.lse >= 0.125 && worst.lse <= 1);
}

static void run_all(void)
{
    RUN_TEST(test_small_cases);
    RUN_TEST(test_large_cases);
    RUN_TEST(test_lengths_around_tiles_and_splits);
    RUN_TEST(test_many_query_rows);
    RUN_TEST(test_large_partials);
    RUN_TEST(test_scores_below_the_range_of_binary32);
    RUN_TEST(test_the_bound_is_tight);
}

int main(int argc, char **argv)
{
    int code = seed_main(argc, argv, run_seed, run_all);
    bound_worst_print(&worst);
    return code;
}
