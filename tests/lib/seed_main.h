/* Programs of random cases, each named by a seed: running some of them, and what main() does. */
#ifndef TESTS_SEED_MAIN_H
#define TESTS_SEED_MAIN_H

#include "options.h"
#include "unity.h"

/* The case of each seed from `first` on. */
static inline void run_seeds(void (*run)(uint64_t seed), uint64_t first, int count)
{
    for (int i = 0; i < count; ++i)
        run(first + (uint64_t)i);
}

static void (*told_run)(uint64_t seed);

static inline void test_told_seeds(void)
{
    run_seeds(told_run, options.seed, options.cases ? options.cases : 1);
}

/* Read the arguments, then run the cases that they name, if they name one, otherwise all tests.
 * Returns what main() should. */
static inline int seed_main(int argc, char **argv, void (*run)(uint64_t seed), void (*all)(void))
{
    if (!options_read(argc, argv))
        return 2;
    told_run = run;
    UNITY_BEGIN();
    if (options.one_seed)
        RUN_TEST(test_told_seeds);
    else
        all();
    options_left_out();
    return UNITY_END() != 0;
}

#endif
