/* The rate of the matrix library alone, on the shapes of a model: products of floats, which need no
 * conversion, by the same threads and the same split as a prompt's. rank_timing.c runs it before
 * and after a prompt, whose own rate is a fraction of this. */
#ifndef BENCH_LLAMA_PRODUCT_RATE_H
#define BENCH_LLAMA_PRODUCT_RATE_H

#include "model_weights.h"

typedef struct product_rate product_rate;

/* Of the matrices of one layer of `part`, with so many rows of inputs and threads. Matrices above
 * 64 MB are measured by their first rows. NULL without memory. */
product_rate *product_rate_create(const llama_part *part, int64_t rows, int threads);
void product_rate_destroy(product_rate *rate);

/* Each product once. */
ta_status product_rate_run(product_rate *rate, double *us, double *flops);

#endif
