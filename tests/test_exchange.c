/* The exchanges of partials (src/exchange/exchange.c, exchange/): every kind gives the right
 * records for every placement, the same bits everywhere, and carries a fault. Without a cluster
 * they send one packed message per round, a logarithmic number of rounds, no more bytes than the
 * partial has. test_exchange_rounds.c looks at the rounds alone. */
#include "exchange/exchange.h"

#include <math.h>
#include <stdlib.h>

#include "base/partial.h"
#include "group/signals.h"
#include "lib/expect.h"
#include "lib/random.h"

#define ROWS 3
#define V_DIM 8
#define RECORD (V_DIM + 2)

static const int rank_counts[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 13, 16};
#define RANK_COUNTS ((int)(sizeof rank_counts / sizeof *rank_counts))

void setUp(void)
{
}

void tearDown(void)
{
}

/* What to exchange, and each rank's counts and records afterwards. */
typedef struct trial {
    int heads;
    ta_placement placement;
    int root;
    ta_exchange kind;
    int shots;            /* of a direct exchange */
    int ranks_per_node;   /* 0: all on one node */
    int nodes_per_rack;   /* 0: no racks */
    int fault_rank;       /* -1: none */
    int other_fault_rank; /* a higher one, or -1: only the lower is reported */
    int differing_rank;   /* is in another step than all others; -1: none */
    ta_group_stats stats[16];
    float *records[16];
} trial;

static int record_count(const trial *t)
{
    return t->heads * ROWS;
}

/* The partial of one rank: every third rank is empty, the others' scores differ widely. */
static void make_records(const trial *t, int rank, float *records)
{
    random_source source = random_from(1000 + (uint64_t)rank);
    for (int i = 0; i < record_count(t); ++i) {
        float *record = records + i * RECORD;
        memset(record, 0, RECORD * sizeof *record);
        record[V_DIM] = -INFINITY;
        if ((rank + i) % 3 == 2)
            continue;
        record[V_DIM] = (float)random_normal(&source) * 20;
        record[V_DIM + 1] = 1 + (float)random_unit(&source) * 9;
        for (int d = 0; d < V_DIM; ++d)
            record[d] = (float)random_normal(&source);
    }
}

static ta_status make_nodes(const trial *t, int ranks, ta_nodes *nodes)
{
    int node_of[16];
    for (int rank = 0; rank < ranks; ++rank)
        node_of[rank] = t->ranks_per_node ? rank / t->ranks_per_node : 0;
    TA_TRY(ta_nodes_make(node_of, ranks, nodes));
    for (int rank = 0; t->nodes_per_rack && rank < ranks; ++rank)
        node_of[rank] /= t->nodes_per_rack;
    return t->nodes_per_rack ? ta_nodes_add(node_of, ranks, TA_UNIT_RACK, nodes) : TA_OK;
}

/* With output on one rank, the others need not hear of all ranks. */
static ta_status check_fault(const trial *t, int rank, const ta_fault *fault)
{
    bool hears = t->placement != TA_PLACE_ROOT || rank == t->root || rank == t->fault_rank;
    if (t->fault_rank >= 0 && hears)
        RANK_EXPECT(fault->status == TA_ERR_INVALID && fault->rank == t->fault_rank);
    if (t->fault_rank >= 0)
        return TA_OK;
    if (t->differing_rank < 0)
        RANK_EXPECT(fault->status == TA_OK);
    if (t->differing_rank >= 0 && (hears || fault->status != TA_OK)) {
        RANK_EXPECT(fault->status == TA_ERR_MISMATCH && fault->what == TA_DIFFERS_HASH);
        RANK_EXPECT(fault->rank < fault->other);
        RANK_EXPECT((fault->rank == t->differing_rank) != (fault->other == t->differing_rank));
    }
    return TA_OK;
}

/* Counting begins so that it wraps in some trials, and is odd in some. */
static ta_status share(ta_exchange_job *job)
{
    int skipped;
    TA_TRY(ta_exchange_share(job, TA_OK, &skipped));
    RANK_EXPECT(!skipped);
    ta_signals_start(job->signals, UINT32_MAX - (uint32_t)job->shape.heads % 3);
    return ta_group_barrier(job->group, NULL);
}

