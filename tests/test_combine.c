/* ta_combine() (src/decode/combine.c): random cases against the oracle, combining behind one-rank
 * plans that attend to a shard each, arguments that are wrong, ranks that are not in the same step.
 * A failing case prints its seed; `test_combine --seed N` runs that one again. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <treeattn/cluster.h>

#include "group/group.h"
#include "lib/case.h"
#include "lib/combine_case.h"
#include "lib/device_array.h"
#include "lib/expect.h"
#include "lib/options.h"
#include "lib/plan_config.h"
#include "lib/seed_main.h"
#include "lib/spoiled_call.h"

static char failure[2048];
static bound_worst worst;

void setUp(void)
{
}

void tearDown(void)
{
}

static void run_one(const combine_case *c)
{
    if (!combine_case_run(c, &worst, failure, sizeof failure))
        TEST_FAIL_MESSAGE(failure);
}

static void run_seed(uint64_t seed)
{
    combine_case c = combine_case_random(seed, 0);
    run_one(&c);
}

static void test_random_cases(void)
{
    run_seeds(run_seed, 0, options.cases ? 4 * options.cases : 1500);
}

/* Partials of more than two MiB go in chunks. */
static void test_large_parts(void)
{
    for (uint64_t i = 0; i < 3; ++i) {
        combine_case c = combine_case_random(7000 + i, 3);
        c.plan_batch = c.batch = 2;
        c.query_tokens = 300;
        c.ragged = false;
        c.heads = 6;
        c.v_dim = 160;
        c.placement = (ta_placement)i;
        c.root = i == TA_PLACE_ROOT ? 2 : 0;
        c.exchange = TA_EXCHANGE_AUTO;
        if (options_chosen(i))
            run_one(&c);
    }
}

static void test_the_bound_is_tight(void)
{
    for (int dtype = TA_F32; dtype < NUMBER_DTYPE_END; ++dtype)
        TEST_ASSERT_TRUE(worst.out[dtype] >= 0.05 && worst.out[dtype] <= 1);
    TEST_ASSERT_TRUE(worst.lse >= 0.05 && worst.lse <= 1);
}

/* ---- Behind other plans ---- */

enum { SHARDS = 4, TOKENS = 40, HEADS = 6, KV_HEADS = 2, K_DIM = 24, V_DIM = 16 };

/* What all ranks together attend to. */
typedef struct sequence {
    float q[HEADS * K_DIM], k[TOKENS * KV_HEADS * K_DIM], v[TOKENS * KV_HEADS * V_DIM];
    float sinks[HEADS];
    double out[HEADS * V_DIM], out_bound[HEADS * V_DIM], lse[HEADS], lse_bound[HEADS];
} sequence;

/* The tokens of a rank: one of them has none. */
static const int32_t shard_at[SHARDS + 1] = {0, 7, 7, 30, TOKENS};

static double *widen(const float *from, int64_t count)
{
    double *to = calloc((size_t)count, sizeof *to);
    for (int64_t i = 0; i < count; ++i)
        to[i] = (double)from[i];
    return to;
}

static void fill(random_source *r, float *numbers, int64_t count)
{
    for (int64_t i = 0; i < count; ++i)
        numbers[i] = (float)random_normal(r);
}

