/* The text builder: cut at the capacity, always terminated, the full length counted
 * (src/base/text.c).
 * */
#include "base/text.h"

#include <string.h>

#include "unity.h"

void setUp(void)
{
}

void tearDown(void)
{
}

static void test_pieces_are_joined(void)
{
    char data[32];
    ta_text text;
    ta_text_init(&text, data, sizeof data);
    TEST_ASSERT_EQUAL_STRING("", data);
    ta_text_add(&text, "ranks: %d\n", 5);
    ta_text_add(&text, "%s", "");
    ta_text_add(&text, "mask: %s\n", "full");
    TEST_ASSERT_EQUAL_STRING("ranks: 5\nmask: full\n", data);
    TEST_ASSERT_EQUAL_size_t(strlen(data), text.length);
}

/* Every capacity gives the start of the same text, and writes nothing beyond. */
static void test_every_capacity(void)
{
    const char whole[] = "first, second, third";
    for (size_t capacity = 0; capacity <= sizeof whole + 2; ++capacity) {
        char data[40];
        memset(data, '#', sizeof data);
        ta_text text;
        ta_text_init(&text, data, capacity);
        ta_text_add(&text, "first");
        ta_text_add(&text, ", %s", "second");
        ta_text_add(&text, ", third");
        TEST_ASSERT_EQUAL_size_t(sizeof whole - 1, text.length);
        if (capacity > 0) {
            size_t kept = capacity < sizeof whole ? capacity - 1 : sizeof whole - 1;
            TEST_ASSERT_EQUAL_size_t(kept, strlen(data));
            TEST_ASSERT_EQUAL_STRING_LEN(whole, data, kept);
        }
        for (size_t i = capacity; i < sizeof data; ++i)
            TEST_ASSERT_EQUAL_HEX8('#', data[i]);
    }
}

static void test_no_buffer_only_counts(void)
{
    ta_text text;
    ta_text_init(&text, NULL, 0);
    ta_text_add(&text, "%05d", 42);
    TEST_ASSERT_EQUAL_size_t(5, text.length);
    ta_text_init(&text, NULL, 10);
    ta_text_add(&text, "abc");
    TEST_ASSERT_EQUAL_size_t(3, text.length);
}

/* As JSON wants it, which has no control characters in a string. */
static void test_quoted(void)
{
    char data[64];
    ta_text text;
    ta_text_init(&text, data, sizeof data);
    ta_text_add_quoted(&text, "a \"b\" \\ \n\x1f \xc3\xa9%s");
    TEST_ASSERT_EQUAL_STRING("\"a \\\"b\\\" \\\\ \\u000a\\u001f \xc3\xa9%s\"", data);
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(test_pieces_are_joined);
    RUN_TEST(test_every_capacity);
    RUN_TEST(test_no_buffer_only_counts);
    RUN_TEST(test_quoted);
    return UNITY_END() != 0;
}
