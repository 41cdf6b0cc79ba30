/* Making and destroying plans (src/decode/plan.c): workspace, arguments, several plans side by
 * side. Fields of the config are in test_config.c, ranks that disagree in test_agree.c. */
#include "decode/plan.h"

#include <pthread.h>
#include <stdlib.h>

#include "lib/expect.h"
#include "lib/large_allocation.h"
#include "lib/number.h"
#include "lib/small_step.h"

static ta_device *device;
static small_step step;

void setUp(void)
{
    small_step_init(&step, 0, 1);
}

void tearDown(void)
{
}

static void expect_right(ta_plan *plan)
{
    EXPECT_OK(small_step_decode(&step, plan));
    TEST_ASSERT_TRUE(small_step_right(&step));
}

static void test_a_plan_decodes_again_and_again(void)
{
    ta_plan *plan;
    EXPECT_OK(ta_plan_create(NULL, device, &step.config, &plan));
    for (int i = 0; i < 3; ++i)
        expect_right(plan);
    ta_plan_destroy(plan);
    ta_plan_destroy(NULL);
}

static ta_dtype_role lacking;

static int lacks_a_role(const ta_device *of, ta_dtype dtype, ta_dtype_role role)
{
    (void)of, (void)dtype;
    return role != lacking;
}

/* What a device has no kernels for is refused with the field, and nothing else is tried. */
static void test_a_device_without_the_dtype(void)
{
    static const struct {
        ta_dtype_role role;
        const char *said;
    } cases[] = {{TA_AS_KV, "config.kv_dtype is 1 (f32)"},
                 {TA_AS_QUERY, "config.query_dtype is 3 (bf16)"},
                 {TA_AS_OUT, "config.out_dtype is 2 (f16)"}};
    ta_device_ops less = *device->ops;
    ta_device other = {.ops = &less, .name = "plain"};
    less.has_dtype = lacks_a_role;
    step.config.query_dtype = TA_BF16;
    step.config.out_dtype = TA_F16;
    for (int i = 0; i < 3; ++i) {
        ta_plan *plan = NULL;
        lacking = cases[i].role;
        EXPECT_ERROR(TA_ERR_UNSUPPORTED, ta_plan_create(NULL, &other, &step.config, &plan),
                     cases[i].said, "device plain");
        TEST_ASSERT_NULL(plan);
    }
}

static void test_bad_arguments(void)
{
    ta_plan *plan = (ta_plan *)&plan;
    size_t bytes = 7;
    EXPECT_ERROR(TA_ERR_INVALID, ta_plan_create(NULL, NULL, &step.config, &plan), "device is NULL",
                 NULL);
    EXPECT_ERROR(TA_ERR_INVALID, ta_plan_create(NULL, device, NULL, &plan), "config is NULL", NULL);
    EXPECT_ERROR(TA_ERR_INVALID, ta_plan_create(NULL, device, &step.config, NULL), "plan is NULL",
                 NULL);
    TEST_ASSERT_EQUAL_PTR(&plan, plan);
    EXPECT_ERROR(TA_ERR_INVALID, ta_plan_workspace(NULL, NULL, &step.config, &bytes),
                 "device is NULL", NULL);
    EXPECT_ERROR(TA_ERR_INVALID, ta_plan_workspace(NULL, device, NULL, &bytes), "config is NULL",
                 NULL);
    EXPECT_ERROR(TA_ERR_INVALID, ta_plan_workspace(NULL, device, &step.config, NULL),
                 "bytes is NULL", NULL);
    TEST_ASSERT_EQUAL_size_t(7, bytes);
}

static char *aligned(char *memory)
{
    return memory + (64 - (uintptr_t)memory % 64) % 64;
}

static void test_the_host_has_no_graphs(void)
{
    ta_plan *plan = (ta_plan *)&plan;
    step.config.replay = 1;
    EXPECT_ERROR(TA_ERR_UNSUPPORTED, ta_plan_create(NULL, device, &step.config, &plan),
                 "config.replay is 1", "host");
    step.config.replay = 2;
    EXPECT_ERROR(TA_ERR_INVALID, ta_plan_create(NULL, device, &step.config, &plan),
                 "config.replay is 2", "from 0 to 1");
}

static void test_weights_are_exact_or_rounded(void)
{
    ta_plan *plan = (ta_plan *)&plan, *untouched = plan;
    for (int wrong = -1; wrong <= 2; wrong += 3) {
        step.config.weights = (ta_weights)wrong;
        EXPECT_ERROR(TA_ERR_INVALID, ta_plan_create(NULL, device, &step.config, &plan),
                     wrong < 0 ? "config.weights is -1" : "config.weights is 2",
                     "must be TA_WEIGHTS_EXACT or TA_WEIGHTS_ROUNDED");
        TEST_ASSERT_EQUAL_PTR(untouched, plan);
    }
    step.config.weights = TA_WEIGHTS_ROUNDED;
    EXPECT_OK(ta_plan_create(NULL, device, &step.config, &plan));
    ta_plan_destroy(plan);
}

