/* Every allocation of the library fails once: the first one of a call, the second one … until the
 * call makes no more. The linker gives us its calls of the allocation functions. On several ranks
 * one of them has no memory: all must end soon, with an error that says so, without a crash and
 * without a leak; and when no allocation fails any more the call works. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

#include <treeattn/attention.h>
#include <treeattn/cluster.h>

#include "base/status.h"
#include "decode/planner.h"
#include "group/group.h"
#include "lib/expect.h"
#include "lib/memory_transport.h"
#include "lib/no_memory.h"
#include "lib/patience.h"
#include "lib/plan_config.h"
#include "lib/small_step.h"
#include "lib/wrapped_allocation.h"

#define RANKS NO_MEMORY_RANKS
#define TIMEOUT_MS LONG_WAIT_MS /* nobody may wait for it */
#define MOST_ALLOCATIONS 400

_Static_assert(MEMORY_RANKS == RANKS, "a custom group has all of them");

/* ---- Memory that is not there ---- */

static _Thread_local int countdown; /* the allocation that fails on this thread; 0: none */
static _Thread_local int failed;
static atomic_int live; /* blocks that were not given back */

static int is_refused(void)
{
    if (countdown == 0 || --countdown > 0)
        return 0;
    failed = 1;
    return 1;
}

static void *made(void *memory)
{
    atomic_fetch_add(&live, memory != NULL);
    return memory;
}

void *__wrap_malloc(size_t bytes)
{
    return is_refused() ? NULL : made(__real_malloc(bytes));
}

void *__wrap_calloc(size_t count, size_t bytes)
{
    return is_refused() ? NULL : made(__real_calloc(count, bytes));
}

void *__wrap_realloc(void *memory, size_t bytes)
{
    if (is_refused())
        return NULL;
    return memory ? __real_realloc(memory, bytes) : made(__real_realloc(NULL, bytes));
}

void *__wrap_aligned_alloc(size_t alignment, size_t bytes)
{
    return is_refused() ? NULL : made(__real_aligned_alloc(alignment, bytes));
}

int __wrap_posix_memalign(void **memory, size_t alignment, size_t bytes)
{
    if (is_refused())
        return 12; /* ENOMEM */
    int error = __real_posix_memalign(memory, alignment, bytes);
    atomic_fetch_add(&live, error == 0);
    return error;
}

char *__wrap_strdup(const char *text)
{
    return is_refused() ? NULL : made(__real_strdup(text));
}

void __wrap_free(void *memory)
{
    atomic_fetch_sub(&live, memory != NULL);
    __real_free(memory);
}

void setUp(void)
{
}

void tearDown(void)
{
}

/* ---- A call on all ranks, of which one has no memory ---- */

/* What a call may need, and what it makes. */
typedef struct scene {
    ta_group *group;
    ta_device *device;
    small_step step;
    const ta_cluster *cluster;
    ta_plan *plan;
    ta_choice choice;
    ta_attention *attention;
    ta_cluster *made;
    ta_group *part;
    memory_transport *shared; /* of all ranks */
    memory_end end;
    ta_group *custom; /* over it */
} scene;

typedef struct call {
    const char *name;
    ta_status (*prepare)(scene *s); /* with memory; NULL: nothing to do */
    ta_status (*run)(scene *s);
} call;

typedef struct trial {
    const call *call;
    const ta_cluster *cluster;
    refusal refused;
    pthread_barrier_t together;
    memory_transport shared;
} trial;

static void free_scene(scene *s)
{
    ta_plan_destroy(s->plan);
    ta_choice_free(&s->choice);
    ta_attention_destroy(s->attention);
    ta_cluster_destroy(s->made);
    ta_group_destroy(s->part);
    ta_group_destroy(s->custom);
    ta_device_close(s->device);
}

static ta_status poor_rank(ta_group *group, void *context)
{
    trial *t = context;
    refusal *refused = &t->refused;
    int rank = ta_group_rank(group);
    ta_device_config one_thread = TA_DEVICE_CONFIG_INIT;
    scene s = {.group = group, .cluster = t->cluster, .shared = &t->shared};
    one_thread.threads = 1;
    small_step_init(&s.step, rank, RANKS);
    TA_TRY(ta_device_open("host", &one_thread, &s.device));
    if (t->call->prepare)
        TA_TRY(t->call->prepare(&s));
    TA_TRY(ta_group_barrier(group, NULL)); /* else the others may not be done with that */
    pthread_barrier_wait(&t->together); /* else one that aborts the group could end it in there */
    failed = 0;
    countdown = rank == refused->rank ? refused->number : 0;
    refused->status[rank] = t->call->run(&s);
    countdown = 0;
    if (rank == refused->rank)
        refused->failed = failed;
    snprintf(refused->said[rank], sizeof refused->said[rank], "%s", ta_last_error());
    pthread_barrier_wait(&t->together); /* before anybody leaves the group */
    free_scene(&s);
    return TA_OK;
}

