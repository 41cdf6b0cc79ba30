/* See memory_transport.h. */
#include "memory_transport.h"

#include <string.h>
#include <time.h>

#include "transfers.h"

void memory_transport_init(memory_transport *shared)
{
    memset(shared, 0, sizeof *shared);
    pthread_mutex_init(&shared->mutex, NULL);
}

void memory_transport_free(memory_transport *shared)
{
    pthread_mutex_destroy(&shared->mutex);
}

static size_t put(memory_queue *q, const char *data, size_t bytes)
{
    size_t done = 0;
    for (; done < bytes && q->count < MEMORY_BYTES; ++done, ++q->count)
        q->data[(q->first + q->count) % MEMORY_BYTES] = data[done];
    return done;
}

static size_t take(memory_queue *q, char *data, size_t bytes)
{
    size_t done = 0;
    for (; done < bytes && q->count > 0; ++done, --q->count) {
        data[done] = q->data[q->first];
        q->first = (q->first + 1) % MEMORY_BYTES;
    }
    return done;
}

static size_t move_all(const memory_end *end, ta_transfer *const *transfers, int count)
{
    size_t moved = 0;
    for (int i = 0; i < count; ++i) {
        ta_transfer *t = transfers[i];
        if (t->channel >= MEMORY_CHANNELS || transfer_is_blocked(transfers, i))
            continue;
        char *data = (char *)t->data + t->moved;
        size_t left = t->bytes - t->moved;
        size_t done = t->sends
                          ? put(&end->shared->queues[end->rank][t->peer][t->channel], data, left)
                          : take(&end->shared->queues[t->peer][end->rank][t->channel], data, left);
        t->moved += done;
        moved += done;
    }
    return moved;
}

static ta_status progress(void *context, ta_transfer *const *transfers, int count, int timeout_ms)
{
    const memory_end *end = context;
    const struct timespec moment = {0, 50000};
    for (int round = 0; round <= 20 * timeout_ms; ++round) {
        pthread_mutex_lock(&end->shared->mutex);
        size_t moved = move_all(end, transfers, count);
        pthread_mutex_unlock(&end->shared->mutex);
        if (moved || timeout_ms == 0)
            return TA_OK;
        nanosleep(&moment, NULL);
    }
    return TA_OK;
}

ta_transport memory_transport_calls(memory_transport *shared, int rank, memory_end *end)
{
    ta_transport t = TA_TRANSPORT_INIT;
    *end = (memory_end){shared, rank};
    t.context = end;
    t.rank = rank;
    t.ranks = MEMORY_RANKS;
    t.progress = progress;
    return t;
}
