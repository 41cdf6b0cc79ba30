/* Messages between ranks that are threads (src/group/threads.c): what is sent arrives, and every
 * way of not arriving ends with an error that says who is to blame. Also their
 * signals (src/group/signals.c). */
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/rank_list.h"
#include "group/signals.h"
#include "lib/expect.h"
#include "lib/paired_locks.h"
#include "lib/patience.h"
#include "lib/run_and_meet.h"

/* Who is woken does not wait until LONG_WAIT_MS is over. How soon it gets a CPU is up to the
 * machine. */
#define AT_ONCE_S (0.5e-3 * LONG_WAIT_MS)

void setUp(void)
{
}

void tearDown(void)
{
    TEST_ASSERT_EQUAL_INT_MESSAGE(0, paired_locks_wrong(), "unlocked what was not locked");
}

static ta_group_config with_timeout(int milliseconds)
{
    ta_group_config config = TA_GROUP_CONFIG_INIT;
    config.timeout_ms = milliseconds;
    return config;
}

/* Around the ring in both directions, at every distance, sizes from nothing to a megabyte. */
static ta_status ring_rank(ta_group *group, void *context)
{
    static const size_t sizes[] = {0, 1, 4, 63, 4096, 1 << 20};
    int size = ta_group_size(group), rank = ta_group_rank(group);
    char *out = malloc(1 << 20), *in = malloc(1 << 20);
    (void)context;
    for (int s = 0; s < 6; ++s)
        for (int distance = 1; distance < size; ++distance) {
            int to = (rank + distance) % size, from = (rank + size - distance) % size;
            memset(out, rank * 16 + distance, sizes[s]);
            memset(in, 0xee, sizes[s]);
            TA_TRY(ta_group_exchange(group, out, sizes[s], to, in, sizes[s], from, NULL));
            for (size_t i = 0; i < sizes[s]; ++i)
                RANK_EXPECT(in[i] == (char)(from * 16 + distance));
        }
    free(out);
    free(in);
    return TA_OK;
}

static void test_exchange_around_the_ring(void)
{
    for (int ranks = 1; ranks <= 8; ++ranks)
        EXPECT_OK(ta_group_run_threads(ranks, NULL, ring_rank, NULL));
}

/* One-sided messages in a chain, many of them, in order; the sender may change its data at once. */
static ta_status chain_rank(ta_group *group, void *context)
{
    int size = ta_group_size(group), rank = ta_group_rank(group);
    (void)context;
    for (int i = 0; i < 2000; ++i) {
        int value = -1;
        if (rank > 0) {
            TA_TRY(ta_group_exchange(group, NULL, 0, -1, &value, sizeof value, rank - 1, NULL));
            RANK_EXPECT(value == i * 10 + rank - 1);
        }
        value = i * 10 + rank;
        if (rank < size - 1)
            TA_TRY(ta_group_exchange(group, &value, sizeof value, rank + 1, NULL, 0, -1, NULL));
        value = -2;
    }
    ta_group_stats stats = TA_GROUP_STATS_INIT;
    TA_TRY(ta_group_get_stats(group, &stats));
    RANK_EXPECT(stats.messages_sent == (rank < size - 1 ? 2000u : 0u));
    RANK_EXPECT(stats.messages_received == (rank > 0 ? 2000u : 0u));
    RANK_EXPECT(stats.bytes_sent == stats.messages_sent * sizeof(int));
    RANK_EXPECT(stats.bytes_received == stats.messages_received * sizeof(int));
    return TA_OK;
}

static void test_messages_keep_their_order(void)
{
    EXPECT_OK(ta_group_run_threads(5, NULL, chain_rank, NULL));
}

/* What each rank of a failing run saw. */
typedef struct sight {
    ta_status status;
    double seconds;
    char error[512];
} sight;

static sight sights[8];

