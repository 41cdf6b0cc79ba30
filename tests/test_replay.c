/* Plans that record their steps and replay them (src/decode/replay.c), on any device with graphs:
 * other contents in the same buffers, lengths, scales, lists and prefixes included, compared with
 * the oracle each time. On one, and with `--group ccl` one for each rank. `treeattn-bench selftest`
 * runs it on real ones. */
#include <stdio.h>
#include <string.h>

#include "base/status.h"
#include "decode/plan.h"
#include "decode/replay.h"
#include "lib/capture_case.h"
#include "lib/expect.h"
#include "lib/options.h"

enum { ROUNDS = 5 };

void setUp(void)
{
}

void tearDown(void)
{
}

/* A step of this rank over what is in its buffers on the host. */
static ta_status check_step(const decode_case *c, const case_data *data, ta_plan *plan,
                            case_shard *shard)
{
    TA_TRY(case_fill(shard));
    TA_TRY(case_queue(c, plan, shard, NULL));
    TA_TRY(ta_device_synchronize(shard->device, NULL));
    TA_TRY(case_copy_all(shard, false));
    const char *wrong = case_check(c, data, shard);
    char line[1024];
    case_describe(c, line, sizeof line);
    return wrong ? ta_fail(TA_ERR_DEVICE, "%s\n    case: %s", wrong, line) : TA_OK;
}

static int count_recordings(const ta_plan *plan)
{
    int count = 0;
    for (int i = 0; i < TA_RECORDINGS; ++i)
        count += plan->recordings[i].graph != NULL;
    return count;
}

/* The first step is recorded, those after it are replayed. */
static ta_status check_rounds(ta_group *group, ta_plan *plan, case_shard *shard, void *context)
{
    const decode_case *c = context;
    ta_status status = TA_OK;
    for (int round = 0; round < ROUNDS && status == TA_OK; ++round) {
        decode_case other = capture_case_change(c, round);
        case_data data;
        case_shard contents;
        case_data_make(&other, &data);
        case_shard_make(&other, &data, ta_group_rank(group), &contents);
        capture_case_replace(&contents, shard);
        status = check_step(&other, &data, plan, shard);
        case_shard_free(&contents);
        case_data_free(&other, &data);
    }
    TA_TRY(status);
    RANK_EXPECT(plan->replayed == ROUNDS);
    RANK_EXPECT(count_recordings(plan) == 1);
    return TA_OK;
}

static ta_status run_rank(ta_group *threads, void *context)
{
    const decode_case *c = context;
    case_data data;
    case_data_make(c, &data);
    ta_status status =
        case_plan_use(c, &data, threads, options.device, NULL, check_rounds, context);
    case_data_free(c, &data);
    return status;
}

static void run_ranks(int ranks)
{
    for (int which = 0; which < CAPTURE_CASES; ++which) {
        decode_case c = capture_case(which);
        c.ranks = ranks;
        c.plan.replay = 1;
        c.plan.exchange = options_exchange(c.plan.exchange);
        if (!options_chosen((uint64_t)(ranks * CAPTURE_CASES + which)) || !options_ranks(ranks))
            continue;
        EXPECT_OK(ta_group_run_threads(ranks, NULL, run_rank, &c));
    }
}

static void test_one_rank(void)
{
    run_ranks(1);
}

/* Their shards have other lengths in every round, some of them none. */
static void test_several_ranks(void)
{
    if (!options.ccl && !(options.each && options.direct))
        TEST_IGNORE_MESSAGE("groups that move host memory wait for it, and can't be recorded");
    run_ranks(2);
    run_ranks(3);
    run_ranks(5);
}

/* What has no graphs refuses the field by its name. */
static void test_no_graphs(void)
{
    decode_case c = capture_case(0);
    c.plan.replay = 1;
    TEST_ASSERT_EQUAL_INT(TA_ERR_UNSUPPORTED, ta_group_run_threads(1, NULL, run_rank, &c));
    TEST_ASSERT_NOT_NULL(strstr(ta_last_error(), "config.replay is 1: device host has no graphs"));
}

int main(int argc, char **argv)
{
    if (!options_read(argc, argv))
        return 2;
    UNITY_BEGIN();
    if (options_host()) {
        RUN_TEST(test_no_graphs);
    } else {
        RUN_TEST(test_one_rank);
        RUN_TEST(test_several_ranks);
    }
    options_left_out();
    return UNITY_END() != 0;
}
