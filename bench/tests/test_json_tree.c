/* The reader of JSON: every kind of value, and text that is not JSON. */
#include <string.h>
#include <unity.h>

#include "common/json_tree.h"

static char error[1024];

void setUp(void)
{
    error[0] = '\0';
}

void tearDown(void)
{
}

static void test_values(void)
{
    static const char text[] =
        " {\"a\": [1, -2.5e2, true, false, null, \"x\\n\\u00e9\\ud83d\\ude00\"],"
        "\"b\": {}, \"c\": 9223372036854775807, \"d\": 1e-05, \"e\": 0} \n";
    json_tree tree;
    TEST_ASSERT_EQUAL_MESSAGE(0, json_tree_read(&tree, text, sizeof text - 1, error, sizeof error),
                              error);
    const json_item *a = json_find(tree.root, "a")->first;
    TEST_ASSERT_TRUE(a->is_whole && a->whole == 1);
    a = a->next;
    TEST_ASSERT_TRUE(!a->is_whole && a->number == -250);
    a = a->next;
    TEST_ASSERT_EQUAL(JSON_TRUE, a->kind);
    a = a->next->next;
    TEST_ASSERT_EQUAL(JSON_NULL, a->kind);
    TEST_ASSERT_EQUAL_STRING("x\n\xc3\xa9\xf0\x9f\x98\x80", a->next->text);
    TEST_ASSERT_TRUE(json_find(tree.root, "c")->whole == INT64_MAX);
    TEST_ASSERT_TRUE(json_find(tree.root, "d")->number == 1e-5);
    TEST_ASSERT_TRUE(json_find(tree.root, "e")->is_whole);
    TEST_ASSERT_NULL(json_find(tree.root, "f"));
    json_tree_free(&tree);
}

static void test_faults(void)
{
    static const char *const wrong[] = {
        "",
        "{",
        "[1,]",
        "[1 2]",
        "{\"a\"}",
        "{\"a\":}",
        "{a:1}",
        "\"abc",
        "\"\\x\"",
        "\"\\u12\"",
        "01",
        "-",
        "1.",
        "1e",
        "tru",
        "[1]x",
        "\"\x01\"",
        "+1",
        "\"\\ud800\"",
        ".5",
        "{\"a\":1,}",
        "[1}",
        "\"\\u0000\"",
        "nan",
        "[\"\\",
        "\"\\ud800\\u0041\"",
    };
    json_tree tree;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        error[0] = '\0';
        TEST_ASSERT_EQUAL_MESSAGE(
            -1, json_tree_read(&tree, wrong[i], strlen(wrong[i]), error, sizeof error), wrong[i]);
        TEST_ASSERT_NOT_NULL_MESSAGE(strstr(error, "not JSON at byte"), error);
    }
    char deep[1000];
    memset(deep, '[', sizeof deep);
    TEST_ASSERT_EQUAL(-1, json_tree_read(&tree, deep, sizeof deep, error, sizeof error));
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(error, "too deep"), error);
    /* A byte 0 does not end the text. */
    TEST_ASSERT_EQUAL(-1, json_tree_read(&tree, "1\0", 2, error, sizeof error));
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(test_values);
    RUN_TEST(test_faults);
    return UNITY_END() != 0;
}
