/* Steps over a transport of the caller's own (lib/socket_transport.h), against the oracle: random
 * decode cases with a tree and with both rings, attention on grids, whose rows and columns are
 * channels of the transport, and ranks that are not in the same step.
 *
 *     test_custom_steps [--seed N] [--cases N] [--device NAME] [--algorithm NAME] */
#include <stdio.h>
#include <string.h>

#include <treeattn/attention.h>

#include "lib/attention_case.h"
#include "lib/case.h"
#include "lib/expect.h"
#include "lib/options.h"
#include "lib/small_step.h"
#include "lib/socket_transport.h"

void setUp(void)
{
}

void tearDown(void)
{
}

static ta_status launch(int ranks, const ta_group_config *config, ta_rank_fn fn, void *context)
{
    return socket_run_threads(ranks, SOCKET_IN_CALLS, config, fn, context);
}

static void run_cases(uint64_t first, int cases, ta_algorithm algorithm)
{
    bound_worst worst = {0};
    static char failure[2048];
    for (int i = 0; i < cases; ++i) {
        options.algorithm = algorithm;
        decode_case c = case_random_on(first + (uint64_t)i, 1 + i % 5);
        if (!case_run(&c, &worst, failure, sizeof failure))
            TEST_FAIL_MESSAGE(failure);
    }
}

static void test_decode(void)
{
    int cases = options.cases ? options.cases : options.one_seed ? 1 : 40;
    case_launch = launch;
    run_cases(options.one_seed ? options.seed : 100, cases, TA_ALGORITHM_AUTO);
    run_cases(options.one_seed ? options.seed : 200, cases / 2 + 1, TA_ALGORITHM_RING_KV);
    run_cases(options.one_seed ? options.seed : 300, cases / 2 + 1, TA_ALGORITHM_RING_Q);
}

/* ---- Attention ------------------------------------------------------------------------------- */

typedef struct attention_job {
    attention_case c;
    attention_run run;
} attention_job;

static ta_status attend(ta_group *group, void *context)
{
    attention_job *job = context;
    attention_result result;
    TA_TRY(attention_run_group(&job->c, &job->run, group, &result));
    for (int i = 0; i < 5; ++i)
        if (!(result.worst[i] <= 1))
            return ta_fail(TA_ERR_DEVICE, "result %d is %.3g times its bound off: %s", i,
                           result.worst[i], attention_describe(&job->c, &job->run));
    return TA_OK;
}

static void test_attention(void)
{
    static const int grids[][2] = {{2, 2}, {1, 3}, {2, 3}};
    for (int i = 0; i < 9; ++i) {
        const int *grid = grids[i % 3];
        attention_job job = {
            .c = {.seed = 7 + (uint64_t)i, .dtype = TA_F32, .sequences = 2, .lengths = {41, 22}},
            .run = {.ranks = grid[0] * grid[1],
                    .algorithm = (ta_attention_algorithm)(i / 3),
                    .kind = (ta_shard_kind)(i % 3),
                    .block = i % 3 == TA_SHARD_BLOCK_CYCLIC}};
        job.c.problem = (oracle_problem){.query_heads = 4,
                                         .kv_heads = 2,
                                         .k_dim = 24,
                                         .v_dim = 16,
                                         .causal = true,
                                         .scale = 0.25};
        if (job.run.algorithm != TA_ATTENTION_RING) {
            job.run.grid_rows = grid[0];
            job.run.grid_columns = grid[1];
        }
        attention_case_make(&job.c, job.run.ranks);
        EXPECT_OK(socket_run_threads(job.run.ranks, SOCKET_IN_CALLS, NULL, attend, &job));
        attention_case_free(&job.c);
    }
}

/* ---- Ranks in different steps ---------------------------------------------------------------- */

static ta_status differ(ta_group *group, void *context)
{
    ta_device *device;
    ta_plan *plan = NULL;
    small_step step;
    (void)context;
    small_step_init(&step, ta_group_rank(group), ta_group_size(group));
    TA_TRY(ta_device_open("host", NULL, &device));
    TA_TRY(ta_plan_create(group, device, &step.config, &plan));
    step.call.tag = ta_group_rank(group) == 1 ? 8 : 9;
    ta_status status = small_step_decode(&step, plan);
    RANK_EXPECT(status == TA_ERR_MISMATCH && strstr(ta_last_error(), "in the tag"));
    RANK_EXPECT(small_step_untouched(&step));
    step.call.tag = 9; /* the group is as good as before */
    TA_TRY(small_step_decode(&step, plan));
    RANK_EXPECT(small_step_right(&step));
    ta_plan_destroy(plan);
    ta_device_close(device);
    return TA_OK;
}

static void test_steps_that_differ(void)
{
    EXPECT_OK(socket_run_threads(3, SOCKET_IN_CALLS, NULL, differ, NULL));
    EXPECT_OK(socket_run_processes(3, SOCKET_IN_CALLS, NULL, differ, NULL));
}

int main(int argc, char **argv)
{
    if (!options_read(argc, argv))
        return 2;
    UNITY_BEGIN();
    RUN_TEST(test_decode);
    if (options_host()) {
        RUN_TEST(test_attention);
        RUN_TEST(test_steps_that_differ);
    }
    return UNITY_END() != 0;
}
