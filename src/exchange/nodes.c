/* Ranks sorted by node, for the two-level exchange and its estimate. */
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
        return ta_fail(TA_ERR_NO_MEMORY, "no memory for the nodes of %d ranks", ranks);
    }
    number_nodes(node_of, ranks, largest, seen, &n);
    sort_by_node(ranks, &n);
    free(seen);
    *nodes = n;
    return TA_OK;
}

void ta_nodes_free(ta_nodes *nodes)
{
    free(nodes->node_of);
    free(nodes->local_of);
    free(nodes->ranks);
    free(nodes->first);
    *nodes = (ta_nodes){0};
}
