/* What must become of a call on several ranks when one of them has no memory: that rank says so,
 * and the others hear of it in time. For the programs that let every allocation fail once. */
#ifndef TESTS_NO_MEMORY_H
#define TESTS_NO_MEMORY_H

#include "expect.h"

#define NO_MEMORY_RANKS 3

/* One allocation that fails. */
typedef struct refusal {
    int rank, number; /* whose it is, and which */
    int failed;       /* it did: the call has so many */
    ta_status status[NO_MEMORY_RANKS];
    char said[NO_MEMORY_RANKS][1024];
} refusal;

/* `alone`: the ranks of this call have nothing to do with each other. */
static inline void expect_no_memory(const refusal *r, const char *call, int alone)
{
    char text[2048];
    for (int rank = 0; rank < NO_MEMORY_RANKS; ++rank) {
        ta_status status = r->status[rank];
        snprintf(text, sizeof text, "%s, allocation %d of rank %d fails: rank %d gave %s \"%s\"",
                 call, r->number, r->rank, rank, ta_status_name(status), r->said[rank]);
        if (rank == r->rank)
            TEST_ASSERT_EQUAL_INT_MESSAGE(TA_ERR_NO_MEMORY, status, text);
        else if (alone)
            TEST_ASSERT_EQUAL_INT_MESSAGE(TA_OK, status, text);
        else
            TEST_ASSERT_TRUE_MESSAGE(status != TA_OK && status != TA_ERR_TIMEOUT, text);
        if (status != TA_OK)
            TEST_ASSERT_NOT_NULL_MESSAGE(strstr(r->said[rank], "memory"), text);
    }
}

/* No allocation fails any more: then the call works. */
static inline void expect_memory(const refusal *r)
{
    for (int rank = 0; rank < NO_MEMORY_RANKS; ++rank)
        TEST_ASSERT_EQUAL_INT_MESSAGE(TA_OK, r->status[rank], r->said[rank]);
}

#endif
