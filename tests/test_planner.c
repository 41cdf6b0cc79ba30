/* The planner (src/decode/planner.c, explain_choice.c): the plan we expect on every cluster of
 * tests/clusters, rank 0's choice, what cannot be asked for, and the explanation. */
#include "decode/planner.h"

#include <math.h>
#include <stdlib.h>

#include <treeattn/cluster.h>

#include "decode/plan.h"
#include "lib/expect.h"
#include "lib/explanation.h"
#include "lib/small_step.h"

void setUp(void)
{
}

void tearDown(void)
{
}

/* ---- tests/clusters/plans.txt ---- */

static ta_placement placement_of(const char *word)
{
    if (strcmp(word, "root") == 0)
        return TA_PLACE_ROOT;
    return strcmp(word, "heads") == 0 ? TA_PLACE_HEADS : TA_PLACE_ALL;
}

static void try_line(const char *folder, const char *line)
{
    char file[64], placement[16], exchange[16], shard[16], path[512], text[700];
    int heads, batch, tokens;
    TEST_ASSERT_EQUAL_INT_MESSAGE(7,
                                  sscanf(line, "%63s %d %d %d %15s %15s %15s", file, &heads, &batch,
                                         &tokens, placement, exchange, shard),
                                  line);
    snprintf(path, sizeof path, "%s/%s.cluster", folder, file);
    ta_cluster *cluster;
    EXPECT_OK(ta_cluster_create(path, &cluster));
    ta_problem problem = {.batch = batch,
                          .query_tokens = 1,
                          .rows = batch,
                          .query_heads = heads,
                          .kv_heads = heads,
                          .k_dim = 128,
                          .v_dim = 128,
                          .kv_dtype = TA_BF16,
                          .query_dtype = TA_BF16,
                          .max_tokens = tokens};
    ta_step_shape shape = {.problem = &problem,
                           .cluster = cluster,
                           .ranks = cluster->ranks,
                           .out_placement = placement_of(placement),
                           .shares_memory = ta_cluster_shares_memory(cluster),
                           .shares_gpus = strcmp(cluster->device, "host") != 0};
    ta_choice choice = {0};
    EXPECT_OK(ta_planner_choose(&shape, TA_ALGORITHM_AUTO, TA_EXCHANGE_AUTO, &choice));
    const char *advice = ta_choice_one_device_is_cheaper(&choice) ? "do-not-shard" : "shard";
    const ta_candidate *chosen = ta_candidates_chosen(&choice.candidates);
    const char *got = chosen->is_ring ? chosen->algorithm_name + 5 : chosen->exchange_name;
    snprintf(text, sizeof text, "got %s (%.1f us), %s (one device: %.1f us) for: %s", got,
             ta_candidate_seconds(chosen) * 1e6, advice,
             ta_candidate_seconds(&choice.candidates.list[TA_WAY_ONE_DEVICE]) * 1e6, line);
    TEST_ASSERT_EQUAL_STRING_MESSAGE(exchange, got, text);
    TEST_ASSERT_EQUAL_STRING_MESSAGE(shard, advice, text);
    ta_choice_free(&choice);
    ta_cluster_destroy(cluster);
}

static void test_plans_of_known_clusters(void)
{
    const char *folder = getenv("TA_TEST_CLUSTERS");
    char path[512], line[256];
    int lines = 0;
    if (!folder)
        folder = "tests/clusters";
    snprintf(path, sizeof path, "%s/plans.txt", folder);
    FILE *file = fopen(path, "r");
    TEST_ASSERT_NOT_NULL_MESSAGE(file, path);
    while (fgets(line, sizeof line, file))
        if (line[0] != '#') {
            try_line(folder, line);
            ++lines;
        }
    fclose(file);
    TEST_ASSERT_TRUE(lines >= 30);
}

/* ---- Over a group ---- */

static void says(const char *text, const char *wanted)
{
    if (!strstr(text, wanted)) {
        char message[9000];
        snprintf(message, sizeof message, "no '%s' in:\n%s", wanted, text);
        TEST_FAIL_MESSAGE(message);
    }
}

