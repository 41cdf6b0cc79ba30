/* Attention over one whole sequence and its gradients, in double, from the definition, with the
 * bound that docs/numerics.md derives for each number. Shares no code with the library. */
#ifndef TESTS_GRADIENT_H
#define TESTS_GRADIENT_H

#include "bound.h"

/* Results [token][head][dim] of one kind, and how far the library may be from each. */
typedef struct gradient_numbers {
    double *value, *bound;
} gradient_numbers;

typedef struct gradient_sequence {
    gradient_numbers out, lse, dq, dk, dv;
} gradient_sequence;

/* `problem->query_tokens` is the length of the sequence. `dout` is [token][query head][v_dim]. The
 * library stores in `dtype`; `ranks` share the tokens. Release with gradient_free(). */
void gradient_compute(const oracle_problem *problem, const oracle_sequence *sequence,
                      const double *dout, ta_dtype dtype, int ranks, gradient_sequence *result);
void gradient_free(gradient_sequence *result);

#endif