static void test_a_workspace_of_the_caller(void)
{
    static const float sinks[] = {1, 2, 3, 4};
    size_t bytes;
    ta_plan *plan;
    step.config.sinks = step.config.alibi_slopes = sinks;
    EXPECT_OK(ta_plan_workspace(NULL, device, &step.config, &bytes));
    TEST_ASSERT_TRUE(bytes > 0);
    small_step_init(&step, 0, 1);
    EXPECT_OK(ta_plan_workspace(NULL, device, &step.config, &bytes));
    char *memory = malloc(bytes + 64 + 128), *workspace = aligned(memory);
    number_poison(TA_F32, memory, (int64_t)(bytes + 64 + 128) / 4);
    step.config.workspace = workspace;
    step.config.workspace_bytes = bytes;
    EXPECT_OK(ta_plan_create(NULL, device, &step.config, &plan));
    expect_right(plan);
    ta_plan_destroy(plan);
    /* Nothing before or behind was written. */
    for (char *p = memory; p + 4 <= workspace; p += 4)
        TEST_ASSERT_TRUE(number_is_poison(TA_F32, p, 0));
    for (char *p = workspace + bytes; p + 4 <= memory + bytes + 64 + 128; p += 4)
        TEST_ASSERT_TRUE(number_is_poison(TA_F32, p, 0));
    /* It is the caller's again, and may serve another plan. */
    EXPECT_OK(ta_plan_create(NULL, device, &step.config, &plan));
    expect_right(plan);
    ta_plan_destroy(plan);
    free(memory);
}

static void test_a_workspace_that_will_not_do(void)
{
    size_t bytes;
    ta_plan *plan = NULL;
    EXPECT_OK(ta_plan_workspace(NULL, device, &step.config, &bytes));
    char *memory = malloc(bytes + 128), *workspace = aligned(memory), needed[40], given[40];
    snprintf(needed, sizeof needed, "%zu", bytes);
    step.config.workspace = workspace;
    static const size_t missing[] = {1, 64};
    for (int i = 0; i < 2; ++i) {
        step.config.workspace_bytes = bytes - missing[i];
        snprintf(given, sizeof given, "config.workspace_bytes is %zu", bytes - missing[i]);
        EXPECT_ERROR(TA_ERR_INVALID, ta_plan_create(NULL, device, &step.config, &plan), given,
                     needed);
    }
    step.config.workspace_bytes = 0;
    EXPECT_ERROR(TA_ERR_INVALID, ta_plan_create(NULL, device, &step.config, &plan),
                 "config.workspace_bytes is 0", needed);
    step.config.workspace_bytes = bytes;
    for (int off = 4; off < 64; off *= 2) {
        step.config.workspace = workspace + off;
        EXPECT_ERROR(TA_ERR_INVALID, ta_plan_create(NULL, device, &step.config, &plan),
                     "config.workspace is", "64");
    }
    TEST_ASSERT_NULL(plan);
    free(memory);
}

/* The largest shape of every field at once must not overflow into a small workspace. */
static void test_a_huge_workspace(void)
{
    size_t bytes = 0;
    step.config.batch = 1 << 20;
    step.config.query_tokens = 1024;
    step.config.query_heads = 1 << 16;
    step.config.kv_heads = 1 << 16;
    step.config.k_dim = step.config.v_dim = 576;
    ta_status status = ta_plan_workspace(NULL, device, &step.config, &bytes);
    if (status == TA_OK)
        TEST_ASSERT_TRUE(bytes / ((size_t)578 * 4) >= (size_t)1 << 46);
    else
        TEST_ASSERT_EQUAL_INT(TA_ERR_INVALID, status);
    ta_plan *plan = NULL;
    status = ta_plan_create(NULL, device, &step.config, &plan);
    TEST_ASSERT_TRUE(status == TA_ERR_INVALID || status == TA_ERR_NO_MEMORY);
    TEST_ASSERT_NULL(plan);
}

/* The arrays of the config are copied. */
static void test_slopes_and_sinks_are_copied(void)
{
    float slopes[] = {0, 0, 0, 0}, sinks[] = {-1e30f, -1e30f, -1e30f, -1e30f}; /* no effect */
    ta_plan *plan;
    step.config.alibi_slopes = slopes;
    step.config.sinks = sinks;
    EXPECT_OK(ta_plan_create(NULL, device, &step.config, &plan));
    for (int i = 0; i < 4; ++i)
        slopes[i] = sinks[i] = 100;
    expect_right(plan);
    ta_plan_destroy(plan);
}

