/* What comes before and after each test on groups of GPUs over the executor's NCCL that sets
 * nothing else: no order for a failure is left of the last one, and no communicator. Included by
 * test_ccl_combine.c, test_ccl_launches.c and test_ccl_own.c; ccl_step.h has that of others. */
#ifndef TESTS_CCL_AROUND_H
#define TESTS_CCL_AROUND_H

#include "ccl_ranks.h"
#include "simt/simt_ccl.h"
#include "simt/simt_control.h"
#include "unity.h"

void setUp(void)
{
    simt_reset();
    simt_fail_ccl(-1, 0);
}

void tearDown(void)
{
    TEST_ASSERT_TRUE_MESSAGE(ccl_all_gone(), "communicators are left");
}

#endif
