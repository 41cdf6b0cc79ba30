/* Assertions about statuses: which one, and what the sentence of an error must name. */
#ifndef TESTS_EXPECT_H
#define TESTS_EXPECT_H

#include <stdio.h>
#include <string.h>

#include <treeattn/treeattn.h>

#include "base/status.h"
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

/* In the function of a rank, which runs on a thread of its own where Unity cannot stop the test:
 * return an error that says what did not hold. */
#define RANK_EXPECT(condition)                                                                     \
    do {                                                                                           \
        if (!(condition))                                                                          \
            return ta_fail(TA_ERR_DEVICE, "%s:%d: not so: %s (last error: %s)", __FILE__,          \
                           __LINE__, #condition, ta_last_error());                                 \
    } while (0)

/* There too: the call must have failed like this, on this rank. */
static inline ta_status rank_expect_error(ta_status wanted, ta_status got, const char *first,
                                          const char *second)
{
    if (got != wanted)
        return ta_fail(TA_ERR_DEVICE, "expected %s, got %s: %s", ta_status_name(wanted),
                       ta_status_name(got), ta_last_error());
    RANK_EXPECT(strstr(ta_last_error(), first));
    RANK_EXPECT(strstr(ta_last_error(), second));
    return TA_OK;
}

#endif
