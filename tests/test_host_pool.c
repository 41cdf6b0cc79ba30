/* The thread pool of the host device: every item of every loop runs once, whatever the number of
 * threads, on threads whose numbers differ; and who sleeps is woken. */
#include "host/pool.h"

#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "lib/expect.h"
#include "lib/paired_locks.h"

#define MOST_ITEMS 300

void setUp(void)
{
}

void tearDown(void)
{
    TEST_ASSERT_EQUAL_INT_MESSAGE(0, paired_locks_wrong(), "unlocked what was not locked");
}

typedef struct tally {
    atomic_int runs[MOST_ITEMS];
    atomic_int busy[8]; /* is an iteration with this thread number running? */
    atomic_int clashes;
} tally;

static void count(void *context, int64_t item, int thread)
{
    tally *t = context;
    if (atomic_exchange(&t->busy[thread], 1))
        atomic_fetch_add(&t->clashes, 1);
    atomic_fetch_add(&t->runs[item], 1);
    atomic_store(&t->busy[thread], 0);
}

static void run_loops(int threads, int loops)
{
    ta_pool *pool;
    EXPECT_OK(ta_pool_create(threads, &pool));
    TEST_ASSERT_EQUAL_INT(threads, ta_pool_threads(pool));
    for (int loop = 0; loop < loops; ++loop) {
        int items = loop * 37 % MOST_ITEMS;
        static tally t;
        memset(&t, 0, sizeof t);
        ta_pool_run(pool, items, count, &t);
        for (int i = 0; i < MOST_ITEMS; ++i)
            TEST_ASSERT_EQUAL_INT_MESSAGE(i < items, atomic_load(&t.runs[i]), "runs of an item");
        TEST_ASSERT_EQUAL_INT(0, atomic_load(&t.clashes));
    }
    ta_pool_destroy(pool);
}

static void test_each_item_runs_once(void)
{
    for (int threads = 1; threads <= 5; ++threads)
        run_loops(threads, 2000);
}

static void test_pools_come_and_go(void)
{
    for (int i = 0; i < 50; ++i)
        run_loops(1 + i % 5, i % 3);
}

/* The item that ran last. */
typedef struct {
    ta_pool *pool;
    int64_t item;
} progress;

static void look_at_next(void *context, int64_t item, int thread)
{
    progress *p = context;
    TEST_ASSERT_EQUAL_INT64(p->item + 1, item);
    TEST_ASSERT_EQUAL_INT(0, thread);
    p->item = item;
    TEST_ASSERT_EQUAL_INT64(item + 1, ta_pool_next(p->pool));
}

static void test_alone_and_in_order(void)
{
    for (int threads = 1; threads <= 3; ++threads) {
        progress p = {.item = -1};
        EXPECT_OK(ta_pool_create(threads, &p.pool));
        ta_pool_run_here(p.pool, MOST_ITEMS, look_at_next, &p);
        TEST_ASSERT_EQUAL_INT64(MOST_ITEMS - 1, p.item);
        p.item = -1;
        if (threads == 1) /* nobody else takes items */
            ta_pool_run(p.pool, MOST_ITEMS, look_at_next, &p);
        ta_pool_destroy(p.pool);
    }
}

/* ---- Threads that need each other ---- */

/* Items of which each waits for all others, so that every thread must come and take one. */
typedef struct arrivals {
    atomic_int arrived, late, left;
    int expected;
} arrivals;

static void wait_for_all(void *context, int64_t item, int thread)
{
    arrivals *m = context;
    double deadline = ta_clock_s() + 60;
    (void)item;
    (void)thread;
    atomic_fetch_add(&m->arrived, 1);
    while (atomic_load(&m->arrived) < m->expected && !atomic_load(&m->late)) {
        if (ta_clock_s() > deadline)
            atomic_fetch_add(&m->late, 1);
        sched_yield();
    }
}

static void sleep_ms(int milliseconds)
{
    struct timespec time = {0, (long)milliseconds * 1000000};
    nanosleep(&time, NULL);
}

/* Sleeping workers are woken: without them a loop of as many items as threads does not end. Some
 * loops begin when all have gone to sleep, some while they still look at the gate. */
static void test_every_thread_is_woken(void)
{
    for (int threads = 2; threads <= 5; ++threads) {
        ta_pool *pool;
        EXPECT_OK(ta_pool_create(threads, &pool));
        for (int loop = 0; loop < 40; ++loop) {
            arrivals m = {.expected = threads};
            if (loop % 4 == 0)
                sleep_ms(5);
            ta_pool_run(pool, threads, wait_for_all, &m);
            TEST_ASSERT_EQUAL_INT_MESSAGE(0, atomic_load(&m.late), "a thread did not come");
        }
        ta_pool_destroy(pool);
    }
}

/* The caller has nothing left to do and sleeps; the last worker wakes it. */
static void stay_behind(void *context, int64_t item, int thread)
{
    arrivals *m = context;
    wait_for_all(m, item, thread);
    if (thread > 0) {
        sleep_ms(2);
        atomic_fetch_add(&m->left, 1);
    }
}

static void test_the_caller_is_woken(void)
{
    for (int threads = 2; threads <= 4; ++threads) {
        ta_pool *pool;
        EXPECT_OK(ta_pool_create(threads, &pool));
        for (int loop = 0; loop < 20; ++loop) {
            arrivals m = {.expected = threads};
            ta_pool_run(pool, threads, stay_behind, &m);
            /* It waited for all of them. */
            TEST_ASSERT_EQUAL_INT(threads - 1, atomic_load(&m.left));
        }
        ta_pool_destroy(pool);
    }
}

/* A pool whose workers sleep can be destroyed, which wakes them too. */
static void test_sleeping_pools_end(void)
{
    for (int threads = 2; threads <= 4; ++threads) {
        ta_pool *pool;
        EXPECT_OK(ta_pool_create(threads, &pool));
        sleep_ms(5);
        ta_pool_destroy(pool);
    }
}

/* A thread that never wakes would keep this program for ever. */
static void give_up(int signal)
{
    static const char said[] = "a thread was not woken within 200 s\n";
    (void)signal;
    (void)!write(2, said, sizeof said - 1);
    _exit(1);
}

int main(void)
{
    signal(SIGALRM, give_up);
    alarm(200);
    UNITY_BEGIN();
    RUN_TEST(test_each_item_runs_once);
    RUN_TEST(test_pools_come_and_go);
    RUN_TEST(test_alone_and_in_order);
    RUN_TEST(test_every_thread_is_woken);
    RUN_TEST(test_the_caller_is_woken);
    RUN_TEST(test_sleeping_pools_end);
    return UNITY_END() != 0;
}
