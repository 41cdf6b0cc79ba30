/* The thread pool of the host device: every item of every loop runs once, whatever the number of
 * threads, on threads whose numbers differ. */
#include "host/pool.h"

#include <stdatomic.h>

#include "lib/expect.h"

#define MOST_ITEMS 300

void setUp(void)
{
}

void tearDown(void)
{
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

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(test_each_item_runs_once);
    RUN_TEST(test_pools_come_and_go);
    RUN_TEST(test_alone_and_in_order);
    return UNITY_END() != 0;
}
