/* The cost model: seconds = latency + bytes / bandwidth for each round of messages, plus a
 * handshake for large ones where the group has one. The slowest rank and the fullest link count.
 * An algorithm's estimate() adds the messages that its run() sends, of all ranks, round by
 * round; tests compare them with what a group recorded. Used by exchange/, decode/ and
 * attention/; implemented in cost.c and cost_collectives.c. docs/model.md. */
#ifndef TA_COST_H
#define TA_COST_H

#include "cluster.h"

/* What one rank sends and receives. */
typedef struct ta_traffic {
    uint64_t messages_sent, messages_received;
    uint64_t bytes_sent, bytes_received;
} ta_traffic;

/* Rounds that belong together, as ta_explain() shows them. */
typedef struct ta_cost_phase {
    const char *name; /* static */
    int64_t rounds;
    double seconds;
    uint64_t rank_bytes; /* that the busiest rank sends or receives, summed over the rounds */
} ta_cost_phase;

#define TA_COST_PHASES 20

typedef struct ta_cost {
    const ta_cluster *cluster; /* NULL: messages and bytes are counted, all seconds are 0 */
    int ranks;
    double seconds;
    int phase_count;
    ta_cost_phase phases[TA_COST_PHASES];
    ta_traffic *traffic; /* [ranks] */

    /* Of the round that is being added up. */
    int64_t times;        /* that it happens */
    double round_s;       /* the slowest message so far */
    double local_s;       /* the slowest rank's work after its message arrived */
    uint64_t round_bytes; /* of the largest message */
    double *unit_bytes;   /* [TA_LEVEL_COUNT][2][units]: out of and into each node, rack, package */
    int units;            /* the most of nodes and packages */
    unsigned levels_used; /* bit per ta_level_kind */
    double level_begin_s[TA_LEVEL_COUNT]; /* before the bytes of its slowest message flow */
} ta_cost;

/* `ranks` are the cluster's first. Destroy it with ta_cost_end(). */
ta_status ta_cost_begin(ta_cost *cost, const ta_cluster *cluster, int ranks);
void ta_cost_end(ta_cost *cost);

/* Add one message to the round. */
void ta_cost_message(ta_cost *cost, int from, int to, uint64_t bytes);

/* Add work of one rank to the round, which begins when its message is there: `kernels` pieces of
 * work that read and write so many bytes of device memory. Ranks work at the same time. */
void ta_cost_work(ta_cost *cost, int kernels, double bytes);

/* The round that begins now will happen so many times in a row. */
void ta_cost_repeat(ta_cost *cost, int64_t times);

/* All ranks work this long while the round's messages travel. */
void ta_cost_overlap(ta_cost *cost, double seconds);

/* The round is complete and belongs to this phase. */
void ta_cost_round(ta_cost *cost, const char *phase);

/* Ranks of a node signal each other so many times; each reads so many bytes of others' memory, and
 * its own work takes `work_s`. */
void ta_cost_signals(ta_cost *cost, const char *phase, int signals, double bytes, double work_s);

/* Work of all ranks at once, outside of rounds. */
void ta_cost_local(ta_cost *cost, const char *phase, double seconds);

/* The most that any rank sends and receives so far, each number by itself; `most` starts at what it
 * is. */
void ta_cost_busiest(const ta_cost *cost, ta_traffic *most);

/* Seconds that a device takes to read or write so many bytes in so many kernels. */
double ta_cost_memory_s(const ta_cluster *cluster, int kernels, double bytes);

/* Lines of a grid that do the same at the same time, each a group of its own: member j of line i is
 * rank i · line_step + j · member_step. */
typedef struct ta_cost_lines {
    int lines, members, line_step, member_step;
} ta_cost_lines;

static inline int ta_cost_rank(const ta_cost_lines *lines, int line, int member)
{
    return line * lines->line_step + member * lines->member_step;
}

/* The messages of group.c's collectives, for groups whose engine has none of its own. The same
 * arguments as there. */
void ta_cost_broadcast(ta_cost *cost, const char *phase, uint64_t bytes, int root);
void ta_cost_all_gather(ta_cost *cost, const char *phase, const size_t *offsets);
/* Of `count` things of so many bytes, which the ranks have as they have heads: ta_head_start(). */
ta_status ta_cost_all_gather_divided(ta_cost *cost, const char *phase, int count, size_t bytes);
/* In each of the lines; `offsets` are [lines][members + 1]. */
void ta_cost_all_gather_lines(ta_cost *cost, const char *phase, const ta_cost_lines *lines,
                              const size_t *offsets);
void ta_cost_all_reduce(ta_cost *cost, const char *phase, uint64_t bytes);

#endif