/* Returns how many allocations there are to fail. */
static int fail_each(const call *c, const ta_cluster *cluster, int rank)
{
    ta_group_config config = TA_GROUP_CONFIG_INIT;
    config.timeout_ms = TIMEOUT_MS;
    for (int number = 1; number <= MOST_ALLOCATIONS; ++number) {
        static trial t;
        t = (trial){.call = c, .cluster = cluster, .refused = {.rank = rank, .number = number}};
        memory_transport_init(&t.shared);
        char text[200];
        int before = atomic_load(&live);
        alarm(250); /* whoever hangs ends the program */
        pthread_barrier_init(&t.together, NULL, RANKS);
        EXPECT_OK(ta_group_run_threads(RANKS, &config, poor_rank, &t));
        pthread_barrier_destroy(&t.together);
        memory_transport_free(&t.shared);
        snprintf(text, sizeof text, "blocks left behind by %s, allocation %d of rank %d", c->name,
                 number, rank);
        TEST_ASSERT_EQUAL_INT_MESSAGE(before, atomic_load(&live), text);
        if (t.refused.failed) {
            expect_no_memory(&t.refused, c->name, 0);
            continue;
        }
        expect_memory(&t.refused);
        return number - 1;
    }
    TEST_FAIL_MESSAGE("it never ends");
    return 0;
}

/* ---- The calls ---- */

static ta_status make_plan(scene *s)
{
    return ta_plan_create(s->group, s->device, &s->step.config, &s->plan);
}

static ta_status make_ring_kv(scene *s)
{
    s->step.config.algorithm = TA_ALGORITHM_RING_KV;
    return make_plan(s);
}

static ta_status make_ring_q(scene *s)
{
    s->step.config.algorithm = TA_ALGORITHM_RING_Q;
    s->step.config.query_placement = TA_PLACE_HEADS;
    return make_plan(s);
}

static ta_status make_two_level(scene *s)
{
    s->step.config.cluster = s->cluster;
    s->step.config.exchange = TA_EXCHANGE_TWO_LEVEL;
    return make_plan(s);
}

/* Rank 0 says where the ranks are, on two levels. */
static ta_status know_levels(scene *s)
{
    static const int node_of[RANKS] = {0, 0, 1};
    s->choice.exchange = TA_EXCHANGE_MULTI_LEVEL;
    s->choice.algorithm = TA_ALGORITHM_TREE;
    TA_TRY(ta_nodes_make(node_of, RANKS, &s->choice.nodes));
    return ta_nodes_add(node_of, RANKS, TA_UNIT_RACK, &s->choice.nodes);
}

/* As a plan does, all follow it and then tell each other whether they could. */
static ta_status follow_levels(scene *s)
{
    ta_status status = ta_planner_follow(s->group, &s->choice, TA_OK);
    int64_t failures = status != TA_OK;
    if (status == TA_OK && ta_nodes_levels(&s->choice.nodes) != 2)
        return ta_fail(TA_ERR_MISMATCH, "not on two levels");
    ta_status heard = ta_group_max_host(s->group, &failures, 1, NULL, NULL);
    if (status != TA_OK || heard != TA_OK)
        return status != TA_OK ? status : heard;
    return failures ? ta_fail(TA_ERR_MISMATCH, "a rank has no memory") : TA_OK;
}

static ta_status make_direct(scene *s)
{
    s->step.config.exchange = TA_EXCHANGE_DIRECT;
    return make_plan(s);
}

static ta_status make_planned(scene *s)
{
    s->step.config.cluster = s->cluster;
    s->step.config.out_placement = TA_PLACE_HEADS;
    return make_plan(s);
}

static ta_status make_reproducible(scene *s)
{
    s->step.config.reproducible_tile = 64;
    s->step.config.map.block = 64;
    return make_plan(s);
}

static ta_status make_combine(scene *s)
{
    s->step.config = combine_config(SMALL_BATCH, SMALL_HEADS, SMALL_V_DIM);
    s->step.config.query_tokens = SMALL_QUERY_TOKENS;
    return make_plan(s);
}

