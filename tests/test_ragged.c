/* Calls of different shapes on one plan (src/decode/call.c): ragged and uniform ones, of all
 * sequences and of some, one after the other, with every algorithm, exchange and placement. Random
 * cases (test_decode.c) have one shape each. */
#include <stdio.h>
#include <string.h>

#include "base/status.h"
#include "device/device.h"
#include "exchange/kinds.h"
#include "lib/case.h"
#include "lib/expect.h"
#include "lib/options.h"

enum { BATCH = 5, QUERY_TOKENS = 7, SHAPES = 6, STEPS = 13 };

void setUp(void)
{
}

void tearDown(void)
{
}

/* Query tokens of the call's sequences; -1: no more of them. All QUERY_TOKENS: a uniform call. */
static const int32_t shapes[SHAPES][BATCH] = {
    {7, 1, 0, 5, 1}, {7, 7, 7, 7, 7}, {1, 1, 1, 1, 1}, {3, -1}, {7, 7, -1}, {0, 0, 2, 0, -1},
};

static decode_case shape_case(const decode_case *base, int shape)
{
    decode_case c = *base;
    int batch = 0;
    c.ragged = false;
    for (; batch < BATCH && shapes[shape][batch] >= 0; ++batch) {
        c.tokens[batch] = shapes[shape][batch];
        c.ragged = c.ragged || c.tokens[batch] != QUERY_TOKENS;
    }
    c.plan.batch = batch;
    c.spare_batch = BATCH - batch;
    return c;
}

static decode_case base_case(uint64_t seed, int ranks)
{
    static const int32_t lengths[BATCH] = {61, 9, 30, 700, 5};
    decode_case c = case_grouped(32, 1);
    c.seed = seed;
    c.ranks = ranks;
    c.plan.query_tokens = QUERY_TOKENS;
    c.plan.map.block = 4;
    memcpy(c.lengths, lengths, sizeof lengths);
    c.k.strides_given = c.v.strides_given = true; /* those of the plan's largest shard */
    c.threads = options_host() ? 2 : 1;
    c.own_workspace = seed % 2;
    c.sinks = seed % 3 == 0;
    return c;
}

typedef struct trial {
    decode_case base;
    case_data data[SHAPES];
    char failure[CASE_MAX_RANKS][400];
} trial;

static ta_status run_rank(ta_group *threads, void *context)
{
    static const int order[STEPS] = {0, 1, 0, 2, 3, 0, 4, 5, 3, 1, 2, 0, 4};
    trial *t = context;
    int rank = ta_group_rank(threads);
    case_shard shards[SHAPES];
    decode_case c[SHAPES];
    ta_device_config config = TA_DEVICE_CONFIG_INIT;
    ta_device *device = NULL;
    ta_group *group = threads;
    ta_plan *plan = NULL;
    void *workspace = NULL;
    config.threads = t->base.threads;
    TA_TRY(
        case_rank_open(threads, options.device, options_host() ? &config : NULL, &device, &group));
    for (int i = 0; i < SHAPES; ++i) {
        c[i] = shape_case(&t->base, i);
        case_shard_make(&c[i], &t->data[i], rank, &shards[i]);
        TA_TRY(case_shard_to_device(&shards[i], device));
    }
    TA_TRY(case_plan_make(&c[1], &t->data[1], group, device, &workspace, &plan));
    for (int i = 0; i < STEPS; ++i) {
        case_shard *shard = &shards[order[i]];
        TA_TRY(case_fill(shard));
        TA_TRY(case_queue(&c[order[i]], plan, shard, NULL));
        TA_TRY(case_copy_all(shard, false));
        const char *wrong = case_check(&c[order[i]], &t->data[order[i]], shard);
        if (wrong && !t->failure[rank][0])
            snprintf(t->failure[rank], sizeof t->failure[rank], "rank %d, step %d, shape %d: %s",
                     rank, i, order[i], wrong);
    }
    ta_plan_destroy(plan);
    if (workspace)
        device->ops->free(device, workspace);
    for (int i = 0; i < SHAPES; ++i)
        case_shard_free(&shards[i]);
    case_rank_close(threads, device, group);
    return TA_OK;
}

