/* Faults of a group whose ranks are MPI processes. Each has a name, ends with an error that names
 * the rank, and is followed by destroying the group and stopping MPI.
 *
 *     mpi_faults NAME      on three ranks or more, but for "uninitialised"
 *
 * A rank that is killed is in killed.sh. */
#include <mpi.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/neighbors.h"
#include "group/mpi/mpi.h"
#include "lib/differing_plan.h"
#include "lib/differing_step.h"
#include "lib/expect.h"
#include "lib/patience.h"
#include "lib/small_step.h"
#include "rank.h"

/* Of the group while a rank is lost. Those who do come meet first, so that nobody else is late by
 * as much as this. Everywhere else the group is as patient as LONG_WAIT_MS says. */
#define TIMEOUT_MS 2000
#define WITHIN "within 2000 ms"

static void sleep_ms(int milliseconds)
{
    struct timespec time = {milliseconds / 1000, (long)(milliseconds % 1000) * 1000000};
    nanosleep(&time, NULL);
}

/* All are here; from now on this group waits no longer than TIMEOUT_MS. */
static void lose_patience(ta_group *world)
{
    rank_meet(0);
    world->timeout_ms = TIMEOUT_MS;
}

/* ---- A rank that never joins ---- */

/* A group of all, for which this rank waits so long. */
static ta_status join(int timeout_ms, ta_group **group)
{
    MPI_Comm comm = MPI_COMM_WORLD;
    ta_group_config config = TA_GROUP_CONFIG_INIT;
    config.timeout_ms = timeout_ms;
    *group = NULL;
    return ta_group_create_mpi(&comm, &config, group);
}

/* There is no such group: the one that did not come is named. */
static ta_status wait_for(int late, int timeout_ms)
{
    ta_group *group;
    char named[40], waited[20];
    snprintf(named, sizeof named, "rank %d did not join", late);
    snprintf(waited, sizeof waited, "%d ms", timeout_ms);
    ta_status status = join(timeout_ms, &group);
    RANK_EXPECT(group == NULL);
    return rank_expect_error(TA_ERR_TIMEOUT, status, named, waited);
}

static ta_status never_joins(ta_group *world, int late)
{
    ta_status status = TA_OK;
    rank_meet(0);
    if (ta_group_rank(world) != late)
        status = wait_for(late, TIMEOUT_MS);
    rank_meet(0);
    return status;
}

static ta_status rank_1_never_joins(ta_group *world)
{
    return never_joins(world, 1);
}

static ta_status rank_0_never_joins(ta_group *world)
{
    return never_joins(world, 0);
}

/* Two ranks do not come: both are named, by all others. */
static ta_status two_never_join(ta_group *world)
{
    int rank = ta_group_rank(world);
    ta_group *group;
    ta_status status = TA_OK;
    rank_meet(0);
    if (rank != 1 && rank != 2)
        status = rank_expect_error(TA_ERR_TIMEOUT, join(TIMEOUT_MS, &group),
                                   "ranks 1 and 2 did not join", WITHIN);
    rank_meet(0);
    return status;
}

/* A rank comes when the others have given up, and all try again. What was said of the first time
 * must not count for the second: the late rank's answer to it, and what rank 0 told it then. */
static ta_status late_rank(ta_group *world, int late, int tries)
{
    int rank = ta_group_rank(world);
    ta_group *group;
    ta_status status = TA_OK;
    for (int i = 0; i < tries; ++i) {
        rank_meet(0);
        if (rank != late && status == TA_OK)
            status = wait_for(late, TIMEOUT_MS);
    }
    rank_meet(0);
    TA_TRY(status);
    TA_TRY(join(LONG_WAIT_MS, &group));
    int64_t sum = rank;
    status = ta_group_all_reduce(group, &sum, &sum, 1, TA_ELEMENT_I64, TA_REDUCE_SUM, NULL);
    ta_group_destroy(group);
    TA_TRY(status);
    RANK_EXPECT(sum == ta_group_size(world) * (ta_group_size(world) - 1) / 2);
    return TA_OK;
}

static ta_status rank_1_joins_late(ta_group *world)
{
    return late_rank(world, 1, 2);
}

static ta_status rank_0_joins_late(ta_group *world)
{
    return late_rank(world, 0, 1);
}

