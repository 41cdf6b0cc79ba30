/* Decode steps without end, on one group whose ranks are threads that live as long as the program
 * (soak_loop.h).
 *
 *     soak [STEPS [RANKS [SEED]]]        2,000 steps on 8 ranks */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "lib/case.h"
#include "lib/soak_loop.h"

/* One rank's thread, and what it does next. */
typedef struct worker {
    pthread_t thread;
    ta_group *group;
    ta_status status;
    char error[1024];
} worker;

static struct {
    int ranks;
    worker workers[CASE_MAX_RANKS];
    pthread_barrier_t gate; /* of the workers and the main thread: a job begins, a job ends */
    ta_rank_fn fn;          /* NULL: go home */
    void *context;
} team;

static void *work(void *argument)
{
    worker *self = argument;
    for (;;) {
        pthread_barrier_wait(&team.gate);
        if (!team.fn)
            return NULL;
        self->status = team.fn(self->group, team.context);
        if (self->status != TA_OK) {
            snprintf(self->error, sizeof self->error, "%s", ta_last_error());
            ta_group_abort(self->group, self->error);
        }
        pthread_barrier_wait(&team.gate);
    }
}

static ta_status launch(int ranks, const ta_group_config *config, ta_rank_fn fn, void *context)
{
    (void)config;
    if (ranks != team.ranks)
        return ta_fail(TA_ERR_INVALID, "a case for %d ranks", ranks);
    team.fn = fn;
    team.context = context;
    pthread_barrier_wait(&team.gate);
    pthread_barrier_wait(&team.gate);
    for (int rank = 0; rank < ranks; ++rank)
        if (team.workers[rank].status != TA_OK)
            return ta_fail(team.workers[rank].status, "rank %d: %s", rank,
                           team.workers[rank].error);
    return TA_OK;
}

static ta_status start_team(int ranks)
{
    ta_group *groups[CASE_MAX_RANKS];
    ta_group_config config = TA_GROUP_CONFIG_INIT;
    config.timeout_ms = 60000;
    team.ranks = ranks;
    TA_TRY(ta_group_create_threads(ranks, &config, groups));
    pthread_barrier_init(&team.gate, NULL, (unsigned)ranks + 1);
    for (int rank = 0; rank < ranks; ++rank) {
        team.workers[rank].group = groups[rank];
        if (pthread_create(&team.workers[rank].thread, NULL, work, &team.workers[rank]))
            exit(1);
    }
    return TA_OK;
}

static void stop_team(void)
{
    team.fn = NULL;
    pthread_barrier_wait(&team.gate);
    for (int rank = 0; rank < team.ranks; ++rank) {
        pthread_join(team.workers[rank].thread, NULL);
        ta_group_destroy(team.workers[rank].group);
    }
    pthread_barrier_destroy(&team.gate);
}

int main(int argc, char **argv)
{
    soak_restart_without_caches(argv);
    long steps = argc > 1 ? atol(argv[1]) : 2000;
    int ranks = argc > 2 ? atoi(argv[2]) : 8;
    uint64_t seed = argc > 3 ? strtoull(argv[3], NULL, 0) : 0;
    ta_status status = ta_fail(TA_ERR_INVALID, "1 to %d ranks", CASE_MAX_RANKS);
    if (ranks >= 1 && ranks <= CASE_MAX_RANKS)
        status = start_team(ranks);
    if (status == TA_OK) {
        case_launch = launch;
        status = soak_run(ranks, steps, seed, 65536, 1);
        stop_team();
    }
    if (status != TA_OK)
        fprintf(stderr, "%s: %s\n", ta_status_name(status), ta_last_error());
    return status != TA_OK;
}
