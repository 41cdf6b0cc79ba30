/* The cost model (src/cluster/cost.c, cost_collectives.c, exchange/estimate.c): seconds that can be
 * worked out by hand, and estimates against what a recording group saw, message for message. */
#include "cluster/cost.h"

#include <math.h>
#include <stdlib.h>

#include <treeattn/cluster.h>

#include "exchange/exchange.h"
#include "lib/expect.h"
#include "lib/recording.h"

#define MAX_RANKS 17
#define ROWS 3
#define V_DIM 8
#define RECORD (V_DIM + 2)
#define TALLY (4 * (V_DIM + 1) + 2)

void setUp(void)
{
}

void tearDown(void)
{
}

static void expect_seconds(double expected, double got)
{
    if (!(fabs(expected - got) <= 1e-12 * fabs(expected))) {
        char text[100];
        snprintf(text, sizeof text, "expected %.17g seconds, got %.17g", expected, got);
        TEST_FAIL_MESSAGE(text);
    }
}

static ta_cluster *simple_cluster(void)
{
    ta_cluster *cluster;
    EXPECT_OK(ta_cluster_create(
        "local:2x3x2 device.kernel_seconds=0.5 device.memory_bytes_per_second=100 "
        "node.latency_seconds=1 node.rank_bytes_per_second=10 node.total_bytes_per_second=15 "
        "network.latency_seconds=2 network.rank_bytes_per_second=5 "
        "network.total_bytes_per_second=8 rack.latency_seconds=4 rack.rank_bytes_per_second=5 "
        "rack.total_bytes_per_second=12",
        &cluster));
    return cluster;
}

/* Each line is a round on 2 racks of 3 nodes of 2 ranks. */
static void test_seconds_of_a_round(void)
{
    ta_cluster *cluster = simple_cluster();
    ta_cost cost;
    EXPECT_OK(ta_cost_begin(&cost, cluster, cluster->ranks));
    ta_cost_message(&cost, 0, 1, 30); /* alone inside a node: its own rate */
    ta_cost_round(&cost, "a");
    expect_seconds(1 + 3, cost.seconds);
    ta_cost_message(&cost, 0, 1, 30); /* both ways: 60 bytes share the node's 15 a second */
    ta_cost_message(&cost, 1, 0, 30);
    ta_cost_round(&cost, "b");
    expect_seconds(4 + 1 + 4, cost.seconds);
    ta_cost_message(&cost, 0, 2, 40); /* two ranks share the adapter: 80 bytes at 8 a second */
    ta_cost_message(&cost, 1, 3, 40);
    ta_cost_round(&cost, "c");
    expect_seconds(9 + 2 + 10, cost.seconds);
    ta_cost_message(&cost, 0, 2, 40); /* two nodes: each message at its own 5 a second */
    ta_cost_message(&cost, 4, 1, 40);
    ta_cost_round(&cost, "c");
    expect_seconds(21 + 2 + 8, cost.seconds);
    for (int i = 0; i < 6; ++i) /* a whole rack sends: 120 bytes at 12 a second */
        ta_cost_message(&cost, i, 6 + i, 20);
    ta_cost_round(&cost, "d");
    expect_seconds(31 + 4 + 10, cost.seconds);
    ta_cost_work(&cost, 2, 50); /* the slower of two ranks */
    ta_cost_work(&cost, 1, 10);
    ta_cost_round(&cost, "e");
    expect_seconds(45 + 1.5, cost.seconds);
    ta_cost_repeat(&cost, 3);
    ta_cost_message(&cost, 0, 1, 10);
    ta_cost_overlap(&cost, 5);
    ta_cost_round(&cost, "f");
    expect_seconds(46.5 + 15, cost.seconds);
    TEST_ASSERT_EQUAL_INT(6, cost.phase_count);
    TEST_ASSERT_EQUAL_STRING("c", cost.phases[2].name);
    TEST_ASSERT_EQUAL_INT64(2, cost.phases[2].rounds);
    TEST_ASSERT_EQUAL_UINT64(80, cost.phases[2].rank_bytes);
    TEST_ASSERT_EQUAL_UINT64(30 + 30 + 40 + 40 + 20 + 3 * 10, cost.traffic[0].bytes_sent);
    TEST_ASSERT_EQUAL_UINT64(8, cost.traffic[0].messages_sent);
    ta_cost_end(&cost);
    ta_cluster_destroy(cluster);
}

