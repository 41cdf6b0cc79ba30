/* Strides of the caller's tensors (src/base/arguments.c): defaults, overflow, overlap,
 * alignment. */
#include "base/arguments.h"

#include "base/dtype.h"

#include "lib/expect.h"

static float data[8];
static const ta_tensor_shape shape = {"q", 3, 5, 4, 16, TA_F32};

void setUp(void)
{
}

void tearDown(void)
{
}

static void expect_strides(ta_tensor given, int64_t batch, int64_t token, int64_t head)
{
    ta_tensor filled;
    EXPECT_OK(ta_tensor_fill(&given, &shape, &filled));
    TEST_ASSERT_EQUAL_PTR(given.data, filled.data);
    TEST_ASSERT_EQUAL_INT64(batch, filled.batch_stride);
    TEST_ASSERT_EQUAL_INT64(token, filled.token_stride);
    TEST_ASSERT_EQUAL_INT64(head, filled.head_stride);
}

static void test_dense_defaults(void)
{
    expect_strides((ta_tensor){data, 0, 0, 0}, 320, 64, 16);
    expect_strides((ta_tensor){data, 0, 0, 20}, 400, 80, 20);
    expect_strides((ta_tensor){data, 0, 100, 0}, 500, 100, 16);
    expect_strides((ta_tensor){data, 1000, 0, 0}, 1000, 64, 16);
    expect_strides((ta_tensor){data, 7, 8, 9}, 7, 8, 9);
}

static void expect_bad(ta_tensor given, const char *first, const char *second)
{
    ta_tensor filled = {NULL, 1, 2, 3};
    EXPECT_ERROR(TA_ERR_INVALID, ta_tensor_fill(&given, &shape, &filled), first, second);
    TEST_ASSERT_TRUE(!filled.data && filled.batch_stride == 1 && filled.head_stride == 3);
}

static void test_bad_strides(void)
{
    expect_bad((ta_tensor){data, -1, 0, 0}, "q.batch_stride is -1", NULL);
    expect_bad((ta_tensor){data, 0, -64, 0}, "q.token_stride is -64", NULL);
    expect_bad((ta_tensor){data, 0, 0, INT64_MIN}, "q.head_stride is -9223372036854775808", NULL);
    expect_bad((ta_tensor){data, INT64_MAX, 0, 0}, "q.batch_stride is 9223372036854775807", NULL);
    expect_bad((ta_tensor){data, 0, INT64_MAX / 4, 0}, "q.token_stride", NULL);
    expect_bad((ta_tensor){data, 0, 0, INT64_MAX / 2}, "q.head_stride", NULL);
    expect_bad((ta_tensor){data, INT64_MAX / 2, INT64_MAX / 4, 0}, "q.", "address space");
}

/* Along an axis of one element nobody steps: its stride may be anything, and does no harm. */
static void test_strides_of_single_elements(void)
{
    ta_tensor_shape single = {"kv.k", 1, 1, 1, 16, TA_F32};
    static const int64_t far[] = {INT64_MAX, INT64_MAX / 2, INT64_MAX / 4, INT64_MAX / 8 + 1};
    for (int i = 0; i < 4; ++i) {
        ta_tensor given = {data, far[i], far[i], far[i]}, filled;
        EXPECT_OK(ta_tensor_fill(&given, &single, &filled));
        int64_t strides[] = {filled.batch_stride, filled.token_stride, filled.head_stride}, bytes;
        for (int axis = 0; axis < 3; ++axis) /* kernels multiply them by the size of an element */
            TEST_ASSERT_FALSE(__builtin_mul_overflow(strides[axis], 8, &bytes));
    }
}

/* The last stride with which all of a tensor is where an address can point to, and the next. */
static void test_the_end_of_the_address_space(void)
{
    const int64_t most = PTRDIFF_MAX / 8; /* elements, of the largest type */
    for (int axis = 0; axis < 3; ++axis) {
        ta_tensor_shape two = {"q", 1, 1, 1, 16, TA_F32};
        ta_tensor given = {data, 0, 0, 0}, filled;
        int64_t *stride = axis == 0   ? &given.batch_stride
                          : axis == 1 ? &given.token_stride
                                      : &given.head_stride;
        *stride = most - 16;
        *(axis == 0 ? &two.batch : axis == 1 ? &two.tokens : &two.heads) = 2;
        EXPECT_OK(ta_tensor_fill(&given, &two, &filled));
        ++*stride;
        EXPECT_ERROR(TA_ERR_INVALID, ta_tensor_fill(&given, &two, &filled), "_stride is ",
                     "address space");
    }
}

