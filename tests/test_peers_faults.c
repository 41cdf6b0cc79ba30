/* The direct exchange between GPUs (test_peers.c) where something goes wrong: ranks with bad
 * arguments, ranks that do not come, a rank that aborts; and what becomes of it where devices can't
 * reach each other. */
#include <pthread.h>

#include "base/clock.h"
#include "exchange/peer_rank.h"
#include "lib/peer_ranks.h"

/* Rank 1 is given bad arguments: nobody waits, all hear of it, and the next step is right. */
static ta_status run_bad_argument(peer *p)
{
    small_step step;
    ta_plan *plan = NULL;
    TA_TRY(prepare(p, &step, &plan));
    const int32_t *lengths = step.kv.lengths;
    if (p->rank == 1)
        step.kv.lengths = NULL;
    ta_status status = small_step_queue(&step, plan, p->stream);
    RANK_EXPECT((status == TA_OK) == (p->rank != 1));
    TA_TRY(small_step_fetch(&step, p->stream));
    RANK_EXPECT(p->rank == 1 || small_step_untouched(&step));
    if (p->rank != 1)
        TA_TRY(rank_expect_error(TA_ERR_INVALID, ta_plan_check(plan), "rank 1 failed", "earlier"));
    step.kv.lengths = lengths;
    TA_TRY(decode(p, &step, plan));
    RANK_EXPECT(small_step_right(&step));
    ta_plan_destroy(plan);
    small_step_release(&step);
    return TA_OK;
}

static void test_bad_argument(void)
{
    trial t = {.fn = run_bad_argument, .kind = TA_EXCHANGE_DIRECT};
    ta_cluster *cluster;
    for (t.threads = 0; t.threads < 2; ++t.threads)
        EXPECT_OK(run_on(&t, 3));
    EXPECT_OK(ta_cluster_create("local:2x3", &cluster));
    t.threads = 0;
    t.cluster = cluster;
    EXPECT_OK(run_on(&t, 5));
    ta_cluster_destroy(cluster);
}

/* All ranks leave at the same moment: whoever of them looks first, no slab is left behind, and the
 * callers stay on the device that they were on. */
static pthread_barrier_t all_leave;

static ta_status run_leaving(peer *p)
{
    small_step step;
    ta_plan *plan = NULL;
    int now = -1;
    TA_TRY(prepare(p, &step, &plan));
    RANK_EXPECT(hipSetDevice(7) == hipSuccess);
    pthread_barrier_wait(&all_leave);
    ta_plan_destroy(plan);
    RANK_EXPECT(hipGetDevice(&now) == hipSuccess && now == 7);
    small_step_release(&step);
    return TA_OK;
}

static void test_leaving_together(void)
{
    trial t = {.fn = run_leaving, .kind = TA_EXCHANGE_DIRECT};
    pthread_barrier_init(&all_leave, NULL, 3);
    for (int i = 0; i < 300; ++i) {
        t.threads = i % 2;
        EXPECT_OK(run_on(&t, 3));
        char text[40];
        snprintf(text, sizeof text, "slabs are left behind by round %d", i);
        TEST_ASSERT_EQUAL_INT_MESSAGE(0, count_slabs(), text);
    }
    pthread_barrier_destroy(&all_leave);
}

#define SHORT_MS PATIENCE_MS(2000)

static pthread_barrier_t in_turn; /* where three ranks meet outside of their group */
static pthread_barrier_t gave_up; /* and two of them */

/* All have long patience until here; in the next step on the device they have little. */
static ta_status take_first_step(peer *p, small_step *step, ta_plan **plan)
{
    TA_TRY(prepare(p, step, plan));
    TA_TRY(decode(p, step, *plan));
    RANK_EXPECT(small_step_right(step));
    ta_peers_params *params = &((ta_gpu_peers *)(*plan)->job.peers)->params;
    params->patience = params->patience / LONG_WAIT_MS * SHORT_MS;
    pthread_barrier_wait(&in_turn);
    return TA_OK;
}

