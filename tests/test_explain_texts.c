/* Every sentence that ta_explain() and ta_explain_json() have (src/decode/explain.c,
 * explain_choice.c, src/cluster/candidate.c), word for word, as tests/explain/decode.txt keeps
 * them. Cases that no config reaches on this machine are made by hand from a plan. */
#include "decode/plan.h"
#include "decode/step.h"
#include "lib/explained.h"
#include "lib/small_step.h"

void setUp(void)
{
}

void tearDown(void)
{
}

typedef struct scene {
    const char *name;
    int ranks;
    const char *cluster;                 /* its description; NULL: none */
    void (*ask)(ta_plan_config *config); /* for it; NULL: nothing more */
    void (*change)(ta_plan *plan);       /* the plan of rank 0 before it is explained; NULL */
    int steps;                           /* that are decoded before */
    int workspace;                       /* the caller's */
} scene;

/* ---- What a config asks for ---- */

#define ASK(name, asked)                                                                           \
    static void name(ta_plan_config *config)                                                       \
    {                                                                                              \
        asked;                                                                                     \
    }
static const float numbers[] = {1, 2, 3, 4};
ASK(ask_all, config->query_dtype = TA_BF16; config->out_dtype = TA_F16; config->mask = TA_MASK_FULL;
    config->window = 77; config->scale = 0.375f; config->softcap = 30.5f;
    config->alibi_slopes = config->sinks = numbers; config->map.block = 19;
    config->max_tokens = 123)
ASK(ask_bounds, config->map.kind = TA_SHARD_CONTIGUOUS; config->map.block = 0)
ASK(ask_block, config->map.kind = TA_SHARD_CONTIGUOUS; config->map.block = 9;
    config->query_placement = TA_PLACE_ROOT; config->query_root = 1)
ASK(ask_root, config->query_placement = TA_PLACE_HEADS; config->out_placement = TA_PLACE_ROOT;
    config->out_root = 2)
ASK(ask_heads, config->out_placement = TA_PLACE_HEADS)
ASK(ask_tree, config->algorithm = TA_ALGORITHM_TREE)
ASK(ask_ring_kv, config->algorithm = TA_ALGORITHM_RING_KV)
ASK(ask_ring_kv_token, config->algorithm = TA_ALGORITHM_RING_KV; config->max_tokens = 1;
    config->out_placement = TA_PLACE_HEADS)
ASK(ask_ring_q, config->algorithm = TA_ALGORITHM_RING_Q)
ASK(ask_ring_q_heads, config->algorithm = TA_ALGORITHM_RING_Q;
    config->query_placement = config->out_placement = TA_PLACE_HEADS)
ASK(ask_binomial, config->exchange = TA_EXCHANGE_BINOMIAL)
ASK(ask_scatter, config->exchange = TA_EXCHANGE_SCATTER)
ASK(ask_two_level, config->exchange = TA_EXCHANGE_TWO_LEVEL)
ASK(ask_all_gather, config->exchange = TA_EXCHANGE_ALL_GATHER)
ASK(ask_all_reduce, config->exchange = TA_EXCHANGE_ALL_REDUCE)
ASK(ask_tallies, config->exchange = TA_EXCHANGE_ALL_REDUCE; config->reproducible_tile = 64;
    config->map.block = 64; config->max_tokens = 128)
ASK(ask_tallies_doubling, config->reproducible_tile = 64; config->map.block = 64;
    config->max_tokens = 128)
ASK(ask_rounded, config->weights = TA_WEIGHTS_ROUNDED; config->kv_dtype = TA_BF16)
ASK(ask_chunks, config->batch = 32; config->query_heads = config->kv_heads = 64; config->k_dim = 8;
    config->v_dim = 128)
ASK(ask_much, config->max_tokens = 500000000)

/* ---- What is made by hand ---- */

static ta_candidate *way(ta_plan *plan, int number)
{
    return &plan->choice.candidates.list[number];
}

static void ring_is_faster(ta_plan *plan)
{
    way(plan, TA_WAY_RING_Q)->calls[0].seconds = 1.5e-6;
}

static void faster_ring_is_impossible(ta_plan *plan)
{
    ring_is_faster(plan);
    way(plan, TA_WAY_RING_Q)->possible = 0;
}

static void faster_ring_does_not_fit(ta_plan *plan)
{
    ring_is_faster(plan);
    way(plan, TA_WAY_RING_Q)->fits = way(plan, TA_WAY_RING_KV)->fits = 0;
    way(plan, TA_WAY_RING_Q)->memory_bytes = 123456789;
}

