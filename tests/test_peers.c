/* The direct exchange between GPUs that address each other's memory, on the executor: its results
 * and bits beside those of the all-gather, how many kernels it takes, graphs, several nodes, and
 * many plans. test_peers_faults.c has what goes wrong, test_peers_plan.c what plans choose. */
#include "lib/peer_ranks.h"

/* One launch beside attend's own, which has one more of tiles; no copy, no message; and the bits of
 * the all-gather, step after step. */
static void compare(int ranks, const trial *gathered, const trial *asked)
{
    for (int shots = 1; shots <= 2; ++shots) {
        trial direct = *asked;
        char message[120];
        direct.kind = TA_EXCHANGE_DIRECT;
        setenv("TREEATTN_DIRECT_SHOTS", shots == 1 ? "1" : "2", 1);
        EXPECT_OK(run_on(&direct, ranks));
        snprintf(message, sizeof message, "%d ranks, placement %d, tile %d, %d shots, %s", ranks,
                 (int)direct.placement, direct.tile, shots, direct.threads ? "threads" : "ccl");
        for (int rank = 0; rank < ranks; ++rank) {
            TEST_ASSERT_EQUAL_HEX64_MESSAGE(gathered->bits[rank], direct.bits[rank], message);
            TEST_ASSERT_EQUAL_UINT64_MESSAGE(direct.tile ? 3 : 2, direct.launches[rank], message);
            TEST_ASSERT_EQUAL_UINT64_MESSAGE(0, direct.copies[rank], message);
            TEST_ASSERT_EQUAL_UINT64_MESSAGE(0, direct.messages[rank], message);
        }
    }
    unsetenv("TREEATTN_DIRECT_SHOTS");
}

static void test_bits_and_launches(void)
{
    static const int rank_counts[] = {2, 3, 8};
    static const ta_placement placements[] = {TA_PLACE_ALL, TA_PLACE_HEADS, TA_PLACE_ROOT};
    for (int i = 0; i < 3 * 3 * 2; ++i) {
        int ranks = rank_counts[i / 6];
        trial t = {.fn = run_steps,
                   .kind = TA_EXCHANGE_ALL_GATHER,
                   .placement = placements[i / 2 % 3],
                   .tile = i & 1 ? 16 : 0,
                   .steps = 5};
        trial gathered = t;
        EXPECT_OK(run_on(&gathered, ranks));
        compare(ranks, &gathered, &t);
        t.threads = 1; /* the same without NCCL */
        if (ranks < 8)
            compare(ranks, &gathered, &t);
    }
}

/* ---- Several nodes ---- */

static void run_nodes(trial t, int ranks, const char *nodes)
{
    ta_cluster *cluster;
    trial gathered = t;
    char message[120];
    EXPECT_OK(run_on(&gathered, ranks));
    EXPECT_OK(ta_cluster_create(nodes, &cluster));
    t.kind = TA_EXCHANGE_DIRECT;
    t.cluster = cluster;
    EXPECT_OK(run_on(&t, ranks));
    ta_cluster_destroy(cluster);
    snprintf(message, sizeof message, "%d ranks on %s, placement %d, tile %d", ranks, nodes,
             (int)t.placement, t.tile);
    for (int rank = 0; rank < ranks; ++rank) {
        if (t.tile) /* then the order of the merges makes no difference */
            TEST_ASSERT_EQUAL_HEX64_MESSAGE(gathered.bits[rank], t.bits[rank], message);
        if (t.placement == TA_PLACE_ALL)
            TEST_ASSERT_EQUAL_HEX64_MESSAGE(t.bits[0], t.bits[rank], message);
        TEST_ASSERT_EQUAL_UINT64_MESSAGE(0, t.copies[rank], message);
    }
    if (!t.tile && t.placement == TA_PLACE_ALL && ranks == 4) {
        /* Attend, a half, packing of what is not at the end, one merge, the other half. */
        TEST_ASSERT_EQUAL_UINT64_MESSAGE(5, t.launches[0], message);
        TEST_ASSERT_EQUAL_UINT64_MESSAGE(4, t.launches[1], message);
        TEST_ASSERT_EQUAL_UINT64_MESSAGE(1, t.messages[0], message);
    }
}

/* Direct inside, messages between: nodes of two and of three, and of three and two. */
static void test_nodes(void)
{
    static const ta_placement placements[] = {TA_PLACE_ALL, TA_PLACE_HEADS, TA_PLACE_ROOT};
    for (int i = 0; i < 6; ++i) {
        trial t = {.fn = run_steps,
                   .kind = TA_EXCHANGE_ALL_GATHER,
                   .placement = placements[i % 3],
                   .tile = i < 3 ? 0 : 16,
                   .steps = 4};
        run_nodes(t, 4, "local:2x2");
        run_nodes(t, 6, "local:2x3");
        run_nodes(t, 5, "local:2x3");
        run_nodes(t, 7, "local:3x3");
    }
}

/* Devices that are peers in pairs only: on a cluster whose nodes are the pairs it is direct inside
 * them. */
static void test_pairs(void)
{
    for (int tile = 0; tile <= 16; tile += 16) {
        trial t = {.fn = run_steps, .kind = TA_EXCHANGE_ALL_GATHER, .tile = tile, .steps = 4};
        simt_set_peers(SIMT_PEERS_PAIRS);
        run_nodes(t, 4, "local:2x2");
        run_nodes(t, 5, "local:3x2");
    }
}

/* Steps that the plan replays: the count of exchanges is the device's, not the graph's. */
static void test_replays(void)
{
    trial t = {.fn = run_steps, .kind = TA_EXCHANGE_ALL_GATHER, .steps = 6}, direct = t;
    EXPECT_OK(run_on(&t, 3));
    direct.kind = TA_EXCHANGE_DIRECT;
    direct.replay = 1;
    run_nodes(
        (trial){
            .fn = run_steps, .kind = TA_EXCHANGE_ALL_GATHER, .replay = 1, .tile = 16, .steps = 6},
        5, "local:2x3");
    for (direct.threads = 0; direct.threads < 2; ++direct.threads) {
        EXPECT_OK(run_on(&direct, 3));
        TEST_ASSERT_EQUAL_HEX64_ARRAY(t.bits, direct.bits, 3);
    }
}

/* Many plans one after the other on one group: no more slabs are left than of the last few. */
static ta_status run_many_plans(peer *p)
{
    trial *t = p->trial;
    for (int i = 0; i < 40; ++i) {
        TA_TRY(run_steps(p));
        RANK_EXPECT(t->messages[p->rank] == 0);
        RANK_EXPECT(count_slabs() <= 3 * p->ranks);
    }
    return TA_OK;
}

static void test_many_plans(void)
{
    trial t = {.fn = run_many_plans, .kind = TA_EXCHANGE_DIRECT, .steps = 5};
    for (t.threads = 0; t.threads < 2; ++t.threads)
        EXPECT_OK(run_on(&t, 4));
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(test_bits_and_launches);
    RUN_TEST(test_nodes);
    RUN_TEST(test_pairs);
    RUN_TEST(test_replays);
    RUN_TEST(test_many_plans);
    return UNITY_END() != 0;
}
