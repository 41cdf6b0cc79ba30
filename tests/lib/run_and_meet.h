/* Ranks on threads that meet outside of their group: before a call that some of them come to, so
 * that none of these is late because its thread is, and after it, so that nobody leaves before. */
#ifndef TESTS_RUN_AND_MEET_H
#define TESTS_RUN_AND_MEET_H

#include <pthread.h>

#include <treeattn/treeattn.h>

/* Run `rank` on so many ranks, of which `who_come` meet at the barrier that it is given. They wait
 * for each other no longer than the timeout. */
static inline ta_status run_and_meet(int ranks, int who_come, int timeout_ms,
                                     ta_status (*rank)(ta_group *group, void *barrier))
{
    ta_group_config config = TA_GROUP_CONFIG_INIT;
    pthread_barrier_t barrier;
    config.timeout_ms = timeout_ms;
    pthread_barrier_init(&barrier, NULL, (unsigned)who_come);
    ta_status status = ta_group_run_threads(ranks, &config, rank, &barrier);
    pthread_barrier_destroy(&barrier);
    return status;
}

#endif
