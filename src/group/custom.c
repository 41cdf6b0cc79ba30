/* Groups over the caller's own transport: ta_group_create_custom() and the life of such a group.
 * See custom.h. */
#include "custom.h"

#include <stdlib.h>
#include <time.h>

#include "base/arguments.h"
#include "base/status.h"

/* ---- Making and freeing ---------------------------------------------------------------------- */

/* Groups whose memory the transport may still touch. */
static ta_custom_group *left_behind;
static pthread_mutex_t left_behind_mutex = PTHREAD_MUTEX_INITIALIZER;

static void leave_wire(ta_custom_wire *wire)
{
    pthread_mutex_lock(&wire->mutex);
    int users = --wire->users;
    pthread_mutex_unlock(&wire->mutex);
    if (users > 0)
        return;
    pthread_mutex_destroy(&wire->mutex);
    free(wire);
}

static void free_group(ta_custom_group *g)
{
    pthread_mutex_destroy(&g->mutex);
    ta_broken_destroy(&g->broken);
    free(g->in.bounce);
    free(g->out.bounce);
    free(g->wire_ranks);
    free(g->peers);
    free(g->list);
    free(g);
}

static void cancel(const ta_transport *transport, ta_transfer *t)
{
    if (t->bytes && !ta_custom_is_over(t))
        transport->cancel(transport->context, t);
}

static void custom_destroy(ta_group *group)
{
    ta_custom_group *g = (ta_custom_group *)group;
    ta_transport transport = g->wire->transport;
    pthread_mutex_lock(&g->mutex);
    ta_custom_tell(g);
    ta_custom_leave(g);
    for (int rank = 0; transport.cancel && rank < group->size; ++rank) {
        cancel(&transport, &g->peers[rank].say);
        cancel(&transport, &g->peers[rank].tell);
        cancel(&transport, &g->peers[rank].hear);
    }
    pthread_mutex_unlock(&g->mutex);
    leave_wire(g->wire);
    if (!transport.holds_memory) {
        free_group(g);
        return;
    }
    pthread_mutex_lock(&left_behind_mutex);
    g->left_behind = left_behind;
    left_behind = g;
    pthread_mutex_unlock(&left_behind_mutex);
}

static void custom_abort(ta_group *group, const char *reason)
{
    ta_custom_group *g = (ta_custom_group *)group;
    const struct timespec moment = {0, 1000000};
    ta_break(&g->broken, TA_ERR_ABORTED, "rank %d aborted the group: %s", group->rank, reason);
    /* A thread that is in a call has the mutex: it notices, and tells the others when it ends. */
    for (int round = 0; round < 100; ++round) {
        if (pthread_mutex_trylock(&g->mutex) == 0) {
            ta_custom_tell(g);
            pthread_mutex_unlock(&g->mutex);
            return;
        }
        nanosleep(&moment, NULL);
    }
}

static ta_status custom_split(ta_group *group, int color, int key, ta_group **part);

static const ta_group_ops custom_ops = {
    .name = "custom",
    .exchange = ta_custom_exchange,
    .start = ta_custom_start,
    .finish = ta_custom_finish,
    .abort = custom_abort,
    .destroy = custom_destroy,
    .split = custom_split,
};

/* A handle without its channel; `ranks` are the wire's numbers, NULL: all of them. */
static ta_status make_group(ta_custom_wire *wire, int rank, int size, const int *ranks,
                            int timeout_ms, ta_custom_group **made)
{
    ta_custom_group *g = calloc(1, sizeof *g);
    size_t count = (size_t)size;
    if (!g)
        return ta_fail(TA_ERR_NO_MEMORY, "no memory for a group of %d ranks", size);
    pthread_mutex_init(&g->mutex, NULL);
    ta_broken_init(&g->broken);
    g->wire_ranks = calloc(count, sizeof *g->wire_ranks);
    g->peers = calloc(count, sizeof *g->peers);
    g->list = calloc(3 * count + 4, sizeof *g->list);
    if (!g->wire_ranks || !g->peers || !g->list) {
        free_group(g);
        return ta_fail(TA_ERR_NO_MEMORY, "no memory for a group of %d ranks", size);
    }
    g->group = (ta_group){.ops = &custom_ops,
                          .rank = rank,
                          .size = size,
                          .timeout_ms = timeout_ms,
                          .node = wire->transport.node};
    g->wire = wire;
    g->waits_for = g->in.peer = g->out.peer = -1;
    for (int r = 0; r < size; ++r) {
        g->wire_ranks[r] = ranks ? ranks[r] : r;
        g->peers[r].left_after = -1;
    }
    *made = g;
    return TA_OK;
}

static void open_channel(ta_custom_group *g, int channel)
{
    g->channel = channel;
    for (int rank = 0; rank < g->group.size; ++rank)
        if (rank != g->group.rank)
            ta_custom_listen(g, rank);
}

