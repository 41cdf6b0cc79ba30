/* What the tests of a decoder layer's operations share, on the host and on a GPU: random numbers,
 * and a comparison that prints by how much it failed. */
#ifndef BENCH_TESTS_NUMBERS_H
#define BENCH_TESTS_NUMBERS_H

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unity.h>

#include "common/elements.h"

#define U 0x1p-24 /* half the distance from 1 to the next float */

/* The caller frees them. */
static inline float *numbers(int64_t count, uint64_t seed, float range)
{
    float *data = malloc((size_t)count * sizeof *data);
    element_fill(TA_F32, data, 0, count, seed, range);
    return data;
}

static inline void near(double expected, double got, double bound, const char *what)
{
    char text[256];
    snprintf(text, sizeof text, "%s: %.17g, not %.17g: %g is more than %g", what, got, expected,
             fabs(got - expected), bound);
    TEST_ASSERT_TRUE_MESSAGE(fabs(got - expected) <= bound, text);
}

#endif
