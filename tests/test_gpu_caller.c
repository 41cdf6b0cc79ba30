/* Whatever a GPU module does for a device leaves the calling thread on the device that it was on,
 * and no error for its next call to the runtime to find (hip/device.c, graph.c, hip/module.c).
 * test_ccl_lifetime.c has the same for groups. */
#include "device/device.h"
#include "lib/expect.h"
#include "lib/simt_device.h"
#include "lib/small_step.h"
#include "simt/simt_control.h"

/* The calling thread is on another device, stays there, and finds no error that was left for it. */
static void expect_stays(ta_status status, const char *call)
{
    int now = -1;
    TEST_ASSERT_EQUAL_INT_MESSAGE(TA_OK, status, call);
    TEST_ASSERT_EQUAL_INT(hipSuccess, hipGetDevice(&now));
    TEST_ASSERT_EQUAL_INT_MESSAGE(3, now, call);
    TEST_ASSERT_EQUAL_INT_MESSAGE(hipSuccess, hipGetLastError(), call);
}

#define STAYS(call)                                                                                \
    do {                                                                                           \
        TEST_ASSERT_EQUAL_INT(hipSuccess, hipSetDevice(3));                                        \
        expect_stays((call), #call);                                                               \
    } while (0)
#define STAYS_AFTER(call) STAYS(((call), TA_OK))

static void test_slots(void)
{
    const ta_device_ops *ops = device->ops;
    void *memory, *pinned, *stream, *graph;
    char ordinary[64] = {0}, text[2000];
    double seconds;
    STAYS(ops->alloc(device, 64, &memory));
    STAYS(ops->alloc_host(device, 64, &pinned));
    STAYS(ops->copy(device, memory, ordinary, 64, NULL));
    STAYS(ops->copy(device, pinned, memory, 64, NULL));
    STAYS(ops->synchronize(device, NULL));
    STAYS(ops->bus_id(device, text, sizeof text));
    /* What is no stream at all is not captured: whoever is given it will say what is wrong. */
    STAYS(ops->capturing(device, (void *)ordinary) ? TA_ERR_UNSUPPORTED : TA_OK);
    STAYS(ops->timer_start(device, NULL));
    STAYS(ops->span(device, 0, NULL));
    STAYS(ops->span(device, 1, NULL));
    STAYS(ops->timer_read(device, NULL, &seconds));
    STAYS(ops->record(device, &stream));
    STAYS(ops->copy(device, pinned, memory, 64, stream));
    STAYS(ops->recorded(device, stream, &graph));
    STAYS(ops->replay(device, graph, NULL));
    STAYS_AFTER(ops->drop(device, graph));
    STAYS(ops->record(device, &stream));
    STAYS(ops->recorded(device, stream, NULL)); /* nobody wants it */
    STAYS_AFTER(ops->free(device, memory));
    STAYS_AFTER(ops->free_host(device, pinned));
    STAYS(ta_info(text, sizeof text, NULL));
}

/* What fails says so, and leaves no error behind either. */
static void test_failures(void)
{
    void *memory = NULL;
    simt_fail_malloc(1);
    STAYS((device->ops->alloc(device, 64, &memory) == TA_ERR_NO_MEMORY ? TA_OK : TA_ERR_SYSTEM));
    simt_fail_malloc(1);
    STAYS(
        (device->ops->alloc_host(device, 64, &memory) == TA_ERR_NO_MEMORY ? TA_OK : TA_ERR_SYSTEM));
    STAYS((device->ops->synchronize(device, &memory) == TA_ERR_DEVICE ? TA_OK : TA_ERR_SYSTEM));
}

static void test_a_step(void)
{
    ta_device *other;
    small_step step;
    ta_plan *plan;
    small_step_init(&step, 0, 1);
    step.config.max_tokens = 100000; /* may be cut: attend, merge, finish */
    step.kv.k.batch_stride = SMALL_TOKENS * SMALL_KV_HEADS * SMALL_K_DIM;
    step.kv.v.batch_stride = SMALL_TOKENS * SMALL_KV_HEADS * SMALL_V_DIM;
    STAYS(small_step_to_device(&step, device));
    STAYS(ta_plan_create(NULL, device, &step.config, &plan));
    STAYS(small_step_fill(&step));
    STAYS(small_step_queue(&step, plan, NULL));
    STAYS(small_step_fetch(&step, NULL));
    TEST_ASSERT_TRUE(small_step_right(&step));
    STAYS_AFTER(ta_plan_destroy(plan));
    STAYS_AFTER(small_step_release(&step));
    STAYS(ta_device_open("simt:1", NULL, &other));
    STAYS_AFTER(ta_device_close(other));
    TEST_ASSERT_EQUAL_INT(hipSuccess, hipSetDevice(0));
}

/* What a device made for its stopwatch goes with it. */
static void test_closing_frees_events(void)
{
    ta_device *other;
    double seconds;
    int before = simt_events();
    EXPECT_OK(ta_device_open("simt:1", NULL, &other));
    EXPECT_OK(other->ops->timer_start(other, NULL));
    EXPECT_OK(other->ops->span(other, 0, NULL));
    EXPECT_OK(other->ops->span(other, 1, NULL));
    EXPECT_OK(other->ops->timer_read(other, NULL, &seconds));
    TEST_ASSERT_EQUAL_INT(before + 4, simt_events());
    ta_device_close(other);
    TEST_ASSERT_EQUAL_INT(before, simt_events());
    EXPECT_OK(ta_device_open("simt:1", NULL, &other)); /* only a start: the second mark is not */
    EXPECT_OK(other->ops->timer_start(other, NULL));
    ta_device_close(other);
    TEST_ASSERT_EQUAL_INT(before, simt_events());
    TEST_ASSERT_EQUAL_INT(hipSuccess, hipGetLastError());
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(test_slots);
    RUN_TEST(test_failures);
    RUN_TEST(test_a_step);
    RUN_TEST(test_closing_frees_events);
    return UNITY_END() != 0;
}
