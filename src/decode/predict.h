/* What one decode step would cost in each way of doing it: the candidates (cluster/candidate.h)
 * that the planner chooses from and ta_explain() and ta_predict() show. Implemented in predict.c,
 * with the rings in ring_estimate.c and the exchanges in src/exchange/. */
#ifndef TA_PREDICT_H
#define TA_PREDICT_H

#include "cluster/candidate.h"
#include "device/device.h"
#include "exchange/kinds.h"

/* The work of a step as a prediction sees it. */
typedef struct ta_step_shape {
    const ta_problem *problem; /* max_tokens is what each rank has of each sequence */
    const ta_cluster *cluster; /* NULL: messages, bytes and memory only */
    int ranks;
    ta_placement query_placement, out_placement;
    int query_root, out_root;
    int device_memory; /* partials are exchanged in the devices' memory, not in the hosts' */
    int shares_memory; /* ranks of a node can address memory of each other */
    int shares_gpus;   /* which is that of GPUs, whatever the exchanges with messages use */
    int shots;         /* of a direct exchange, 1 or 2; 0: by its bytes */
} ta_step_shape;

/* A way of doing it: one of these, in this order. */
typedef enum ta_way {
    TA_WAY_TREE, /* with TA_EXCHANGE_DOUBLING, then one for each ta_exchange */
    TA_WAY_RING_KV = TA_WAY_TREE + TA_EXCHANGE_KINDS - 1,
    TA_WAY_RING_Q,
    TA_WAY_ONE_DEVICE, /* no sharding: all tokens on one device of the cluster */
    TA_WAYS
} ta_way;

/* The way of an algorithm; of a tree that of its exchange. */
ta_way ta_way_of(ta_algorithm algorithm, ta_exchange exchange);

ta_status ta_predict_way(const ta_step_shape *shape, ta_way way, ta_candidate *candidate);

/* All of them, by ta_way. */
ta_status ta_predict_ways(const ta_step_shape *shape, ta_candidates *candidates);

/* Parts of it, for ring_estimate.c. */

/* Bytes of K and V for so many tokens of every sequence, in `kv_heads` heads. */
double ta_kv_bytes(const ta_problem *problem, double tokens, double kv_heads);

/* Reading so many bytes of K and V: one kernel that attends, one that merges its splits. */
double ta_attend_s(const ta_cluster *cluster, double bytes);

/* Bring the query to all ranks; finish the heads. */
ta_status ta_predict_query(const ta_step_shape *shape, ta_cost *cost);

/* Add a ring step to the cost; ring_estimate.c. */
ta_status ta_ring_kv_estimate(const ta_step_shape *shape, ta_cost *cost);
ta_status ta_ring_q_estimate(const ta_step_shape *shape, ta_cost *cost);

#endif
