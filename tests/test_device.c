/* Devices by name, ta_info() and the version (src/device/device.c), and what was given up
 * (src/device/fallback.c). */
#include "device/device.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

#include <treeattn/extension.h>

#include "base/clock.h"
#include "device/cpus.h"
#include "device/fallback.h"
#include "lib/expect.h"
#include "lib/large_allocation.h"

void setUp(void)
{
}

void tearDown(void)
{
}

static void test_open_by_name(void)
{
    static const char *const names[] = {"host", "auto"};
    for (int i = 0; i < 2; ++i) {
        ta_device *device = NULL;
        EXPECT_OK(ta_device_open(names[i], NULL, &device));
        TEST_ASSERT_NOT_NULL(device);
        TEST_ASSERT_TRUE(strlen(device->name) > 0);
        ta_device_close(device);
    }
    ta_device_close(NULL);
}

static void test_unknown_names(void)
{
    static const char *const names[] = {"",      "Host", "host:0",
                                        "host ", "gpu",  "a name that is much longer than any"};
    for (int i = 0; i < 6; ++i) {
        ta_device *device = (ta_device *)&device;
        char quoted[80];
        snprintf(quoted, sizeof quoted, "\"%s\"", names[i]);
        EXPECT_ERROR(TA_ERR_NOT_FOUND, ta_device_open(names[i], NULL, &device), quoted, "host");
        TEST_ASSERT_EQUAL_PTR(&device, device);
    }
}

static void expect_bad_config(const ta_device_config *config, ta_status status, const char *first,
                              const char *second)
{
    ta_device *device = (ta_device *)&device;
    EXPECT_ERROR(status, ta_device_open("host", config, &device), first, second);
    TEST_ASSERT_EQUAL_PTR(&device, device);
}

static void test_bad_arguments(void)
{
    ta_device *device = NULL;
    ta_device_config config = TA_DEVICE_CONFIG_INIT;
    EXPECT_ERROR(TA_ERR_INVALID, ta_device_open(NULL, NULL, &device), "name is NULL", NULL);
    EXPECT_ERROR(TA_ERR_INVALID, ta_device_open("host", NULL, NULL), "device is NULL", NULL);
    config.size = 4;
    expect_bad_config(&config, TA_ERR_INVALID, "config.size is 4", "TA_DEVICE_CONFIG_INIT");
    config.size = sizeof config;
    config.threads = -1;
    expect_bad_config(&config, TA_ERR_INVALID, "threads", "-1");
    config.threads = 2147483647;
    expect_bad_config(&config, TA_ERR_INVALID, "threads", "2147483647");
    config.threads = 1;
    config.simd = "avx1024";
    ta_status status = ta_device_open("host", &config, &device);
    TEST_ASSERT_TRUE(status == TA_ERR_INVALID || status == TA_ERR_UNSUPPORTED ||
                     status == TA_ERR_NOT_FOUND);
    TEST_ASSERT_NOT_NULL(strstr(ta_last_error(), "avx1024"));
    TEST_ASSERT_NULL(device);
}

static void test_every_simd_level(void)
{
    char levels[200], *rest = levels, *level;
    int count = 0, scalar = 0;
    snprintf(levels, sizeof levels, "%s", ta_host_simd_levels());
    while ((level = strtok_r(rest, " ", &rest))) {
        ta_device_config config = TA_DEVICE_CONFIG_INIT;
        ta_device *device;
        config.simd = level;
        EXPECT_OK(ta_device_open("host", &config, &device));
        char text[1000];
        ta_text description;
        ta_text_init(&description, text, sizeof text);
        device->ops->describe(device, &description);
        TEST_ASSERT_NOT_NULL_MESSAGE(strstr(text, level), text);
        ta_device_close(device);
        ++count;
        scalar += !strcmp(level, "scalar");
    }
    TEST_ASSERT_TRUE(count >= 1);
    TEST_ASSERT_EQUAL_INT(1, scalar);
}

static void test_threads(void)
{
    for (int threads = 0; threads <= 5; ++threads) {
        ta_device_config config = TA_DEVICE_CONFIG_INIT;
        ta_device *device;
        config.threads = threads;
        EXPECT_OK(ta_device_open("host", &config, &device));
        ta_device_close(device);
    }
}

