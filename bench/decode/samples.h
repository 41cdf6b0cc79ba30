/* From what ranks and readers noted to the numbers of a row: measure.c fills a row_run while it
 * measures, samples.c makes the results of it. */
#ifndef BENCH_DECODE_SAMPLES_H
#define BENCH_DECODE_SAMPLES_H

#include "common/bandwidth.h"
#include "common/parallel.h"
#include "measure.h"

/* A rank's step, in microseconds of the machine's clock. */
typedef struct span {
    double start, end;
} span;

/* The rows of one work, while they are measured. */
typedef struct row_run {
    const measurement *m;
    bench_result *result; /* the first of them */
    int count;            /* of results */
    reader_team *readers;
    barrier together; /* of the ranks */
    span *spans;      /* [count][most samples][ranks] */
    size_t most_samples;
    double *sweeps; /* [samples][ranks], on GPUs: each rank's read sweep */
} row_run;

/* What all rows share: sweeps of GPUs and of processes. */
void samples_reduce_sweeps(const row_run *run);

/* What the samples of one row come to. Returns -1 without memory. */
int samples_finish(const row_run *run, int index);

#endif
