/* Messages over the caller's transport: a head, and a body if the message does not fit into it. The
 * receiver asks for the body when it has the head and knows that the sizes are equal. See
 * custom.h. */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/status.h"
#include "custom.h"
#include "label.h"

/* How long the transport may wait at a time: within that a rank notices that another thread has
 * aborted its group. */
#define SLICE_MS 20

static ta_transfer make_transfer(const ta_custom_group *g, int peer, int sends, void *data,
                                 size_t bytes)
{
    return (ta_transfer){.data = data,
                         .bytes = bytes,
                         .channel = g->channel,
                         .peer = g->wire_ranks[peer],
                         .sends = sends};
}

/* The memory of a body: the caller's, or ours if the transport may keep it. */
static ta_status find_body_memory(ta_custom_group *g, ta_custom_flow *f, char **memory)
{
    *memory = f->data;
    if (!g->wire->transport.holds_memory)
        return TA_OK;
    if (f->bounce_bytes < f->bytes) {
        char *more = realloc(f->bounce, f->bytes);
        if (!more)
            return ta_custom_fail(g, TA_ERR_NO_MEMORY, "no memory for a message of %zu bytes",
                                  f->bytes);
        f->bounce = more;
        f->bounce_bytes = f->bytes;
    }
    *memory = f->bounce;
    return TA_OK;
}

static ta_status begin_send(ta_custom_group *g, int to, const void *data, size_t bytes)
{
    ta_custom_flow *f = &g->out;
    char *memory;
    f->data = (char *)data;
    f->bytes = bytes;
    memset(&f->head, 0, sizeof f->head);
    f->head.bytes = bytes;
    f->head.label = g->group.label;
    f->first = make_transfer(g, to, 1, &f->head, sizeof f->head);
    if (bytes > 0 && bytes <= sizeof f->head.data) {
        memcpy(f->head.data, data, bytes);
    } else if (bytes > 0) {
        TA_TRY(find_body_memory(g, f, &memory));
        if (memory != data)
            memcpy(memory, data, bytes);
        f->rest = make_transfer(g, to, 1, memory, bytes);
    }
    f->peer = to;
    g->peers[to].sent += 1;
    return TA_OK;
}

static void begin_receive(ta_custom_group *g, int from, void *data, size_t bytes)
{
    ta_custom_flow *f = &g->in;
    f->data = data;
    f->bytes = bytes;
    f->first = make_transfer(g, from, 0, &f->head, sizeof f->head);
    f->peer = from;
}

/* The head has arrived: take what is in it, or ask for the body. */
static ta_status take_head(ta_custom_group *g, ta_custom_flow *f)
{
    char sentence[TA_LABEL_SENTENCE], *memory;
    if (f->head.label != g->group.label) {
        ta_label_difference(g->group.rank, g->group.label, f->peer, f->head.label, sentence);
        return ta_custom_fail(g, TA_ERR_MISMATCH, "%s", sentence);
    }
    if (f->head.bytes != f->bytes)
        return ta_custom_fail(g, TA_ERR_MISMATCH,
                              "rank %d sent %llu bytes where rank %d expected %zu: the ranks are "
                              "not in the same call",
                              f->peer, (unsigned long long)f->head.bytes, g->group.rank, f->bytes);
    g->peers[f->peer].received += 1;
    f->first.bytes = f->first.moved = 0;
    if (f->bytes > 0 && f->bytes <= sizeof f->head.data) {
        memcpy(f->data, f->head.data, f->bytes);
    } else if (f->bytes > 0) {
        TA_TRY(find_body_memory(g, f, &memory));
        f->rest = make_transfer(g, f->peer, 0, memory, f->bytes);
        return TA_OK;
    }
    f->peer = -1;
    return TA_OK;
}

static ta_status check_lost(ta_custom_group *g, const ta_custom_flow *f)
{
    if (f->peer < 0 || (!f->first.failed && !f->rest.failed))
        return TA_OK;
    int number = f->first.failed ? f->first.failed : f->rest.failed;
    return ta_custom_fail(g, TA_ERR_SYSTEM,
                          "rank %d is lost: the transport of rank %d can't %s it (%d)", f->peer,
                          g->group.rank, f == &g->out ? "send to" : "receive from", number);
}

