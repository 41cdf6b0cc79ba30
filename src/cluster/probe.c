/* ta_cluster_probe(): measure the cluster that a group runs on. find.c says where the
 * ranks are; latencies and bandwidths are those of short swaps between pairs of ranks
 * (pairs.c), as exchanges send, inside packages and nodes and then between them;
 * memory that ranks share is probe_shared.c's; memory is timed by copying it. Every rank ends with
 * the slowest rank's numbers, so all have the same cluster. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/partial.h"
#include "base/status.h"
#include "cluster.h"
#include "device/device.h"
#include "find.h"
#include "group/group.h"
#include "pairs.h"
#include "probe.h"

#define SMALL_BYTES 64
#define LARGE_BYTES (256 * 1024)
#define LARGEST_BYTES (768 * 1024)
#define COPY_BYTES (8 * 1024 * 1024)
#define MERGE_DIM 8

/* Several batches of swaps; the fastest batch is the least disturbed one. */
#define BATCHES 5
#define SMALL_SWAPS 20
#define MIDDLE_SWAPS 4
#define LARGE_SWAPS 2

/* A device that does not tell what memory it has counts as large enough for everything. */
#define UNKNOWN_MEMORY_BYTES 1e18

typedef struct probe {
    ta_group *group;
    ta_device *device;
    const ta_cluster *cluster; /* where the ranks are */
    char *memory;              /* what the group moves: two times LARGEST_BYTES */
} probe;

/* Wait for what was queued, on devices that queue. */
static ta_status settle(ta_device *device)
{
    return device && device->ops->synchronize ? device->ops->synchronize(device, NULL) : TA_OK;
}

ta_status ta_probe_largest(ta_group *group, double *value)
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

static int swaps_of(size_t bytes)
{
    if (bytes == SMALL_BYTES)
        return SMALL_SWAPS;
    return bytes < LARGE_BYTES ? MIDDLE_SWAPS : LARGE_SWAPS;
}

/* Seconds of one swap of so many bytes, the slowest pair's; 0 if there is no pair. */
static ta_status time_swaps(probe *p, ta_level_kind level, int alone, size_t bytes, double *seconds)
{
    int partner = ta_pairs_partner(p->cluster, p->group->rank, level, alone);
    int swaps = swaps_of(bytes);
    double best = 0;
    for (int batch = 0; batch < BATCHES; ++batch) {
        TA_TRY(ta_group_barrier(p->group, NULL));
        TA_TRY(settle(p->group->device));
        double begin = ta_clock_s();
        for (int i = 0; i < swaps && partner >= 0; ++i)
            TA_TRY(ta_group_exchange(p->group, p->memory, bytes, partner, p->memory + LARGEST_BYTES,
                                     bytes, partner, NULL));
        TA_TRY(settle(p->group->device));
        double each = (ta_clock_s() - begin) / swaps;
        if (partner >= 0 && (best == 0 || each < best))
            best = each;
    }
    *seconds = best;
    return ta_probe_largest(p->group, seconds);
}

/* Seconds for each byte beyond LARGE_BYTES. What a message takes beside its bytes cancels out. */
static ta_status time_bytes(probe *p, ta_level_kind kind, int alone, double *large, double *each)
{
    double largest;
    TA_TRY(time_swaps(p, kind, alone, LARGE_BYTES, large));
    TA_TRY(time_swaps(p, kind, alone, LARGEST_BYTES, &largest));
    *each = (largest - *large) / (LARGEST_BYTES - LARGE_BYTES);
    if (largest < 1.5 * *large) /* three times the bytes: noise, or bytes hardly count */
        *each = largest / LARGEST_BYTES;
    return TA_OK;
}

/* Libraries announce a large message and wait for the answer before they send it: what a message of
 * LARGE_BYTES takes beyond its latency and bytes, and up to which size none does. A surplus of less
 * than half a latency is no message there and back, but noise. */
static ta_status probe_handshake(probe *p, ta_level_kind kind, double large, double each,
                                 ta_level *level)
{
    static const size_t sizes[] = {2 << 10, 8 << 10, 32 << 10, 60 << 10, 128 << 10};
    double surplus = large - level->latency_s - each * LARGE_BYTES;
    if (surplus < level->latency_s / 2)
        return TA_OK;
    level->handshake_s = surplus;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; ++i) {
        double seconds;
        TA_TRY(time_swaps(p, kind, 0, sizes[i], &seconds));
        if (seconds > level->latency_s + each * (double)sizes[i] + surplus / 2)
            return TA_OK;
        level->eager_bytes = (double)sizes[i];
    }
    return TA_OK;
}