static void make_sequence(sequence *s)
{
    random_source r = random_from(11);
    fill(&r, s->q, HEADS * K_DIM);
    fill(&r, s->k, TOKENS * KV_HEADS * K_DIM);
    fill(&r, s->v, TOKENS * KV_HEADS * V_DIM);
    fill(&r, s->sinks, HEADS);
    double *q = widen(s->q, HEADS * K_DIM), *k = widen(s->k, TOKENS * KV_HEADS * K_DIM);
    double *v = widen(s->v, TOKENS * KV_HEADS * V_DIM);
    oracle_problem problem = {.query_tokens = 1,
                              .query_heads = HEADS,
                              .kv_heads = KV_HEADS,
                              .k_dim = K_DIM,
                              .v_dim = V_DIM,
                              .scale = 1 / sqrt(K_DIM),
                              .sinks = s->sinks};
    oracle_sequence whole = {TOKENS, q, k, v};
    oracle_row row = {0};
    for (int h = 0; h < HEADS; ++h) {
        bound_row bound;
        oracle_attend(&problem, &whole, 0, h, &row);
        /* each part is rounded once more than a partial, as if there were twice as many */
        bound_of_row(&problem, &row, TA_F32, 2 * SHARDS, &bound);
        memcpy(s->out + h * V_DIM, row.out, V_DIM * sizeof(double));
        memcpy(s->out_bound + h * V_DIM, bound.out, V_DIM * sizeof(double));
        s->lse[h] = row.lse;
        s->lse_bound[h] = bound.lse;
    }
    oracle_row_free(&row);
    free(q);
    free(k);
    free(v);
}

typedef struct shard_run {
    const sequence *sequence;
    int rank;
    device_array q, k, v, part, part_lse, out, lse, length;
} shard_run;

static ta_status make_arrays(ta_device *device, shard_run *a)
{
    const sequence *s = a->sequence;
    int32_t first = shard_at[a->rank], tokens = shard_at[a->rank + 1] - first;
    TA_TRY(device_array_make(device, HEADS * K_DIM, 4, &a->q));
    TA_TRY(device_array_make(device, TOKENS * KV_HEADS * K_DIM, 4, &a->k));
    TA_TRY(device_array_make(device, TOKENS * KV_HEADS * V_DIM, 4, &a->v));
    TA_TRY(device_array_make(device, HEADS * V_DIM, 4, &a->part));
    TA_TRY(device_array_make(device, HEADS, 4, &a->part_lse));
    TA_TRY(device_array_make(device, HEADS * V_DIM, 4, &a->out));
    TA_TRY(device_array_make(device, HEADS, 4, &a->lse));
    TA_TRY(device_array_make(device, 1, 4, &a->length));
    memcpy(a->q.host, s->q, sizeof s->q);
    memcpy(a->k.host, s->k + first * KV_HEADS * K_DIM, (size_t)tokens * KV_HEADS * K_DIM * 4);
    memcpy(a->v.host, s->v + first * KV_HEADS * V_DIM, (size_t)tokens * KV_HEADS * V_DIM * 4);
    *(int32_t *)a->length.host = tokens;
    const device_array *given[] = {&a->q, &a->k, &a->v, &a->length};
    for (int i = 0; i < 4; ++i)
        TA_TRY(device_array_to(given[i], NULL));
    return TA_OK;
}

static void free_arrays(void *context)
{
    shard_run *a = context;
    device_array *all[] = {&a->q,        &a->k,   &a->v,   &a->part,
                           &a->part_lse, &a->out, &a->lse, &a->length};
    for (int i = 0; i < 8; ++i)
        device_array_free(all[i]);
}

/* As somebody's own kernel would: attend to this rank's tokens alone. */
static ta_status attend_alone(ta_device *device, shard_run *a)
{
    ta_plan *plan;
    ta_plan_config config = plan_config(TA_F32, 1, HEADS, K_DIM, TOKENS);
    ta_kv kv = TA_KV_INIT;
    ta_tensor q = {a->q.device, 0, 0, 0}, part = {a->part.device, 0, 0, 0};
    config.kv_heads = KV_HEADS;
    config.v_dim = V_DIM;
    kv.k.data = a->k.device;
    kv.v.data = a->v.device;
    kv.lengths = a->length.device;
    TA_TRY(ta_plan_create(NULL, device, &config, &plan));
    ta_status status = ta_decode(plan, &q, &kv, &part, a->part_lse.device, NULL, NULL);
    ta_plan_destroy(plan);
    return status;
}

