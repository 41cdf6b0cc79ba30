/* The direct exchange (src/exchange/direct.c, src/group/signals.c) over many steps: the bits of the
 * all-gather exchange on every rank, with ranks that come late by turns, records in place, plans
 * that take turns on one group, counts that wrap, one shot and two; and its faults on threads: a
 * rank that is late for good, one that aborts. test_exchange.c has every placement
 * and size of one step; tests/mpi/faults.c the faults of processes. */
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

#include "base/clock.h"
#include "exchange/exchange.h"
#include "group/signals.h"
#include "lib/expect.h"
#include "lib/patience.h"
#include "lib/random.h"
#include "lib/small_step.h"

#define ROWS 2
#define V_DIM 8
#define RECORD (V_DIM + 2)
#define HEADS 5
#define STEPS 200
#define FLOATS (HEADS * ROWS * RECORD)

void setUp(void)
{
}

void tearDown(void)
{
}

static void sleep_us(int microseconds)
{
    struct timespec time = {0, (long)microseconds * 1000};
    nanosleep(&time, NULL);
}

typedef struct trial {
    int shots, jobs;
    uint32_t start;
    ta_placement placement;
} trial;

static void fill(float *records, int step, int rank)
{
    random_source source = random_from((uint64_t)(step * 64 + rank));
    for (int i = 0; i < FLOATS; ++i)
        records[i] = (float)random_normal(&source);
    for (int i = 0; i < HEADS * ROWS; ++i)
        records[i * RECORD + V_DIM + 1] = 1 + (float)random_unit(&source);
}

/* All ranks' partials merged in the order of the ranks, by the device that merges in a run. */
static ta_status merge_all(ta_device *device, int step, int ranks, float *merged)
{
    float *next = malloc(FLOATS * sizeof *next);
    ta_status status = next ? TA_OK : TA_ERR_NO_MEMORY;
    fill(merged, step, 0);
    for (int rank = 1; rank < ranks && status == TA_OK; ++rank) {
        fill(next, step, rank);
        status = ta_device_merge(device, merged, next, HEADS * ROWS, V_DIM, NULL);
    }
    free(next);
    return status;
}

/* What finish() would read: `last`, with what it has still to merge. */
static ta_status finish(ta_exchange_job *job, float *records)
{
    ta_merge last = job->last;
    RANK_EXPECT(last.fault->status == TA_OK);
    memcpy(records, last.records, FLOATS * sizeof *records);
    last.records = records;
    last.fault = NULL;
    return last.messages ? job->device->ops->merge(job->device, &last, NULL) : TA_OK;
}

static ta_status make_job(ta_group *group, ta_device *device, const trial *t, const ta_nodes *nodes,
                          ta_exchange_job *job)
{
    int skipped;
    *job = (ta_exchange_job){.group = group,
                             .device = device,
                             .rank = ta_group_rank(group),
                             .kind = TA_EXCHANGE_DIRECT,
                             .chunks = 1,
                             .defers = 1};
    job->shape = (ta_exchange_shape){.ranks = ta_group_size(group),
                                     .heads = HEADS,
                                     .record_bytes = RECORD * sizeof(float),
                                     .v_dim = V_DIM,
                                     .head_bytes = ROWS * RECORD * sizeof(float),
                                     .placement = t->placement,
                                     .nodes = nodes,
                                     .shares_memory = 1,
                                     .shots = t->shots};
    TA_TRY(ta_exchange_share(job, TA_OK, &skipped));
    RANK_EXPECT(!skipped);
    return TA_OK;
}

static ta_status one_step(const trial *t, ta_exchange_job *job, int step)
{
    int ranks = job->shape.ranks, rank = job->rank;
    float expected[FLOATS], got[FLOATS];
    if (step % ranks == rank) /* by turns */
        sleep_us(step % 7 ? 0 : 300);
    job->records = ta_exchange_own_records(job);
    fill(job->records, step, rank);
    *ta_exchange_fault(job) = ta_fault_of(TA_OK, rank);
    TA_TRY(ta_exchange_run(job, NULL));
    if ((step + rank) % 3 == 0) /* others are done meanwhile, and go on */
        sleep_us(100);
    if (t->placement == TA_PLACE_ROOT && rank != 0)
        return TA_OK;
    TA_TRY(finish(job, got));
    TA_TRY(merge_all(job->device, step, ranks, expected));
    int first = t->placement == TA_PLACE_HEADS ? HEADS * rank / ranks : 0;
    int end = t->placement == TA_PLACE_HEADS ? HEADS * (rank + 1) / ranks : HEADS;
    RANK_EXPECT(memcmp(expected + first * ROWS * RECORD, got + first * ROWS * RECORD,
                       (size_t)(end - first) * ROWS * RECORD * sizeof(float)) == 0);
    return TA_OK;
}

