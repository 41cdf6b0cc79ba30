/* Bad input in every field of a plan config (src/decode/config.c): the error names the field and
 * its value, no plan is made, and no output is touched. */
#include "decode/config.h"

#include <math.h>

#include "lib/expect.h"
#include "lib/plan_config.h"
#include "lib/small_step.h"

static ta_device *device;
static const float plan_sinks[6];
static small_step step;

void setUp(void)
{
    small_step_init(&step, 0, 1);
}

void tearDown(void)
{
}

/* The config of `step` is refused by both functions that take one. */
static void expect_refused(const char *first, const char *second)
{
    ta_plan *plan = (ta_plan *)&plan;
    size_t bytes = 12345;
    EXPECT_ERROR(TA_ERR_INVALID, ta_plan_create(NULL, device, &step.config, &plan), first, second);
    EXPECT_ERROR(TA_ERR_INVALID, ta_plan_workspace(NULL, device, &step.config, &bytes), first,
                 second);
    TEST_ASSERT_EQUAL_PTR(&plan, plan);
    TEST_ASSERT_EQUAL_size_t(12345, bytes);
    small_step_init(&step, 0, 1);
}

static void expect_accepted(void)
{
    ta_plan *plan;
    EXPECT_OK(ta_plan_create(NULL, device, &step.config, &plan));
    ta_plan_destroy(plan);
    small_step_init(&step, 0, 1);
}