/* With a timeout much shorter than it takes to hear of each other: only the absent rank is named,
 * when a group is made … */
static ta_status short_join(ta_group *world)
{
    ta_group *group;
    if (ta_group_rank(world) == 2)
        return TA_OK;
    return rank_expect_error(TA_ERR_TIMEOUT, join(1, &group), "rank 2 did not join", "500 ms");
}

/* … nobody if all come … */
static ta_status short_join_of_all(ta_group *world)
{
    ta_group *group;
    (void)world;
    ta_status status = join(1, &group);
    ta_group_destroy(group);
    return status;
}

/* … and the absent one again in a call. */
static ta_status short_call(ta_group *world)
{
    ta_group *group;
    ta_status status = TA_OK;
    TA_TRY(join(LONG_WAIT_MS, &group));
    group->timeout_ms = 1;
    rank_meet(0);
    if (ta_group_rank(world) != 2)
        status = rank_expect_error(TA_ERR_TIMEOUT, ta_group_barrier(group, NULL),
                                   "rank 2 did not arrive", "1 ms");
    rank_meet(0);
    ta_group_destroy(group);
    return status;
}

/* The library itself allows half a second to answer in, or less. Whether a process gets a CPU in
 * that time is up to the machine: so it must be right three times, of ten at most. */