typedef struct trial {
    const ta_cluster *cluster; /* rank 0's; the others have none, or the same */
    int known, shared_prefixes;
    ta_cluster *made;
    ta_exchange wanted, other_wanted;
    ta_algorithm algorithm;
    ta_exchange got[8];
    ta_algorithm got_algorithm[8];
    float results[8][SMALL_ROWS * SMALL_V_DIM];
    char text[8000], json[16000]; /* rank 0's */
} trial;

static ta_status explain_rank_0(const ta_plan *plan, trial *t)
{
    size_t text_bytes, json_bytes;
    TA_TRY(ta_explain(plan, t->text, sizeof t->text, &text_bytes));
    TA_TRY(ta_explain_json(plan, t->json, sizeof t->json, &json_bytes));
    RANK_EXPECT(text_bytes == strlen(t->text) + 1);
    RANK_EXPECT(json_bytes == strlen(t->json) + 1);
    return TA_OK;
}

static ta_status plan_rank(ta_group *group, void *context)
{
    trial *t = context;
    ta_device *device;
    ta_plan *plan = NULL;
    small_step step;
    int rank = ta_group_rank(group);
    TA_TRY(ta_device_open("host", NULL, &device));
    small_step_init(&step, rank, ta_group_size(group));
    step.config.cluster = rank == 0 || t->known ? t->cluster : NULL;
    step.config.algorithm = t->algorithm;
    step.config.shared_prefixes = t->shared_prefixes;
    step.config.exchange = rank == 0 ? t->wanted : t->other_wanted;
    ta_status status = ta_plan_create(group, device, &step.config, &plan);
    if (status == TA_OK) {
        t->got[rank] = plan->choice.exchange;
        t->got_algorithm[rank] = plan->algorithm;
        status = small_step_decode(&step, plan);
        memcpy(t->results[rank], step.results, sizeof step.results);
        RANK_EXPECT(status != TA_OK || small_step_right(&step));
    }
    if (status == TA_OK && rank == 0) { /* whose cluster decides */
        size_t bytes = 0;
        TA_TRY(ta_plan_workspace(group, device, &step.config, &bytes));
        if (plan->choice.exchange != TA_EXCHANGE_DIRECT || t->wanted == TA_EXCHANGE_DIRECT)
            RANK_EXPECT(bytes == plan->memory_bytes);
        else /* of what might be taken in its place, which has messages */
            RANK_EXPECT(bytes > plan->memory_bytes);
    }
    if (status == TA_OK && rank == 0)
        status = explain_rank_0(plan, t);
    ta_plan_destroy(plan);
    ta_device_close(device);
    return status;
}

/* Ranks of a node do not read each other's memory, as far as it says. */
static ta_cluster *slow_network(const char *nodes)
{
    char description[200];
    ta_cluster *cluster;
    snprintf(description, sizeof description,
             "local:%s node.signal_seconds=0 network.latency_seconds=0.01 "
             "network.rank_bytes_per_second=1e6 "
             "network.total_bytes_per_second=1e6",
             nodes);
    EXPECT_OK(ta_cluster_create(description, &cluster));
    return cluster;
}

/* Zeros; free with trial_free(), with the cluster too. */
static trial *trial_on(ta_cluster *cluster)
{
    trial *t = calloc(1, sizeof *t);
    t->cluster = t->made = cluster;
    return t;
}

static void trial_free(trial *t)
{
    ta_cluster_destroy(t->made);
    free(t);
}

static void test_all_ranks_follow_rank_0(void)
{
    trial *t = trial_on(slow_network("2x4"));
    EXPECT_OK(ta_group_run_threads(8, NULL, plan_rank, t));
    for (int rank = 0; rank < 8; ++rank)
        TEST_ASSERT_EQUAL_INT(TA_EXCHANGE_TWO_LEVEL, t->got[rank]);
    t->cluster = NULL;
    EXPECT_OK(ta_group_run_threads(8, NULL, plan_rank, t));
    for (int rank = 0; rank < 8; ++rank)
        TEST_ASSERT_EQUAL_INT(TA_EXCHANGE_DOUBLING, t->got[rank]);
    trial_free(t);
}

