/* ta_cluster_probe(): measure the cluster that a group runs on. Which ranks share a node is known
 * by the names of their hosts; latencies and bandwidths are those of short swaps between pairs of
 * ranks, the way exchanges talk, inside nodes and then between them; memory is timed by copying it.
 * Every rank ends with the slowest rank's numbers, so all have the same cluster. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cluster.h"
#include "device.h"
#include "exchange/estimate.h"
#include "group.h"
#include "partial.h"
#include "status.h"

#define SMALL_BYTES 64
#define LARGE_BYTES (256 * 1024)
#define COPY_BYTES (8 * 1024 * 1024)
#define MERGE_DIM 8

/* Several batches of swaps; the fastest batch is the least disturbed one. */
#define BATCHES 5
#define SMALL_SWAPS 20
#define LARGE_SWAPS 3

/* A device that does not tell what memory it has counts as large enough for everything. */
#define UNKNOWN_MEMORY_BYTES 1e18

#define HOST_NAME_BYTES 256

typedef struct probe {
    ta_group *group;
    ta_device *device;
    ta_nodes nodes;
    char *memory; /* what the group moves: two times LARGE_BYTES */
} probe;

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Wait for what was queued, on devices that queue. */
static ta_status settle(ta_device *device)
{
    return device && device->ops->synchronize ? device->ops->synchronize(device, NULL) : TA_OK;
}

/* The rank that this one swaps with: its neighbour on the node, or the same one on the neighbouring
 * node; -1 for none. With `alone`, only the first pair of each node takes part. */
static int partner_of(const probe *p, ta_level_kind level, int alone)
{
    const ta_nodes *n = &p->nodes;
    int rank = p->group->rank, node = n->node_of[rank], local = n->local_of[rank];
    int here = n->first[node + 1] - n->first[node];
    if (level == TA_LEVEL_NODE) {
        int other = local ^ 1;
        return other < here && !(alone && local > 1) ? n->ranks[n->first[node] + other] : -1;
    }
    int other = node ^ 1;
    if (other >= n->count || (alone && local > 0))
        return -1;
    return local < n->first[other + 1] - n->first[other] ? n->ranks[n->first[other] + local] : -1;
}

/* The slowest rank's value, on all ranks. */
static ta_status largest_of_all(ta_group *group, double *value)
{
    ta_status status;
    size_t ranks = (size_t)group->size, *offsets = calloc(ranks + 1, sizeof *offsets);
    double *values = calloc(ranks, sizeof *values);
    if (!offsets || !values) {
        status = ta_fail(TA_ERR_NO_MEMORY, "no memory to probe %d ranks", group->size);
        ta_group_abort(group, ta_last_error());
        goto free_values;
    }
    for (size_t rank = 0; rank <= ranks; ++rank)
        offsets[rank] = rank * sizeof *values;
    values[group->rank] = *value;
    TA_TRY_GOTO(ta_group_all_gather_host(group, values, offsets), free_values);
    for (size_t rank = 0; rank < ranks; ++rank)
        *value = values[rank] > *value ? values[rank] : *value;

free_values:
    free(offsets);
    free(values);
    return status;
}

/* Seconds of one swap of so many bytes, the slowest pair's; 0 if there is no pair. */
static ta_status time_swaps(probe *p, ta_level_kind level, int alone, size_t bytes, double *seconds)
{
    int partner = partner_of(p, level, alone),
        swaps = bytes > SMALL_BYTES ? LARGE_SWAPS : SMALL_SWAPS;
    double best = 0;
    for (int batch = 0; batch < BATCHES; ++batch) {
        TA_TRY(ta_group_barrier(p->group, NULL));
        TA_TRY(settle(p->group->device));
        double begin = now_s();
        for (int i = 0; i < swaps && partner >= 0; ++i)
            TA_TRY(ta_group_exchange(p->group, p->memory, bytes, partner, p->memory + LARGE_BYTES,
                                     bytes, partner, NULL));
        TA_TRY(settle(p->group->device));
        double each = (now_s() - begin) / swaps;
        if (partner >= 0 && (best == 0 || each < best))
            best = each;
    }
    *seconds = best;
    return largest_of_all(p->group, seconds);
}

/* Pairs that swap at the same time out of one node, as the cost model counts their bytes. */
static int bytes_at_once(const probe *p, ta_level_kind level)
{
    return level == TA_LEVEL_NODE ? p->nodes.most & ~1 : p->nodes.most;
}

