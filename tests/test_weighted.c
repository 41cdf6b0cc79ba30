/* Plans with a weighted shard map: weights are copied, compared between ranks and explained, and
 * bad ones are refused. What such plans compute is in the random cases of decode and attention. */
#include <stdlib.h>
#include <string.h>

#include <treeattn/attention.h>
#include <treeattn/cluster.h>

#include "lib/expect.h"
#include "lib/small_step.h"

void setUp(void)
{
}

void tearDown(void)
{
}

/* Turns of one block each are the map that the small step has. */
static ta_status copied_rank(ta_group *group, void *context)
{
    int32_t weights[3] = {1, 1, 1}, bounds[4] = {0, 1, 2, 3};
    ta_device *device;
    ta_plan *plan;
    small_step step;
    char text[4096];
    small_step_init(&step, ta_group_rank(group), ta_group_size(group));
    step.config.map.kind = TA_SHARD_WEIGHTED;
    step.config.map.bounds = weights;
    step.config.algorithm = *(ta_algorithm *)context;
    TA_TRY(ta_device_open("host", NULL, &device));
    TA_TRY(ta_plan_create(group, device, &step.config, &plan));
    memset(weights, 0x7f, sizeof weights); /* the plan has its own */
    TA_TRY(small_step_decode(&step, plan));
    RANK_EXPECT(small_step_right(&step));
    TA_TRY(ta_explain(plan, text, sizeof text, NULL));
    RANK_EXPECT(strstr(text, "shard map: weighted block-cyclic, block 1, weights 1 1 1\n"));
    step.kv.bounds = bounds;
    RANK_EXPECT(small_step_decode(&step, plan) == TA_ERR_INVALID);
    RANK_EXPECT(strstr(ta_last_error(), "kv.bounds is set"));
    ta_plan_destroy(plan);
    ta_device_close(device);
    return TA_OK;
}

static void test_weights_are_copied(void)
{
    for (int algorithm = TA_ALGORITHM_TREE; algorithm <= TA_ALGORITHM_RING_Q; ++algorithm) {
        ta_algorithm chosen = (ta_algorithm)algorithm;
        EXPECT_OK(ta_group_run_threads(3, NULL, copied_rank, &chosen));
    }
}

static ta_attention_config attention_of(const int32_t *weights)
{
    ta_attention_config config = TA_ATTENTION_CONFIG_INIT;
    config.query_heads = 2;
    config.k_dim = 8;
    config.dtype = TA_F32;
    config.max_tokens = 64;
    config.map.kind = TA_SHARD_WEIGHTED;
    config.map.bounds = weights;
    return config;
}

/* All ranks hear on which one which weight differs. */
static ta_status differing_rank(ta_group *group, void *context)
{
    int32_t weights[3] = {2, 0, 1};
    ta_device *device;
    ta_plan *plan = NULL;
    ta_attention *attention = NULL;
    small_step step;
    (void)context;
    small_step_init(&step, ta_group_rank(group), ta_group_size(group));
    step.config.map.kind = TA_SHARD_WEIGHTED;
    step.config.map.bounds = weights;
    weights[1] = ta_group_rank(group) == 2 ? 5 : 0;
    TA_TRY(ta_device_open("host", NULL, &device));
    ta_status status = ta_plan_create(group, device, &step.config, &plan);
    RANK_EXPECT(status == TA_ERR_MISMATCH && !plan);
    RANK_EXPECT(strstr(ta_last_error(), "config.map.bounds[1] is 5 on rank 2 and 0 on rank 0"));
    ta_attention_config config = attention_of(weights);
    status = ta_attention_create(group, device, &config, &attention);
    RANK_EXPECT(status == TA_ERR_MISMATCH && !attention);
    RANK_EXPECT(strstr(ta_last_error(), "config.map.bounds[1] is 5 on rank 2 and 0 on rank 0"));
    ta_device_close(device);
    return TA_OK;
}

static void test_weights_that_differ(void)
{
    EXPECT_OK(ta_group_run_threads(3, NULL, differing_rank, NULL));
}

static void test_bad_weights(void)
{
    int32_t none[1] = {0}, below[1] = {-3};
    ta_device *device;
    ta_plan *plan = NULL;
    ta_attention *attention = NULL;
    small_step step;
    const int32_t *const bad[] = {NULL, none, below};
    static const char *const words[] = {"map.bounds is NULL", "no weight above 0",
                                        "map.bounds[0] is -3"};
    EXPECT_OK(ta_device_open("host", NULL, &device));
    for (int i = 0; i < 3; ++i) {
        small_step_init(&step, 0, 1);
        step.config.map.kind = TA_SHARD_WEIGHTED;
        step.config.map.bounds = bad[i];
        EXPECT_ERROR(TA_ERR_INVALID, ta_plan_create(NULL, device, &step.config, &plan), words[i],
                     NULL);
        ta_attention_config config = attention_of(bad[i]);
        EXPECT_ERROR(TA_ERR_INVALID, ta_attention_create(NULL, device, &config, &attention),
                     words[i], NULL);
    }
    TEST_ASSERT_TRUE(!plan && !attention);
    ta_device_close(device);
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(test_weights_are_copied);
    RUN_TEST(test_weights_that_differ);
    RUN_TEST(test_bad_weights);
    return UNITY_END() != 0;
}