static ta_status many_steps(ta_group *group, void *context)
{
    const trial *t = context;
    ta_exchange_job jobs[2];
    ta_device *device;
    ta_nodes nodes;
    TA_TRY(ta_device_open("host", NULL, &device));
    TA_TRY(ta_nodes_make(NULL, ta_group_size(group), &nodes));
    for (int i = 0; i < t->jobs; ++i)
        TA_TRY(make_job(group, device, t, &nodes, &jobs[i]));
    ta_signals_start(jobs[0].signals, t->start);
    TA_TRY(ta_group_barrier(group, NULL));
    ta_status status = TA_OK;
    for (int step = 0; step < STEPS && status == TA_OK; ++step)
        status = one_step(t, &jobs[step / 3 % t->jobs], step);
    for (int i = 0; i < t->jobs; ++i)
        ta_exchange_release(&jobs[i]);
    ta_nodes_free(&nodes);
    ta_device_close(device);
    return status;
}

static void test_many_steps(void)
{
    static const int rank_counts[] = {2, 3, 5, 8};
    for (int i = 0; i < 4; ++i)
        for (int shots = 1; shots <= 2; ++shots)
            for (int placement = TA_PLACE_ALL; placement <= TA_PLACE_HEADS; ++placement) {
                trial t = {shots, 1 + (i + placement) % 2, shots == 1 ? 0 : UINT32_MAX - STEPS / 2,
                           (ta_placement)placement};
                EXPECT_OK(ta_group_run_threads(rank_counts[i], NULL, many_steps, &t));
            }
}

/* After 2^31 exchanges in one shot the word of the second one must not seem to have come. */
static ta_status change_shots(ta_group *group, void *context)
{
    trial t = {.shots = 1, .placement = TA_PLACE_ALL};
    ta_exchange_job job;
    ta_device *device;
    ta_nodes nodes;
    (void)context;
    TA_TRY(ta_device_open("host", NULL, &device));
    TA_TRY(ta_nodes_make(NULL, ta_group_size(group), &nodes));
    TA_TRY(make_job(group, device, &t, &nodes, &job));
    for (int step = 0; step < 30; ++step) {
        job.shape.shots = 1 + step / 2 % 2;
        if (step % 10 == 9) { /* as if there had been as many in one shot */
            TA_TRY(ta_group_barrier(group, NULL));
            job.signals->epoch += UINT32_C(1) << 31;
            ta_word_set(&job.signals->of[job.signals->index].ready, job.signals->epoch);
            TA_TRY(ta_group_barrier(group, NULL));
        }
        TA_TRY(one_step(&t, &job, step));
    }
    ta_exchange_release(&job);
    ta_nodes_free(&nodes);
    ta_device_close(device);
    return TA_OK;
}

static void test_shots_change(void)
{
    EXPECT_OK(ta_group_run_threads(3, NULL, change_shots, NULL));
}

/* Two shots are one signal more and save reading: from where on that pays is the medium's. */
static void test_shots_follow_the_medium(void)
{
    ta_exchange_shape shape = {.ranks = 8, .heads = 1, .placement = TA_PLACE_ALL};
    const double saved = 7 * (1 - 2.0 / 8);
    static const struct {
        int device_memory;
        double signal_bytes, from;
    } media[] = {{0, 0, 48 << 10},
                 {0, 1e6, 48 << 10}, /* of hosts it was measured */
                 {1, 0, 634e3},
                 {1, 1.41e-6 * 450e9, 1.41e-6 * 450e9},
                 {1, 3e-6 * 31.5e9, 3e-6 * 31.5e9}};
    for (size_t i = 0; i < sizeof media / sizeof *media; ++i) {
        shape.device_memory = media[i].device_memory;
        shape.signal_bytes = media[i].signal_bytes;
        shape.head_bytes = (size_t)(media[i].from / saved) - 8;
        TEST_ASSERT_EQUAL_INT(1, ta_direct_shots(&shape));
        shape.head_bytes += 16;
        TEST_ASSERT_EQUAL_INT(2, ta_direct_shots(&shape));
    }
    shape.ranks = 2; /* nothing is saved */
    TEST_ASSERT_EQUAL_INT(1, ta_direct_shots(&shape));
}

/* ---- Faults ---- */

typedef enum trouble { IS_LATE, ABORTS, SETTLES } trouble;

/* Ranks that cannot have the same memory: all are told, with the rank that is in the way. */
typedef enum hindrance { SHOTS, NOT_SHARED, ON_DEVICE, HINDRANCES } hindrance;

