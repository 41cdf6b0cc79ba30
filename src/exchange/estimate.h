/* The cost of every exchange of partials, before it runs. `ta_exchange_kinds` is the one list of
 * kinds; the planner goes through it. Implemented in estimate.c and nodes.c. */
#ifndef TA_EXCHANGE_ESTIMATE_H
#define TA_EXCHANGE_ESTIMATE_H

#include "../cost.h"
#include "rounds.h"

/* Which ranks share a node; `node_of` has a number for each rank, NULL means one node for all. Free
 * it with ta_nodes_free(). */
ta_status ta_nodes_make(const int *node_of, int ranks, ta_nodes *nodes);
void ta_nodes_free(ta_nodes *nodes);

typedef enum ta_exchange_kind {
    TA_EXCHANGE_DOUBLING,
    TA_EXCHANGE_BINOMIAL,
    TA_EXCHANGE_SCATTER,
    TA_EXCHANGE_TWO_LEVEL,
    TA_EXCHANGE_ALL_GATHER,
    TA_EXCHANGE_ALL_REDUCE,
    TA_EXCHANGE_KINDS
} ta_exchange_kind;

typedef struct ta_exchange_entry {
    const char *name, *what;
    const ta_round_ops *rounds; /* NULL: it is a collective of the group's */
} ta_exchange_entry;

extern const ta_exchange_entry ta_exchange_kinds[TA_EXCHANGE_KINDS];

/* Can this kind give the shape's placement? */
int ta_exchange_supports(ta_exchange_kind kind, const ta_exchange_shape *shape);

/* Add its messages and its work to a cost. */
ta_status ta_exchange_estimate(ta_exchange_kind kind, const ta_exchange_shape *shape,
                               ta_cost *cost);

#endif
