/* The hash of base/hash.h: parts add up in any order, and every difference shows. */
#include <string.h>

#include "base/hash.h"
#include "lib/expect.h"
#include "lib/random.h"

void setUp(void)
{
}

void tearDown(void)
{
}

/* Written down once, so that no version, compiler or device has another. */
static void test_the_values(void)
{
    static const int32_t lengths[] = {5, 0, 70000};
    TEST_ASSERT_EQUAL_HEX64(UINT64_C(0xe220a8397b1dcdaf), ta_hash_at(0, 0)); /* splitmix64 of 0 */
    TEST_ASSERT_EQUAL_HEX64(ta_hash_at(0, 5) + ta_hash_at(1, 0) + ta_hash_at(2, 70000),
                            ta_hash_words(lengths, 3));
    TEST_ASSERT_EQUAL_HEX64(ta_hash_at(0, 't') + ta_hash_at(1, 'a'), ta_hash_bytes("ta", 2));
    TEST_ASSERT_EQUAL_HEX64(0, ta_hash_words(NULL, 0));
}

/* Two halves in either order, as blocks of a kernel would. */
static void test_any_order(void)
{
    uint32_t values[64];
    uint64_t backwards = 0;
    random_source r = random_from(1);
    for (int i = 0; i < 64; ++i)
        values[i] = (uint32_t)random_bits(&r);
    for (int i = 63; i >= 0; --i)
        backwards += ta_hash_at((uint32_t)i, values[i]);
    TEST_ASSERT_EQUAL_HEX64(ta_hash_words(values, 64), backwards);
}

static void test_differences_show(void)
{
    int32_t values[16] = {0}, others[16];
    uint64_t hash = ta_hash_words(values, 16);
    for (int i = 0; i < 16; ++i)
        for (int bit = 0; bit < 32; ++bit) { /* one bit of one element */
            memcpy(others, values, sizeof values);
            others[i] ^= (int32_t)(1u << bit);
            TEST_ASSERT_TRUE(hash != ta_hash_words(others, 16));
        }
    for (int i = 1; i < 16; ++i) { /* one token more here, one less there; two swapped */
        memcpy(others, values, sizeof values);
        others[0] = 1, others[i] = -1;
        TEST_ASSERT_TRUE(hash != ta_hash_words(others, 16));
        uint64_t one_way = ta_hash_words(others, 16);
        others[0] = -1, others[i] = 1;
        TEST_ASSERT_TRUE(one_way != ta_hash_words(others, 16));
    }
    TEST_ASSERT_TRUE(hash != ta_hash_words(values, 15)); /* a zero more or less */
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(test_the_values);
    RUN_TEST(test_any_order);
    RUN_TEST(test_differences_show);
    return UNITY_END() != 0;
}