static ta_status combine_all(ta_group *group, ta_device *device, shard_run *a)
{
    const sequence *s = a->sequence;
    ta_plan *plan;
    ta_plan_config config = combine_config(1, HEADS, V_DIM);
    ta_tensor part = {a->part.device, 0, 0, 0}, out = {a->out.device, 0, 0, 0};
    config.sinks = s->sinks;
    TA_TRY(ta_plan_create(group, device, &config, &plan));
    ta_status status =
        ta_combine(plan, &part, a->part_lse.device, TA_LSE_E, &out, a->lse.device, NULL, NULL);
    ta_plan_destroy(plan);
    TA_TRY(status);
    TA_TRY(device_array_from(&a->out, NULL));
    TA_TRY(device_array_from(&a->lse, NULL));
    for (int i = 0; i < HEADS * V_DIM; ++i)
        RANK_EXPECT(bound_compare(s->out[i], s->out_bound[i], (double)((float *)a->out.host)[i]) <=
                    1);
    for (int i = 0; i < HEADS; ++i)
        RANK_EXPECT(bound_compare(s->lse[i], s->lse_bound[i], (double)((float *)a->lse.host)[i]) <=
                    1);
    return TA_OK;
}

static ta_status attend_and_combine(ta_group *group, ta_device *device, void *context)
{
    shard_run *a = context;
    TA_TRY(make_arrays(device, a));
    TA_TRY(attend_alone(device, a));
    return combine_all(group, device, a);
}

static ta_status run_shard(ta_group *threads, void *context)
{
    shard_run a = {.sequence = context, .rank = ta_group_rank(threads)};
    return case_rank_run(threads, 0, attend_and_combine, free_arrays, &a);
}

static void test_behind_plans_of_one_rank(void)
{
    if (!options_ranks(SHARDS))
        TEST_IGNORE_MESSAGE("too few devices");
    sequence *s = calloc(1, sizeof *s);
    make_sequence(s);
    EXPECT_OK(ta_group_run_threads(SHARDS, NULL, run_shard, s));
    free(s);
}

/* ---- Wrong arguments ---- */

/* A small call with everything that a test may want to spoil; on the host. */
typedef struct small {
    ta_plan_config config;
    float part_memory[2 * 3 * 8], lse_memory[2 * 3], out_memory[2 * 3 * 8], result[2 * 3];
    int32_t starts[3];
    ta_tensor part, out;
    const float *part_lse;
    float *lse;
    ta_lse_base base;
    ta_call call;
    void *stream;
} small;

static void small_init(void *call)
{
    small *s = call;
    memset(s, 0, sizeof *s);
    s->config = combine_config(2, 3, 8);
    s->part.data = s->part_memory;
    s->part_lse = s->lse_memory;
    s->out.data = s->out_memory;
    s->lse = s->result;
    s->call = (ta_call)TA_CALL_INIT;
    s->starts[1] = s->starts[2] = 1;
    for (int i = 0; i < 2 * 3 * 8; ++i) {
        s->part_memory[i] = (float)i;
        s->out_memory[i] = -1;
    }
}

static ta_status small_combine(void *call, ta_plan *plan)
{
    small *s = call;
    return ta_combine(plan, &s->part, s->part_lse, s->base, &s->out, s->lse, &s->call, s->stream);
}

static bool is_untouched(const void *call)
{
    const small *s = call;
    for (int i = 0; i < 2 * 3 * 8; ++i)
        if (s->out_memory[i] != -1)
            return false;
    return true;
}

/* The same parts on every rank. */
static bool is_combined(const void *call, int rank)
{
    const small *s = call;
    (void)rank;
    return memcmp(s->part_memory, s->out_memory, sizeof s->part_memory) == 0;
}

static const spoiled_call combines = {sizeof(small), small_init, small_combine, is_untouched,
                                      is_combined};

