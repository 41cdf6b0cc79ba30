/* The public calls of a group, and the collectives that an engine leaves to us, built from its
 * exchange(). The engines are group_threads.c and its siblings. */
#include "group.h"

#include "status.h"

int ta_group_rank(const ta_group *group)
{
    return group ? group->rank : 0;
}

int ta_group_size(const ta_group *group)
{
    return group ? group->size : 1;
}

ta_status ta_group_count(const ta_group *group, ta_group_stats *stats)
{
    if (!group)
        return ta_fail(TA_ERR_INVALID, "group is NULL: must be a group");
    if (!stats || stats->size != sizeof *stats)
        return ta_fail(TA_ERR_INVALID, "stats is NULL or not initialised: use TA_GROUP_STATS_INIT");
    *stats = group->stats;
    stats->size = sizeof *stats;
    return TA_OK;
}

void ta_group_abort(ta_group *group, const char *reason)
{
    if (group)
        group->ops->abort(group, reason ? reason : "no reason given");
}

void ta_group_destroy(ta_group *group)
{
    if (group)
        group->ops->destroy(group);
}

ta_status ta_group_exchange(ta_group *group, const void *send, size_t send_bytes, int to,
                            void *receive, size_t receive_bytes, int from, void *stream)
{
    TA_TRY(group->ops->exchange(group, send, send_bytes, to, receive, receive_bytes, from, stream));
    if (to >= 0) {
        group->stats.messages_sent += 1;
        group->stats.bytes_sent += send_bytes;
    }
    if (from >= 0) {
        group->stats.messages_received += 1;
        group->stats.bytes_received += receive_bytes;
    }
    return TA_OK;
}

/* Dissemination: after round k each rank has heard, through others, of 2^(k+1) ranks. */
ta_status ta_group_barrier(ta_group *group, void *stream)
{
    if (group->ops->barrier)
        return group->ops->barrier(group, stream);
    for (int distance = 1; distance < group->size; distance *= 2) {
        int to = (group->rank + distance) % group->size;
        int from = (group->rank + group->size - distance) % group->size;
        TA_TRY(ta_group_exchange(group, NULL, 0, to, NULL, 0, from, stream));
    }
    return TA_OK;
}

/* Binomial tree: the ranks that have the data double in every round. */
ta_status ta_group_broadcast(ta_group *group, void *data, size_t bytes, int root, void *stream)
{
    if (group->ops->broadcast)
        return group->ops->broadcast(group, data, bytes, root, stream);
    int place = (group->rank + group->size - root) % group->size;
    for (int distance = 1; distance < group->size; distance *= 2) {
        if (place < distance && place + distance < group->size) {
            int to = (group->rank + distance) % group->size;
            TA_TRY(ta_group_exchange(group, data, bytes, to, NULL, 0, -1, stream));
        } else if (place >= distance && place < 2 * distance) {
            int from = (group->rank + group->size - distance) % group->size;
            TA_TRY(ta_group_exchange(group, NULL, 0, -1, data, bytes, from, stream));
        }
    }
    return TA_OK;
}

/* Doubling: before a round each rank has the parts of `have` ranks from its own on, around the end
 * to rank 0; it passes them down by that distance. A run of parts that wraps around takes two
 * messages. */
ta_status ta_group_all_gather(ta_group *group, void *data, const size_t *offsets, void *stream)
{
    if (group->ops->all_gather)
        return group->ops->all_gather(group, data, offsets, stream);
    char *bytes = data;
    int size = group->size, rank = group->rank;
    for (int have = 1; have < size; have *= 2) {
        int parts = have < size - have ? have : size - have;
        int to = (rank + size - have) % size, from = (rank + have) % size;
        int send_end = rank + parts < size ? rank + parts : size;
        int receive_end = from + parts < size ? from + parts : size;
        TA_TRY(ta_group_exchange(group, bytes + offsets[rank], offsets[send_end] - offsets[rank],
                                 to, bytes + offsets[from], offsets[receive_end] - offsets[from],
                                 from, stream));
        int send_wrapped = rank + parts - send_end, receive_wrapped = from + parts - receive_end;
        if (send_wrapped || receive_wrapped)
            TA_TRY(ta_group_exchange(group, bytes, offsets[send_wrapped], send_wrapped ? to : -1,
                                     bytes, offsets[receive_wrapped], receive_wrapped ? from : -1,
                                     stream));
    }
    return TA_OK;
}
