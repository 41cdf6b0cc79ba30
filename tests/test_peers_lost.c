/* The direct exchange between GPUs on several nodes (test_peers.c) where a rank is lost: direct
 * inside a node, NCCL between them. It does not come to a step, its device is stopped in the middle
 * of one, or it aborts. The others, of its node and of the others, get an error with its name
 * within the timeout, nothing is left, and a new group works. test_peers_faults.c has one node,
 * tests/mpi/peers.c processes. */
#include <pthread.h>

#include "base/clock.h"
#include "cluster/cluster.h"
#include "exchange/peer_rank.h"
#include "lib/peer_ranks.h"

/* Of the group from the beginning. */
#define SHORT_MS PATIENCE_MS(4000)

typedef enum loss { ABSENT, STOPPED, ABORTS } loss;

static loss how;
static int lost;                  /* that rank */
static pthread_barrier_t in_turn; /* where all meet outside of their group */
static pthread_barrier_t all_know;

/* A device that does not go on until the others are done with it. */
static void hold(void *unused)
{
    (void)unused;
    pthread_barrier_wait(&all_know);
}

/* What the rank does that is lost. When it comes back it may hear of it or not. */
static ta_status be_lost(peer *p, small_step *step, ta_plan *plan)
{
    if (how == STOPPED) {
        TA_TRY(small_step_fill(step));
        RANK_EXPECT(hipLaunchHostFunc((hipStream_t)p->stream, hold, NULL) == hipSuccess);
        (void)small_step_queue(step, plan, p->stream);
        (void)small_step_fetch(step, p->stream);
        return TA_OK;
    }
    if (how == ABORTS) {
        sleep_ms(SHORT_MS / 8);
        ta_group_abort(p->group, "enough");
    }
    pthread_barrier_wait(&all_know);
    return TA_OK;
}

static ta_status expect_named(ta_status status)
{
    char named[40];
    snprintf(named, sizeof named, how == ABORTS ? "rank %d aborted" : "rank %d did not come", lost);
    RANK_EXPECT(status == TA_ERR_TIMEOUT || status == TA_ERR_ABORTED);
    RANK_EXPECT(strstr(ta_last_error(), named));
    return TA_OK;
}

/* An error that names it, now and in the next call. A step of another node that was on its way when
 * a rank aborted hears of it in the next call only: nobody there has waited for it in a kernel. */
static ta_status lose(peer *p, small_step *step, ta_plan *plan)
{
    int beside = p->trial->cluster->node_of[p->rank] == p->trial->cluster->node_of[lost];
    double begin = ta_clock_s();
    TA_TRY(decode(p, step, plan));
    double took = ta_clock_s() - begin;
    RANK_EXPECT(took < (how == ABORTS ? 0.6e-3 : 2e-3) * SHORT_MS);
    if (how != ABORTS || beside) {
        RANK_EXPECT(small_step_untouched(step));
        TA_TRY(expect_named(ta_plan_check(plan)));
    }
    return expect_named(small_step_queue(step, plan, p->stream));
}

static ta_status run_losing(peer *p)
{
    small_step step;
    ta_plan *plan = NULL;
    TA_TRY(prepare(p, &step, &plan));
    TA_TRY(decode(p, &step, plan));
    RANK_EXPECT(small_step_right(&step));
    pthread_barrier_wait(&in_turn);
    ta_status status = p->rank == lost ? be_lost(p, &step, plan) : lose(p, &step, plan);
    if (p->rank != lost)
        pthread_barrier_wait(&all_know);
    ta_plan_destroy(plan);
    small_step_release(&step);
    return status;
}

static void lose_one(int ranks, const char *nodes, int rank)
{
    ta_cluster *cluster;
    EXPECT_OK(ta_cluster_create(nodes, &cluster));
    trial t = {
        .fn = run_losing, .kind = TA_EXCHANGE_DIRECT, .cluster = cluster, .timeout_ms = SHORT_MS};
    trial again = {.fn = run_steps, .kind = TA_EXCHANGE_DIRECT, .cluster = cluster, .steps = 3};
    lost = rank;
    pthread_barrier_init(&in_turn, NULL, (unsigned)ranks);
    pthread_barrier_init(&all_know, NULL, (unsigned)ranks);
    EXPECT_OK(run_on(&t, ranks));
    EXPECT_OK(run_on(&again, ranks));
    pthread_barrier_destroy(&all_know);
    pthread_barrier_destroy(&in_turn);
    ta_cluster_destroy(cluster);
}

/* One that merges a part of the heads and exchanges it with the other node, and one that does not,
 * as there are fewer ranks there. */
static void test_absent(void)
{
    how = ABSENT;
    lose_one(4, "local:2x2", 1);
    lose_one(5, "local:2x3", 2);
}

static void test_stopped(void)
{
    how = STOPPED;
    lose_one(5, "local:2x3", 4);
    lose_one(5, "local:2x3", 2);
}

static void test_aborted(void)
{
    how = ABORTS;
    lose_one(4, "local:2x2", 1);
    lose_one(5, "local:2x3", 2);
    lose_one(5, "local:2x3", 3);
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(test_absent);
    RUN_TEST(test_stopped);
    RUN_TEST(test_aborted);
    return UNITY_END() != 0;
}
