/* Results of the whole sequence, which ranks bring together so that one of them can check them. */
#ifndef BENCH_ATTENTION_RESULTS_H
#define BENCH_ATTENTION_RESULTS_H

#include "run.h"

/* Dense [token][head][dim]. */
typedef struct attention_data {
    double *out, *lse, *dq, *dk, *dv;
} attention_data;

/* Zeros; returns -1 without memory. */
int attention_data_make(attention_data *data, const attention_row *row);
void attention_data_free(attention_data *data);

/* With MPI: every process has its own tokens' numbers and 0 elsewhere; then all have all. */
void attention_data_share(attention_data *data, const attention_row *row);

#endif
