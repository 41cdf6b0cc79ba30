/* Measuring exchanges of one size, on all ranks: run.c does it, exchange.c prints it. */
#ifndef BENCH_EXCHANGE_RUN_H
#define BENCH_EXCHANGE_RUN_H

#include <stdint.h>

#include <treeattn/treeattn.h>

/* What is measured: kinds of exchange by their number, and under mpirun two calls of MPI. */
enum {
    WAY_ALL_REDUCE = TA_EXCHANGE_DIRECT + 1, /* MPI_Allreduce of as many bytes, a sum of f32 */
    WAY_ALL_GATHER,                          /* MPI_Allgather of as many bytes from each rank */
    WAYS
};

/* One size, and what came of it. */
typedef struct exchange_row {
    int ranks, heads, dim, iterations, warmup, repeat, check;
    ta_placement placement;
    int ways;
    int way[WAYS];         /* [ways] */
    double *us[WAYS];      /* [iterations] of each: a step, the slowest rank's */
    double bytes[WAYS];    /* received by the busiest rank in a step, as the group counts */
    double messages[WAYS]; /* likewise */
    int64_t wrong[WAYS];   /* results of all ranks */
    int64_t checked;       /* of each way */
} exchange_row;

/* Measure it, on threads or under mpirun (bench/common/launch.h). */
ta_status exchange_run(exchange_row *row);

#endif
