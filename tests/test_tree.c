/* One step of tree decode (src/decode/step.c): what it sends, and that its bits depend on nothing
 * but the inputs and the number of ranks. */
#include <math.h>

#include "device/device.h"
#include "group/group.h"
#include "lib/case.h"
#include "lib/ceil_log2.h"
#include "lib/expect.h"
#include "lib/number.h"
#include "lib/options.h"
#include "lib/small_step.h"

void setUp(void)
{
}

void tearDown(void)
{
}

/* A step sends one packed partial per round: with the query everywhere there is nothing else. */
static ta_status count_rank(ta_group *group, void *context)
{
    ta_device *device;
    ta_plan *plan;
    small_step step;
    int ranks = ta_group_size(group), steps = 5;
    uint64_t partial = SMALL_ROWS * (SMALL_V_DIM + 2) * sizeof(float);
    ta_group_stats before = TA_GROUP_STATS_INIT, after = TA_GROUP_STATS_INIT;
    (void)context;
    small_step_init(&step, ta_group_rank(group), ranks);
    TA_TRY(ta_device_open("host", NULL, &device));
    TA_TRY(ta_plan_create(group, device, &step.config, &plan));
    TA_TRY(ta_group_get_stats(group, &before));
    for (int i = 0; i < steps; ++i)
        TA_TRY(small_step_decode(&step, plan));
    TA_TRY(ta_group_get_stats(group, &after));
    uint64_t rounds = (uint64_t)(steps * ceil_log2(ranks));
    uint64_t messages = after.messages_sent - before.messages_sent;
    RANK_EXPECT(messages <= rounds);
    RANK_EXPECT(ranks & (ranks - 1) || messages == rounds);
    RANK_EXPECT(after.bytes_sent - before.bytes_sent <= messages * (partial + 32));
    RANK_EXPECT(after.bytes_sent - before.bytes_sent >= messages * partial);
    RANK_EXPECT(after.messages_received - before.messages_received <= rounds);
    ta_plan_destroy(plan);
    ta_device_close(device);
    return TA_OK;
}

static void test_messages_of_a_step(void)
{
    for (int ranks = 1; ranks <= 16; ++ranks)
        EXPECT_OK(ta_group_run_threads(ranks, NULL, count_rank, NULL));
}

/* A rank without tokens of its own takes part like any other. */
static ta_status empty_rank(ta_group *group, void *context)
{
    ta_device *device;
    ta_plan *plan;
    small_step step;
    ta_group_stats before = TA_GROUP_STATS_INIT, after = TA_GROUP_STATS_INIT;
    (void)context;
    small_step_init(&step, ta_group_rank(group), ta_group_size(group));
    step.lengths[0] = step.lengths[1] = 0;
    step.kv.k.data = step.kv.v.data = NULL;
    TA_TRY(ta_device_open("host", NULL, &device));
    TA_TRY(ta_plan_create(group, device, &step.config, &plan));
    TA_TRY(ta_group_get_stats(group, &before));
    TA_TRY(small_step_decode(&step, plan));
    TA_TRY(ta_group_get_stats(group, &after));
    RANK_EXPECT(after.messages_sent > before.messages_sent);
    for (int i = 0; i < SMALL_ROWS * SMALL_V_DIM; ++i)
        RANK_EXPECT(step.results[i] == 0.0f);
    for (int i = 0; i < SMALL_ROWS; ++i)
        RANK_EXPECT(step.lse[i] == -INFINITY);
    ta_plan_destroy(plan);
    ta_device_close(device);
    return TA_OK;
}

static void test_nothing_but_empty_shards(void)
{
    for (int ranks = 2; ranks <= 8; ++ranks)
        EXPECT_OK(ta_group_run_threads(ranks, NULL, empty_rank, NULL));
}

/* The bits of a larger step, for a number of ranks and threads. */
typedef struct bits {
    const decode_case *c;
    case_data data;
    int threads;
    const char *simd;
    uint32_t out[2 * 3 * 4 * 64];
    uint32_t lse[2 * 3 * 4];
} bits;

