/* Costs of attention plans (estimate, choice and explain of src/attention/):
 * messages and bytes of every rank as its group counted them, exactly; seconds that can be worked
 * out by hand; what is chosen, and how it is explained. */
#include "attention/cost.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <treeattn/cluster.h>

#include "base/status.h"
#include "lib/attention_plan.h"
#include "lib/expect.h"
#include "lib/explanation.h"
#include "lib/random.h"

#define MAX_RANKS 16

void setUp(void)
{
}

void tearDown(void)
{
}

/* ---- As counted ---------------------------------------------------------------------------- */

typedef struct trial {
    ta_attention_config config;
    int32_t sequences, lengths[3];
    ta_group_stats before[MAX_RANKS], between[MAX_RANKS], after[MAX_RANKS];
    ta_traffic estimated[TA_PLAN_CALLS][MAX_RANKS];
} trial;

static ta_status estimate(const ta_attention *plan, trial *t)
{
    for (int pass = 0; pass < TA_PLAN_CALLS; ++pass) {
        ta_cost cost;
        TA_TRY(ta_cost_begin(&cost, NULL, plan->ranks));
        TA_TRY(ta_attention_estimate(plan, pass, &cost));
        memcpy(t->estimated[pass], cost.traffic, (size_t)plan->ranks * sizeof *cost.traffic);
        ta_cost_end(&cost);
    }
    return TA_OK;
}

/* Forward and backward of zeros: the numbers do not matter. */
static ta_status run_calls(ta_group *group, ta_attention *plan, trial *t)
{
    int rank = ta_group_rank(group);
    size_t numbers = (size_t)t->config.max_tokens * (size_t)t->config.query_heads * 32;
    float *memory = calloc(8 * numbers, sizeof *memory);
    float *lse = calloc(numbers, sizeof *lse);
    ta_attention_input input = TA_ATTENTION_INPUT_INIT;
    ta_attention_gradient gradient = TA_ATTENTION_GRADIENT_INIT;
    ta_tensor *tensors[] = {&input.q,       &input.k,     &input.v,     &gradient.out,
                            &gradient.dout, &gradient.dq, &gradient.dk, &gradient.dv};
    for (size_t i = 0; i < 8; ++i)
        tensors[i]->data = memory + i * numbers;
    input.sequences = t->sequences;
    input.lengths = t->lengths;
    gradient.lse = lse;
    ta_group_stats *all[] = {&t->before[rank], &t->between[rank], &t->after[rank]};
    for (int i = 0; i < 3; ++i)
        all[i]->size = sizeof *all[i];
    ta_status status = ta_group_get_stats(group, all[0]);
    if (status == TA_OK)
        status = ta_attention_forward(plan, &input, &gradient.out, lse, NULL);
    if (status == TA_OK)
        status = ta_group_get_stats(group, all[1]);
    if (status == TA_OK)
        status = ta_attention_backward(plan, &input, &gradient, NULL);
    if (status == TA_OK)
        status = ta_group_get_stats(group, all[2]);
    free(memory);
    free(lse);
    return status;
}

static ta_status run_rank(ta_group *group, void *context)
{
    trial *t = context;
    attention_rank r;
    ta_status status = attention_rank_open(&r, group, &t->config);
    if (status == TA_OK)
        status = run_calls(group, r.plan, t);
    if (status == TA_OK && ta_group_rank(group) == 0)
        status = estimate(r.plan, t);
    attention_rank_close(&r);
    return status;
}

static void compare(const trial *t, int ranks, int pass)
{
    for (int rank = 0; rank < ranks; ++rank) {
        const ta_group_stats *from = pass ? &t->between[rank] : &t->before[rank];
        const ta_group_stats *to = pass ? &t->after[rank] : &t->between[rank];
        const ta_traffic *e = &t->estimated[pass][rank];
        char text[200];
        snprintf(text, sizeof text,
                 "rank %d of %d, algorithm %d, %d columns, map %d, pass %d, lengths %d %d %d", rank,
                 ranks, (int)t->config.algorithm, t->config.grid_columns, (int)t->config.map.kind,
                 pass, (int)t->lengths[0], (int)t->lengths[1], (int)t->lengths[2]);
        TEST_ASSERT_EQUAL_UINT64_MESSAGE(to->messages_sent - from->messages_sent, e->messages_sent,
                                         text);
        TEST_ASSERT_EQUAL_UINT64_MESSAGE(to->messages_received - from->messages_received,
                                         e->messages_received, text);
        TEST_ASSERT_EQUAL_UINT64_MESSAGE(to->bytes_sent - from->bytes_sent, e->bytes_sent, text);
        TEST_ASSERT_EQUAL_UINT64_MESSAGE(to->bytes_received - from->bytes_received,
                                         e->bytes_received, text);
    }
}

