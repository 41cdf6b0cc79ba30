/* Ranks whose plans differ (src/agree.c): for every field of the config, all ranks get an error
 * that names the field and the rank, no plan is left, and the group still works. */
#include "expect.h"
#include "group.h"
#include "small_step.h"

#define RANKS 3

void setUp(void)
{
}

void tearDown(void)
{
}

/* How one rank's config differs, and what every rank must say. */
typedef struct difference {
    const char *field;
    int rank; /* the one that differs */
    void (*spoil)(ta_plan_config *config);
} difference;

/* As many as the largest head count below. */
static const float slopes[8] = {0.5f, 0.25f}, other_slopes[8] = {0.5f, 0.25f, 0, 2};

#define SPOIL(name, change)                                                                        \
    static void spoil_##name(ta_plan_config *config)                                               \
    {                                                                                              \
        change;                                                                                    \
    }
SPOIL(batch, config->batch = 1)
SPOIL(query_tokens, config->query_tokens = 3)
SPOIL(query_heads, config->query_heads = 8)
SPOIL(kv_heads, config->kv_heads = 4)
SPOIL(k_dim, config->k_dim = 24)
SPOIL(v_dim, config->v_dim = 16)
SPOIL(kv_dtype, config->kv_dtype = TA_F16; config->query_dtype = TA_F32)
SPOIL(query_dtype, config->query_dtype = TA_BF16; config->out_dtype = TA_F32)
SPOIL(out_dtype, config->out_dtype = TA_F16)
SPOIL(max_tokens, config->max_tokens = 8)
SPOIL(map_kind, config->map.kind = TA_SHARD_CONTIGUOUS)
SPOIL(map_block, config->map.block = 2)
SPOIL(mask, config->mask = TA_MASK_FULL)
SPOIL(window, config->window = 5)
SPOIL(scale, config->scale = 0.25000003f)
SPOIL(softcap, config->softcap = 30)
SPOIL(alibi_slopes, config->alibi_slopes = other_slopes)
SPOIL(no_alibi_slopes, config->alibi_slopes = NULL)
SPOIL(sinks, config->sinks = slopes)
SPOIL(no_sinks, config->sinks = NULL)
SPOIL(query_placement, config->query_placement = TA_PLACE_HEADS)
SPOIL(out_placement, config->out_placement = TA_PLACE_HEADS)

static const difference differences[] = {
    {"config.batch", 1, spoil_batch},
    {"config.query_tokens", 2, spoil_query_tokens},
    {"config.query_heads", 1, spoil_query_heads},
    {"config.kv_heads", 2, spoil_kv_heads},
    {"config.k_dim", 1, spoil_k_dim},
    {"config.v_dim", 2, spoil_v_dim},
    {"config.kv_dtype", 1, spoil_kv_dtype},
    {"config.query_dtype", 2, spoil_query_dtype},
    {"config.out_dtype", 1, spoil_out_dtype},
    {"config.max_tokens", 2, spoil_max_tokens},
    {"config.map.kind", 1, spoil_map_kind},
    {"config.map.block", 2, spoil_map_block},
    {"config.mask", 1, spoil_mask},
    {"config.window", 2, spoil_window},
    {"config.scale", 1, spoil_scale},
    {"config.softcap", 2, spoil_softcap},
    {"config.alibi_slopes", 1, spoil_alibi_slopes},
    {"config.alibi_slopes", 2, spoil_no_alibi_slopes},
    {"config.sinks", 2, spoil_sinks},
    {"config.sinks", 1, spoil_no_sinks},
    {"config.query_placement", 1, spoil_query_placement},
    {"config.out_placement", 2, spoil_out_placement},
    /* Rank 0 differs from all others: still an error everywhere, named after the first other. */
    {"config.window", 0, spoil_window},
};

/* The whole life of a rank: the plans differ, then they agree and a step is right. */
static ta_status differing_rank(ta_group *group, void *context)
{
    const difference *d = context;
    ta_device *device;
    ta_plan *plan = (ta_plan *)&plan, *untouched = plan;
    small_step step;
    char named[20];
    small_step_init(&step, ta_group_rank(group), ta_group_size(group));
    ta_plan_config config = step.config;
    config.alibi_slopes = slopes;
    config.sinks = other_slopes;
    if (ta_group_rank(group) == d->rank)
        d->spoil(&config);
    TA_TRY(ta_device_open("host", NULL, &device));
    ta_status status = ta_plan_create(group, device, &config, &plan);
    RANK_EXPECT(status == TA_ERR_MISMATCH);
    RANK_EXPECT(plan == untouched);
    RANK_EXPECT(strstr(ta_last_error(), d->field));
    snprintf(named, sizeof named, "rank %d", d->rank ? d->rank : 1);
    RANK_EXPECT(strstr(ta_last_error(), named));
    TA_TRY(ta_plan_create(group, device, &step.config, &plan));
    TA_TRY(small_step_decode(&step, plan));
    RANK_EXPECT(small_step_right(&step));
    ta_plan_destroy(plan);
    ta_device_close(device);
    return TA_OK;
}

static void test_each_field(void)
{
    for (size_t i = 0; i < sizeof differences / sizeof *differences; ++i)
        EXPECT_OK(ta_group_run_threads(RANKS, NULL, differing_rank, (void *)&differences[i]));
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
    TA_TRY(ta_plan_create(group, device, &step.config, &plan));
    TA_TRY(small_step_decode(&step, plan));
    RANK_EXPECT(small_step_right(&step));
    ta_plan_destroy(plan);
    ta_device_close(device);
    return TA_OK;
}

static void test_bad_arguments_on_one_rank(void)
{
    for (int ranks = 2; ranks <= 5; ++ranks)
        for (int bad = 0; bad < ranks; ++bad)
            EXPECT_OK(ta_group_run_threads(ranks, NULL, invalid_rank, &bad));
}

/* A rank that never makes its plan: the others wait no longer than the timeout, and name it. */
static ta_status missing_rank(ta_group *group, void *context)
{
    ta_device *device;
    ta_plan *plan = NULL;
    small_step step;
    (void)context;
    if (ta_group_rank(group) == 1)
        return TA_OK;
    small_step_init(&step, ta_group_rank(group), ta_group_size(group));
    TA_TRY(ta_device_open("host", NULL, &device));
    ta_status status = ta_plan_create(group, device, &step.config, &plan);
    RANK_EXPECT(status == TA_ERR_TIMEOUT && plan == NULL);
    RANK_EXPECT(strstr(ta_last_error(), "rank 1 did not arrive"));
    ta_device_close(device);
    return TA_OK;
}

static void test_a_rank_that_makes_no_plan(void)
{
    ta_group_config config = TA_GROUP_CONFIG_INIT;
    config.timeout_ms = 100;
    EXPECT_OK(ta_group_run_threads(RANKS, &config, missing_rank, NULL));
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(test_each_field);
    RUN_TEST(test_roots);
    RUN_TEST(test_bad_arguments_on_one_rank);
    RUN_TEST(test_a_rank_that_makes_no_plan);
    return UNITY_END() != 0;
}