static void test_memory(void)
{
    ta_device *device;
    void *memory;
    char back[100];
    EXPECT_OK(ta_device_open("host", NULL, &device));
    EXPECT_OK(device->ops->alloc(device, 100, &memory));
    TEST_ASSERT_EQUAL_INT(0, (int)((uintptr_t)memory % 64));
    memset(back, 9, sizeof back);
    EXPECT_OK(device->ops->copy(device, memory, back, sizeof back, NULL));
    memset(back, 0, sizeof back);
    EXPECT_OK(device->ops->copy(device, back, memory, sizeof back, NULL));
    TEST_ASSERT_EACH_EQUAL_CHAR(9, back, sizeof back);
    device->ops->free(device, memory);
    void *none = NULL;
    EXPECT_ERROR(TA_ERR_NO_MEMORY, device->ops->alloc(device, PTRDIFF_MAX / 2, &none), NULL, NULL);
    TEST_ASSERT_NULL(none);
    ta_device_close(device);
}

/* The same for programs that have no other way to the device's memory. */
static void test_public_memory(void)
{
    ta_device *device;
    void *memory = NULL;
    char here[100];
    EXPECT_OK(ta_device_open("host", NULL, &device));
    TEST_ASSERT_EQUAL_STRING("host", ta_device_name(device));
    EXPECT_OK(ta_device_alloc(device, sizeof here, &memory));
    TEST_ASSERT_EQUAL_INT(0, (int)((uintptr_t)memory % 64));
    memset(here, 3, sizeof here);
    EXPECT_OK(ta_device_copy(device, memory, here, sizeof here, NULL));
    memset(here, 4, sizeof here);
    EXPECT_OK(ta_device_copy(device, here, memory, sizeof here, NULL));
    EXPECT_OK(ta_device_synchronize(device, NULL));
    TEST_ASSERT_EACH_EQUAL_CHAR(3, here, sizeof here);
    EXPECT_ERROR(TA_ERR_INVALID, ta_device_alloc(NULL, 8, &memory), "device is NULL", NULL);
    EXPECT_ERROR(TA_ERR_INVALID, ta_device_alloc(device, 8, NULL), "memory is NULL", NULL);
    EXPECT_ERROR(TA_ERR_INVALID, ta_device_copy(device, NULL, here, 8, NULL), "NULL", "8 bytes");
    EXPECT_ERROR(TA_ERR_INVALID, ta_device_copy(device, here, NULL, 8, NULL), "NULL", "8 bytes");
    EXPECT_OK(ta_device_copy(device, NULL, NULL, 0, NULL));
    EXPECT_ERROR(TA_ERR_INVALID, ta_device_copy(device, here, memory, 8, here), "stream", "host");
    EXPECT_ERROR(TA_ERR_INVALID, ta_device_synchronize(NULL, NULL), "device is NULL", NULL);
    ta_device_free(device, memory);
    ta_device_free(device, NULL);
    ta_device_free(NULL, here);
    ta_device_close(device);
}

/* What is held counts to the byte, whatever the order in which it is given back. */
static void test_memory_that_is_held(void)
{
    static const size_t bytes[] = {1000, 200, 30};
    ta_device *device;
    void *memory[4];
    EXPECT_OK(ta_device_open("host", NULL, &device));
    for (int i = 0; i < 3; ++i)
        EXPECT_OK(ta_device_alloc(device, bytes[i], &memory[i]));
    EXPECT_OK(ta_device_alloc(device, 0, &memory[3]));
    TEST_ASSERT_NOT_NULL(memory[3]);
    TEST_ASSERT_EQUAL_UINT64(1230, ta_device_stats_of(device).bytes_held);
    ta_device_free(device, memory[1]);
    TEST_ASSERT_EQUAL_UINT64(1030, ta_device_stats_of(device).bytes_held);
    EXPECT_OK(ta_device_alloc(device, 4, &memory[1]));
    TEST_ASSERT_EQUAL_UINT64(1034, ta_device_stats_of(device).bytes_held);
    for (int i = 0; i < 4; ++i)
        ta_device_free(device, memory[i]);
    TEST_ASSERT_EQUAL_UINT64(0, ta_device_stats_of(device).bytes_held);
    TEST_ASSERT_EQUAL_UINT64(1230, ta_device_stats_of(device).bytes_held_most);
    ta_device_close(device);
}

