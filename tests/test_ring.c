/* What the algorithms move and hold, as it is counted by the group and the device, beside the
 * paper's formulas. Units: the formulas count elements; b sequences, t tokens of each on a rank, d
 * elements of a token's K or V over its own KV heads, p ranks. Elements of K and V have 2 bytes
 * here, those of partials 4.
 *
 *     memory    tree 2btd, ring 4btd: K and V themselves, and one more shard that goes around
 *     volume    pass-KV: 2btd sent by each rank in each of p − 1 hops;
 *               all-reduce: 2(p − 1)/p · (bd + 2b·n_h)
 */
#include <stdlib.h>
#include <string.h>

#include "device/device.h"
#include "lib/expect.h"
#include "lib/plan_config.h"

enum { HEADS = 16, KV_HEADS = 8, DIM = 64, BATCH = 2, MAX_RANKS = 8 };

void setUp(void)
{
}

void tearDown(void)
{
}

/* A step with `tokens` tokens of each sequence on each rank, and what came of it. */
typedef struct trial {
    ta_algorithm algorithm;
    ta_placement placement;
    int tokens;
    ta_group_stats step[MAX_RANKS];
    uint64_t most_bytes[MAX_RANKS]; /* of device memory */
} trial;

static size_t kv_bytes(const trial *t)
{
    return (size_t)2 * BATCH * (size_t)t->tokens * KV_HEADS * DIM * 2;
}

static size_t partial_bytes(void)
{
    return (size_t)BATCH * HEADS * (DIM + 2) * 4;
}

static void subtract(ta_group_stats *from, const ta_group_stats *before)
{
    from->messages_sent -= before->messages_sent;
    from->messages_received -= before->messages_received;
    from->bytes_sent -= before->bytes_sent;
    from->bytes_received -= before->bytes_received;
}

static ta_plan_config make_config(const trial *t)
{
    ta_plan_config config = plan_config(TA_BF16, BATCH, HEADS, DIM, t->tokens);
    config.kv_heads = KV_HEADS;
    config.map.block = t->tokens;
    config.out_placement = t->placement;
    config.algorithm = t->algorithm;
    return config;
}

static ta_status decode_rank(ta_group *group, void *context)
{
    trial *t = context;
    int rank = ta_group_rank(group);
    int32_t lengths[BATCH];
    uint16_t q[BATCH * HEADS * DIM] = {0}, out[BATCH * HEADS * DIM];
    ta_device_config one_thread = TA_DEVICE_CONFIG_INIT;
    ta_device *device;
    ta_plan *plan;
    void *cache;
    ta_plan_config config = make_config(t);
    one_thread.threads = 1;
    TA_TRY(ta_device_open("host", &one_thread, &device));
    TA_TRY(ta_device_alloc(device, kv_bytes(t), &cache));
    memset(cache, 0, kv_bytes(t));
    TA_TRY(ta_plan_create(group, device, &config, &plan));
    for (int b = 0; b < BATCH; ++b)
        lengths[b] = t->tokens * ta_group_size(group);
    ta_tensor query = {q, 0, 0, 0}, result = {out, 0, 0, 0};
    ta_kv kv = TA_KV_INIT;
    kv.lengths = lengths;
    kv.k.data = cache;
    kv.v.data = (char *)cache + kv_bytes(t) / 2;
    ta_group_stats before = TA_GROUP_STATS_INIT;
    t->step[rank] = before;
    TA_TRY(ta_group_get_stats(group, &before));
    TA_TRY(ta_decode(plan, &query, &kv, &result, NULL, NULL, NULL));
    TA_TRY(ta_group_get_stats(group, &t->step[rank]));
    subtract(&t->step[rank], &before);
    ta_plan_stats stats = TA_PLAN_STATS_INIT;
    TA_TRY(ta_plan_get_stats(plan, &stats));
    RANK_EXPECT(stats.steps == 1 && stats.attend_ns <= stats.step_ns);
    RANK_EXPECT(stats.device_bytes == kv_bytes(t) + stats.workspace_bytes);
    t->most_bytes[rank] = stats.device_bytes_most;
    ta_plan_destroy(plan);
    RANK_EXPECT(device->stats.bytes_held == kv_bytes(t));
    ta_device_free(device, cache);
    ta_device_close(device);
    return TA_OK;
}

static trial run(ta_algorithm algorithm, ta_placement placement, int ranks, int tokens)
{
    trial t = {.algorithm = algorithm, .placement = placement, .tokens = tokens};
    EXPECT_OK(ta_group_run_threads(ranks, NULL, decode_rank, &t));
    return t;
}

static uint64_t log2_of(int ranks)
{
    uint64_t log = 0;
    while (1 << log < ranks)
        ++log;
    return log;
}

/* Recursive doubling sends the whole partial in each of log2 p rounds. The paper's formula is that
 * of an all-reduce in 2(p − 1) rounds, which moves fewer bytes from 4 ranks on and takes more
 * rounds. Behind each partial come 32 bytes for faults. */