/* Fill in a level; leaves it as it is if no two ranks are joined by it. */
static ta_status probe_level(probe *p, ta_level_kind kind, ta_level *level)
{
    double small, large, alone_each, together_each;
    TA_TRY(time_swaps(p, kind, 0, SMALL_BYTES, &small)); /* the first messages connect the ranks */
    if (small <= 0)
        return TA_OK;
    TA_TRY(time_swaps(p, kind, 0, SMALL_BYTES, &small));
    TA_TRY(time_bytes(p, kind, 1, &large, &alone_each));
    TA_TRY(time_bytes(p, kind, 0, &large, &together_each));
    level->latency_s = small;
    level->rank_bytes_per_s = 1 / alone_each;
    level->total_bytes_per_s = ta_pairs_senders(p->cluster, kind) / together_each;
    if (level->total_bytes_per_s < level->rank_bytes_per_s)
        level->total_bytes_per_s = level->rank_bytes_per_s;
    return probe_handshake(p, kind, large, together_each, level);
}

/* A copy reads and writes; the smallest merge is what any work takes. All ranks at once. */
static ta_status probe_memory(probe *p, char *memory, ta_cluster *cluster)
{
    double copy = 0, merge = 0;
    const ta_device_ops *ops = p->device->ops;
    TA_TRY(ta_group_barrier(p->group, NULL));
    for (int batch = 0; batch <= BATCHES; ++batch) { /* the first one warms up */
        double begin = ta_clock_s();
        TA_TRY(ops->copy(p->device, memory, memory + COPY_BYTES, COPY_BYTES, NULL));
        TA_TRY(settle(p->device));
        double copied = ta_clock_s();
        for (int i = 0; i < SMALL_SWAPS; ++i)
            TA_TRY(ta_device_merge(p->device, (float *)memory, (float *)(memory + COPY_BYTES), 1,
                                   MERGE_DIM, NULL));
        TA_TRY(settle(p->device));
        double merged = (ta_clock_s() - copied) / SMALL_SWAPS;
        copy = batch == 0 || copied - begin < copy ? copied - begin : copy;
        merge = batch == 0 || merged < merge ? merged : merge;
    }
    TA_TRY(ta_probe_largest(p->group, &copy));
    TA_TRY(ta_probe_largest(p->group, &merge));
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
        TA_TRY(ta_probe_largest(p->group, &flop_s));
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
    if (status != TA_OK) /* the others wait for this rank's numbers */
        ta_group_abort(p->group, ta_last_error());
    p->device->ops->free(p->device, memory);
    free(zeros);
    return status;
}

/* What nothing was measured for is as fast as what is nearest to it. */
static void fill_levels(ta_cluster *cluster)
{
    ta_level *levels = cluster->levels;
    const ta_level none = {.latency_s = 1e-6, .rank_bytes_per_s = 1e9, .total_bytes_per_s = 1e9};
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
    size_t bytes = 2 * (size_t)LARGEST_BYTES;
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
    static const ta_level_kind kinds[] = {TA_LEVEL_PACKAGE, TA_LEVEL_NODE, TA_LEVEL_NETWORK};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; ++i)
        TA_TRY_GOTO(probe_level(p, kinds[i], &cluster->levels[kinds[i]]), free_memory);

free_memory:
    if (status != TA_OK)
        ta_group_abort(p->group, ta_last_error());
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
    p.cluster = made;
    TA_TRY_GOTO(ta_cluster_find(group, device, made), destroy_made);
    TA_TRY_GOTO(probe_links(&p, made), destroy_made);
    TA_TRY_GOTO(ta_probe_shared(group, device, made), destroy_made);
    TA_TRY_GOTO(probe_device(&p, made), destroy_made);
    TA_TRY_GOTO(probe_rates(&p, made), destroy_made);
    fill_levels(made);
    *cluster = made;

destroy_made:
    if (status != TA_OK)
        ta_cluster_destroy(made);
    return status;
}
