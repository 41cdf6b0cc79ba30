/* One function on every rank of a group of threads, and one status for all
 * (src/group/run_threads.c). */
#include <errno.h>
#include <pthread.h>

#include "base/clock.h"
#include "group/group.h"
#include "lib/expect.h"
#include "lib/run_and_meet.h"
#include "lib/small_step.h"

static int threads_left = -1; /* that can be started; -1: any number */

int __real_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *),
                          void *context);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *),
                          void *context);

/* The linker puts this in the place of pthread_create(). */
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *),
                          void *context)
{
    if (threads_left == 0)
        return EAGAIN;
    threads_left -= threads_left > 0;
    return __real_pthread_create(thread, attributes, run, context);
}

void setUp(void)
{
    threads_left = -1;
}

void tearDown(void)
{
}

static ta_status mark_rank(ta_group *group, void *context)
{
    int *marks = context;
    marks[ta_group_rank(group)] += ta_group_size(group);
    return TA_OK;
}

static void test_every_rank_runs_once(void)
{
    for (int ranks = 1; ranks <= 8; ++ranks) {
        int marks[9] = {0};
        EXPECT_OK(ta_group_run_threads(ranks, NULL, mark_rank, marks));
        for (int rank = 0; rank < 9; ++rank)
            TEST_ASSERT_EQUAL_INT(rank < ranks ? ranks : 0, marks[rank]);
    }
}

/* The ranks in the set `context` fail; the others wait for everybody. */
static ta_status failing_rank(ta_group *group, void *context)
{
    unsigned failing = *(unsigned *)context;
    int rank = ta_group_rank(group);
    if (failing >> rank & 1)
        return ta_fail(TA_ERR_UNSUPPORTED, "rank number %d does not want to", rank);
    return ta_group_barrier(group, NULL);
}

static void test_a_failing_rank_takes_the_others_along(void)
{
    for (int ranks = 1; ranks <= 8; ++ranks)
        for (int rank = 0; rank < ranks; ++rank) {
            unsigned failing = 1u << rank;
            char own[40], named[20];
            snprintf(own, sizeof own, "rank number %d does not", rank);
            snprintf(named, sizeof named, "rank %d", rank);
            EXPECT_ERROR(TA_ERR_UNSUPPORTED,
                         ta_group_run_threads(ranks, NULL, failing_rank, &failing), named, own);
        }
}

static void test_the_lowest_failing_rank_is_reported(void)
{
    unsigned failing = 1u << 6 | 1u << 2 | 1u << 5;
    for (int i = 0; i < 20; ++i)
        EXPECT_ERROR(TA_ERR_UNSUPPORTED, ta_group_run_threads(8, NULL, failing_rank, &failing),
                     "rank 2", "rank number 2 does not");
}

/* ---- The rank that found the cause ---- */

typedef struct cause {
    int rank;
    int in_plan; /* it is in the config of the plan, otherwise in the step */
    char seen[8][512];
    pthread_barrier_t all_done;
} cause;

static ta_status mistaken_rank(ta_group *group, void *context)
{
    cause *c = context;
    int rank = ta_group_rank(group), bad = rank == c->rank;
    ta_device_config one_thread = TA_DEVICE_CONFIG_INIT;
    ta_device *device;
    ta_plan *plan = NULL;
    small_step step;
    one_thread.threads = 1;
    small_step_init(&step, rank, ta_group_size(group));
    if (bad && c->in_plan)
        step.config.k_dim = 12;
    if (bad && !c->in_plan)
        step.lengths[1] = -1;
    TA_TRY(ta_device_open("host", &one_thread, &device));
    ta_status status = ta_plan_create(group, device, &step.config, &plan);
    if (status == TA_OK)
        status = small_step_decode(&step, plan);
    snprintf(c->seen[rank], sizeof c->seen[rank], "%s", ta_last_error());
    ta_plan_destroy(plan);
    ta_device_close(device);
    pthread_barrier_wait(&c->all_done); /* who returns now aborts what the others do */
    return status;
}

/* Its own sentence comes out, not that of a lower rank that only heard of it; and what that one
 * heard names the argument. */
static void test_the_rank_that_found_the_cause(void)
{
    static const char *const sentences[] = {"kv.lengths[1] is -1: must be 0 or more",
                                            "config.k_dim is 12"};
    for (int i = 0; i < 24; ++i) {
        cause c = {.rank = i % 4, .in_plan = i / 4 % 2};
        int other = (c.rank + 1) % 4;
        pthread_barrier_init(&c.all_done, NULL, 4);
        char own[80], named[80];
        snprintf(own, sizeof own, "rank %d: %s", c.rank, sentences[c.in_plan]);
        snprintf(named, sizeof named, "rank %d %s", c.rank,
                 c.in_plan ? "could not make its plan: config.k_dim is 12"
                           : "failed in this step with TA_ERR_INVALID (\"kv.lengths[1] is ");
        EXPECT_ERROR(TA_ERR_INVALID, ta_group_run_threads(4, NULL, mistaken_rank, &c), own, NULL);
        pthread_barrier_destroy(&c.all_done);
        TEST_ASSERT_NOT_NULL_MESSAGE(strstr(c.seen[other], named), c.seen[other]);
        TEST_ASSERT_NULL_MESSAGE(strstr(c.seen[c.rank], "ta_last_error"), c.seen[c.rank]);
    }
}