static void test_estimates_as_counted(void)
{
    static const int ranks[] = {1, 2, 3, 4, 5, 6, 8, 12, 16};
    random_source random = random_from(11);
    for (size_t i = 0; i < sizeof ranks / sizeof *ranks; ++i)
        for (int columns = 1; columns <= ranks[i]; ++columns)
            for (int algorithm = 0; algorithm <= TA_ATTENTION_GRID_OVERLAP; ++algorithm) {
                int ring = algorithm == TA_ATTENTION_RING;
                if (ranks[i] % columns || (ring && columns > 1))
                    continue;
                trial t = {.config = TA_ATTENTION_CONFIG_INIT,
                           .sequences = 3,
                           .lengths = {random_int(&random, 0, 90), random_int(&random, 0, 40),
                                       random_int(&random, 0, 5)}};
                if (random_one_in(&random, 3)) /* all ranks hold as much: hops repeat */
                    memcpy(t.lengths, (int32_t[]){ranks[i] * 4, ranks[i] * 2, 0}, sizeof t.lengths);
                t.config.query_heads = 4;
                t.config.kv_heads = 2;
                t.config.k_dim = 16;
                t.config.v_dim = 24;
                t.config.dtype = random_one_in(&random, 2) ? TA_F32 : TA_BF16;
                t.config.max_tokens = 140;
                t.config.map.kind = (ta_shard_kind)random_int(&random, 0, TA_SHARD_ZIGZAG);
                t.config.map.block = t.config.map.kind == TA_SHARD_BLOCK_CYCLIC ? 1 : 0;
                t.config.algorithm = (ta_attention_algorithm)algorithm;
                t.config.grid_rows = ring ? 0 : ranks[i] / columns;
                t.config.grid_columns = ring ? 0 : columns;
                EXPECT_OK(ta_group_run_threads(ranks[i], NULL, run_rank, &t));
                compare(&t, ranks[i], 0);
                compare(&t, ranks[i], 1);
            }
}

/* ---- Seconds ------------------------------------------------------------------------------- */

static ta_attention_config simple_config(void)
{
    ta_attention_config config = attention_small_config(TA_F32, 8, 10);
    config.mask = TA_MASK_FULL;
    config.map.kind = TA_SHARD_ZIGZAG;
    return config;
}

static ta_cluster *make_cluster(const char *description)
{
    ta_cluster *cluster;
    EXPECT_OK(ta_cluster_create(description, &cluster));
    return cluster;
}

static ta_attention_prediction predict(const ta_cluster *cluster, const ta_attention_config *config,
                                       int ranks, ta_attention_algorithm algorithm, int columns)
{
    ta_attention_prediction p = TA_ATTENTION_PREDICTION_INIT;
    for (int i = 0;; ++i) {
        EXPECT_OK(ta_attention_predict(cluster, config, ranks, i, &p));
        if (p.algorithm == algorithm && p.grid_columns == columns)
            return p;
    }
}

static void expect_seconds(double expected, double got)
{
    if (!(fabs(expected - got) <= 1e-9 * fabs(expected))) {
        char text[100];
        snprintf(text, sizeof text, "expected %.12g seconds, got %.12g", expected, got);
        TEST_FAIL_MESSAGE(text);
    }
}