/* Fill in a level; leaves it as it is if no two ranks are joined by it. */
static ta_status probe_level(probe *p, ta_level_kind kind, ta_level *level)
{
    double small, alone, together;
    TA_TRY(time_swaps(p, kind, 0, SMALL_BYTES, &small)); /* the first messages connect the ranks */
    TA_TRY(time_swaps(p, kind, 0, SMALL_BYTES, &small));
    TA_TRY(time_swaps(p, kind, 1, LARGE_BYTES, &alone));
    TA_TRY(time_swaps(p, kind, 0, LARGE_BYTES, &together));
    if (small <= 0)
        return TA_OK;
    const double least_s = 1e-9; /* where noise made the large message the faster one */
    double alone_s = alone > small + least_s ? alone - small : least_s;
    double together_s = together > small + least_s ? together - small : least_s;
    level->latency_s = small;
    level->rank_bytes_per_s = LARGE_BYTES / alone_s;
    level->total_bytes_per_s = (double)bytes_at_once(p, kind) * LARGE_BYTES / together_s;
    if (level->total_bytes_per_s < level->rank_bytes_per_s)
        level->total_bytes_per_s = level->rank_bytes_per_s;
    return TA_OK;
}

/* A copy reads and writes; the smallest merge is what any work takes. All ranks at once. */
static ta_status probe_memory(probe *p, char *memory, ta_cluster *cluster)
{
    double copy = 0, merge = 0;
    const ta_device_ops *ops = p->device->ops;
    TA_TRY(ta_group_barrier(p->group, NULL));
    for (int batch = 0; batch <= BATCHES; ++batch) { /* the first one warms up */
        double begin = now_s();
        TA_TRY(ops->copy(p->device, memory, memory + COPY_BYTES, COPY_BYTES, NULL));
        TA_TRY(settle(p->device));
        double copied = now_s();
        for (int i = 0; i < SMALL_SWAPS; ++i)
            TA_TRY(ops->merge(p->device, (float *)memory, (float *)(memory + COPY_BYTES), 1,
                              MERGE_DIM, NULL));
        TA_TRY(settle(p->device));
        double merged = (now_s() - copied) / SMALL_SWAPS;
        copy = batch == 0 || copied - begin < copy ? copied - begin : copy;
        merge = batch == 0 || merged < merge ? merged : merge;
    }
    TA_TRY(largest_of_all(p->group, &copy));
    TA_TRY(largest_of_all(p->group, &merge));
    cluster->memory_bytes_per_s = 2.0 * COPY_BYTES / (copy > 0 ? copy : 1e-9);
    cluster->kernel_s = merge;
    return TA_OK;
}

/* Operations per second of attention, of the slowest rank, with all ranks at work. */
static ta_status probe_rates(probe *p, ta_cluster *cluster)
{
    for (int i = 0; i < 2; ++i) {
        double flop_s = 0;
        TA_TRY(ta_group_barrier(p->group, NULL));
        ta_status status = ta_cluster_time_attention(p->device, i ? TA_BF16 : TA_F32, &flop_s);
        if (status != TA_OK)
            ta_group_abort(p->group, ta_last_error());
        TA_TRY(status);
        TA_TRY(largest_of_all(p->group, &flop_s));
        cluster->flops_per_s[i] = flop_s > 0 ? 1 / flop_s : 0;
    }
    return TA_OK;
}

static ta_status probe_device(probe *p, ta_cluster *cluster)
{
    void *memory;
    long pages = sysconf(_SC_PHYS_PAGES), page_bytes = sysconf(_SC_PAGESIZE);
    char *zeros = calloc(1, 4096);
    ta_status status = zeros ? TA_OK : ta_fail(TA_ERR_NO_MEMORY, "no memory to probe a device");
    if (status == TA_OK)
        status = p->device->ops->alloc(p->device, 2 * (size_t)COPY_BYTES, &memory);
    if (status != TA_OK) {
        ta_group_abort(p->group, ta_last_error());
        free(zeros);
        return status;
    }
    TA_TRY_GOTO(p->device->ops->copy(p->device, memory, zeros, 4096, NULL), free_memory);
    TA_TRY_GOTO(p->device->ops->copy(p->device, (char *)memory + COPY_BYTES, zeros, 4096, NULL),
                free_memory);
    TA_TRY_GOTO(probe_memory(p, memory, cluster), free_memory);
    cluster->memory_bytes = UNKNOWN_MEMORY_BYTES;
    if (!p->device->ops->alloc_host && pages > 0 && page_bytes > 0)
        cluster->memory_bytes = (double)pages * (double)page_bytes;

free_memory:
    p->device->ops->free(p->device, memory);
    free(zeros);
    return status;
}

