/* The direct exchange between GPUs of different processes, on the executor: every rank is a process
 * with a device of its own, slabs are handed round as IPC handles over the MPI group. Its bits are
 * those of the all-gather, also of steps that are replayed; a rank that comes late, is stopped or
 * killed is named by the others within the timeout, and one that aborts at once; and a device whose
 * handles do not open is refused. Nothing is left in any process, and a new group works. Where some
 * ranks have GPUs and others not, what one asks for in vain is named on all.
 *
 *     mpi_peers steps|late|stopped|aborted|killed|refused|mixed      the killed one by killed.sh */
#include <mpi.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <treeattn/cluster.h>

#include "base/clock.h"
#include "base/hash.h"
#include "decode/plan.h"
#include "lib/expect.h"
#include "lib/patience.h"
#include "lib/slabs.h"
#include "lib/small_step.h"
#include "rank.h"

#define TIMEOUT_MS 3000 /* where a rank is lost, once all are there */

static void sleep_ms(int milliseconds)
{
    struct timespec time = {milliseconds / 1000, (long)(milliseconds % 1000) * 1000000};
    nanosleep(&time, NULL);
}

typedef struct peer {
    ta_device *device;
    small_step step;
    ta_plan *plan;
} peer;

static int replays; /* do plans record their steps? */

static ta_status begin(ta_group *world, ta_exchange kind, peer *p)
{
    char name[32];
    memset(p, 0, sizeof *p);
    snprintf(name, sizeof name, "simt:%d", ta_group_rank(world));
    TA_TRY(ta_device_open(name, NULL, &p->device));
    small_step_init(&p->step, ta_group_rank(world), ta_group_size(world));
    p->step.config.exchange = kind;
    p->step.config.replay = replays;
    TA_TRY(small_step_to_device(&p->step, p->device));
    return ta_plan_create(world, p->device, &p->step.config, &p->plan);
}

static void end(peer *p)
{
    ta_plan_destroy(p->plan);
    small_step_release(&p->step);
    ta_device_close(p->device);
}

/* Bits of some steps, of which some ranks come late. */
static ta_status run_steps(ta_group *world, ta_exchange kind, uint64_t *bits)
{
    peer p;
    *bits = 0;
    TA_TRY(begin(world, kind, &p));
    for (int i = 0; i < 20; ++i) {
        if (i % ta_group_size(world) == ta_group_rank(world))
            sleep_ms(1);
        TA_TRY(small_step_decode(&p.step, p.plan));
        RANK_EXPECT(small_step_right(&p.step));
        *bits = ta_fault_mix(*bits) + ta_hash_bytes(p.step.results, sizeof p.step.results);
    }
    end(&p);
    return TA_OK;
}

static ta_status steps(ta_group *world)
{
    uint64_t gathered, direct;
    TA_TRY(run_steps(world, TA_EXCHANGE_ALL_GATHER, &gathered));
    for (int i = 0; i < 4; ++i) {
        setenv("TREEATTN_DIRECT_SHOTS", i % 2 ? "2" : "1", 1);
        replays = i / 2;
        TA_TRY(run_steps(world, TA_EXCHANGE_DIRECT, &direct));
        RANK_EXPECT(gathered == direct);
    }
    replays = 0;
    /* A slab is freed when others are known to be done with it: look again when all are. */
    unsetenv("TREEATTN_DIRECT_SHOTS");
    TA_TRY(run_steps(world, TA_EXCHANGE_DIRECT, &direct));
    TA_TRY(ta_group_barrier(world, NULL));
    RANK_EXPECT(count_slabs() <= 1);
    return TA_OK;
}

/* Until a step fails, as it must, with the rank's name. */
static ta_status decode_until(peer *p, ta_status expected, const char *named)
{
    for (;;) {
        ta_status status = small_step_decode(&p->step, p->plan);
        if (status == TA_OK)
            status = ta_plan_check(p->plan);
        if (status != TA_OK)
            return rank_expect_error(expected, status, named, "step");
    }
}

/* A new group of the same processes works. */
static ta_status expect_new_group(void)
{
    MPI_Comm comm = MPI_COMM_WORLD;
    ta_group *group;
    uint64_t bits;
    ta_group_config config = TA_GROUP_CONFIG_INIT;
    config.timeout_ms = LONG_WAIT_MS;
    TA_TRY(ta_group_create_mpi(&comm, &config, &group));
    ta_status status = run_steps(group, TA_EXCHANGE_DIRECT, &bits);
    ta_group_destroy(group);
    return status;
}

/* All are here; plans that are made from now on wait no longer than TIMEOUT_MS. */
static void lose_patience(ta_group *world)
{
    rank_meet(0);
    world->timeout_ms = TIMEOUT_MS;
}

static ta_status late(ta_group *world)
{
    peer p;
    ta_status status = TA_OK;
    int is_late = ta_group_rank(world) == 2;
    lose_patience(world);
    TA_TRY(begin(world, TA_EXCHANGE_DIRECT, &p));
    TA_TRY(small_step_decode(&p.step, p.plan));
    rank_meet(0);
    if (!is_late) {
        status = decode_until(&p, TA_ERR_TIMEOUT, "rank 2 did not come");
        end(&p);
    }
    rank_meet(0); /* the others have been there, and are gone */
    if (is_late) {
        status = decode_until(&p, TA_ERR_TIMEOUT, "rank 2 did not come");
        end(&p);
    }
    TA_TRY(status);
    return expect_new_group();
}

static int to_stop; /* a process */

static void *stop_soon(void *unused)
{
    (void)unused;
    sleep_ms(20);
    kill((pid_t)to_stop, SIGSTOP);
    return NULL;
}

/* Rank 1 and its device are stopped anywhere in a step, and go on when the others are done with it.
 * Then it hears of it too. */