SPOIL(part, s->part.data = NULL)
SPOIL(part_aligned, s->part.data = (char *)s->part_memory + 2)
SPOIL(part_stride, s->part.token_stride = -4)
SPOIL(part_lse, s->part_lse = NULL)
SPOIL(lse_aligned, s->part_lse = (const float *)(const void *)((char *)s->lse_memory + 2))
SPOIL(base, s->base = (ta_lse_base)2)
SPOIL(out, s->out.data = NULL)
SPOIL(out_overlap, s->out.head_stride = 4)
SPOIL(lse, s->lse = (float *)(void *)((char *)s->result + 1))
SPOIL(call_size, s->call.size = 3)
SPOIL(window, s->call.window = 5)
SPOIL(softcap, s->call.softcap = 2)
SPOIL(slopes, s->call.alibi_slopes = s->result)
SPOIL(selected, s->call.selected = s->starts)
SPOIL(selected_count, s->call.selected_count = 3)
SPOIL(selected_lists, s->call.selected_lists = 1)
SPOIL(prefix_groups, s->call.prefix_groups = 1)
SPOIL(prefix_starts, s->call.prefix_starts = s->starts)
SPOIL(prefix_lengths, s->call.prefix_lengths = s->starts)
SPOIL(reserved, s->call.reserved = 7)
SPOIL(batch, s->call.batch = 3)
SPOIL(starts, s->call.starts = s->starts)
SPOIL(stream, s->stream = s)

static const mistake mistakes[] = {
    {"part is NULL", "3 query heads", spoil_part, NULL},
    {"part.data", "aligned", spoil_part_aligned, NULL},
    {"part.token_stride", "-4", spoil_part_stride, NULL},
    {"part_lse", "log-sum-exp", spoil_part_lse, NULL},
    {"part_lse", "aligned", spoil_lse_aligned, NULL},
    {"base is 2", "TA_LSE_E", spoil_base, NULL},
    {"out is NULL", "3 query heads", spoil_out, NULL},
    {"out.head_stride", "8", spoil_out_overlap, NULL},
    {"lse is", "aligned", spoil_lse, NULL},
    {"call.size is 3", "TA_CALL_INIT", spoil_call_size, NULL},
    {"call.window is 5", "0", spoil_window, NULL},
    {"call.softcap is 2", "0", spoil_softcap, NULL},
    {"call.alibi_slopes", "NULL", spoil_slopes, NULL},
    {"call.selected is", "NULL, a combine sees no keys", spoil_selected, NULL},
    {"call.selected_count is 3", "must be 0", spoil_selected_count, NULL},
    {"call.selected_lists is 1", "must be 0", spoil_selected_lists, NULL},
    {"call.prefix_groups is 1", "must be 0", spoil_prefix_groups, NULL},
    {"call.prefix_starts is", "must be NULL", spoil_prefix_starts, NULL},
    {"call.prefix_lengths is", "must be NULL", spoil_prefix_lengths, NULL},
    {"call.reserved is 7", "must be 0", spoil_reserved, NULL},
    {"call.batch is 3", "2", spoil_batch, NULL},
    {"call.starts", "call.tokens", spoil_starts, NULL},
    {"stream", "NULL", spoil_stream, NULL},
};
#define MISTAKES (sizeof mistakes / sizeof *mistakes)

static void test_bad_arguments(void)
{
    spoiled_alone(&combines, mistakes, MISTAKES);
}

static void test_one_rank_is_wrong(void)
{
    spoiled_on_one_rank(&combines, mistakes, MISTAKES);
}

/* ---- Ranks that are not in the same step ---- */

SPOIL(tag, s->call.tag = 9)
SPOIL(fewer, s->call.batch = 1)
SPOIL(ragged, s->call.batch = 1; s->call.tokens = 1; s->call.starts = s->starts)
SPOIL(moved, s->starts[1] = 0)

SPOIL(first_alone, s->call.batch = 1)
SPOIL(of_first, s->call.tokens = 1; s->call.starts = s->starts)

