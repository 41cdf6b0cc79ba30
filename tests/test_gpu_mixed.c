/* Groups of threads in which some ranks have GPUs and others not: what one of them asks for and
 * another cannot do is an error on all that names it, and the group can be used afterwards. */
#include <treeattn/cluster.h>

#include "lib/expect.h"
#include "lib/simt_device.h"
#include "lib/small_step.h"

/* Who has a GPU, and who asks for the direct exchange: bit r for rank r. */
typedef struct wishes {
    unsigned gpus, direct;
} wishes;

static ta_status wishing_rank(ta_group *group, void *context)
{
    const wishes *w = context;
    int rank = ta_group_rank(group), ranks = ta_group_size(group);
    small_step step;
    ta_plan *plan = NULL;
    ta_device *own;
    char name[20];
    snprintf(name, sizeof name, w->gpus >> rank & 1 ? "simt:%d" : "host", rank);
    TA_TRY(ta_device_open(name, NULL, &own));
    small_step_init(&step, rank, ranks);
    step.config.exchange = w->direct >> rank & 1 ? TA_EXCHANGE_DIRECT : TA_EXCHANGE_AUTO;
    ta_status status = ta_plan_create(group, own, &step.config, &plan);
    RANK_EXPECT(status == TA_ERR_UNSUPPORTED || status == TA_ERR_MISMATCH);
    RANK_EXPECT(strstr(ta_last_error(), "config.exchange"));
    RANK_EXPECT(plan == NULL);
    step.config.exchange = TA_EXCHANGE_AUTO;
    TA_TRY(small_step_to_device(&step, own));
    TA_TRY(small_step_try(&step, group, own));
    small_step_release(&step);
    ta_device_close(own);
    return TA_OK;
}

/* Every division of the ranks in those with GPUs and those without, and every one in those that ask
 * for what the former cannot do and those that do not care. */
static void test_an_exchange_that_some_cannot_do(void)
{
    for (int ranks = 2; ranks <= 3; ++ranks)
        for (unsigned gpus = 1; gpus < (1u << ranks) - 1; ++gpus)
            for (unsigned direct = 1; direct < 1u << ranks; ++direct) {
                wishes w = {gpus, direct};
                char text[64];
                snprintf(text, sizeof text, "%d ranks, GPUs %u, direct %u", ranks, gpus, direct);
                ta_status status = ta_group_run_threads(ranks, NULL, wishing_rank, &w);
                if (status != TA_OK)
                    TEST_MESSAGE(text);
                EXPECT_OK(status);
            }
}

/* On a cluster where the direct exchange costs least, the ranks choose again, and say why. */
static ta_status choosing_rank(ta_group *group, void *context)
{
    int rank = ta_group_rank(group);
    small_step step;
    ta_plan *plan;
    ta_device *own;
    char text[8000];
    TA_TRY(ta_device_open(rank == 1 ? "simt:1" : "host", NULL, &own));
    small_step_init(&step, rank, ta_group_size(group));
    step.config.cluster = context;
    TA_TRY(ta_plan_create(group, own, &step.config, &plan));
    TA_TRY(ta_explain(plan, text, sizeof text, NULL));
    RANK_EXPECT(!strstr(text, "exchange: direct"));
    RANK_EXPECT(rank > 0 || strstr(text, "; not direct: rank 1 has its partials in memory of a"));
    TA_TRY(small_step_to_device(&step, own));
    TA_TRY(small_step_decode(&step, plan));
    RANK_EXPECT(small_step_right(&step));
    ta_plan_destroy(plan);
    small_step_release(&step);
    ta_device_close(own);
    return TA_OK;
}

static void test_the_next_best_exchange(void)
{
    ta_cluster *cluster;
    EXPECT_OK(ta_cluster_create("local:1x4", &cluster));
    EXPECT_OK(ta_group_run_threads(4, NULL, choosing_rank, cluster));
    ta_cluster_destroy(cluster);
}

/* What is hashed on the host and what is hashed on a GPU is the same: bounds, starts and lists that
 * are equal are equal, wherever they are. */
static ta_status comparing_rank(ta_group *group, void *context)
{
    const int32_t bounds[SMALL_BATCH][3] = {{0, 4, SMALL_TOKENS}, {0, 2, 3}};
    int rank = ta_group_rank(group), gpu = *(const int *)context;
    small_step step;
    ta_plan *plan;
    ta_device *own;
    TA_TRY(ta_device_open(rank == gpu ? "simt" : "host", NULL, &own));
    small_step_init(&step, rank, ta_group_size(group));
    step.config.map.kind = TA_SHARD_CONTIGUOUS;
    step.config.map.block = 0;
    memcpy(step.bounds, bounds, sizeof bounds);
    step.kv.bounds = step.bounds;
    step.kv.bounds_stride = 3;
    TA_TRY(small_step_to_device(&step, own));
    step.starts[2] = 3;
    small_step_ragged(&step, step.starts[2]);
    for (int i = 0; i < 12; ++i) /* behind the bounds: of each of the three rows */
        step.bounds[6 + i] = i % 4 < 3 ? i % 4 : -1;
    step.call.selected = step.kv.bounds + 6;
    step.call.selected_count = 4;
    TA_TRY(ta_plan_create(group, own, &step.config, &plan));
    TA_TRY(small_step_decode(&step, plan));
    RANK_EXPECT(!small_step_untouched(&step));
    step.bounds[4] -= rank == 1;
    TA_TRY(rank_expect_error(TA_ERR_MISMATCH, small_step_decode(&step, plan),
                             "ranks 0 and 1 differ in this step, in kv.bounds:", ""));
    step.bounds[4] = bounds[1][1];
    step.starts[1] -= rank == 1;
    TA_TRY(rank_expect_error(TA_ERR_MISMATCH, small_step_decode(&step, plan),
                             "ranks 0 and 1 differ in this step, in call.starts:", ""));
    step.starts[1] = SMALL_QUERY_TOKENS;
    step.bounds[6] = rank == 1 ? -1 : 0;
    TA_TRY(rank_expect_error(TA_ERR_MISMATCH, small_step_decode(&step, plan),
                             "ranks 0 and 1 differ in this step", "call.selected"));
    ta_plan_destroy(plan);
    small_step_release(&step);
    ta_device_close(own);
    return TA_OK;
}

static void test_tables_on_the_host_and_on_a_device(void)
{
    for (int gpu = 0; gpu < 2; ++gpu)
        EXPECT_OK(ta_group_run_threads(2, NULL, comparing_rank, &gpu));
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(test_an_exchange_that_some_cannot_do);
    RUN_TEST(test_the_next_best_exchange);
    RUN_TEST(test_tables_on_the_host_and_on_a_device);
    return UNITY_END() != 0;
}
