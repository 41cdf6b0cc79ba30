/* Checking attention over full sequences against double precision, from the definition, by code
 * that shares nothing with the library. */
#ifndef BENCH_ATTENTION_CHECK_H
#define BENCH_ATTENTION_CHECK_H

#include "results.h"

/* Check some rows of the output, lse and dq, and some keys of dk and dv, spread over the sequence
 * and the heads. verdicts[PASS_FORWARD] is of out and lse, [PASS_BACKWARD] of the gradients.
 * Returns -1 without memory. */
int attention_check(const attention_row *row, const attention_data *data,
                    attention_verdict verdicts[PASSES]);

#endif
