/* Waiting over the caller's transport, in rounds and for a bounded time, while listening to all
 * ranks. A rank whose time is up asks the rank that it waits for whom that one waits for, and so
 * on; the first that does not answer is the one to name. See custom.h. */
#include <stdarg.h>
#include <string.h>

#include "base/clock.h"
#include "base/status.h"
#include "custom.h"

/* How long a rank tries to get a notice onto the network before it goes its way. */
#define TELL_MS 200

/* ---- Breaking a group ------------------------------------------------------------------------ */

static ta_status broken_status(ta_custom_group *g)
{
    ta_status status = ta_broken_status(&g->broken);
    return status == TA_OK ? TA_OK : ta_fail_quietly(status, "%s", g->broken.reason);
}

ta_status ta_custom_fail(ta_custom_group *g, ta_status status, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    int first = ta_break_with(&g->broken, status, format, arguments);
    va_end(arguments);
    return first ? ta_fail(status, "%s", g->broken.reason) : broken_status(g);
}

/* ---- Frames ---------------------------------------------------------------------------------- */

static ta_transfer frame_transfer(const ta_custom_group *g, int rank, int sends,
                                  ta_custom_frame *frame)
{
    return (ta_transfer){.data = frame,
                         .bytes = sizeof *frame,
                         .channel = g->channel + 1,
                         .peer = g->wire_ranks[rank],
                         .sends = sends};
}

void ta_custom_listen(ta_custom_group *g, int rank)
{
    ta_custom_peer *p = &g->peers[rank];
    p->hear = frame_transfer(g, rank, 0, &p->heard);
}

/* A question or an answer. If the last one to that rank is still on its way, the rank does not
 * listen, and this one is left out. */
static void say(ta_custom_group *g, int rank, ta_custom_kind kind, int64_t value)
{
    ta_custom_peer *p = &g->peers[rank];
    if (!ta_custom_is_over(&p->say))
        return;
    p->said = (ta_custom_frame){value, kind, g->group.rank, ""};
    p->say = frame_transfer(g, rank, 1, &p->said);
}

static void hear(ta_custom_group *g, const ta_custom_frame *frame, int rank)
{
    switch (frame->kind) {
    case TA_CUSTOM_BROKEN:
        ta_break(&g->broken, (ta_status)frame->value, "%s", frame->reason);
        break;
    case TA_CUSTOM_ASK:
        say(g, rank, TA_CUSTOM_ANSWER, g->waits_for);
        break;
    case TA_CUSTOM_ANSWER:
        g->answered_by = rank;
        g->answer = frame->value;
        break;
    case TA_CUSTOM_LEAVE:
        g->peers[rank].left_after = frame->value;
        break;
    }
}

/* One notice for each rank, on its way until it is gone or the group is. */
static int tell_all(ta_custom_group *g, ta_custom_kind kind)
{
    int untold = 0;
    for (int rank = 0; rank < g->group.size; ++rank) {
        ta_custom_peer *p = &g->peers[rank];
        if (rank == g->group.rank || p->left_after >= 0)
            continue;
        int64_t value = kind == TA_CUSTOM_BROKEN ? ta_broken_status(&g->broken) : p->sent;
        p->notice = (ta_custom_frame){value, kind, g->group.rank, ""};
        memcpy(p->notice.reason, g->broken.reason, sizeof p->notice.reason);
        p->tell = frame_transfer(g, rank, 1, &p->notice);
        ++untold;
    }
    return untold;
}

static int count_untold(const ta_custom_group *g)
{
    int untold = 0;
    for (int rank = 0; rank < g->group.size; ++rank)
        untold += !ta_custom_is_over(&g->peers[rank].tell);
    return untold;
}

void ta_custom_tell(ta_custom_group *g)
{
    int64_t end = ta_clock_ns() + (int64_t)TELL_MS * TA_NS_PER_MS;
    if (g->told || ta_broken_status(&g->broken) == TA_OK)
        return;
    g->told = 1;
    tell_all(g, TA_CUSTOM_BROKEN);
    while (count_untold(g) && ta_clock_ns() < end)
        if (ta_custom_progress(g, 1) != TA_OK && count_untold(g) == g->group.size - 1)
            break; /* the transport itself has failed */
}

void ta_custom_leave(ta_custom_group *g)
{
    if (ta_broken_status(&g->broken) == TA_OK && tell_all(g, TA_CUSTOM_LEAVE))
        (void)ta_custom_progress(g, 0);
}