static ta_status hindered_rank(ta_group *group, void *context)
{
    const hindrance what = *(const hindrance *)context;
    int rank = ta_group_rank(group), last = rank == 2, skipped;
    char here[60];
    ta_device *device;
    TA_TRY(ta_device_open("host", NULL, &device));
    ta_exchange_job job = {.group = group,
                           .device = device,
                           .rank = rank,
                           .kind = TA_EXCHANGE_DIRECT,
                           .chunks = 1,
                           .shape = {.ranks = 3,
                                     .heads = HEADS,
                                     .record_bytes = RECORD * sizeof(float),
                                     .v_dim = V_DIM,
                                     .head_bytes = ROWS * RECORD * sizeof(float),
                                     .shares_memory = what != NOT_SHARED || !last,
                                     .device_memory = what == ON_DEVICE && last,
                                     .shots = what == SHOTS && last ? 2 : 1}};
    ta_status status = ta_exchange_share(&job, TA_OK, &skipped);
    ta_device_close(device);
    RANK_EXPECT(skipped && !job.slab);
    snprintf(here, sizeof here, "TREEATTN_DIRECT_SHOTS is %d here and another", last ? 2 : 1);
    if (what == SHOTS)
        return rank_expect_error(TA_ERR_MISMATCH, status, here, "must be the same");
    return rank_expect_error(TA_ERR_UNSUPPORTED, status, "rank 2 has its partials in memory of a",
                             what == ON_DEVICE ? "others have them in the host's" : "GPU");
}

static void test_ranks_that_cannot_share(void)
{
    for (hindrance what = SHOTS; what < HINDRANCES; ++what)
        EXPECT_OK(ta_group_run_threads(3, NULL, hindered_rank, &what));
}

static void test_shots_of_the_environment(void)
{
    static const char *const wrong[] = {"0", "3", "12", "two"};
    ta_device *device;
    ta_plan *plan;
    small_step step;
    small_step_init(&step, 0, 1);
    EXPECT_OK(ta_device_open("host", NULL, &device));
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; ++i) {
        char is[60];
        snprintf(is, sizeof is, "TREEATTN_DIRECT_SHOTS is '%s'", wrong[i]);
        setenv("TREEATTN_DIRECT_SHOTS", wrong[i], 1);
        EXPECT_ERROR(TA_ERR_INVALID, ta_plan_create(NULL, device, &step.config, &plan), is,
                     "must be 1 or 2");
    }
    unsetenv("TREEATTN_DIRECT_SHOTS");
    ta_device_close(device);
}

/* The timeout of a whole group, in which plans are made too. */
#define SHORT_MS (PATIENCE_FACTOR > 1 ? 6000 : 2500)

static pthread_barrier_t in_turn; /* where ranks meet outside of their group */

static ta_status troubled(ta_group *group, void *context)
{
    trouble what = *(const trouble *)context;
    ta_plan *plan;
    ta_device *device;
    small_step step;
    int rank = ta_group_rank(group);
    small_step_init(&step, rank, ta_group_size(group));
    step.config.exchange = TA_EXCHANGE_DIRECT;
    TA_TRY(ta_device_open("host", NULL, &device));
    TA_TRY(ta_plan_create(group, device, &step.config, &plan));
    for (int i = 0; i < 3; ++i)
        TA_TRY(small_step_decode(&step, plan));
    ta_status status = TA_OK;
    pthread_barrier_wait(&in_turn); /* nobody is late but for rank 1 */
    double begin = ta_clock_s();
    if (rank == 1 && what == ABORTS) {
        sleep_us(50000);
        ta_group_abort(group, "enough");
    } else if (rank != 1 || what == SETTLES) {
        status = small_step_decode(&step, plan);
    }
    RANK_EXPECT(what == SETTLES ? status == TA_OK : ta_clock_s() - begin < 0.5e-3 * LONG_WAIT_MS);
    pthread_barrier_wait(&in_turn); /* and nobody leaves before the others know */
    ta_plan_destroy(plan);
    ta_device_close(device);
    if (what == SETTLES || rank == 1)
        return status;
    RANK_EXPECT(status == (what == IS_LATE ? TA_ERR_TIMEOUT : TA_ERR_ABORTED));
    char late[64];
    snprintf(late, sizeof late, "rank 1 did not arrive within %d ms", SHORT_MS);
    RANK_EXPECT(
        strstr(ta_last_error(), what == IS_LATE ? late : "rank 1 aborted the group: enough"));
    return TA_OK;
}

static void test_a_rank_that_does_not_come(void)
{
    static const trouble kinds[] = {IS_LATE, ABORTS};
    for (int ranks = 2; ranks <= 4; ++ranks)
        for (int i = 0; i < 2; ++i) {
            ta_group_config config = TA_GROUP_CONFIG_INIT;
            config.timeout_ms = kinds[i] == IS_LATE ? SHORT_MS : LONG_WAIT_MS;
            trouble what = kinds[i], settles = SETTLES;
            pthread_barrier_init(&in_turn, NULL, (unsigned)ranks);
            EXPECT_OK(ta_group_run_threads(ranks, &config, troubled, &what));
            EXPECT_OK(ta_group_run_threads(ranks, NULL, troubled, &settles)); /* a new group */
            pthread_barrier_destroy(&in_turn);
        }
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(test_many_steps);
    RUN_TEST(test_shots_change);
    RUN_TEST(test_shots_follow_the_medium);
    RUN_TEST(test_ranks_that_cannot_share);
    RUN_TEST(test_shots_of_the_environment);
    RUN_TEST(test_a_rank_that_does_not_come);
    return UNITY_END() != 0;
}