/* Where the ranks are, rank 0 tells with what they are together in, on each level. */
static void test_levels_of_rank_0(void)
{
    const char *folder = getenv("TA_TEST_CLUSTERS");
    char path[512];
    ta_cluster *cluster;
    EXPECT_OK(ta_cluster_create("local:2x2x2 node.signal_seconds=0 rack.rank_bytes_per_second=1e3 "
                                "rack.total_bytes_per_second=1e3",
                                &cluster));
    trial *t = trial_on(cluster);
    EXPECT_OK(ta_group_run_threads(8, NULL, plan_rank, t));
    for (int rank = 0; rank < 8; ++rank)
        TEST_ASSERT_EQUAL_INT(TA_EXCHANGE_MULTI_LEVEL, t->got[rank]);
    says(t->text, "these ranks on 4 nodes in 2 racks\n");
    trial_free(t);
    snprintf(path, sizeof path, "%s/two-packages.cluster", folder ? folder : "tests/clusters");
    EXPECT_OK(ta_cluster_create(path, &cluster));
    t = trial_on(cluster);
    t->known = 1;
    t->wanted = t->other_wanted = TA_EXCHANGE_TWO_LEVEL;
    EXPECT_OK(ta_group_run_threads(8, NULL, plan_rank, t));
    says(t->text, "these ranks in 2 packages of one node\n");
    trial_free(t);
}

/* Slow links that three ranks share, where latencies do not count. */
static void test_a_ring_where_it_is_cheaper(void)
{
    ta_cluster *cluster;
    EXPECT_OK(ta_cluster_create("local:1x3 node.signal_seconds=0 node.latency_seconds=1e-9 "
                                "node.rank_bytes_per_second=1e3 node.total_bytes_per_second=2e3",
                                &cluster));
    trial *auto_trial = trial_on(cluster), *t = trial_on(NULL);
    t->cluster = cluster;
    EXPECT_OK(ta_group_run_threads(3, NULL, plan_rank, auto_trial));
    t->algorithm = TA_ALGORITHM_RING_Q;
    EXPECT_OK(ta_group_run_threads(3, NULL, plan_rank, t));
    for (int rank = 0; rank < 3; ++rank) {
        TEST_ASSERT_EQUAL_INT(TA_ALGORITHM_RING_Q, auto_trial->got_algorithm[rank]);
        TEST_ASSERT_EQUAL_MEMORY(t->results[rank], auto_trial->results[rank],
                                 sizeof t->results[rank]);
    }
    says(auto_trial->text, "algorithm: ring pass-Q\nwhy: the least predicted time of all ways");
    says(auto_trial->json, "{\"algorithm\": \"ring pass-Q\", \"exchange\": \"\"");
    says(auto_trial->json, "\"why\": \"the least predicted time of all ways");
    says(t->text, "algorithm: ring pass-Q\nwhy: the config asks for it");
    t->algorithm = TA_ALGORITHM_TREE;
    EXPECT_OK(ta_group_run_threads(3, NULL, plan_rank, t));
    TEST_ASSERT_EQUAL_INT(TA_ALGORITHM_TREE, t->got_algorithm[2]);
    says(t->text, "us, but the config asks for the tree\n");
    t->algorithm = TA_ALGORITHM_AUTO;
    t->wanted = t->other_wanted = TA_EXCHANGE_SCATTER;
    EXPECT_OK(ta_group_run_threads(3, NULL, plan_rank, t));
    TEST_ASSERT_EQUAL_INT(TA_ALGORITHM_TREE, t->got_algorithm[1]);
    says(t->text, "us, but the config asks for an exchange\n");
    trial_free(auto_trial);
    trial_free(t);
}

