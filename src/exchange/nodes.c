/* Ranks sorted by node, and nodes by rack, for the exchanges by levels and their estimates. The
 * planner makes it from a cluster, or on other ranks than the first from what that one sent. */
#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "kinds.h"

/* Count the ranks of each node, then give each its place behind those before it. */
static void sort_by_node(int ranks, ta_nodes *n)
{
    for (int rank = 0; rank < ranks; ++rank)
        n->local_of[rank] = n->first[n->node_of[rank] + 1]++;
    n->lanes = n->most = n->first[1];
    for (int node = 0; node < n->count; ++node) {
        int here = n->first[node + 1];
        n->lanes = here < n->lanes ? here : n->lanes;
        n->most = here > n->most ? here : n->most;
        n->first[node + 1] += n->first[node];
    }
    for (int rank = 0; rank < ranks; ++rank)
        n->ranks[n->first[n->node_of[rank]] + n->local_of[rank]] = rank;
}

/* Numbers without gaps, in the order of each node's lowest rank: a group may have ranks on some of
 * a cluster's nodes only. */
static void number_nodes(const int *node_of, int ranks, int largest, int *seen, ta_nodes *n)
{
    memset(seen, 0xff, (size_t)(largest + 1) * sizeof *seen);
    for (int rank = 0; rank < ranks; ++rank) {
        int node = node_of ? node_of[rank] : 0;
        if (seen[node] < 0)
            seen[node] = n->count++;
        n->node_of[rank] = seen[node];
    }
}

static ta_status no_memory(int ranks)
{
    return ta_fail(TA_ERR_NO_MEMORY, "no memory for the nodes of %d ranks", ranks);
}

ta_status ta_nodes_make(const int *node_of, int ranks, ta_nodes *nodes)
{
    int largest = 0;
    for (int rank = 0; node_of && rank < ranks; ++rank)
        largest = node_of[rank] > largest ? node_of[rank] : largest;
    ta_nodes n = {0};
    size_t count = (size_t)ranks;
    int *seen = malloc(((size_t)largest + 1) * sizeof *seen);
    n.node_of = calloc(count, sizeof *n.node_of);
    n.local_of = calloc(count, sizeof *n.local_of);
    n.ranks = calloc(count, sizeof *n.ranks);
    n.first = calloc(count + 1, sizeof *n.first);
    if (!seen || !n.node_of || !n.local_of || !n.ranks || !n.first) {
        free(seen);
        ta_nodes_free(&n);
        return no_memory(ranks);
    }
    number_nodes(node_of, ranks, largest, seen, &n);
    sort_by_node(ranks, &n);
    free(seen);
    *nodes = n;
    return TA_OK;
}

void ta_nodes_free(ta_nodes *nodes)
{
    if (nodes->above)
        ta_nodes_free(nodes->above);
    free(nodes->above);
    free(nodes->node_of);
    free(nodes->local_of);
    free(nodes->ranks);
    free(nodes->first);
    *nodes = (ta_nodes){0};
}

/* ---- Levels ---- */

/* The unit of a level that a rank is in. */
static int unit_at(const ta_nodes *nodes, int level, int rank)
{
    int unit = nodes->node_of[rank];
    for (const ta_nodes *n = nodes->above; n && level-- > 0; n = n->above)
        unit = n->node_of[unit];
    return unit;
}

int ta_nodes_levels(const ta_nodes *nodes)
{
    int levels = 1;
    while ((nodes = nodes->above))
        ++levels;
    return levels;
}

void ta_nodes_write(const ta_nodes *nodes, int level, int ranks, int *unit_of)
{
    for (int rank = 0; rank < ranks; ++rank)
        unit_of[rank] = unit_at(nodes, level, rank);
}

const ta_nodes *ta_nodes_find(const ta_nodes *nodes, ta_unit unit)
{
    while (nodes && nodes->unit != unit)
        nodes = nodes->above;
    return nodes;
}

ta_status ta_nodes_add(const int *unit_of, int ranks, ta_unit unit, ta_nodes *nodes)
{
    int last_level = ta_nodes_levels(nodes) - 1;
    ta_nodes *last = nodes;
    while (last->above)
        last = last->above;
    int *larger = calloc((size_t)last->count, sizeof *larger);
    ta_nodes *above = malloc(sizeof *above);
    ta_status status = larger && above ? TA_OK : no_memory(ranks);
    for (int rank = 0; status == TA_OK && rank < ranks; ++rank)
        larger[unit_at(nodes, last_level, rank)] = unit_of[rank];
    if (status == TA_OK)
        status = ta_nodes_make(larger, last->count, above);
    free(larger);
    if (status != TA_OK) {
        free(above);
        return status;
    }
    above->unit = unit;
    last->above = above;
    return TA_OK;
}

/* ---- Of a cluster ---- */

/* The racks of the ranks, if there are several. */
static ta_status add_racks(const ta_cluster *cluster, int ranks, ta_nodes *nodes)
{
    int *rack_of = calloc((size_t)ranks, sizeof *rack_of), racks = 0;
    if (!rack_of)
        return no_memory(ranks);
    for (int rank = 0; rank < ranks; ++rank) {
        rack_of[rank] = ta_cluster_rack(cluster, cluster->node_of[rank]);
        racks |= rack_of[rank] != rack_of[0];
    }
    ta_status status = racks ? ta_nodes_add(rack_of, ranks, TA_UNIT_RACK, nodes) : TA_OK;
    free(rack_of);
    return status;
}

/* Packages and the nodes that they are on; nothing where one of the two is no level. */
static ta_status find_packages(const ta_cluster *cluster, int ranks, ta_nodes *nodes)
{
    *nodes = (ta_nodes){0};
    if (!ta_cluster_has_packages(cluster))
        return TA_OK;
    for (int rank = 0; rank < ranks; ++rank)
        if (cluster->package_of[rank] < 0)
            return TA_OK;
    TA_TRY(ta_nodes_make(cluster->package_of, ranks, nodes));
    nodes->unit = TA_UNIT_PACKAGE;
    ta_status status = ta_nodes_add(cluster->node_of, ranks, TA_UNIT_NODE, nodes);
    if (status != TA_OK || nodes->most == 1 || nodes->above->most == 1)
        ta_nodes_free(nodes);
    return status;
}

static ta_status find_levels(const ta_cluster *cluster, int ranks, ta_nodes *nodes)
{
    TA_TRY(find_packages(cluster, ranks, nodes));
    if (!nodes->count)
        TA_TRY(ta_nodes_make(cluster->node_of, ranks, nodes));
    ta_status status = add_racks(cluster, ranks, nodes);
    if (status != TA_OK)
        ta_nodes_free(nodes);
    return status;
}

ta_status ta_exchange_nodes(ta_exchange kind, const ta_cluster *cluster, int ranks, ta_nodes *nodes)
{
    const ta_exchange_entry *entry = &ta_exchange_kinds[kind];
    if (cluster && entry->by_levels)
        return find_levels(cluster, ranks, nodes);
    /* Packages of one node share its memory. */
    const int *units = cluster && entry->shares ? cluster->node_of : ta_cluster_units(cluster);
    TA_TRY(ta_nodes_make(units, ranks, nodes));
    if (cluster && units != cluster->node_of)
        nodes->unit = TA_UNIT_PACKAGE;
    return TA_OK;
}