static void test_ranks_that_differ(void)
{
    static const char *nothing = "nothing was written";
    const mistake differences[] = {
        {"the tag", nothing, spoil_tag, NULL},
        {"call.tokens", nothing, spoil_ragged, spoil_first_alone},
        {"call.starts", nothing, spoil_moved, spoil_of_first}, /* one says: of the second */
    };
    spoiled_differently(&combines, differences, sizeof differences / sizeof *differences);
}

/* Another batch makes messages of another size. */
static void test_another_batch(void)
{
    static const mistake fewer = {"call.batch", NULL, spoil_fewer, NULL};
    spoiled_in_size(&combines, &fewer, 1);
}

/* ---- Plans ---- */

static ta_status make(ta_device *device, const small *s)
{
    ta_plan *plan = NULL;
    ta_status status = ta_plan_create(NULL, device, &s->config, &plan);
    ta_plan_destroy(plan);
    return status;
}

static const float slopes[3];

SPOIL(kv_heads, s->config.kv_heads = 1)
SPOIL(k_dim, s->config.k_dim = 8)
SPOIL(kv_dtype, s->config.kv_dtype = TA_F32)
SPOIL(max_tokens, s->config.max_tokens = 1)
SPOIL(map_kind, s->config.map.kind = TA_SHARD_BLOCK_CYCLIC)
SPOIL(map_block, s->config.map.block = 4)
SPOIL(mask, s->config.mask = TA_MASK_FULL)
SPOIL(plan_window, s->config.window = 3)
SPOIL(scale, s->config.scale = 1)
SPOIL(plan_softcap, s->config.softcap = 1)
SPOIL(plan_slopes, s->config.alibi_slopes = slopes)
SPOIL(placement, s->config.query_placement = TA_PLACE_HEADS)
SPOIL(root, s->config.query_root = 1)
SPOIL(scattered, s->config.append_scattered = 1)
SPOIL(algorithm, s->config.algorithm = TA_ALGORITHM_RING_Q)
SPOIL(dtype, s->config.query_dtype = TA_DTYPE_NONE)
SPOIL(v_dim, s->config.v_dim = 0)
SPOIL(combine_only, s->config.combine_only = 2)

static const mistake fields[] = {
    {"config.kv_heads", "combine_only", spoil_kv_heads, NULL},
    {"config.k_dim", "combine_only", spoil_k_dim, NULL},
    {"config.kv_dtype", "combine_only", spoil_kv_dtype, NULL},
    {"config.max_tokens", "combine_only", spoil_max_tokens, NULL},
    {"config.map.kind", "combine_only", spoil_map_kind, NULL},
    {"config.map.block", "combine_only", spoil_map_block, NULL},
    {"config.mask", "combine_only", spoil_mask, NULL},
    {"config.window", "combine_only", spoil_plan_window, NULL},
    {"config.scale", "combine_only", spoil_scale, NULL},
    {"config.softcap", "combine_only", spoil_plan_softcap, NULL},
    {"config.alibi_slopes", "combine_only", spoil_plan_slopes, NULL},
    {"config.query_placement", "combine_only", spoil_placement, NULL},
    {"config.query_root", "combine_only", spoil_root, NULL},
    {"config.append_scattered", "combine_only", spoil_scattered, NULL},
    {"config.algorithm is 3", "combine_only", spoil_algorithm, NULL},
    {"config.query_dtype", "0", spoil_dtype, NULL},
    {"config.v_dim", "0", spoil_v_dim, NULL},
    {"config.combine_only is 2", "1", spoil_combine_only, NULL},
};