static ta_status exchange_rank(ta_group *group, void *context)
{
    trial *t = context;
    int rank = ta_group_rank(group);
    ta_exchange_job job = {.group = group, .rank = rank, .kind = t->kind};
    ta_nodes nodes;
    size_t floats = (size_t)record_count(t) * RECORD + TA_FAULT_FLOATS;
    TA_TRY(ta_device_open("host", NULL, &job.device));
    TA_TRY(make_nodes(t, ta_group_size(group), &nodes));
    job.shape = (ta_exchange_shape){.ranks = ta_group_size(group),
                                    .heads = t->heads,
                                    .record_bytes = RECORD * sizeof(float),
                                    .v_dim = V_DIM,
                                    .head_bytes = ROWS * RECORD * sizeof(float),
                                    .placement = t->placement,
                                    .root = t->root,
                                    .nodes = &nodes,
                                    .shares_memory = 1,
                                    .shots = t->shots};
    job.chunks = ta_exchange_chunks(t->kind, &job.shape);
    size_t pieces = 2 + ta_exchange_received(&job);
    float *memory = malloc(pieces * floats * sizeof(float));
    memset(memory, 0xff, pieces * floats * sizeof(float));
    TA_TRY(ta_exchange_prepare(&job));
    if (t->kind == TA_EXCHANGE_DIRECT && job.shape.ranks > 1)
        TA_TRY(share(&job));
    job.records = memory;
    job.sent = ta_exchange_sent(&job) ? memory + floats : NULL;
    job.received = memory + 2 * floats;
    make_records(t, rank, job.records);
    bool faulty = rank == t->fault_rank || rank == t->other_fault_rank;
    ta_fault *fault = ta_exchange_fault(&job);
    *fault = ta_fault_of(faulty ? TA_ERR_INVALID : TA_OK, rank);
    fault->hash = rank == t->differing_rank ? 78 : 77;
    fault->tag = 5;
    t->stats[rank] = (ta_group_stats)TA_GROUP_STATS_INIT;
    ta_status status = ta_exchange_run(&job, NULL);
    if (status == TA_OK)
        status = ta_group_get_stats(group, &t->stats[rank]);
    t->records[rank] = memory;
    RANK_EXPECT(status != TA_OK || (job.last.records == memory && job.last.messages == 0));
    ta_exchange_release(&job);
    ta_nodes_free(&nodes);
    ta_device_close(job.device);
    TA_TRY(status);
    return check_fault(t, rank, fault);
}

static void run_trial(trial *t, int ranks)
{
    memset(t->records, 0, sizeof t->records);
    EXPECT_OK(ta_group_run_threads(ranks, NULL, exchange_rank, t));
}

static void free_trial(trial *t)
{
    for (int rank = 0; rank < 16; ++rank)
        free(t->records[rank]);
}

/* One record merged over all ranks in double; `most` is the same sum of magnitudes. */
static void merge_in_double(const trial *t, int ranks, int record, double *merged, double *most)
{
    float *records = malloc((size_t)record_count(t) * RECORD * sizeof(float));
    double top = -INFINITY;
    for (int rank = 0; rank < ranks; ++rank) {
        make_records(t, rank, records);
        top = fmax(top, (double)records[record * RECORD + V_DIM]);
    }
    memset(merged, 0, RECORD * sizeof *merged);
    memset(most, 0, RECORD * sizeof *most);
    merged[V_DIM] = top;
    for (int rank = 0; rank < ranks && !isinf(top); ++rank) {
        make_records(t, rank, records);
        const float *own = records + record * RECORD;
        double scale = exp2((double)own[V_DIM] - top);
        for (int i = 0; i < RECORD; ++i) {
            merged[i] += i == V_DIM ? 0 : scale * (double)own[i];
            most[i] += scale * fabs((double)own[i]);
        }
    }
    free(records);
}

