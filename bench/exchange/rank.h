/* What a rank has while one size is measured: device, group, memory and plans. run.c uses it. */
#ifndef BENCH_EXCHANGE_RANK_H
#define BENCH_EXCHANGE_RANK_H

#include "bare.h"
#include "device/ccl_own.h"
#include "run.h"

typedef struct exchange_rank {
    exchange_row *row;
    int rank;
    ta_group *launched; /* of host memory, in which the ranks meet */
    ta_group *group;    /* of the plans: that, or one of GPUs */
    ta_device *device;
    const ta_ccl_own_ops *ccl_own; /* of a group of NCCL or RCCL */
    ta_cluster *cluster;           /* or NULL */
    ta_plan *plans[WAYS];
    int left_out[WAYS];
    int64_t values;
    /* Of the device. `other`: what calls that are no exchange read and write; its first floats are
     * as many as a partial has, then those of all ranks. */
    float *part, *lse, *out, *other;
    float *results; /* of the host: `out`, or a copy */
    bare_rank bare;
    double *us[WAYS]; /* [iterations], this rank's */
} exchange_rank;

/* Value i of a rank's partial: small whole numbers with equal weights, whose mean is known. */
float exchange_value(int64_t i, int rank);

/* Collective. Whatever it returns, end with exchange_rank_close(). */
ta_status exchange_rank_open(exchange_rank *r, exchange_row *row, ta_group *launched);
void exchange_rank_close(exchange_rank *r);

/* The results of the last step to `results`; or nothing but NaN to where the next will write. */
ta_status exchange_rank_fetch(exchange_rank *r);
ta_status exchange_rank_poison(exchange_rank *r);

#endif