static void test_tables(void)
{
    const int64_t most = PTRDIFF_MAX / 4;
    EXPECT_OK(ta_check_table_stride("s", most / 3, 3));
    EXPECT_ERROR(TA_ERR_INVALID, ta_check_table_stride("s", most / 3 + 1, 3), "s is ",
                 "of 3 sequences");
    EXPECT_OK(ta_check_table_stride("s", most, 0));
    EXPECT_OK(ta_check_table_stride("s", 0, 3));
    EXPECT_ERROR(TA_ERR_INVALID, ta_check_table_stride("s", -1, 3), "s is -1", NULL);
}

static void test_misaligned_data(void)
{
    expect_bad((ta_tensor){(char *)data + 1, 0, 0, 0}, "q.data", "4-byte");
    expect_bad((ta_tensor){(char *)data + 2, 0, 0, 0}, "q.data", "4-byte");
    ta_tensor_shape half = {"kv.k", 3, 5, 4, 16, TA_BF16};
    ta_tensor given = {(char *)data + 2, 0, 0, 0}, filled;
    EXPECT_OK(ta_tensor_fill(&given, &half, &filled));
    given.data = (char *)data + 3;
    EXPECT_ERROR(TA_ERR_INVALID, ta_tensor_fill(&given, &half, &filled), "kv.k.data", "2-byte");
}

static void test_unknown_elements(void)
{
    static const int unknown[] = {TA_DTYPE_NONE, TA_DTYPE_END, -1};
    for (int i = 0; i < 3; ++i) {
        ta_tensor_shape odd = {"kv.k", 3, 5, 4, 16, (ta_dtype)unknown[i]};
        ta_tensor given = {data, 0, 0, 0}, filled = {.batch_stride = 7};
        EXPECT_ERROR(TA_ERR_INVALID, ta_tensor_fill(&given, &odd, &filled), "kv.k", "no such type");
        TEST_ASSERT_EQUAL_INT64(7, filled.batch_stride);
    }
}

/* Against a count of every address, for every combination of small strides. */
static int really_distinct(const ta_tensor *t, const ta_tensor_shape *s)
{
    char used[300] = {0};
    for (int b = 0; b < s->batch; ++b)
        for (int i = 0; i < s->tokens; ++i)
            for (int h = 0; h < s->heads; ++h)
                for (int d = 0; d < s->dim; ++d)
                    if (used[b * t->batch_stride + i * t->token_stride + h * t->head_stride + d]++)
                        return 0;
    return 1;
}

static void test_distinct(void)
{
    ta_tensor_shape small = {"out", 2, 3, 2, 8, TA_F32};
    int accepted = 0;
    for (int64_t b = 0; b <= 60; b += 2)
        for (int64_t t = 0; t <= 60; t += 2)
            for (int64_t h = 0; h <= 60; h += 2) {
                ta_tensor tensor = {data, b, t, h};
                ta_status status = ta_tensor_check_distinct(&tensor, &small);
                /* Interleaved axes that happen not to collide may be refused; a collision never
                 * passes. */
                if (status == TA_OK) {
                    TEST_ASSERT_TRUE(really_distinct(&tensor, &small));
                    ++accepted;
                } else {
                    TEST_ASSERT_EQUAL_INT(TA_ERR_INVALID, status);
                    TEST_ASSERT_NOT_NULL(strstr(ta_last_error(), "out."));
                }
            }
    TEST_ASSERT_TRUE(accepted > 100);
}

static void test_every_order_of_axes_is_distinct(void)
{
    ta_tensor_shape s = {"out", 2, 3, 2, 8, TA_F32};
    static const int64_t strides[6][3] = {{48, 16, 8}, {48, 8, 24}, {16, 32, 8},
                                          {8, 32, 16}, {24, 8, 48}, {8, 16, 48}};
    for (int i = 0; i < 6; ++i) {
        ta_tensor tensor = {data, strides[i][0], strides[i][1], strides[i][2]};
        EXPECT_OK(ta_tensor_check_distinct(&tensor, &s));
    }
    /* An axis of one element may have any stride. */
    ta_tensor_shape one = {"out", 1, 1, 1, 8, TA_F32};
    ta_tensor tensor = {data, 0, 0, 0};
    EXPECT_OK(ta_tensor_check_distinct(&tensor, &one));
}

