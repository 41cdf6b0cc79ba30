/* The numbers of a row of `treeattn-bench attention`: how much work a pass is, what the processes
 * found together, and what the samples come to. run.c takes the samples. */
#ifndef BENCH_ATTENTION_TIMES_H
#define BENCH_ATTENTION_TIMES_H

#include "common/stats.h"
#include "run.h"

/* Rounds of the FMA loop in one sample, on each thread: some milliseconds. */
#define ATTENTION_PEAK_ROUNDS 2000000

/* Numbers of one row and pass. */
typedef struct pass_result {
    bench_stats us;
    double gflops, peak, fraction; /* the last two are NaN on GPUs */
    bench_interval ratio; /* of each call to that of the first row of this work, in one round */
    double others;        /* part of the CPUs that other programs used; -1: not known */
    attention_verdict verdict;
} pass_result;

void attention_count_work(const attention_row *row, attention_times *times);

/* Bring the processes' numbers together, and add what the model says. */
ta_status attention_times_finish(const attention_row *rows, int count, attention_times *times,
                                 attention_verdict (*verdicts)[PASSES]);

/* All of the result but `others` and `verdict`; -1 without memory. */
int attention_summarize(const attention_row *row, const attention_times *times,
                        const attention_times *first, int pass, pass_result *result);

#endif