/* Two ranks, full mask: 10 x 10 scores in a block, of 2 · (8 + 8) operations each. */
static void test_seconds_by_hand(void)
{
    ta_cluster *c =
        make_cluster("local:2x1 device.kernel_seconds=0 device.memory_bytes_per_second=1e18 "
                     "network.latency_seconds=1 network.rank_bytes_per_second=100 "
                     "network.total_bytes_per_second=100 device.flops_per_second=100");
    ta_attention_config config = simple_config();
    double agree = 1 + 0.4, block = 100 * 32 / 100.0;
    double query = 10 * 8 * 4, kv = 2 * query, record = 10 * 10 * 4;
    ta_attention_prediction ring = predict(c, &config, 2, TA_ATTENTION_RING, 0);
    expect_seconds(agree + fmax(1 + kv / 100, block) + block, ring.forward.seconds);
    ta_attention_prediction column = predict(c, &config, 2, TA_ATTENTION_GRID, 1);
    expect_seconds(agree + 2 * (1 + query / 100) + 2 * block, column.forward.seconds);
    ta_attention_prediction row = predict(c, &config, 2, TA_ATTENTION_GRID, 2);
    expect_seconds(agree + 1 + query / 100 + 2 * block + 1 + record / 100, row.forward.seconds);
    ta_attention_prediction overlap = predict(c, &config, 2, TA_ATTENTION_GRID_OVERLAP, 2);
    expect_seconds(agree + fmax(1 + query / 100, block) + block + 1 + record / 100,
                   overlap.forward.seconds);
    expect_seconds(2 * block, overlap.forward.attend_seconds);
    expect_seconds(2 * block * 40 / 16, overlap.backward.attend_seconds); /* 3·8 + 2·8 */
    expect_seconds(row.backward.seconds, overlap.backward.seconds);
    /* Contiguous and causal: the second rank has three of the four quarters, less half of two. */
    config.mask = TA_MASK_CAUSAL;
    config.map.kind = TA_SHARD_CONTIGUOUS;
    ta_attention_prediction contiguous = predict(c, &config, 2, TA_ATTENTION_GRID, 1);
    expect_seconds(1.5 * block, contiguous.forward.attend_seconds);
    config.map.kind = TA_SHARD_ZIGZAG;
    ta_attention_prediction zigzag = predict(c, &config, 2, TA_ATTENTION_GRID, 1);
    expect_seconds(block, zigzag.forward.attend_seconds);
    ta_cluster_destroy(c);
}

static void test_bad_predictions(void)
{
    ta_cluster *c = make_cluster("local:2x1");
    ta_attention_config config = simple_config();
    ta_attention_prediction p = TA_ATTENTION_PREDICTION_INIT;
    EXPECT_ERROR(TA_ERR_INVALID, ta_attention_predict(NULL, &config, 2, 0, &p), "cluster", NULL);
    EXPECT_ERROR(TA_ERR_INVALID, ta_attention_predict(c, NULL, 2, 0, &p), "config", NULL);
    EXPECT_ERROR(TA_ERR_INVALID, ta_attention_predict(c, &config, 3, 0, &p), "ranks is 3", NULL);
    EXPECT_ERROR(TA_ERR_INVALID, ta_attention_predict(c, &config, 2, 0, NULL), "prediction", NULL);
    EXPECT_ERROR(TA_ERR_NOT_FOUND, ta_attention_predict(c, &config, 2, 5, &p), "candidate is 5",
                 NULL);
    config.max_tokens = 0;
    EXPECT_ERROR(TA_ERR_INVALID, ta_attention_predict(c, &config, 2, 0, &p), "max_tokens", NULL);
    config.max_tokens = 1;
    config.dtype = TA_F16;
    c->flops_per_s[1] = 0; /* as in a file that does not say */
    EXPECT_ERROR(TA_ERR_INVALID, ta_attention_predict(c, &config, 2, 0, &p),
                 "device.half_flops_per_second", "local:2x1");
    ta_cluster_destroy(c);
}

/* ---- Choices ------------------------------------------------------------------------------- */

/* The chosen one is the fastest of those that the config leaves open. */
static void expect_fastest(const char *description, ta_attention_config config, int ranks)
{
    ta_cluster *c = make_cluster(description);
    ta_attention_prediction p = TA_ATTENTION_PREDICTION_INIT;
    double chosen = -1, least = INFINITY, ring = INFINITY;
    for (int i = 0; ta_attention_predict(c, &config, ranks, i, &p) == TA_OK; ++i) {
        double seconds = p.forward.seconds + p.backward.seconds;
        TEST_ASSERT_TRUE(p.possible && p.fits);
        if (p.algorithm == TA_ATTENTION_RING)
            ring = seconds;
        else if (seconds < least)
            least = seconds;
        if (p.chosen) {
            TEST_ASSERT_TRUE(chosen < 0);
            chosen = seconds;
        }
    }
    if (ring < (1 - TA_RING_GAIN) * least) /* by less it is no difference */
        least = ring;
    expect_seconds(least, chosen);
    ta_cluster_destroy(c);
}

static void test_the_fastest_is_chosen(void)
{
    ta_attention_config config = simple_config();
    config.k_dim = 128;
    config.dtype = TA_BF16;
    for (int heads = 8; heads <= 64; heads *= 2)
        for (int tokens = 128; tokens <= 1 << 15; tokens *= 8) {
            config.query_heads = heads;
            config.kv_heads = 8;
            config.max_tokens = tokens;
            expect_fastest("a100:16x4", config, 64);
            expect_fastest("h100:64x1", config, 64);
        }
}