static void test_tree_traffic(void)
{
    for (int ranks = 2; ranks <= 8; ranks *= 2) {
        trial t = run(TA_ALGORITHM_TREE, TA_PLACE_ALL, ranks, 64);
        for (int rank = 0; rank < ranks; ++rank) {
            TEST_ASSERT_TRUE(t.step[rank].messages_sent == log2_of(ranks));
            TEST_ASSERT_TRUE(t.step[rank].bytes_sent == log2_of(ranks) * (partial_bytes() + 32));
            TEST_ASSERT_TRUE(t.step[rank].bytes_received == t.step[rank].bytes_sent);
        }
        uint64_t paper = 2 * ((uint64_t)ranks - 1) * partial_bytes() / (uint64_t)ranks;
        uint64_t ours = t.step[0].bytes_sent - 32 * log2_of(ranks);
        TEST_ASSERT_TRUE(ranks == 2 ? ours == paper : ours > paper && ours < 2 * paper);
    }
}

/* With the output scattered by heads nothing else moves but 32 bytes in log2 p rounds, in which the
 * ranks make sure that none of them has a fault. */
static void test_pass_kv_traffic(void)
{
    for (int ranks = 2; ranks <= 8; ranks *= 2) {
        trial t = run(TA_ALGORITHM_RING_KV, TA_PLACE_HEADS, ranks, 64);
        uint64_t hops = (uint64_t)ranks - 1, rounds = log2_of(ranks);
        for (int rank = 0; rank < ranks; ++rank) {
            TEST_ASSERT_TRUE(t.step[rank].messages_sent == 2 * hops + rounds);
            TEST_ASSERT_TRUE(t.step[rank].bytes_sent == hops * kv_bytes(&t) + 32 * rounds);
            TEST_ASSERT_TRUE(t.step[rank].bytes_received == t.step[rank].bytes_sent);
        }
    }
}

/* To its rank each part takes (p − 1)/p of the partial, and to all ranks as much again: together
 * the volume that the paper gives for its all-reduces. */
static void test_pass_q_traffic(void)
{
    for (int ranks = 2; ranks <= 8; ranks *= 2) {
        uint64_t hops = (uint64_t)ranks - 1, part = partial_bytes() / (uint64_t)ranks;
        trial heads = run(TA_ALGORITHM_RING_Q, TA_PLACE_HEADS, ranks, 64);
        trial all = run(TA_ALGORITHM_RING_Q, TA_PLACE_ALL, ranks, 64);
        for (int rank = 0; rank < ranks; ++rank) {
            TEST_ASSERT_TRUE(heads.step[rank].messages_sent == hops);
            TEST_ASSERT_TRUE(heads.step[rank].bytes_sent == hops * (part + 32));
            TEST_ASSERT_TRUE(all.step[rank].bytes_sent == 2 * hops * part + 32 * hops);
            TEST_ASSERT_TRUE(all.step[rank].bytes_received == all.step[rank].bytes_sent);
        }
    }
}

/* What tree and pass-Q move does not depend on the tokens; what pass-KV moves is all of them. */
static void test_traffic_and_tokens(void)
{
    trial short_tree = run(TA_ALGORITHM_TREE, TA_PLACE_ALL, 4, 16);
    trial long_tree = run(TA_ALGORITHM_TREE, TA_PLACE_ALL, 4, 160);
    TEST_ASSERT_TRUE(short_tree.step[0].bytes_sent == long_tree.step[0].bytes_sent);
    trial short_q = run(TA_ALGORITHM_RING_Q, TA_PLACE_ALL, 4, 16);
    trial long_q = run(TA_ALGORITHM_RING_Q, TA_PLACE_ALL, 4, 160);
    TEST_ASSERT_TRUE(short_q.step[0].bytes_sent == long_q.step[0].bytes_sent);
    trial short_kv = run(TA_ALGORITHM_RING_KV, TA_PLACE_HEADS, 4, 16);
    trial long_kv = run(TA_ALGORITHM_RING_KV, TA_PLACE_HEADS, 4, 160);
    TEST_ASSERT_TRUE(long_kv.step[0].bytes_sent - 64 == 10 * (short_kv.step[0].bytes_sent - 64));
}

/* Device memory at its fullest, K and V included, at a large shard: pass-KV holds 2btd elements
 * more, whatever the number of ranks, and the rest is small beside it. */
static void test_memory(void)
{
    for (int ranks = 2; ranks <= 8; ranks *= 2) {
        trial tree = run(TA_ALGORITHM_TREE, TA_PLACE_ALL, ranks, 8192);
        trial kv = run(TA_ALGORITHM_RING_KV, TA_PLACE_ALL, ranks, 8192);
        trial q = run(TA_ALGORITHM_RING_Q, TA_PLACE_ALL, ranks, 8192);
        for (int rank = 0; rank < ranks; ++rank) {
            double of_tree = (double)tree.most_bytes[rank], of_kv = (double)kv.most_bytes[rank];
            double extra = of_kv - of_tree, shard = (double)kv_bytes(&kv);
            TEST_ASSERT_TRUE(of_kv / of_tree >= 1.9 && of_kv / of_tree <= 2.0);
            TEST_ASSERT_TRUE(extra > 0.95 * shard && extra < 1.05 * shard);
            TEST_ASSERT_TRUE((double)q.most_bytes[rank] <= 1.05 * of_tree);
        }
        printf("ranks %d: most bytes tree %llu, ring-kv %llu, ring-q %llu\n", ranks,
               (unsigned long long)tree.most_bytes[0], (unsigned long long)kv.most_bytes[0],
               (unsigned long long)q.most_bytes[0]);
    }
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(test_tree_traffic);
    RUN_TEST(test_pass_kv_traffic);
    RUN_TEST(test_pass_q_traffic);
    RUN_TEST(test_traffic_and_tokens);
    RUN_TEST(test_memory);
    return UNITY_END() != 0;
}