/* Rank 1 comes to one step and not to the next: the others hear its name when their time is over,
 * and from then on at once. */
static ta_status run_missing(peer *p)
{
    small_step step;
    ta_plan *plan = NULL;
    TA_TRY(take_first_step(p, &step, &plan));
    if (p->rank != 1) {
        TA_TRY(decode(p, &step, plan));
        RANK_EXPECT(small_step_untouched(&step));
        TA_TRY(rank_expect_error(TA_ERR_TIMEOUT, ta_plan_check(plan), "rank 1 did not come",
                                 "timeout"));
        TA_TRY(rank_expect_error(TA_ERR_TIMEOUT, small_step_queue(&step, plan, p->stream),
                                 "rank 1 did not come", "neither that step"));
        TA_TRY(small_step_fetch(&step, p->stream));
        RANK_EXPECT(small_step_untouched(&step));
    }
    pthread_barrier_wait(&in_turn); /* it does not leave before */
    ta_plan_destroy(plan);
    small_step_release(&step);
    return TA_OK;
}

static void test_missing_rank(void)
{
    trial t = {.fn = run_missing, .kind = TA_EXCHANGE_DIRECT};
    pthread_barrier_init(&in_turn, NULL, 3);
    for (int shots = 1; shots <= 2; ++shots) {
        setenv("TREEATTN_DIRECT_SHOTS", shots == 1 ? "1" : "2", 1);
        for (t.threads = 0; t.threads < 2; ++t.threads)
            EXPECT_OK(run_on(&t, 3));
    }
    pthread_barrier_destroy(&in_turn);
}

/* Rank 0 has given up when rank 1 comes, and rank 2 has not: these two would wait for rank 0 in the
 * second shot, but it tells them whom it missed. */
static ta_status run_late_for_one(peer *p)
{
    small_step step;
    ta_plan *plan = NULL;
    TA_TRY(take_first_step(p, &step, &plan));
    ta_peers_params *params = &((ta_gpu_peers *)plan->job.peers)->params;
    if (p->rank != 0)
        params->patience = params->patience / SHORT_MS * LONG_WAIT_MS;
    if (p->rank == 1)
        pthread_barrier_wait(&gave_up);
    double begin = ta_clock_s();
    TA_TRY(decode(p, &step, plan));
    if (p->rank == 0)
        pthread_barrier_wait(&gave_up);
    RANK_EXPECT(small_step_untouched(&step));
    RANK_EXPECT(ta_clock_s() - begin < 0.5e-3 * LONG_WAIT_MS);
    pthread_barrier_wait(&in_turn); /* a rank that knows ends the group */
    TA_TRY(
        rank_expect_error(TA_ERR_TIMEOUT, ta_plan_check(plan), "rank 1 did not come", "timeout"));
    ta_plan_destroy(plan);
    small_step_release(&step);
    return TA_OK;
}

static void test_late_for_one(void)
{
    trial t = {.fn = run_late_for_one, .kind = TA_EXCHANGE_DIRECT};
    pthread_barrier_init(&in_turn, NULL, 3);
    pthread_barrier_init(&gave_up, NULL, 2);
    setenv("TREEATTN_DIRECT_SHOTS", "2", 1);
    for (t.threads = 0; t.threads < 2; ++t.threads)
        EXPECT_OK(run_on(&t, 3));
    pthread_barrier_destroy(&gave_up);
    pthread_barrier_destroy(&in_turn);
}

static void *abort_later(void *group)
{
    sleep_ms(SHORT_MS / 4);
    ta_group_abort(group, "enough");
    return NULL;
}

/* Rank 1 aborts the group while the others wait for it on their devices, or while it waits itself
 * with rank 0 for rank 2: who waits hears its name long before the timeout, and a new group
 * works. */