/* Which one a config leaves open, and which is taken. */
static ta_attention_prediction chosen_of(const ta_cluster *c, const ta_attention_config *config,
                                         int ranks)
{
    ta_attention_prediction p = TA_ATTENTION_PREDICTION_INIT, chosen = p;
    int count = 0;
    for (int i = 0; ta_attention_predict(c, config, ranks, i, &p) == TA_OK; ++i)
        if (p.chosen) {
            chosen = p;
            ++count;
        }
    TEST_ASSERT_EQUAL_INT(1, count);
    return chosen;
}

/* Where latency is all, the rounds decide: overlap has fewer than the grid without it, both fewer
 * than a ring. Each kind that is asked for is taken, and a grid that is given stays. */
static void test_what_is_asked_for(void)
{
    ta_cluster *c = make_cluster("local:8x1 network.latency_seconds=10 "
                                 "network.rank_bytes_per_second=1e15 "
                                 "network.total_bytes_per_second=1e15");
    ta_attention_config config = simple_config();
    TEST_ASSERT_EQUAL_INT(TA_ATTENTION_AUTO, config.algorithm);
    TEST_ASSERT_EQUAL_INT(TA_ATTENTION_GRID_OVERLAP, chosen_of(c, &config, 4).algorithm);
    for (int algorithm = TA_ATTENTION_GRID; algorithm <= TA_ATTENTION_GRID_OVERLAP; ++algorithm) {
        config.algorithm = (ta_attention_algorithm)algorithm;
        TEST_ASSERT_EQUAL_INT(algorithm, chosen_of(c, &config, 4).algorithm);
    }
    config.algorithm = TA_ATTENTION_AUTO;
    config.grid_rows = 4;
    config.grid_columns = 1;
    TEST_ASSERT_EQUAL_INT(4, chosen_of(c, &config, 4).grid_rows);
    config.grid_rows = 1;
    config.grid_columns = 4;
    TEST_ASSERT_EQUAL_INT(4, chosen_of(c, &config, 4).grid_columns);
    config.grid_rows = config.grid_columns = 0;
    TEST_ASSERT_EQUAL_INT(TA_ATTENTION_GRID, chosen_of(c, &config, 1).algorithm);
    ta_cluster_destroy(c);
}

/* A ring keeps two blocks of K and V, and no grid keeps less: where memory is for it alone, it is
 * taken, and rings are named as what they are. */
static void test_a_ring_where_nothing_else_fits(void)
{
    ta_cluster *c = make_cluster("local:1x5");
    ta_attention_config config = simple_config();
    config.forward_only = 1;
    config.max_tokens = 1000;
    ta_attention_prediction ring = predict(c, &config, 5, TA_ATTENTION_RING, 0);
    TEST_ASSERT_TRUE(chosen_of(c, &config, 5).algorithm != TA_ATTENTION_RING);
    c->memory_bytes = ring.memory_bytes + 1;
    ta_attention_prediction taken = chosen_of(c, &config, 5);
    TEST_ASSERT_EQUAL_INT(TA_ATTENTION_RING, taken.algorithm);
    TEST_ASSERT_TRUE(taken.fits && taken.grid_rows == 0 && taken.grid_columns == 0);
    TEST_ASSERT_TRUE(taken.backward.seconds == 0 && taken.forward.seconds > 0);
    ta_cluster_destroy(c);
}

static void test_names(void)
{
    TEST_ASSERT_EQUAL_STRING("auto", ta_attention_algorithm_name(TA_ATTENTION_AUTO));
    TEST_ASSERT_EQUAL_STRING("grid", ta_attention_algorithm_name(TA_ATTENTION_GRID));
    TEST_ASSERT_EQUAL_STRING("ring", ta_attention_algorithm_name(TA_ATTENTION_RING));
    TEST_ASSERT_EQUAL_STRING("grid overlap",
                             ta_attention_algorithm_name(TA_ATTENTION_GRID_OVERLAP));
    TEST_ASSERT_EQUAL_STRING("unknown", ta_attention_algorithm_name((ta_attention_algorithm)4));
    TEST_ASSERT_EQUAL_STRING("unknown", ta_attention_algorithm_name((ta_attention_algorithm)-1));
}

