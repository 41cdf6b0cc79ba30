/* Ranks that are not in the same step (src/decode/step_fault.c), as threads with host devices, or
 * with those that `--device` names: every algorithm, exchange and placement, with every kind of
 * difference. lib/differing_step.h says what must come of it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "decode/sizes.h"
#include "decode/step.h"
#include "lib/differing_step.h"
#include "lib/expect.h"
#include "lib/options.h"
#include "lib/small_step.h"

void setUp(void)
{
}

void tearDown(void)
{
}

static ta_status run_rank(ta_group *group, void *context)
{
    ta_device_config one_thread = TA_DEVICE_CONFIG_INIT;
    ta_device *device;
    one_thread.threads = 1;
    TA_TRY(ta_device_open(options.device, options_host() ? &one_thread : NULL, &device));
    ta_status status = differing_step_rank(group, device, context, NULL);
    ta_device_close(device);
    return status;
}

/* Every `stride`-th of all, which with 5 and 7 comes to each kind, exchange and placement. */
static void run_ranks(int ranks, int stride)
{
    differing_step d;
    char text[40];
    ta_cluster *cluster;
    snprintf(text, sizeof text, "local:2x%d", (ranks + 1) / 2);
    EXPECT_OK(ta_cluster_create(text, &cluster));
    for (int i = 0; differing_step_get(i, ranks, 0, &d); i += stride) {
        char message[400];
        /* Direct exchanges of one node, and of several where one of them has several ranks. */
        d.cluster = d.exchange == TA_EXCHANGE_DIRECT && (ranks < 3 || i % 2) ? NULL : cluster;
        if (!options_chosen((uint64_t)i))
            continue;
        ta_status status = ta_group_run_threads(ranks, NULL, run_rank, &d);
        snprintf(message, sizeof message,
                 "%d ranks, kind %d, algorithm %d, exchange %d, placement %d, reproducible %d: "
                 "%.200s",
                 ranks, (int)d.kind, (int)d.algorithm, (int)d.exchange, (int)d.placement,
                 d.reproducible, status == TA_OK ? "" : ta_last_error());
        TEST_ASSERT_EQUAL_INT_MESSAGE(TA_OK, status, message);
    }
    ta_cluster_destroy(cluster);
}

static void test_steps_that_differ(void)
{
    run_ranks(2, 5);
    run_ranks(3, 1);
    run_ranks(5, 7);
    run_ranks(8, 7);
}

/* ---- Checks that the environment asks for ---- */

/* A query with other bits on one rank, which only checked mode looks at. */
static ta_status asked_rank(ta_group *group, void *context)
{
    int finds = *(int *)context;
    ta_device *device;
    ta_plan *plan = NULL;
    small_step step;
    TA_TRY(small_step_open(&step, group, &device, &plan));
    step.query[3] += (float)(step.rank == 1);
    ta_status status = small_step_decode(&step, plan);
    ta_plan_destroy(plan);
    ta_device_close(device);
    RANK_EXPECT(status == (finds ? TA_ERR_MISMATCH : TA_OK));
    RANK_EXPECT(!finds || strstr(ta_last_error(), "the query"));
    RANK_EXPECT(!finds || small_step_untouched(&step));
    return TA_OK;
}

static void test_checks_of_the_environment(void)
{
    static const struct {
        const char *value;
        int checks;
    } settings[] = {{NULL, 0}, {"1", 1}, {"0", 0}, {"", 0}, {"1", 1}};
    for (size_t i = 0; i < sizeof settings / sizeof *settings; ++i) {
        int checks = settings[i].checks;
        if (settings[i].value)
            setenv("TREEATTN_CHECK", settings[i].value, 1);
        else
            unsetenv("TREEATTN_CHECK");
        EXPECT_OK(ta_group_run_threads(3, NULL, asked_rank, &checks));
    }
    unsetenv("TREEATTN_CHECK");
}

/* A row of rank 1's query has another bit at its beginning or its end, or stands where the next one
 * should: each is found in checked mode. */
typedef struct query_change {
    int row, at_end, swaps;
} query_change;

static ta_status changed_row(ta_group *group, void *context)
{
    enum { ROW = SMALL_HEADS * SMALL_K_DIM };
    const query_change *c = context;
    small_rank r;
    TA_TRY(small_rank_open(&r, group));
    float *row = r.step.query + c->row * ROW, kept[ROW];
    if (r.step.rank == 1 && c->swaps) {
        memcpy(kept, row, sizeof kept);
        memcpy(row, row + ROW, sizeof kept);
        memcpy(row + ROW, kept, sizeof kept);
    } else if (r.step.rank == 1) {
        row[c->at_end ? ROW - 1 : 0] += 1.0f;
    }
    ta_status status = small_step_decode(&r.step, r.plan);
    TA_TRY(small_rank_close(&r));
    return rank_expect_error(TA_ERR_MISMATCH, status, "ranks 0 and 1 differ", "");
}

