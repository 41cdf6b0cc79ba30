/* Checked mode on a GPU (src/decode/check_more.c): lengths, bounds, pages and what a call points to
 * are looked at before the step, and the host reads copies of them alone. The guard of the executor
 * makes device memory unreadable while nothing runs on the device, so a look at it ends the
 * program. */
#include <math.h>

#include "device/device.h"
#include "lib/expect.h"
#include "lib/small_step.h"
#include "simt/simt_control.h"

static ta_device *device;
static small_step step;
static ta_plan *plan;

void setUp(void)
{
    simt_reset();
    EXPECT_OK(ta_device_open("simt", NULL, &device));
    small_step_init(&step, 0, 1);
    step.config.check = 1;
}

void tearDown(void)
{
    simt_set_guard(0);
    ta_plan_destroy(plan);
    plan = NULL;
    small_step_release(&step);
    ta_device_close(device);
    simt_reset();
}

static void make_plan(void)
{
    EXPECT_OK(ta_plan_create(NULL, device, &step.config, &plan));
    simt_set_guard(1);
}

static void expect_right(void)
{
    EXPECT_OK(small_step_decode(&step, plan));
    TEST_ASSERT_TRUE(small_step_right(&step));
}

static void expect_refused(const char *what, const char *value)
{
    EXPECT_OK(small_step_fill(&step));
    EXPECT_ERROR(TA_ERR_INVALID, small_step_queue(&step, plan, NULL), what, value);
    EXPECT_OK(small_step_fetch(&step, NULL));
    TEST_ASSERT_TRUE(small_step_untouched(&step));
}

/* Of the last sequence, so that all are looked at. */
static void test_lengths(void)
{
    EXPECT_OK(small_step_to_device(&step, device));
    make_plan();
    expect_right();
    step.lengths[SMALL_BATCH - 1] = -3;
    expect_refused("kv.lengths[1] is -3", NULL);
}

/* Where device memory ends, so that one row too many would be noticed. */
static void test_bounds(void)
{
    int32_t bounds[64] = {0}, *last = bounds + 60; /* all that an allocation is rounded up to */
    void *memory = NULL;
    last[1] = SMALL_TOKENS;
    last[3] = 3;
    step.config.map.kind = TA_SHARD_CONTIGUOUS;
    step.config.map.block = 0;
    EXPECT_OK(small_step_to_device(&step, device));
    EXPECT_OK(device->ops->alloc(device, sizeof bounds, &memory));
    EXPECT_OK(device->ops->copy(device, memory, bounds, sizeof bounds, NULL));
    step.kv.bounds = (const int32_t *)memory + 60;
    step.kv.bounds_stride = 2;
    make_plan();
    expect_right();
    last[3] = 2; /* of the second sequence, which has three tokens */
    EXPECT_OK(device->ops->copy(device, memory, bounds, sizeof bounds, NULL));
    expect_refused("kv.bounds", "2");
    device->ops->free(device, memory);
}

static void test_pages(void)
{
    int32_t *pages = step.bounds; /* whose memory is a page table here */
    for (int i = 0; i < SMALL_BATCH * SMALL_TOKENS; ++i)
        pages[i] = i;
    step.kv.bounds = pages;
    EXPECT_OK(small_step_to_device(&step, device));
    step.kv.page_table = step.kv.bounds;
    step.kv.page_table_stride = SMALL_TOKENS;
    step.kv.page_tokens = 1;
    step.kv.page_count = SMALL_BATCH * SMALL_TOKENS;
    step.kv.bounds = NULL;
    make_plan();
    expect_right();
    pages[SMALL_TOKENS + 2] = -1;
    expect_refused("page 2 of sequence 1 in kv.page_table", "-1");
}

static void test_calls(void)
{
    EXPECT_OK(small_step_to_device(&step, device));
    ptrdiff_t moved = (const char *)step.kv.lengths - (const char *)step.lengths;
    small_step_ragged(&step, SMALL_BATCH * SMALL_QUERY_TOKENS);
    make_plan();
    expect_right();
    step.starts[1] = 3;
    expect_refused("call.starts[1] is 3", NULL);
    step.starts[1] = SMALL_QUERY_TOKENS;
    step.call.alibi_slopes = (const float *)((const char *)step.slopes + moved);
    expect_right(); /* slopes of 0 change nothing */
    step.call.sinks = (const float *)((const char *)step.sinks + moved);
    step.sinks[SMALL_HEADS - 1] = HUGE_VALF;
    expect_refused("call.sinks[3] is inf", NULL);
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(test_lengths);
    RUN_TEST(test_bounds);
    RUN_TEST(test_pages);
    RUN_TEST(test_calls);
    return UNITY_END() != 0;
}
