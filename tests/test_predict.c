/* Predictions of decode steps (src/decode/predict.c, ring_estimate.c): numbers that can be worked
 * out by hand, the formulas of the papers, and bad arguments. */
#include "decode/predict.h"

#include <math.h>
#include <string.h>

#include <treeattn/cluster.h>

#include "decode/config.h"
#include "lib/expect.h"
#include "lib/plan_config.h"

void setUp(void)
{
}

void tearDown(void)
{
}

/* The paper's block: 16 heads of 128, two bytes each. */
static ta_plan_config paper_config(int32_t tokens_per_rank)
{
    ta_plan_config config = TA_PLAN_CONFIG_INIT;
    config.batch = 1;
    config.query_heads = 16;
    config.k_dim = 128;
    config.kv_dtype = TA_BF16;
    config.max_tokens = tokens_per_rank;
    return config;
}

static ta_prediction predict(const char *description, const ta_plan_config *config, int ranks,
                             ta_way way)
{
    ta_cluster *cluster;
    ta_prediction prediction = TA_PREDICTION_INIT;
    EXPECT_OK(ta_cluster_create(description, &cluster));
    EXPECT_OK(ta_predict(cluster, config, ranks, (int)way, &prediction));
    ta_cluster_destroy(cluster);
    return prediction;
}

static void expect_near(double expected, double got, double tolerance)
{
    char text[100];
    snprintf(text, sizeof text, "expected %.12g, got %.12g", expected, got);
    TEST_ASSERT_TRUE_MESSAGE(fabs(expected - got) <= tolerance * fabs(expected), text);
}

static void test_one_device_reads_its_cache(void)
{
    ta_plan_config config = paper_config(1000000);
    double cache = 1e6 * 16 * 256 * 2;
    ta_prediction p = predict("h100:1x1", &config, 1, TA_WAY_TREE);
    TEST_ASSERT_TRUE(p.possible && p.fits);
    TEST_ASSERT_EQUAL_UINT64(0, p.step.bytes_sent);
    expect_near(cache / 3.35e12 + 3 * 3e-6, p.step.seconds, 1e-3);
    expect_near(cache, p.memory_bytes, 1e-3);
    TEST_ASSERT_FALSE(predict("h100:1x1", &config, 1, TA_WAY_RING_KV).possible);
    config.max_tokens = 10000000; /* 81.9 GB */
    TEST_ASSERT_FALSE(predict("h100:1x1", &config, 1, TA_WAY_TREE).fits);
}

/* Ring: 4btd + 2bd elements, tree: 2btd + 2bd + 2b n_h; the difference is the shard. On two RTX
 * 4090 with 64,000 tokens each the paper measured 524 MB at width 2048 and 1040 MB at 4096. */
static void test_memory_as_in_the_paper(void)
{
    ta_plan_config config = paper_config(64000);
    double tree = predict("rtx4090:1x2", &config, 2, TA_WAY_TREE).memory_bytes;
    double ring = predict("rtx4090:1x2", &config, 2, TA_WAY_RING_KV).memory_bytes;
    expect_near(524e6, ring - tree, 0.01);
    config.query_heads = 32;
    tree = predict("rtx4090:1x2", &config, 2, TA_WAY_TREE).memory_bytes;
    ring = predict("rtx4090:1x2", &config, 2, TA_WAY_RING_KV).memory_bytes;
    expect_near(1040e6, ring - tree, 0.01);
}

