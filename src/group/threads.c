/* A group whose ranks are threads of one process. Each ordered pair of ranks has one channel: the
 * sender posts the address of its data, the receiver copies straight from there and marks the
 * channel empty, and the sender returns. group.h is the contract; group.c calls in here;
 * threads_team.c has the waits. */
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "label.h"
#include "threads.h"

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

static void post(ta_team *team, int rank, int to, const void *data, size_t bytes, uint64_t label)
{
    ta_channel *out = &team->channels[rank * team->size + to];
    out->data = data;
    out->bytes = bytes;
    out->label = label;
    atomic_store(&out->state, TA_CHANNEL_POSTED);
    ta_team_wake(team, to);
}

/* After a failure: make sure that nobody reads the sender's memory when its call returns. Returns
 * whether the message was still there: if not, its receiver has it. */
static int withdraw(ta_team *team, int rank, int to)
{
    ta_channel *out = &team->channels[rank * team->size + to];
    int posted = TA_CHANNEL_POSTED;
    int withdrawn = atomic_compare_exchange_strong(&out->state, &posted, TA_CHANNEL_EMPTY);
    while (atomic_load(&out->state) == TA_CHANNEL_COPYING)
        sched_yield();
    return withdrawn;
}

static ta_status receive_from(ta_team *team, int rank, int from, void *data, size_t bytes,
                              uint64_t label)
{
    ta_channel *in = &team->channels[from * team->size + rank];
    TA_TRY(ta_team_wait_channel(team, rank, in, TA_CHANNEL_POSTED, from));
    int posted = TA_CHANNEL_POSTED;
    if (!atomic_compare_exchange_strong(&in->state, &posted, TA_CHANNEL_COPYING))
        return ta_team_status(team); /* its sender withdrew it */
    size_t sent = in->bytes;
    uint64_t theirs = in->label;
    if (sent == bytes && theirs == label && bytes)
        memcpy(data, in->data, bytes);
    atomic_store(&in->state, TA_CHANNEL_EMPTY);
    ta_team_wake(team, from);
    if (theirs != label) {
        char sentence[TA_LABEL_SENTENCE];
        ta_label_difference(rank, label, from, theirs, sentence);
        return ta_team_fail(team, TA_ERR_MISMATCH, "%s", sentence);
    }
    if (sent != bytes)
        return ta_team_fail(
            team, TA_ERR_MISMATCH,
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
    TA_TRY(ta_team_status(own->team));
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
    status = ta_team_wait_channel(team, group->rank, out, TA_CHANNEL_EMPTY, to);
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
    return ta_team_wait_word(((thread_group *)group)->team, group->rank, peer, ranks, word, epoch);
}

static void threads_wake(ta_group *group, int peer)
{
    ta_team_wake(((thread_group *)group)->team, peer);
}

static void threads_abort(ta_group *group, const char *reason)
{
    ta_team *team = ((thread_group *)group)->team;
    ta_break(&team->broken, TA_ERR_ABORTED, "rank %d aborted the group: %s", group->rank, reason);
    ta_team_wake_all(team);
}

static void threads_destroy(ta_group *group)
{
    ta_team *team = ((thread_group *)group)->team;
    atomic_store(&team->seats[group->rank].left, 1);
    ta_team_wake_all(team);
    free(group);
    if (atomic_fetch_sub(&team->handles, 1) == 1)
        ta_team_free(team);
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

ta_status ta_group_create_threads(int ranks, const ta_group_config *config, ta_group **groups)
{
    int timeout_ms, made = 0;
    if (ranks < 1 || ranks > TA_MAX_THREAD_RANKS)
        return ta_fail(TA_ERR_INVALID, "ranks is %d: must be from 1 to %d", ranks,
                       TA_MAX_THREAD_RANKS);
    TA_TRY(ta_group_check_config(config, &timeout_ms));
    if (!groups)
        return ta_fail(TA_ERR_INVALID, "groups is NULL: must point to %d handles", ranks);
    ta_team *team = ta_team_make(ranks, timeout_ms);
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
        ta_team_free(team);
    return ta_fail(TA_ERR_NO_MEMORY, "no memory for a group of %d ranks", ranks);
}