/* Up to the end of the last element, with a stride of its own along each axis. */
static void test_reach(void)
{
    ta_tensor_shape s = {"q", 2, 3, 5, 16, TA_F32};
    const ta_tensor tensor = {data, 7000, 700, 70};
    TEST_ASSERT_EQUAL_size_t(4 * (7000 + 2 * 700 + 4 * 70 + 16), ta_tensor_reach(&tensor, &s));
    s.dtype = TA_BF16;
    TEST_ASSERT_EQUAL_size_t(2 * (7000 + 2 * 700 + 4 * 70 + 16), ta_tensor_reach(&tensor, &s));
    int64_t *counts[] = {&s.batch, &s.tokens, &s.heads};
    for (int i = 0; i < 3; ++i) {
        int64_t count = *counts[i];
        *counts[i] = 0;
        TEST_ASSERT_EQUAL_size_t(0, ta_tensor_reach(&tensor, &s));
        *counts[i] = count;
    }
}

static void expect_bad_scales(ta_scales scales, ta_dtype dtype, const char *first,
                              const char *second)
{
    const ta_tensor_shape of = {"kv.k_scale", 3, 5, 4, 16, dtype};
    EXPECT_ERROR(TA_ERR_INVALID, ta_scales_check(&scales, &of), first, second);
}

static void test_bad_scales(void)
{
    float *odd = (float *)(void *)((char *)data + 2);
    expect_bad_scales((ta_scales){data, 0, 0, 1}, TA_F32, "kv.k_scale.data is ", "8 bits");
    expect_bad_scales((ta_scales){odd, 0, 0, 1}, TA_E4M3, "kv.k_scale.data is ", "aligned");
    expect_bad_scales((ta_scales){data, -1, 0, 1}, TA_E4M3, "kv.k_scale.batch_stride is -1", NULL);
    expect_bad_scales((ta_scales){data, 0, -2, 1}, TA_E4M3, "kv.k_scale.token_stride is -2", NULL);
    expect_bad_scales((ta_scales){data, 0, 0, -3}, TA_E4M3, "kv.k_scale.head_stride is -3", NULL);
    expect_bad_scales((ta_scales){data, INT64_MAX, 0, 1}, TA_E4M3, "kv.k_scale.batch_stride is ",
                      "address space");
    expect_bad_scales((ta_scales){data, 0, INT64_MAX, 1}, TA_E4M3, "kv.k_scale.token_stride is ",
                      "address space");
    expect_bad_scales((ta_scales){data, 0, 0, INT64_MAX}, TA_E4M3, "kv.k_scale.head_stride is ",
                      "address space");
}

/* An allocation that failed must not become scales of 1; but a pool of no pages has no scales. */
static void test_scales_that_are_not_there(void)
{
    ta_tensor_shape of = {"kv.k_scale", 3, 5, 4, 16, TA_E4M3};
    const ta_scales none = {NULL, 0, 0, 0};
    const ta_scales failed[] = {
        {NULL, 20, 4, 1}, {NULL, 20, 0, 0}, {NULL, 0, 4, 0}, {NULL, 0, 0, 1}};
    EXPECT_OK(ta_scales_check(&none, &of));
    for (size_t i = 0; i < sizeof failed / sizeof *failed; ++i)
        EXPECT_ERROR(TA_ERR_INVALID, ta_scales_check(&failed[i], &of), "kv.k_scale.data is NULL",
                     "must be the scales, or the strides 0");
    of.batch = 0;
    EXPECT_OK(ta_scales_check(&failed[0], &of));
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(test_dense_defaults);
    RUN_TEST(test_bad_strides);
    RUN_TEST(test_strides_of_single_elements);
    RUN_TEST(test_misaligned_data);
    RUN_TEST(test_the_end_of_the_address_space);
    RUN_TEST(test_tables);
    RUN_TEST(test_unknown_elements);
    RUN_TEST(test_distinct);
    RUN_TEST(test_reach);
    RUN_TEST(test_bad_scales);
    RUN_TEST(test_scales_that_are_not_there);
    RUN_TEST(test_every_order_of_axes_is_distinct);
    return UNITY_END() != 0;
}