/* `config.FIELD = value` is refused; the message says what it is. */
#define REFUSE(field, value, said)                                                                 \
    do {                                                                                           \
        step.config.field = (value);                                                               \
        expect_refused("config." #field, (said));                                                  \
    } while (0)

static void test_counts(void)
{
    REFUSE(batch, 0, "is 0");
    REFUSE(batch, -1, "is -1");
    REFUSE(batch, INT32_MIN, "is -2147483648");
    REFUSE(batch, INT32_MAX, "is 2147483647");
    REFUSE(query_tokens, -1, "is -1");
    REFUSE(query_tokens, 1025, "is 1025");
    REFUSE(query_tokens, INT32_MAX, "is 2147483647");
    REFUSE(max_call_tokens, -1, "is -1");
    REFUSE(max_call_tokens, SMALL_BATCH * SMALL_QUERY_TOKENS + 1, "from 0 to 4");
    REFUSE(query_heads, 0, "is 0");
    REFUSE(query_heads, -4, "is -4");
    REFUSE(query_heads, INT32_MAX, "is 2147483647");
    REFUSE(kv_heads, -1, "is -1");
    REFUSE(kv_heads, 5, "is 5");
    REFUSE(kv_heads, INT32_MIN, "is -2147483648");
    REFUSE(max_tokens, 0, "is 0");
    REFUSE(max_tokens, -1, "is -1");
    REFUSE(max_tokens, INT32_MAX, "is 2147483647");
}

static void test_heads_that_do_not_divide(void)
{
    step.config.kv_heads = 3;
    expect_refused("config.query_heads is 4", "config.kv_heads, 3");
}

static void test_dimensions(void)
{
    REFUSE(k_dim, 0, "is 0");
    REFUSE(k_dim, -8, "is -8");
    REFUSE(k_dim, 7, "is 7");
    REFUSE(k_dim, 12, "is 12");
    REFUSE(k_dim, 584, "is 584");
    REFUSE(k_dim, INT32_MAX, "is 2147483647");
    REFUSE(v_dim, -8, "is -8");
    REFUSE(v_dim, 4, "is 4");
    REFUSE(v_dim, 577, "is 577");
    REFUSE(v_dim, INT32_MIN, "is -2147483648");
}

static void test_dtypes(void)
{
    REFUSE(kv_dtype, TA_DTYPE_NONE, "is 0");
    REFUSE(kv_dtype, (ta_dtype)TA_DTYPE_END, "must be TA_F32, TA_F16");
    REFUSE(kv_dtype, (ta_dtype)-1, "is -1");
    REFUSE(query_dtype, (ta_dtype)TA_DTYPE_END, "must be TA_F32, TA_F16");
    REFUSE(query_dtype, (ta_dtype)-1, "is -1");
    REFUSE(out_dtype, (ta_dtype)100, "is 100");
    REFUSE(out_dtype, (ta_dtype)-1, "is -1");
}

static void test_map(void)
{
    static const int32_t bounds[] = {0, 5};
    step.config.map.size = 0;
    expect_refused("map.size is 0", "TA_SHARD_MAP_INIT");
    step.config.map.kind = (ta_shard_kind)2;
    expect_refused("map.kind is 2", NULL);
    step.config.map.kind = (ta_shard_kind)-1;
    expect_refused("map.kind is -1", NULL);
    step.config.map.ranks = 2;
    expect_refused("map.ranks is 2", "1");
    step.config.map.ranks = -1;
    expect_refused("map.ranks is -1", NULL);
    step.config.map.block = -1;
    expect_refused("map.block is -1", NULL);
    step.config.map.bounds = bounds;
    expect_refused("map.bounds", "kv.bounds");
}

static void test_scores(void)
{
    static const float bad[] = {0.5f, NAN, 0.25f, 0.25f}, huge[] = {0, 0, 0, INFINITY};
    REFUSE(mask, (ta_mask)2, "is 2");
    REFUSE(mask, (ta_mask)-1, "is -1");
    REFUSE(window, -1, "is -1");
    REFUSE(scale, NAN, "nan");
    REFUSE(scale, INFINITY, "inf");
    REFUSE(softcap, -1.0f, "is -1");
    REFUSE(softcap, NAN, "nan");
    REFUSE(softcap, INFINITY, "inf");
    REFUSE(alibi_slopes, bad, "[1] is nan");
    REFUSE(alibi_slopes, huge, "[3] is inf");
    REFUSE(sinks, bad, "[1] is nan");
    REFUSE(sinks, huge, "[3] is inf");
}

static void test_placements(void)
{
    REFUSE(query_placement, (ta_placement)3, "is 3");
    REFUSE(query_placement, (ta_placement)-1, "is -1");
    REFUSE(out_placement, (ta_placement)3, "is 3");
    REFUSE(query_root, 1, "is 1"); /* nothing has a root here: it would be ignored */
    REFUSE(out_root, -1, "is -1");
    step.config.query_placement = TA_PLACE_ROOT;
    REFUSE(query_root, 1, "is 1");
    step.config.out_placement = TA_PLACE_ROOT;
    REFUSE(out_root, -1, "is -1");
}

static void test_algorithm(void)
{
    REFUSE(algorithm, (ta_algorithm)99, "is 99");
    REFUSE(algorithm, (ta_algorithm)-1, "is -1");
}

static void test_edges_that_are_right(void)
{
    step.config.query_tokens = 1024;
    expect_accepted();
    step.config.k_dim = 576;
    step.config.v_dim = 512;
    expect_accepted();
    step.config.k_dim = step.config.v_dim = 8;
    expect_accepted();
    step.config.scale = -0.5f;
    expect_accepted();
    step.config.window = INT32_MAX;
    expect_accepted();
    step.config.map.block = INT32_MAX;
    expect_accepted();
    step.config.max_tokens = 1 << 30;
    expect_accepted();
    step.config.map = (ta_shard_map)TA_SHARD_MAP_INIT;
    expect_accepted();
}

/* A plan that only combines has rows of so many heads and nothing to attend to. */
static ta_plan_config bf16_combine(void)
{
    ta_plan_config config = combine_config(3, 6, 64);
    config.query_dtype = TA_BF16;
    return config;
}

#define REFUSE_COMBINE(field, value, said)                                                         \
    do {                                                                                           \
        step.config = bf16_combine();                                                              \
        step.config.field = (value);                                                               \
        expect_refused("config." #field, (said));                                                  \
    } while (0)

static void test_combine_only(void)
{
    const float sinks[] = {0, 0, 0, 0, 0, INFINITY};
    ta_problem p;
    REFUSE_COMBINE(batch, 0, "is 0");
    REFUSE_COMBINE(query_heads, 0, "is 0");
    REFUSE_COMBINE(query_heads, 65537, "is 65537");
    REFUSE_COMBINE(v_dim, 0, "is 0");
    REFUSE_COMBINE(v_dim, 584, "is 584");
    REFUSE_COMBINE(query_dtype, TA_DTYPE_NONE, "is 0");
    REFUSE_COMBINE(out_dtype, (ta_dtype)-1, "is -1");
    REFUSE_COMBINE(map.ranks, 2, "is 2");
    step.config = bf16_combine();
    step.config.sinks = sinks;
    expect_refused("config.sinks[5] is inf", "finite");
    step.config = bf16_combine();
    EXPECT_OK(ta_config_resolve(&step.config, 2, 5, &p));
    TEST_ASSERT_EQUAL_INT64(3, p.rows);
    TEST_ASSERT_EQUAL_INT32(6, p.query_heads);
    TEST_ASSERT_EQUAL_INT32(64, p.v_dim);
    TEST_ASSERT_EQUAL_INT(TA_BF16, p.query_dtype);
    TEST_ASSERT_EQUAL_INT(TA_BF16, p.out_dtype);
    TEST_ASSERT_EQUAL_INT32(0, p.kv_heads);
    TEST_ASSERT_EQUAL_INT32(5, p.shard.ranks);
    TEST_ASSERT_EQUAL_INT32(2, p.shard.rank);
    TEST_ASSERT_NULL(p.sinks);
    step.config.out_dtype = TA_F32;
    step.config.sinks = plan_sinks;
    EXPECT_OK(ta_config_resolve(&step.config, 0, 1, &p));
    TEST_ASSERT_EQUAL_INT(TA_F32, p.out_dtype);
    TEST_ASSERT_EQUAL_PTR(plan_sinks, p.sinks);
}

static void test_defaults(void)
{
    ta_problem p;
    ta_plan_config config = plan_config(TA_BF16, 3, 6, 64, 100);
    config.map.kind = TA_SHARD_BLOCK_CYCLIC;
    EXPECT_OK(ta_config_resolve(&config, 2, 5, &p));
    TEST_ASSERT_EQUAL_INT32(1, p.query_tokens);
    TEST_ASSERT_EQUAL_INT32(6, p.kv_heads);
    TEST_ASSERT_EQUAL_INT32(64, p.v_dim);
    TEST_ASSERT_EQUAL_INT(TA_BF16, p.query_dtype);
    TEST_ASSERT_EQUAL_INT(TA_BF16, p.out_dtype);
    TEST_ASSERT_EQUAL_INT32(1, p.causal);
    TEST_ASSERT_EQUAL_INT32(0, p.window);
    TEST_ASSERT_TRUE(p.scale == 0.125f);
    TEST_ASSERT_TRUE(p.softcap == 0.0f);
    TEST_ASSERT_EQUAL_INT32(5, p.shard.ranks);
    TEST_ASSERT_EQUAL_INT32(2, p.shard.rank);
    TEST_ASSERT_EQUAL_INT32(64, p.shard.block);
    config.query_dtype = TA_F16;
    EXPECT_OK(ta_config_resolve(&config, 2, 5, &p));
    TEST_ASSERT_EQUAL_INT(TA_F16, p.out_dtype);
}

int main(void)
{
    UNITY_BEGIN();
    EXPECT_OK(ta_device_open("host", NULL, &device));
    RUN_TEST(test_counts);
    RUN_TEST(test_heads_that_do_not_divide);
    RUN_TEST(test_dimensions);
    RUN_TEST(test_dtypes);
    RUN_TEST(test_map);
    RUN_TEST(test_scores);
    RUN_TEST(test_placements);
    RUN_TEST(test_algorithm);
    RUN_TEST(test_edges_that_are_right);
    RUN_TEST(test_combine_only);
    RUN_TEST(test_defaults);
    ta_device_close(device);
    return UNITY_END() != 0;
}
