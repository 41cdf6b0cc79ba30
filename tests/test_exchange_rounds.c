/* The rounds of every exchange (src/exchange/), as data: each message has a sender and a receiver
 * who mean the same heads, nobody counts twice, and in the end every rank has what its placement
 * promises. No records move here; test_exchange.c runs them. */
#include "exchange/rounds.h"

#include <stdlib.h>

#include "base/shard_map.h"
#include "exchange/kinds.h"
#include "lib/expect.h"

#define MAX_RANKS 24
#define MAX_HEADS 19

void setUp(void)
{
}

void tearDown(void)
{
}

/* Which ranks' partials are in a rank's head: a bit each. */
static uint32_t has[MAX_RANKS][MAX_HEADS], before[MAX_RANKS][MAX_HEADS];
static char problem[256];

static void say(const ta_exchange_shape *s, const char *name, const char *what, int rank, int index)
{
    snprintf(problem, sizeof problem,
             "%s, %d ranks on %d nodes, %d heads, placement %d, root %d: rank %d in round %d %s",
             name, s->ranks, s->nodes->count, s->heads, (int)s->placement, s->root, rank, index,
             what);
    TEST_FAIL_MESSAGE(problem);
}

static void receive(const ta_exchange_shape *s, const char *name, int rank, int index,
                    const ta_round *round, const ta_round *theirs)
{
    if (theirs->to != rank || theirs->given.first != round->kept.first ||
        theirs->given.end != round->kept.end)
        say(s, name, "expects what was not sent", rank, index);
    for (int head = round->kept.first; head < round->kept.end; ++head) {
        uint32_t arrived = before[round->from][head];
        if (!round->replaces && (has[rank][head] & arrived))
            say(s, name, "counts a rank twice", rank, index);
        if (round->replaces && (has[rank][head] & ~arrived))
            say(s, name, "takes what lacks its own", rank, index);
        has[rank][head] = round->replaces ? arrived : has[rank][head] | arrived;
    }
}

static void run_round(const ta_exchange_shape *s, const char *name, const ta_round_ops *ops,
                      int index)
{
    ta_round rounds[MAX_RANKS];
    memcpy(before, has, sizeof has);
    for (int rank = 0; rank < s->ranks; ++rank) {
        rounds[rank] = (ta_round){.to = -1, .from = -1};
        ops->round(s, rank, index, &rounds[rank]);
        if (rounds[rank].to == rank || rounds[rank].from == rank || rounds[rank].to >= s->ranks)
            say(s, name, "has no such partner", rank, index);
    }
    for (int rank = 0; rank < s->ranks; ++rank) {
        int to = rounds[rank].to, from = rounds[rank].from;
        if (to >= 0 && rounds[to].from != rank)
            say(s, name, "sends to one who does not listen", rank, index);
        if (from >= 0)
            receive(s, name, rank, index, &rounds[rank], &rounds[from]);
    }
}

static void check_end(const ta_exchange_shape *s, const char *name)
{
    for (int rank = 0; rank < s->ranks; ++rank)
        for (int head = 0; head < s->heads; ++head) {
            int wanted = s->placement == TA_PLACE_ALL;
            if (s->placement == TA_PLACE_ROOT)
                wanted = rank == s->root;
            if (s->placement == TA_PLACE_HEADS)
                wanted = head >= ta_head_start(s->heads, s->ranks, rank) &&
                         head < ta_head_start(s->heads, s->ranks, rank + 1);
            if (wanted && has[rank][head] != (uint32_t)((1ull << s->ranks) - 1))
                say(s, name, "ends with a head that is not complete", rank, head);
        }
}

static void try_shape(const ta_exchange_shape *s)
{
    for (int kind = 1; kind < TA_EXCHANGE_KINDS; ++kind) {
        const ta_exchange_entry *entry = &ta_exchange_kinds[kind];
        if (!entry->rounds || !entry->supports(s))
            continue;
        for (int rank = 0; rank < s->ranks; ++rank)
            for (int head = 0; head < s->heads; ++head)
                has[rank][head] = 1u << rank;
        for (int index = 0; index < entry->rounds->rounds(s); ++index)
            run_round(s, entry->name, entry->rounds, index);
        check_end(s, entry->name);
    }
}

