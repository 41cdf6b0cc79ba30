/* Every sentence of ta_attention_explain(), its JSON and every field of ta_attention_predict()
 * (src/attention/explain.c, src/cluster/candidate.c), word for word, as tests/explain/attention.txt
 * keeps them. */
#include "attention/plan.h"
#include "lib/attention_plan.h"
#include "lib/explained.h"

void setUp(void)
{
}

void tearDown(void)
{
}

/* Latency is all, or bytes are. */
#define FAR                                                                                        \
    "h100:4x1 network.latency_seconds=10 network.rank_bytes_per_second=1e15 "                      \
    "network.total_bytes_per_second=1e15"
#define NEAR "h100:1x4 name=\"near\""

typedef struct scene {
    const char *name;
    int ranks;
    const char *cluster; /* its description; NULL: none */
    int forward_only, full, workspace;
    ta_attention_algorithm algorithm;
    int grid_rows, grid_columns;
    int calls; /* as if it had been called forward; once: backward too */
    int brief; /* without the candidates, which another scene has */
} scene;

static const scene scenes[] = {
    {.name = "one rank", .ranks = 1},
    {.name = "one rank, forward only, called twice", .ranks = 1, .forward_only = 1, .calls = 2},
    {.name = "one rank with a cluster", .ranks = 1, .cluster = "h100:1x1"},
    {.name = "the caller's workspace", .ranks = 1, .workspace = 1, .full = 1},
    {.name = "the fewest bytes", .ranks = 4},
    {.name = "a grid is given", .ranks = 4, .grid_rows = 4, .grid_columns = 1, .calls = 1},
    {.name = "a ring is asked for", .ranks = 4, .algorithm = TA_ATTENTION_RING},
    {.name = "overlap is asked for", .ranks = 4, .algorithm = TA_ATTENTION_GRID_OVERLAP},
    {.name = "grid and overlap are asked for",
     .ranks = 4,
     .algorithm = TA_ATTENTION_GRID_OVERLAP,
     .grid_rows = 1,
     .grid_columns = 4},
    {.name = "all is open, far", .ranks = 4, .cluster = FAR},
    {.name = "all is open, near", .ranks = 4, .cluster = NEAR, .forward_only = 1},
    {.name = "a ring is asked for on a cluster",
     .brief = 1,
     .ranks = 4,
     .cluster = FAR,
     .algorithm = TA_ATTENTION_RING},
    {.name = "a grid is given on a cluster",
     .brief = 1,
     .ranks = 4,
     .cluster = FAR,
     .grid_rows = 2,
     .grid_columns = 2},
    {.name = "a kind is asked for on a cluster",
     .brief = 1,
     .ranks = 4,
     .cluster = FAR,
     .algorithm = TA_ATTENTION_GRID},
    {.name = "nothing fits", .ranks = 4, .cluster = "h100:1x4 device.memory_bytes=100000"},
};

static ta_attention_config config_of(const scene *s)
{
    ta_attention_config config = attention_small_config(TA_F16, 64, 300);
    config.query_heads = 8;
    config.kv_heads = 2;
    config.v_dim = 32;
    config.mask = s->full ? TA_MASK_FULL : TA_MASK_CAUSAL;
    config.forward_only = s->forward_only;
    config.algorithm = s->algorithm;
    config.grid_rows = s->grid_rows;
    config.grid_columns = s->grid_columns;
    return config;
}

static ta_status explain(ta_attention *plan, const scene *s, explained *e)
{
    int calls = s->calls;
    if (calls) {
        plan->counted[0].calls = (uint64_t)calls;
        plan->counted[0].ns = 2500 * (uint64_t)calls;
        plan->counted[0].attend_ns = 1500 * (uint64_t)calls;
    }
    if (calls == 1) {
        plan->counted[1].calls = 4;
        plan->counted[1].ns = 4 * 7000;
        plan->counted[1].attend_ns = 4 * 6000;
    }
    TA_TRY(ta_attention_explain(plan, e->text, sizeof e->text, &e->text_bytes));
    TA_TRY(ta_attention_explain_json(plan, e->json, sizeof e->json, &e->json_bytes));
    TA_TRY(explained_check(e, plan->memory_bytes));
    if (s->brief) {
        *strstr(e->text, "candidate: ") = '\0';
        *strstr(e->json, "\n \"cluster\"") = '\0';
        strcat(e->json, "\n");
    }
    return TA_OK;
}

static ta_status run_rank(ta_group *group, void *context)
{
    static _Alignas(256) char memory[8 << 20];
    explained *e = context;
    const scene *s = e->scene;
    ta_attention_config config = config_of(s);
    attention_rank r;
    config.cluster = e->cluster;
    if (s->workspace) {
        config.workspace = memory;
        config.workspace_bytes = sizeof memory;
    }
    TA_TRY(attention_rank_open(&r, group, &config));
    if (ta_group_rank(group) == 0)
        TA_TRY(explain(r.plan, s, e));
    attention_rank_close(&r);
    return TA_OK;
}

