/* The public calls of a group, and the collectives that an engine leaves to us, built from its
 * exchange(). The engines are threads.c and the modules. */
#include "group.h"

#include <pthread.h>
#include <string.h>

#include "base/arguments.h"
#include "base/fault.h"
#include "base/status.h"
#include "device/device.h"
#include "device/modules.h"
#include "device/peers.h"
#include "signals.h"

#define DEFAULT_TIMEOUT_MS 60000

ta_status ta_group_check_config(const ta_group_config *config, int *timeout_ms)
{
    *timeout_ms = DEFAULT_TIMEOUT_MS;
    if (!config)
        return TA_OK;
    ta_group_config known;
    TA_TRY(ta_struct_read(TA_STRUCT(ta_group_config), "config", config, &known));
    TA_TRY(ta_check_int("reserved", known.reserved, 0, 0));
    if (known.timeout_ms < 0)
        return ta_fail(TA_ERR_INVALID, "config.timeout_ms is %d: must be 0 (default) or more",
                       known.timeout_ms);
    if (known.timeout_ms)
        *timeout_ms = known.timeout_ms;
    return TA_OK;
}

ta_status ta_group_create_mpi(const void *comm, const ta_group_config *config, ta_group **group)
{
    ta_group_config complete = TA_GROUP_CONFIG_INIT;
    TA_TRY(ta_group_check_config(config, &complete.timeout_ms));
    if (!comm)
        return ta_fail(TA_ERR_INVALID, "comm is NULL: must be the address of an MPI_Comm");
    if (!group)
        return ta_fail(TA_ERR_INVALID, "group is NULL: must point to the result");
    return ta_modules_create_mpi(comm, &complete, group);
}

int ta_group_rank(const ta_group *group)
{
    return group ? group->rank : 0;
}

int ta_group_size(const ta_group *group)
{
    return group ? group->size : 1;
}

ta_status ta_group_get_stats(const ta_group *group, ta_group_stats *stats)
{
    if (!group)
        return ta_fail(TA_ERR_INVALID, "group is NULL: must be a group");
    return ta_struct_write(TA_STRUCT(ta_group_stats), "stats", &group->stats, stats);
}

/* Of the lists of all groups: any thread may abort one while its rank makes or destroys a plan. */
static pthread_mutex_t peers_lock = PTHREAD_MUTEX_INITIALIZER;

void ta_group_add_peers(ta_group *group, ta_device *device, ta_peers *peers)
{
    pthread_mutex_lock(&peers_lock);
    peers->device = device;
    peers->next = group->peers;
    group->peers = peers;
    pthread_mutex_unlock(&peers_lock);
}

void ta_group_remove_peers(ta_group *group, ta_peers *peers)
{
    pthread_mutex_lock(&peers_lock);
    ta_peers **link = &group->peers;
    while (*link && *link != peers)
        link = &(*link)->next;
    if (*link)
        *link = peers->next;
    pthread_mutex_unlock(&peers_lock);
}

void ta_group_abort_for(ta_group *group, int32_t word, const char *reason)
{
    group->ops->abort(group, reason);
    pthread_mutex_lock(&peers_lock);
    for (ta_peers *p = group->peers; p; p = p->next)
        p->device->ops->peers->tell(p, word);
    pthread_mutex_unlock(&peers_lock);
}

void ta_group_abort(ta_group *group, const char *reason)
{
    if (!group)
        return;
    ta_group_abort_for(group, ta_fault_lost_word(ta_fault_lost(TA_ERR_ABORTED, group->rank)),
                       reason ? reason : "no reason given");
}

void ta_group_destroy(ta_group *group)
{
    if (!group)
        return;
    ta_device *held = group->holds_device ? group->device : NULL;
    while (group->signals)
        ta_signals_drop(group, group->signals);
    group->ops->destroy(group);
    if (held)
        ta_device_let_go(held);
}

void ta_group_hold_device(ta_group *group)
{
    if (!group->device)
        return;
    ta_device_hold(group->device);
    group->holds_device = 1;
}

