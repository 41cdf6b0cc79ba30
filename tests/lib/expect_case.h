/* A decode case in a test: it is right, or the test fails and says what is wrong. */
#ifndef TESTS_EXPECT_CASE_H
#define TESTS_EXPECT_CASE_H

#include "case.h"
#include "unity.h"

/* Runs the case; *worst gathers how near the bound its results come. */
static inline void expect_case(const decode_case *c, bound_worst *worst)
{
    static char failure[2048];
    if (!case_run(c, worst, failure, sizeof failure))
        TEST_FAIL_MESSAGE(failure);
}

#endif
