/* The interval of a median, against the binomial distribution's tables, and against chance: of many
 * series whose true median is known it holds that in 95 of 100. And who comes when. */
#include <stdint.h>
#include <unity.h>

#include "common/stats.h"

void setUp(void)
{
}

void tearDown(void)
{
}

enum { MOST = 4000 };
static double samples[MOST];

/* samples[i] = i, in an order that is not sorted. */
static bench_interval of_numbers(int count)
{
    bench_interval interval;
    for (int i = 0; i < count; i++)
        samples[(i * 7 + 3) % count] = i;
    TEST_ASSERT_EQUAL(0, stats_interval(samples, count, &interval));
    return interval;
}

static void test_interval_known(void)
{
    /* Samples that may be left out at each end, from tables of the sign test. */
    static const struct {
        int count, left_out;
    } known[] = {{1, 0},  {5, 0},  {6, 0},  {8, 0},    {9, 1},     {11, 1},
                 {12, 2}, {20, 5}, {25, 7}, {100, 39}, {1000, 468}};
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        int count = known[i].count;
        if (count % 7 == 0)
            continue;
        bench_interval interval = of_numbers(count);
        TEST_ASSERT_TRUE((count - 1) / 2.0 == interval.median);
        TEST_ASSERT_TRUE(known[i].left_out == interval.low);
        TEST_ASSERT_TRUE(count - 1 - known[i].left_out == interval.high);
    }
}

/* Either way of counting gives nearly the same where one takes over from the other. */
static void test_interval_continues(void)
{
    bench_interval below = of_numbers(1000), above = of_numbers(1002);
    TEST_ASSERT_TRUE(above.low - below.low >= -2 && above.low - below.low <= 3);
    TEST_ASSERT_TRUE(above.high - below.high >= -1 && above.high - below.high <= 4);
}

static void test_interval_covers(void)
{
    uint64_t state = 12345;
    int held = 0, series = 2000, count = 20;
    for (int s = 0; s < series; s++) {
        bench_interval interval;
        for (int i = 0; i < count; i++) {
            state = state * 6364136223846793005u + 1442695040888963407u;
            samples[i] = (double)(state >> 33) * 0x1p-31; /* median 0.5 */
        }
        TEST_ASSERT_EQUAL(0, stats_interval(samples, count, &interval));
        held += interval.low <= 0.5 && 0.5 <= interval.high;
    }
    /* 95.9 % by the table for 20; four standard deviations of 2000 series are 1.8 %. */
    TEST_ASSERT_TRUE(held >= series * 941 / 1000 && held <= series * 977 / 1000);
}

/* Of the quotients, and not a quotient of two medians. */
static void test_ratio_is_of_pairs(void)
{
    const double first[] = {1, 10, 100}, these[] = {3, 20, 100};
    bench_interval ratio;
    TEST_ASSERT_EQUAL(0, stats_ratio(these, first, 3, &ratio));
    TEST_ASSERT_EQUAL_DOUBLE(2, ratio.median);
    TEST_ASSERT_EQUAL_DOUBLE(1, ratio.low);
    TEST_ASSERT_EQUAL_DOUBLE(3, ratio.high);
}

/* In each round all come once; over twice as many rounds as there are, each begins equally often,
 * and of each two both come directly behind the other equally often. */
static void test_turns(void)
{
    for (int count = 2; count <= 6; count++) {
        int begins[6] = {0}, behind[6][6] = {{0}};
        for (int round = 0; round < 2 * count; round++) {
            unsigned seen = 0;
            for (int turn = 0; turn < count; turn++) {
                int who = stats_turn(round, turn, count);
                seen |= 1u << who;
                if (turn > 0)
                    behind[who][stats_turn(round, turn - 1, count)]++;
            }
            TEST_ASSERT_EQUAL_HEX((1u << count) - 1, seen);
            begins[stats_turn(round, 0, count)]++;
        }
        for (int a = 0; a < count; a++) {
            TEST_ASSERT_EQUAL(2, begins[a]);
            for (int b = 0; b < count; b++)
                TEST_ASSERT_EQUAL(behind[a][b], behind[b][a]);
        }
    }
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(test_interval_known);
    RUN_TEST(test_interval_continues);
    RUN_TEST(test_interval_covers);
    RUN_TEST(test_ratio_is_of_pairs);
    RUN_TEST(test_turns);
    return UNITY_END() != 0;
}