static void try_levels(ta_nodes nodes, int ranks)
{
    static const int head_counts[] = {1, 2, 3, 5, 8, 16, 19};
    for (size_t h = 0; h < sizeof head_counts / sizeof *head_counts; ++h)
        for (int placement = TA_PLACE_ALL; placement <= TA_PLACE_HEADS; ++placement)
            for (int root = 0; root < (placement == TA_PLACE_ROOT ? ranks : 1); ++root) {
                ta_exchange_shape shape = {.ranks = ranks,
                                           .heads = head_counts[h],
                                           .placement = (ta_placement)placement,
                                           .root = root,
                                           .nodes = &nodes};
                try_shape(&shape);
            }
    ta_nodes_free(&nodes);
}

static void try_nodes(const int *node_of, int ranks)
{
    ta_nodes nodes;
    EXPECT_OK(ta_nodes_make(node_of, ranks, &nodes));
    try_levels(nodes, ranks);
}

static void test_equal_nodes_of_every_size(void)
{
    for (int ranks = 1; ranks <= MAX_RANKS; ++ranks)
        for (int each = 1; each <= ranks; ++each) {
            int node_of[MAX_RANKS];
            for (int rank = 0; rank < ranks; ++rank)
                node_of[rank] = rank / each;
            try_nodes(node_of, ranks);
        }
}