static void test_every_row_of_a_query(void)
{
    const int rows = SMALL_BATCH * SMALL_QUERY_TOKENS;
    setenv("TREEATTN_CHECK", "1", 1);
    for (int i = 0; i < 3 * rows - 1; ++i) {
        query_change c = {.row = i / 3, .at_end = i % 3 == 1, .swaps = i % 3 == 2};
        EXPECT_OK(ta_group_run_threads(2, NULL, changed_row, &c));
    }
    unsetenv("TREEATTN_CHECK");
}

/* Rows size messages. A call of other sizes than the one before it costs one exchange more, on all
 * ranks, and calls of the same size none. */
static ta_status other_rows(ta_group *group, void *context)
{
    static const int32_t totals[] = {4, 3, 3, 3, 1, 1, 4, 4};
    uint64_t usual = 0;
    small_rank r;
    (void)context;
    TA_TRY(small_rank_open(&r, group));
    for (size_t i = 0; i < sizeof totals / sizeof *totals; ++i) {
        ta_group_stats before = TA_GROUP_STATS_INIT, after = TA_GROUP_STATS_INIT;
        r.step.starts[1] = totals[i] < 2 ? totals[i] : 2;
        r.step.starts[2] = totals[i];
        small_step_ragged(&r.step, totals[i]);
        TA_TRY(ta_group_get_stats(group, &before));
        TA_TRY(small_step_decode(&r.step, r.plan));
        TA_TRY(ta_group_get_stats(group, &after));
        uint64_t messages = after.messages_sent - before.messages_sent;
        usual = i == 0 ? messages : usual;
        RANK_EXPECT(usual > 0 || r.step.ranks == 1);
        RANK_EXPECT(messages == (i > 0 && totals[i] != totals[i - 1] ? 2 : 1) * usual);
    }
    return small_rank_close(&r);
}

/* With output on one root, which alone hears of faults, the group itself notices, and is broken. */
static ta_status other_rows_to_root(ta_group *group, void *context)
{
    small_step step;
    ta_device *device;
    ta_plan *plan;
    (void)context;
    small_step_init(&step, ta_group_rank(group), ta_group_size(group));
    step.config.out_placement = TA_PLACE_ROOT;
    step.config.exchange = TA_EXCHANGE_BINOMIAL;
    TA_TRY(ta_device_open("host", NULL, &device));
    TA_TRY(ta_plan_create(group, device, &step.config, &plan));
    step.starts[2] = step.rank == 1 ? 3 : 4;
    small_step_ragged(&step, step.starts[2]);
    ta_status status = small_step_decode(&step, plan);
    RANK_EXPECT(status == TA_ERR_MISMATCH || status == TA_ERR_ABORTED ||
                (status == TA_OK && step.rank > 0));
    RANK_EXPECT(status != TA_ERR_MISMATCH || strstr(ta_last_error(), "call.tokens"));
    RANK_EXPECT(small_step_untouched(&step));
    RANK_EXPECT(step.rank > 0 || small_step_decode(&step, plan) != TA_OK);
    ta_plan_destroy(plan);
    ta_device_close(device);
    return TA_OK;
}

static void test_other_rows(void)
{
    EXPECT_OK(ta_group_run_threads(3, NULL, other_rows_to_root, NULL));
    EXPECT_OK(ta_group_run_threads(2, NULL, other_rows, NULL));
    EXPECT_OK(ta_group_run_threads(3, NULL, other_rows, NULL));
}

/* What of a call sizes the messages of a plan, in device memory and in the host's: rows always, and
 * the number of sequences where slices of K and V have a place for each. */
