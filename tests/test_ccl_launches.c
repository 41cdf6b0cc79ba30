/* How many kernels and copies a step queues on a group of GPUs, for each exchange: those of the
 * busiest rank, beside the attend, which is one kernel here. docs/gpu.md shows the same table. The
 * step's results must be right, and the same bits on all ranks. With the argument "print" the table
 * is printed. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <treeattn/cluster.h>

#include "base/hash.h"
#include "base/status.h"
#include "decode/plan.h"
#include "device/device.h"
#include "exchange/kinds.h"
#include "lib/ccl_around.h"
#include "lib/ccl_ranks.h"
#include "lib/expect.h"
#include "lib/small_step.h"
#include "simt/simt_control.h"

#define MAX_RANKS 8

typedef struct trial {
    ta_exchange kind;
    ta_placement placement;
    const ta_cluster *cluster;
    uint64_t launches[MAX_RANKS], copies[MAX_RANKS];
    uint64_t bits[MAX_RANKS]; /* of the results */
} trial;

static ta_status count_rank(ccl_rank *r)
{
    trial *t = r->context;
    small_step step;
    ta_plan *plan = NULL;
    small_step_init(&step, r->rank, r->ranks);
    step.config.cluster = t->cluster;
    step.config.exchange = t->kind;
    step.config.out_placement = t->placement;
    TA_TRY(small_step_to_device(&step, r->device));
    TA_TRY(ta_plan_create(r->group, r->device, &step.config, &plan));
    for (int round = 0; round < 2; ++round) { /* the second finds what the first left behind */
        TA_TRY(small_step_fill(&step));
        TA_TRY(small_step_queue(&step, plan, r->streams[0]));
        TA_TRY(small_step_fetch(&step, r->streams[0]));
        if (t->placement == TA_PLACE_ALL && !small_step_right(&step))
            return ta_fail(TA_ERR_DEVICE, "rank %d of %d, exchange %d: wrong results", r->rank,
                           r->ranks, (int)t->kind);
    }
    t->launches[r->rank] = plan->last_step.device.launches;
    t->copies[r->rank] = plan->last_step.device.copies;
    t->bits[r->rank] = ta_hash_bytes(step.results, sizeof step.results);
    ta_plan_destroy(plan);
    small_step_release(&step);
    return TA_OK;
}

static uint64_t largest(const uint64_t *values, int ranks)
{
    uint64_t most = 0;
    for (int rank = 0; rank < ranks; ++rank)
        most = values[rank] > most ? values[rank] : most;
    return most;
}

/* Run a step; the busiest rank's launches beside attend and its copies, as "launches + copies". */
static void count(ta_exchange kind, ta_placement placement, int ranks, char *text, size_t capacity,
                  uint64_t *bits)
{
    trial t = {.kind = kind, .placement = placement};
    char description[32];
    ta_cluster *cluster = NULL;
    int nodes = kind == TA_EXCHANGE_DIRECT ? 1 : 2;
    snprintf(description, sizeof description, "local:%dx%d", nodes, (ranks + nodes - 1) / nodes);
    EXPECT_OK(ta_cluster_create(description, &cluster));
    t.cluster = cluster;
    EXPECT_OK(ccl_run(ranks, LONG_WAIT_MS, count_rank, &t));
    ta_cluster_destroy(cluster);
    for (int rank = 1; rank < ranks && placement == TA_PLACE_ALL; ++rank)
        TEST_ASSERT_TRUE_MESSAGE(t.bits[rank] == t.bits[0], "the ranks' bits differ");
    *bits = t.bits[0];
    snprintf(text, capacity, "%d+%d", (int)largest(t.launches, ranks) - 1,
             (int)largest(t.copies, ranks));
}

static const int rank_counts[] = {2, 3, 4, 8};

/* By exchange: with 2, 3, 4 and 8 ranks; output on all ranks. "-": not possible. */
static const struct {
    ta_exchange kind;
    const char *expected[4];
} table[] = {
    {TA_EXCHANGE_DOUBLING, {"1+0", "3+0", "2+0", "3+0"}},
    {TA_EXCHANGE_BINOMIAL, {"2+0", "3+0", "3+0", "4+0"}},
    {TA_EXCHANGE_SCATTER, {"3+0", "5+0", "6+0", "11+0"}},
    {TA_EXCHANGE_TWO_LEVEL, {"-", "3+0", "4+0", "6+0"}},
    {TA_EXCHANGE_ALL_GATHER, {"1+0", "1+0", "1+0", "1+0"}},
    {TA_EXCHANGE_DIRECT, {"1+0", "1+0", "1+0", "1+0"}},
};

static int prints;

static void test_launches_of_each_exchange(void)
{
    for (size_t row = 0; row < sizeof table / sizeof *table; ++row) {
        if (prints)
            printf("| %s |", ta_exchange_kinds[table[row].kind].name);
        for (int i = 0; i < 4; ++i) {
            char got[32] = "-", message[100];
            uint64_t bits = 0;
            if (strcmp(table[row].expected[i], "-") != 0)
                count(table[row].kind, TA_PLACE_ALL, rank_counts[i], got, sizeof got, &bits);
            snprintf(message, sizeof message, "%s on %d ranks",
                     ta_exchange_kinds[table[row].kind].name, rank_counts[i]);
            if (prints)
                printf(" %s (%016llx) |", got, (unsigned long long)bits);
            else
                TEST_ASSERT_EQUAL_STRING_MESSAGE(table[row].expected[i], got, message);
        }
        if (prints)
            printf("\n");
    }
}

/* Output that is scattered, or on one rank. */
static void test_launches_of_other_placements(void)
{
    static const struct {
        ta_exchange kind;
        ta_placement placement;
        const char *expected;
    } cases[] = {
        {TA_EXCHANGE_DOUBLING, TA_PLACE_HEADS, "3+0"},
        {TA_EXCHANGE_SCATTER, TA_PLACE_HEADS, "4+0"},
        {TA_EXCHANGE_TWO_LEVEL, TA_PLACE_HEADS, "4+0"},
        {TA_EXCHANGE_ALL_GATHER, TA_PLACE_HEADS, "1+0"},
        {TA_EXCHANGE_BINOMIAL, TA_PLACE_ROOT, "2+0"},
        {TA_EXCHANGE_SCATTER, TA_PLACE_ROOT, "7+0"},
        {TA_EXCHANGE_ALL_GATHER, TA_PLACE_ROOT, "1+0"},
        {TA_EXCHANGE_DIRECT, TA_PLACE_HEADS, "1+0"},
        {TA_EXCHANGE_DIRECT, TA_PLACE_ROOT, "1+0"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; ++i) {
        char got[32], message[100];
        uint64_t bits;
        count(cases[i].kind, cases[i].placement, 4, got, sizeof got, &bits);
        snprintf(message, sizeof message, "%s to placement %d",
                 ta_exchange_kinds[cases[i].kind].name, (int)cases[i].placement);
        if (prints)
            printf("%s: %s (%016llx)\n", message, got, (unsigned long long)bits);
        else
            TEST_ASSERT_EQUAL_STRING_MESSAGE(cases[i].expected, got, message);
    }
}

int main(int argc, char **argv)
{
    prints = argc > 1 && strcmp(argv[1], "print") == 0;
    UNITY_BEGIN();
    RUN_TEST(test_launches_of_each_exchange);
    RUN_TEST(test_launches_of_other_placements);
    return UNITY_END() != 0;
}