static ta_status run_aborted(peer *p)
{
    small_step step;
    ta_plan *plan = NULL;
    pthread_t thread;
    TA_TRY(take_first_step(p, &step, &plan));
    ta_peers_params *params = &((ta_gpu_peers *)plan->job.peers)->params;
    params->patience = params->patience / SHORT_MS * LONG_WAIT_MS;
    if (p->rank == 1)
        RANK_EXPECT(pthread_create(&thread, NULL, abort_later, p->group) == 0);
    double begin = ta_clock_s();
    if (p->rank != (p->trial->steps ? 2 : 1)) {
        TA_TRY(decode(p, &step, plan));
        RANK_EXPECT(ta_clock_s() - begin < 0.5e-3 * LONG_WAIT_MS);
        RANK_EXPECT(small_step_untouched(&step));
        TA_TRY(rank_expect_error(TA_ERR_ABORTED, ta_plan_check(plan), "rank 1 aborted", "step"));
        TA_TRY(rank_expect_error(TA_ERR_ABORTED, small_step_queue(&step, plan, p->stream),
                                 "rank 1 aborted", ""));
    }
    if (p->rank == 1)
        pthread_join(thread, NULL);
    pthread_barrier_wait(&in_turn);
    ta_plan_destroy(plan);
    small_step_release(&step);
    return TA_OK;
}

static void test_aborted(void)
{
    trial t = {.fn = run_aborted, .kind = TA_EXCHANGE_DIRECT};
    trial again = {.fn = run_steps, .kind = TA_EXCHANGE_DIRECT, .steps = 3};
    pthread_barrier_init(&in_turn, NULL, 3);
    for (t.threads = again.threads = 0; t.threads < 2; t.threads = ++again.threads) {
        for (t.steps = 0; t.steps < 2; ++t.steps)
            EXPECT_OK(run_on(&t, 3));
        EXPECT_OK(run_on(&again, 3));
    }
    pthread_barrier_destroy(&in_turn);
}

/* ---- Where it can't be had ---- */

static ta_status run_refused(peer *p)
{
    small_step step;
    ta_plan *plan = NULL;
    ta_cluster *cluster = NULL;
    ta_status status = TA_OK;
    if (p->trial->nodes)
        TA_TRY(ta_cluster_create(p->trial->nodes, &cluster));
    small_step_init(&step, p->rank, p->ranks);
    step.config.exchange = p->trial->kind;
    step.config.cluster = cluster;
    status = ta_plan_create(p->group, p->device, &step.config, &plan);
    ta_cluster_destroy(cluster);
    return status;
}

static void test_refused(void)
{
    trial t = {.fn = run_refused, .kind = TA_EXCHANGE_DIRECT};
    for (t.threads = 0; t.threads < 2; ++t.threads) {
        simt_set_peers(SIMT_PEERS_NONE);
        EXPECT_ERROR(TA_ERR_UNSUPPORTED, run_on(&t, 3), "TA_EXCHANGE_DIRECT", "no peer");
        simt_set_peers(SIMT_PEERS_PAIRS);
        EXPECT_ERROR(TA_ERR_UNSUPPORTED, run_on(&t, 3), "TA_EXCHANGE_DIRECT", "no peer");
        simt_set_peers(SIMT_PEERS_LOSSY);
        EXPECT_ERROR(TA_ERR_UNSUPPORTED, run_on(&t, 3), "TA_EXCHANGE_DIRECT", "words from other");
        simt_set_peers(SIMT_PEERS_ALL);
    }
    t.threads = 1; /* no messages of device memory */
    t.nodes = "local:2x2";
    EXPECT_ERROR(TA_ERR_UNSUPPORTED, run_on(&t, 4), "TA_EXCHANGE_DIRECT",
                 "the ranks are on 2 nodes");
    t.nodes = NULL;
    t.one_device = 1;
    EXPECT_ERROR(TA_ERR_UNSUPPORTED, run_on(&t, 2), "TA_EXCHANGE_DIRECT", "same device");
}

