/* The clock of base/clock.h: it goes forward, its units agree, and deadlines are well formed. */
#include "base/clock.h"
#include "lib/expect.h"

void setUp(void)
{
}

void tearDown(void)
{
}

static void test_units(void)
{
    int64_t ns = ta_clock_ns(), ms = ta_clock_ms();
    double s = ta_clock_s();
    TEST_ASSERT_TRUE(ns > 0 && ms >= ns / TA_NS_PER_MS && s >= (double)ns * 1e-9);
    TEST_ASSERT_TRUE(ta_clock_ns() >= ns);
    TEST_ASSERT_TRUE(s - (double)ns * 1e-9 < 60);
}

static void test_deadlines(void)
{
    for (int64_t ms = 0; ms < 3000; ms += 7) { /* some cross a second */
        int64_t before = ta_clock_ns();
        struct timespec t = ta_clock_after_ms(CLOCK_MONOTONIC, ms);
        int64_t at = (int64_t)t.tv_sec * TA_NS_PER_S + t.tv_nsec - ms * TA_NS_PER_MS;
        TEST_ASSERT_TRUE(t.tv_nsec >= 0 && t.tv_nsec < TA_NS_PER_S);
        TEST_ASSERT_TRUE(at >= before && at <= ta_clock_ns());
    }
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(test_units);
    RUN_TEST(test_deadlines);
    return UNITY_END() != 0;
}
