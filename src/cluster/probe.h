/* Between the files of the probe: probe.c has the links by messages and the device, probe_shared.c
 * the memory that ranks share. */
#ifndef TA_PROBE_H
#define TA_PROBE_H

#include "cluster.h"
#include "group/group.h"

/* The slowest rank's value, on all ranks. Collective. */
ta_status ta_probe_largest(ta_group *group, double *value);

/* Fill in signal_s and read_bytes_per_s, if the ranks of every node share memory; otherwise they
 * stay 0. Collective. */
ta_status ta_probe_shared(ta_group *group, ta_device *device, ta_cluster *cluster);

#endif
