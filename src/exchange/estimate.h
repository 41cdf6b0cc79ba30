/* The cost of every exchange of partials, before it runs. `ta_exchange_kinds` is the one list of
 * kinds; the planner goes through it. Implemented in estimate.c and nodes.c. */
#ifndef TA_EXCHANGE_ESTIMATE_H
#define TA_EXCHANGE_ESTIMATE_H

#include "cluster/cost.h"
#include "rounds.h"

/* Which ranks share a node; `node_of` has a number for each rank, NULL means one node for all. Free
 * it with ta_nodes_free(). */
ta_status ta_nodes_make(const int *node_of, int ranks, ta_nodes *nodes);
void ta_nodes_free(ta_nodes *nodes);

/* One more than the last ta_exchange. */
#define TA_EXCHANGE_KINDS 7

typedef struct ta_exchange_entry {
    const char *name, *what;
    const ta_round_ops *rounds; /* NULL: it is a collective of the group's */
} ta_exchange_entry;

/* By ta_exchange; the first, TA_EXCHANGE_AUTO, is none. */
extern const ta_exchange_entry ta_exchange_kinds[TA_EXCHANGE_KINDS];

/* Can this kind give the shape's placement? */
int ta_exchange_supports(ta_exchange kind, const ta_exchange_shape *shape);

/* A large partial goes in chunks of some heads, one after the other, so that a staged device copies
 * one while the last is on its way: how many. Only of kinds that send whole partials. */
int ta_exchange_chunks(ta_exchange kind, const ta_exchange_shape *shape);

/* Add its messages and its work to a cost. */
ta_status ta_exchange_estimate(ta_exchange kind, const ta_exchange_shape *shape, ta_cost *cost);

/* The two that are no rounds: all_gather.c, all_reduce.c. */
ta_status ta_all_gather_estimate(const ta_exchange_shape *shape, ta_cost *cost);
void ta_all_reduce_estimate(const ta_exchange_shape *shape, ta_cost *cost);

/* Where each rank's message goes in the memory of an all-gather; free() it. */
ta_status ta_all_gather_offsets(int ranks, size_t message_bytes, size_t **offsets);

#endif