static void test_bytes_of_each_way(void)
{
    ta_plan_config config = paper_config(1000);
    uint64_t partial = 16 * 130 * 4;
    ta_prediction p = predict("h100:1x8", &config, 8, TA_WAY_TREE);
    TEST_ASSERT_EQUAL_UINT64(3, p.step.messages_sent);
    TEST_ASSERT_EQUAL_UINT64(3 * (partial + 32), p.step.bytes_sent);
    TEST_ASSERT_EQUAL_UINT64(8 * 3 * (partial + 32), p.step.total_bytes_sent);
    /* Besides K and V: 32 bytes three times to agree, and a gathering that wraps around twice. */
    p = predict("h100:1x8", &config, 8, TA_WAY_RING_KV);
    TEST_ASSERT_EQUAL_UINT64(14 + 3 + 3 + 2, p.step.messages_sent);
    TEST_ASSERT_EQUAL_UINT64(7 * 1000ull * 16 * 256 * 2 + 3 * 32 + 7 * partial / 8,
                             p.step.bytes_sent);
    p = predict("h100:1x8", &config, 8, TA_WAY_RING_Q);
    TEST_ASSERT_EQUAL_UINT64(7 * (partial / 8 + 32) + 7 * partial / 8, p.step.bytes_sent);
    p = predict("h100:1x8", &config, 8, TA_WAY_ONE_DEVICE);
    TEST_ASSERT_EQUAL_UINT64(0, p.step.bytes_sent);
    config.query_placement = TA_PLACE_ROOT;
    p = predict("h100:1x8", &config, 8, TA_WAY_TREE);
    TEST_ASSERT_EQUAL_UINT64(3 * (partial + 32) + 3 * 16 * 128 * 2, p.step.bytes_sent);
    config.out_placement = TA_PLACE_ROOT;
    TEST_ASSERT_FALSE(predict("h100:1x8", &config, 8, TA_WAY_TREE).possible);
}

/* More ranks never make the tree's share of reading longer, and the step grows by log2 only. */
static void test_growth_with_ranks(void)
{
    double before = 1e9;
    for (int ranks = 1; ranks <= 4096; ranks *= 2) {
        ta_plan_config config = paper_config((5120000 + ranks - 1) / ranks);
        ta_prediction p = predict("h100:512x8", &config, ranks, TA_WAY_TREE);
        TEST_ASSERT_TRUE(p.step.attend_seconds < before);
        TEST_ASSERT_TRUE(p.step.messages_sent <= 12);
        before = p.step.attend_seconds;
    }
}

/* Exactly one candidate is what a plan would run; algorithms and exchanges have names. */
static void test_chosen_and_names(void)
{
    static const ta_algorithm algorithms[] = {TA_ALGORITHM_TREE, TA_ALGORITHM_RING_KV,
                                              TA_ALGORITHM_RING_Q};
    ta_plan_config config = paper_config(1000);
    for (int i = 0; i < 3; ++i) {
        int chosen = 0;
        config.algorithm = algorithms[i];
        for (int way = 0; way < TA_WAYS; ++way) {
            ta_prediction p = predict("h100:1x8", &config, 8, (ta_way)way);
            int is_tree = p.algorithm == TA_ALGORITHM_TREE;
            TEST_ASSERT_EQUAL_INT(is_tree ? way + TA_EXCHANGE_DOUBLING : TA_EXCHANGE_AUTO,
                                  p.exchange);
            TEST_ASSERT_TRUE(!p.chosen || (p.possible && p.algorithm == algorithms[i]));
            chosen += p.chosen;
        }
        TEST_ASSERT_EQUAL_INT(1, chosen);
    }
    TEST_ASSERT_EQUAL_INT(TA_ALGORITHM_ONE_DEVICE,
                          predict("h100:1x8", &config, 8, TA_WAY_ONE_DEVICE).algorithm);
    config.algorithm = TA_ALGORITHM_TREE;
    config.exchange = TA_EXCHANGE_SCATTER;
    TEST_ASSERT_TRUE(predict("h100:1x8", &config, 8, (ta_way)(TA_WAY_TREE + 2)).chosen);
    TEST_ASSERT_EQUAL_STRING("ring pass-KV", ta_algorithm_name(TA_ALGORITHM_RING_KV));
    TEST_ASSERT_EQUAL_STRING("one device", ta_algorithm_name(TA_ALGORITHM_ONE_DEVICE));
    TEST_ASSERT_EQUAL_STRING("unknown", ta_algorithm_name((ta_algorithm)5));
    TEST_ASSERT_EQUAL_STRING("unknown", ta_algorithm_name((ta_algorithm)-1));
    TEST_ASSERT_EQUAL_STRING("two-level", ta_exchange_name(TA_EXCHANGE_TWO_LEVEL));
    TEST_ASSERT_EQUAL_STRING("auto", ta_exchange_name(TA_EXCHANGE_AUTO));
    TEST_ASSERT_EQUAL_STRING("unknown", ta_exchange_name((ta_exchange)TA_EXCHANGE_KINDS));
}

