/* The ranks of a group that are threads, as a team: where they wait for each other, how long, who
 * is missing, and how they break together. threads.c sends their messages and calls in here. */
#include <errno.h>
#include <sched.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/rank_list.h"
#include "base/status.h"
#include "device/cpus.h"
#include "shared.h"
#include "threads.h"

/* How often a waiting rank looks before it sleeps: a few microseconds, then a few time slices. */
#define SPINS 512
#define YIELDS 16
/* The same for a word in shared memory, which a rank that attends to a longer shard sets later. */
#define WORD_SPINS 4096

/* ---- Breaking -------------------------------------------------------------------------------- */

void ta_team_wake(ta_team *team, int rank)
{
    ta_seat *seat = &team->seats[rank];
    if (!atomic_load(&seat->asleep))
        return;
    pthread_mutex_lock(&seat->mutex);
    pthread_cond_signal(&seat->wake);
    pthread_mutex_unlock(&seat->mutex);
}

void ta_team_wake_all(ta_team *team)
{
    for (int rank = 0; rank < team->size; ++rank)
        ta_team_wake(team, rank);
}

ta_status ta_team_status(ta_team *team)
{
    ta_status status = ta_broken_status(&team->broken);
    if (status == TA_OK)
        return TA_OK;
    return ta_found_by_other(ta_fail_quietly(status, "%s", team->broken.reason));
}

ta_status ta_team_fail(ta_team *team, ta_status status, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    int first = ta_break_with(&team->broken, status, format, arguments);
    va_end(arguments);
    ta_team_wake_all(team);
    return first ? ta_fail(status, "%s", team->broken.reason) : ta_team_status(team);
}

/* The rank that holds everybody up: follow who waits for whom to one that does not wait. */
static int find_missing(ta_team *team, int peer)
{
    int missing = peer;
    for (int hops = 0; hops < team->size; ++hops) {
        int next = atomic_load(&team->seats[missing].waits_for);
        if (next < 0)
            return missing;
        missing = next;
    }
    return peer; /* they wait in a circle */
}

/* The rank that did not come, and others that do not wait for anybody. */
static ta_status fail_missing(ta_team *team, int rank, int missing)
{
    char idle[TA_MAX_THREAD_RANKS], ranks[TA_RANK_LIST_BYTES], others[TA_RANK_LIST_BYTES + 40] = "";
    for (int i = 0; i < team->size; ++i)
        idle[i] = i != rank && i != missing && atomic_load(&team->seats[i].waits_for) < 0;
    if (ta_rank_list(ranks, idle, 1, team->size))
        snprintf(others, sizeof others, "; %s did not wait either", ranks);
    return ta_team_fail(team, TA_ERR_TIMEOUT,
                        "rank %d did not arrive within %d ms: rank %d waited for it%s", missing,
                        team->timeout_ms, rank, others);
}

/* ---- Waiting --------------------------------------------------------------------------------- */

/* What a rank waits for: a state of a channel, or a word of `peer` in memory that they share. */
typedef struct awaited {
    int peer;
    const ta_channel *channel;
    int state;
    const uint32_t *word; /* or NULL */
    uint32_t epoch;
    int spins; /* how often to look before the CPU is given up */
} awaited;

static int has_come(const awaited *a)
{
    return a->word ? ta_word_reached(a->word, a->epoch)
                   : atomic_load(&a->channel->state) == a->state;
}

/* May the wait end? Because it came, the team broke, or the peer left for good. */
static int wait_over(ta_team *team, const awaited *a)
{
    return has_come(a) || ta_broken_status(&team->broken) != TA_OK ||
           atomic_load(&team->seats[a->peer].left);
}

static int sleep_until_over(ta_team *team, int rank, const awaited *a)
{
    ta_seat *seat = &team->seats[rank];
    struct timespec deadline = ta_clock_after_ms(CLOCK_MONOTONIC, team->timeout_ms);
    int result = 0;
    pthread_mutex_lock(&seat->mutex);
    atomic_store(&seat->asleep, 1);
    while (!wait_over(team, a) && result != ETIMEDOUT)
        result = pthread_cond_timedwait(&seat->wake, &seat->mutex, &deadline);
    atomic_store(&seat->asleep, 0);
    pthread_mutex_unlock(&seat->mutex);
    return wait_over(team, a);
}

/* Look so many times, giving up the CPU in between or not. */
static int over_soon(ta_team *team, const awaited *a, int times, int yields)
{
    for (int i = 0; i < times; ++i) {
        if (wait_over(team, a))
            return 1;
        if (yields)
            sched_yield();
    }
    return wait_over(team, a);
}

static ta_status wait_until(ta_team *team, int rank, const awaited *a)
{
    ta_status status = TA_OK;
    if (!over_soon(team, a, a->spins, 0)) {
        /* Before the CPU is given up, maybe for longer than the timeout: this rank is here. */
        atomic_store(&team->seats[rank].waits_for, a->peer);
        if (!over_soon(team, a, YIELDS, 1) && !sleep_until_over(team, rank, a))
            status = fail_missing(team, rank, find_missing(team, a->peer));
        /* Only now: others that time out at this moment follow the chain through this rank. */
        atomic_store(&team->seats[rank].waits_for, -1);
    }
    TA_TRY(status);
    if (has_come(a))
        return TA_OK;
    TA_TRY(ta_team_status(team));
    return ta_team_fail(team, TA_ERR_ABORTED,
                        "rank %d destroyed its group while rank %d waited for it", a->peer, rank);
}

ta_status ta_team_wait_channel(ta_team *team, int rank, const ta_channel *channel, int wanted,
                               int peer)
{
    awaited a = {.peer = peer, .channel = channel, .state = wanted, .spins = SPINS};
    return wait_until(team, rank, &a);
}

ta_status ta_team_wait_word(ta_team *team, int rank, int peer, int ranks, const uint32_t *word,
                            uint32_t epoch)
{
    awaited a = {.peer = peer, .word = word, .epoch = epoch};
    a.spins = ranks <= team->cpus ? WORD_SPINS : 0;
    TA_TRY(ta_team_status(team));
    return wait_until(team, rank, &a);
}

/* ---- Making ---------------------------------------------------------------------------------- */

ta_team *ta_team_make(int ranks, int timeout_ms)
{
    ta_team *team = calloc(1, sizeof *team);
    if (!team)
        return NULL;
    team->seats = calloc((size_t)ranks, sizeof *team->seats);
    team->channels = calloc((size_t)ranks * (size_t)ranks, sizeof *team->channels);
    if (!team->seats || !team->channels) {
        free(team->seats);
        free(team->channels);
        free(team);
        return NULL;
    }
    team->size = ranks;
    team->timeout_ms = timeout_ms;
    team->cpus = ta_cpus();
    atomic_init(&team->handles, ranks);
    ta_broken_init(&team->broken);
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    for (int rank = 0; rank < ranks; ++rank) {
        pthread_mutex_init(&team->seats[rank].mutex, NULL);
        pthread_cond_init(&team->seats[rank].wake, &monotonic);
        atomic_init(&team->seats[rank].waits_for, -1);
    }
    pthread_condattr_destroy(&monotonic);
    return team;
}

void ta_team_free(ta_team *team)
{
    for (int rank = 0; rank < team->size; ++rank) {
        pthread_cond_destroy(&team->seats[rank].wake);
        pthread_mutex_destroy(&team->seats[rank].mutex);
    }
    ta_broken_destroy(&team->broken);
    free(team->channels);
    free(team->seats);
    free(team);
}
