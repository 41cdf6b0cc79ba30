/* Measuring exchanges of one size, on all ranks: run.c does it, rank.c has what a rank needs for
 * it, exchange.c prints it. */
#ifndef BENCH_EXCHANGE_RUN_H
#define BENCH_EXCHANGE_RUN_H

#include <stdint.h>

#include <treeattn/treeattn.h>

/* What is measured: kinds of exchange by their number, the least that one in shared memory does,
 * and what they are compared with: under mpirun two calls of MPI, on GPUs two of the group, and
 * NCCL's own. */
enum {
    WAY_BARE = TA_EXCHANGE_MULTI_LEVEL + 1, /* see bare.h */
    WAY_MPI_REDUCE,                         /* MPI_Allreduce of as many bytes, a sum of f32 */
    WAY_MPI_GATHER,                         /* MPI_Allgather of as many bytes from each rank */
    WAY_GROUP_REDUCE,                       /* the same by ta_all_reduce() */
    WAY_GROUP_GATHER,                       /* and ta_all_gather() */
    WAY_CCL_REDUCE,                         /* ncclAllReduce() of as many bytes, likewise */
    WAYS
};

#define EXCHANGE_WHY 200

/* One size, and what came of it. */
typedef struct exchange_row {
    int ranks, heads, dim, iterations, warmup, repeat, check;
    ta_placement placement;
    const char *device;  /* "host", or a kind of GPU, of which each rank takes one */
    int gpu, ccl;        /* it is one; connected by NCCL or RCCL */
    const char *cluster; /* "probe", a description, or NULL */
    int ways;
    int way[WAYS];                /* [ways] */
    int optional[WAYS];           /* leave it out where no plan of it can be made, */
    char why[WAYS][EXCHANGE_WHY]; /* and say why; "": it was measured */
    void *shared;                 /* for WAY_BARE */
    double *us[WAYS];             /* [iterations] of each: a step, the slowest rank's */
    double bytes[WAYS];           /* received by the busiest rank in a step, as the group counts */
    double messages[WAYS];        /* likewise */
    int64_t wrong[WAYS];          /* results of all ranks */
    int64_t checked;              /* of each way */
} exchange_row;

/* Measure it, on threads or under mpirun (bench/common/launch.h). */
ta_status exchange_run(exchange_row *row);

#endif
