/* Assertions about errors: the status, and what the sentence must name. */
#ifndef TESTS_EXPECT_H
#define TESTS_EXPECT_H

#include <stdio.h>
#include <string.h>

#include <treeattn/treeattn.h>

#include "unity.h"

#define EXPECT_OK(call) expect_status(TA_OK, (call), #call, NULL, NULL, __LINE__)

/* The call fails with `status` and its sentence has both texts in it; NULL asks for nothing. */
#define EXPECT_ERROR(status, call, first, second)                                                  \
    expect_status((status), (call), #call, (first), (second), __LINE__)

static inline void expect_status(ta_status wanted, ta_status got, const char *call,
                                 const char *first, const char *second, int line)
{
    char text[1800];
    const char *said = got == TA_OK ? "" : ta_last_error();
    snprintf(text, sizeof text, "%s gave %s \"%s\", expected %s with \"%s\" and \"%s\"", call,
             ta_status_name(got), said, ta_status_name(wanted), first ? first : "",
             second ? second : "");
    if (got != wanted || (first && !strstr(said, first)) || (second && !strstr(said, second)))
        UNITY_TEST_FAIL((UNITY_UINT)line, text);
}

#endif