static ta_status see(ta_group *group, double begin, ta_status status)
{
    sight *s = &sights[ta_group_rank(group)];
    s->status = status;
    s->seconds = ta_clock_s() - begin;
    snprintf(s->error, sizeof s->error, "%s", status == TA_OK ? "" : ta_last_error());
    return TA_OK;
}

/* Rank 2 of 5 never comes to the barrier. */
static ta_status absent_rank(ta_group *group, void *barrier)
{
    pthread_barrier_wait(barrier);
    double begin = ta_clock_s();
    if (ta_group_rank(group) != 2)
        see(group, begin, ta_group_barrier(group, NULL));
    pthread_barrier_wait(barrier);
    return TA_OK;
}

static void test_a_rank_that_never_arrives_is_named(void)
{
    double longest = 0; /* who waited all the time; others, who came later, hear from it */
    memset(sights, 0, sizeof sights);
    EXPECT_OK(run_and_meet(5, 5, 1000, absent_rank));
    for (int rank = 0; rank < 5; ++rank) {
        if (rank == 2)
            continue;
        TEST_ASSERT_EQUAL_INT_MESSAGE(TA_ERR_TIMEOUT, sights[rank].status, sights[rank].error);
        TEST_ASSERT_NOT_NULL_MESSAGE(strstr(sights[rank].error, "rank 2 did not arrive"),
                                     sights[rank].error);
        TEST_ASSERT_NOT_NULL_MESSAGE(strstr(sights[rank].error, "1000 ms"), sights[rank].error);
        longest = sights[rank].seconds > longest ? sights[rank].seconds : longest;
    }
    TEST_ASSERT_TRUE(longest >= 1);
}

/* Rank 1 waits for 3, which waits for 2, and so is not to blame; rank 0 has nothing to do with it.
 * Rank 1 comes first, and its time is over first. */
static ta_status chained_rank(ta_group *group, void *barrier)
{
    char byte;
    int rank = ta_group_rank(group), from = rank == 1 ? 3 : 2;
    ta_status status = TA_OK;
    pthread_barrier_wait(barrier);
    if (rank == 3)
        usleep(300000);
    if (rank % 2)
        status = ta_group_exchange(group, NULL, 0, -1, &byte, 1, from, NULL);
    see(group, ta_clock_s(), status);
    pthread_barrier_wait(barrier);
    return TA_OK;
}

static void test_who_waits_for_whom(void)
{
    memset(sights, 0, sizeof sights);
    EXPECT_OK(run_and_meet(4, 4, 3000, chained_rank));
    for (int rank = 1; rank < 4; rank += 2) {
        TEST_ASSERT_EQUAL_INT_MESSAGE(TA_ERR_TIMEOUT, sights[rank].status, sights[rank].error);
        TEST_ASSERT_NOT_NULL_MESSAGE(
            strstr(sights[rank].error, "rank 2 did not arrive within 3000 ms"), sights[rank].error);
    }
}

/* Only rank 0 comes, or ranks 0 and 3: the others are all named, and nobody else. */
static pthread_barrier_t those_who_come;

static ta_status lonely_rank(ta_group *group, void *context)
{
    unsigned comes = *(unsigned *)context;
    if (!(comes >> ta_group_rank(group) & 1))
        return TA_OK;
    pthread_barrier_wait(&those_who_come);
    return see(group, ta_clock_s(), ta_group_barrier(group, NULL));
}