static void test_stopwatch(void)
{
    const struct timespec moment = {0, 2000000};
    ta_device *device;
    double first = -1, second = -1, begin;
    EXPECT_OK(ta_device_open("host", NULL, &device));
    EXPECT_ERROR(TA_ERR_INVALID, ta_device_timer_read(device, NULL, &first), "never started", NULL);
    EXPECT_OK(ta_device_timer_start(device, NULL));
    nanosleep(&moment, NULL);
    EXPECT_OK(ta_device_timer_read(device, NULL, &first));
    EXPECT_OK(ta_device_timer_read(device, NULL, &second));
    TEST_ASSERT_TRUE(first >= 0.002 && second >= first);
    /* Started anew it has what has passed since then, and nothing of before. */
    begin = ta_clock_s();
    EXPECT_OK(ta_device_timer_start(device, NULL));
    EXPECT_OK(ta_device_timer_read(device, NULL, &second));
    TEST_ASSERT_TRUE(second >= 0 && second <= ta_clock_s() - begin + 1e-6);
    EXPECT_ERROR(TA_ERR_INVALID, ta_device_timer_start(NULL, NULL), "device is NULL", NULL);
    EXPECT_ERROR(TA_ERR_INVALID, ta_device_timer_start(device, &first), "stream is", NULL);
    EXPECT_ERROR(TA_ERR_INVALID, ta_device_timer_read(device, NULL, NULL), "seconds is NULL", NULL);
    EXPECT_ERROR(TA_ERR_INVALID, ta_device_timer_read(NULL, NULL, &first), "device is NULL", NULL);
    EXPECT_ERROR(TA_ERR_INVALID, ta_device_timer_read(device, &first, &first), "stream is", NULL);
    ta_device_close(device);
}

static void test_extension(void)
{
    const void *table = &table;
    ta_device *device;
    EXPECT_OK(ta_device_open("host", NULL, &device));
    EXPECT_ERROR(TA_ERR_INVALID, ta_device_extension(NULL, "model", 1, &table), "device is NULL",
                 NULL);
    EXPECT_ERROR(TA_ERR_INVALID, ta_device_extension(device, NULL, 1, &table), "name is NULL",
                 "model");
    EXPECT_ERROR(TA_ERR_INVALID, ta_device_extension(device, "model", 1, NULL), "table is NULL",
                 NULL);
    EXPECT_ERROR(TA_ERR_UNSUPPORTED, ta_device_extension(device, "other", 1, &table),
                 "name is 'other'", "'model' and 'ccl'");
    EXPECT_ERROR(TA_ERR_UNSUPPORTED, ta_device_extension(device, "model", 0, &table),
                 "version is 0", "version 1");
    EXPECT_ERROR(TA_ERR_UNSUPPORTED, ta_device_extension(device, "model", 1, &table), "host",
                 "no table 'model'");
    EXPECT_ERROR(TA_ERR_UNSUPPORTED, ta_device_extension(device, "ccl", 1, &table), "host",
                 "no table 'ccl'");
    EXPECT_ERROR(TA_ERR_UNSUPPORTED, ta_device_extension(device, "ccl", 2, &table), "version is 2",
                 "table 'ccl' is version 1");
    TEST_ASSERT_EQUAL_PTR(&table, table);
    ta_device_close(device);
}

