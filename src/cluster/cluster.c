/* Making, checking and writing clusters: the public calls. See cluster.h for what one is;
 * description.c reads what the user wrote. */
#include "cluster.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"

int ta_cluster_rack(const ta_cluster *cluster, int node)
{
    return cluster->nodes_per_rack > 0 ? node / (int)cluster->nodes_per_rack : 0;
}

ta_level_kind ta_cluster_level(const ta_cluster *cluster, int a, int b)
{
    int node_a = cluster->node_of[a], node_b = cluster->node_of[b];
    if (node_a == node_b)
        return ta_cluster_has_packages(cluster) && cluster->package_of[a] >= 0 &&
                       cluster->package_of[a] == cluster->package_of[b]
                   ? TA_LEVEL_PACKAGE
                   : TA_LEVEL_NODE;
    return ta_cluster_rack(cluster, node_a) == ta_cluster_rack(cluster, node_b) ? TA_LEVEL_NETWORK
                                                                                : TA_LEVEL_RACK;
}

static ta_status check_level(const ta_cluster_draft *draft, const char *name, ta_level_kind kind)
{
    const ta_level *level = &draft->cluster->levels[kind];
    if (level->total_bytes_per_s < level->rank_bytes_per_s)
        return ta_fail(TA_ERR_INVALID,
                       "%s: %s.total_bytes_per_second is %g: must be at least "
                       "%s.rank_bytes_per_second, %g",
                       draft->where, name, level->total_bytes_per_s, name, level->rank_bytes_per_s);
    return TA_OK;
}

/* The package's numbers may be left out, but not some of them. */
static ta_status check_package(const ta_cluster_draft *draft)
{
    const ta_level *level = &draft->cluster->levels[TA_LEVEL_PACKAGE];
    int rank = level->rank_bytes_per_s > 0, total = level->total_bytes_per_s > 0;
    if ((rank || total || level->latency_s > 0) && !(rank && total))
        return ta_fail(TA_ERR_INVALID,
                       "%s: package.%s_bytes_per_second is missing: must be given with the other "
                       "numbers of package",
                       draft->where, rank ? "total" : "rank");
    return check_level(draft, "package", TA_LEVEL_PACKAGE);
}

ta_status ta_cluster_check(ta_cluster_draft *draft)
{
    ta_cluster *c = draft->cluster;
    for (int i = 0; i < TA_CLUSTER_KEYS; ++i)
        if (!ta_cluster_keys[i].optional && !(draft->given & 1u << i))
            return ta_fail(TA_ERR_INVALID, "%s: %s is missing: must be %s", draft->where,
                           ta_cluster_keys[i].name, ta_cluster_keys[i].right);
    if (!c->ranks)
        return ta_fail(TA_ERR_INVALID,
                       "%s: nodes is missing: must be items COUNTxRANKS, as in '16x8'",
                       draft->where);
    if (!*c->name)
        snprintf(c->name, sizeof c->name, "unnamed");
    if (!*c->device)
        snprintf(c->device, sizeof c->device, "unnamed");
    TA_TRY(check_level(draft, "node", TA_LEVEL_NODE));
    TA_TRY(check_level(draft, "network", TA_LEVEL_NETWORK));
    TA_TRY(check_level(draft, "rack", TA_LEVEL_RACK));
    TA_TRY(check_package(draft));
    return ta_cluster_number_packages(c);
}

ta_status ta_cluster_create(const char *description, ta_cluster **cluster)
{
    ta_status status;
    ta_cluster_draft draft = {NULL, 0, "", 0};
    if (!description || !*description)
        return ta_fail(TA_ERR_INVALID,
                       "description is %s: must be a preset with its size, such as "
                       "'h100:16x8', or the path of a file",
                       description ? "empty" : "NULL");
    if (!cluster)
        return ta_fail(TA_ERR_INVALID, "cluster is NULL: must point to the result");
    draft.cluster = calloc(1, sizeof *draft.cluster);
    if (!draft.cluster)
        return ta_fail(TA_ERR_NO_MEMORY, "no memory for a cluster");
    TA_TRY_GOTO(ta_cluster_describe(&draft, description), destroy_draft);
    TA_TRY_GOTO(ta_cluster_check(&draft), destroy_draft);
    *cluster = draft.cluster;
    return TA_OK;

destroy_draft:
    ta_cluster_destroy(draft.cluster);
    return status;
}

ta_status ta_cluster_text(const ta_cluster *cluster, char *text, size_t capacity,
                          size_t *needed_bytes)
{
    ta_text out;
    if (!cluster)
        return ta_fail(TA_ERR_INVALID, "cluster is NULL: make one with ta_cluster_create()");
    TA_TRY(ta_text_open(&out, text, capacity));
    ta_cluster_write(cluster, &out);
    return ta_text_close(&out, needed_bytes);
}

void ta_cluster_destroy(ta_cluster *cluster)
{
    if (!cluster)
        return;
    ta_cluster_free_places(cluster);
    free(cluster->node_of);
    free(cluster);
}
