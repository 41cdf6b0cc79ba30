/* What users of comparable libraries ran into, each as a named test. The cases below are checked
 * like all decode cases: against the oracle, with poison in everything that must not be read or
 * written.
 *
 *         pitfall                              test
 *     1   empty shards and rows                here; test_decode_small, test_tree
 *     2   log base                             here; test_energy
 *     3   NaN beyond the length                here; every case of test_decode
 *     4   interleaved shards, query tokens     here; test_shard (visible ranges)
 *     5   heads and ranks that do not divide   here; test_exchange
 *     6   options silently ignored             here; test_config, test_agree, test_explain
 *     7   sinks counted once per rank          here
 *     8   memory that grows in a step          test_allocation
 *     9   half-precision partials on the wire  here; test_bound (weights), test_tree (bytes)
 *     10  determinism                          test_tree, test_exchange; all cases decode twice
 *     11  waiting forever                      test_group_threads, test_agree, test_api
 *     15  dialects of 8 bits                   test_narrow, test_dtype
 *     17  loose tolerances                     test_bound
 *     18  bad input                            test_config, test_plan, test_tensor, test_api,
 *                                              test_shard, test_device
 *
 * The others have no place on the host device: 12 (collective libraries), 14 (wave width), and
 * captured graphs in 8, belong to the GPU modules; 13 (small work, where
 * sharding loses) to the choice between algorithms; 16 (misleading benchmarks) to bench/. */
#include <math.h>
#include <stdlib.h>

#include "lib/case.h"
#include "lib/expect.h"
#include "lib/expect_case.h"
#include "lib/options.h"
#include "lib/small_step.h"

static bound_worst worst;

void setUp(void)
{
}

void tearDown(void)
{
}

static void run(decode_case c)
{
    expect_case(&c, &worst);
}

static decode_case usual(int ranks, int tokens)
{
    decode_case c = case_grouped(32, tokens);
    c.seed = 9;
    c.ranks = ranks;
    return c;
}

static void test_1_a_zero_length_sequence_in_the_middle_of_a_batch(void)
{
    for (int ranks = 1; ranks <= 8; ++ranks) {
        decode_case c = usual(ranks, 20);
        c.plan.batch = 3;
        c.lengths[1] = 0;
        c.lengths[2] = 11;
        run(c);
    }
}

static void test_1_ranks_that_hold_nothing(void)
{
    decode_case c = usual(8, 3);
    run(c);
    c.plan.map.kind = TA_SHARD_CONTIGUOUS;
    c.plan.map.block = 100; /* all of it on rank 0 */
    run(c);
    c.plan.out_placement = TA_PLACE_HEADS;
    c.plan.query_placement = TA_PLACE_HEADS;
    run(c);
}

static void test_1_rows_that_see_no_key_of_a_rank(void)
{
    decode_case c = usual(5, 40);
    c.plan.map.kind = TA_SHARD_CONTIGUOUS;
    c.plan.map.block = 8;
    c.plan.window = 3; /* only the last rank has visible keys */
    run(c);
    c = usual(3, 2);
    c.plan.query_tokens = 5; /* three rows stand before the sequence */
    run(c);
    c.sinks = true;
    run(c);
}

/* N keys with equal scores: the lse is the natural logarithm of N times e^score. */
static void test_2_lse_is_a_natural_logarithm(void)
{
    small_step step;
    ta_device *device;
    ta_plan *plan;
    small_step_init(&step, 0, 1);
    memset(step.query, 0, sizeof step.query);
    EXPECT_OK(ta_device_open("host", NULL, &device));
    EXPECT_OK(ta_plan_create(NULL, device, &step.config, &plan));
    EXPECT_OK(small_step_decode(&step, plan));
    for (int h = 0; h < SMALL_HEADS; ++h) {
        float lse = step.lse[SMALL_HEADS + h]; /* the last token of the first sequence */
        TEST_ASSERT_TRUE(fabs((double)lse - log(SMALL_TOKENS)) < 8 * 0x1p-24);
    }
    ta_plan_destroy(plan);
    ta_device_close(device);
}

static void test_3_nothing_beyond_the_length_is_read(void)
{
    for (int paged = 0; paged < 2; ++paged) {
        decode_case c = usual(3, 37);
        c.plan.kv_dtype = TA_BF16;
        c.spare_tokens = 70; /* whole tiles of poison */
        c.paged = paged;
        c.page_tokens = 16;
        c.spare_pages = 3;
        c.k.strides_given = c.v.strides_given = true;
        c.k.pad_head = c.v.pad_token = 8;
        run(c);
    }
}

static void test_4_interleaved_shards_with_several_query_tokens(void)
{
    for (int block = 1; block <= 4; ++block) {
        decode_case c = usual(3, 29);
        c.plan.map.block = block;
        c.plan.query_tokens = 11;
        run(c);
        c.plan.window = 4;
        c.alibi = true;
        run(c);
    }
}

static void test_5_heads_and_ranks_that_do_not_divide(void)
{
    static const int heads[] = {1, 3, 7, 13};
    for (int i = 0; i < 4; ++i)
        for (int ranks = 2; ranks <= 8; ranks += 3) {
            decode_case c = usual(ranks, 10);
            c.plan.query_heads = heads[i];
            c.plan.kv_heads = 1;
            c.plan.query_placement = c.plan.out_placement = TA_PLACE_HEADS;
            run(c);
        }
}