static ta_status late_rank(ta_group *group, void *barrier)
{
    if (ta_group_rank(group) == 1)
        return TA_OK;
    pthread_barrier_wait(barrier); /* those who come meet first */
    return ta_group_barrier(group, NULL);
}

/* Nobody failed but for time: it is a rank that waited, and names the one that did not come. */
static void test_a_rank_that_did_not_come(void)
{
    EXPECT_ERROR(TA_ERR_TIMEOUT, run_and_meet(4, 3, 1000, late_rank), "rank 1 did not arrive",
                 NULL);
}

static ta_status silent_rank(ta_group *group, void *context)
{
    (void)context;
    return ta_group_rank(group) == 1 ? TA_ERR_SYSTEM : TA_OK;
}

static void test_a_status_without_a_sentence(void)
{
    EXPECT_ERROR(TA_ERR_SYSTEM, ta_group_run_threads(3, NULL, silent_rank, NULL), "rank 1", NULL);
    TEST_ASSERT_TRUE(strlen(ta_last_error()) > strlen("rank 1: "));
}

static ta_status aborting_rank(ta_group *group, void *context)
{
    (void)context;
    if (ta_group_rank(group) == 1) {
        ta_group_abort(group, "enough");
        return TA_OK;
    }
    return ta_group_barrier(group, NULL);
}

static void test_an_abort_without_a_failing_rank(void)
{
    EXPECT_ERROR(TA_ERR_ABORTED, ta_group_run_threads(3, NULL, aborting_rank, NULL), "enough",
                 "rank 1");
}

static void test_the_timeout_of_the_config(void)
{
    ta_group_config config = TA_GROUP_CONFIG_INIT;
    config.timeout_ms = 50;
    double begin = ta_clock_s();
    ta_group *groups[2];
    char byte;
    EXPECT_OK(ta_group_create_threads(2, &config, groups));
    EXPECT_ERROR(TA_ERR_TIMEOUT, ta_group_exchange(groups[1], NULL, 0, -1, &byte, 1, 0, NULL),
                 "rank 0", "50 ms");
    TEST_ASSERT_TRUE(ta_clock_s() - begin >= 0.05);
    ta_group_destroy(groups[0]);
    ta_group_destroy(groups[1]);
}

static void test_bad_arguments(void)
{
    int marks[1] = {0};
    ta_group_config config = TA_GROUP_CONFIG_INIT;
    EXPECT_ERROR(TA_ERR_INVALID, ta_group_run_threads(0, NULL, mark_rank, marks), "ranks is 0",
                 NULL);
    EXPECT_ERROR(TA_ERR_INVALID, ta_group_run_threads(-1, NULL, mark_rank, marks), "ranks is -1",
                 NULL);
    EXPECT_ERROR(TA_ERR_INVALID, ta_group_run_threads(1 << 30, NULL, mark_rank, marks), "ranks is",
                 NULL);
    EXPECT_ERROR(TA_ERR_INVALID, ta_group_run_threads(1, NULL, NULL, marks), "fn is NULL", NULL);
    config.size = 0;
    EXPECT_ERROR(TA_ERR_INVALID, ta_group_run_threads(1, &config, mark_rank, marks),
                 "config.size is 0", NULL);
    TEST_ASSERT_EQUAL_INT(0, marks[0]);
}

/* What each rank heard while it waited for all. */
typedef struct heard {
    ta_status status;
    char error[200];
} heard;

static ta_status wait_for_all(ta_group *group, void *context)
{
    heard *own = &((heard *)context)[ta_group_rank(group)];
    own->status = ta_group_barrier(group, NULL);
    snprintf(own->error, sizeof own->error, "%s", ta_last_error());
    return own->status;
}

/* A thread that the system does not give: the ranks that run hear of it, and do not wait for the
 * time to be up. */
static void test_a_thread_that_cannot_be_started(void)
{
    for (int running = 0; running < 3; ++running) {
        char sentence[80];
        heard ranks[3] = {0};
        threads_left = running;
        snprintf(sentence, sizeof sentence, "thread of rank %d could not be started", running);
        EXPECT_ERROR(TA_ERR_SYSTEM, ta_group_run_threads(3, NULL, wait_for_all, ranks), sentence,
                     strerror(EAGAIN));
        for (int rank = 0; rank < running; ++rank) {
            TEST_ASSERT_EQUAL_INT(TA_ERR_ABORTED, ranks[rank].status);
            TEST_ASSERT_NOT_NULL_MESSAGE(strstr(ranks[rank].error, "could not be started"),
                                         ranks[rank].error);
        }
        TEST_ASSERT_EQUAL_STRING("", ranks[running].error);
    }
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(test_every_rank_runs_once);
    RUN_TEST(test_a_failing_rank_takes_the_others_along);
    RUN_TEST(test_the_lowest_failing_rank_is_reported);
    RUN_TEST(test_the_rank_that_found_the_cause);
    RUN_TEST(test_a_rank_that_did_not_come);
    RUN_TEST(test_a_status_without_a_sentence);
    RUN_TEST(test_an_abort_without_a_failing_rank);
    RUN_TEST(test_the_timeout_of_the_config);
    RUN_TEST(test_a_thread_that_cannot_be_started);
    RUN_TEST(test_bad_arguments);
    return UNITY_END() != 0;
}
