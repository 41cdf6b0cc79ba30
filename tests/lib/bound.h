/* How far a result of the library may be from the oracle's: the bound that docs/numerics.md
 * derives, written once. Every comparison of a test goes through bound_compare(). */
#ifndef TESTS_BOUND_H
#define TESTS_BOUND_H

#include <treeattn/treeattn.h>

#include "number.h"
#include "oracle.h"

/* Sources of error added up: their sizes, and the squares of their sizes. */
typedef struct bound_spread {
    double most;
    double square;
} bound_spread;

void bound_add_source(bound_spread *s, double size);
double bound_settle(const bound_spread *s);

/* Adding n terms in runs of at most `run`, and then the sums of the runs: `sum`, `sum_abs` and
 * `sum_square` are of the terms themselves. */
void bound_add_summation(bound_spread *s, double n, double run, double sum, double sum_abs,
                         double sum_square);

/* The relative error of one term's weight before the division by the sum, in units of 2^-24. */
bound_spread bound_weight_error(const oracle_problem *problem, const oracle_row *row,
                                const oracle_term *term, double rescales);

typedef struct bound_row {
    double out[ORACLE_MAX_DIM];
    double lse;
} bound_row;

/* The bound of every output of a row, stored as `out_dtype`, and of its lse. `partials` are
 * merged in all: one of each rank, two in pass-KV. */
void bound_of_row(const oracle_problem *problem, const oracle_row *row, ta_dtype out_dtype,
                  int partials, bound_row *bound);

/* How many partials `ranks` ranks merge. */
int bound_partials(ta_algorithm algorithm, int ranks);

/* The error in units of the bound: right is at most 1. Infinite for a NaN or infinity that only one
 * of them has, and for any error where the bound is 0; 0 where both are the same. */
double bound_compare(double expected, double bound, double got);

/* The worst ratio of each kind of result. */
typedef struct bound_worst {
    double out[NUMBER_DTYPE_END]; /* by ta_dtype */
    double lse;
} bound_worst;

void bound_worst_include(bound_worst *into, const bound_worst *from);

/* As the rest of a line on standard output. */
void bound_worst_print(const bound_worst *worst);

#endif