/* The other ring is named where it is the faster one. */
static void other_ring_is_faster(ta_plan *plan)
{
    way(plan, TA_WAY_RING_KV)->calls[0].seconds = 2.5e-6;
    way(plan, TA_WAY_RING_Q)->calls[0].seconds = 3e-6;
}

static void one_device_is_slower(ta_plan *plan)
{
    way(plan, TA_WAY_ONE_DEVICE)->calls[0].seconds = 0.25;
}

static void one_device_is_too_small(ta_plan *plan)
{
    one_device_is_slower(plan);
    way(plan, TA_WAY_ONE_DEVICE)->fits = 0;
}

static void all_are_too_small(ta_plan *plan)
{
    ta_candidate *chosen = way(plan, plan->choice.candidates.chosen);
    one_device_is_too_small(plan);
    chosen->fits = 0;
    chosen->memory_bytes = 8e10;
}

static void counted_a_step(ta_plan *plan)
{
    plan->replays = 1;
    plan->steps = 12;
    plan->last_step.device = (ta_device_stats){
        .launches = 3, .copies = 4, .waits = 5, .bytes_to_device = 6, .bytes_from_device = 7};
    plan->last_step.group = (ta_group_stats){
        .messages_sent = 8, .bytes_sent = 9, .messages_received = 10, .bytes_received = 11};
}

static ta_device other_device;
static void through_the_host(ta_plan *plan)
{
    plan->job.device = &other_device;
    plan->staging.bytes = 4321;
}

/* Bytes are slow there, and a ring sends the fewest. */
#define SLOW                                                                                       \
    "h100:1x3 node.latency_seconds=1e-9 node.rank_bytes_per_second=1e3 "                           \
    "node.total_bytes_per_second=2e3"

static const scene scenes[] = {
    {.name = "one rank", .ranks = 1},
    {.name = "all that can be asked for", .ranks = 1, .ask = ask_all, .workspace = 1},
    {.name = "contiguous on one rank", .ranks = 1, .ask = ask_bounds, .steps = 3},
    {.name = "bounds with each call", .ranks = 3, .ask = ask_bounds},
    {.name = "contiguous, the query on one rank", .ranks = 4, .ask = ask_block},
    {.name = "from heads to one rank, two steps", .ranks = 5, .ask = ask_root, .steps = 2},
    {.name = "output scattered", .ranks = 4, .ask = ask_heads},
    {.name = "ring pass-KV", .ranks = 3, .ask = ask_ring_kv},
    {.name = "ring pass-KV of one token", .ranks = 3, .ask = ask_ring_kv_token},
    {.name = "ring pass-KV of one rank", .ranks = 1, .ask = ask_ring_kv},
    {.name = "ring pass-Q", .ranks = 4, .ask = ask_ring_q},
    {.name = "ring pass-Q of scattered queries", .ranks = 4, .ask = ask_ring_q_heads},
    {.name = "binomial", .ranks = 4, .ask = ask_binomial},
    {.name = "scatter", .ranks = 4, .ask = ask_scatter},
    {.name = "two levels", .ranks = 4, .cluster = "h100:2x2", .ask = ask_two_level},
    {.name = "all-gather", .ranks = 4, .ask = ask_all_gather},
    {.name = "all-reduce", .ranks = 4, .ask = ask_all_reduce},
    {.name = "all-reduce of tallies", .ranks = 2, .ask = ask_tallies},
    {.name = "doubling of tallies", .ranks = 2, .ask = ask_tallies_doubling},
    {.name = "rounded weights", .ranks = 1, .ask = ask_rounded},
    {.name = "chunks", .ranks = 2, .ask = ask_chunks},
    {.name = "a cluster of one rank", .ranks = 1, .cluster = "h100:1x1"},
    {.name = "a node", .ranks = 4, .cluster = "h100:1x4"},
    {.name = "nodes, output scattered", .ranks = 4, .cluster = "h100:2x2", .ask = ask_heads},
    {.name = "packages", .ranks = 8, .cluster = "FOLDER/two-packages.cluster"},
    {.name = "a ring on a cluster", .ranks = 3, .cluster = SLOW, .ask = ask_ring_q},
    {.name = "a ring that was chosen", .ranks = 3, .cluster = SLOW},
    {.name = "the tree is asked for",
     .ranks = 2,
     .cluster = "h100:1x2",
     .ask = ask_tree,
     .change = ring_is_faster},
    {.name = "an exchange is asked for",
     .ranks = 2,
     .cluster = "h100:1x2",
     .ask = ask_scatter,
     .change = ring_is_faster},
    {.name = "a ring is hardly faster",
     .ranks = 2,
     .cluster = "h100:1x2",
     .change = ring_is_faster},
    {.name = "a faster ring does not fit",
     .ranks = 2,
     .cluster = "h100:1x2",
     .change = faster_ring_does_not_fit},
    {.name = "a faster ring is impossible",
     .ranks = 2,
     .cluster = "h100:1x2",
     .change = faster_ring_is_impossible},
    {.name = "the other ring is faster",
     .ranks = 2,
     .cluster = "h100:1x2",
     .change = other_ring_is_faster},
    {.name = "one device is slower",
     .ranks = 2,
     .cluster = "h100:1x2",
     .change = one_device_is_slower},
    {.name = "one device is too small",
     .ranks = 2,
     .cluster = "h100:1x2",
     .change = one_device_is_too_small},
    {.name = "all ranks are too small",
     .ranks = 2,
     .cluster = "h100:1x2",
     .change = all_are_too_small},
    {.name = "a rank is too small", .ranks = 1, .cluster = "h100:1x1", .ask = ask_much},
    {.name = "a replayed step", .ranks = 1, .change = counted_a_step},
    {.name = "staging", .ranks = 2, .change = through_the_host},
};