static void expect_named(unsigned comes, int ranks)
{
    ta_group_config config = with_timeout(1000); /* all who come have met right before */
    memset(sights, 0, sizeof sights);
    pthread_barrier_init(&those_who_come, NULL, (unsigned)__builtin_popcount(comes));
    EXPECT_OK(ta_group_run_threads(ranks, &config, lonely_rank, &comes));
    pthread_barrier_destroy(&those_who_come);
    const char *said = sights[0].error, *others = strstr(said, "waited for it; rank");
    TEST_ASSERT_EQUAL_INT_MESSAGE(TA_ERR_TIMEOUT, sights[0].status, said);
    TEST_ASSERT_NOT_NULL_MESSAGE(others, said);
    for (int rank = 0; rank < ranks; ++rank) {
        char first[20], digit = (char)('0' + rank);
        snprintf(first, sizeof first, "rank %d did not", rank);
        int named = !strncmp(said, first, strlen(first)) || strchr(others, digit) != NULL;
        TEST_ASSERT_EQUAL_INT_MESSAGE(!(comes >> rank & 1), named, said);
    }
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(said, "did not wait either"), said);
}

static void test_all_absent_ranks_are_named(void)
{
    expect_named(1, 4);
    expect_named(1 << 3 | 1, 4);
    expect_named(1 << 1 | 1, 5);
}

static void expect_list(const char *marks, int count, const char *wanted)
{
    char text[TA_RANK_LIST_BYTES];
    TEST_ASSERT_EQUAL_INT(count, ta_rank_list(text, marks, 'x', (int)strlen(marks)));
    TEST_ASSERT_EQUAL_STRING(wanted, text);
}

static void test_lists_of_ranks(void)
{
    expect_list("...", 0, "ranks");
    expect_list("..x", 1, "rank 2");
    expect_list("x.x", 2, "ranks 0 and 2");
    expect_list("xx.x", 3, "ranks 0, 1 and 3");
    expect_list("xxxxxxxx", 8, "ranks 0, 1, 2, 3, 4, 5, 6 and 7");
    expect_list(".xxxxxxxxx", 9, "ranks 1, 2, 3, 4, 5, 6, 7 and 2 more");
}

/* After a timeout every call fails with the first cause, and the handles can be destroyed. */
static void test_a_broken_group_stays_broken(void)
{
    ta_group_config config = with_timeout(50);
    ta_group *groups[2];
    EXPECT_OK(ta_group_create_threads(2, &config, groups));
    char byte = 0;
    EXPECT_ERROR(TA_ERR_TIMEOUT, ta_group_exchange(groups[0], NULL, 0, -1, &byte, 1, 1, NULL),
                 "rank 1 did not arrive", "50 ms");
    EXPECT_ERROR(TA_ERR_TIMEOUT, ta_group_exchange(groups[0], &byte, 1, 1, NULL, 0, -1, NULL),
                 "rank 1 did not arrive", NULL);
    EXPECT_ERROR(TA_ERR_TIMEOUT, ta_group_barrier(groups[1], NULL), "rank 1 did not arrive", NULL);
    ta_group_stats stats = TA_GROUP_STATS_INIT;
    EXPECT_OK(ta_group_get_stats(groups[0], &stats));
    TEST_ASSERT_TRUE(stats.messages_sent == 0 && stats.messages_received == 0);
    ta_group_destroy(groups[1]);
    ta_group_destroy(groups[0]);
}

/* A sender whose message nobody takes in time gets its buffer back: nobody may read it afterwards,
 * also who began to receive it while the group was whole. And also if the sender was to receive
 * something, which did not come. */
static void expect_buffer_back(ta_group **groups, int from)
{
    const char *missing = from < 0 ? "rank 1 did not arrive" : "rank 2 did not arrive";
    char *message = malloc(100), taken[100] = {0}, got;
    memset(message, 7, 100);
    EXPECT_OK(ta_group_start(groups[1], NULL, 0, -1, taken, 100, 0, NULL));
    EXPECT_ERROR(TA_ERR_TIMEOUT,
                 ta_group_exchange(groups[0], message, 100, 1, &got, from < 0 ? 0 : 1, from, NULL),
                 missing, "50 ms");
    free(message);
    EXPECT_ERROR(TA_ERR_TIMEOUT, ta_group_finish(groups[1], NULL), missing, NULL);
    TEST_ASSERT_EQUAL_INT(0, taken[0]);
}

