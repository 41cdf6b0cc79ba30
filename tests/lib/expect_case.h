/* A decode case in a test: it is right, and where it must be has the bits of another, or the test
 * fails and says what is wrong. */
#ifndef TESTS_EXPECT_CASE_H
#define TESTS_EXPECT_CASE_H

#include <stdio.h>
#include <string.h>

#include "case.h"
#include "unity.h"

/* Runs the case; *worst gathers how near the bound its results come. */
static inline void expect_case(const decode_case *c, bound_worst *worst)
{
    static char failure[2048];
    if (!case_run(c, worst, failure, sizeof failure))
        TEST_FAIL_MESSAGE(failure);
}

/* The same, and what came out: free it with case_kept_free(). */
static inline case_kept keep_case(const decode_case *c, bound_worst *worst)
{
    static char failure[2048];
    case_kept kept;
    if (!case_run_keep(c, worst, &kept, failure, sizeof failure))
        TEST_FAIL_MESSAGE(failure);
    return kept;
}

/* Are all results the same to the bit, of cases that are alike? `lse`: both have it. */
static inline bool same_bits(const case_kept *a, const case_kept *b, bool lse)
{
    return !memcmp(a->out, b->out, (size_t)a->out_count * sizeof *a->out) &&
           (!lse || !memcmp(a->lse, b->lse, (size_t)a->lse_count * sizeof *a->lse));
}

/* Runs the case, which must have the bits of `first`: of what that was, `as` says. */
static inline void expect_bits(const case_kept *first, const decode_case *c, bound_worst *worst,
                               const char *as)
{
    static char line[1024], failure[2048];
    case_kept kept = keep_case(c, worst);
    bool same = same_bits(first, &kept, c->want_lse);
    case_kept_free(&kept);
    if (same)
        return;
    case_describe(c, line, sizeof line);
    snprintf(failure, sizeof failure, "other bits than %s\n    case: %s", as, line);
    TEST_FAIL_MESSAGE(failure);
}

#endif
