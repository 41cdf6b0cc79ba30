/* Steps over a transport of the caller's own (lib/socket_transport.h), against the oracle: random
 * decode cases with a tree and with both rings, ragged ones, combines and appends, attention on
 * grids, whose rows and columns are channels of the transport, and ranks that are not in the same
 * step.
 *
 *     test_custom_steps [--seed N] [--cases N] [--device NAME] [--algorithm NAME] */
#include <stdio.h>
#include <string.h>

#include <treeattn/attention.h>

#include "lib/append_case.h"
#include "lib/attention_case.h"
#include "lib/case.h"
#include "lib/combine_case.h"
#include "lib/differing_step.h"
#include "lib/expect.h"
#include "lib/expect_case.h"
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

static char failure[2048];

static void run_cases(uint64_t first, int cases, ta_algorithm algorithm)
{
    bound_worst worst = {0};
    for (int i = 0; i < cases; ++i) {
        options.algorithm = algorithm;
        decode_case c = case_random_on(first + (uint64_t)i, 1 + i % 5);
        expect_case(&c, &worst);
    }
}

static int count(int cases)
{
    return options.cases ? options.cases : options.one_seed ? 1 : cases;
}

static uint64_t first_seed(uint64_t seed)
{
    return options.one_seed ? options.seed : seed;
}

static void test_decode(void)
{
    int cases = count(40);
    case_launch = launch;
    options.messages = true;
    run_cases(first_seed(100), cases, TA_ALGORITHM_AUTO);
    run_cases(first_seed(200), cases / 2 + 1, TA_ALGORITHM_RING_KV);
    run_cases(first_seed(300), cases / 2 + 1, TA_ALGORITHM_RING_Q);
}

/* Every sequence with query tokens of its own, some with none. */
static void test_ragged(void)
{
    bound_worst worst = {0};
    case_launch = launch;
    options.messages = true;
    options.algorithm = TA_ALGORITHM_AUTO;
    for (int i = 0; i < count(40); ++i) {
        decode_case c = case_random_on(first_seed(400) + (uint64_t)i, 2 + i % 4);
        c.ragged = true;
        c.plan.query_tokens = 5;
        c.plan.max_call_tokens = 0;
        c.spare_call_tokens = -1;
        for (int b = 0; b < c.plan.batch; ++b)
            c.tokens[b] = (b + i) % 6;
        c.tokens[i % c.plan.batch] = 3;
        expect_case(&c, &worst);
    }
}

static void test_combine(void)
{
    bound_worst worst = {0};
    case_launch = launch;
    options.messages = true;
    for (int i = 0; i < count(120); ++i) {
        combine_case c = combine_case_random(first_seed(0) + (uint64_t)i, 0);
        if (!combine_case_run(&c, &worst, failure, sizeof failure))
            TEST_FAIL_MESSAGE(failure);
    }
}

/* Sources that move nothing are tried once in a while: the others are what a transport is for. */
static void test_append(void)
{
    case_launch = launch;
    options.messages = true;
    for (int i = 0; i < count(80); ++i) {
        append_case c = append_case_random(first_seed(0) + (uint64_t)i, 0);
        if (i % 4)
            c.source = TA_APPEND_HEADS;
        if (!append_case_run(&c, failure, sizeof failure))
            TEST_FAIL_MESSAGE(failure);
    }
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
    small_rank r;
    (void)context;
    TA_TRY(small_rank_open(&r, group));
    r.step.call.tag = ta_group_rank(group) == 1 ? 8 : 9;
    ta_status status = small_step_decode(&r.step, r.plan);
    RANK_EXPECT(status == TA_ERR_MISMATCH && strstr(ta_last_error(), "in the tag"));
    RANK_EXPECT(small_step_untouched(&r.step));
    r.step.call.tag = 9; /* the group is as good as before */
    TA_TRY(small_step_decode(&r.step, r.plan));
    RANK_EXPECT(small_step_right(&r.step));
    return small_rank_close(&r);
}

/* In what would size their messages, with every algorithm and exchange. */
static ta_status differ_in_size(ta_group *group, void *context)
{
    differing_step d;
    ta_device *device;
    (void)context;
    TA_TRY(ta_device_open("host", NULL, &device));
    for (int i = 0; differing_step_get(i, ta_group_size(group), 0, &d); ++i)
        if (d.exchange != TA_EXCHANGE_TWO_LEVEL && d.kind >= OTHER_BATCH)
            TA_TRY(differing_step_rank(group, device, &d, NULL));
    ta_device_close(device);
    return TA_OK;
}

static void test_steps_that_differ(void)
{
    EXPECT_OK(socket_run_threads(2, SOCKET_IN_CALLS, NULL, differ_in_size, NULL));
    EXPECT_OK(socket_run_processes(3, SOCKET_IN_CALLS, NULL, differ_in_size, NULL));
    EXPECT_OK(socket_run_threads(3, SOCKET_IN_CALLS, NULL, differ, NULL));
    EXPECT_OK(socket_run_processes(3, SOCKET_IN_CALLS, NULL, differ, NULL));
}

int main(int argc, char **argv)
{
    if (!options_read(argc, argv))
        return 2;
    UNITY_BEGIN();
    RUN_TEST(test_decode);
    RUN_TEST(test_ragged);
    RUN_TEST(test_combine);
    RUN_TEST(test_append);
    if (options_host()) {
        RUN_TEST(test_attention);
        RUN_TEST(test_steps_that_differ);
    }
    return UNITY_END() != 0;
}
