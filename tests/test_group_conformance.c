/* The conformance suite (conformance.h) on ranks that are threads. */
#include "lib/conformance.h"
#include "lib/expect.h"

void setUp(void)
{
}

void tearDown(void)
{
}

static ta_status run_rank(ta_group *group, void *context)
{
    return conformance_run(group, &conformance_host, *(size_t *)context);
}

static void run_on(int ranks, size_t most_bytes)
{
    ta_group_config config = TA_GROUP_CONFIG_INIT;
    config.timeout_ms = 20000;
    EXPECT_OK(ta_group_run_threads(ranks, &config, run_rank, &most_bytes));
}

static void test_on_1_rank(void)
{
    run_on(1, 4 << 20);
}

static void test_on_2_ranks(void)
{
    run_on(2, 4 << 20);
}

static void test_on_3_ranks(void)
{
    run_on(3, 4 << 20);
}

static void test_on_5_ranks(void)
{
    run_on(5, 4 << 20);
}

static void test_on_8_ranks(void)
{
    run_on(8, 4 << 20);
}

static void test_on_13_ranks(void)
{
    run_on(13, 100);
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(test_on_1_rank);
    RUN_TEST(test_on_2_ranks);
    RUN_TEST(test_on_3_ranks);
    RUN_TEST(test_on_5_ranks);
    RUN_TEST(test_on_8_ranks);
    RUN_TEST(test_on_13_ranks);
    return UNITY_END() != 0;
}