static void count_messages(ta_group *group, size_t send_bytes, int to, size_t receive_bytes,
                           int from)
{
    if (to >= 0) {
        group->stats.messages_sent += 1;
        group->stats.bytes_sent += send_bytes;
    }
    if (from >= 0) {
        group->stats.messages_received += 1;
        group->stats.bytes_received += receive_bytes;
    }
}

ta_status ta_group_exchange(ta_group *group, const void *send, size_t send_bytes, int to,
                            void *receive, size_t receive_bytes, int from, void *stream)
{
    TA_TRY(group->ops->exchange(group, send, send_bytes, to, receive, receive_bytes, from, stream));
    count_messages(group, send_bytes, to, receive_bytes, from);
    return TA_OK;
}

ta_status ta_group_start(ta_group *group, const void *send, size_t send_bytes, int to,
                         void *receive, size_t receive_bytes, int from, void *stream)
{
    const ta_group_ops *ops = group->ops;
    TA_TRY((ops->start ? ops->start : ops->exchange)(group, send, send_bytes, to, receive,
                                                     receive_bytes, from, stream));
    count_messages(group, send_bytes, to, receive_bytes, from);
    return TA_OK;
}

ta_status ta_group_finish(ta_group *group, void *stream)
{
    return group->ops->start ? group->ops->finish(group, stream) : TA_OK;
}

/* A collective that the engine did itself. */
static ta_status count_native(ta_group *group, ta_status status, size_t sent, size_t received)
{
    if (status != TA_OK)
        return status;
    group->stats.messages_sent += 1;
    group->stats.messages_received += 1;
    group->stats.bytes_sent += sent;
    group->stats.bytes_received += received;
    return TA_OK;
}

/* Dissemination: after round k each rank has heard, through others, of 2^(k+1) ranks. */
ta_status ta_group_barrier(ta_group *group, void *stream)
{
    if (group->ops->barrier)
        return count_native(group, group->ops->barrier(group, stream), 0, 0);
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
        return count_native(group, group->ops->broadcast(group, data, bytes, root, stream),
                            group->rank == root ? bytes : 0, group->rank == root ? 0 : bytes);
    int position = (group->rank + group->size - root) % group->size;
    for (int distance = 1; distance < group->size; distance *= 2) {
        if (position < distance && position + distance < group->size) {
            int to = (group->rank + distance) % group->size;
            TA_TRY(ta_group_exchange(group, data, bytes, to, NULL, 0, -1, stream));
        } else if (position >= distance && position < 2 * distance) {
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
    int size = group->size, rank = group->rank;
    size_t own = offsets[rank + 1] - offsets[rank];
    if (group->ops->all_gather)
        return count_native(group, group->ops->all_gather(group, data, offsets, stream), own,
                            offsets[size] - offsets[0] - own);
    char *bytes = data;
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

ta_status ta_group_all_reduce(ta_group *group, const void *from, void *to, size_t count,
                              ta_element_kind element, ta_reduction reduction, void *stream)
{
    size_t bytes = count * ta_element_bytes(element);
    if (group->ops->all_reduce)
        return count_native(
            group, group->ops->all_reduce(group, from, to, count, element, reduction, stream),
            bytes, bytes);
    if (to != from && bytes)
        memcpy(to, from, bytes);
    return ta_reduce_all(group, to, count, element, reduction);
}

ta_status ta_group_reduce_scatter(ta_group *group, const void *from, void *to,
                                  const size_t *offsets, ta_element_kind element,
                                  ta_reduction reduction, void *stream)
{
    size_t each = ta_element_bytes(element);
    if (group->ops->reduce_scatter)
        return count_native(
            group, group->ops->reduce_scatter(group, from, to, offsets, element, reduction, stream),
            (offsets[group->size] - offsets[0]) * each,
            (offsets[group->rank + 1] - offsets[group->rank]) * each);
    return ta_reduce_part(group, from, to, offsets, element, reduction);
}
