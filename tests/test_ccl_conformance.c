/* The conformance suite (conformance.h) on groups of GPUs: hip/ccl/ over the executor's NCCL,
 * as it is today and as an old one that can neither start without blocking nor split. An argument
 * is the version to pretend, such as 21304. */
#include <stdlib.h>

#include "lib/ccl_ranks.h"
#include "lib/expect.h"
#include "simt/simt_ccl.h"
#include "simt/simt_control.h"

void setUp(void)
{
}

void tearDown(void)
{
    TEST_ASSERT_TRUE_MESSAGE(ccl_all_gone(), "communicators are left");
}

static ta_status run_rank(ccl_rank *rank)
{
    conformance_memory memory = ccl_memory(rank);
    return conformance_run(rank->group, &memory, *(size_t *)rank->context);
}

static ta_status run_on(int ranks, size_t most_bytes)
{
    return ccl_run(ranks, LONG_WAIT_MS, run_rank, &most_bytes);
}

static void test_rank_counts(void)
{
    static const conformance_size sizes[] = {
        {1, 4 << 20}, {2, 4 << 20}, {3, 4 << 20}, {5, 1 << 20}, {8, 65540}};
    EXPECT_OK(conformance_sizes(sizes, sizeof sizes / sizeof *sizes, run_on));
}

int main(int argc, char **argv)
{
    if (argc > 1)
        simt_set_ccl_version(atoi(argv[1]));
    UNITY_BEGIN();
    RUN_TEST(test_rank_counts);
    return UNITY_END() != 0;
}
