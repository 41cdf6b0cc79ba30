/* A group that was aborted in mid-step can be replaced: the ranks that are left make a new one and
 * decode rightly, with the sequences divided anew among them. Ranks are threads. */
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include "group/group.h"
#include "lib/expect.h"
#include "lib/patience.h"
#include "lib/small_step.h"

#define RANKS 5
#define LOST 2

static pthread_barrier_t survivors_here;
static ta_group *replacements[RANKS - 1];

void setUp(void)
{
}

void tearDown(void)
{
}

/* Decode until the group breaks; returns what broke it. */
static ta_status decode_until_broken(ta_group *group, ta_device *device, int steps)
{
    small_step step;
    ta_plan *plan = NULL;
    ta_status status = TA_OK;
    small_step_init(&step, ta_group_rank(group), ta_group_size(group));
    TA_TRY(ta_plan_create(group, device, &step.config, &plan));
    for (int i = 0; i < steps && status == TA_OK; ++i) {
        status = small_step_decode(&step, plan);
        if (status == TA_OK && !small_step_right(&step))
            status = ta_fail(TA_ERR_DEVICE, "step %d is wrong", i);
    }
    ta_plan_destroy(plan);
    return status;
}

static ta_status survivor(ta_group *group, ta_device *device)
{
    int rank = ta_group_rank(group);
    ta_status status = decode_until_broken(group, device, 1000000);
    RANK_EXPECT(status == TA_ERR_ABORTED);
    RANK_EXPECT(strstr(ta_last_error(), "rank 2") && strstr(ta_last_error(), "lost its GPU"));
    if (rank == 0)
        status = ta_group_create_threads(RANKS - 1, NULL, replacements);
    pthread_barrier_wait(&survivors_here);
    ta_group *replacement = replacements[rank - (rank > LOST)];
    status = decode_until_broken(replacement, device, 100);
    ta_group_destroy(replacement);
    return status;
}

static ta_status run_rank(ta_group *group, void *context)
{
    ta_device_config config = TA_DEVICE_CONFIG_INIT;
    ta_device *device;
    ta_status status;
    (void)context;
    config.threads = 1;
    TA_TRY(ta_device_open("host", &config, &device));
    if (ta_group_rank(group) == LOST) {
        status = decode_until_broken(group, device, 20);
        ta_group_abort(group, "it lost its GPU");
    } else {
        status = survivor(group, device);
    }
    ta_device_close(device);
    return status;
}

static void test_the_rest_goes_on(void)
{
    ta_group_config config = TA_GROUP_CONFIG_INIT;
    config.timeout_ms = LONG_WAIT_MS;
    for (int round = 0; round < 10; ++round) {
        pthread_barrier_init(&survivors_here, NULL, RANKS - 1);
        EXPECT_OK(ta_group_run_threads(RANKS, &config, run_rank, NULL));
        pthread_barrier_destroy(&survivors_here);
    }
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(test_the_rest_goes_on);
    return UNITY_END() != 0;
}
