/* Candidates: the ways of doing a plan's work, what each would cost on a cluster, and which one a
 * plan takes. One vocabulary for decode and attention over full sequences: decode/planner.c and
 * attention/choice.c make them, ta_explain() and ta_attention_explain() write them out in the same
 * words, as text and as JSON. docs/model.md describes the fields. Implemented in candidate.c. */
#ifndef TA_CANDIDATE_H
#define TA_CANDIDATE_H

#include "cost.h"

/* Kinds of calls that a plan has at most: forward and backward. */
#define TA_PLAN_CALLS 2

/* What one call of a plan costs. */
typedef struct ta_call_cost {
    const char *name; /* static: "decode", "forward", "backward" */
    double seconds;
    double attend_s;      /* of them, attending with nothing else going on: the busiest rank's */
    ta_traffic busiest;   /* the largest of each number over the ranks */
    uint64_t total_bytes; /* sent by all ranks together */
    int phase_count;      /* phases add up to `seconds` */
    ta_cost_phase phases[TA_COST_PHASES];
} ta_call_cost;

typedef struct ta_candidate {
    int algorithm; /* a ta_algorithm or a ta_attention_algorithm, and its name, static */
    const char *algorithm_name;
    int exchange; /* of a tree's partials, and its name; otherwise 0 and "" */
    const char *exchange_name;
    int grid_rows, grid_columns; /* 0: no grid */
    int is_ring;
    int possible;        /* 0: it cannot do this work; the numbers mean nothing */
    int fits;            /* into the memory of a device */
    double memory_bytes; /* of the fullest rank: the caller's tensors and what the plan needs */
    int call_count;
    ta_call_cost calls[TA_PLAN_CALLS];
} ta_candidate;

typedef struct ta_candidates {
    char cluster[64];   /* its name */
    ta_candidate *list; /* NULL: nothing was predicted */
    int count;
    int chosen; /* which of them the plan runs */
} ta_candidates;

/* A call's cost from what was added up. */
void ta_call_cost_set(ta_call_cost *call, const char *name, const ta_cost *cost, double attend_s);

/* All calls together: what candidates are compared by. */
double ta_candidate_seconds(const ta_candidate *candidate);

/* The number of the best candidate that is possible and open: one that fits before one that does
 * not, then the faster one; of equals the earlier. A ring must be faster than others by
 * TA_RING_GAIN: predictions that differ by less count as equal, as no more is known of a cluster.
 * -1: none is open. */
#define TA_RING_GAIN 0.02
int ta_candidates_best(const ta_candidates *candidates,
                       int (*is_open)(const ta_candidate *candidate, const void *context),
                       const void *context);

/* The one that was chosen; NULL if nothing was predicted. */
const ta_candidate *ta_candidates_chosen(const ta_candidates *candidates);

void ta_candidates_free(ta_candidates *candidates);

/* ---- Words ----------------------------------------------------------------------------------- */

/* "tree two-level", "grid of 2 x 4", "ring": a way of doing the work. */
void ta_candidate_write_name(const ta_candidate *candidate, ta_text *out);

/* A line for each candidate that is possible. */
void ta_candidates_write(const ta_candidates *candidates, ta_text *out);

/* The same as `"cluster": …, "candidates": […]`. */
void ta_candidates_write_json(const ta_candidates *candidates, ta_text *out);

/* What a plan runs, as the beginning of a JSON object, which the caller ends. */
typedef struct ta_running {
    const char *algorithm, *exchange, *why;
    int grid_rows, grid_columns, ranks;
    size_t memory_bytes; /* of the plan on this rank */
} ta_running;
void ta_running_write_json(const ta_running *running, ta_text *out);

/* What a prediction tells of a call. */
ta_predicted_call ta_call_cost_predicted(const ta_call_cost *call);

/* Arguments of ta_predict() and ta_attention_predict(). */
ta_status ta_predict_check(const ta_cluster *cluster, int ranks);
ta_status ta_predict_check_candidate(int candidate, int count);

#endif