static ta_status make_appending(scene *s)
{
    s->step.config.append_scattered = 1;
    return make_plan(s);
}

/* Rank 1 has another sink, which all are to hear of; so this is no failure. */
static ta_status make_differing(scene *s)
{
    static const float sinks[2][SMALL_HEADS] = {{1, 2, 3, 4}, {1, 2, 3, 5}};
    s->step.config.sinks = sinks[s->step.rank == 1];
    ta_status status = make_plan(s);
    int heard = status == TA_ERR_MISMATCH && strstr(ta_last_error(), "config.sinks[3] is 5");
    return heard ? TA_OK : status;
}

static ta_status make_custom(scene *s)
{
    ta_group_config config = TA_GROUP_CONFIG_INIT;
    ta_transport transport = memory_transport_calls(s->shared, ta_group_rank(s->group), &s->end);
    config.timeout_ms = TIMEOUT_MS;
    return ta_group_create_custom(&transport, &config, &s->custom);
}

static ta_status make_plan_on_custom(scene *s)
{
    return ta_plan_create(s->custom, s->device, &s->step.config, &s->plan);
}

static ta_status split_custom(scene *s)
{
    return ta_group_split(s->custom, 0, -ta_group_rank(s->custom), &s->part);
}

static ta_status split(scene *s)
{
    return ta_group_split(s->group, 0, -ta_group_rank(s->group), &s->part);
}

static ta_status make_attention(scene *s, ta_attention_algorithm algorithm)
{
    ta_attention_config config = TA_ATTENTION_CONFIG_INIT;
    config.query_heads = 2;
    config.k_dim = 8;
    config.dtype = TA_F32;
    config.max_tokens = 64;
    config.algorithm = algorithm;
    config.cluster = algorithm == TA_ATTENTION_AUTO ? s->cluster : NULL;
    return ta_attention_create(s->group, s->device, &config, &s->attention);
}

static ta_status make_grid(scene *s)
{
    return make_attention(s, TA_ATTENTION_GRID);
}

static ta_status make_overlap(scene *s)
{
    return make_attention(s, TA_ATTENTION_GRID_OVERLAP);
}

static ta_status make_attention_ring(scene *s)
{
    return make_attention(s, TA_ATTENTION_RING);
}

static ta_status make_attention_auto(scene *s)
{
    return make_attention(s, TA_ATTENTION_AUTO);
}

static ta_status probe(scene *s)
{
    return ta_cluster_probe(s->group, s->device, &s->made);
}

/* The only steps that allocate; the plan can be used on. */
static ta_status make_checked(scene *s)
{
    s->step.config.check = 1;
    return make_plan(s);
}

static ta_status decode(scene *s)
{
    return small_step_decode(&s->step, s->plan);
}

static ta_status combine(scene *s)
{
    float part_lse[SMALL_ROWS] = {0};
    return ta_combine(s->plan, &s->step.q, part_lse, TA_LSE_E, &s->step.out, s->step.lse, NULL,
                      NULL);
}

static ta_status append(scene *s)
{
    ta_append_input input = TA_APPEND_INPUT_INIT;
    input.source = TA_APPEND_HEADS;
    input.k.data = input.v.data = s->step.query;
    return ta_append(s->plan, &input, &s->step.kv, NULL, NULL);
}

static ta_status all_reduce(scene *s)
{
    float numbers[5] = {1, 2, 3, 4, 5};
    return ta_all_reduce(s->group, NULL, numbers, numbers, 5, TA_ELEMENT_F32, TA_REDUCE_SUM, NULL);
}

static ta_status reduce_scatter(scene *s)
{
    int64_t numbers[RANKS * 2] = {1, 2, 3}, own[2];
    return ta_reduce_scatter(s->group, NULL, numbers, own, 2, TA_ELEMENT_I64, TA_REDUCE_MAX, NULL);
}

static ta_status all_gather(scene *s)
{
    char own[10] = "", all[RANKS * 10];
    return ta_all_gather(s->group, NULL, own, all, 10, TA_ELEMENT_BYTE, NULL);
}

/* More than a queue of the transport takes. */
static ta_status all_gather_on_custom(scene *s)
{
    char own[5000] = "", all[RANKS * 5000];
    return ta_all_gather(s->custom, NULL, own, all, 5000, TA_ELEMENT_BYTE, NULL);
}

