/* The timed part of a row, on one rank: rank_steps.c. */
#ifndef BENCH_RANK_STEPS_H
#define BENCH_RANK_STEPS_H

#include "device_copy.h"
#include "rank_plan.h"
#include "samples.h"

/* What one rank needs for a step of one algorithm. */
typedef struct rank_run {
    row_run *run;
    bench_result *result;
    int rank;
    span *spans; /* of the algorithm */
    rank_plan opened;
    device_copy data;
    void *scratch; /* of a GPU, for read sweeps; of the first algorithm's device */
} rank_run;

/* A step, until its results are there. */
ta_status rank_step(rank_run *r);

/* Warm up; `all` are the rank's algorithms. Rank 0 then settles what is left open: the read loop
 * and the number of samples. */
ta_status rank_steps_warm_up(rank_run *all);

/* All samples; `r` is the first of all algorithms. */
ta_status rank_steps_alternate(rank_run *r);

#endif