static ta_status often_right(ta_group *world, ta_status (*try_once)(ta_group *world))
{
    ta_status status = TA_OK;
    for (int tries = 0, right = 0; tries < 10 && right < 3; ++tries) {
        int failed, anybody = 0;
        rank_meet(0);
        status = try_once(world);
        failed = status != TA_OK;
        if (failed)
            fprintf(stderr, "try %d: %s\n", tries, ta_last_error());
        MPI_Allreduce(&failed, &anybody, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
        right += !anybody;
        if (anybody && status == TA_OK)
            status = ta_fail(TA_ERR_DEVICE, "another rank failed in try %d", tries);
    }
    return status;
}

static ta_status short_timeout(ta_group *world)
{
    TA_TRY(often_right(world, short_join));
    TA_TRY(often_right(world, short_join_of_all));
    return often_right(world, short_call);
}

/* ---- A rank that does not come to a call ---- */

/* Only rank 0 decodes: all others are named. */
static ta_status alone(ta_group *world)
{
    ta_device *device;
    ta_plan *plan;
    small_step step;
    ta_status status = TA_OK;
    int rank = ta_group_rank(world);
    small_step_init(&step, rank, ta_group_size(world));
    TA_TRY(ta_device_open("host", NULL, &device));
    TA_TRY(ta_plan_create(world, device, &step.config, &plan));
    lose_patience(world);
    if (rank == 0) {
        status = rank_expect_error(TA_ERR_TIMEOUT, small_step_decode(&step, plan),
                                   "did not arrive " WITHIN ": rank 0 waited", "did not answer");
        for (char other[] = "1"; status == TA_OK && *other < '4'; ++*other)
            if (!strstr(ta_last_error(), other))
                status = ta_fail(TA_ERR_DEVICE, "no rank %s in: %s", other, ta_last_error());
    }
    rank_meet(0);
    ta_plan_destroy(plan);
    ta_device_close(device);
    return status;
}

static ta_status absent(ta_group *world)
{
    ta_status status = TA_OK;
    lose_patience(world);
    if (ta_group_rank(world) != 2)
        status = ta_group_barrier(world, NULL);
    rank_meet(0); /* rank 2 was told meanwhile, and finds out when it calls */
    while (ta_group_rank(world) == 2 && status == TA_OK)
        status = ta_group_barrier(world, NULL);
    TA_TRY(rank_expect_error(TA_ERR_TIMEOUT, status, "rank 2 did not arrive", WITHIN));
    return rank_expect_error(TA_ERR_TIMEOUT, ta_group_barrier(world, NULL), "rank 2 did not arrive",
                             WITHIN);
}

enum { LARGE_BYTES = 3 << 20 };

/* A large message, of ranks that lose their patience. */
static char *large_message(ta_group *world)
{
    char *data = malloc(LARGE_BYTES);
    memset(data, 7, LARGE_BYTES);
    lose_patience(world);
    return data;
}

/* A large message that nobody takes: MPI must not touch the sender's memory any more. */
static ta_status message_not_taken(ta_group *world)
{
    char *data = large_message(world);
    ta_status status = TA_OK;
    if (ta_group_rank(world) == 0)
        status = rank_expect_error(
            TA_ERR_TIMEOUT, ta_group_exchange(world, data, LARGE_BYTES, 1, NULL, 0, -1, NULL),
            "rank 1 did not arrive", "rank 0 waited");
    rank_meet(0);
    memset(data, 9, LARGE_BYTES);
    free(data);
    return status;
}

/* The sender stops in the middle: the receiver has some of it and waits for more. */
static ta_status message_not_finished(ta_group *world)
{
    char *data = large_message(world);
    int rank = ta_group_rank(world);
    ta_status status = TA_OK;
    if (rank == 0)
        TA_TRY(ta_group_start(world, data, LARGE_BYTES, 1, NULL, 0, -1, NULL));
    if (rank == 1)
        status = rank_expect_error(
            TA_ERR_TIMEOUT, ta_group_exchange(world, NULL, 0, -1, data, LARGE_BYTES, 0, NULL),
            "rank 0 did not arrive", "rank 1 waited");
    rank_meet(0);
    if (rank == 0)
        status = rank_expect_error(TA_ERR_TIMEOUT, ta_group_finish(world, NULL),
                                   "rank 0 did not arrive", "rank 1 waited");
    free(data);
    return status;
}

/* ---- Ranks that do not agree ---- */

static ta_status another_size(ta_group *world)
{
    char data[16] = {0};
    int rank = ta_group_rank(world);
    if (rank == 0)
        TA_TRY(ta_group_exchange(world, data, 12, 1, NULL, 0, -1, NULL));
    if (rank == 1)
        TA_TRY(rank_expect_error(TA_ERR_MISMATCH,
                                 ta_group_exchange(world, NULL, 0, -1, data, 16, 0, NULL),
                                 "rank 0 sent 12 bytes", "rank 1 expected 16"));
    ta_status status;
    do /* until all have heard of it */
        status = ta_group_barrier(world, NULL);
    while (status == TA_OK);
    return rank_expect_error(TA_ERR_MISMATCH, status, "rank 0 sent 12 bytes", "rank 1 expected 16");
}

static ta_status plans_differ(ta_group *world)
{
    for (int i = 0; i < differing_plans(); ++i)
        TA_TRY(differing_plan_rank(world, &i));
    return TA_OK;
}

/* ---- Ranks that are not in the same step ---- */

static ta_status try_differing(ta_group *world, int sizes)
{
    differing_step d;
    ta_device *device;
    TA_TRY(ta_device_open("host", NULL, &device));
    for (int i = 0; differing_step_get(i, ta_group_size(world), 0, &d); ++i)
        if (d.exchange != TA_EXCHANGE_TWO_LEVEL && (d.kind >= OTHER_BATCH) == sizes)
            TA_TRY(differing_step_rank(world, device, &d, NULL));
    ta_device_close(device);
    return TA_OK;
}

static ta_status steps_differ(ta_group *world)
{
    return try_differing(world, 0);
}

/* Of messages, or they would. */
static ta_status sizes_differ(ta_group *world)
{
    return try_differing(world, 1);
}

/* A bad argument on one rank: it says what is wrong in full, the others hear which rank it was and
 * the first words of that. All of them can go on. */
static ta_status try_bad_argument(ta_group *world, ta_device *device, ta_algorithm algorithm)
{
    small_step step;
    ta_plan *plan = NULL;
    int rank = ta_group_rank(world);
    small_step_init(&step, rank, ta_group_size(world));
    step.config.algorithm = algorithm;
    TA_TRY(ta_plan_create(world, device, &step.config, &plan));
    int32_t right = step.lengths[1];
    if (rank == 1)
        step.lengths[1] = -7;
    ta_status status = small_step_decode(&step, plan);
    if (rank == 1)
        status = rank_expect_error(TA_ERR_INVALID, status, "kv.lengths[1] is -7", "0 or more");
    else
        status =
            rank_expect_error(TA_ERR_INVALID, status,
                              "rank 1 failed in this step with TA_ERR_INVALID (\"kv.lengths[1]",
                              "its ta_last_error() says why; nothing was written");
    TA_TRY(status);
    RANK_EXPECT(small_step_untouched(&step));
    step.lengths[1] = right;
    TA_TRY(small_step_decode(&step, plan));
    RANK_EXPECT(small_step_right(&step));
    ta_plan_destroy(plan);
    return TA_OK;
}

static ta_status bad_argument(ta_group *world)
{
    static const ta_algorithm algorithms[] = {TA_ALGORITHM_TREE, TA_ALGORITHM_RING_KV,
                                              TA_ALGORITHM_RING_Q};
    ta_device *device;
    TA_TRY(ta_device_open("host", NULL, &device));
    for (size_t i = 0; i < sizeof algorithms / sizeof *algorithms; ++i)
        TA_TRY(try_bad_argument(world, device, algorithms[i]));
    ta_device_close(device);
    return TA_OK;
}

/* ---- Aborts ---- */

static void *abort_later(void *group)
{
    sleep_ms(200);
    ta_group_abort(group, "the user pressed stop");
    return NULL;
}

/* All are blocked; another thread of rank 1 aborts. */
static ta_status aborted(ta_group *world)
{
    pthread_t thread;
    char byte;
    int rank = ta_group_rank(world), next = (rank + 1) % ta_group_size(world);
    if (rank == 1)
        RANK_EXPECT(pthread_create(&thread, NULL, abort_later, world) == 0);
    ta_status status = ta_group_exchange(world, NULL, 0, -1, &byte, 1, next, NULL);
    if (rank == 1)
        pthread_join(thread, NULL);
    return rank_expect_error(TA_ERR_ABORTED, status, "rank 1 aborted", "the user pressed stop");
}

/* A part that is aborted takes nobody else down. */
static ta_status part_aborted(ta_group *world)
{
    ta_group *part = NULL;
    int rank = ta_group_rank(world);
    TA_TRY(ta_group_split(world, rank > 0, 0, &part));
    if (rank == 1)
        ta_group_abort(part, "enough");
    ta_status status = TA_OK;
    while (rank > 0 && status == TA_OK)
        status = ta_group_barrier(part, NULL);
    if (rank > 0)
        TA_TRY(rank_expect_error(TA_ERR_ABORTED, status, "rank 0 aborted", "enough"));
    ta_group_destroy(part);
    int64_t sum = rank;
    TA_TRY(ta_group_all_reduce(world, &sum, &sum, 1, TA_ELEMENT_I64, TA_REDUCE_SUM, NULL));
    RANK_EXPECT(sum == ta_group_size(world) * (ta_group_size(world) - 1) / 2);
    TA_TRY(ta_group_split(world, 0, 0, &part)); /* and a new part is whole */
    TA_TRY(ta_group_barrier(part, NULL));
    ta_group_destroy(part);
    return TA_OK;
}

/* ---- An error of MPI itself ---- */

/* A message that is longer than any of the group's, on its own communicator: MPI cannot store it,
 * and says so to the call in place of ending the process. */
static ta_status mpi_error(ta_group *world)
{
    static char data[2 * sizeof(ta_mpi_slot)];
    const ta_mpi_group *g = (const ta_mpi_group *)world;
    MPI_Request request;
    int rank = ta_group_rank(world);
#ifdef MPICH_VERSION /* which tells of a request that is over to the handler of all processes */
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
#endif
    if (rank == 0)
        MPI_Isend(data, (int)sizeof data, MPI_BYTE, 1, g->tag, g->wire->comm, &request);
    ta_status status = ta_group_exchange(world, NULL, 0, -1, data, rank == 1 ? 8 : 0,
                                         rank == 1   ? 0
                                         : rank == 0 ? 1
                                                     : -1,
                                         NULL);
    if (rank > 1 && status == TA_OK)
        return TA_OK; /* it had nothing to do, and was done before it could hear of it */
    return rank_expect_error(TA_ERR_SYSTEM, status, "MPI_Test of a receive failed", "rank 1");
}

/* ---- A rank that is killed in mid-exchange; killed.sh looks at what is left ---- */

static ta_status killed(ta_group *world)
{
    char data[100000];
    int rank = ta_group_rank(world), size = ta_group_size(world);
    memset(data, rank, sizeof data);
    lose_patience(world);
    for (int step = 0;; ++step) {
        if (rank == 1 && step == 100)
            raise(SIGKILL);
        ta_status status = ta_group_exchange(world, data, sizeof data, ta_next_rank(rank, size),
                                             data, sizeof data, ta_previous_rank(rank, size), NULL);
        if (status != TA_OK)
            return rank_expect_error(TA_ERR_TIMEOUT, status, "rank 1 did not arrive", WITHIN);
    }
}

/* ---- Faults of a direct exchange: the same in memory that processes share ---- */

typedef struct direct_step {
    ta_device *device;
    ta_plan *plan;
    small_step step;
} direct_step;

static ta_status direct_begin(ta_group *world, direct_step *d)
{
    small_step_init(&d->step, ta_group_rank(world), ta_group_size(world));
    d->step.config.exchange = TA_EXCHANGE_DIRECT;
    TA_TRY(ta_device_open("host", NULL, &d->device));
    TA_TRY(ta_plan_create(world, d->device, &d->step.config, &d->plan));
    for (int i = 0; i < 5; ++i) {
        TA_TRY(small_step_decode(&d->step, d->plan));
        RANK_EXPECT(small_step_right(&d->step));
    }
    return TA_OK;
}

static void direct_end(direct_step *d)
{
    ta_plan_destroy(d->plan);
    ta_device_close(d->device);
}

/* No name is left of the memory that all have mapped. Other programs may be at work. */
static ta_status expect_no_segment(const ta_group *world)
{
    FILE *maps = fopen("/proc/self/maps", "r");
    char line[512];
    int mapped = 0;
    RANK_EXPECT(maps);
    while (fgets(line, sizeof line, maps)) {
        char *name = strstr(line, "/dev/shm/treeattn-");
        if (!name)
            continue;
        ++mapped;
        RANK_EXPECT(strstr(name, "(deleted)"));
    }
    fclose(maps);
    RANK_EXPECT(ta_group_size(world) == 1 || mapped > 0);
    return TA_OK;
}

/* A new group of the same processes works. */
static ta_status expect_new_group(void)
{
    MPI_Comm comm = MPI_COMM_WORLD;
    ta_group *group;
    direct_step d;
    ta_group_config config = TA_GROUP_CONFIG_INIT;
    config.timeout_ms = LONG_WAIT_MS;
    TA_TRY(ta_group_create_mpi(&comm, &config, &group));
    ta_status status = direct_begin(group, &d);
    if (status == TA_OK)
        direct_end(&d);
    ta_group_destroy(group);
    return status;
}

/* Rank 2 does not come to a step in time. When it does, all it needs is there: it hears of it
 * later. */
static ta_status direct_late(ta_group *world)
{
    direct_step d;
    ta_status status = TA_OK;
    TA_TRY(direct_begin(world, &d));
    TA_TRY(expect_no_segment(world));
    lose_patience(world);
    if (ta_group_rank(world) != 2)
        status = small_step_decode(&d.step, d.plan);
    rank_meet(0);
    while (ta_group_rank(world) == 2 && status == TA_OK)
        status = small_step_decode(&d.step, d.plan);
    TA_TRY(rank_expect_error(TA_ERR_TIMEOUT, status, "rank 2 did not arrive", WITHIN));
    direct_end(&d);
    return expect_new_group();
}

/* All wait for rank 1, of which another thread aborts; it comes when they have heard of it. */
static ta_status direct_aborted(ta_group *world)
{
    direct_step d;
    pthread_t thread;
    ta_status status = TA_OK;
    TA_TRY(direct_begin(world, &d));
    int rank = ta_group_rank(world);
    if (rank == 1) {
        RANK_EXPECT(pthread_create(&thread, NULL, abort_later, world) == 0);
        pthread_join(thread, NULL);
    } else {
        status = small_step_decode(&d.step, d.plan);
    }
    rank_meet(0);
    if (rank == 1)
        status = small_step_decode(&d.step, d.plan);
    TA_TRY(rank_expect_error(TA_ERR_ABORTED, status, "rank 1 aborted", "the user pressed stop"));
    direct_end(&d);
    return expect_new_group();
}

/* Rank 1 is killed between two steps, in which the others wait for it; killed.sh looks at what is
 * left. */
static ta_status direct_killed(ta_group *world)
{
    direct_step d;
    TA_TRY(direct_begin(world, &d));
    lose_patience(world);
    for (int step = 0;; ++step) {
        if (ta_group_rank(world) == 1 && step == 100)
            raise(SIGKILL);
        ta_status status = small_step_decode(&d.step, d.plan);
        if (status != TA_OK)
            return rank_expect_error(TA_ERR_TIMEOUT, status, "rank 1 did not arrive", WITHIN);
    }
}

/* Rank 1 is stopped, and goes on when the others are done with it. */
static ta_status direct_stopped(ta_group *world)
{
    direct_step d;
    MPI_Comm others;
    int rank = ta_group_rank(world), stopped = (int)getpid();
    ta_status status = TA_OK;
    TA_TRY(direct_begin(world, &d));
    MPI_Bcast(&stopped, 1, MPI_INT, 1, MPI_COMM_WORLD);
    MPI_Comm_split(MPI_COMM_WORLD, rank == 1, 0, &others);
    lose_patience(world);
    if (rank == 1)
        raise(SIGSTOP);
    while (rank != 1 && status == TA_OK)
        status = small_step_decode(&d.step, d.plan);
    MPI_Barrier(others);
    rank_meet(rank == 0 ? stopped : 0);
    while (rank == 1 && status == TA_OK)
        status = small_step_decode(&d.step, d.plan);
    MPI_Comm_free(&others);
    TA_TRY(rank_expect_error(TA_ERR_TIMEOUT, status, "rank 1 did not arrive", WITHIN));
    direct_end(&d);
    return expect_new_group();
}

/* ---- */

static const struct {
    const char *name;
    ta_status (*run)(ta_group *world);
} faults[] = {
    {"rank_1_never_joins", rank_1_never_joins},
    {"rank_0_never_joins", rank_0_never_joins},
    {"two_never_join", two_never_join},
    {"rank_1_joins_late", rank_1_joins_late},
    {"rank_0_joins_late", rank_0_joins_late},
    {"short_timeout", short_timeout},
    {"alone", alone},
    {"absent", absent},
    {"message_not_taken", message_not_taken},
    {"message_not_finished", message_not_finished},
    {"another_size", another_size},
    {"plans_differ", plans_differ},
    {"steps_differ", steps_differ},
    {"sizes_differ", sizes_differ},
    {"bad_argument", bad_argument},
    {"aborted", aborted},
    {"part_aborted", part_aborted},
    {"mpi_error", mpi_error},
    {"killed", killed},
    {"direct_late", direct_late},
    {"direct_aborted", direct_aborted},
    {"direct_killed", direct_killed},
    {"direct_stopped", direct_stopped},
};

/* Before MPI_Init(): the only one that needs no launcher. */
static int uninitialised(void)
{
    MPI_Comm comm = MPI_COMM_WORLD;
    ta_group *group = NULL;
    ta_status status = rank_expect_error(TA_ERR_INVALID, ta_group_create_mpi(&comm, NULL, &group),
                                         "not initialised", "MPI_Init()");
    if (status != TA_OK)
        fprintf(stderr, "%s\n", ta_last_error());
    return status != TA_OK || group != NULL;
}

/* After MPI_Finalize(), against the rule: to abort and to destroy a group that is left must not
 * call MPI, which would end the process. */
static int finalized(ta_group *world)
{
    MPI_Finalize();
    ta_group_abort(world, "too late");
    ta_group_destroy(world);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc > 1 && !strcmp(argv[1], "uninitialised"))
        return uninitialised();
    ta_group *world = rank_begin(&argc, &argv, LONG_WAIT_MS);
    if (argc > 1 && !strcmp(argv[1], "finalized"))
        return finalized(world);
    ta_status status = ta_fail(TA_ERR_INVALID, "no such fault: %s", argc > 1 ? argv[1] : "none");
    for (size_t i = 0; argc > 1 && i < sizeof faults / sizeof *faults; ++i)
        if (!strcmp(argv[1], faults[i].name))
            status = faults[i].run(world);
    if (status != TA_OK) { /* the others may wait for this one */
        fprintf(stderr, "rank %d: %s\n", ta_group_rank(world), ta_last_error());
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    return rank_end(world, status);
}
