/* Ranks in a circle (base/neighbors.h). */
#include "base/neighbors.h"
#include "lib/expect.h"

void setUp(void)
{
}

void tearDown(void)
{
}

static void test_circles(void)
{
    TEST_ASSERT_EQUAL(0, ta_next_rank(4, 5));
    TEST_ASSERT_EQUAL(4, ta_previous_rank(0, 5));
    for (int ranks = 1; ranks < 9; ++ranks)
        for (int rank = 0; rank < ranks; ++rank) {
            TEST_ASSERT_EQUAL(rank == ranks - 1 ? 0 : rank + 1, ta_next_rank(rank, ranks));
            TEST_ASSERT_EQUAL(rank, ta_previous_rank(ta_next_rank(rank, ranks), ranks));
        }
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(test_circles);
    return UNITY_END() != 0;
}