static void run_trial(const decode_case *base)
{
    static trial t;
    char line[1024], message[2048];
    memset(&t, 0, sizeof t);
    t.base = *base;
    for (int i = 0; i < SHAPES; ++i) {
        decode_case c = shape_case(base, i);
        case_data_make(&c, &t.data[i]);
    }
    case_describe(base, line, sizeof line);
    ta_status status = ta_group_run_threads(base->ranks, NULL, run_rank, &t);
    snprintf(message, sizeof message, "%s\n    case: %s", ta_last_error(), line);
    TEST_ASSERT_EQUAL_INT_MESSAGE(TA_OK, status, message);
    for (int rank = 0; rank < base->ranks; ++rank) {
        snprintf(message, sizeof message, "%s\n    case: %s", t.failure[rank], line);
        TEST_ASSERT_TRUE_MESSAGE(!t.failure[rank][0], message);
    }
    for (int i = 0; i < SHAPES; ++i) {
        decode_case c = shape_case(base, i);
        case_data_free(&c, &t.data[i]);
    }
}

static void run_placements(decode_case *c)
{
    for (int placements = 0; placements < 9; ++placements) {
        c->plan.query_placement = (ta_placement)(placements % 3);
        c->plan.out_placement = (ta_placement)(placements / 3);
        c->plan.out_root = placements / 3 == TA_PLACE_ROOT ? c->ranks - 1 : 0;
        if (!case_exchange_possible(c->plan.exchange, c->ranks, c->plan.out_placement))
            continue;
        if (options.each && c->plan.query_placement != TA_PLACE_ALL)
            continue; /* such a group can't move the queries of a direct exchange */
        ++c->seed;
        if (options_chosen(c->seed))
            run_trial(c);
    }
}

static void test_tree(void)
{
    for (int ranks = 1; ranks <= 5; ranks += 2)
        for (int kind = TA_EXCHANGE_DOUBLING; kind < TA_EXCHANGE_KINDS; ++kind)
            for (int tile = 0; tile <= 16; tile += 16) {
                if (options_exchange((ta_exchange)kind) != (ta_exchange)kind)
                    continue;
                decode_case c = base_case((uint64_t)(1000 * ranks + 100 * kind + tile), ranks);
                c.plan.algorithm = TA_ALGORITHM_TREE;
                c.plan.exchange = (ta_exchange)kind;
                if (tile)
                    case_reproducible(&c, tile);
                run_placements(&c);
            }
}

static void test_rings(void)
{
    for (int ranks = 2; ranks <= 5; ++ranks)
        for (int ring = TA_ALGORITHM_RING_KV; ring <= TA_ALGORITHM_RING_Q; ++ring) {
            decode_case c = base_case((uint64_t)(9000 + 100 * ranks + ring), ranks);
            c.plan.algorithm = (ta_algorithm)ring;
            run_placements(&c);
        }
}

/* On the host, what becomes of a sequence does not depend on the others of its call. */
static void test_bits_of_a_sequence(void)
{
    bound_worst worst = {0};
    char failure[2048];
    if (!options_host())
        TEST_IGNORE_MESSAGE("on a GPU shares depend on all lengths");
    for (int32_t tokens = 1; tokens <= QUERY_TOKENS; ++tokens) {
        if (!options_chosen((uint64_t)(500 + tokens)))
            continue;
        case_kept all = {0}, alone = {0};
        decode_case c = base_case((uint64_t)(500 + tokens), 1);
        c.lengths[0] = 20000; /* so many that splits are not bounded by it */
        c.ragged = true;
        c.plan.batch = BATCH;
        for (int b = 0; b < BATCH; ++b)
            c.tokens[b] = b == 0 ? tokens : QUERY_TOKENS - b;
        TEST_ASSERT_TRUE_MESSAGE(case_run_keep(&c, &worst, &all, failure, sizeof failure), failure);
        c.plan.batch = 1;
        c.spare_batch = BATCH - 1;
        TEST_ASSERT_TRUE_MESSAGE(case_run_keep(&c, &worst, &alone, failure, sizeof failure),
                                 failure);
        TEST_ASSERT_EQUAL_INT64(tokens * c.plan.query_heads, alone.lse_count);
        TEST_ASSERT_EQUAL_MEMORY(alone.out, all.out, (size_t)alone.out_count * sizeof *alone.out);
        TEST_ASSERT_EQUAL_MEMORY(alone.lse, all.lse, (size_t)alone.lse_count * sizeof *alone.lse);
        case_kept_free(&all);
        case_kept_free(&alone);
    }
}

int main(int argc, char **argv)
{
    if (!options_read(argc, argv))
        return 2;
    if (!options_host() && options.every < 12) /* kernels on a CPU take long */
        options.every = 12;
    UNITY_BEGIN();
    RUN_TEST(test_tree);
    RUN_TEST(test_rings);
    RUN_TEST(test_bits_of_a_sequence);
    return UNITY_END() != 0;
}
