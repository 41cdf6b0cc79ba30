/* Where the ranks of a running group are: a part of ta_cluster_probe(), in find.c. */
#ifndef TA_CLUSTER_FIND_H
#define TA_CLUSTER_FIND_H

#include "cluster.h"
#include "device/device.h"
#include "group/group.h"

/* Fill in ranks, nodes and places. Collective, the same on all ranks; a rank that fails aborts the
 * group. */
ta_status ta_cluster_find(ta_group *group, ta_device *device, ta_cluster *cluster);

#endif