static void test_bad_arguments(void)
{
    ta_cluster *cluster;
    ta_prediction p = TA_PREDICTION_INIT, unset = {0};
    ta_plan_config config = paper_config(1000);
    EXPECT_OK(ta_cluster_create("h100:1x8", &cluster));
    EXPECT_ERROR(TA_ERR_INVALID, ta_predict(NULL, &config, 8, 0, &p), "cluster is NULL", NULL);
    EXPECT_ERROR(TA_ERR_INVALID, ta_predict(cluster, &config, 9, 0, &p), "ranks is 9", "1 to 8");
    EXPECT_ERROR(TA_ERR_INVALID, ta_predict(cluster, &config, 0, 0, &p), "ranks is 0", "1 to 8");
    EXPECT_ERROR(TA_ERR_INVALID, ta_predict(cluster, &config, 8, 0, NULL), "prediction", NULL);
    EXPECT_ERROR(TA_ERR_INVALID, ta_predict(cluster, &config, 8, 0, &unset), "prediction", "INIT");
    EXPECT_ERROR(TA_ERR_INVALID, ta_predict(cluster, NULL, 8, 0, &p), "config is NULL", NULL);
    EXPECT_ERROR(TA_ERR_NOT_FOUND, ta_predict(cluster, &config, 8, TA_WAYS, &p), "candidate", NULL);
    EXPECT_ERROR(TA_ERR_NOT_FOUND, ta_predict(cluster, &config, 8, -1, &p), "candidate is -1",
                 NULL);
    config.batch = 0;
    EXPECT_ERROR(TA_ERR_INVALID, ta_predict(cluster, &config, 8, 0, &p), "config.batch", NULL);
    int count = -1;
    EXPECT_ERROR(TA_ERR_INVALID, ta_predict_all(cluster, &config, 8, &p, 1, &count), "config.batch",
                 NULL);
    EXPECT_ERROR(TA_ERR_INVALID, ta_predict_all(NULL, &config, 8, &p, 1, &count), "cluster", NULL);
    EXPECT_ERROR(TA_ERR_INVALID, ta_predict_all(cluster, &config, 8, &p, 1, NULL), "count", NULL);
    EXPECT_ERROR(TA_ERR_INVALID, ta_predict_all(cluster, &config, 8, NULL, 1, &count),
                 "predictions is NULL", "room is 1");
    EXPECT_ERROR(TA_ERR_INVALID, ta_predict_all(cluster, &config, 8, &p, -1, &count), "room is -1",
                 NULL);
    TEST_ASSERT_EQUAL_INT(-1, count);
    ta_cluster_destroy(cluster);
}

/* ---- Both rings against what a group counts ---- */

#define RING_TOKENS 5
#define RING_HEADS 6
#define RING_DIM 8

typedef struct ring_trial {
    ta_algorithm algorithm;
    ta_placement query, out;
    ta_group_stats stats[8];
} ring_trial;

static ta_plan_config ring_config(const ring_trial *t)
{
    ta_plan_config config = plan_config(TA_F32, 2, RING_HEADS, RING_DIM, RING_TOKENS);
    config.kv_heads = 2;
    config.map.block = RING_TOKENS;
    config.query_placement = t->query;
    config.out_placement = t->out;
    config.query_root = t->query == TA_PLACE_ROOT;
    config.out_root = t->out == TA_PLACE_ROOT;
    config.algorithm = t->algorithm;
    return config;
}

static ta_status ring_rank(ta_group *group, void *context)
{
    ring_trial *t = context;
    ta_plan_config config = ring_config(t);
    int ranks = ta_group_size(group), rank = ta_group_rank(group);
    float q[2 * RING_HEADS * RING_DIM] = {0}, out[2 * RING_HEADS * RING_DIM];
    float cache[2 * RING_TOKENS * 2 * RING_DIM] = {0};
    int32_t lengths[2] = {ranks * RING_TOKENS, ranks * RING_TOKENS};
    ta_tensor query = {q, 0, 0, 0}, result = {out, 0, 0, 0};
    ta_kv kv = TA_KV_INIT;
    ta_device *device;
    ta_plan *plan;
    ta_group_stats before = TA_GROUP_STATS_INIT, *after = &t->stats[rank];
    kv.k.data = kv.v.data = cache;
    kv.lengths = lengths;
    TA_TRY(ta_device_open("host", NULL, &device));
    TA_TRY(ta_plan_create(group, device, &config, &plan));
    *after = before;
    TA_TRY(ta_group_get_stats(group, &before));
    TA_TRY(ta_decode(plan, &query, &kv, &result, NULL, NULL, NULL));
    TA_TRY(ta_group_get_stats(group, after));
    after->messages_sent -= before.messages_sent;
    after->bytes_sent -= before.bytes_sent;
    after->messages_received -= before.messages_received;
    after->bytes_received -= before.bytes_received;
    ta_plan_destroy(plan);
    ta_device_close(device);
    return TA_OK;
}