/* Give ranks with the same host name the same number, in the order of their lowest ranks. */
static ta_status find_nodes(ta_group *group, ta_cluster *cluster)
{
    ta_status status;
    size_t ranks = (size_t)group->size, *offsets = calloc(ranks + 1, sizeof *offsets);
    char *names = calloc(ranks, HOST_NAME_BYTES);
    cluster->node_of = calloc(ranks, sizeof *cluster->node_of);
    if (!offsets || !names || !cluster->node_of) {
        status = ta_fail(TA_ERR_NO_MEMORY, "no memory to probe %d ranks", group->size);
        ta_group_abort(group, ta_last_error());
        goto free_names;
    }
    for (size_t rank = 0; rank <= ranks; ++rank)
        offsets[rank] = rank * HOST_NAME_BYTES;
    gethostname(names + (size_t)group->rank * HOST_NAME_BYTES, HOST_NAME_BYTES - 1);
    TA_TRY_GOTO(ta_group_all_gather_host(group, names, offsets), free_names);
    cluster->ranks = group->size;
    for (size_t rank = 0; rank < ranks; ++rank) {
        size_t first = 0;
        while (strcmp(names + first * HOST_NAME_BYTES, names + rank * HOST_NAME_BYTES) != 0)
            ++first;
        cluster->node_of[rank] = first == rank ? cluster->nodes++ : cluster->node_of[first];
    }

free_names:
    free(offsets);
    free(names);
    return status;
}

/* What nothing was measured for is as fast as what is nearest to it. */
static void fill_levels(ta_cluster *cluster)
{
    ta_level *levels = cluster->levels;
    const ta_level none = {1e-6, 1e9, 1e9};
    if (levels[TA_LEVEL_NODE].latency_s <= 0)
        levels[TA_LEVEL_NODE] =
            levels[TA_LEVEL_NETWORK].latency_s > 0 ? levels[TA_LEVEL_NETWORK] : none;
    if (levels[TA_LEVEL_NETWORK].latency_s <= 0)
        levels[TA_LEVEL_NETWORK] = levels[TA_LEVEL_NODE];
    levels[TA_LEVEL_RACK] = levels[TA_LEVEL_NETWORK];
}

static ta_status probe_links(probe *p, ta_cluster *cluster)
{
    ta_status status;
    void *memory = NULL;
    ta_device *device = p->group->device;
    size_t bytes = 2 * (size_t)LARGE_BYTES;
    if (device)
        status = device->ops->alloc(device, bytes, &memory);
    else
        status = (memory = calloc(1, bytes)) ? TA_OK
                                             : ta_fail(TA_ERR_NO_MEMORY, "no memory to probe with");
    if (status != TA_OK) {
        ta_group_abort(p->group, ta_last_error());
        return status;
    }
    p->memory = memory;
    TA_TRY_GOTO(probe_level(p, TA_LEVEL_NODE, &cluster->levels[TA_LEVEL_NODE]), free_memory);
    TA_TRY_GOTO(probe_level(p, TA_LEVEL_NETWORK, &cluster->levels[TA_LEVEL_NETWORK]), free_memory);

free_memory:
    if (device)
        device->ops->free(device, memory);
    else
        free(memory);
    return status;
}

ta_status ta_cluster_probe(ta_group *group, ta_device *device, ta_cluster **cluster)
{
    ta_status status;
    probe p = {.group = group, .device = device};
    if (!group)
        return ta_fail(TA_ERR_INVALID, "group is NULL: must be the group to measure");
    if (!device || !cluster) {
        status = ta_fail(TA_ERR_INVALID, "%s is NULL: must point to %s",
                         device ? "cluster" : "device", device ? "the result" : "a device");
        ta_group_abort(group, ta_last_error());
        return status;
    }
    ta_cluster *made = calloc(1, sizeof *made);
    if (!made) {
        status = ta_fail(TA_ERR_NO_MEMORY, "no memory for a cluster");
        ta_group_abort(group, ta_last_error());
        return status;
    }
    snprintf(made->name, sizeof made->name, "probed");
    snprintf(made->device, sizeof made->device, "%s", device->name);
    made->nics_per_node = 1;
    TA_TRY_GOTO(find_nodes(group, made), destroy_made);
    TA_TRY_GOTO(ta_nodes_make(made->node_of, made->ranks, &p.nodes), destroy_made);
    TA_TRY_GOTO(probe_links(&p, made), free_nodes);
    TA_TRY_GOTO(probe_device(&p, made), free_nodes);
    TA_TRY_GOTO(probe_rates(&p, made), free_nodes);
    fill_levels(made);
    *cluster = made;

free_nodes:
    ta_nodes_free(&p.nodes);
destroy_made:
    if (status != TA_OK)
        ta_cluster_destroy(made);
    return status;
}
