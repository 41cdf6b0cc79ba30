/* Staging (src/device/staging.c) over a device that only counts what it is asked for: what is
 * copied, what is not, and who waits. */
#include "device/staging.h"

#include <stdlib.h>
#include <string.h>

#include "lib/expect.h"

typedef struct counting_device {
    ta_device device;
    int copies, waits, allocated, freed;
    size_t bytes;
    int fails; /* alloc_host() does */
} counting_device;

static ta_status copy(ta_device *device, void *to, const void *from, size_t bytes, void *stream)
{
    counting_device *d = (counting_device *)device;
    (void)stream;
    d->copies += 1;
    d->bytes += bytes;
    memcpy(to, from, bytes);
    return TA_OK;
}

static ta_status synchronize(ta_device *device, void *stream)
{
    (void)stream;
    ((counting_device *)device)->waits += 1;
    return TA_OK;
}

static ta_status alloc_host(ta_device *device, size_t bytes, void **memory)
{
    counting_device *d = (counting_device *)device;
    if (d->fails)
        return TA_ERR_NO_MEMORY;
    d->allocated += 1;
    *memory = malloc(bytes);
    memset(*memory, 0xff, bytes);
    return TA_OK;
}

static void free_host(ta_device *device, void *memory)
{
    ((counting_device *)device)->freed += 1;
    free(memory);
}

static const ta_device_ops ops = {
    .copy = copy, .synchronize = synchronize, .alloc_host = alloc_host, .free_host = free_host};
static counting_device device;
static ta_staging staging;

void setUp(void)
{
    device = (counting_device){.device = {.ops = &ops}};
    EXPECT_OK(ta_staging_make(&device.device, 64, &staging));
}

void tearDown(void)
{
    ta_staging_free(&staging);
}

static void expect(int copies, int waits, size_t bytes)
{
    TEST_ASSERT_EQUAL_INT(copies, device.copies);
    TEST_ASSERT_EQUAL_INT(waits, device.waits);
    TEST_ASSERT_EQUAL_UINT(bytes, device.bytes);
}

static void test_memory(void)
{
    const char *memory = staging.memory;
    TEST_ASSERT_EQUAL_UINT(64, staging.bytes);
    for (int i = 0; i < 64; ++i)
        TEST_ASSERT_EQUAL_INT(0, memory[i]);
    ta_staging_free(&staging);
    ta_staging_free(&staging); /* there is none any more */
    TEST_ASSERT_EQUAL_INT(1, device.allocated);
    TEST_ASSERT_EQUAL_INT(1, device.freed);
    device.fails = 1;
    TEST_ASSERT_EQUAL_INT(TA_ERR_NO_MEMORY, ta_staging_make(&device.device, 8, &staging));
    TEST_ASSERT_NULL(staging.memory);
}

static void test_out_waits_and_a_copy_does_not(void)
{
    char source[16] = "what is staged", result[16] = "";
    EXPECT_OK(ta_staging_out(&staging, staging.memory, source, sizeof source, NULL));
    expect(1, 1, 16);
    EXPECT_OK(ta_staging_copy(&staging, result, staging.memory, sizeof result, NULL));
    expect(2, 1, 32);
    TEST_ASSERT_EQUAL_STRING("what is staged", result);
    EXPECT_OK(ta_staging_wait(&staging, NULL));
    expect(2, 2, 32);
}

static void test_nothing_to_copy(void)
{
    char source[16] = "";
    ta_staging none = {NULL, NULL, 0};
    EXPECT_OK(ta_staging_out(&staging, staging.memory, source, 0, NULL));
    EXPECT_OK(ta_staging_copy(&staging, source, staging.memory, 0, NULL));
    EXPECT_OK(ta_staging_out(&none, source, source, sizeof source, NULL));
    EXPECT_OK(ta_staging_copy(&none, source, source, sizeof source, NULL));
    expect(0, 0, 0);
    ta_staging_free(&none);
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(test_memory);
    RUN_TEST(test_out_waits_and_a_copy_does_not);
    RUN_TEST(test_nothing_to_copy);
    return UNITY_END() != 0;
}
