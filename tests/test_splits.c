/* The number of splits: hip/attend/splits.h. It is arithmetic, so it is tested without a GPU: the
 * worked example of the header, its limits, and random questions against a search in whole
 * numbers. */
#include <stdio.h>

#include "../hip/attend/splits.h"
#include "lib/random.h"
#include "unity.h"

void setUp(void)
{
}

void tearDown(void)
{
}

static ta_split_question question(int64_t blocks, int64_t slots, int64_t max_tokens)
{
    return (ta_split_question){blocks, slots, max_tokens, 1024, 0};
}

static int choose(int64_t blocks, int64_t slots, int64_t max_tokens)
{
    ta_split_question q = question(blocks, slots, max_tokens);
    return ta_splits_choose(&q);
}

static int pieces(int32_t tokens, int32_t splits)
{
    return (int)ta_ceil_div(tokens, ta_split_tokens(tokens, splits));
}

static void test_worked_example(void)
{
    TEST_ASSERT_EQUAL_INT(60, choose(8, 132 * 4, 131072));
    TEST_ASSERT_EQUAL_INT(2240, ta_split_tokens(131072, 60));
    TEST_ASSERT_EQUAL_INT(59, pieces(131072, 60));
    TEST_ASSERT_EQUAL_INT(128, ta_split_tokens(1000, 60));
    TEST_ASSERT_EQUAL_INT(8, pieces(1000, 60));
    TEST_ASSERT_EQUAL_INT(3, choose(700, 528, 131072));
}

static void test_full_device_needs_no_splits(void)
{
    TEST_ASSERT_EQUAL_INT(1, choose(528, 528, 131072));
    TEST_ASSERT_EQUAL_INT(1, choose(528 * 10, 528, 131072));
    TEST_ASSERT_EQUAL_INT(1, choose(528 * 100 + 1, 528, 131072));
}

static void test_one_head_splits_as_far_as_allowed(void)
{
    int splits = choose(1, 100000, 1 << 20);
    TEST_ASSERT_LESS_OR_EQUAL_INT(TA_SPLITS_MAX, splits);
    TEST_ASSERT_GREATER_OR_EQUAL_INT(TA_SPLITS_MAX * 9 / 10, splits);
}

static void test_short_sequences_are_not_split(void)
{
    TEST_ASSERT_EQUAL_INT(1, choose(1, 528, 1));
    TEST_ASSERT_EQUAL_INT(1, choose(1, 528, TA_SPLIT_TOKENS_MIN));
    TEST_ASSERT_EQUAL_INT(2, choose(1, 528, TA_SPLIT_TOKENS_MIN + 1));
}

static void test_records_are_bounded(void)
{
    ta_split_question q = question(1, 528, 1 << 20);
    q.record_bytes = TA_SPLIT_RECORDS_BYTES / 5;
    TEST_ASSERT_EQUAL_INT(5, ta_splits_choose(&q));
    q.record_bytes = TA_SPLIT_RECORDS_BYTES * 3;
    TEST_ASSERT_EQUAL_INT(1, ta_splits_choose(&q));
}

/* rounds / splits of a is at most a tenth more than that of b. */
static int close_to(const ta_split_question *q, int64_t a, int64_t b)
{
    int64_t a_rounds = (q->blocks * a + q->slots - 1) / q->slots;
    int64_t b_rounds = (q->blocks * b + q->slots - 1) / q->slots;
    return 10 * a_rounds * b <= 11 * b_rounds * a;
}

static int close_to_all(const ta_split_question *q, int64_t splits, int64_t most)
{
    for (int64_t other = 1; other <= most; other++)
        if (!close_to(q, splits, other))
            return 0;
    return 1;
}

static void test_random_questions(void)
{
    char text[160];
    for (uint64_t seed = 1; seed <= 3000; seed++) {
        random_source r = random_from(seed);
        ta_split_question q = {random_int(&r, 1, seed % 3 ? 40 : 4000), random_int(&r, 1, 1300),
                               random_int(&r, 1, 1 << random_int(&r, 0, 21)),
                               random_int(&r, 64, 1 << 22), seed % 2 ? 0 : random_int(&r, 1, 300)};
        int64_t splits = ta_splits_choose(&q), most = ta_splits_most(&q);
        snprintf(text, sizeof text,
                 "seed %llu: %lld splits for %lld blocks, %lld slots, %lld tokens",
                 (unsigned long long)seed, (long long)splits, (long long)q.blocks,
                 (long long)q.slots, (long long)q.max_tokens);
        TEST_ASSERT_TRUE_MESSAGE(splits >= 1 && splits <= most && most <= TA_SPLITS_MAX, text);
        TEST_ASSERT_TRUE_MESSAGE(close_to_all(&q, splits, most), text);
        TEST_ASSERT_TRUE_MESSAGE(splits == 1 || !close_to_all(&q, splits - 1, most), text);
    }
}

static void check_split_tokens(int32_t tokens, int32_t splits)
{
    char text[100];
    int64_t each = ta_split_tokens(tokens, splits);
    snprintf(text, sizeof text, "%d tokens in %d splits: %lld each", tokens, splits,
             (long long)each);
    TEST_ASSERT_TRUE_MESSAGE(each >= TA_SPLIT_TOKENS_MIN, text);
    TEST_ASSERT_TRUE_MESSAGE(each % TA_SPLIT_TOKENS_UNIT == 0 || each == INT32_MAX, text);
    TEST_ASSERT_TRUE_MESSAGE(each * splits >= tokens, text);
}

static void test_split_tokens_cover_the_sequence(void)
{
    for (int32_t tokens = 0; tokens < 3000; tokens++)
        for (int32_t splits = 1; splits <= TA_SPLITS_MAX; splits += 1 + splits / 8)
            check_split_tokens(tokens, splits);
    for (int32_t splits = 1; splits <= TA_SPLITS_MAX; splits++)
        for (int32_t less = 0; less < 200; less++)
            check_split_tokens(INT32_MAX - less, splits);
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(test_worked_example);
    RUN_TEST(test_full_device_needs_no_splits);
    RUN_TEST(test_one_head_splits_as_far_as_allowed);
    RUN_TEST(test_short_sequences_are_not_split);
    RUN_TEST(test_records_are_bounded);
    RUN_TEST(test_random_questions);
    RUN_TEST(test_split_tokens_cover_the_sequence);
    return UNITY_END() != 0;
}