/* Each option is honoured: alone it gives what the oracle says, which differs from no option. */
static void test_6_each_option_has_its_effect(void)
{
    decode_case c = usual(3, 25);
    c.query_deviation = 6;
    run(c);
    decode_case with = c;
    with.plan.window = 5;
    run(with);
    with = c;
    with.plan.softcap = 1.5f;
    run(with);
    with = c;
    with.plan.scale = 0.7f;
    run(with);
    with = c;
    with.alibi = true;
    run(with);
    with = c;
    with.sinks = true;
    run(with);
    with = c;
    with.plan.query_tokens = 4;
    with.plan.mask = TA_MASK_FULL;
    run(with);
}

static void test_6_options_that_mean_nothing_are_refused(void)
{
    small_step step;
    ta_device *device;
    ta_plan *plan = NULL;
    static const int32_t bounds[] = {0, 7};
    small_step_init(&step, 0, 1);
    EXPECT_OK(ta_device_open("host", NULL, &device));
    step.config.query_root = 1;
    EXPECT_ERROR(TA_ERR_INVALID, ta_plan_create(NULL, device, &step.config, &plan), "query_root",
                 NULL);
    small_step_init(&step, 0, 1);
    EXPECT_OK(ta_plan_create(NULL, device, &step.config, &plan));
    step.kv.bounds = bounds; /* the map is block-cyclic */
    EXPECT_ERROR(TA_ERR_INVALID, small_step_decode(&step, plan), "kv.bounds", NULL);
    step.kv.bounds = NULL;
    EXPECT_ERROR(TA_ERR_INVALID,
                 ta_decode(plan, &step.q, &step.kv, &step.out, step.lse, NULL, &step), "stream",
                 NULL);
    ta_plan_destroy(plan);
    ta_device_close(device);
}

static void test_7_a_sink_counts_once(void)
{
    for (int ranks = 1; ranks <= 8; ++ranks)
        for (int placement = TA_PLACE_ALL; placement <= TA_PLACE_HEADS; ++placement) {
            decode_case c = usual(ranks, 6);
            c.sinks = true;
            c.plan.out_placement = (ta_placement)placement;
            run(c);
        }
}

/* Half-precision inputs and an f32 output: the error must not grow with the ranks. */
static void test_9_partials_travel_in_full_precision(void)
{
    for (int ranks = 1; ranks <= 16; ranks *= 2) {
        decode_case c = usual(ranks, 200);
        c.plan.kv_dtype = TA_BF16;
        c.plan.out_dtype = TA_F32;
        run(c);
    }
}

/* Scores far apart: a shard whose weights all vanish beside another's, and equal ones. */
static void test_scores_far_apart(void)
{
    decode_case c = usual(5, 50);
    c.plan.scale = 20.0f;
    c.query_deviation = 4;
    run(c);
    c.plan.scale = 1e-30f;
    run(c);
    c.plan.scale = -20.0f;
    run(c);
}

/* Keys or queries too small for instructions that take subnormal numbers for 0, beside others so
 * large that they count. */
static void test_subnormal_numbers_count(void)
{
    if (!options_host())
        return;
    for (int i = 0; i < 4; ++i) {
        decode_case c = usual(2, 90);
        c.plan.query_heads = i % 2 ? 8 : 2;
        c.plan.query_dtype = c.plan.kv_dtype = TA_BF16;
        c.plan.scale = 0x1p8f;
        c.query_deviation = i < 2 ? 0x1p-127 : 0x1p116;
        c.key_deviation = i < 2 ? 0x1p116 : 0x1p-127;
        run(c);
    }
}

static void test_a_nan_or_infinity_stays_in_its_row(void)
{
    for (int special = CASE_NAN_QUERY; special <= CASE_INFINITE_VALUE; ++special)
        for (int seed = 0; seed < 10; ++seed) {
            decode_case c = usual(3, 33);
            c.seed = (uint64_t)seed;
            c.plan.query_tokens = 6;
            c.plan.batch = 2;
            c.lengths[1] = 21;
            c.special = (case_special)special;
            run(c);
            c.plan.softcap = 5.0f;
            run(c);
        }
}

int main(int argc, char **argv)
{
    if (!options_read(argc, argv))
        return 2;
    UNITY_BEGIN();
    RUN_TEST(test_1_a_zero_length_sequence_in_the_middle_of_a_batch);
    RUN_TEST(test_1_ranks_that_hold_nothing);
    RUN_TEST(test_1_rows_that_see_no_key_of_a_rank);
    RUN_TEST(test_2_lse_is_a_natural_logarithm);
    RUN_TEST(test_3_nothing_beyond_the_length_is_read);
    RUN_TEST(test_4_interleaved_shards_with_several_query_tokens);
    RUN_TEST(test_5_heads_and_ranks_that_do_not_divide);
    RUN_TEST(test_6_each_option_has_its_effect);
    RUN_TEST(test_6_options_that_mean_nothing_are_refused);
    RUN_TEST(test_7_a_sink_counts_once);
    RUN_TEST(test_9_partials_travel_in_full_precision);
    RUN_TEST(test_scores_far_apart);
    RUN_TEST(test_subnormal_numbers_count);
    RUN_TEST(test_a_nan_or_infinity_stays_in_its_row);
    return UNITY_END() != 0;
}
