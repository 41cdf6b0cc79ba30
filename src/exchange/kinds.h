/* The kinds of exchange: one list, one entry for each, with everything that the rest of the library
 * asks of it. The interpreter runs what the entry says, the planner goes through the list.
 * exchange.c has it; CONTRIBUTING.md says how to add one. */
#ifndef TA_EXCHANGE_KINDS_H
#define TA_EXCHANGE_KINDS_H

#include "cluster/cost.h"
#include "rounds.h"

struct ta_exchange_job;
struct ta_signals;

/* One more than the last ta_exchange. */
#define TA_EXCHANGE_KINDS (TA_EXCHANGE_MULTI_LEVEL + 1)

typedef struct ta_exchange_entry ta_exchange_entry;
struct ta_exchange_entry {
    const char *name, *what;
    const char *what_of_tallies; /* what it adds to `what`, if they are exchanged; or NULL */
    const char *symbol;          /* as the public header spells it */
    const char *needs;           /* what is missing where it does not support a shape */
    int (*supports)(const ta_exchange_shape *shape);

    /* The exchange of some heads: all of them, or those of a chunk. */
    ta_status (*run)(struct ta_exchange_job *job, ta_heads heads, void *stream);
    /* Add its messages and its work to a cost. */
    ta_status (*estimate)(const ta_exchange_entry *kind, const ta_exchange_shape *shape,
                          ta_cost *cost);

    const ta_round_ops *rounds; /* that run() and estimate() go through; NULL: it has none */
    int whole;     /* unless the output is scattered, each message is a whole partial */
    int gathers;   /* all ranks' partials arrive at once, each in a place of its own */
    int shares;    /* ranks address each other's memory, which ta_exchange_share() makes */
    int by_nodes;  /* which rank is on which node decides what it does */
    int by_levels; /* and which nodes are in one rack, which ranks in one package of a node */
    int max_ranks; /* above so many it is slower than any other, and not worth adding up; 0: none */
};

/* By ta_exchange; the first, TA_EXCHANGE_AUTO, is none. */
extern const ta_exchange_entry ta_exchange_kinds[TA_EXCHANGE_KINDS];

/* Can this kind give the shape's placement, where it is exchanged? */
int ta_exchange_supports(ta_exchange kind, const ta_exchange_shape *shape);

/* Where the first ranks of a cluster are, as a kind takes it: on its nodes, on one node in packages
 * as ta_cluster_units() says, or on all levels that there are. Without a cluster all are on one
 * node. Free it with ta_nodes_free(). */
ta_status ta_exchange_nodes(ta_exchange kind, const ta_cluster *cluster, int ranks,
                            ta_nodes *nodes);

/* A large partial goes in chunks of some heads, one after the other, so that a staged device copies
 * one while the last is on its way: how many. The same on all ranks; only of whole partials. */
int ta_exchange_chunks(ta_exchange kind, const ta_exchange_shape *shape);

ta_status ta_exchange_estimate(ta_exchange kind, const ta_exchange_shape *shape, ta_cost *cost);

/* Which ranks share a node (nodes.c); `node_of` has a number for each rank, NULL means one node for
 * all. Free it with ta_nodes_free(). */
ta_status ta_nodes_make(const int *node_of, int ranks, ta_nodes *nodes);
void ta_nodes_free(ta_nodes *nodes);
/* Add a level above the last: `unit_of` has a number for each rank, the same for all of a node. */
ta_status ta_nodes_add(const int *unit_of, int ranks, ta_unit unit, ta_nodes *nodes);
/* How many levels there are; and what one of them was made of, a number for each rank. */
int ta_nodes_levels(const ta_nodes *nodes);
void ta_nodes_write(const ta_nodes *nodes, int level, int ranks, int *unit_of);
/* The level of this unit, or NULL. */
const ta_nodes *ta_nodes_find(const ta_nodes *nodes, ta_unit unit);

/* What the entries are made of: rounds.c, levels.c; exchange.c and estimate.c for rounds;
 * all_gather.c, all_reduce.c, direct.c. */
extern const ta_round_ops ta_doubling_rounds, ta_binomial_rounds, ta_scatter_rounds,
    ta_two_level_rounds, ta_multi_level_rounds;
/* Of two-level only those between nodes. */
extern const ta_round_ops ta_two_level_across;
int ta_doubling_supports(const ta_exchange_shape *shape);
int ta_two_level_supports(const ta_exchange_shape *shape);
int ta_multi_level_supports(const ta_exchange_shape *shape);
int ta_all_reduce_supports(const ta_exchange_shape *shape);
int ta_direct_supports(const ta_exchange_shape *shape);
ta_status ta_rounds_run(struct ta_exchange_job *job, ta_heads heads, void *stream);
/* The rounds of `ops`, whatever the job's kind has. */
ta_status ta_rounds_run_all(struct ta_exchange_job *job, const ta_round_ops *ops, ta_heads heads,
                            void *stream);
ta_status ta_all_gather_run(struct ta_exchange_job *job, ta_heads heads, void *stream);
ta_status ta_all_reduce_run(struct ta_exchange_job *job, ta_heads heads, void *stream);
ta_status ta_rounds_estimate(const ta_exchange_entry *kind, const ta_exchange_shape *shape,
                             ta_cost *cost);
void ta_rounds_estimate_all(const ta_round_ops *ops, const ta_exchange_shape *shape, ta_cost *cost);
ta_status ta_all_gather_estimate(const ta_exchange_entry *kind, const ta_exchange_shape *shape,
                                 ta_cost *cost);
ta_status ta_all_reduce_estimate(const ta_exchange_entry *kind, const ta_exchange_shape *shape,
                                 ta_cost *cost);

/* direct.c: in how many shots partials of this shape go. */
int ta_direct_shots(const ta_exchange_shape *shape);
ta_status ta_direct_run(struct ta_exchange_job *job, ta_heads heads, void *stream);
ta_status ta_direct_estimate(const ta_exchange_entry *kind, const ta_exchange_shape *shape,
                             ta_cost *cost);
float *ta_direct_own_records(const struct ta_exchange_job *job);
/* All ranks have what they share, or none has; signals that are new, `before` being the last that
 * were not, too. `own` is how this rank fared. */
ta_status ta_direct_settle(struct ta_exchange_job *job, struct ta_signals *before, ta_status own);

/* direct_peers.c: the slabs of GPUs, and the end of them where another rank failed; `heard` says
 * whether the group still works. */
ta_status ta_direct_share_peers(struct ta_exchange_job *job);
void ta_direct_part(struct ta_exchange_job *job, ta_status heard);

#endif