/* What came is taken, and what is complete is over. */
static ta_status settle(ta_custom_group *g)
{
    ta_custom_flow *in = &g->in, *out = &g->out;
    TA_TRY(check_lost(g, in));
    TA_TRY(check_lost(g, out));
    if (in->peer >= 0 && in->first.bytes && ta_custom_is_over(&in->first))
        TA_TRY(take_head(g, in));
    if (in->peer >= 0 && in->rest.bytes && ta_custom_is_over(&in->rest)) {
        if (in->rest.data != in->data)
            memcpy(in->data, in->rest.data, in->bytes);
        in->rest = (ta_transfer){0};
        in->peer = -1;
    }
    if (out->peer >= 0 && ta_custom_is_over(&out->first) && ta_custom_is_over(&out->rest)) {
        out->first = out->rest = (ta_transfer){0};
        out->peer = -1;
    }
    return TA_OK;
}

static size_t moved(const ta_custom_group *g)
{
    return g->in.first.moved + g->in.rest.moved + g->out.first.moved + g->out.rest.moved;
}

static int64_t deadline_of(const ta_custom_group *g)
{
    return ta_clock_ns() + (int64_t)g->group.timeout_ms * TA_NS_PER_MS;
}

static ta_status run(ta_custom_group *g)
{
    int64_t deadline = deadline_of(g);
    for (;;) {
        size_t before = moved(g);
        int flows = (g->in.peer >= 0) + (g->out.peer >= 0), whole = g->in.rest.bytes != 0;
        TA_TRY(settle(g));
        if (g->in.peer < 0 && g->out.peer < 0)
            return TA_OK;
        int settled =
            (g->in.peer >= 0) + (g->out.peer >= 0) != flows || (g->in.rest.bytes != 0) != whole;
        TA_TRY(ta_custom_progress(g, settled ? 0 : SLICE_MS));
        if (settled || moved(g) != before)
            deadline = deadline_of(g); /* it goes on: the clock starts anew */
        else
            TA_TRY(ta_custom_wait_round(g, deadline, g->in.peer >= 0 ? g->in.peer : g->out.peer));
    }
}

/* After a failure: the transport lets go of the caller's memory, which is never its own when it
 * can't be told. */
static void drop(ta_custom_group *g, ta_custom_flow *f)
{
    const ta_transport *transport = &g->wire->transport;
    ta_transfer *both[] = {&f->first, &f->rest};
    for (int i = 0; i < 2; ++i) {
        if (both[i]->bytes && !ta_custom_is_over(both[i]) && transport->cancel)
            transport->cancel(transport->context, both[i]);
        if (!transport->holds_memory)
            *both[i] = (ta_transfer){0};
    }
    f->peer = -1;
}

static ta_status end_call(ta_custom_group *g, ta_status status)
{
    g->waits_for = -1;
    if (status != TA_OK) {
        ta_custom_tell(g);
        drop(g, &g->in);
        drop(g, &g->out);
    }
    pthread_mutex_unlock(&g->mutex);
    return status;
}

ta_status ta_custom_start(ta_group *group, const void *send, size_t send_bytes, int to,
                          void *receive, size_t receive_bytes, int from, void *stream)
{
    ta_custom_group *g = (ta_custom_group *)group;
    ta_status status;
    (void)stream;
    pthread_mutex_lock(&g->mutex);
    TA_TRY_GOTO(ta_custom_check(g), end_failed);
    if (from >= 0)
        begin_receive(g, from, receive, receive_bytes);
    if (to >= 0)
        TA_TRY_GOTO(begin_send(g, to, send, send_bytes), end_failed);
    TA_TRY_GOTO(ta_custom_progress(g, 0), end_failed);
    pthread_mutex_unlock(&g->mutex);
    return TA_OK;

end_failed:
    return end_call(g, status);
}

ta_status ta_custom_finish(ta_group *group, void *stream)
{
    ta_custom_group *g = (ta_custom_group *)group;
    (void)stream;
    pthread_mutex_lock(&g->mutex);
    return end_call(g, run(g));
}

ta_status ta_custom_exchange(ta_group *group, const void *send, size_t send_bytes, int to,
                             void *receive, size_t receive_bytes, int from, void *stream)
{
    TA_TRY(ta_custom_start(group, send, send_bytes, to, receive, receive_bytes, from, stream));
    return ta_custom_finish(group, stream);
}