static void test_what_sizes_messages(void)
{
    static const struct {
        ta_algorithm algorithm;
        int hidden, of_rows, of_batch;
    } cases[] = {{TA_ALGORITHM_TREE, 0, 1, 0},
                 {TA_ALGORITHM_RING_Q, 0, 1, 0},
                 {TA_ALGORITHM_RING_Q, 1, 1, 0},
                 {TA_ALGORITHM_RING_KV, 0, 0, 0}, /* which compares first in every step */
                 {TA_ALGORITHM_RING_KV, 1, 1, 1}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; ++i) {
        ta_plan plan = {.ranks = 2,
                        .algorithm = cases[i].algorithm,
                        .lengths_hidden = cases[i].hidden,
                        .sizes = {.rows = 4, .batch = 2}};
        ta_step step = {.problem = {.rows = 4, .batch = 2}};
        TEST_ASSERT_FALSE(ta_sizes_change(&plan, &step));
        step.problem.batch = 3;
        TEST_ASSERT_EQUAL_INT(cases[i].of_batch, ta_sizes_change(&plan, &step));
        step.problem.batch = 2;
        step.problem.rows = 3;
        TEST_ASSERT_EQUAL_INT(cases[i].of_rows, ta_sizes_change(&plan, &step));
        plan.ranks = 1;
        TEST_ASSERT_FALSE(ta_sizes_change(&plan, &step));
    }
}

/* The same words, in one list on rank 0 and in a list for each KV head on the others: their hash is
 * the same, and still they are not the same lists. */
static ta_status other_lists(ta_group *group, void *context)
{
    enum { ROWS = SMALL_BATCH * SMALL_QUERY_TOKENS, WORDS = 2 * SMALL_KV_HEADS };
    int32_t selected[ROWS][WORDS];
    small_rank r;
    (void)context;
    for (int row = 0; row < ROWS; ++row)
        for (int i = 0; i < WORDS; ++i)
            selected[row][i] = i < 3 ? i : -1;
    TA_TRY(small_rank_open(&r, group));
    r.step.call.selected = &selected[0][0];
    r.step.call.selected_count = WORDS;
    TA_TRY(small_step_decode(&r.step, r.plan));
    r.step.call.selected_lists = r.step.rank == 0 ? 1 : SMALL_KV_HEADS;
    r.step.call.selected_count = WORDS / r.step.call.selected_lists;
    TA_TRY(rank_expect_error(TA_ERR_MISMATCH, small_step_decode(&r.step, r.plan),
                             "ranks 0 and 1 differ in this step", "nothing was written"));
    RANK_EXPECT(small_step_untouched(&r.step));
    return small_rank_close(&r);
}

static void test_other_lists(void)
{
    EXPECT_OK(ta_group_run_threads(2, NULL, other_lists, NULL));
}

/* What others hear of a rank that failed: where, with which error, and its first words, of which
 * none is cut off in the middle. */
static ta_status quoted_rank(ta_group *group, void *context)
{
    small_rank r;
    (void)context;
    TA_TRY(small_rank_open(&r, group));
    if (r.step.rank == 1)
        r.step.lengths[1] = -34567;
    ta_status status = small_step_decode(&r.step, r.plan);
    RANK_EXPECT(status == TA_ERR_INVALID);
    RANK_EXPECT(strstr(ta_last_error(), r.step.rank == 1
                                            ? "kv.lengths[1] is -34567"
                                            : "rank 1 failed in this step with TA_ERR_INVALID "
                                              "(\"kv.lengths[1] is …\"), its ta_last_error() says "
                                              "why; nothing was written"));
    return small_rank_close(&r);
}

static void test_words_of_another_rank(void)
{
    EXPECT_OK(ta_group_run_threads(2, NULL, quoted_rank, NULL));
}

/* A query that one rank has is not compared: the others are given none. */
static ta_status placed_query(ta_group *group, void *context)
{
    small_step step;
    ta_device *device;
    (void)context;
    small_step_init(&step, ta_group_rank(group), ta_group_size(group));
    step.config.check = 1;
    step.config.query_placement = TA_PLACE_ROOT;
    step.config.query_root = 1;
    if (step.rank != 1)
        step.q.data = NULL;
    TA_TRY(ta_device_open("host", NULL, &device));
    ta_status status = small_step_try(&step, group, device);
    ta_device_close(device);
    return status;
}

static void test_a_query_on_one_rank(void)
{
    EXPECT_OK(ta_group_run_threads(3, NULL, placed_query, NULL));
}

int main(int argc, char **argv)
{
    if (!options_read(argc, argv))
        return 2;
    UNITY_BEGIN();
    RUN_TEST(test_steps_that_differ);
    RUN_TEST(test_checks_of_the_environment);
    RUN_TEST(test_every_row_of_a_query);
    RUN_TEST(test_other_rows);
    RUN_TEST(test_what_sizes_messages);
    RUN_TEST(test_other_lists);
    RUN_TEST(test_words_of_another_rank);
    RUN_TEST(test_a_query_on_one_rank);
    return UNITY_END() != 0;
}