static ta_status bits_rank(ta_group *group, void *context)
{
    bits *b = context;
    ta_device *device;
    ta_plan *plan;
    ta_device_config config = TA_DEVICE_CONFIG_INIT;
    case_shard shard;
    config.threads = b->threads;
    config.simd = b->simd;
    case_shard_make(b->c, &b->data, ta_group_rank(group), &shard);
    TA_TRY(ta_device_open("host", &config, &device));
    ta_plan_config plan_config = b->c->plan;
    plan_config.max_tokens = b->data.max_tokens;
    TA_TRY(ta_plan_create(group, device, &plan_config, &plan));
    TA_TRY(ta_decode(plan, &shard.q.tensor, &shard.kv, &shard.out.tensor, shard.lse + CASE_GUARD,
                     NULL, NULL));
    if (ta_group_rank(group) == 0) {
        memcpy(b->out, shard.out.memory, sizeof b->out);
        memcpy(b->lse, shard.lse + CASE_GUARD, sizeof b->lse);
    }
    ta_plan_destroy(plan);
    ta_device_close(device);
    case_shard_free(&shard);
    return TA_OK;
}

static decode_case bits_case(int ranks)
{
    decode_case c = case_plain();
    c.seed = 77;
    c.ranks = ranks;
    c.plan.batch = 2;
    c.plan.query_tokens = 3;
    c.plan.query_heads = 4;
    c.plan.kv_heads = 2;
    c.plan.k_dim = c.plan.v_dim = 64;
    c.plan.map.block = 16;
    c.lengths[0] = 3000;
    c.lengths[1] = 517;
    return c;
}

static void run_bits(bits *b, int ranks, int threads)
{
    b->threads = threads;
    EXPECT_OK(ta_group_run_threads(ranks, NULL, bits_rank, b));
}

static void test_bits_do_not_depend_on_threads_or_runs(void)
{
    static const int rank_counts[] = {1, 2, 3, 5, 8};
    static bits first, other;
    for (int i = 0; i < 5; ++i) {
        decode_case c = bits_case(rank_counts[i]);
        case_data_make(&c, &first.data);
        first.c = other.c = &c;
        other.data = first.data;
        run_bits(&first, c.ranks, 1);
        for (int threads = 1; threads <= 5; ++threads)
            for (int run = 0; run < 2; ++run) {
                run_bits(&other, c.ranks, threads);
                TEST_ASSERT_EQUAL_MEMORY(first.out, other.out, sizeof first.out);
                TEST_ASSERT_EQUAL_MEMORY(first.lse, other.lse, sizeof first.lse);
            }
        case_data_free(&c, &first.data);
    }
}

/* Bits of one sequence do not depend on the others in the batch. */
static void test_bits_do_not_depend_on_the_rest_of_the_batch(void)
{
    static bits both, single;
    decode_case c = bits_case(3), alone = bits_case(3);
    alone.lengths[1] = 0;
    case_data_make(&c, &both.data);
    case_data_make(&alone, &single.data);
    both.c = &c;
    single.c = &alone;
    run_bits(&both, 3, 2);
    run_bits(&single, 3, 2);
    TEST_ASSERT_EQUAL_MEMORY(both.out, single.out, sizeof both.out / 2);
    TEST_ASSERT_EQUAL_MEMORY(both.lse, single.lse, sizeof both.lse / 2);
    case_data_free(&c, &both.data);
    case_data_free(&alone, &single.data);
}

int main(int argc, char **argv)
{
    if (!options_read(argc, argv))
        return 2;
    UNITY_BEGIN();
    RUN_TEST(test_messages_of_a_step);
    RUN_TEST(test_nothing_but_empty_shards);
    RUN_TEST(test_bits_do_not_depend_on_threads_or_runs);
    RUN_TEST(test_bits_do_not_depend_on_the_rest_of_the_batch);
    return UNITY_END() != 0;
}