static ta_status stopped(ta_group *world)
{
    peer p;
    MPI_Comm others;
    pthread_t thread;
    int rank = ta_group_rank(world);
    lose_patience(world);
    TA_TRY(begin(world, TA_EXCHANGE_DIRECT, &p));
    TA_TRY(small_step_decode(&p.step, p.plan));
    to_stop = (int)getpid();
    MPI_Bcast(&to_stop, 1, MPI_INT, 1, MPI_COMM_WORLD);
    MPI_Comm_split(MPI_COMM_WORLD, rank == 1, 0, &others);
    if (rank == 0)
        RANK_EXPECT(pthread_create(&thread, NULL, stop_soon, NULL) == 0);
    ta_status status = decode_until(&p, TA_ERR_TIMEOUT, "rank 1 did not come");
    end(&p);
    if (rank == 0)
        pthread_join(thread, NULL);
    MPI_Barrier(others);
    rank_meet(rank == 0 ? to_stop : 0);
    MPI_Comm_free(&others);
    TA_TRY(status);
    return expect_new_group();
}

/* Rank 1 aborts while the others' kernels wait for it: they hear of it long before the timeout. */
static ta_status aborted(ta_group *world)
{
    peer p;
    TA_TRY(begin(world, TA_EXCHANGE_DIRECT, &p));
    TA_TRY(small_step_decode(&p.step, p.plan));
    rank_meet(0);
    ta_status status = TA_OK;
    double begin_s = ta_clock_s();
    if (ta_group_rank(world) == 1) {
        sleep_ms(200);
        ta_group_abort(world, "enough");
    } else {
        status = decode_until(&p, TA_ERR_ABORTED, "rank 1 aborted");
    }
    RANK_EXPECT(ta_clock_s() - begin_s < 0.5e-3 * LONG_WAIT_MS);
    end(&p);
    rank_meet(0);
    TA_TRY(status);
    return expect_new_group();
}

static ta_status killed(ta_group *world)
{
    peer p;
    lose_patience(world);
    TA_TRY(begin(world, TA_EXCHANGE_DIRECT, &p));
    for (int i = 0; i < 20; ++i)
        TA_TRY(small_step_decode(&p.step, p.plan));
    if (ta_group_rank(world) == 1)
        raise(SIGKILL);
    return decode_until(&p, TA_ERR_TIMEOUT, "rank 1 did not come");
}

static ta_status refused(ta_group *world)
{
    peer p;
    ta_status status = begin(world, TA_EXCHANGE_DIRECT, &p);
    status = rank_expect_error(TA_ERR_UNSUPPORTED, status, "TA_EXCHANGE_DIRECT", "memory");
    end(&p);
    TA_TRY(status);
    RANK_EXPECT(count_slabs() == 0);
    return TA_OK;
}

/* Bit r says of rank r whether it has a GPU, and whether it asks for the direct exchange: all hear
 * that it can't be had, or that not all asked for it, and the group can be used afterwards. */
static ta_status mix(ta_group *world, unsigned gpus, unsigned direct, const ta_cluster *cluster)
{
    int rank = ta_group_rank(world);
    char name[32];
    peer p = {0};
    snprintf(name, sizeof name, gpus >> rank & 1 ? "simt:%d" : "host", rank);
    TA_TRY(ta_device_open(name, NULL, &p.device));
    small_step_init(&p.step, rank, ta_group_size(world));
    p.step.config.exchange = direct >> rank & 1 ? TA_EXCHANGE_DIRECT : TA_EXCHANGE_AUTO;
    p.step.config.cluster = cluster;
    ta_status status = ta_plan_create(world, p.device, &p.step.config, &p.plan);
    RANK_EXPECT(p.plan == NULL);
    TA_TRY(rank_expect_error(status == TA_ERR_MISMATCH ? status : TA_ERR_UNSUPPORTED, status,
                             "config.exchange", ""));
    p.step.config.exchange = TA_EXCHANGE_AUTO;
    TA_TRY(small_step_to_device(&p.step, p.device));
    TA_TRY(small_step_try(&p.step, world, p.device));
    end(&p);
    return TA_OK;
}

/* With a cluster on which it costs least, and without. */
static ta_status mixed(ta_group *world)
{
    int ranks = ta_group_size(world);
    unsigned all = (1u << ranks) - 1;
    char text[400];
    ta_cluster *cluster;
    ta_status status = TA_OK;
    snprintf(text, sizeof text, "local:1x%d", ranks);
    TA_TRY(ta_cluster_create(text, &cluster));
    for (unsigned i = 0; i < (all + 1) * all * 2 && status == TA_OK; ++i) {
        unsigned gpus = i / 2 / all, direct = i / 2 % all + 1;
        if ((gpus == 0 || gpus == all) && direct == all)
            continue; /* it can be had */
        status = mix(world, gpus, direct, i & 1 ? cluster : NULL);
        snprintf(text, sizeof text, "%s", ta_last_error());
        if (status != TA_OK)
            (void)ta_fail(status, "GPUs %u, direct %u, cluster %u: %s", gpus, direct, i & 1, text);
    }
    ta_cluster_destroy(cluster);
    return status;
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        ta_status (*run)(ta_group *world);
    } cases[] = {{"steps", steps},     {"late", late},     {"stopped", stopped},
                 {"aborted", aborted}, {"killed", killed}, {"refused", refused},
                 {"mixed", mixed}};
    ta_group *world = rank_begin(&argc, &argv, LONG_WAIT_MS);
    ta_status status = ta_fail(TA_ERR_INVALID, "wrong usage");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; ++i)
        if (argc > 1 && !strcmp(argv[1], cases[i].name))
            status = cases[i].run(world);
    return rank_end(world, status);
}
