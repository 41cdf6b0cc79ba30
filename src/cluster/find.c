/* The first half of ta_cluster_probe(): where the ranks are. Ranks on hosts of one name share a
 * node, unless their group knows better; inside it the module "hwloc", if it is there, knows the
 * package and NUMA node of a rank's GPU or of the CPUs that the rank is bound to. Every rank looks
 * for itself and tells the others. probe.c has the other half, how fast they are. */
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/status.h"
#include "cluster.h"
#include "device/modules.h"
#include "find.h"

typedef struct whereabouts {
    char host[256];
    ta_place place;
} whereabouts;

static void find_own_place(ta_device *device, ta_place *place)
{
    cpu_set_t set;
    int cpus[CPU_SETSIZE], count = 0;
    *place = (ta_place){.package = -1, .numa = -1};
    if (device->ops->bus_id && device->ops->bus_id(device, place->pci, sizeof place->pci) != TA_OK)
        place->pci[0] = '\0';
    CPU_ZERO(&set);
    if (sched_getaffinity(0, sizeof set, &set) != 0)
        CPU_ZERO(&set);
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu)
        if (CPU_ISSET(cpu, &set))
            cpus[count++] = cpu;
    ta_place_question question = {.pci = place->pci, .cpus = cpus, .cpu_count = count};
    ta_place found = *place;
    if (ta_modules_find_place(&question, &found) == TA_OK) /* without it, places are not known */
        *place = found;
}

/* By host name, then by rank: ranks of one array come in its order. */
static int compare_hosts(const void *left, const void *right)
{
    const whereabouts *a = *(whereabouts *const *)left, *b = *(whereabouts *const *)right;
    int order = strcmp(a->host, b->host);
    return order ? order : a < b ? -1 : a > b;
}

/* Give ranks with the same host name the same number, in the order of their lowest ranks. */
static ta_status number_nodes(const whereabouts *all, ta_cluster *cluster)
{
    int *node_of = cluster->node_of;
    const whereabouts **sorted = calloc((size_t)cluster->ranks, sizeof *sorted);
    if (!sorted)
        return ta_fail(TA_ERR_NO_MEMORY, "no memory for the nodes of %d ranks", cluster->ranks);
    for (int rank = 0; rank < cluster->ranks; ++rank)
        sorted[rank] = &all[rank];
    qsort(sorted, (size_t)cluster->ranks, sizeof *sorted, compare_hosts);
    for (int i = 0; i < cluster->ranks; ++i) { /* at first the lowest rank of its host */
        int same = i > 0 && strcmp(sorted[i]->host, sorted[i - 1]->host) == 0;
        node_of[sorted[i] - all] = same ? node_of[sorted[i - 1] - all] : (int)(sorted[i] - all);
    }
    for (int rank = 0; rank < cluster->ranks; ++rank)
        node_of[rank] = node_of[rank] == rank ? cluster->nodes++ : node_of[node_of[rank]];
    free(sorted);
    return TA_OK;
}

static ta_status take_places(const whereabouts *all, ta_cluster *cluster)
{
    int known = 0;
    for (int rank = 0; rank < cluster->ranks; ++rank)
        known |= all[rank].place.package >= 0 || all[rank].place.numa >= 0 || *all[rank].place.pci;
    if (!known)
        return TA_OK;
    TA_TRY(ta_cluster_add_places(cluster));
    for (int rank = 0; rank < cluster->ranks; ++rank)
        cluster->places[rank] = all[rank].place;
    return ta_cluster_number_packages(cluster);
}

ta_status ta_cluster_find(ta_group *group, ta_device *device, ta_cluster *cluster)
{
    ta_status status;
    size_t ranks = (size_t)group->size, *offsets = calloc(ranks + 1, sizeof *offsets);
    whereabouts *all = calloc(ranks, sizeof *all);
    cluster->node_of = calloc(ranks, sizeof *cluster->node_of);
    if (!offsets || !all || !cluster->node_of) {
        status = ta_fail(TA_ERR_NO_MEMORY, "no memory to probe %d ranks", group->size);
        ta_group_abort(group, ta_last_error());
        goto free_all;
    }
    for (size_t rank = 0; rank <= ranks; ++rank)
        offsets[rank] = rank * sizeof *all;
    whereabouts *own = &all[group->rank];
    if (group->node)
        snprintf(own->host, sizeof own->host, "node %d", group->node);
    else
        gethostname(own->host, sizeof own->host - 1);
    find_own_place(device, &own->place);
    TA_TRY_GOTO(ta_group_all_gather_host(group, all, offsets), free_all);
    cluster->ranks = group->size;
    TA_TRY_GOTO(number_nodes(all, cluster), abort_group);
    TA_TRY_GOTO(take_places(all, cluster), abort_group);
    goto free_all;

abort_group:
    ta_group_abort(group, ta_last_error());
free_all:
    free(offsets);
    free(all);
    return status;
}