static void test_a_message_that_nobody_takes(void)
{
    ta_group_config config = with_timeout(50);
    ta_group *groups[3];
    for (int from = -1; from <= 2; from += 3) {
        EXPECT_OK(ta_group_create_threads(3, &config, groups));
        expect_buffer_back(groups, from);
        for (int rank = 0; rank < 3; ++rank)
            ta_group_destroy(groups[rank]);
    }
}

/* A receiver that comes just when the sender gives up: whoever wins, nobody touches the sender's
 * memory after its call has returned, and if the receiver got a message it is whole. */
static ta_status late_receiver_rank(ta_group *group, void *context)
{
    const size_t bytes = 1 << 16;
    unsigned char *data = malloc(bytes);
    ta_status status;
    if (ta_group_rank(group) == 0) {
        memset(data, 7, bytes);
        status = ta_group_exchange(group, data, bytes, 1, NULL, 0, -1, NULL);
        memset(data, 9, bytes);
    } else {
        memset(data, 0, bytes);
        usleep(*(unsigned *)context);
        status = ta_group_exchange(group, NULL, 0, -1, data, bytes, 0, NULL);
        for (size_t i = 0; status == TA_OK && i < bytes; ++i)
            RANK_EXPECT(data[i] == 7);
    }
    free(data);
    RANK_EXPECT(status == TA_OK || status == TA_ERR_TIMEOUT);
    return TA_OK;
}

static void test_a_receiver_that_is_nearly_too_late(void)
{
    ta_group_config config = with_timeout(2);
    for (int i = 0; i < 150; ++i) {
        unsigned microseconds = 1800 + 4u * (unsigned)i;
        EXPECT_OK(ta_group_run_threads(2, &config, late_receiver_rank, &microseconds));
    }
}

static ta_status mismatch_rank(ta_group *group, void *context)
{
    char data[16] = {0};
    double begin = ta_clock_s();
    (void)context;
    if (ta_group_rank(group) == 0)
        return see(group, begin, ta_group_exchange(group, data, 12, 1, NULL, 0, -1, NULL));
    ta_status status = ta_group_exchange(group, NULL, 0, -1, data, 16, 0, NULL);
    return see(group, begin, status);
}

static void test_a_message_of_another_size(void)
{
    ta_group_config config = with_timeout(LONG_WAIT_MS);
    memset(sights, 0, sizeof sights);
    EXPECT_OK(ta_group_run_threads(2, &config, mismatch_rank, NULL));
    TEST_ASSERT_EQUAL_INT(TA_ERR_MISMATCH, sights[1].status);
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(sights[1].error, "rank 0 sent 12 bytes"), sights[1].error);
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(sights[1].error, "rank 1 expected 16"), sights[1].error);
    TEST_ASSERT_TRUE(sights[0].seconds < AT_ONCE_S && sights[1].seconds < AT_ONCE_S);
    /* The sender may have returned before the receiver looked at the size. */
    TEST_ASSERT_TRUE(sights[0].status == TA_OK || sights[0].status == TA_ERR_MISMATCH);
}

static void *abort_later(void *group)
{
    usleep(100000);
    ta_group_abort(group, "the user pressed stop");
    return NULL;
}

static ta_status blocked_rank(ta_group *group, void *context)
{
    double begin = ta_clock_s();
    (void)context;
    if (ta_group_rank(group) == 0) {
        /* Not in any call: another thread aborts on its behalf. */
        pthread_t thread;
        RANK_EXPECT(pthread_create(&thread, NULL, abort_later, group) == 0);
        pthread_join(thread, NULL);
        return see(group, begin, ta_group_barrier(group, NULL));
    }
    return see(group, begin, ta_group_barrier(group, NULL));
}

