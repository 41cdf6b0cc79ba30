/* Which candidate is the best (src/cluster/candidate.c), and what the cost of a call takes over
 * from what was added up. test_explain_texts.c and test_attention_texts.c have its words. */
#include "cluster/candidate.h"

#include <math.h>

#include "lib/expect.h"

void setUp(void)
{
}

void tearDown(void)
{
}

static ta_candidate candidate(double first, double second)
{
    ta_candidate c = {.possible = 1, .fits = 1, .call_count = 2};
    c.calls[0].seconds = first;
    c.calls[1].seconds = second;
    return c;
}

static int all_are(const ta_candidate *c, const void *unused)
{
    (void)c, (void)unused;
    return 1;
}

static int is_exchange(const ta_candidate *c, const void *exchange)
{
    return c->exchange == *(const int *)exchange;
}

static int best_of(ta_candidate *list, int count)
{
    ta_candidates candidates = {.list = list, .count = count};
    return ta_candidates_best(&candidates, all_are, NULL);
}

static void test_seconds_of_all_calls(void)
{
    ta_candidate c = candidate(1, 2.5);
    TEST_ASSERT_EQUAL_DOUBLE(3.5, ta_candidate_seconds(&c));
    c.call_count = 1;
    TEST_ASSERT_EQUAL_DOUBLE(1, ta_candidate_seconds(&c));
}

static void test_the_fastest(void)
{
    ta_candidate list[] = {candidate(2, 2), candidate(3, 0.5), candidate(1, 3), candidate(3, 0.5)};
    TEST_ASSERT_EQUAL_INT(1, best_of(list, 4)); /* of equals the earlier */
    TEST_ASSERT_EQUAL_INT(0, best_of(list, 1));
    TEST_ASSERT_EQUAL_INT(-1, best_of(list, 0));
    list[1].possible = 0;
    TEST_ASSERT_EQUAL_INT(3, best_of(list, 4));
    list[3].possible = 0;
    TEST_ASSERT_EQUAL_INT(0, best_of(list, 4));
    list[0].possible = list[2].possible = 0;
    TEST_ASSERT_EQUAL_INT(-1, best_of(list, 4));
}

static void test_one_that_fits_comes_first(void)
{
    ta_candidate list[] = {candidate(1, 0), candidate(9, 0), candidate(2, 0)};
    list[0].fits = 0;
    TEST_ASSERT_EQUAL_INT(2, best_of(list, 3));
    list[2].fits = 0;
    TEST_ASSERT_EQUAL_INT(1, best_of(list, 3));
    list[1].fits = 0;
    TEST_ASSERT_EQUAL_INT(0, best_of(list, 3));
}

/* A ring must be faster by a fiftieth, whether it comes before or after. */
static void test_what_a_ring_must_gain(void)
{
    ta_candidate list[] = {candidate(100, 0), candidate(98.5, 0), candidate(99.9, 0)};
    list[1].is_ring = 1;
    TEST_ASSERT_EQUAL_INT(0, best_of(list, 2));
    list[1].calls[0].seconds = 97.9;
    TEST_ASSERT_EQUAL_INT(1, best_of(list, 2));
    list[2].is_ring = 1; /* between rings nothing is added */
    list[2].calls[0].seconds = 97.8;
    TEST_ASSERT_EQUAL_INT(2, best_of(list, 3));
    list[0].is_ring = 1;
    list[1].is_ring = 0;
    list[1].calls[0].seconds = 99.5;
    TEST_ASSERT_EQUAL_INT(1, best_of(list, 2));
}

static void test_what_is_open(void)
{
    ta_candidate list[] = {candidate(1, 0), candidate(3, 0), candidate(2, 0)};
    ta_candidates candidates = {.list = list, .count = 3, .chosen = 2};
    list[1].exchange = list[2].exchange = 7;
    int open = 7, none = 8;
    TEST_ASSERT_EQUAL_INT(2, ta_candidates_best(&candidates, is_exchange, &open));
    TEST_ASSERT_EQUAL_INT(-1, ta_candidates_best(&candidates, is_exchange, &none));
    TEST_ASSERT_EQUAL_PTR(&list[2], ta_candidates_chosen(&candidates));
    candidates.list = NULL;
    TEST_ASSERT_NULL(ta_candidates_chosen(&candidates));
}

/* Each number is that of the rank which has most of it; the bytes of all are added up. */
static void test_cost_of_a_call(void)
{
    ta_cost cost;
    ta_call_cost call;
    EXPECT_OK(ta_cost_begin(&cost, NULL, 3));
    ta_cost_message(&cost, 0, 1, 100);
    ta_cost_message(&cost, 0, 2, 10);
    ta_cost_message(&cost, 1, 2, 1000);
    ta_cost_round(&cost, "first");
    ta_cost_message(&cost, 2, 0, 1);
    ta_cost_round(&cost, "second");
    ta_call_cost_set(&call, "decode", &cost, 0.25);
    ta_cost_end(&cost);
    TEST_ASSERT_EQUAL_STRING("decode", call.name);
    TEST_ASSERT_EQUAL_DOUBLE(0.25, call.attend_s);
    TEST_ASSERT_EQUAL_INT(2, call.phase_count);
    TEST_ASSERT_EQUAL_STRING("first", call.phases[0].name);
    TEST_ASSERT_EQUAL_STRING("second", call.phases[1].name);
    ta_predicted_call p = ta_call_cost_predicted(&call);
    TEST_ASSERT_EQUAL_DOUBLE(call.seconds, p.seconds);
    TEST_ASSERT_EQUAL_DOUBLE(0.25, p.attend_seconds);
    TEST_ASSERT_EQUAL_UINT64(2, p.messages_sent);
    TEST_ASSERT_EQUAL_UINT64(2, p.messages_received);
    TEST_ASSERT_EQUAL_UINT64(1000, p.bytes_sent);
    TEST_ASSERT_EQUAL_UINT64(1010, p.bytes_received);
    TEST_ASSERT_EQUAL_UINT64(1111, p.total_bytes_sent);
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(test_seconds_of_all_calls);
    RUN_TEST(test_the_fastest);
    RUN_TEST(test_one_that_fits_comes_first);
    RUN_TEST(test_what_a_ring_must_gain);
    RUN_TEST(test_what_is_open);
    RUN_TEST(test_cost_of_a_call);
    return UNITY_END() != 0;
}