static void test_unequal_and_scattered_nodes(void)
{
    static const int cases[][MAX_RANKS + 1] = {
        {8, 0, 0, 0, 0, 0, 0, 0, 1},
        {9, 0, 1, 2, 0, 1, 2, 0, 1, 2},
        {7, 3, 3, 3, 0, 0, 9, 9},
        {12, 0, 0, 0, 0, 0, 1, 1, 1, 2, 2, 2, 2},
        {13, 5, 1, 1, 5, 5, 1, 0, 0, 0, 0, 0, 0, 0},
        {20, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2, 2},
        {11, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; ++i)
        try_nodes(cases[i] + 1, cases[i][0]);
}

/* Numbers for units of `each` members, of which the last may have fewer. */
static void number_units(const int *below, int ranks, int each, int *unit_of)
{
    for (int rank = 0; rank < ranks; ++rank)
        unit_of[rank] = (below ? below[rank] : rank) / each;
}

static void test_racks_of_every_size(void)
{
    for (int ranks = 4; ranks <= MAX_RANKS; ranks += 1 + ranks / 9)
        for (int each = 1; each <= 5; ++each)
            for (int rack = 2; rack <= 4; ++rack) {
                int node_of[MAX_RANKS], rack_of[MAX_RANKS];
                ta_nodes nodes;
                number_units(NULL, ranks, each, node_of);
                number_units(node_of, ranks, rack, rack_of);
                EXPECT_OK(ta_nodes_make(node_of, ranks, &nodes));
                EXPECT_OK(ta_nodes_add(rack_of, ranks, TA_UNIT_RACK, &nodes));
                try_levels(nodes, ranks);
            }
}

/* Packages, nodes and racks of any numbers; ranks are not in their order. */
static void test_three_levels_of_unequal_units(void)
{
    static const int packages[][MAX_RANKS] = {
        {0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7},
        {7, 7, 7, 1, 1, 2, 2, 2, 2, 3, 0, 0, 4, 4, 5, 5, 5, 6, 6, 1, 2},
        {0, 1, 2, 3, 4, 5, 6, 7, 0, 1, 2, 3, 4, 5, 6, 7, 0, 1, 2, 3, 4, 5, 6, 7},
    };
    static const int ranks[] = {16, 21, 24};
    static const int node_of_package[][8] = {
        {0, 0, 1, 1, 2, 2, 3, 3}, {0, 0, 0, 1, 1, 2, 3, 3}, {2, 0, 1, 1, 0, 2, 2, 3}};
    static const int rack_of_node[][4] = {{0, 0, 1, 1}, {0, 0, 0, 1}, {1, 0, 1, 1}};
    for (int i = 0; i < 3; ++i)
        for (int j = 0; j < 9; ++j) {
            int node_of[MAX_RANKS], rack_of[MAX_RANKS];
            ta_nodes nodes;
            for (int rank = 0; rank < ranks[i]; ++rank) {
                node_of[rank] = node_of_package[j / 3][packages[i][rank]];
                rack_of[rank] = rack_of_node[j % 3][node_of[rank]];
            }
            EXPECT_OK(ta_nodes_make(packages[i], ranks[i], &nodes));
            EXPECT_OK(ta_nodes_add(node_of, ranks[i], TA_UNIT_NODE, &nodes));
            EXPECT_OK(ta_nodes_add(rack_of, ranks[i], TA_UNIT_RACK, &nodes));
            TEST_ASSERT_EQUAL_INT(3, ta_nodes_levels(&nodes));
            try_levels(nodes, ranks[i]);
        }
}

/* Bytes of records that go from one unit to another. */
static uint64_t bytes_across(const ta_exchange_shape *s, const ta_round_ops *ops,
                             const int *unit_of)
{
    uint64_t bytes = 0;
    for (int index = 0; index < ops->rounds(s); ++index)
        for (int rank = 0; rank < s->ranks; ++rank) {
            ta_round round = {.to = -1, .from = -1};
            ops->round(s, rank, index, &round);
            if (round.to >= 0 && unit_of[round.to] != unit_of[rank])
                bytes += ta_message_bytes(s, round.given) - TA_FAULT_BYTES;
        }
    return bytes;
}

/* A rack sends each head once to each of log2(racks) others, two levels once for each node. */
static void test_multi_level_sends_less_between_racks(void)
{
    int node_of[16], rack_of[16];
    ta_nodes nodes;
    number_units(NULL, 16, 2, node_of);
    number_units(node_of, 16, 4, rack_of);
    EXPECT_OK(ta_nodes_make(node_of, 16, &nodes));
    EXPECT_OK(ta_nodes_add(rack_of, 16, TA_UNIT_RACK, &nodes));
    ta_exchange_shape s = {
        .ranks = 16, .heads = 8, .record_bytes = 40, .head_bytes = 40, .nodes = &nodes};
    TEST_ASSERT_EQUAL_UINT64(2 * 8 * 40, bytes_across(&s, &ta_multi_level_rounds, rack_of));
    TEST_ASSERT_EQUAL_UINT64(4 * 2 * 8 * 40, bytes_across(&s, &ta_two_level_rounds, rack_of));
    ta_nodes_free(&nodes);
}

/* What makes it worth having: a node sends each head once to each of log2(nodes) others, while
 * doubling sends every rank's partial. */
static void test_two_level_sends_less_between_nodes(void)
{
    int node_of[16];
    for (int rank = 0; rank < 16; ++rank)
        node_of[rank] = rank / 4;
    ta_nodes nodes;
    EXPECT_OK(ta_nodes_make(node_of, 16, &nodes));
    ta_exchange_shape s = {
        .ranks = 16, .heads = 8, .record_bytes = 40, .head_bytes = 40, .nodes = &nodes};
    uint64_t flat = bytes_across(&s, &ta_doubling_rounds, node_of);
    TEST_ASSERT_EQUAL_UINT64(4 * bytes_across(&s, &ta_two_level_rounds, node_of), flat);
    ta_nodes_free(&nodes);
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(test_equal_nodes_of_every_size);
    RUN_TEST(test_unequal_and_scattered_nodes);
    RUN_TEST(test_racks_of_every_size);
    RUN_TEST(test_three_levels_of_unequal_units);
    RUN_TEST(test_two_level_sends_less_between_nodes);
    RUN_TEST(test_multi_level_sends_less_between_racks);
    return UNITY_END() != 0;
}