static void compare_ring(const ring_trial *t, int ranks, const ta_cost *cost)
{
    char text[120];
    for (int rank = 0; rank < ranks; ++rank) {
        snprintf(text, sizeof text, "rank %d of %d, algorithm %d, query %d, out %d", rank, ranks,
                 (int)t->algorithm, (int)t->query, (int)t->out);
        const ta_traffic *e = &cost->traffic[rank];
        const ta_group_stats *s = &t->stats[rank];
        TEST_ASSERT_EQUAL_UINT64_MESSAGE(s->messages_sent, e->messages_sent, text);
        TEST_ASSERT_EQUAL_UINT64_MESSAGE(s->messages_received, e->messages_received, text);
        TEST_ASSERT_EQUAL_UINT64_MESSAGE(s->bytes_sent, e->bytes_sent, text);
        TEST_ASSERT_EQUAL_UINT64_MESSAGE(s->bytes_received, e->bytes_received, text);
    }
}

static void try_ring(ring_trial *t, int ranks)
{
    ta_problem problem;
    ta_cost cost;
    ta_plan_config config = ring_config(t);
    EXPECT_OK(ta_config_resolve(&config, 0, ranks, &problem));
    ta_step_shape shape = {.problem = &problem,
                           .ranks = ranks,
                           .query_placement = t->query,
                           .out_placement = t->out,
                           .query_root = config.query_root,
                           .out_root = config.out_root};
    EXPECT_OK(ta_cost_begin(&cost, NULL, ranks));
    if (t->algorithm == TA_ALGORITHM_RING_KV)
        EXPECT_OK(ta_ring_kv_estimate(&shape, &cost));
    else
        EXPECT_OK(ta_ring_q_estimate(&shape, &cost));
    EXPECT_OK(ta_group_run_threads(ranks, NULL, ring_rank, t));
    compare_ring(t, ranks, &cost);
    ta_cost_end(&cost);
}

static void test_rings_as_counted(void)
{
    for (int ranks = 2; ranks <= 8; ++ranks)
        for (int query = TA_PLACE_ALL; query <= TA_PLACE_HEADS; ++query)
            for (int out = TA_PLACE_ALL; out <= TA_PLACE_HEADS; ++out)
                for (int algorithm = TA_ALGORITHM_RING_KV; algorithm <= TA_ALGORITHM_RING_Q;
                     ++algorithm) {
                    ring_trial t = {.algorithm = (ta_algorithm)algorithm,
                                    .query = (ta_placement)query,
                                    .out = (ta_placement)out};
                    try_ring(&t, ranks);
                }
}

/* All at once are what each is by itself. */
static void test_all_at_once(void)
{
    ta_cluster *cluster;
    ta_plan_config config = paper_config(1000);
    ta_prediction all[TA_WAYS + 1], none = TA_PREDICTION_INIT;
    int count = 0, chosen = 0;
    EXPECT_OK(ta_cluster_create("h100:2x2x4", &cluster));
    for (int i = 0; i <= TA_WAYS; ++i)
        all[i] = none;
    EXPECT_OK(ta_predict_all(cluster, &config, 16, all, TA_WAYS + 1, &count));
    TEST_ASSERT_EQUAL_INT(TA_WAYS, count);
    for (int i = 0; i < TA_WAYS; ++i) {
        ta_prediction one = TA_PREDICTION_INIT;
        EXPECT_OK(ta_predict(cluster, &config, 16, i, &one));
        TEST_ASSERT_EQUAL_MEMORY(&one, &all[i], sizeof one);
        chosen += one.chosen;
    }
    TEST_ASSERT_EQUAL_INT(1, chosen);
    TEST_ASSERT_EQUAL_MEMORY(&none, &all[TA_WAYS], sizeof none);
    EXPECT_OK(ta_predict_all(cluster, &config, 16, NULL, 0, &count));
    TEST_ASSERT_EQUAL_INT(TA_WAYS, count);
    ta_cluster_destroy(cluster);
}