/* As many ranks as a slab has places for, and no more. */
static void test_the_most_ranks(void)
{
    int names[TA_MAX_PEERS + 1];
    ta_device *device;
    ta_peers *peers = NULL;
    ta_peers_offer offer;
    EXPECT_OK(ta_device_open("simt:0", NULL, &device));
    for (int rank = 0; rank <= TA_MAX_PEERS; ++rank)
        names[rank] = rank;
    ta_peers_shape shape = {.ranks = TA_MAX_PEERS,
                            .names = names,
                            .world = TA_MAX_PEERS + 1,
                            .partial_bytes = 256,
                            .records = 1,
                            .shots = 1,
                            .timeout_ms = LONG_WAIT_MS};
    EXPECT_OK(device->ops->peers->make(device, &shape, &peers, &offer));
    device->ops->peers->release(peers);
    peers = NULL;
    ++shape.ranks;
    EXPECT_ERROR(TA_ERR_UNSUPPORTED, device->ops->peers->make(device, &shape, &peers, &offer),
                 "73 ranks are more than 72", NULL);
    TEST_ASSERT_NULL(peers);
    ta_device_close(device);
}

/* Left to the planner, on a cluster where it costs least: ranks that can't have it take another
 * exchange, of which ta_explain() and ta_info() say why. */
static ta_status run_choosing(peer *p)
{
    trial *t = p->trial;
    small_step step;
    ta_plan *plan = NULL;
    char text[8000];
    small_step_init(&step, p->rank, p->ranks);
    step.config.cluster = t->cluster;
    TA_TRY(small_step_to_device(&step, p->device));
    TA_TRY(ta_plan_create(p->group, p->device, &step.config, &plan));
    TA_TRY(ta_explain(plan, text, sizeof text, NULL));
    RANK_EXPECT(!strstr(text, "exchange: direct") == !!t->why_not);
    RANK_EXPECT(!t->why_not || (strstr(text, "; not direct: ") && strstr(text, t->why_not)));
    TA_TRY(decode(p, &step, plan));
    RANK_EXPECT(small_step_right(&step));
    ta_plan_destroy(plan);
    small_step_release(&step);
    return TA_OK;
}

static void expect_info(const char *why_not)
{
    char text[8000];
    EXPECT_OK(ta_info(text, sizeof text, NULL));
    const char *line = strstr(text, "\ndirect exchange: given up, ");
    TEST_ASSERT_EQUAL_INT_MESSAGE(!!why_not, !!line, text);
    if (why_not)
        TEST_ASSERT_NOT_NULL_MESSAGE(strstr(line, why_not), line);
}

static void choose(trial *t, const char *cluster, simt_peers peers, const char *why_not)
{
    ta_cluster *made;
    EXPECT_OK(ta_cluster_create(cluster, &made));
    t->cluster = made;
    t->why_not = why_not;
    simt_set_peers(peers);
    EXPECT_OK(run_on(t, 4));
    simt_set_peers(SIMT_PEERS_ALL);
    ta_cluster_destroy(made);
    expect_info(why_not);
}

static void test_fallen_back(void)
{
    trial t = {.fn = run_choosing};
    for (t.threads = 0; t.threads < 2; ++t.threads)
        choose(&t, "local:1x4", SIMT_PEERS_ALL, NULL);
    for (t.threads = 0; t.threads < 2; ++t.threads) {
        choose(&t, "local:1x4", SIMT_PEERS_NONE, "its device is no peer");
        choose(&t, "local:1x4", SIMT_PEERS_PAIRS, "its device is no peer");
        choose(&t, "local:1x4", SIMT_PEERS_LOSSY, "words from other devices came");
    }
    t.threads = t.one_device = 1;
    choose(&t, "local:1x4", SIMT_PEERS_ALL, "both have the same device");
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(test_fallen_back); /* first: ta_info() knows of none yet */
    RUN_TEST(test_bad_argument);
    RUN_TEST(test_leaving_together);
    RUN_TEST(test_missing_rank);
    RUN_TEST(test_late_for_one);
    RUN_TEST(test_aborted);
    RUN_TEST(test_refused);
    RUN_TEST(test_the_most_ranks);
    return UNITY_END() != 0;
}