static void test_abort_while_others_are_blocked(void)
{
    ta_group_config config = with_timeout(LONG_WAIT_MS);
    for (int ranks = 2; ranks <= 8; ranks += 3) {
        memset(sights, 0, sizeof sights);
        EXPECT_OK(ta_group_run_threads(ranks, &config, blocked_rank, NULL));
        for (int rank = 0; rank < ranks; ++rank) {
            TEST_ASSERT_EQUAL_INT(TA_ERR_ABORTED, sights[rank].status);
            TEST_ASSERT_NOT_NULL(strstr(sights[rank].error, "rank 0"));
            TEST_ASSERT_NOT_NULL(strstr(sights[rank].error, "the user pressed stop"));
            TEST_ASSERT_TRUE(sights[rank].seconds < AT_ONCE_S);
        }
    }
}

/* An exchange that was begun before an abort ends with it, and leaves its buffers alone then. */
static ta_status begun_rank(ta_group *group, void *context)
{
    char out[64] = "", in[64] = "";
    int other = 1 - ta_group_rank(group);
    (void)context;
    ta_status status = ta_group_start(group, out, sizeof out, other, in, sizeof in, other, NULL);
    if (ta_group_rank(group) == 0) {
        TA_TRY(status);
        ta_group_abort(group, "in between");
    }
    if (status == TA_OK)
        status = ta_group_finish(group, NULL);
    RANK_EXPECT(status == TA_OK || status == TA_ERR_ABORTED);
    if (ta_group_rank(group) == 0)
        RANK_EXPECT(ta_group_start(group, out, 1, other, in, 1, other, NULL) == TA_ERR_ABORTED);
    return TA_OK;
}

static void test_abort_between_start_and_finish(void)
{
    for (int i = 0; i < 200; ++i)
        EXPECT_OK(ta_group_run_threads(2, NULL, begun_rank, NULL));
}

static ta_status abort_twice_rank(ta_group *group, void *context)
{
    (void)context;
    if (ta_group_rank(group) == 0) {
        ta_group_abort(group, "first");
        ta_group_abort(group, "second");
        ta_group_abort(group, NULL);
    }
    double begin = ta_clock_s();
    ta_status status;
    do
        status = ta_group_barrier(group, NULL);
    while (status == TA_OK);
    return see(group, begin, status);
}

static void test_the_first_reason_stays(void)
{
    EXPECT_OK(ta_group_run_threads(3, NULL, abort_twice_rank, NULL));
    for (int rank = 0; rank < 3; ++rank) {
        TEST_ASSERT_EQUAL_INT(TA_ERR_ABORTED, sights[rank].status);
        TEST_ASSERT_NOT_NULL(strstr(sights[rank].error, "first"));
    }
}

typedef struct waiter {
    ta_group *group;
    ta_status status;
    char error[512];
} waiter;

static void *wait_for_message(void *argument)
{
    waiter *w = argument;
    char byte;
    w->status = ta_group_exchange(w->group, NULL, 0, -1, &byte, 1, 0, NULL);
    snprintf(w->error, sizeof w->error, "%s", ta_last_error());
    return NULL;
}

static void test_a_peer_that_destroys_its_handle(void)
{
    ta_group_config config = with_timeout(LONG_WAIT_MS);
    ta_group *groups[2];
    pthread_t thread;
    EXPECT_OK(ta_group_create_threads(2, &config, groups));
    waiter w = {groups[1], TA_OK, ""};
    double begin = ta_clock_s();
    TEST_ASSERT_EQUAL_INT(0, pthread_create(&thread, NULL, wait_for_message, &w));
    usleep(100000);
    ta_group_destroy(groups[0]);
    pthread_join(thread, NULL);
    TEST_ASSERT_TRUE(ta_clock_s() - begin < AT_ONCE_S);
    TEST_ASSERT_EQUAL_INT(TA_ERR_ABORTED, w.status);
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(w.error, "rank 0"), w.error);
    ta_group_destroy(groups[1]);
}

