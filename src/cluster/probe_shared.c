/* What ranks of a node take to signal each other through memory that they share, and to read each
 * other's: the part of the probe for direct exchanges. probe.c calls it. */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/status.h"
#include "device/device.h"
#include "group/signals.h"
#include "probe.h"

#define BATCHES 5
#define SIGNALS 20
#define READ_BYTES ((size_t)256 << 10)

typedef struct shared_probe {
    ta_group *group;
    int count, index, *ranks; /* of this rank's node */
    ta_signals *signals;
    ta_shared *slab; /* READ_BYTES of each */
    char *copy;
} shared_probe;

static ta_status find_ranks(const ta_cluster *cluster, shared_probe *p)
{
    int own = p->group->rank;
    p->ranks = calloc((size_t)cluster->ranks, sizeof *p->ranks);
    p->copy = malloc(READ_BYTES);
    if (!p->ranks || !p->copy)
        return ta_fail(TA_ERR_NO_MEMORY, "no memory to probe %d ranks", cluster->ranks);
    for (int rank = 0; rank < cluster->ranks; ++rank) {
        if (cluster->node_of[rank] != cluster->node_of[own])
            continue;
        if (rank == own)
            p->index = p->count;
        p->ranks[p->count++] = rank;
    }
    return TA_OK;
}

/* Everybody signals, and sees everybody's signal. */
static ta_status meet(shared_probe *p)
{
    ta_fault none = ta_fault_of(TA_OK, p->group->rank);
    ta_signal_ready(p->signals, &none);
    for (int i = 0; i < p->count; ++i)
        if (i != p->index)
            TA_TRY(ta_await_ready(p->signals, i));
    return TA_OK;
}

static ta_status time_signals(shared_probe *p, double *seconds)
{
    *seconds = 0;
    for (int batch = 0; batch <= BATCHES; ++batch) { /* the first one warms up */
        TA_TRY(ta_group_barrier(p->group, NULL));
        double begin = ta_clock_s();
        for (int i = 0; i < SIGNALS && p->count > 1; ++i)
            TA_TRY(meet(p));
        double each = (ta_clock_s() - begin) / SIGNALS;
        *seconds = batch <= 1 || each < *seconds ? each : *seconds;
    }
    return TA_OK;
}

/* What the next rank wrote just now, read by all at once. */
static ta_status time_reads(shared_probe *p, double *seconds)
{
    char *memory = p->slab->memory;
    size_t next = (size_t)((p->index + 1) % p->count) * READ_BYTES;
    *seconds = 0;
    for (int batch = 0; batch <= BATCHES; ++batch) {
        memset(memory + (size_t)p->index * READ_BYTES, batch, READ_BYTES);
        TA_TRY(ta_group_barrier(p->group, NULL));
        double begin = ta_clock_s();
        memcpy(p->copy, memory + next, READ_BYTES);
        double took = ta_clock_s() - begin;
        TA_TRY(ta_group_barrier(p->group, NULL));
        *seconds = batch <= 1 || took < *seconds ? took : *seconds;
    }
    return TA_OK;
}

/* Nobody shares unless all do. `failed` is this rank's own so far. */
static ta_status all_share(ta_group *group, int failed, int *shares)
{
    int64_t any = failed;
    TA_TRY(ta_group_max_host(group, &any, 1, NULL, NULL));
    *shares = !any;
    return TA_OK;
}

static ta_status measure(shared_probe *p, ta_cluster *cluster)
{
    double signal_s, read_s;
    TA_TRY(time_signals(p, &signal_s));
    TA_TRY(time_reads(p, &read_s));
    TA_TRY(ta_probe_largest(p->group, &signal_s));
    TA_TRY(ta_probe_largest(p->group, &read_s));
    cluster->signal_s = signal_s > 0 ? signal_s : 1e-9;
    cluster->read_bytes_per_s = (double)READ_BYTES / (read_s > 0 ? read_s : 1e-9);
    return TA_OK;
}

ta_status ta_probe_shared(ta_group *group, ta_device *device, ta_cluster *cluster)
{
    shared_probe p = {.group = group};
    struct ta_signals *before = group->signals;
    int able = group->ops->share && !group->device && !device->ops->alloc_host, shares = 0;
    ta_status status;
    TA_TRY_GOTO(able ? find_ranks(cluster, &p) : TA_OK, abort_group);
    TA_TRY_GOTO(all_share(group, !able || group->size == 1, &shares), free_probe);
    if (!shares)
        goto free_probe;
    ta_status opened = ta_signals_open(group, p.ranks, p.count, &p.signals);
    if (opened != TA_ERR_NO_MEMORY) {
        TA_TRY_GOTO(all_share(group, opened != TA_OK, &shares), drop_signals);
        if (!shares)
            goto drop_signals;
        opened = group->ops->share(group, p.ranks, p.count, (size_t)p.count * READ_BYTES, &p.slab);
    }
    if (opened == TA_ERR_NO_MEMORY) {
        ta_group_abort(group, ta_last_error());
        status = opened;
        goto drop_signals;
    }
    TA_TRY_GOTO(all_share(group, opened != TA_OK, &shares), drop_signals);
    if (shares)
        status = measure(&p, cluster);

drop_signals:
    if (p.slab)
        p.slab->release(p.slab);
    if (!shares && group->signals != before)
        ta_signals_drop(group, group->signals);
    goto free_probe;

abort_group:
    ta_group_abort(group, ta_last_error()); /* so that the others do not wait */
free_probe:
    free(p.ranks);
    free(p.copy);
    return status;
}
