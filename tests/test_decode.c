/* Random decode cases over the whole product of features, each named by a seed. A failing case
 * prints its parameters; `test_decode --seed N` runs that one again. */
#include <stdio.h>

#include "case.h"
#include "options.h"
#include "unity.h"

static char failure[2048];
static bound_worst worst;

void setUp(void)
{
}

void tearDown(void)
{
}

static void run_seeds(uint64_t first, int count)
{
    for (int i = 0; i < count; ++i) {
        decode_case c = case_random(first + (uint64_t)i);
        if (!case_run(&c, &worst, failure, sizeof failure))
            TEST_FAIL_MESSAGE(failure);
    }
}

static void test_small_cases(void)
{
    run_seeds(0, options.cases ? options.cases : 3000);
}

static void test_large_cases(void)
{
    run_seeds(CASE_LARGE_SEEDS, options.cases ? options.cases / 100 : 24);
}

/* Over all of these cases the bound is reached to at least an eighth, so it can catch a mistake. */
static void test_the_bound_is_tight(void)
{
    double ratios[] = {worst.out[TA_F32], worst.out[TA_F16], worst.out[TA_BF16], worst.lse};
    for (int i = 0; i < 4; ++i)
        TEST_ASSERT_TRUE(ratios[i] >= 0.125 && ratios[i] <= 1);
}

static void test_one_seed(void)
{
    run_seeds(options.seed, options.cases ? options.cases : 1);
}

int main(int argc, char **argv)
{
    if (!options_read(argc, argv))
        return 2;
    UNITY_BEGIN();
    if (options.one_seed) {
        RUN_TEST(test_one_seed);
    } else {
        RUN_TEST(test_small_cases);
        RUN_TEST(test_large_cases);
        RUN_TEST(test_the_bound_is_tight);
    }
    printf("worst error / bound: f32 %.3f f16 %.3f bf16 %.3f lse %.3f\n", worst.out[TA_F32],
           worst.out[TA_F16], worst.out[TA_BF16], worst.lse);
    return UNITY_END() != 0;
}