static void test_every_sentence(void)
{
    golden g;
    golden_open(&g, "attention.txt");
    for (const scene *s = scenes; s < scenes + sizeof scenes / sizeof *scenes; ++s)
        explained_keep(&g, s, s->name, s->ranks, s->cluster, 0, run_rank);
    golden_close(&g);
}

/* ---- Predictions ---- */

static size_t add_call(char *to, size_t capacity, const char *name, const ta_predicted_call *c)
{
    return (size_t)snprintf(to, capacity,
                            "  %s: %.9e s, attend %.9e s, %d messages sent, %d received, %d bytes "
                            "sent, %d received, %d by all\n",
                            name, c->seconds, c->attend_seconds, (int)c->messages_sent,
                            (int)c->messages_received, (int)c->bytes_sent, (int)c->bytes_received,
                            (int)c->total_bytes_sent);
}

static char text[20000];

static void test_every_prediction(void)
{
    golden g;
    ta_cluster *cluster = explained_cluster(FAR);
    golden_open(&g, "attention_predictions.txt");
    for (int forward_only = 0; forward_only < 2; ++forward_only) {
        scene s = {.forward_only = forward_only};
        ta_attention_config config = config_of(&s);
        ta_attention_prediction p = TA_ATTENTION_PREDICTION_INIT;
        size_t at = 0;
        int candidate = 0;
        for (; ta_attention_predict(cluster, &config, 4, candidate, &p) == TA_OK; ++candidate) {
            at += (size_t)snprintf(text + at, sizeof text - at,
                                   "%s %d x %d: possible %d, chosen %d, fits %d, %.9e bytes\n",
                                   ta_attention_algorithm_name(p.algorithm), p.grid_rows,
                                   p.grid_columns, p.possible, p.chosen, p.fits, p.memory_bytes);
            at += add_call(text + at, sizeof text - at, "forward", &p.forward);
            at += add_call(text + at, sizeof text - at, "backward", &p.backward);
        }
        golden_expect(&g, forward_only ? "forward only" : "forward and backward", text);
        char range[80];
        snprintf(range, sizeof range, "candidate is %d: must be from 0 to %d", candidate,
                 candidate - 1);
        EXPECT_ERROR(TA_ERR_NOT_FOUND, ta_attention_predict(cluster, &config, 4, candidate, &p),
                     range, NULL);
        EXPECT_ERROR(TA_ERR_NOT_FOUND, ta_attention_predict(cluster, &config, 4, -1, &p),
                     "candidate is -1: must be from 0 to ", NULL);
        EXPECT_ERROR(TA_ERR_INVALID, ta_attention_predict(cluster, &config, 0, 0, &p),
                     "ranks is 0: must be from 1 to 4, the cluster's", NULL);
        EXPECT_ERROR(TA_ERR_INVALID, ta_attention_predict(cluster, &config, 5, 0, &p),
                     "ranks is 5: must be from 1 to 4, the cluster's", NULL);
        EXPECT_OK(ta_attention_predict(cluster, &config, 1, 0, &p));
        EXPECT_ERROR(TA_ERR_INVALID, ta_attention_predict(NULL, &config, 4, 0, &p),
                     "cluster is NULL: make one with ta_cluster_create()", NULL);
    }
    golden_close(&g);
    ta_cluster_destroy(cluster);
}

static void test_what_is_refused(void)
{
    size_t needed = 5;
    EXPECT_ERROR(TA_ERR_INVALID, ta_attention_explain(NULL, text, 10, &needed),
                 "attention is NULL: make one with ta_attention_create()", NULL);
    EXPECT_ERROR(TA_ERR_INVALID, ta_attention_explain_json(NULL, text, 10, &needed),
                 "attention is NULL: make one with ta_attention_create()", NULL);
    scene s = {.ranks = 1};
    ta_attention_config config = config_of(&s);
    attention_rank r;
    EXPECT_OK(attention_rank_open(&r, NULL, &config));
    EXPECT_ERROR(TA_ERR_INVALID, ta_attention_explain(r.plan, NULL, 10, &needed), "text is NULL",
                 NULL);
    EXPECT_ERROR(TA_ERR_INVALID, ta_attention_explain_json(r.plan, NULL, 10, &needed),
                 "text is NULL", NULL);
    TEST_ASSERT_EQUAL_size_t(5, needed);
    EXPECT_OK(ta_attention_explain(r.plan, text, sizeof text, NULL));
    EXPECT_OK(ta_attention_explain_json(r.plan, text, sizeof text, NULL));
    attention_rank_close(&r);
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(test_every_sentence);
    RUN_TEST(test_every_prediction);
    RUN_TEST(test_what_is_refused);
    return UNITY_END() != 0;
}
