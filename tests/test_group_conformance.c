/* The conformance suite (conformance.h) on ranks that are threads. */
#include "lib/conformance.h"
#include "lib/expect.h"
#include "lib/patience.h"

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

static ta_status run_on(int ranks, size_t most_bytes)
{
    ta_group_config config = TA_GROUP_CONFIG_INIT;
    config.timeout_ms = LONG_WAIT_MS;
    return ta_group_run_threads(ranks, &config, run_rank, &most_bytes);
}

static void test_rank_counts(void)
{
    static const conformance_size sizes[] = {{1, 4 << 20}, {2, 4 << 20}, {3, 4 << 20},
                                             {5, 4 << 20}, {8, 4 << 20}, {13, 100}};
    EXPECT_OK(conformance_sizes(sizes, sizeof sizes / sizeof *sizes, run_on));
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(test_rank_counts);
    return UNITY_END() != 0;
}
