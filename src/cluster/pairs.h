/* Which ranks swap messages with which while a cluster is probed: pure functions of where the ranks
 * are. probe.c asks; implemented in pairs.c. */
#ifndef TA_CLUSTER_PAIRS_H
#define TA_CLUSTER_PAIRS_H

#include "cluster.h"

/* Are there two ranks in one package, and two in different ones of a node? Then packages are a
 * level of their own. */
int ta_pairs_by_package(const ta_cluster *cluster);

/* The rank that `rank` swaps with over links of a level: its neighbour in the package or on the
 * node, or the one of the same number in the package or node beside; -1 for none. If packages are
 * a level, the node's links are those between its packages. With `alone`, only the first pair of
 * each package or node takes part. */
int ta_pairs_partner(const ta_cluster *cluster, int rank, ta_level_kind level, int alone);

/* Ranks of one node (at the package's level: package) that send at the same time, at most. */
int ta_pairs_senders(const ta_cluster *cluster, ta_level_kind level);

#endif
