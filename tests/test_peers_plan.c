/* Plans of GPUs that address each other's memory, on the executor: the workspace that a caller is
 * told suffices also where another exchange is taken in the end, ta_explain() says why it was, in
 * how many shots a direct one goes is rank 0's to say, and a group of host memory moves no queries
 * beside it. Ranks are threads with a device each; test_peers.c has what plans do. */
#include "lib/peer_ranks.h"

/* In a group of device memory, and in one of the host's. */
static void run_both(int ranks, const char *description, peer_fn fn)
{
    ta_cluster *cluster;
    EXPECT_OK(ta_cluster_create(description, &cluster));
    trial t = {.fn = fn, .cluster = cluster};
    for (t.threads = 0; t.threads < 2; ++t.threads)
        EXPECT_OK(run_on(&t, ranks));
    ta_cluster_destroy(cluster);
}

/* ---- The workspace ---- */

/* Never less than the plan needs; in device memory it is what the plan takes that shares none. */
static ta_status bring_workspace(peer *p)
{
    small_step step;
    ta_plan *plan = NULL;
    ta_plan_stats stats = TA_PLAN_STATS_INIT;
    size_t bytes;
    small_step_init(&step, p->rank, p->ranks);
    step.config.cluster = p->trial->cluster;
    TA_TRY(small_step_to_device(&step, p->device));
    TA_TRY(ta_plan_workspace(p->group, p->device, &step.config, &bytes));
    TA_TRY(ta_device_alloc(p->device, bytes, &step.config.workspace));
    step.config.workspace_bytes = bytes;
    TA_TRY(ta_plan_create(p->group, p->device, &step.config, &plan));
    TA_TRY(ta_plan_get_stats(plan, &stats));
    RANK_EXPECT(stats.workspace_bytes <= bytes);
    RANK_EXPECT(p->trial->threads || ta_exchange_kinds[plan->choice.exchange].shares ||
                stats.workspace_bytes == bytes);
    TA_TRY(small_step_decode(&step, plan));
    RANK_EXPECT(small_step_right(&step));
    ta_plan_destroy(plan);
    ta_device_free(p->device, step.config.workspace);
    small_step_release(&step);
    return TA_OK;
}

static void test_workspace(void)
{
    run_both(4, "local:1x4", bring_workspace);
    simt_set_peers(SIMT_PEERS_NONE);
    run_both(4, "local:1x4", bring_workspace);
}

/* ---- Why it is another ---- */

/* Partials that are much larger than the cache: a ring that passes K and V comes next. */
static ta_status explain_ring(peer *p)
{
    ta_plan_config config = TA_PLAN_CONFIG_INIT;
    ta_plan *plan = NULL;
    char text[8000], json[16000];
    config.batch = 1;
    config.query_tokens = 64;
    config.query_heads = 24;
    config.kv_heads = 1;
    config.k_dim = 8;
    config.kv_dtype = TA_F32;
    config.max_tokens = 64;
    config.out_placement = TA_PLACE_HEADS;
    config.cluster = p->trial->cluster;
    TA_TRY(ta_plan_create(p->group, p->device, &config, &plan));
    TA_TRY(ta_explain(plan, text, sizeof text, NULL));
    TA_TRY(ta_explain_json(plan, json, sizeof json, NULL));
    RANK_EXPECT(ta_plan_is_ring(plan));
    RANK_EXPECT(strstr(text, "ways on this cluster; not direct: rank ") != NULL);
    RANK_EXPECT(strstr(text, "its device is no peer") != NULL);
    RANK_EXPECT(strstr(json, "; not direct: rank ") != NULL);
    ta_plan_destroy(plan);
    return TA_OK;
}

static void test_ring_in_its_place(void)
{
    simt_set_peers(SIMT_PEERS_NONE);
    run_both(3,
             "local:1x3 node.latency_seconds=1e-5 node.rank_bytes_per_second=1e6 "
             "node.total_bytes_per_second=3e6",
             explain_ring);
}

/* ---- Shots ---- */

/* Only rank 0 has a cluster: all do as it says. */
static ta_status take_shots(peer *p, int shots)
{
    small_step step;
    ta_plan *plan = NULL;
    small_step_init(&step, p->rank, p->ranks);
    step.config.exchange = TA_EXCHANGE_DIRECT;
    step.config.cluster = p->rank == 0 ? p->trial->cluster : NULL;
    TA_TRY(small_step_to_device(&step, p->device));
    TA_TRY(ta_plan_create(p->group, p->device, &step.config, &plan));
    RANK_EXPECT(ta_direct_shots(&plan->job.shape) == shots);
    for (int i = 0; i < 3; ++i) {
        TA_TRY(small_step_decode(&step, plan));
        RANK_EXPECT(small_step_right(&step));
    }
    ta_plan_destroy(plan);
    small_step_release(&step);
    return TA_OK;
}

static ta_status take_one(peer *p)
{
    return take_shots(p, 1);
}

static ta_status take_two(peer *p)
{
    return take_shots(p, 2);
}

static void test_shots_of_the_medium(void)
{
    run_both(4, "h100:1x4", take_one);
    run_both(4, "h100:1x4 node.signal_seconds=1e-9", take_two);
}

/* ---- What a group of host memory would have to move beside it ---- */

static ta_status ask_for(peer *p, ta_placement query, int scattered, const char *refused)
{
    small_step step;
    ta_plan *plan = NULL;
    small_step_init(&step, p->rank, p->ranks);
    step.config.exchange = TA_EXCHANGE_DIRECT;
    step.config.query_placement = query;
    step.config.append_scattered = scattered;
    ta_status status = ta_plan_create(p->group, p->device, &step.config, &plan);
    if (p->trial->threads)
        return rank_expect_error(TA_ERR_UNSUPPORTED, status, refused,
                                 "group threads moves host memory");
    ta_plan_destroy(plan);
    return status;
}

static ta_status ask_for_more(peer *p)
{
    TA_TRY(ask_for(p, TA_PLACE_ROOT, 0, "config.query_placement is 1 with"));
    TA_TRY(ask_for(p, TA_PLACE_HEADS, 0, "config.query_placement is 2 with"));
    return ask_for(p, TA_PLACE_ALL, 1, "config.append_scattered is 1 with");
}

static void test_queries_elsewhere(void)
{
    run_both(2, "local:1x2", ask_for_more);
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(test_workspace);
    RUN_TEST(test_ring_in_its_place);
    RUN_TEST(test_shots_of_the_medium);
    RUN_TEST(test_queries_elsewhere);
    return UNITY_END() != 0;
}
