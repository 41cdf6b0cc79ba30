/* The recording group: see recording.h. */
#include "recording.h"

#include <stdlib.h>

#include "base/status.h"

static ta_status record(recording *r, int to, uint64_t bytes)
{
    if (r->messages_sent == r->capacity) {
        r->capacity = r->capacity ? 2 * r->capacity : 64;
        recorded_message *grown = realloc(r->sent, r->capacity * sizeof *grown);
        if (!grown)
            return ta_fail(TA_ERR_NO_MEMORY, "no memory for the record");
        r->sent = grown;
    }
    r->sent[r->messages_sent++] = (recorded_message){to, bytes};
    r->bytes_sent += bytes;
    return TA_OK;
}

static ta_status pass_on(ta_group *group, const void *send, size_t send_bytes, int to,
                         void *receive, size_t receive_bytes, int from, void *stream)
{
    recording *r = (recording *)group;
    if (to >= 0)
        TA_TRY(record(r, to, send_bytes));
    if (from >= 0) {
        r->messages_received += 1;
        r->bytes_received += receive_bytes;
    }
    return r->inner->ops->exchange(r->inner, send, send_bytes, to, receive, receive_bytes, from,
                                   stream);
}

static void abort_inner(ta_group *group, const char *reason)
{
    ta_group *inner = ((recording *)group)->inner;
    inner->ops->abort(inner, reason);
}

static void destroy_nothing(ta_group *group)
{
    (void)group;
}

static ta_status split_never(ta_group *group, int color, int key, ta_group **part)
{
    (void)group, (void)color, (void)key, (void)part;
    return ta_fail(TA_ERR_UNSUPPORTED, "a recording group is not split");
}

/* What goes without messages is not recorded. */
static ta_status share_inner(ta_group *group, const int *ranks, int count, size_t bytes,
                             struct ta_shared **shared)
{
    ta_group *inner = ((recording *)group)->inner;
    return inner->ops->share(inner, ranks, count, bytes, shared);
}

static ta_status await_inner(ta_group *group, int peer, int ranks, const uint32_t *word,
                             uint32_t epoch)
{
    ta_group *inner = ((recording *)group)->inner;
    return inner->ops->await(inner, peer, ranks, word, epoch);
}

static void wake_inner(ta_group *group, int peer)
{
    ta_group *inner = ((recording *)group)->inner;
    inner->ops->wake(inner, peer);
}

static const ta_group_ops ops = {
    .name = "recording",
    .exchange = pass_on,
    .abort = abort_inner,
    .destroy = destroy_nothing,
    .split = split_never,
    .share = share_inner,
    .await = await_inner,
    .wake = wake_inner,
};

void recording_init(recording *r, ta_group *inner)
{
    *r = (recording){.group = *inner, .inner = inner};
    r->group.ops = &ops;
}

void recording_free(recording *r)
{
    free(r->sent);
}