/* ---- Running them ---- */

static ta_status explain(ta_plan *plan, const scene *s, explained *e)
{
    if (s->change)
        s->change(plan);
    TA_TRY(ta_explain(plan, e->text, sizeof e->text, &e->text_bytes));
    TA_TRY(ta_explain_json(plan, e->json, sizeof e->json, &e->json_bytes));
    TA_TRY(explained_check(e, plan->memory_bytes));
    return TA_OK;
}

static ta_status run_rank(ta_group *group, void *context)
{
    explained *e = context;
    const scene *s = e->scene;
    static _Alignas(256) char memory[1 << 20];
    ta_device_config plain = TA_DEVICE_CONFIG_INIT;
    ta_device *device;
    ta_plan *plan;
    small_step step;
    small_step_init(&step, ta_group_rank(group), s->ranks);
    step.config.cluster = e->cluster;
    if (s->ask)
        s->ask(&step.config);
    if (s->workspace) {
        step.config.workspace = memory;
        step.config.workspace_bytes = sizeof memory;
    }
    plain.threads = 1;
    plain.simd = "scalar";
    TA_TRY(ta_device_open("host", &plain, &device));
    TA_TRY(ta_plan_create(group, device, &step.config, &plan));
    for (int i = 0; i < s->steps; ++i)
        TA_TRY(small_step_decode(&step, plan));
    ta_device *job_device = plan->job.device;
    if (ta_group_rank(group) == 0)
        TA_TRY(explain(plan, s, e));
    plan->job.device = job_device;
    plan->replays = 0;
    ta_plan_destroy(plan);
    ta_device_close(device);
    return TA_OK;
}

static void test_every_sentence(void)
{
    golden g;
    golden_open(&g, "decode.txt");
    for (const scene *s = scenes; s < scenes + sizeof scenes / sizeof *scenes; ++s)
        explained_keep(&g, s, s->name, s->ranks, s->cluster, s->change != NULL, run_rank);
    golden_close(&g);
}

static void test_what_is_refused(void)
{
    char text[4000];
    size_t needed = 5;
    small_step step;
    ta_device *device;
    ta_plan *plan;
    EXPECT_ERROR(TA_ERR_INVALID, ta_explain(NULL, text, 10, &needed),
                 "plan is NULL: make one with ta_plan_create()", NULL);
    EXPECT_ERROR(TA_ERR_INVALID, ta_explain_json(NULL, text, 10, &needed),
                 "plan is NULL: make one with ta_plan_create()", NULL);
    small_step_init(&step, 0, 1);
    EXPECT_OK(ta_device_open("host", NULL, &device));
    EXPECT_OK(ta_plan_create(NULL, device, &step.config, &plan));
    EXPECT_ERROR(TA_ERR_INVALID, ta_explain(plan, NULL, 10, &needed), "text is NULL", NULL);
    EXPECT_ERROR(TA_ERR_INVALID, ta_explain_json(plan, NULL, 10, &needed), "text is NULL", NULL);
    TEST_ASSERT_EQUAL_size_t(5, needed);
    EXPECT_OK(ta_explain_json(plan, text, sizeof text, NULL));
    ta_plan_destroy(plan);
    ta_device_close(device);
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(test_every_sentence);
    RUN_TEST(test_what_is_refused);
    return UNITY_END() != 0;
}
