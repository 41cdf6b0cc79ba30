/* Exchanges made of rounds, as data: in each round a rank sends a range of heads, receives one, or
 * both. A kind of exchange says for every rank and round what that is; one interpreter runs it
 * (exchange.c) and one adds up its cost for all ranks (estimate.c), so both see the same messages.
 * rounds.c has the building blocks and what it takes without nodes, levels.c the rest. */
#ifndef TA_EXCHANGE_ROUNDS_H
#define TA_EXCHANGE_ROUNDS_H

#include <treeattn/treeattn.h>

#include "base/fault.h"

/* Query heads [first, end) of a partial. */
typedef struct ta_heads {
    int first, end;
} ta_heads;

/* What ranks are together in. */
typedef enum ta_unit { TA_UNIT_NODE, TA_UNIT_PACKAGE, TA_UNIT_RACK } ta_unit;

/* Packages, nodes, racks. */
#define TA_MOST_LEVELS 3

/* Which rank is on which node, for the ranks of a group; or in which package or rack. */
typedef struct ta_nodes {
    ta_unit unit;
    int count;     /* nodes */
    int lanes;     /* ranks of the smallest node */
    int most;      /* ranks of the largest */
    int *node_of;  /* [ranks] */
    int *local_of; /* [ranks]: the rank's number on its node */
    int *first;    /* [count + 1]: where a node's ranks begin in `ranks` */
    int *ranks;    /* by node, then ascending */
    /* The same with these nodes for ranks: which of them are in one rack; NULL: no such level. */
    struct ta_nodes *above;
} ta_nodes;

/* What is exchanged: plain numbers, all that decides who sends what to whom. */
typedef struct ta_exchange_shape {
    int ranks, heads;
    size_t record_bytes; /* one partial */
    int32_t v_dim;       /* of what an exchange runs; an estimate needs it not */
    int tallies;         /* partials are tallies */
    size_t head_bytes;   /* the partials of one head */
    ta_placement placement;
    int root;
    const ta_nodes *nodes; /* NULL: all ranks are on one node */
    int device_memory;     /* where it is exchanged, if not in host memory */
    int shares_memory;     /* ranks of a node can address memory of each other */
    int shots;             /* of a direct exchange, 1 or 2; 0: by its bytes */
    double signal_bytes;   /* that a GPU reads of others in the time of a signal; 0: not known */
} ta_exchange_shape;

/* One rank's part in one round. */
typedef struct ta_round {
    int to, from; /* -1: nothing is sent, nothing received */
    ta_heads given, kept;
    int replaces; /* what arrives is complete and takes the place of this rank's own */
    const char *phase;
} ta_round;

/* An exchange in rounds. */
typedef struct ta_round_ops {
    /* How many rounds there are: the same on all ranks. */
    int (*rounds)(const ta_exchange_shape *shape);
    /* A rank's part in a round. Comes filled with nothing to send and to receive. */
    void (*round)(const ta_exchange_shape *shape, int rank, int index, ta_round *round);
} ta_round_ops;

/* Bytes of a message: the records of a range of heads and the fault behind them. */
static inline size_t ta_message_bytes(const ta_exchange_shape *shape, ta_heads heads)
{
    return (size_t)(heads.end - heads.first) * shape->head_bytes + TA_FAULT_BYTES;
}

/* Building blocks. They number their members 0 … members - 1 and leave `to` and `from` in these
 * numbers; part i of the heads is the member's own. */

/* The heads of parts [first, end) when `heads` of them are divided into `parts`. */
ta_heads ta_parts(int heads, int parts, int first, int end);

/* Rounds of doubling, of halving and of a gather: a fold before and its return after them, where
 * the members are no power of two. */
int ta_folded_count(int members);

/* Everybody ends with `range` merged over all. */
void ta_doubling_block(int members, int member, int index, ta_heads range, ta_round *round);

/* Everybody ends with its own part merged over all. */
void ta_halving_block(int members, int member, int index, int heads, ta_round *round);

/* The same with a message between every two members. */
int ta_pairwise_count(int members);
void ta_pairwise_block(int members, int member, int index, int heads, ta_round *round);

/* From its own part everybody comes to all parts. */
void ta_gather_block(int members, int member, int index, int heads, ta_round *round);

/* Member `root` ends with `range` merged over all. */
int ta_binomial_count(int members);
void ta_binomial_block(int members, int member, int index, int root, ta_heads range,
                       ta_round *round);

/* Every member gives its own part to `root`. */
int ta_collect_count(int members);
void ta_collect_block(int members, int member, int index, int root, int heads, ta_round *round);

#endif
