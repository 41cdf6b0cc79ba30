/* What main() does in a program of random cases, each named by a seed. */
#ifndef TESTS_SEED_MAIN_H
#define TESTS_SEED_MAIN_H

#include "options.h"
#include "unity.h"

/* Read the arguments, then run the test of one seed if they name one, otherwise all tests. Returns
 * what main() should. */
static inline int seed_main(int argc, char **argv, void (*one_seed)(void), void (*all)(void))
{
    if (!options_read(argc, argv))
        return 2;
    UNITY_BEGIN();
    if (options.one_seed)
        RUN_TEST(one_seed);
    else
        all();
    options_left_out();
    return UNITY_END() != 0;
}

#endif
