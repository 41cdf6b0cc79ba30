/* GPUs that address each other's memory, on the executor, for tests of the direct exchange: ranks
 * are threads with a device each, in a group of device memory or of the host's. Included by
 * test_peers.c, test_peers_faults.c and test_peers_plan.c; tests/mpi/peers.c has processes. */
#ifndef TESTS_PEER_RANKS_H
#define TESTS_PEER_RANKS_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <treeattn/cluster.h>

#include "base/hash.h"
#include "base/status.h"
#include "ccl_ranks.h"
#include "decode/plan.h"
#include "device/device.h"
#include "expect.h"
#include "patience.h"
#include "simt/simt_control.h"
#include "slabs.h"
#include "small_step.h"

#define MAX_RANKS 8

void setUp(void)
{
    simt_reset();
    unsetenv("TREEATTN_DIRECT_SHOTS");
}

void tearDown(void)
{
    TEST_ASSERT_TRUE_MESSAGE(ccl_all_gone(), "communicators are left");
    TEST_ASSERT_EQUAL_INT_MESSAGE(0, count_slabs(), "slabs are left");
}

struct trial;

typedef struct peer {
    ta_group *group;
    ta_device *device;
    void *stream;
    int rank, ranks;
    struct trial *trial;
} peer;

typedef ta_status (*peer_fn)(peer *p);

typedef struct trial {
    peer_fn fn;
    int threads;    /* the group is one of threads, not of device memory */
    int timeout_ms; /* of it; 0: long */
    int one_device; /* all ranks open the first one */
    ta_exchange kind;
    ta_placement placement;
    int tile; /* of reproducible mode */
    int replay;
    int steps;
    const ta_cluster *cluster; /* or NULL: one node */
    const char *nodes;         /* a cluster's name */
    const char *why_not;       /* why plans can't choose the direct exchange; NULL: they can */
    uint64_t launches[MAX_RANKS], copies[MAX_RANKS], messages[MAX_RANKS];
    uint64_t bits[MAX_RANKS]; /* of the results of all steps */
} trial;

static inline ta_status run_in_ccl(ccl_rank *r)
{
    trial *t = r->context;
    peer p = {r->group, r->device, r->streams[0], r->rank, r->ranks, t};
    return t->fn(&p);
}

static inline ta_status run_in_threads(ta_group *group, void *context)
{
    trial *t = context;
    peer p = {
        .group = group, .rank = ta_group_rank(group), .ranks = ta_group_size(group), .trial = t};
    char name[32];
    snprintf(name, sizeof name, "simt:%d", t->one_device ? 0 : p.rank);
    TA_TRY(ta_device_open(name, NULL, &p.device));
    ta_status status = t->fn(&p);
    if (status != TA_OK)
        ta_group_abort(group, ta_last_error());
    ta_device_close(p.device);
    return status;
}

static inline ta_status run_on(trial *t, int ranks)
{
    int timeout_ms = t->timeout_ms ? t->timeout_ms : LONG_WAIT_MS;
    ta_group_config config = TA_GROUP_CONFIG_INIT;
    config.timeout_ms = timeout_ms;
    if (!t->threads)
        return ccl_run(ranks, timeout_ms, run_in_ccl, t);
    return ta_group_run_threads(ranks, &config, run_in_threads, t);
}

static inline void sleep_ms(int milliseconds)
{
    struct timespec time = {milliseconds / 1000, (long)(milliseconds % 1000) * 1000000};
    nanosleep(&time, NULL);
}

/* A rank's step and plan, as the trial says. */
static inline ta_status prepare(peer *p, small_step *step, ta_plan **plan)
{
    const trial *t = p->trial;
    small_step_init(step, p->rank, p->ranks);
    step->config.exchange = t->kind;
    step->config.out_placement = t->placement;
    step->config.reproducible_tile = t->tile;
    if (t->tile) /* the step's shards are of another map: then only bits are compared */
        step->config.map.block = t->tile;
    step->config.replay = t->replay;
    step->config.cluster = t->cluster;
    TA_TRY(small_step_to_device(step, p->device));
    TA_TRY(ta_plan_create(p->group, p->device, &step->config, plan));
    return small_step_fill(step);
}

static inline ta_status decode(peer *p, small_step *step, ta_plan *plan)
{
    TA_TRY(small_step_fill(step));
    TA_TRY(small_step_queue(step, plan, p->stream));
    return small_step_fetch(step, p->stream);
}

/* Steps of a plan, of which each rank is late by turns, and what came of them. */
static inline ta_status run_steps(peer *p)
{
    trial *t = p->trial;
    small_step step;
    ta_plan *plan = NULL;
    uint64_t bits = 0;
    TA_TRY(prepare(p, &step, &plan));
    for (int i = 0; i < t->steps; ++i) {
        if ((i + p->rank) % p->ranks == 1) /* late by turns */
            sleep_ms(2);
        TA_TRY(decode(p, &step, plan));
        RANK_EXPECT(t->placement != TA_PLACE_ALL || t->tile || small_step_right(&step));
        bits = ta_fault_mix(bits) + ta_hash_bytes(step.results, sizeof step.results) +
               ta_hash_bytes(step.lse, sizeof step.lse);
    }
    TA_TRY(ta_plan_check(plan));
    t->bits[p->rank] = bits;
    t->launches[p->rank] = plan->last_step.device.launches;
    t->copies[p->rank] = plan->last_step.device.copies;
    t->messages[p->rank] = plan->last_step.group.messages_sent;
    ta_plan_destroy(plan); /* while others may be in their last step */
    small_step_release(&step);
    return TA_OK;
}

#endif