static void test_several_plans_on_one_device(void)
{
    ta_plan *plans[3];
    for (int i = 0; i < 3; ++i)
        EXPECT_OK(ta_plan_create(NULL, device, &step.config, &plans[i]));
    for (int i = 2; i >= 0; --i)
        expect_right(plans[i]);
    ta_plan_destroy(plans[1]);
    expect_right(plans[2]);
    expect_right(plans[0]);
    ta_plan_destroy(plans[0]);
    ta_plan_destroy(plans[2]);
}

/* Different plans and devices on different threads, with no locks of the caller. */
static void *decode_alone(void *argument)
{
    int *right = argument;
    small_step own;
    ta_device *own_device;
    ta_plan *plan;
    ta_device_config config = TA_DEVICE_CONFIG_INIT;
    config.threads = 2;
    small_step_init(&own, 0, 1);
    for (int i = 0; i < 20; ++i) {
        if (ta_device_open("host", &config, &own_device) != TA_OK)
            return NULL;
        if (ta_plan_create(NULL, own_device, &own.config, &plan) != TA_OK)
            return NULL;
        *right += small_step_decode(&own, plan) == TA_OK && small_step_right(&own);
        ta_plan_destroy(plan);
        ta_device_close(own_device);
    }
    return NULL;
}

static void test_plans_on_different_threads(void)
{
    pthread_t threads[4];
    int right[4] = {0};
    for (int i = 0; i < 4; ++i)
        TEST_ASSERT_EQUAL_INT(0, pthread_create(&threads[i], NULL, decode_alone, &right[i]));
    for (int i = 0; i < 4; ++i)
        pthread_join(threads[i], NULL);
    for (int i = 0; i < 4; ++i)
        TEST_ASSERT_EQUAL_INT(20, right[i]);
}

/* A group of one rank is the same as none. */
static void test_a_group_of_one(void)
{
    ta_group *group;
    ta_plan *plan;
    EXPECT_OK(ta_group_create_threads(1, NULL, &group));
    EXPECT_OK(ta_plan_create(group, device, &step.config, &plan));
    expect_right(plan);
    ta_group_stats stats = TA_GROUP_STATS_INIT;
    EXPECT_OK(ta_group_get_stats(group, &stats));
    TEST_ASSERT_TRUE(stats.messages_sent == 0);
    ta_plan_destroy(plan);
    ta_group_destroy(group);
}

/* Workspaces differ per rank; a rank without one makes its own. */
static ta_status own_workspace_rank(ta_group *group, void *context)
{
    small_step own;
    ta_plan *plan;
    ta_device *own_device;
    size_t bytes;
    int rank = ta_group_rank(group);
    (void)context;
    small_step_init(&own, rank, ta_group_size(group));
    TA_TRY(ta_device_open("host", NULL, &own_device));
    TA_TRY(ta_plan_workspace(group, own_device, &own.config, &bytes));
    char *memory = malloc(bytes + 1000);
    if (rank % 2) {
        own.config.workspace = aligned(memory);
        own.config.workspace_bytes = bytes + (size_t)rank * 64;
    }
    TA_TRY(ta_plan_create(group, own_device, &own.config, &plan));
    TA_TRY(small_step_decode(&own, plan));
    RANK_EXPECT(small_step_right(&own));
    ta_plan_destroy(plan);
    free(memory);
    ta_device_close(own_device);
    return TA_OK;
}

static void test_workspaces_may_differ_between_ranks(void)
{
    EXPECT_OK(ta_group_run_threads(4, NULL, own_workspace_rank, NULL));
}

int main(void)
{
    UNITY_BEGIN();
    EXPECT_OK(ta_device_open("host", NULL, &device));
    RUN_TEST(test_a_plan_decodes_again_and_again);
    RUN_TEST(test_a_device_without_the_dtype);
    RUN_TEST(test_bad_arguments);
    RUN_TEST(test_the_host_has_no_graphs);
    RUN_TEST(test_weights_are_exact_or_rounded);
    RUN_TEST(test_a_workspace_of_the_caller);
    RUN_TEST(test_a_workspace_that_will_not_do);
    RUN_TEST(test_a_huge_workspace);
    RUN_TEST(test_slopes_and_sinks_are_copied);
    RUN_TEST(test_several_plans_on_one_device);
    RUN_TEST(test_plans_on_different_threads);
    RUN_TEST(test_a_group_of_one);
    RUN_TEST(test_workspaces_may_differ_between_ranks);
    ta_device_close(device);
    return UNITY_END() != 0;
}
