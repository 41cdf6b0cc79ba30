/* The arithmetic of a step, and what a loop of nothing but multiply-adds reaches in the same run:
 * the ceiling of steps with many query rows, as the read sweep is that of steps with few. measure.c
 * takes a sample of the loop after each step and its sweep. */
#ifndef BENCH_ARITHMETIC_H
#define BENCH_ARITHMETIC_H

#include "options.h"

/* Floating-point operations of one step: a multiply-add, counted as two, for each dimension of K
 * and of V, each query head and each pair of a query token and a key that it sees. */
double arithmetic_step_flops(const decode_options *options, const bench_case *row);

/* Microseconds of one sample of the loop on so many threads, or -1 without threads; and its
 * operations. */
double arithmetic_sample_us(int threads);
double arithmetic_sample_flops(int threads);

#endif