static void test_destroy_in_any_order_without_use(void)
{
    ta_group *groups[5];
    for (int first = 0; first < 5; ++first) {
        EXPECT_OK(ta_group_create_threads(5, NULL, groups));
        for (int i = 0; i < 5; ++i)
            ta_group_destroy(groups[(first + i * 2) % 5]);
    }
}

static void test_bad_arguments(void)
{
    ta_group *groups[1] = {NULL};
    ta_group_config config = TA_GROUP_CONFIG_INIT;
    EXPECT_ERROR(TA_ERR_INVALID, ta_group_create_threads(0, NULL, groups), "ranks is 0", NULL);
    EXPECT_ERROR(TA_ERR_INVALID, ta_group_create_threads(-2, NULL, groups), "ranks is -2", NULL);
    EXPECT_ERROR(TA_ERR_INVALID, ta_group_create_threads(2147483647, NULL, groups), "ranks is",
                 NULL);
    EXPECT_ERROR(TA_ERR_INVALID, ta_group_create_threads(1, NULL, NULL), "groups is NULL", NULL);
    config.timeout_ms = -1;
    EXPECT_ERROR(TA_ERR_INVALID, ta_group_create_threads(1, &config, groups), "timeout_ms is -1",
                 NULL);
    config.timeout_ms = 0;
    config.size = 1;
    EXPECT_ERROR(TA_ERR_INVALID, ta_group_create_threads(1, &config, groups), "config.size is 1",
                 "TA_GROUP_CONFIG_INIT");
    TEST_ASSERT_NULL(groups[0]);
}

/* ---- Signals --------------------------------------------------------------------------------- */

/* Each rank says both things late, in turn, so that the other sleeps by then: it is woken, and does
 * not wait until its time is over. Nothing else wakes it: they meet outside of the group. */
static ta_status late_signals(ta_group *group, void *barrier)
{
    const int ranks[] = {0, 1}, rank = ta_group_rank(group);
    const ta_fault none = ta_fault_of(TA_OK, rank);
    ta_signals *signals;
    double seconds = 0;
    TA_TRY(ta_signals_open(group, ranks, 2, &signals));
    for (int late = 0; late < 4; ++late) {
        double begin = ta_clock_s();
        usleep(late == rank ? 100000 : 0);
        ta_signal_ready(signals, &none);
        TA_TRY(ta_await_ready(signals, 1 - rank));
        pthread_barrier_wait(barrier);
        usleep(late == 2 + rank ? 100000 : 0);
        ta_signal_merged(signals, &none);
        TA_TRY(ta_await_merged(signals, 1 - rank));
        pthread_barrier_wait(barrier);
        seconds += ta_clock_s() - begin;
    }
    RANK_EXPECT(seconds < AT_ONCE_S);
    return TA_OK;
}

static void test_who_sleeps_is_woken(void)
{
    EXPECT_OK(run_and_meet(2, 2, LONG_WAIT_MS, late_signals));
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(test_exchange_around_the_ring);
    RUN_TEST(test_messages_keep_their_order);
    RUN_TEST(test_a_rank_that_never_arrives_is_named);
    RUN_TEST(test_who_waits_for_whom);
    RUN_TEST(test_all_absent_ranks_are_named);
    RUN_TEST(test_lists_of_ranks);
    RUN_TEST(test_a_broken_group_stays_broken);
    RUN_TEST(test_a_message_that_nobody_takes);
    RUN_TEST(test_a_receiver_that_is_nearly_too_late);
    RUN_TEST(test_a_message_of_another_size);
    RUN_TEST(test_abort_while_others_are_blocked);
    RUN_TEST(test_abort_between_start_and_finish);
    RUN_TEST(test_the_first_reason_stays);
    RUN_TEST(test_a_peer_that_destroys_its_handle);
    RUN_TEST(test_destroy_in_any_order_without_use);
    RUN_TEST(test_bad_arguments);
    RUN_TEST(test_who_sleeps_is_woken);
    return UNITY_END() != 0;
}