/* A program of a version whose ta_prediction is larger has an array of those. */
static void test_all_at_once_of_other_versions(void)
{
    enum { MOST = sizeof(ta_prediction) + 32 };
    ta_cluster *cluster;
    ta_plan_config config = paper_config(1000);
    ta_prediction all[TA_WAYS];
    _Alignas(ta_prediction) char memory[TA_WAYS * MOST], before[sizeof memory];
    int count = -1;
    EXPECT_OK(ta_cluster_create("h100:2x2", &cluster));
    for (int i = 0; i < TA_WAYS; ++i)
        all[i] = (ta_prediction)TA_PREDICTION_INIT;
    EXPECT_OK(ta_predict_all(cluster, &config, 4, all, TA_WAYS, &count));
    for (size_t each = sizeof(ta_prediction); each <= MOST; each += 32) {
        memset(memory, 0, sizeof memory);
        for (int i = 0; i < TA_WAYS; ++i)
            memcpy(memory + i * each, &each, sizeof each);
        EXPECT_OK(
            ta_predict_all(cluster, &config, 4, (ta_prediction *)(void *)memory, TA_WAYS, &count));
        for (int i = 0; i < TA_WAYS; ++i)
            TEST_ASSERT_EQUAL_MEMORY((char *)&all[i] + sizeof each, memory + i * each + sizeof each,
                                     sizeof(ta_prediction) - sizeof each);
    }
    count = -1;
    memset(memory + 3 * MOST, 0, sizeof(size_t));
    memcpy(before, memory, sizeof memory);
    EXPECT_ERROR(
        TA_ERR_INVALID,
        ta_predict_all(cluster, &config, 4, (ta_prediction *)(void *)memory, TA_WAYS, &count),
        "predictions[3].size is 0", "TA_PREDICTION_INIT");
    memory[3 * MOST] = before[3 * MOST] = sizeof(ta_prediction);
    EXPECT_ERROR(
        TA_ERR_INVALID,
        ta_predict_all(cluster, &config, 4, (ta_prediction *)(void *)memory, TA_WAYS, &count),
        "predictions[3].size is 96", "must be that of predictions[0], 128");
    TEST_ASSERT_EQUAL_MEMORY(before, memory, sizeof memory);
    TEST_ASSERT_EQUAL_INT(-1, count);
    ta_cluster_destroy(cluster);
}

/* Racks behind one slow link: the third level pays for large partials, not for small ones. */
static void test_a_third_level(void)
{
    ta_plan_config config = paper_config(1000);
    const char *racks = "h100:4x8x8 rack.total_bytes_per_second=5e10";
    int multi = (int)ta_way_of(TA_ALGORITHM_TREE, TA_EXCHANGE_MULTI_LEVEL);
    ta_prediction small = predict(racks, &config, 256, (ta_way)multi);
    TEST_ASSERT_TRUE(small.possible && !small.chosen);
    config.batch = 64;
    ta_prediction large = predict(racks, &config, 256, (ta_way)multi);
    TEST_ASSERT_TRUE(large.possible && large.chosen);
    TEST_ASSERT_FALSE(predict("h100:32x8", &config, 256, (ta_way)multi).possible);
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(test_one_device_reads_its_cache);
    RUN_TEST(test_memory_as_in_the_paper);
    RUN_TEST(test_bytes_of_each_way);
    RUN_TEST(test_growth_with_ranks);
    RUN_TEST(test_rings_as_counted);
    RUN_TEST(test_chosen_and_names);
    RUN_TEST(test_bad_arguments);
    RUN_TEST(test_all_at_once);
    RUN_TEST(test_all_at_once_of_other_versions);
    RUN_TEST(test_a_third_level);
    return UNITY_END() != 0;
}