static void test_fields_that_must_be_left_out(void)
{
    ta_device *device;
    small s;
    EXPECT_OK(ta_device_open("host", NULL, &device));
    for (size_t i = 0; i < sizeof fields / sizeof *fields; ++i) {
        small_init(&s);
        fields[i].spoil(&s);
        EXPECT_ERROR(TA_ERR_INVALID, make(device, &s), fields[i].named, fields[i].value);
    }
    small_init(&s);
    s.config.reproducible_tile = 16;
    EXPECT_ERROR(TA_ERR_UNSUPPORTED, make(device, &s), "reproducible_tile is 16", "combine_only");
    ta_device_close(device);
}

/* A plan that combines does nothing else. */
static void test_what_a_plan_refuses(void)
{
    ta_device *device;
    ta_plan *plan;
    small s;
    small_init(&s);
    EXPECT_OK(ta_device_open("host", NULL, &device));
    EXPECT_OK(ta_plan_create(NULL, device, &s.config, &plan));
    EXPECT_ERROR(TA_ERR_INVALID, small_combine(&s, NULL), "plan is NULL", NULL);
    ta_kv kv = TA_KV_INIT;
    EXPECT_ERROR(TA_ERR_INVALID, ta_decode(plan, &s.part, &kv, &s.out, NULL, NULL, NULL),
                 "combine_only", "ta_combine()");
    ta_append_input input = TA_APPEND_INPUT_INIT;
    EXPECT_ERROR(TA_ERR_INVALID, ta_append(plan, &input, &kv, NULL, NULL), "combine_only",
                 "K and V");
    ta_plan_destroy(plan);
    ta_device_close(device);
}

/* A plan that attends is no plan that combines; and it says what it is. */
static void test_what_a_plan_is(void)
{
    char text[4096];
    ta_device *device;
    ta_plan *plan, *attends;
    ta_cluster *cluster;
    ta_prediction prediction = TA_PREDICTION_INIT;
    small s;
    small_init(&s);
    EXPECT_OK(ta_device_open("host", NULL, &device));
    EXPECT_OK(ta_cluster_create("h100:1x4", &cluster));
    s.config.cluster = cluster;
    EXPECT_OK(ta_plan_create(NULL, device, &s.config, &plan));
    EXPECT_OK(ta_explain(plan, text, sizeof text, NULL));
    TEST_ASSERT_NOT_NULL(strstr(text, "combines: 3 query heads of dim 8"));
    TEST_ASSERT_NOT_NULL(strstr(text, "dtypes: f32 in, f32 out"));
    TEST_ASSERT_NULL(strstr(text, "shard map"));
    EXPECT_OK(ta_predict(cluster, &s.config, 4, 0, &prediction));
    TEST_ASSERT_TRUE(prediction.possible && prediction.step.attend_seconds == 0);
    TEST_ASSERT_TRUE(prediction.step.seconds > 0);
    s.config.combine_only = 0;
    s.config.k_dim = 8;
    s.config.kv_dtype = TA_F32;
    s.config.max_tokens = 4;
    EXPECT_OK(ta_plan_create(NULL, device, &s.config, &attends));
    EXPECT_ERROR(TA_ERR_INVALID, small_combine(&s, attends), "combine_only", "ta_decode()");
    ta_plan_destroy(attends);
    ta_plan_destroy(plan);
    ta_cluster_destroy(cluster);
    ta_device_close(device);
}

static void run_all(void)
{
    RUN_TEST(test_random_cases);
    RUN_TEST(test_large_parts);
    RUN_TEST(test_behind_plans_of_one_rank);
    if (options_host()) {
        RUN_TEST(test_the_bound_is_tight);
        RUN_TEST(test_bad_arguments);
        RUN_TEST(test_one_rank_is_wrong);
        RUN_TEST(test_ranks_that_differ);
        RUN_TEST(test_another_batch);
        RUN_TEST(test_fields_that_must_be_left_out);
        RUN_TEST(test_what_a_plan_refuses);
        RUN_TEST(test_what_a_plan_is);
    }
}

int main(int argc, char **argv)
{
    return seed_main(argc, argv, run_seed, run_all);
}
