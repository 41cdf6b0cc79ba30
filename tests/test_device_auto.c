/* Which device "auto" is (src/device/module.c), on machines that tests/module/gpus/ imagines. */
#include <stdlib.h>

#include "device/device.h"
#include "lib/expect.h"

static char said[2][1000]; /* by TA_LOG_ERROR, by TA_LOG_INFO */

static void hear(void *context, ta_log_level level, const char *text)
{
    (void)context;
    strncat(said[level - 1], text, sizeof said[0] - strlen(said[level - 1]) - 1);
    strncat(said[level - 1], "\n", sizeof said[0] - strlen(said[level - 1]) - 1);
}

void setUp(void)
{
    ta_log_set(hear, NULL, TA_LOG_INFO);
}

void tearDown(void)
{
    ta_log_set(NULL, NULL, TA_LOG_INFO);
}

/* A machine with these GPUs. */
static void imagine(const char *cuda, const char *rocm)
{
    setenv("cuda", cuda, 1);
    setenv("rocm", rocm, 1);
    said[0][0] = said[1][0] = '\0';
}

static void expect_auto(const char *name)
{
    ta_device *device = NULL;
    EXPECT_OK(ta_device_open("auto", NULL, &device));
    TEST_ASSERT_NOT_NULL(device);
    TEST_ASSERT_EQUAL_STRING(name, ta_device_name(device));
    ta_device_close(device);
    TEST_ASSERT_EQUAL_STRING("", said[0]);
}

/* Nothing to choose, nothing to say. */
static void test_the_first_gpu_that_works(void)
{
    imagine("wr", "w");
    expect_auto("cuda:0");
    TEST_ASSERT_NULL(strstr(said[1], "passes"));
    imagine("", "w");
    expect_auto("rocm:0");
    TEST_ASSERT_NULL(strstr(said[1], "passes"));
    imagine("", "");
    expect_auto("host");
    TEST_ASSERT_NULL(strstr(said[1], "passes"));
}

static void test_a_refused_gpu_is_passed_over(void)
{
    imagine("rrw", "w");
    expect_auto("cuda:2");
    TEST_ASSERT_NOT_NULL_MESSAGE(
        strstr(said[1], "device auto passes cuda:0 over: cuda:0 is of architecture old\n"
                        "device auto passes cuda:1 over: cuda:1 is of architecture old\n"),
        said[1]);
    imagine("rr", "rw");
    expect_auto("rocm:1");
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(said[1], "passes rocm:0 over"), said[1]);
}

static void test_all_refused_is_the_host(void)
{
    imagine("r", "r");
    expect_auto("host");
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(said[1], "passes cuda:0 over"), said[1]);
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(said[1], "passes rocm:0 over"), said[1]);
}

static void test_a_broken_gpu_is_an_error(void)
{
    ta_device *device = (ta_device *)&device;
    imagine("rb", "w");
    EXPECT_ERROR(TA_ERR_DEVICE, ta_device_open("auto", NULL, &device), "cuda:1 is broken", NULL);
    TEST_ASSERT_EQUAL_PTR(&device, device);
}

/* By name there is nothing to pass over: an error, in the log once. */
static void test_a_refused_gpu_by_name_is_an_error(void)
{
    ta_device *device = (ta_device *)&device;
    imagine("rw", "");
    EXPECT_ERROR(TA_ERR_UNSUPPORTED, ta_device_open("cuda:0", NULL, &device),
                 "cuda:0 is of architecture old", NULL);
    TEST_ASSERT_EQUAL_PTR(&device, device);
    TEST_ASSERT_EQUAL_STRING("cuda:0 is of architecture old\n", said[0]);
}

/* ta_info() has the modules, where they are from, and how many devices they see. */
static void test_info(void)
{
    char text[8192];
    imagine("rw", "");
    EXPECT_OK(ta_info(text, sizeof text, NULL));
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(text, "\nmodule cuda: /"), text);
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(text, "/treeattn-cuda.so, compiled for new\n"
                                              "module cuda devices: 2\n"),
                                 text);
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(text, "module rocm devices: 0\n"), text);
}

int main(void)
{
    if (!getenv("TREEATTN_MODULE_PATH"))
        return 77; /* it is `meson test` that says where the modules are */
    UNITY_BEGIN();
    RUN_TEST(test_the_first_gpu_that_works);
    RUN_TEST(test_a_refused_gpu_is_passed_over);
    RUN_TEST(test_all_refused_is_the_host);
    RUN_TEST(test_a_broken_gpu_is_an_error);
    RUN_TEST(test_a_refused_gpu_by_name_is_an_error);
    RUN_TEST(test_info);
    return UNITY_END() != 0;
}
