/* The first half of ta_cluster_probe(): where the ranks are. Ranks on hosts of one name share a
 * node; inside it the module "hwloc", if it is there, knows the package and NUMA node of a
 * rank's GPU or of the CPUs that the rank is bound to. Every rank looks for itself and tells the
 * others. probe.c has the other half, how fast they are. */
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

/* Give ranks with the same host name the same number, in the order of their lowest ranks. */
static void number_nodes(const whereabouts *all, ta_cluster *cluster)
{
    for (int rank = 0; rank < cluster->ranks; ++rank) {
        int first = 0;
        while (strcmp(all[first].host, all[rank].host) != 0)
            ++first;
        cluster->node_of[rank] = first == rank ? cluster->nodes++ : cluster->node_of[first];
    }
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
    gethostname(own->host, sizeof own->host - 1);
    find_own_place(device, &own->place);
    TA_TRY_GOTO(ta_group_all_gather_host(group, all, offsets), free_all);
    cluster->ranks = group->size;
    number_nodes(all, cluster);
    TA_TRY_GOTO(take_places(all, cluster), abort_group);
    goto free_all;

abort_group:
    ta_group_abort(group, ta_last_error());
free_all:
    free(offsets);
    free(all);
    return status;
}
