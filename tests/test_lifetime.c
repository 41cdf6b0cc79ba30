/* A device that is closed before what uses it (src/device/device.c, ta_device_hold()): plans go on
 * to work, and the device ends with the last of them. Groups of GPUs are in test_ccl_steps.c. */
#include <dirent.h>
#include <sched.h>

#include <treeattn/attention.h>
#include <treeattn/cluster.h>

#include "base/clock.h"
#include "device/device.h"
#include "group/group.h"
#include "lib/expect.h"
#include "lib/small_step.h"

#define THREADS 3

void setUp(void)
{
}

void tearDown(void)
{
}

static int count_threads(void)
{
    DIR *tasks = opendir("/proc/self/task");
    int count = 0;
    for (struct dirent *task; tasks && (task = readdir(tasks));)
        count += task->d_name[0] != '.';
    if (tasks)
        closedir(tasks);
    return count;
}

/* A thread that was joined may be listed for a moment. */
static int settle(int wanted)
{
    double deadline = ta_clock_s() + 60;
    while (count_threads() != wanted && ta_clock_s() < deadline)
        sched_yield();
    return count_threads();
}

static ta_device *open_host(void)
{
    ta_device *device = NULL;
    ta_device_config config = TA_DEVICE_CONFIG_INIT;
    config.threads = THREADS;
    EXPECT_OK(ta_device_open("host", &config, &device));
    return device;
}

static void test_plans_keep_their_device(void)
{
    int before = count_threads();
    ta_device *device = open_host();
    ta_plan *plans[2];
    small_step step;
    small_step_init(&step, 0, 1);
    for (int i = 0; i < 2; ++i)
        EXPECT_OK(ta_plan_create(NULL, device, &step.config, &plans[i]));
    void *lost;
    EXPECT_OK(ta_device_alloc(device, 100, &lost)); /* its memory is given back by hand here */
    ta_device_close(device);
    for (int i = 0; i < 2; ++i) {
        EXPECT_OK(small_step_decode(&step, plans[i]));
        TEST_ASSERT_TRUE(small_step_right(&step));
        if (i == 0)
            ta_plan_destroy(plans[0]);
        TEST_ASSERT_EQUAL_INT(before + THREADS - 1, settle(before + THREADS - 1));
    }
    ta_device_free(device, lost); /* the second plan still holds it */
    ta_plan_destroy(plans[1]);
    TEST_ASSERT_EQUAL_INT(before, settle(before));
}

static void test_attention_plans_too(void)
{
    int before = count_threads();
    ta_device *device = open_host();
    ta_attention *plan = NULL;
    ta_attention_config config = TA_ATTENTION_CONFIG_INIT;
    config.query_heads = 1;
    config.k_dim = 8;
    config.dtype = TA_F32;
    config.max_tokens = 4;
    EXPECT_OK(ta_attention_create(NULL, device, &config, &plan));
    ta_device_close(device);
    char text[4096];
    EXPECT_OK(ta_attention_explain(plan, text, sizeof text, NULL));
    TEST_ASSERT_EQUAL_INT(before + THREADS - 1, settle(before + THREADS - 1));
    ta_attention_destroy(plan);
    TEST_ASSERT_EQUAL_INT(before, settle(before));
}

/* A plan that could not be made holds nothing. */
static void test_failed_plans_hold_nothing(void)
{
    int before = count_threads();
    ta_device *device = open_host();
    ta_plan *plan = NULL;
    ta_attention *attention = NULL;
    ta_attention_config config = TA_ATTENTION_CONFIG_INIT;
    small_step step;
    small_step_init(&step, 0, 1);
    step.config.k_dim = 12;
    EXPECT_ERROR(TA_ERR_INVALID, ta_plan_create(NULL, device, &step.config, &plan), "k_dim", NULL);
    EXPECT_ERROR(TA_ERR_INVALID, ta_attention_create(NULL, device, &config, &attention), "config.",
                 NULL);
    ta_device_close(device);
    TEST_ASSERT_EQUAL_INT(before, settle(before));
}

/* Ranks close their devices at once, and destroy plans when all have decoded. */
static ta_status early_rank(ta_group *group, void *context)
{
    ta_device *device;
    ta_plan *plan;
    small_step step;
    (void)context;
    TA_TRY(small_step_open(&step, group, &device, &plan));
    ta_device_close(device);
    ta_status status = small_step_decode(&step, plan);
    ta_plan_destroy(plan);
    TA_TRY(status);
    RANK_EXPECT(small_step_right(&step));
    return TA_OK;
}

static void test_on_several_ranks(void)
{
    EXPECT_OK(ta_group_run_threads(3, NULL, early_rank, NULL));
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(test_plans_keep_their_device);
    RUN_TEST(test_attention_plans_too);
    RUN_TEST(test_failed_plans_hold_nothing);
    RUN_TEST(test_on_several_ranks);
    return UNITY_END() != 0;
}
