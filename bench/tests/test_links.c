/* Emulated links: no message is there before its time, a chain of rounds costs its sum, what shares
 * a link queues up, and bytes arrive as they were sent, small and large. Upper limits are not
 * tested: a busy machine may take any time. */
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unity.h>

#include "common/links.h"
#include "common/machine.h"

void setUp(void)
{
}

void tearDown(void)
{
}

typedef struct job {
    link_speed speed;
    size_t bytes;
    int rounds;
    double began_us[8], ended_us[8]; /* of each rank, all rounds together */
    int wrong;
} job;

static unsigned char sent[8][1 << 20], received[8][8 << 20];

/* Rounds of an all-gather, whose result every rank knows. */
static ta_status gather(ta_group *threads, void *context)
{
    job *j = context;
    ta_group *group = NULL;
    void *links = NULL;
    int rank = ta_group_rank(threads), ranks = ta_group_size(threads);
    ta_status status = links_create(threads, &j->speed, &group, &links);
    j->began_us[rank] = machine_time_us();
    for (int i = 0; status == TA_OK && i < j->rounds; i++) {
        memset(sent[rank], 17 * rank + i, j->bytes);
        memset(received[rank], 255, j->bytes * (size_t)ranks);
        status =
            ta_all_gather(group, NULL, sent[rank], received[rank], j->bytes, TA_ELEMENT_BYTE, NULL);
        for (size_t at = 0; status == TA_OK && at < j->bytes * (size_t)ranks; at++)
            if (received[rank][at] != (unsigned char)(17 * (int)(at / j->bytes) + i))
                __atomic_fetch_add(&j->wrong, 1, __ATOMIC_RELAXED);
    }
    j->ended_us[rank] = machine_time_us();
    ta_group_destroy(group);
    links_destroy(links);
    return status;
}

static void run(job *j, int ranks)
{
    TEST_ASSERT_EQUAL_MESSAGE(TA_OK, ta_group_run_threads(ranks, NULL, gather, j), ta_last_error());
    TEST_ASSERT_EQUAL(0, j->wrong);
}

/* No rank can be ready earlier than `us` after the first of them began. Its own beginning says
 * nothing: a rank that comes late finds the others' messages already under way. */
static void check_least(const job *j, int ranks, double us)
{
    double first = j->began_us[0];
    for (int rank = 1; rank < ranks; rank++)
        if (j->began_us[rank] < first)
            first = j->began_us[rank];
    for (int rank = 0; rank < ranks; rank++) {
        char text[100];
        double took = j->ended_us[rank] - first;
        snprintf(text, sizeof text, "rank %d took %.1f us, the least is %.1f", rank, took, us);
        TEST_ASSERT_TRUE_MESSAGE(took >= us, text);
    }
}

/* Two ranks exchange: each round is one delay and the bytes of one message. */
static void test_links_delay(void)
{
    job j = {.speed = {3000, 1e6}, .bytes = 100, .rounds = 5};
    run(&j, 2);
    check_least(&j, 2, 5 * 3000);
}

static void test_links_rate(void)
{
    job j = {.speed = {0, 50}, .bytes = 1 << 20, .rounds = 2}; /* 50 MB/s */
    run(&j, 2);
    check_least(&j, 2, 2 * (1 << 20) / 50.0);
}

/* Whatever the way of gathering, 4 others' bytes go through the one link into each node. */
static void test_links_queue(void)
{
    job j = {.speed = {10, 50}, .bytes = 200 << 10, .rounds = 1};
    run(&j, 5);
    check_least(&j, 5, 4 * (200 << 10) / 50.0);
}

/* Bytes on many ranks, with messages on either side of the size from which they are not copied. */
static void test_links_bytes(void)
{
    static const size_t sizes[] = {1, 65535, 65536, 65537, 300000};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        for (int ranks = 2; ranks <= 8; ranks += 3) {
            job j = {.speed = {1, 1e5}, .bytes = sizes[i], .rounds = 3};
            run(&j, ranks);
        }
}

static void test_links_words(void)
{
    link_speed speed;
    char error[200] = "", text[200];
    static const char *const bad[] = {
        "",        "50",           "50us",     "50us,",  ",1GB/s",    "-1us,1",     "50us,0",
        "50us,-1", "50furlongs,1", "50,1Gb/s", "50,1,1", "nan,1GB/s", "1us,infGB/s"};
    TEST_ASSERT_EQUAL(0, links_parse("50us,1.25GB/s", &speed, error, sizeof error));
    TEST_ASSERT_TRUE(50 == speed.delay_us);
    TEST_ASSERT_TRUE(1250 == speed.bytes_per_us);
    TEST_ASSERT_EQUAL(0, links_parse("2ms,100MB/s", &speed, error, sizeof error));
    TEST_ASSERT_TRUE(2000 == speed.delay_us);
    TEST_ASSERT_TRUE(100 == speed.bytes_per_us);
    TEST_ASSERT_EQUAL(0, links_parse("1us,10Gbit/s", &speed, error, sizeof error));
    TEST_ASSERT_TRUE(1250 == speed.bytes_per_us);
    TEST_ASSERT_EQUAL(0, links_parse("0,3", &speed, error, sizeof error));
    TEST_ASSERT_TRUE(3000 == speed.bytes_per_us);
    links_text(&speed, text, sizeof text);
    TEST_ASSERT_NOT_NULL(strstr(text, "emulated links"));
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        TEST_ASSERT_EQUAL_MESSAGE(-1, links_parse(bad[i], &speed, error, sizeof error), bad[i]);
        TEST_ASSERT_NOT_NULL(strstr(error, "--link is '"));
    }
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(test_links_delay);
    RUN_TEST(test_links_rate);
    RUN_TEST(test_links_queue);
    RUN_TEST(test_links_bytes);
    RUN_TEST(test_links_words);
    return UNITY_END() != 0;
}