/* Two packages of a node have links of their own. */
static void test_packages(void)
{
    ta_cluster *cluster;
    ta_cost cost;
    EXPECT_OK(ta_cluster_create("local:1x4 node.latency_seconds=1 node.rank_bytes_per_second=10 "
                                "node.total_bytes_per_second=15",
                                &cluster));
    EXPECT_OK(ta_cluster_add_places(cluster));
    for (int rank = 0; rank < cluster->ranks; ++rank)
        cluster->places[rank].package = rank / 2;
    cluster->levels[TA_LEVEL_PACKAGE] = (ta_level){0.5, 20, 30, 0, 0};
    EXPECT_OK(ta_cluster_number_packages(cluster));
    EXPECT_OK(ta_cost_begin(&cost, cluster, cluster->ranks));
    ta_cost_message(&cost, 0, 1, 60); /* each at its own 20 bytes a second */
    ta_cost_message(&cost, 2, 3, 60);
    ta_cost_round(&cost, "a");
    expect_seconds(0.5 + 3, cost.seconds);
    ta_cost_message(&cost, 0, 1, 60); /* 120 bytes share a package's 30 a second */
    ta_cost_message(&cost, 1, 0, 60);
    ta_cost_round(&cost, "a");
    expect_seconds(3.5 + 0.5 + 4, cost.seconds);
    ta_cost_message(&cost, 0, 2, 60); /* between packages: 120 bytes at the node's 15 */
    ta_cost_message(&cost, 1, 3, 60);
    ta_cost_round(&cost, "a");
    expect_seconds(8 + 1 + 8, cost.seconds);
    ta_cost_end(&cost);
    ta_cluster_destroy(cluster);
}

/* A message above the eager size waits for its handshake. */
static void test_handshakes(void)
{
    ta_cluster *cluster = simple_cluster();
    ta_cost cost;
    EXPECT_OK(ta_cost_begin(&cost, cluster, cluster->ranks));
    cluster->levels[TA_LEVEL_NETWORK].eager_bytes = 40;
    cluster->levels[TA_LEVEL_NETWORK].handshake_s = 3;
    ta_cost_message(&cost, 0, 2, 40);
    ta_cost_round(&cost, "b");
    expect_seconds(2 + 8, cost.seconds);
    ta_cost_message(&cost, 0, 2, 45);
    ta_cost_round(&cost, "b");
    expect_seconds(10 + 2 + 3 + 9, cost.seconds);
    ta_cost_message(&cost, 0, 2, 40); /* not once more; two share the adapter of 8 a second */
    ta_cost_message(&cost, 1, 3, 40);
    ta_cost_round(&cost, "b");
    expect_seconds(24 + 2 + 10, cost.seconds);
    ta_cost_message(&cost, 0, 2, 48);
    ta_cost_message(&cost, 1, 3, 40);
    ta_cost_round(&cost, "b");
    expect_seconds(36 + 2 + 3 + 11, cost.seconds);
    ta_cost_end(&cost);
    ta_cluster_destroy(cluster);
}

static void test_doubling_by_hand(void)
{
    ta_cluster *cluster;
    EXPECT_OK(ta_cluster_create("h100:2x8", &cluster));
    ta_exchange_shape shape = {.ranks = 16, .heads = 16, .record_bytes = 520, .head_bytes = 520};
    double bytes = 16 * 520 + TA_FAULT_BYTES;
    ta_cost cost;
    EXPECT_OK(ta_cost_begin(&cost, cluster, 16));
    EXPECT_OK(ta_exchange_estimate(TA_EXCHANGE_DOUBLING, &shape, &cost));
    double merge = 3e-6 + 3 * bytes / 3.35e12;
    double inside = 4.07e-6 + bytes / 450e9, between = 8.6e-6 + bytes / 50e9;
    expect_seconds(3 * inside + between + 4 * merge, cost.seconds);
    ta_cost_end(&cost);
    ta_cluster_destroy(cluster);
}

/* ---- Estimates against recordings ---- */