/* Where ranks read each other's memory, inside a node and in each of two. */
static void test_direct_where_it_is_cheapest(void)
{
    static const char *const nodes[] = {"local:1x4", "local:2x2 network.rank_bytes_per_second=1e6 "
                                                     "network.total_bytes_per_second=1e6"};
    for (int i = 0; i < 2; ++i) {
        ta_cluster *cluster;
        EXPECT_OK(ta_cluster_create(nodes[i], &cluster));
        trial *t = trial_on(cluster);
        EXPECT_OK(ta_group_run_threads(4, NULL, plan_rank, t));
        for (int rank = 0; rank < 4; ++rank)
            TEST_ASSERT_EQUAL_INT(TA_EXCHANGE_DIRECT, t->got[rank]);
        says(t->text, "exchange: direct, each rank reads the others' partials where they are");
        says(t->text, i ? "between nodes" : "signal and read partials");
        trial_free(t);
    }
}

/* Rings are compared, and lose, where a tree has fewer rounds. */
static void test_the_tree_where_it_is_cheaper(void)
{
    trial *t = trial_on(slow_network("2x4"));
    EXPECT_OK(ta_group_run_threads(8, NULL, plan_rank, t));
    TEST_ASSERT_EQUAL_INT(TA_ALGORITHM_TREE, t->got_algorithm[7]);
    says(t->text, "algorithm: tree\nwhy: K and V stay in place, and what moves does not grow with "
                  "the tokens; ring pass-Q would take ");
    says(t->text, "candidate: ring pass-Q: ");
    t->shared_prefixes = 1; /* with which the other ring is none */
    EXPECT_OK(ta_group_run_threads(8, NULL, plan_rank, t));
    says(t->text, "the tokens; ring pass-Q would take ");
    trial_free(t);
}

static void test_every_exchange_can_be_asked_for(void)
{
    trial *t = trial_on(slow_network("3x2"));
    for (int kind = TA_EXCHANGE_DOUBLING; kind < TA_EXCHANGE_KINDS; ++kind) {
        t->wanted = (ta_exchange)kind;
        t->other_wanted = (ta_exchange)kind;
        if (kind == TA_EXCHANGE_TWO_LEVEL || kind == TA_EXCHANGE_MULTI_LEVEL)
            continue; /* which the others could not have asked for */
        EXPECT_OK(ta_group_run_threads(5, NULL, plan_rank, t));
        for (int rank = 0; rank < 5; ++rank)
            TEST_ASSERT_EQUAL_INT(kind, t->got[rank]);
        TEST_ASSERT_NOT_NULL(strstr(t->text, "why this exchange: the config asks for it"));
    }
    trial_free(t);
}

static void test_what_cannot_be_asked_for(void)
{
    trial *t = trial_on(slow_network("1x2"));
    t->cluster = NULL;
    t->wanted = TA_EXCHANGE_TWO_LEVEL;
    EXPECT_ERROR(TA_ERR_INVALID, ta_group_run_threads(2, NULL, plan_rank, t),
                 "config.exchange is TA_EXCHANGE_TWO_LEVEL", "config.cluster");
    t->wanted = (ta_exchange)TA_EXCHANGE_KINDS;
    char is[40], range[40];
    snprintf(is, sizeof is, "config.exchange is %d", TA_EXCHANGE_KINDS);
    snprintf(range, sizeof range, "from 0 to %d", TA_EXCHANGE_KINDS - 1);
    EXPECT_ERROR(TA_ERR_INVALID, ta_group_run_threads(2, NULL, plan_rank, t), is, range);
    t->wanted = TA_EXCHANGE_AUTO;
    t->cluster = t->made;
    EXPECT_ERROR(TA_ERR_INVALID, ta_group_run_threads(3, NULL, plan_rank, t),
                 "config.cluster has 2 ranks", "the group's 3");
    t->cluster = NULL;
    t->other_wanted = TA_EXCHANGE_SCATTER;
    EXPECT_ERROR(TA_ERR_MISMATCH, ta_group_run_threads(2, NULL, plan_rank, t),
                 "config.exchange is 3 on rank 1 and 0 on rank 0", NULL);
    trial_free(t);
    ta_problem problem = {.query_heads = 1, .batch = 1, .query_tokens = 1, .rows = 1};
    ta_step_shape shape = {.problem = &problem, .ranks = 2, .out_placement = TA_PLACE_ROOT};
    ta_choice choice = {0};
    EXPECT_ERROR(TA_ERR_INVALID,
                 ta_planner_choose(&shape, TA_ALGORITHM_AUTO, TA_EXCHANGE_DOUBLING, &choice),
                 "TA_EXCHANGE_DOUBLING", "TA_EXCHANGE_BINOMIAL");
    ta_choice_free(&choice);
    shape.device_memory = 1;
    EXPECT_ERROR(TA_ERR_UNSUPPORTED,
                 ta_planner_choose(&shape, TA_ALGORITHM_AUTO, TA_EXCHANGE_ALL_REDUCE, &choice),
                 "TA_EXCHANGE_ALL_REDUCE", "device memory");
    ta_choice_free(&choice);
    EXPECT_ERROR(TA_ERR_UNSUPPORTED,
                 ta_planner_choose(&shape, TA_ALGORITHM_AUTO, TA_EXCHANGE_DIRECT, &choice),
                 "TA_EXCHANGE_DIRECT", "GPUs of one host");
    ta_choice_free(&choice);
}