/* From turns of one token to turns of two, paged to not paged. */
static ta_status reshard(scene *s)
{
    enum { LENGTH = 9, TOKENS = 6 };
    static const int32_t lengths[] = {LENGTH, LENGTH - 2}, pages[] = {0, 1, 2, 3, 4, 5, 6, 7};
    float before[2][8 * 8] = {{0}}, after[2][2 * TOKENS * 8];
    ta_reshard_config config = TA_RESHARD_CONFIG_INIT;
    ta_kv from = TA_KV_INIT, to = TA_KV_INIT;
    config.from.kind = config.to.kind = TA_SHARD_BLOCK_CYCLIC;
    config.from.block = 1;
    config.to.block = 2;
    config.batch = 2;
    config.kv_heads = 1;
    config.k_dim = 8;
    config.kv_dtype = TA_F32;
    config.from_tokens = config.to_tokens = TOKENS;
    config.lengths = lengths;
    from.k.data = before[0];
    from.v.data = before[1];
    from.page_table = pages;
    from.page_table_stride = 4;
    from.page_tokens = 1;
    from.page_count = 8;
    to.k.data = after[0];
    to.v.data = after[1];
    return ta_reshard(s->group, NULL, &config, &from, &to, NULL);
}

static ta_status attend(scene *s)
{
    static const int32_t lengths[] = {12};
    float data[3][12 * 2 * 8] = {{0}}, out[12 * 2 * 8], lse[12 * 2];
    ta_attention_input input = TA_ATTENTION_INPUT_INIT;
    ta_tensor result = {.data = out};
    input.sequences = 1;
    input.lengths = lengths;
    input.q.data = data[0];
    input.k.data = data[1];
    input.v.data = data[2];
    return ta_attention_forward(s->attention, &input, &result, lse, NULL);
}

static ta_status explain(scene *s)
{
    char text[8192];
    size_t needed;
    TA_TRY(ta_explain(s->plan, text, sizeof text, &needed));
    return ta_explain_json(s->plan, text, sizeof text, &needed);
}

/* Whether the call allocates is known: one that does not any more is noticed here. */
static void fail_all(const call *c, int allocates)
{
    ta_cluster *cluster = NULL;
    EXPECT_OK(ta_cluster_create("h100:2x2", &cluster));
    for (int rank = 0; rank < RANKS; ++rank)
        TEST_ASSERT_EQUAL_INT_MESSAGE(allocates, fail_each(c, cluster, rank) > 0, c->name);
    ta_cluster_destroy(cluster);
}

static void test_plans(void)
{
    static const call calls[] = {{"a tree", NULL, make_plan},
                                 {"pass-KV", NULL, make_ring_kv},
                                 {"pass-Q", NULL, make_ring_q},
                                 {"two levels", NULL, make_two_level},
                                 {"many levels", know_levels, follow_levels},
                                 {"a direct exchange", NULL, make_direct},
                                 {"a planned exchange", NULL, make_planned},
                                 {"a plan that combines", NULL, make_combine},
                                 {"a plan that gathers new tokens", NULL, make_appending},
                                 {"plans that differ", NULL, make_differing},
                                 {"a tree over a custom group", make_custom, make_plan_on_custom},
                                 {"a reproducible plan", NULL, make_reproducible}};
    for (size_t i = 0; i < sizeof calls / sizeof *calls; ++i)
        fail_all(&calls[i], 1);
}

static void test_attention_plans(void)
{
    static const call calls[] = {{"a grid", NULL, make_grid},
                                 {"a grid with overlap", NULL, make_overlap},
                                 {"a ring", NULL, make_attention_ring},
                                 {"attention by a cluster", NULL, make_attention_auto}};
    for (size_t i = 0; i < sizeof calls / sizeof *calls; ++i)
        fail_all(&calls[i], 1);
}

static void test_groups(void)
{
    static const call splitting = {"splitting", NULL, split}, probing = {"probing", NULL, probe},
                      custom = {"splitting a custom group", make_custom, split_custom};
    fail_all(&splitting, 1);
    fail_all(&probing, 1);
    fail_all(&custom, 1);
}

static void test_collectives(void)
{
    static const call calls[] = {
        {"an all-reduce", NULL, all_reduce},
        {"a reduce-scatter", NULL, reduce_scatter},
        {"an all-gather", NULL, all_gather},
        {"an all-gather on a custom group", make_custom, all_gather_on_custom},
        {"resharding", NULL, reshard}};
    for (size_t i = 0; i < sizeof calls / sizeof *calls; ++i)
        fail_all(&calls[i], 1);
}

