/* The descriptions that ta_cluster_create() takes: a preset with its size and some keys, or the
 * path of a file. text.c reads the keys, file.c the file, presets.c has the presets. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "cluster.h"

/* "h100:16x8", or "h100:4x16x8" for 4 racks of 16 nodes. */
static ta_status set_shape(ta_cluster_draft *draft, const char *shape)
{
    int racks, nodes, ranks, length = 0;
    char plain[32];
    if (sscanf(shape, "%7dx%7dx%7d%n", &racks, &nodes, &ranks, &length) == 3 && length &&
        !shape[length] && racks > 0 && nodes > 0 && (int64_t)racks * nodes < TA_CLUSTER_MAX_RANKS) {
        draft->cluster->nodes_per_rack = nodes;
        snprintf(plain, sizeof plain, "%dx%d", racks * nodes, ranks);
        return ta_cluster_set_nodes(draft, plain);
    }
    return ta_cluster_set_nodes(draft, shape);
}

/* "PRESET:SHAPE", then any number of " KEY=VALUE". */
static ta_status read_description(ta_cluster_draft *draft, char *text)
{
    char *rest = NULL, *item = strtok_r(text, " ", &rest);
    char *colon = item ? strchr(item, ':') : NULL;
    if (!colon)
        return ta_fail(TA_ERR_INVALID,
                       "%s: must be PRESET:NODESxRANKS, such as 'h100:16x8', or the path of a file "
                       "with a / in it or .cluster at its end",
                       draft->where);
    *colon = '\0';
    TA_TRY(ta_cluster_preset(draft, item));
    char *name = draft->cluster->name;
    int length = snprintf(name, sizeof draft->cluster->name, "%.20s:%.40s", item, colon + 1);
    while (length > 0 && isspace((unsigned char)name[length - 1])) /* as a file's would be read */
        name[--length] = '\0';
    TA_TRY(set_shape(draft, colon + 1));
    while ((item = strtok_r(NULL, " ", &rest))) {
        char *equals = strchr(item, '=');
        if (!equals)
            return ta_fail(TA_ERR_INVALID, "%s: '%s' has no '=': must be KEY=VALUE", draft->where,
                           item);
        *equals = '\0';
        TA_TRY(ta_cluster_set(draft, item, equals + 1));
    }
    return TA_OK;
}

static int is_path(const char *description)
{
    static const char ending[] = ".cluster";
    size_t length = strlen(description);
    return strchr(description, '/') ||
           (length >= sizeof ending - 1 &&
            strcmp(description + length - (sizeof ending - 1), ending) == 0);
}

ta_status ta_cluster_describe(ta_cluster_draft *draft, const char *description)
{
    if (is_path(description))
        return ta_cluster_read(draft, description);
    char *text = strdup(description);
    if (!text)
        return ta_fail(TA_ERR_NO_MEMORY, "no memory for a cluster");
    snprintf(draft->where, sizeof draft->where, "cluster '%s'", description);
    ta_status status = read_description(draft, text);
    free(text);
    return status;
}