/* ---- Rounds ---------------------------------------------------------------------------------- */

static void add(ta_custom_group *g, int *count, ta_transfer *transfer)
{
    if (transfer->bytes && !ta_custom_is_over(transfer))
        g->list[(*count)++] = transfer;
}

/* Bodies before what follows them on the same channel, from and to the same rank. */
static int list_all(ta_custom_group *g)
{
    int count = 0;
    add(g, &count, &g->in.rest);
    add(g, &count, &g->in.first);
    add(g, &count, &g->out.first);
    add(g, &count, &g->out.rest);
    for (int rank = 0; rank < g->group.size; ++rank) {
        add(g, &count, &g->peers[rank].say);
        add(g, &count, &g->peers[rank].tell);
        add(g, &count, &g->peers[rank].hear);
    }
    return count;
}

ta_status ta_custom_progress(ta_custom_group *g, int timeout_ms)
{
    const ta_transport *transport = &g->wire->transport;
    int count = list_all(g);
    ta_status status = transport->progress(transport->context, g->list, count, timeout_ms);
    for (int i = 0; i < count; ++i)
        if (g->list[i]->moved > g->list[i]->bytes)
            g->list[i]->failed = -1; /* so nothing of it is believed */
    if (status != TA_OK)
        return ta_custom_fail(g, TA_ERR_SYSTEM,
                              "the transport of rank %d failed: progress() returned %d",
                              g->group.rank, (int)status);
    for (int rank = 0; rank < g->group.size; ++rank) {
        ta_custom_peer *p = &g->peers[rank];
        if (!p->hear.bytes || p->hear.failed || p->hear.moved < p->hear.bytes)
            continue;
        p->heard.reason[sizeof p->heard.reason - 1] = '\0';
        hear(g, &p->heard, rank);
        ta_custom_listen(g, rank);
    }
    return TA_OK;
}

ta_status ta_custom_check(ta_custom_group *g)
{
    if (ta_broken_status(&g->broken) == TA_OK)
        TA_TRY(ta_custom_progress(g, 0));
    return broken_status(g);
}

/* Wait for the answer of a rank; returns whether it came. */
static int ask(ta_custom_group *g, int rank)
{
    int timeout = g->group.timeout_ms / 2;
    timeout = timeout < 100 ? 100 : timeout > 2000 ? 2000 : timeout;
    int64_t end = ta_clock_ns() + (int64_t)timeout * TA_NS_PER_MS;
    g->answered_by = -1;
    say(g, rank, TA_CUSTOM_ASK, 0);
    while (g->answered_by != rank && ta_clock_ns() < end)
        if (ta_custom_progress(g, 5) != TA_OK || ta_broken_status(&g->broken) != TA_OK)
            break;
    return g->answered_by == rank;
}

/* The rank that holds everybody up: follow who waits for whom to one that does not wait. */
static int find_missing(ta_custom_group *g, int peer)
{
    int missing = peer;
    for (int hops = 0; hops < g->group.size; ++hops) {
        if (!ask(g, missing) || g->answer < 0 || g->answer >= g->group.size)
            return missing;
        if (g->answer == g->group.rank)
            return peer; /* they wait in a circle */
        missing = (int)g->answer;
    }
    return peer;
}

/* Has the rank left, and is there no message of its left to come? */
static int is_gone(const ta_custom_group *g, int peer)
{
    const ta_custom_peer *p = &g->peers[peer];
    int waits_to_receive = g->in.peer == peer && g->in.rest.bytes == 0;
    return p->left_after >= 0 && (!waits_to_receive || p->received >= p->left_after);
}

ta_status ta_custom_wait_round(ta_custom_group *g, int64_t deadline, int peer)
{
    g->waits_for = peer;
    TA_TRY(broken_status(g));
    if (is_gone(g, peer))
        return ta_custom_fail(g, TA_ERR_ABORTED,
                              "rank %d destroyed its group while rank %d waited for it", peer,
                              g->group.rank);
    if (ta_clock_ns() < deadline)
        return TA_OK;
    int missing = find_missing(g, peer);
    return ta_custom_fail(g, TA_ERR_TIMEOUT,
                          "rank %d did not arrive within %d ms: rank %d waited for it", missing,
                          g->group.timeout_ms, g->group.rank);
}
