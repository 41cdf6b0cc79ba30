/* What the library's model says of a row, beside what was measured. */
#ifndef BENCH_PREDICTION_H
#define BENCH_PREDICTION_H

#include "rows.h"

/* The cluster that --cluster asks for: NULL, from a description, or probed, which is collective.
 * Destroy it with ta_cluster_destroy(). */
ta_status prediction_cluster(const decode_options *options, ta_group *group, ta_device *device,
                             ta_cluster **cluster);

/* Keep a cluster's text in result->predicted. */
ta_status prediction_keep(const ta_cluster *cluster, bench_result *result);

/* Predict the row of a result that has a cluster, as its plan runs it: the cheapest way of its
 * algorithm. A probed cluster is given the read bandwidth that was measured with the row, because
 * the probe reads little, and from caches. */
ta_status prediction_make(const decode_options *options, bench_result *result);

#endif