static ta_status explain_rank(ta_group *group, void *context)
{
    char text[8000], json[16000], few[10];
    size_t needed;
    int candidates;
    ta_device *device;
    ta_attention *plan;
    ta_attention_config config = simple_config();
    (void)context;
    /* Only rank 0 has a cluster. */
    ta_cluster *cluster = make_cluster("local:4x1 network.latency_seconds=10 "
                                       "network.rank_bytes_per_second=1e15 "
                                       "network.total_bytes_per_second=1e15");
    config.cluster = ta_group_rank(group) == 0 ? cluster : NULL;
    TA_TRY(ta_device_open("host", NULL, &device));
    TA_TRY(ta_attention_create(group, device, &config, &plan));
    ta_cluster_destroy(cluster);
    RANK_EXPECT(plan->grid_rows * plan->grid_columns == 4);
    TA_TRY(ta_attention_explain(plan, text, sizeof text, &needed));
    RANK_EXPECT(needed == strlen(text) + 1);
    TA_TRY(ta_attention_explain_json(plan, json, sizeof json, &needed));
    RANK_EXPECT(needed == strlen(json) + 1);
    const char *fault = explanation_fault(json, &candidates);
    if (fault)
        return ta_fail(TA_ERR_SYSTEM, "%s in: %s", fault, json);
    TA_TRY(ta_attention_explain(plan, few, sizeof few, NULL));
    RANK_EXPECT(strlen(few) == 9 && strncmp(few, text, 9) == 0);
    char algorithm[64];
    snprintf(algorithm, sizeof algorithm, "algorithm: %s of %d x %d\n",
             ta_attention_algorithm_name(plan->algorithm), plan->grid_rows, plan->grid_columns);
    RANK_EXPECT(strstr(text, algorithm));
    if (ta_group_rank(group) == 0) {
        RANK_EXPECT(strstr(text, "; chosen\n") && strstr(text, "candidate: ring"));
        RANK_EXPECT(strstr(text, "the least predicted time") && strstr(text, "cluster: local:4x1"));
        RANK_EXPECT(strstr(json, "\"chosen\": true") && strstr(json, "\"name\": \"backward\""));
        RANK_EXPECT(candidates == 7); /* three grids, each without and with overlap, and a ring */
    } else {
        RANK_EXPECT(!strstr(text, "candidate") && candidates == 0);
    }
    ta_attention_destroy(plan);
    ta_device_close(device);
    return TA_OK;
}

static void test_explain_and_follow(void)
{
    EXPECT_OK(ta_group_run_threads(4, NULL, explain_rank, NULL));
    EXPECT_ERROR(TA_ERR_INVALID, ta_attention_explain(NULL, NULL, 0, NULL), "attention", NULL);
    EXPECT_ERROR(TA_ERR_INVALID, ta_attention_explain_json(NULL, NULL, 0, NULL), "attention", NULL);
}

/* Rank 0's cluster decides against what the others would take. Where latency is all, overlap needs
 * two rounds, and a grid without it four. */
static ta_status follow_rank(ta_group *group, void *context)
{
    const ta_cluster *cluster = context;
    ta_device *device;
    ta_attention *alone, *plan;
    ta_attention_config config = simple_config();
    config.forward_only = 1;
    TA_TRY(ta_device_open("host", NULL, &device));
    TA_TRY(ta_attention_create(group, device, &config, &alone));
    config.cluster = ta_group_rank(group) == 0 ? cluster : NULL;
    TA_TRY(ta_attention_create(group, device, &config, &plan));
    RANK_EXPECT(alone->grid_columns == 2 && alone->algorithm == TA_ATTENTION_GRID);
    RANK_EXPECT(plan->grid_columns == 2 && plan->algorithm == TA_ATTENTION_GRID_OVERLAP);
    ta_attention_destroy(plan);
    ta_attention_destroy(alone);
    ta_device_close(device);
    return TA_OK;
}

static void test_rank_0_decides(void)
{
    ta_cluster *cluster = make_cluster("local:4x1 network.latency_seconds=10 "
                                       "network.rank_bytes_per_second=1e15 "
                                       "network.total_bytes_per_second=1e15");
    EXPECT_OK(ta_group_run_threads(4, NULL, follow_rank, cluster));
    ta_cluster_destroy(cluster);
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(test_estimates_as_counted);
    RUN_TEST(test_seconds_by_hand);
    RUN_TEST(test_bad_predictions);
    RUN_TEST(test_the_fastest_is_chosen);
    RUN_TEST(test_what_is_asked_for);
    RUN_TEST(test_a_ring_where_nothing_else_fits);
    RUN_TEST(test_names);
    RUN_TEST(test_explain_and_follow);
    RUN_TEST(test_rank_0_decides);
    return UNITY_END() != 0;
}
