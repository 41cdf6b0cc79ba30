/* Inside the engine for threads. threads.c has the messages and the table, threads_team.c the team,
 * whose ranks wait for each other and break together, threads_split.c and threads_shared.c parts of
 * a group and memory that ranks share. */
#ifndef TA_GROUP_THREADS_H
#define TA_GROUP_THREADS_H

#include <pthread.h>
#include <stdatomic.h>

#include "broken.h"
#include "group.h"

/* A message on its way. `withdrawn` by its sender only if the receiver has not started to copy. */
enum { TA_CHANNEL_EMPTY, TA_CHANNEL_POSTED, TA_CHANNEL_COPYING };

typedef struct ta_channel {
    atomic_int state;
    const void *data;
    size_t bytes;
    uint64_t label; /* of the sender's call */
} ta_channel;

/* Where one rank sleeps, and what others may know of it. */
typedef struct ta_seat {
    pthread_mutex_t mutex;
    pthread_cond_t wake;
    atomic_int asleep;
    atomic_int waits_for; /* the rank it waits for, -1 when it does not wait */
    atomic_int left;      /* its handle was destroyed */
} ta_seat;

typedef struct ta_team {
    int size;
    int timeout_ms;
    int cpus; /* that its threads have */
    atomic_int handles;
    ta_broken broken;
    ta_seat *seats;
    ta_channel *channels; /* [from][to] */
} ta_team;

/* NULL: no memory. */
ta_team *ta_team_make(int ranks, int timeout_ms);
void ta_team_free(ta_team *team);

/* Wake a rank if it sleeps; or all that sleep. */
void ta_team_wake(ta_team *team, int rank);
void ta_team_wake_all(ta_team *team);
/* What all calls return once the team is broken; TA_OK while all is well. */
ta_status ta_team_status(ta_team *team);
/* Break the team, if it is not broken yet, and wake all ranks. */
ta_status ta_team_fail(ta_team *team, ta_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Wait until a channel between `rank` and `peer` has the wanted state. */
ta_status ta_team_wait_channel(ta_team *team, int rank, const ta_channel *channel, int wanted,
                               int peer);
/* Wait until a word of `peer` in memory that so many ranks share has come to the epoch. */
ta_status ta_team_wait_word(ta_team *team, int rank, int peer, int ranks, const uint32_t *word,
                            uint32_t epoch);

ta_status ta_threads_split(ta_group *group, int color, int key, ta_group **part);

ta_status ta_threads_share(ta_group *group, const int *ranks, int count, size_t bytes,
                           struct ta_shared **shared);

#endif