typedef struct trial {
    ta_exchange_shape shape;
    ta_exchange kind;
    int collective; /* 1 broadcast, 2 all-gather, 3 all-reduce, 0 the exchange */
    uint64_t bytes; /* of a collective, and its root */
    size_t offsets[MAX_RANKS + 1];
    recording recordings[MAX_RANKS];
} trial;

static ta_status run_collective(const trial *t, ta_group *group)
{
    size_t total = t->collective == 2 ? t->offsets[group->size] : t->bytes;
    void *data = calloc(total + 1, 1);
    ta_status status;
    if (t->collective == 1)
        status = ta_group_broadcast(group, data, t->bytes, t->shape.root, NULL);
    else if (t->collective == 2)
        status = ta_group_all_gather(group, data, t->offsets, NULL);
    else
        status = ta_group_all_reduce(group, data, data, t->bytes / 4, TA_ELEMENT_F32, TA_REDUCE_SUM,
                                     NULL);
    free(data);
    return status;
}

static ta_status run_exchange(const trial *t, ta_group *group)
{
    ta_exchange_job job = {.group = group, .rank = group->rank, .kind = t->kind, .shape = t->shape};
    size_t partial = ta_exchange_partial_bytes(&job) / sizeof(float);
    job.shape.v_dim = V_DIM;
    job.chunks = ta_exchange_chunks(t->kind, &job.shape);
    TA_TRY(ta_device_open("host", NULL, &job.device));
    float *memory = calloc((2 + (size_t)group->size) * partial, sizeof(float));
    job.records = memory;
    job.sent = memory + partial;
    job.received = memory + 2 * partial;
    TA_TRY(ta_exchange_prepare(&job));
    if (t->kind == TA_EXCHANGE_DIRECT) { /* sharing is part of a plan, not of a run */
        int skipped;
        job.group = ((recording *)group)->inner;
        TA_TRY(ta_exchange_share(&job, TA_OK, &skipped));
        job.group = group;
    }
    ta_status status = ta_exchange_run(&job, NULL);
    ta_exchange_release(&job);
    free(memory);
    ta_device_close(job.device);
    return status;
}

static ta_status run_rank(ta_group *group, void *context)
{
    trial *t = context;
    recording *r = &t->recordings[group->rank];
    recording_init(r, group);
    return t->collective ? run_collective(t, &r->group) : run_exchange(t, &r->group);
}

static void compare(const trial *t, const ta_cost *cost)
{
    char text[200];
    for (int rank = 0; rank < cost->ranks; ++rank) {
        const ta_traffic *e = &cost->traffic[rank];
        const recording *r = &t->recordings[rank];
        snprintf(text, sizeof text,
                 "rank %d of %d, kind %d, collective %d, %d heads, placement %d, root %d, %d bytes",
                 rank, cost->ranks, (int)t->kind, t->collective, t->shape.heads,
                 (int)t->shape.placement, t->shape.root, (int)t->bytes);
        TEST_ASSERT_EQUAL_UINT64_MESSAGE(r->messages_sent, e->messages_sent, text);
        TEST_ASSERT_EQUAL_UINT64_MESSAGE(r->messages_received, e->messages_received, text);
        TEST_ASSERT_EQUAL_UINT64_MESSAGE(r->bytes_sent, e->bytes_sent, text);
        TEST_ASSERT_EQUAL_UINT64_MESSAGE(r->bytes_received, e->bytes_received, text);
    }
}

static void run_and_compare(trial *t)
{
    ta_cost cost;
    EXPECT_OK(ta_group_run_threads(t->shape.ranks, NULL, run_rank, t));
    EXPECT_OK(ta_cost_begin(&cost, NULL, t->shape.ranks));
    if (t->collective == 1)
        ta_cost_broadcast(&cost, "x", t->bytes, t->shape.root);
    else if (t->collective == 2)
        ta_cost_all_gather(&cost, "x", t->offsets);
    else if (t->collective == 3)
        ta_cost_all_reduce(&cost, "x", t->bytes);
    else
        EXPECT_OK(ta_exchange_estimate(t->kind, &t->shape, &cost));
    compare(t, &cost);
    ta_cost_end(&cost);
    for (int rank = 0; rank < t->shape.ranks; ++rank)
        recording_free(&t->recordings[rank]);
}