static bool has_head(const trial *t, int ranks, int rank, int head)
{
    if (t->placement == TA_PLACE_ROOT)
        return rank == t->root;
    if (t->placement == TA_PLACE_HEADS)
        return head >= t->heads * rank / ranks && head < t->heads * (rank + 1) / ranks;
    return true;
}

/* The most merges that lie on a path of one rank's partial to the result. */
static int merges(const trial *t, int ranks)
{
    if (t->kind == TA_EXCHANGE_ALL_GATHER || t->kind == TA_EXCHANGE_SCATTER ||
        t->kind == TA_EXCHANGE_DIRECT)
        return ranks;
    return ta_exchange_kinds[t->kind].by_nodes ? 8 : 5;
}

/* Every rank has its heads right, and two ranks that have the same head have the same bits. */
static void check_records(const trial *t, int ranks)
{
    for (int i = 0; i < record_count(t); ++i) {
        double merged[RECORD], most[RECORD];
        const float *first = NULL;
        merge_in_double(t, ranks, i, merged, most);
        for (int rank = 0; rank < ranks; ++rank) {
            if (!has_head(t, ranks, rank, i / ROWS))
                continue;
            const float *got = t->records[rank] + i * RECORD;
            TEST_ASSERT_TRUE((double)got[V_DIM] == merged[V_DIM]);
            /* Each merge on a path has an exp2, a product and a sum; where a score is far below the
             * largest, its own rounding counts for nothing. */
            for (int d = 0; d < RECORD; ++d)
                TEST_ASSERT_TRUE(d == V_DIM || fabs((double)got[d] - merged[d]) <=
                                                   8 * merges(t, ranks) * 0x1p-24 * most[d]);
            if (first)
                TEST_ASSERT_EQUAL_MEMORY(first, got, RECORD * sizeof *got);
            first = got;
        }
    }
}

/* Every kind, on one node and on nodes that the ranks fill or not; `try` gets those that can be. */
static void for_every_kind(trial *t, int ranks, void (*try)(trial *t, int ranks))
{
    static const int per_node[] = {0, 2, 3, 5};
    for (int kind = TA_EXCHANGE_DOUBLING; kind < TA_EXCHANGE_KINDS; ++kind)
        for (int i = 0; i < (ta_exchange_kinds[kind].by_nodes ? 4 : 1); ++i) {
            ta_nodes nodes;
            t->kind = (ta_exchange)kind;
            t->ranks_per_node = per_node[i];
            t->nodes_per_rack = ta_exchange_kinds[kind].by_levels ? 2 : 0;
            t->shots = 1 + (ranks + t->heads) % 2;
            EXPECT_OK(make_nodes(t, ranks, &nodes));
            ta_exchange_shape shape = {.ranks = ranks,
                                       .heads = t->heads,
                                       .placement = t->placement,
                                       .nodes = &nodes,
                                       .shares_memory = 1};
            int supported = ranks == 1 || ta_exchange_supports(t->kind, &shape);
            ta_nodes_free(&nodes);
            if (supported)
                try(t, ranks);
        }
}

static void run_and_check(trial *t, int ranks)
{
    run_trial(t, ranks);
    check_records(t, ranks);
    free_trial(t);
}

static void test_every_kind_placement_and_size(void)
{
    for (int i = 0; i < RANK_COUNTS; ++i)
        for (int heads = 1; heads <= 17; heads += 4)
            for (int placement = TA_PLACE_ALL; placement <= TA_PLACE_HEADS; ++placement) {
                int ranks = rank_counts[i];
                trial t = {.heads = heads,
                           .placement = (ta_placement)placement,
                           .fault_rank = -1,
                           .other_fault_rank = -1,
                           .differing_rank = -1};
                t.root = placement == TA_PLACE_ROOT ? ranks * 2 / 3 % ranks : 0;
                for_every_kind(&t, ranks, run_and_check);
            }
}

static int floor_log2(int n)
{
    int log = 0;
    while (2 << log <= n)
        ++log;
    return log;
}

static int ceil_log2(int n)
{
    return floor_log2(n) + (n & (n - 1) ? 1 : 0);
}

/* No rank sends or receives more than one message per round; rounds are log2 deep, and with a
 * number of ranks that is no power of two one more gives the folded ranks their result. */
