/* A case of ta_combine(): random outputs and log-sum-exps of every rank, combined over a group and
 * compared with the oracle. To that a combine is attention with one key for each rank, whose score
 * is the rank's log-sum-exp and whose value is its output, so the bound is the one of decode.
 *
 * Programs use combine_case_random(), or change what it gave, then combine_case_run(). The ranks
 * are run as those of decode cases: case_launch and case_rank_run(). */
#ifndef TESTS_COMBINE_CASE_H
#define TESTS_COMBINE_CASE_H

#include <stdbool.h>

#include "bound.h"

#define COMBINE_MAX_RANKS 16
#define COMBINE_MAX_BATCH 8

/* How a tensor lies in memory. */
typedef enum combine_layout {
    COMBINE_DENSE, /* strides left at 0 */
    COMBINE_PADDED,
    COMBINE_BY_HEADS, /* [head][row][dim] */
    COMBINE_LAYOUTS
} combine_layout;

typedef enum combine_special {
    COMBINE_PLAIN,
    COMBINE_NAN_LSE,
    COMBINE_INFINITE_LSE,
    COMBINE_NAN_VALUE,
    COMBINE_SPECIALS
} combine_special;

typedef enum combine_sinks {
    COMBINE_NO_SINKS,
    COMBINE_PLAN_SINKS,
    COMBINE_CALL_SINKS
} combine_sinks;

typedef struct combine_case {
    uint64_t seed;
    int ranks, threads;
    int plan_batch, batch, query_tokens, heads, v_dim;
    bool ragged;
    int32_t starts[COMBINE_MAX_BATCH + 1]; /* of a ragged call */
    ta_dtype part_dtype, out_dtype;
    ta_placement placement;
    int root;
    ta_exchange exchange;
    combine_sinks sinks;
    combine_layout part, out;
    combine_special special; /* one such number */
    int empty_in;            /* one in so many rows of a rank is empty */
    double deviation;        /* of the log-sum-exps */
    bool want_lse;
} combine_case;

combine_case combine_case_random(uint64_t seed, int ranks); /* ranks 0: random */

/* Query rows of a head. */
int64_t combine_case_rows(const combine_case *c);

bool combine_case_run(const combine_case *c, bound_worst *worst, char *failure, size_t capacity);

#endif
