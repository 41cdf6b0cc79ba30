/* The oracle: naive attention in double over a whole sequence, sharing no code with the library. It
 * goes row by row (one query token and head) and keeps what bound.c needs to say how large an error
 * of the library may be. */
#ifndef TESTS_ORACLE_H
#define TESTS_ORACLE_H

#include <stdbool.h>
#include <stdint.h>

#define ORACLE_MAX_DIM 576

/* The options of ta_plan_config, with every default filled in. */
typedef struct oracle_problem {
    int query_tokens, query_heads, kv_heads, k_dim, v_dim;
    bool causal;
    int window;                /* 0: none */
    double scale, softcap;     /* softcap 0: none */
    const float *alibi_slopes; /* [query_heads], or NULL */
    const float *sinks;        /* [query_heads], or NULL */
    int dot_sums;         /* interleaved sums of a dot product, which the bound depends on; 0: 8 */
    int run_tokens;       /* tokens whose weights are added in one run, likewise, at most; 0: 64 */
    int tile;             /* of reproducible mode, likewise; 0: off */
    const bool *selected; /* [length] which keys this row may see at all; NULL: any */
    bool scaled;          /* scores and weights are multiplied by scales of K and V, likewise */
    /* Weights are rounded, likewise: the largest relative error of one, and what is lost of those
     * that are too small, where the largest is 1; 0: they are exact. */
    double rounding, rounding_lost;
} oracle_problem;

/* One sequence, all of it, dense. */
typedef struct oracle_sequence {
    int length;
    const double *q; /* [query_tokens][query_heads][k_dim] */
    const double *k; /* [length][kv_heads][k_dim] */
    const double *v; /* [length][kv_heads][v_dim] */
} oracle_sequence;

/* What a row's softmax runs over: its visible keys, then its sink if it has one. */
typedef struct oracle_term {
    double score;      /* natural: scaled, capped, with ALiBi */
    double dot;        /* scale · q·k, before the soft-cap */
    double dot_abs;    /* |scale| · Σ |q_i k_i| */
    double dot_square; /* scale² · Σ (q_i k_i)² */
    double capped;     /* after the soft-cap */
    double slope;      /* of the soft-cap at `dot`: 1 without one */
    double bias;       /* ALiBi's part of the score, as a magnitude */
    double weight;     /* of the softmax */
    const double *v;   /* NULL for the sink */
} oracle_term;

typedef struct oracle_row {
    int terms, capacity;
    int keys; /* visible keys: terms without the sink */
    oracle_term *term;
    double top; /* the largest score */
    double lse;
    double out[ORACLE_MAX_DIM];
} oracle_row;

/* Compute one row. `row` starts zeroed and may be used again; release it with oracle_row_free(). */
void oracle_attend(const oracle_problem *problem, const oracle_sequence *sequence, int token,
                   int head, oracle_row *row);
void oracle_row_free(oracle_row *row);

#endif
