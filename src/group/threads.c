/* A group whose ranks are threads of one process. Each ordered pair of ranks has one channel: the
 * sender posts the address of its data, the receiver copies straight from there and marks the
 * channel empty, and the sender returns. group.h is the contract; group.c calls in here. */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/rank_list.h"
#include "base/status.h"
#include "device/device.h"
#include "label.h"
#include "shared.h"
#include "threads.h"

/* How often a waiting rank looks before it sleeps: a few microseconds, then a few time slices. */
#define SPINS 512
#define YIELDS 16
/* The same for a word in shared memory, which a rank that attends to a longer shard sets later. */
#define WORD_SPINS 4096

/* A message on its way. `withdrawn` by its sender only if the receiver has not started to copy. */
enum { CHANNEL_EMPTY, CHANNEL_POSTED, CHANNEL_COPYING };

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
    pthread_mutex_t broken_mutex;
    atomic_int broken; /* the ta_status that all calls return, TA_OK while all is well */
    char reason[512];  /* written once, before `broken` */
    ta_seat *seats;
    ta_channel *channels; /* [from][to] */
} ta_team;

/* An exchange whose message has been posted. */
typedef struct begun_exchange {
    int to, from;
    void *receive;
    size_t receive_bytes;
} begun_exchange;

typedef struct thread_group {
    ta_group group;
    ta_team *team;
    begun_exchange begun;
} thread_group;

static void wake_rank(ta_team *team, int rank)
{
    ta_seat *seat = &team->seats[rank];
    if (!atomic_load(&seat->asleep))
        return;
    pthread_mutex_lock(&seat->mutex);
    pthread_cond_signal(&seat->wake);
    pthread_mutex_unlock(&seat->mutex);
}

/* The first cause wins; returns whether it was this one. */
static int break_team(ta_team *team, ta_status status, const char *reason)
{
    pthread_mutex_lock(&team->broken_mutex);
    int first = atomic_load(&team->broken) == TA_OK;
    if (first) {
        snprintf(team->reason, sizeof team->reason, "%s", reason);
        atomic_store(&team->broken, status);
    }
    pthread_mutex_unlock(&team->broken_mutex);
    for (int rank = 0; rank < team->size; ++rank)
        wake_rank(team, rank);
    return first;
}

static ta_status broken_status(ta_team *team)
{
    ta_status status = (ta_status)atomic_load(&team->broken);
    if (status == TA_OK)
        return TA_OK;
    return ta_found_by_other(ta_fail_quietly(status, "%s", team->reason));
}

__attribute__((format(printf, 3, 4))) static ta_status fail_team(ta_team *team, ta_status status,
                                                                 const char *format, ...)
{
    char reason[sizeof team->reason];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(reason, sizeof reason, format, arguments);
    va_end(arguments);
    if (break_team(team, status, reason))
        return ta_fail(status, "%s", reason);
    return broken_status(team);
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
    return fail_team(team, TA_ERR_TIMEOUT,
                     "rank %d did not arrive within %d ms: rank %d waited for it%s", missing,
                     team->timeout_ms, rank, others);
}

/* What a rank waits for: a state of a channel, or a word of `peer` in memory that they share. */
typedef struct awaited {
    int peer;
    ta_channel *channel;
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
    return has_come(a) || atomic_load(&team->broken) != TA_OK ||
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
    TA_TRY(broken_status(team));
    return fail_team(team, TA_ERR_ABORTED,
                     "rank %d destroyed its group while rank %d waited for it", a->peer, rank);
}

/* Wait until a channel between `rank` and `peer` has the wanted state. */
static ta_status wait_for(ta_team *team, int rank, ta_channel *channel, int wanted, int peer)
{
    awaited a = {.peer = peer, .channel = channel, .state = wanted, .spins = SPINS};
    return wait_until(team, rank, &a);
}

static void post(ta_team *team, int rank, int to, const void *data, size_t bytes, uint64_t label)
{
    ta_channel *out = &team->channels[rank * team->size + to];
    out->data = data;
    out->bytes = bytes;
    out->label = label;
    atomic_store(&out->state, CHANNEL_POSTED);
    wake_rank(team, to);
}

/* After a failure: make sure that nobody reads the sender's memory when its call returns. Returns
 * whether the message was still there: if not, its receiver has it. */
static int withdraw(ta_team *team, int rank, int to)
{
    ta_channel *out = &team->channels[rank * team->size + to];
    int posted = CHANNEL_POSTED;
    int withdrawn = atomic_compare_exchange_strong(&out->state, &posted, CHANNEL_EMPTY);
    while (atomic_load(&out->state) == CHANNEL_COPYING)
        sched_yield();
    return withdrawn;
}

static ta_status receive_from(ta_team *team, int rank, int from, void *data, size_t bytes,
                              uint64_t label)
{
    ta_channel *in = &team->channels[from * team->size + rank];
    TA_TRY(wait_for(team, rank, in, CHANNEL_POSTED, from));
    int posted = CHANNEL_POSTED;
    if (!atomic_compare_exchange_strong(&in->state, &posted, CHANNEL_COPYING))
        return broken_status(team); /* its sender withdrew it */
    size_t sent = in->bytes;
    uint64_t theirs = in->label;
    if (sent == bytes && theirs == label && bytes)
        memcpy(data, in->data, bytes);
    atomic_store(&in->state, CHANNEL_EMPTY);
    wake_rank(team, from);
    if (theirs != label) {
        char sentence[TA_LABEL_SENTENCE];
        ta_label_difference(rank, label, from, theirs, sentence);
        return fail_team(team, TA_ERR_MISMATCH, "%s", sentence);
    }
    if (sent != bytes)
        return fail_team(team, TA_ERR_MISMATCH,
                         "rank %d sent %zu bytes where rank %d expected %zu: the ranks are not in "
                         "the same call",
                         from, sent, rank, bytes);
    return TA_OK;
}