/* ---- The explanation ---- */

static void check_json(const char *json, int expected)
{
    int candidates;
    const char *fault = explanation_fault(json, &candidates);
    TEST_ASSERT_NULL_MESSAGE(fault, fault);
    TEST_ASSERT_EQUAL_INT(expected, candidates);
}

static void test_explanation_with_a_cluster(void)
{
    static const char *const in_text[] = {"exchange: two-level, ",
                                          "why this exchange: the least predicted time",
                                          "cluster: a\"b\\c, these ranks on 2 nodes",
                                          "candidate: tree doubling: ",
                                          "between nodes ",
                                          "; chosen\n",
                                          "candidate: ring pass-KV: ",
                                          "candidate: one device: ",
                                          "advice: do not shard: one device holds the "};
    static const char *const in_json[] = {
        "\"exchange\": \"two-level\"", "\"cluster\": \"a\\\"b\\\\c\"",
        "\"one_device_is_cheaper\": true", "{\"name\": \"between nodes\", \"microseconds\": "};
    trial *t = trial_on(slow_network("2x2 name=a\"b\\c"));
    EXPECT_OK(ta_group_run_threads(4, NULL, plan_rank, t));
    for (size_t i = 0; i < sizeof in_text / sizeof *in_text; ++i)
        says(t->text, in_text[i]);
    for (size_t i = 0; i < sizeof in_json / sizeof *in_json; ++i)
        says(t->json, in_json[i]);
    check_json(t->json, 9); /* six exchanges, two rings and one device */
    t->cluster = NULL;
    EXPECT_OK(ta_group_run_threads(4, NULL, plan_rank, t));
    says(t->text, "exchange: doubling, ");
    says(t->text, "why this exchange: the default; no cluster was given");
    says(t->json, "\"why\": \"the default; no cluster was given\", \"weights\": \"exact\"}");
    check_json(t->json, 0);
    TEST_ASSERT_NULL(strstr(t->text, "candidate: "));
    trial_free(t);
    EXPECT_ERROR(TA_ERR_INVALID, ta_explain_json(NULL, NULL, 0, NULL), "plan is NULL", NULL);
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(test_plans_of_known_clusters);
    RUN_TEST(test_all_ranks_follow_rank_0);
    RUN_TEST(test_levels_of_rank_0);
    RUN_TEST(test_a_ring_where_it_is_cheaper);
    RUN_TEST(test_the_tree_where_it_is_cheaper);
    RUN_TEST(test_direct_where_it_is_cheapest);
    RUN_TEST(test_every_exchange_can_be_asked_for);
    RUN_TEST(test_what_cannot_be_asked_for);
    RUN_TEST(test_explanation_with_a_cluster);
    return UNITY_END() != 0;
}