static void test_steps(void)
{
    static const call checked = {"a step in checked mode", make_checked, decode},
                      plain = {"a step", make_plan, decode},
                      combining = {"a combine", make_combine, combine},
                      appending = {"an append", make_appending, append},
                      forward = {"attention", make_attention_ring, attend},
                      text = {"explaining", make_planned, explain};
    fail_all(&checked, 1);
    fail_all(&plain, 0);
    fail_all(&combining, 0);
    fail_all(&appending, 0);
    fail_all(&forward, 0);
    fail_all(&text, 0);
}

/* ---- Calls on one thread ---- */

static ta_status open_device(void)
{
    ta_device *device = NULL;
    TA_TRY(ta_device_open("host", NULL, &device));
    ta_device_close(device);
    return TA_OK;
}

static ta_status make_group(void)
{
    ta_group *groups[RANKS];
    TA_TRY(ta_group_create_threads(RANKS, NULL, groups));
    for (int rank = 0; rank < RANKS; ++rank)
        ta_group_destroy(groups[rank]);
    return TA_OK;
}

static ta_status moves_nothing(void *context, ta_transfer *const *transfers, int count,
                               int timeout_ms)
{
    (void)context, (void)transfers, (void)count, (void)timeout_ms;
    return TA_OK;
}

/* A group of one rank: on more, those that have memory wait for one that has none to come. */
static ta_status make_custom_group(void)
{
    ta_transport transport = TA_TRANSPORT_INIT;
    ta_group *group;
    transport.ranks = 1;
    transport.progress = moves_nothing;
    TA_TRY(ta_group_create_custom(&transport, NULL, &group));
    ta_group_destroy(group);
    return TA_OK;
}

static ta_status nothing_rank(ta_group *group, void *context)
{
    (void)group;
    (void)context;
    return TA_OK;
}

static ta_status run_threads(void)
{
    return ta_group_run_threads(RANKS, NULL, nothing_rank, NULL);
}

static ta_status make_cluster(const char *text)
{
    ta_cluster *cluster = NULL;
    TA_TRY(ta_cluster_create(text, &cluster));
    ta_cluster_destroy(cluster);
    return TA_OK;
}

static ta_status preset(void)
{
    return make_cluster("h100:2x2 network.latency_seconds=4.5e-6");
}

static ta_status cluster_file(void)
{
    const char *folder = getenv("TA_TEST_CLUSTERS");
    char path[1024];
    snprintf(path, sizeof path, "%s/two-packages.cluster", folder ? folder : "tests/clusters");
    return make_cluster(path);
}

static ta_status predict(void)
{
    static const ta_plan_config blank = TA_PLAN_CONFIG_INIT;
    ta_plan_config config = blank;
    ta_prediction prediction = TA_PREDICTION_INIT;
    ta_cluster *cluster = NULL;
    config.batch = config.query_heads = 1;
    config.k_dim = 8;
    config.kv_dtype = TA_F32;
    config.max_tokens = 100;
    config.map.block = 100;
    TA_TRY(ta_cluster_create("h100:2x2", &cluster));
    ta_status status = ta_predict(cluster, &config, 4, 0, &prediction);
    ta_cluster_destroy(cluster);
    return status;
}

static void test_calls_on_one_thread(void)
{
    static const struct {
        const char *name;
        ta_status (*run)(void);
    } calls[] = {{"opening a device", open_device},
                 {"a group", make_group},
                 {"a custom group", make_custom_group},
                 {"running threads", run_threads},
                 {"a preset", preset},
                 {"a cluster file", cluster_file},
                 {"predicting", predict}};
    for (size_t i = 0; i < sizeof calls / sizeof *calls; ++i) {
        int number = 0, before = atomic_load(&live);
        ta_status status;
        do {
            char text[1200];
            alarm(250);
            failed = 0;
            countdown = ++number;
            status = calls[i].run();
            countdown = 0;
            snprintf(text, sizeof text, "%s, allocation %d fails: %s", calls[i].name, number,
                     ta_last_error());
            TEST_ASSERT_EQUAL_INT_MESSAGE(failed ? TA_ERR_NO_MEMORY : TA_OK, status, text);
            TEST_ASSERT_EQUAL_INT_MESSAGE(before, atomic_load(&live), text);
        } while (failed && number < MOST_ALLOCATIONS);
        TEST_ASSERT_TRUE_MESSAGE(number > 1 && status == TA_OK, calls[i].name);
    }
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(test_calls_on_one_thread);
    RUN_TEST(test_groups);
    RUN_TEST(test_plans);
    RUN_TEST(test_attention_plans);
    RUN_TEST(test_steps);
    RUN_TEST(test_collectives);
    return UNITY_END() != 0;
}