/* ---- Splitting ------------------------------------------------------------------------------- */

/* The first channel that no rank of the group has in use. Parts have no rank in common, so they may
 * have the same one. */
static ta_status agree_on_channel(ta_group *group, ta_custom_wire *wire, int *channel)
{
    pthread_mutex_lock(&wire->mutex);
    int64_t next = wire->next_channel;
    pthread_mutex_unlock(&wire->mutex);
    TA_TRY(ta_group_all_reduce(group, &next, &next, 1, TA_ELEMENT_I64, TA_REDUCE_MAX, NULL));
    if (next > INT32_MAX - 2)
        return ta_fail(TA_ERR_UNSUPPORTED, "the transport has no channels left");
    pthread_mutex_lock(&wire->mutex);
    if (wire->next_channel < next + 2)
        wire->next_channel = (int)next + 2;
    pthread_mutex_unlock(&wire->mutex);
    *channel = (int)next;
    return TA_OK;
}

static ta_status make_part(ta_custom_group *whole, const ta_members *members, int channel,
                           ta_custom_group **part)
{
    ta_custom_group *made;
    TA_TRY(make_group(whole->wire, members->rank, members->size, members->ranks,
                      whole->group.timeout_ms, &made));
    for (int i = 0; i < members->size; ++i)
        made->wire_ranks[i] = whole->wire_ranks[members->ranks[i]];
    pthread_mutex_lock(&whole->wire->mutex);
    whole->wire->users += 1;
    pthread_mutex_unlock(&whole->wire->mutex);
    open_channel(made, channel);
    *part = made;
    return TA_OK;
}

static ta_status custom_split(ta_group *group, int color, int key, ta_group **part)
{
    ta_custom_group *whole = (ta_custom_group *)group, *made = NULL;
    ta_members members;
    int channel = 0;
    TA_TRY(ta_members_gather(group, color, key, &members));
    ta_status status = agree_on_channel(group, whole->wire, &channel);
    if (status == TA_OK && members.size > 0)
        status = make_part(whole, &members, channel, &made);
    ta_members_free(&members);
    if (status != TA_OK)
        ta_group_abort(group, ta_last_error()); /* the others wait here */
    else
        status = ta_group_barrier(group, NULL);
    if (status != TA_OK) {
        if (made)
            custom_destroy(&made->group);
        return status;
    }
    *part = made ? &made->group : NULL;
    return TA_OK;
}

/* ---- Creating -------------------------------------------------------------------------------- */

static ta_status check_transport(const ta_transport *t)
{
    if (t->ranks < 1)
        return ta_fail(TA_ERR_INVALID, "transport.ranks is %d: must be 1 or more", (int)t->ranks);
    if (t->rank < 0 || t->rank >= t->ranks)
        return ta_fail(TA_ERR_INVALID, "transport.rank is %d: must be from 0 to %d", (int)t->rank,
                       (int)t->ranks - 1);
    if (t->node < 0)
        return ta_fail(TA_ERR_INVALID, "transport.node is %d: must be 0 (not told) or more",
                       (int)t->node);
    if (t->holds_memory != 0 && t->holds_memory != 1)
        return ta_fail(TA_ERR_INVALID, "transport.holds_memory is %d: must be 0 or 1",
                       (int)t->holds_memory);
    if (!t->progress)
        return ta_fail(TA_ERR_INVALID, "transport.progress is NULL: must be a function");
    return TA_OK;
}

ta_status ta_group_create_custom(const ta_transport *transport, const ta_group_config *config,
                                 ta_group **group)
{
    ta_transport known;
    ta_custom_group *g;
    int timeout_ms;
    if (!transport)
        return ta_fail(TA_ERR_INVALID, "transport is NULL: must point to callbacks");
    TA_TRY(ta_struct_read(TA_STRUCT(ta_transport), "transport", transport, &known));
    TA_TRY(check_transport(&known));
    TA_TRY(ta_group_check_config(config, &timeout_ms));
    if (!group)
        return ta_fail(TA_ERR_INVALID, "group is NULL: must point to the result");
    ta_custom_wire *wire = calloc(1, sizeof *wire);
    if (!wire)
        return ta_fail(TA_ERR_NO_MEMORY, "no memory for a group");
    wire->transport = known;
    wire->users = 1;
    wire->next_channel = 2;
    pthread_mutex_init(&wire->mutex, NULL);
    ta_status status = make_group(wire, known.rank, known.ranks, NULL, timeout_ms, &g);
    if (status != TA_OK) {
        leave_wire(wire);
        return status;
    }
    open_channel(g, 0);
    status = ta_group_barrier(&g->group, NULL); /* is everybody there? */
    if (status != TA_OK) {
        custom_destroy(&g->group);
        return status;
    }
    *group = &g->group;
    return TA_OK;
}