static void test_info(void)
{
    char threads[40], text[2000], version[40];
    size_t needed = 0;
    EXPECT_OK(ta_info(NULL, 0, &needed));
    TEST_ASSERT_TRUE(needed > 20 && needed < sizeof text);
    EXPECT_OK(ta_info(text, sizeof text, NULL));
    TEST_ASSERT_EQUAL_size_t(needed, strlen(text) + 1);
    snprintf(version, sizeof version, "version: %d.%d.%d\n", TA_VERSION_MAJOR, TA_VERSION_MINOR,
             TA_VERSION_PATCH);
    TEST_ASSERT_NOT_NULL(strstr(text, version));
    TEST_ASSERT_NOT_NULL(strstr(text, "host"));
    TEST_ASSERT_NOT_NULL(strstr(text, ta_host_simd_levels()));
    snprintf(threads, sizeof threads, "\nhost threads: %d\n", ta_cpus());
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(text, threads), text);
    TEST_ASSERT_NOT_NULL(strstr(text, "threads"));
    for (const char *line = text; *line; line = strchr(line, '\n') + 1) {
        const char *colon = strstr(line, ": ");
        TEST_ASSERT_TRUE_MESSAGE(colon && colon < strchr(line, '\n'), line);
    }
    char cut[10];
    EXPECT_OK(ta_info(cut, sizeof cut, &needed));
    TEST_ASSERT_EQUAL_STRING_LEN(text, cut, 9);
    TEST_ASSERT_EQUAL_INT('\0', cut[9]);
    TEST_ASSERT_EQUAL_size_t(strlen(text) + 1, needed);
    EXPECT_ERROR(TA_ERR_INVALID, ta_info(NULL, 5, &needed), "text is NULL", "5");
    TEST_ASSERT_EQUAL_INT(TA_VERSION, ta_version());
}

/* ---- What was given up ---- */

static void keep_text(void *context, ta_log_level level, const char *text)
{
    if (level == TA_LOG_INFO)
        snprintf(context, 200, "%s", text);
}

static void expect_given_up(const char *line)
{
    char text[400];
    ta_text described;
    ta_text_init(&described, text, sizeof text);
    ta_fallback_describe(&described);
    TEST_ASSERT_EQUAL_STRING(line, text);
}

static void test_the_last_one_that_was_given_up(void)
{
    char logged[200] = "", info[4000];
    expect_given_up("");
    ta_log_set(keep_text, logged, TA_LOG_INFO);
    ta_fallback_from_direct("GPU 1 is far", "binomial");
    TEST_ASSERT_EQUAL_STRING("exchange binomial in place of direct: GPU 1 is far", logged);
    ta_fallback_from_direct("GPU 2 is far", "butterfly");
    ta_log_set(NULL, NULL, TA_LOG_INFO);
    expect_given_up("direct exchange: given up, butterfly instead, since GPU 2 is far\n");
    EXPECT_OK(ta_info(info, sizeof info, NULL));
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(info, "\ndirect exchange: given up, butterfly"), info);
}

static atomic_int tellers;

static void *tell(void *argument)
{
    const char *letters = argument;
    for (int i = 0; i < 400000; ++i)
        ta_fallback_from_direct(letters, letters);
    atomic_fetch_sub(&tellers, 1);
    return NULL;
}

/* Nobody reads a text that is being written: it has one letter, or the other. */
static void test_plans_that_tell_at_once(void)
{
    static char as[] =
        "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
    static char bs[] =
        "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb";
    pthread_t threads[2];
    char of_as[400], of_bs[400];
    int torn = 0;
    snprintf(of_as, sizeof of_as, "direct exchange: given up, %s instead, since %s\n", as, as);
    snprintf(of_bs, sizeof of_bs, "direct exchange: given up, %s instead, since %s\n", bs, bs);
    ta_fallback_from_direct(as, as);
    atomic_store(&tellers, 2);
    TEST_ASSERT_EQUAL_INT(0, pthread_create(&threads[0], NULL, tell, as));
    TEST_ASSERT_EQUAL_INT(0, pthread_create(&threads[1], NULL, tell, bs));
    while (atomic_load(&tellers) > 0) {
        char text[400];
        ta_text described;
        ta_text_init(&described, text, sizeof text);
        ta_fallback_describe(&described);
        torn += strcmp(text, of_as) != 0 && strcmp(text, of_bs) != 0;
    }
    for (int i = 0; i < 2; ++i)
        pthread_join(threads[i], NULL);
    TEST_ASSERT_EQUAL_INT(0, torn);
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(test_open_by_name);
    RUN_TEST(test_unknown_names);
    RUN_TEST(test_bad_arguments);
    RUN_TEST(test_every_simd_level);
    RUN_TEST(test_threads);
    RUN_TEST(test_memory);
    RUN_TEST(test_public_memory);
    RUN_TEST(test_memory_that_is_held);
    RUN_TEST(test_stopwatch);
    RUN_TEST(test_extension);
    RUN_TEST(test_info);
    RUN_TEST(test_the_last_one_that_was_given_up);
    RUN_TEST(test_plans_that_tell_at_once);
    return UNITY_END() != 0;
}
