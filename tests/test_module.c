/* The loader of GPU modules: what it refuses, and how it says so. tests/module/ has the files that
 * it finds in TREEATTN_MODULE_PATH. Modules that work are tested by the decode tests on the simt
 * device. */
#include <stdlib.h>

#include "device/module.h"
#include "device/modules.h"
#include "lib/expect.h"

#define NUMBER_TEXT(number) #number
#define NUMBER(number) NUMBER_TEXT(number)
#define OTHER "module interface 4242" /* tests/module/other_interface.c */

void setUp(void)
{
}

void tearDown(void)
{
}

static void expect_refused(ta_status status, const char *name, const char *first,
                           const char *second)
{
    ta_device *device = (ta_device *)&device;
    EXPECT_ERROR(status, ta_device_open(name, NULL, &device), first, second);
    TEST_ASSERT_EQUAL_PTR(&device, device);
}

static void test_another_interface_is_refused_by_number(void)
{
    expect_refused(TA_ERR_NOT_FOUND, "cuda:0", OTHER, "needs " NUMBER(TA_MODULE_ABI));
    expect_refused(TA_ERR_NOT_FOUND, "cuda", "treeattn-cuda.so", OTHER);
}

static void test_a_file_without_the_entry_is_refused(void)
{
    expect_refused(TA_ERR_NOT_FOUND, "rocm:3", "treeattn-rocm.so", TA_MODULE_ENTRY);
}

static void test_an_absent_module_says_where_it_was_looked_for(void)
{
    expect_refused(TA_ERR_NOT_FOUND, "simt", "treeattn-simt.so", "TREEATTN_MODULE_PATH");
}

static void test_device_numbers(void)
{
    expect_refused(TA_ERR_INVALID, "cuda:", "\"cuda:\"", "\"cuda:N\"");
    expect_refused(TA_ERR_INVALID, "cuda:x", "\"cuda:x\"", "\"cuda:N\"");
    expect_refused(TA_ERR_INVALID, "rocm:1 ", "\"rocm:1 \"", "\"rocm:N\"");
}

static void test_auto_is_the_host_without_a_gpu(void)
{
    ta_device *device = NULL;
    EXPECT_OK(ta_modules_open_best(NULL, &device));
    TEST_ASSERT_NULL(device);
    EXPECT_OK(ta_device_open("auto", NULL, &device));
    TEST_ASSERT_EQUAL_STRING("host", device->name);
    ta_device_close(device);
}

static void test_info_says_why(void)
{
    char text[4096];
    EXPECT_OK(ta_info(text, sizeof text, NULL));
    TEST_ASSERT_NOT_NULL(strstr(text, "module cuda: not used, /"));
    TEST_ASSERT_NOT_NULL(strstr(text, "treeattn-cuda.so: it has " OTHER));
    TEST_ASSERT_NOT_NULL(strstr(text, "treeattn-rocm.so: it has no function"));
    TEST_ASSERT_NOT_NULL(strstr(text, "module simt: not used, treeattn-simt.so is neither"));
}

int main(void)
{
    if (!getenv("TREEATTN_MODULE_PATH"))
        return 77; /* it is `meson test` that says where the files are */
    UNITY_BEGIN();
    RUN_TEST(test_another_interface_is_refused_by_number);
    RUN_TEST(test_a_file_without_the_entry_is_refused);
    RUN_TEST(test_an_absent_module_says_where_it_was_looked_for);
    RUN_TEST(test_device_numbers);
    RUN_TEST(test_auto_is_the_host_without_a_gpu);
    RUN_TEST(test_info_says_why);
    return UNITY_END() != 0;
}
