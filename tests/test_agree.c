/* Ranks whose plans differ (src/decode/agree.c): for every field of the config, all
 * ranks get an error that names the field and the rank, no plan is left, and the group still
 * works. */

#include "base/status.h"
#include "decode/plan.h"
#include "group/group.h"
#include "lib/differing_plan.h"
#include "lib/expect.h"
#include "lib/run_and_meet.h"
#include "lib/small_step.h"

#define RANKS 3

void setUp(void)
{
}

void tearDown(void)
{
}

static void test_each_field(void)
{
    for (int i = 0; i < differing_plans(); ++i)
        EXPECT_OK(ta_group_run_threads(RANKS, NULL, differing_plan_rank, &i));
}

/* Roots differ: both configs are right by themselves. */
static ta_status root_rank(ta_group *group, void *context)
{
    int out = *(int *)context;
    ta_device *device;
    ta_plan *plan = NULL;
    small_step step;
    small_step_init(&step, ta_group_rank(group), ta_group_size(group));
    *(out ? &step.config.out_placement : &step.config.query_placement) = TA_PLACE_ROOT;
    if (ta_group_rank(group) == 1)
        *(out ? &step.config.out_root : &step.config.query_root) = 2;
    TA_TRY(ta_device_open("host", NULL, &device));
    ta_status status = ta_plan_create(group, device, &step.config, &plan);
    RANK_EXPECT(status == TA_ERR_MISMATCH && plan == NULL);
    RANK_EXPECT(strstr(ta_last_error(), out ? "config.out_root is 2" : "config.query_root is 2"));
    ta_device_close(device);
    return TA_OK;
}

static void test_roots(void)
{
    for (int out = 0; out < 2; ++out)
        EXPECT_OK(ta_group_run_threads(RANKS, NULL, root_rank, &out));
}

/* One rank's own arguments are wrong: it says so itself, the others name it and repeat why. */
static ta_status invalid_rank(ta_group *group, void *context)
{
    int bad = *(int *)context, rank = ta_group_rank(group);
    ta_device *device;
    ta_plan *plan = NULL;
    small_step step;
    char named[20];
    small_step_init(&step, rank, ta_group_size(group));
    ta_plan_config config = step.config;
    TA_TRY(ta_device_open("host", NULL, &device));
    if (rank == bad)
        config.k_dim = 12;
    ta_status status = ta_plan_create(group, device, &config, &plan);
    RANK_EXPECT(plan == NULL);
    RANK_EXPECT(status == (rank == bad ? TA_ERR_INVALID : TA_ERR_MISMATCH));
    RANK_EXPECT(strstr(ta_last_error(), "config.k_dim is 12"));
    snprintf(named, sizeof named, "rank %d", bad);
    RANK_EXPECT(rank == bad || strstr(ta_last_error(), named));
    status = ta_plan_create(group, rank == bad ? NULL : device, &step.config, &plan);
    RANK_EXPECT(status == (rank == bad ? TA_ERR_INVALID : TA_ERR_MISMATCH));
    RANK_EXPECT(strstr(ta_last_error(), "device is NULL"));
    status = ta_plan_create(group, device, rank == bad ? NULL : &step.config, &plan);
    RANK_EXPECT(status == (rank == bad ? TA_ERR_INVALID : TA_ERR_MISMATCH));
    status = ta_plan_create(group, device, &step.config, rank == bad ? NULL : &plan);
    RANK_EXPECT(status == (rank == bad ? TA_ERR_INVALID : TA_ERR_MISMATCH) && plan == NULL);
    TA_TRY(small_step_try(&step, group, device));
    ta_device_close(device);
    return TA_OK;
}

static void test_bad_arguments_on_one_rank(void)
{
    for (int ranks = 2; ranks <= 5; ++ranks)
        for (int bad = 0; bad < ranks; ++bad)
            EXPECT_OK(ta_group_run_threads(ranks, NULL, invalid_rank, &bad));
}

/* A rank without memory for a plan takes part in the agreement: it has none to compare. */
static ta_status without_plan(ta_group *group, void *context)
{
    int bad = *(int *)context, rank = ta_group_rank(group);
    ta_device *device;
    ta_plan *plan = NULL;
    small_step step;
    ta_choice none = {0};
    small_step_init(&step, rank, ta_group_size(group));
    TA_TRY(ta_device_open("host", NULL, &device));
    ta_status status = TA_OK;
    if (rank == bad) { /* as ta_plan_create() does then */
        status = ta_planner_follow(group, &none, ta_fail(TA_ERR_NO_MEMORY, "none left"));
        status = ta_plan_agree(group, NULL, &step.config, status);
    } else {
        status = ta_plan_create(group, device, &step.config, &plan);
    }
    RANK_EXPECT(status == (rank == bad ? TA_ERR_NO_MEMORY : TA_ERR_MISMATCH) && !plan);
    RANK_EXPECT(strstr(ta_last_error(), "none left"));
    ta_device_close(device);
    return TA_OK;
}

static void test_a_rank_without_memory(void)
{
    for (int bad = 0; bad < RANKS; ++bad)
        EXPECT_OK(ta_group_run_threads(RANKS, NULL, without_plan, &bad));
}

/* A rank that never makes its plan: the others wait no longer than the timeout, and name it. */
static ta_status missing_rank(ta_group *group, void *barrier)
{
    ta_device *device;
    ta_plan *plan = NULL;
    small_step step;
    if (ta_group_rank(group) == 1)
        return TA_OK;
    small_step_init(&step, ta_group_rank(group), ta_group_size(group));
    TA_TRY(ta_device_open("host", NULL, &device));
    pthread_barrier_wait(barrier); /* the others come together */
    ta_status status = ta_plan_create(group, device, &step.config, &plan);
    RANK_EXPECT(status == TA_ERR_TIMEOUT && plan == NULL);
    RANK_EXPECT(strstr(ta_last_error(), "rank 1 did not arrive"));
    ta_device_close(device);
    return TA_OK;
}

static void test_a_rank_that_makes_no_plan(void)
{
    EXPECT_OK(run_and_meet(RANKS, RANKS - 1, 1000, missing_rank));
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(test_each_field);
    RUN_TEST(test_roots);
    RUN_TEST(test_bad_arguments_on_one_rank);
    RUN_TEST(test_a_rank_without_memory);
    RUN_TEST(test_a_rank_that_makes_no_plan);
    return UNITY_END() != 0;
}