/* Sending needs nothing of this rank once the message is posted: its receiver copies it. */
static ta_status threads_start(ta_group *group, const void *send, size_t send_bytes, int to,
                               void *receive, size_t receive_bytes, int from, void *stream)
{
    thread_group *own = (thread_group *)group;
    (void)stream;
    TA_TRY(broken_status(own->team));
    own->begun = (begun_exchange){to, from, receive, receive_bytes};
    if (to >= 0)
        post(own->team, group->rank, to, send, send_bytes, group->label);
    return TA_OK;
}

static ta_status threads_finish(ta_group *group, void *stream)
{
    ta_team *team = ((thread_group *)group)->team;
    begun_exchange begun = ((thread_group *)group)->begun;
    int to = begun.to;
    ta_status status = TA_OK;
    (void)stream;
    if (begun.from >= 0)
        status = receive_from(team, group->rank, begun.from, begun.receive, begun.receive_bytes,
                              group->label);
    if (status != TA_OK && to >= 0)
        withdraw(team, group->rank, to);
    if (status != TA_OK || to < 0)
        return status;
    ta_channel *out = &team->channels[group->rank * team->size + to];
    status = wait_for(team, group->rank, out, CHANNEL_EMPTY, to);
    if (status != TA_OK && !withdraw(team, group->rank, to))
        return TA_OK; /* taken at the last moment: who sends a handle must know that it is gone */
    return status;
}

static ta_status threads_exchange(ta_group *group, const void *send, size_t send_bytes, int to,
                                  void *receive, size_t receive_bytes, int from, void *stream)
{
    TA_TRY(threads_start(group, send, send_bytes, to, receive, receive_bytes, from, stream));
    return threads_finish(group, stream);
}

static ta_status threads_await(ta_group *group, int peer, int ranks, const uint32_t *word,
                               uint32_t epoch)
{
    ta_team *team = ((thread_group *)group)->team;
    awaited a = {.peer = peer, .word = word, .epoch = epoch};
    a.spins = ranks <= team->cpus ? WORD_SPINS : 0;
    TA_TRY(broken_status(team));
    return wait_until(team, group->rank, &a);
}

static void threads_wake(ta_group *group, int peer)
{
    wake_rank(((thread_group *)group)->team, peer);
}

static void threads_abort(ta_group *group, const char *reason)
{
    ta_team *team = ((thread_group *)group)->team;
    char text[sizeof team->reason];
    snprintf(text, sizeof text, "rank %d aborted the group: %s", group->rank, reason);
    break_team(team, TA_ERR_ABORTED, text);
}

static void free_team(ta_team *team)
{
    for (int rank = 0; rank < team->size; ++rank) {
        pthread_cond_destroy(&team->seats[rank].wake);
        pthread_mutex_destroy(&team->seats[rank].mutex);
    }
    pthread_mutex_destroy(&team->broken_mutex);
    free(team->channels);
    free(team->seats);
    free(team);
}

static void threads_destroy(ta_group *group)
{
    ta_team *team = ((thread_group *)group)->team;
    atomic_store(&team->seats[group->rank].left, 1);
    for (int rank = 0; rank < team->size; ++rank)
        wake_rank(team, rank);
    free(group);
    if (atomic_fetch_sub(&team->handles, 1) == 1)
        free_team(team);
}

static const ta_group_ops threads_ops = {
    .name = "threads",
    .exchange = threads_exchange,
    .start = threads_start,
    .finish = threads_finish,
    .abort = threads_abort,
    .destroy = threads_destroy,
    .split = ta_threads_split,
    .share = ta_threads_share,
    .await = threads_await,
    .wake = threads_wake,
};

static ta_team *make_team(int ranks, int timeout_ms)
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
    team->cpus = ta_host_threads();
    atomic_init(&team->handles, ranks);
    pthread_mutex_init(&team->broken_mutex, NULL);
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

ta_status ta_group_create_threads(int ranks, const ta_group_config *config, ta_group **groups)
{
    int timeout_ms, made = 0;
    if (ranks < 1 || ranks > TA_MAX_THREAD_RANKS)
        return ta_fail(TA_ERR_INVALID, "ranks is %d: must be from 1 to %d", ranks,
                       TA_MAX_THREAD_RANKS);
    TA_TRY(ta_group_check_config(config, &timeout_ms));
    if (!groups)
        return ta_fail(TA_ERR_INVALID, "groups is NULL: must point to %d handles", ranks);
    ta_team *team = make_team(ranks, timeout_ms);
    thread_group **handles = calloc((size_t)ranks, sizeof *handles);
    if (!team || !handles)
        goto free_made;
    for (; made < ranks; ++made) {
        handles[made] = calloc(1, sizeof *handles[made]);
        if (!handles[made])
            goto free_made;
        handles[made]->group =
            (ta_group){.ops = &threads_ops, .rank = made, .size = ranks, .timeout_ms = timeout_ms};
        handles[made]->team = team;
    }
    for (int rank = 0; rank < ranks; ++rank)
        groups[rank] = &handles[rank]->group;
    free(handles);
    return TA_OK;

free_made:
    while (handles && made > 0)
        free(handles[--made]);
    free(handles);
    if (team)
        free_team(team);
    return ta_fail(TA_ERR_NO_MEMORY, "no memory for a group of %d ranks", ranks);
}
