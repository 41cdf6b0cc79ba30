/* Statuses: names, messages, the last error of a thread, the log (src/base/status.c). */
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/status.h"
#include "unity.h"

static char logged[2048];
static int log_count;
static ta_log_level logged_level;

static void keep_log(void *context, ta_log_level level, const char *text)
{
    snprintf(logged, sizeof logged, "%s%s", (const char *)context, text);
    logged_level = level;
    ++log_count;
}

void setUp(void)
{
    logged[0] = '\0';
    log_count = 0;
}

void tearDown(void)
{
    ta_log_set(NULL, NULL, 0);
}

static void test_names_and_messages(void)
{
#define CHECK(name, value, message)                                                                \
    TEST_ASSERT_EQUAL_STRING(#name, ta_status_name(name));                                         \
    TEST_ASSERT_EQUAL_STRING(message, ta_status_message(name));                                    \
    TEST_ASSERT_EQUAL_INT(value, name);                                                            \
    TEST_ASSERT_TRUE(name == TA_OK || name < 0);
    TA_STATUS_LIST(CHECK)
#undef CHECK
}

static void test_unknown_numbers_have_a_name(void)
{
    static const int unknown[] = {1, -100, 12345, -2147483647};
    for (size_t i = 0; i < sizeof unknown / sizeof *unknown; ++i) {
        TEST_ASSERT_EQUAL_STRING("TA_ERR_UNKNOWN", ta_status_name((ta_status)unknown[i]));
        TEST_ASSERT_TRUE(strlen(ta_status_message((ta_status)unknown[i])) > 0);
    }
}

static void test_fail_keeps_the_sentence(void)
{
    TEST_ASSERT_EQUAL_INT(TA_ERR_INVALID, ta_fail(TA_ERR_INVALID, "x is %d: must be %s", 7, "odd"));
    TEST_ASSERT_EQUAL_STRING("x is 7: must be odd", ta_last_error());
    TEST_ASSERT_EQUAL_INT(TA_ERR_TIMEOUT, ta_fail_quietly(TA_ERR_TIMEOUT, "late"));
    TEST_ASSERT_EQUAL_STRING("late", ta_last_error());
}

static void test_fail_may_quote_the_last_error(void)
{
    ta_fail(TA_ERR_INVALID, "inner");
    ta_fail(TA_ERR_INVALID, "outer: %s", ta_last_error());
    TEST_ASSERT_EQUAL_STRING("outer: inner", ta_last_error());
}

static void test_a_long_sentence_is_cut(void)
{
    char text[5000];
    memset(text, 'a', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    ta_fail(TA_ERR_INVALID, "%s", text);
    size_t length = strlen(ta_last_error());
    TEST_ASSERT_TRUE(length >= 200 && length < sizeof text);
}

static void *read_error(void *seen)
{
    snprintf(seen, 100, "[%s]", ta_last_error());
    ta_fail(TA_ERR_INVALID, "of the other thread");
    return NULL;
}

static void test_each_thread_has_its_own(void)
{
    char seen[100];
    pthread_t thread;
    ta_fail(TA_ERR_INVALID, "of this thread");
    TEST_ASSERT_EQUAL_INT(0, pthread_create(&thread, NULL, read_error, seen));
    pthread_join(thread, NULL);
    TEST_ASSERT_EQUAL_STRING("[]", seen);
    TEST_ASSERT_EQUAL_STRING("of this thread", ta_last_error());
}

static void test_log_levels(void)
{
    ta_log_set(keep_log, "log: ", TA_LOG_ERROR);
    ta_log_info("not wanted");
    TEST_ASSERT_EQUAL_INT(0, log_count);
    ta_fail(TA_ERR_INVALID, "bad %d", 1);
    TEST_ASSERT_EQUAL_INT(1, log_count);
    TEST_ASSERT_EQUAL_STRING("log: bad 1", logged);
    TEST_ASSERT_EQUAL_INT(TA_LOG_ERROR, logged_level);
    ta_fail_quietly(TA_ERR_INVALID, "heard of");
    TEST_ASSERT_EQUAL_INT(1, log_count);
    ta_log_set(keep_log, "", TA_LOG_INFO);
    ta_log_info("level %s", "avx2");
    TEST_ASSERT_EQUAL_INT(2, log_count);
    TEST_ASSERT_EQUAL_STRING("level avx2", logged);
    TEST_ASSERT_EQUAL_INT(TA_LOG_INFO, logged_level);
    ta_log_set(NULL, NULL, TA_LOG_INFO);
    ta_fail(TA_ERR_INVALID, "silence");
    TEST_ASSERT_EQUAL_INT(2, log_count);
}

static ta_status forward(ta_status status)
{
    TA_TRY(status);
    return TA_OK;
}

static ta_status undo(ta_status first, int *undone)
{
    ta_status status;
    TA_TRY_GOTO(first, undo_it);
    return status;

undo_it:
    ++*undone;
    return status;
}

static void test_forwarding(void)
{
    int undone = 0;
    TEST_ASSERT_EQUAL_INT(TA_OK, forward(TA_OK));
    TEST_ASSERT_EQUAL_INT(TA_ERR_DEVICE, forward(TA_ERR_DEVICE));
    TEST_ASSERT_EQUAL_INT(TA_OK, undo(TA_OK, &undone));
    TEST_ASSERT_EQUAL_INT(0, undone);
    TEST_ASSERT_EQUAL_INT(TA_ERR_SYSTEM, undo(TA_ERR_SYSTEM, &undone));
    TEST_ASSERT_EQUAL_INT(1, undone);
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(test_names_and_messages);
    RUN_TEST(test_unknown_numbers_have_a_name);
    RUN_TEST(test_fail_keeps_the_sentence);
    RUN_TEST(test_fail_may_quote_the_last_error);
    RUN_TEST(test_a_long_sentence_is_cut);
    RUN_TEST(test_each_thread_has_its_own);
    RUN_TEST(test_log_levels);
    RUN_TEST(test_forwarding);
    return UNITY_END() != 0;
}
