/* Adding up a cost: messages into rounds, rounds into phases. See cost.h for the model. */
#include "cost.h"

#include <stdlib.h>
#include <string.h>

#include "base/status.h"

ta_status ta_cost_begin(ta_cost *cost, const ta_cluster *cluster, int ranks)
{
    memset(cost, 0, sizeof *cost);
    cost->cluster = cluster;
    cost->ranks = ranks;
    cost->times = 1;
    cost->traffic = calloc((size_t)ranks, sizeof *cost->traffic);
    if (cluster)
        cost->units = cluster->nodes > cluster->packages ? cluster->nodes : cluster->packages;
    if (cluster)
        cost->unit_bytes =
            calloc((size_t)TA_LEVEL_COUNT * 2 * (size_t)cost->units, sizeof *cost->unit_bytes);
    if (cost->traffic && (!cluster || cost->unit_bytes))
        return TA_OK;
    ta_cost_end(cost);
    return ta_fail(TA_ERR_NO_MEMORY, "no memory to estimate the cost on %d ranks", ranks);
}

void ta_cost_end(ta_cost *cost)
{
    free(cost->traffic);
    free(cost->unit_bytes);
    cost->traffic = NULL;
    cost->unit_bytes = NULL;
}

void ta_cost_busiest(const ta_cost *cost, ta_traffic *most)
{
    for (int rank = 0; rank < cost->ranks; ++rank) {
        const ta_traffic *t = &cost->traffic[rank];
        if (t->messages_sent > most->messages_sent)
            most->messages_sent = t->messages_sent;
        if (t->messages_received > most->messages_received)
            most->messages_received = t->messages_received;
        if (t->bytes_sent > most->bytes_sent)
            most->bytes_sent = t->bytes_sent;
        if (t->bytes_received > most->bytes_received)
            most->bytes_received = t->bytes_received;
    }
}

double ta_cost_memory_s(const ta_cluster *cluster, int kernels, double bytes)
{
    return cluster ? kernels * cluster->kernel_s + bytes / cluster->memory_bytes_per_s : 0;
}

/* What goes into or out of one unit: the node, or for links between racks the rack, for those
 * inside a package the package. */
static double *unit_load(ta_cost *cost, ta_level_kind level, int into, int rank)
{
    int unit = cost->cluster->node_of[rank];
    if (level == TA_LEVEL_RACK)
        unit = ta_cluster_rack(cost->cluster, unit);
    if (level == TA_LEVEL_PACKAGE)
        unit = cost->cluster->package_of[rank];
    return &cost->unit_bytes[((int)level * 2 + into) * cost->units + unit];
}

void ta_cost_message(ta_cost *cost, int from, int to, uint64_t bytes)
{
    uint64_t times = (uint64_t)cost->times;
    cost->traffic[from].messages_sent += times;
    cost->traffic[from].bytes_sent += times * bytes;
    cost->traffic[to].messages_received += times;
    cost->traffic[to].bytes_received += times * bytes;
    if (bytes > cost->round_bytes)
        cost->round_bytes = bytes;
    if (!cost->cluster)
        return;
    ta_level_kind kind = ta_cluster_level(cost->cluster, from, to);
    const ta_level *level = &cost->cluster->levels[kind];
    int announced = level->handshake_s > 0 && (double)bytes > level->eager_bytes;
    double begin = level->latency_s + (announced ? level->handshake_s : 0);
    double seconds = begin + (double)bytes / level->rank_bytes_per_s;
    if (seconds > cost->round_s)
        cost->round_s = seconds;
    *unit_load(cost, kind, 0, from) += (double)bytes;
    *unit_load(cost, kind, 1, to) += (double)bytes;
    cost->levels_used |= 1u << kind;
    if (begin > cost->level_begin_s[kind])
        cost->level_begin_s[kind] = begin;
}

void ta_cost_work(ta_cost *cost, int kernels, double bytes)
{
    double seconds = ta_cost_memory_s(cost->cluster, kernels, bytes);
    if (seconds > cost->local_s)
        cost->local_s = seconds;
}

/* The slowest of the shared links; clears their loads. */
static double shared_links_s(ta_cost *cost)
{
    double slowest = 0;
    for (int kind = 0; kind < TA_LEVEL_COUNT; ++kind) {
        if (!(cost->levels_used & 1u << kind))
            continue;
        const ta_level *level = &cost->cluster->levels[kind];
        double *loads = &cost->unit_bytes[kind * 2 * cost->units], most = 0;
        for (int i = 0; i < 2 * cost->units; ++i) {
            most = loads[i] > most ? loads[i] : most;
            loads[i] = 0;
        }
        double seconds = cost->level_begin_s[kind] + most / level->total_bytes_per_s;
        cost->level_begin_s[kind] = 0;
        slowest = seconds > slowest ? seconds : slowest;
    }
    cost->levels_used = 0;
    return slowest;
}

static ta_cost_phase *find_phase(ta_cost *cost, const char *name)
{
    for (int i = 0; i < cost->phase_count; ++i)
        if (strcmp(cost->phases[i].name, name) == 0)
            return &cost->phases[i];
    if (cost->phase_count == TA_COST_PHASES)
        return &cost->phases[TA_COST_PHASES - 1];
    ta_cost_phase *phase = &cost->phases[cost->phase_count++];
    *phase = (ta_cost_phase){.name = name};
    return phase;
}

void ta_cost_local(ta_cost *cost, const char *phase, double seconds)
{
    find_phase(cost, phase)->seconds += seconds;
    cost->seconds += seconds;
}

void ta_cost_signals(ta_cost *cost, const char *phase, int signals, double bytes, double work_s)
{
    const ta_cluster *c = cost->cluster;
    double read_s = c && c->read_bytes_per_s > 0 ? bytes / c->read_bytes_per_s : 0;
    ta_cost_local(cost, phase, c ? signals * c->signal_s + read_s + work_s : 0);
}

void ta_cost_repeat(ta_cost *cost, int64_t times)
{
    cost->times = times;
}

void ta_cost_overlap(ta_cost *cost, double seconds)
{
    if (seconds > cost->round_s)
        cost->round_s = seconds;
}

void ta_cost_round(ta_cost *cost, const char *name)
{
    double shared = cost->cluster ? shared_links_s(cost) : 0;
    double seconds = (shared > cost->round_s ? shared : cost->round_s) + cost->local_s;
    ta_cost_phase *phase = find_phase(cost, name);
    phase->rounds += cost->times;
    phase->rank_bytes += (uint64_t)cost->times * cost->round_bytes;
    phase->seconds += (double)cost->times * seconds;
    cost->seconds += (double)cost->times * seconds;
    cost->round_s = cost->local_s = 0;
    cost->round_bytes = 0;
    cost->times = 1;
}