static void check_counts(const trial *t, int ranks)
{
    uint64_t partial = (uint64_t)record_count(t) * RECORD * sizeof(float) + sizeof(ta_fault);
    bool folded = ranks & (ranks - 1);
    uint64_t rounds = (uint64_t)ceil_log2(ranks), sent = 0, received = 0;
    for (int rank = 0; rank < ranks; ++rank) {
        const ta_group_stats *s = &t->stats[rank];
        sent += s->messages_sent;
        received += s->messages_received;
        if (t->placement == TA_PLACE_ROOT) {
            TEST_ASSERT_TRUE(s->messages_sent == (rank == t->root ? 0u : 1u));
            TEST_ASSERT_TRUE(s->messages_received <= rounds);
            TEST_ASSERT_TRUE(s->bytes_sent == s->messages_sent * partial);
        } else {
            TEST_ASSERT_TRUE(s->messages_sent <= rounds);
            TEST_ASSERT_TRUE(s->messages_received <= rounds);
            TEST_ASSERT_TRUE(s->bytes_sent <= rounds * partial);
        }
        /* Halving: all rounds together send less than one partial, and a fold one more each way. */
        if (t->placement == TA_PLACE_HEADS)
            TEST_ASSERT_TRUE(s->bytes_sent <=
                             partial * (folded ? 2 : 1) + (rounds + 1) * sizeof(ta_fault));
    }
    TEST_ASSERT_TRUE(sent == received);
    if (t->placement == TA_PLACE_ROOT)
        TEST_ASSERT_TRUE(sent == (uint64_t)ranks - 1);
    if (t->placement == TA_PLACE_ALL && !folded)
        TEST_ASSERT_TRUE(sent == (uint64_t)ranks * rounds);
}

static void test_messages_and_bytes(void)
{
    for (int i = 0; i < RANK_COUNTS; ++i)
        for (int placement = TA_PLACE_ALL; placement <= TA_PLACE_HEADS; ++placement) {
            trial t = {.heads = 32,
                       .placement = (ta_placement)placement,
                       .fault_rank = -1,
                       .other_fault_rank = -1,
                       .differing_rank = -1};
            t.kind = placement == TA_PLACE_ROOT ? TA_EXCHANGE_BINOMIAL : TA_EXCHANGE_DOUBLING;
            run_trial(&t, rank_counts[i]);
            check_counts(&t, rank_counts[i]);
            free_trial(&t);
        }
}

static void run_and_free(trial *t, int ranks)
{
    run_trial(t, ranks);
    free_trial(t);
}

static void test_a_fault_travels_with_the_partial(void)
{
    for (int ranks = 2; ranks <= 8; ++ranks)
        for (int placement = TA_PLACE_ALL; placement <= TA_PLACE_HEADS; ++placement)
            for (int bad = 0; bad < ranks; ++bad)
                for (int other = -1; other < ranks; other += other < 0 ? bad + 2 : 1) {
                    trial t = {.heads = 3,
                               .placement = (ta_placement)placement,
                               .fault_rank = bad,
                               .other_fault_rank = other,
                               .differing_rank = -1};
                    for_every_kind(&t, ranks, run_and_free);
                }
}

/* Whatever the kind and the placement: it comes out as an error, and names two that differ. */
static void test_a_rank_in_another_step(void)
{
    for (int ranks = 2; ranks <= 8; ++ranks)
        for (int placement = TA_PLACE_ALL; placement <= TA_PLACE_HEADS; ++placement)
            for (int other = 0; other < ranks; ++other) {
                trial t = {.heads = 3,
                           .placement = (ta_placement)placement,
                           .fault_rank = -1,
                           .other_fault_rank = -1,
                           .differing_rank = other};
                for_every_kind(&t, ranks, run_and_free);
            }
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(test_every_kind_placement_and_size);
    RUN_TEST(test_messages_and_bytes);
    RUN_TEST(test_a_fault_travels_with_the_partial);
    RUN_TEST(test_a_rank_in_another_step);
    return UNITY_END() != 0;
}