static void test_collectives_as_recorded(void)
{
    static const uint64_t sizes[] = {0, 4, TA_REDUCE_PIECE_BYTES, TA_REDUCE_PIECE_BYTES + 4,
                                     150000};
    for (int ranks = 1; ranks <= MAX_RANKS; ++ranks)
        for (int collective = 1; collective <= 3; ++collective)
            for (size_t i = 0; i < sizeof sizes / sizeof *sizes; ++i) {
                trial t = {.shape = {.ranks = ranks, .root = ranks * 2 / 3},
                           .collective = collective,
                           .bytes = sizes[i]};
                for (int rank = 0; rank < ranks; ++rank) /* some contribute nothing */
                    t.offsets[rank + 1] =
                        t.offsets[rank] + sizes[i] * (size_t)(rank % 3) + (size_t)(rank % 2);
                run_and_compare(&t);
            }
}

/* Every kind of exchange that can give the placement. */
static void try_exchanges(const ta_nodes *nodes, int ranks, int heads, ta_placement placement,
                          size_t rows, int tallies)
{
    size_t record = (tallies ? TALLY : RECORD) * sizeof(float);
    for (int kind = TA_EXCHANGE_DOUBLING; kind < TA_EXCHANGE_KINDS; ++kind) {
        trial t = {.shape = {.ranks = ranks,
                             .heads = heads,
                             .record_bytes = record,
                             .tallies = tallies,
                             .head_bytes = rows * record,
                             .placement = placement,
                             .nodes = nodes,
                             .shares_memory = 1},
                   .kind = (ta_exchange)kind};
        t.shape.root = placement == TA_PLACE_ROOT ? ranks / 2 : 0;
        int knows_nodes = ta_exchange_kinds[kind].by_nodes; /* the others need to run only once */
        if ((knows_nodes || nodes->most == 1) && ta_exchange_supports(t.kind, &t.shape))
            run_and_compare(&t);
    }
}

static void test_exchanges_as_recorded(void)
{
    static const int per_node[] = {1, 2, 3, 4, 7, MAX_RANKS};
    for (int ranks = 2; ranks <= MAX_RANKS; ranks += ranks < 9 ? 1 : 4)
        for (size_t i = 0; i < sizeof per_node / sizeof *per_node; ++i) {
            int node_of[MAX_RANKS];
            ta_nodes nodes;
            for (int rank = 0; rank < ranks; ++rank)
                node_of[rank] = rank / per_node[i];
            EXPECT_OK(ta_nodes_make(node_of, ranks, &nodes));
            for (int rank = 0; rank < ranks; ++rank)
                node_of[rank] /= 2;
            EXPECT_OK(ta_nodes_add(node_of, ranks, TA_UNIT_RACK, &nodes));
            for (int heads = 1; heads <= 19; heads += 6)
                for (int placement = TA_PLACE_ALL; placement <= TA_PLACE_HEADS; ++placement)
                    for (int tallies = 0; tallies < 2; ++tallies)
                        try_exchanges(&nodes, ranks, heads, (ta_placement)placement, ROWS, tallies);
            ta_nodes_free(&nodes);
        }
}

/* Partials above 2 MB go in chunks. */
static void test_chunks_as_recorded(void)
{
    static const int node_of[5] = {0, 1, 2, 3, 4};
    ta_nodes nodes;
    EXPECT_OK(ta_nodes_make(node_of, 5, &nodes));
    for (int placement = TA_PLACE_ALL; placement <= TA_PLACE_HEADS; ++placement) {
        try_exchanges(&nodes, 5, 7, (ta_placement)placement, 10000, 0);
        try_exchanges(&nodes, 5, 2, (ta_placement)placement, 40000, 0);
        try_exchanges(&nodes, 5, 7, (ta_placement)placement, 3000, 1);
    }
    ta_nodes_free(&nodes);
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(test_seconds_of_a_round);
    RUN_TEST(test_packages);
    RUN_TEST(test_handshakes);
    RUN_TEST(test_doubling_by_hand);
    RUN_TEST(test_collectives_as_recorded);
    RUN_TEST(test_exchanges_as_recorded);
    RUN_TEST(test_chunks_as_recorded);
    return UNITY_END() != 0;
}
