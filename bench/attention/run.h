/* The rows of one work of `treeattn-bench attention`: forward and backward of one sequence on ranks
 * that are threads or MPI processes, by each algorithm in turn, on the host alternating with an
 * FMA loop on as many threads. */
#ifndef BENCH_ATTENTION_RUN_H
#define BENCH_ATTENTION_RUN_H

#include <stddef.h>
#include <stdint.h>

#include <treeattn/attention.h>

#include "common/rank_device.h"

enum { PASS_FORWARD, PASS_BACKWARD, PASSES };

typedef struct attention_row {
    int32_t tokens, query_heads, kv_heads, head_dim;
    ta_dtype dtype;
    int ranks, threads, columns;      /* columns 0: the plan chooses */
    ta_attention_algorithm algorithm; /* TA_ATTENTION_AUTO: the plan chooses, by the cluster */
    ta_shard_kind map;
    int32_t block; /* 0: the plan's default */
    ta_mask mask;
    int iterations, warmup;
    rank_device_config device; /* of each rank */
    int gpu;
    const ta_cluster *cluster; /* NULL: none */
} attention_row;

typedef struct attention_times {
    double *pass_us[PASSES], *peak_us; /* [iterations]; all rows of a work have one peak_us; on GPUs
                                        * there is no such loop */
    double peak_flops;                 /* of one sample of peak_us */
    double pass_flops[PASSES];
    double bytes[PASSES], messages[PASSES]; /* received in a call, each of the busiest rank */
    /* Time of a call that ranks attend, and that they move, merge and wait; means over the ranks
     * and all calls. NaN on GPUs: the host sees how long it takes to queue them. */
    double attend_us[PASSES], exchange_us[PASSES];
    double peak_bytes; /* of device memory, of the fullest rank: tensors and the plan's */
    /* What the plan runs, and with a cluster the predicted time of a call. */
    ta_attention_algorithm algorithm;
    int grid_rows, grid_columns;
    double model_us[PASSES];
} attention_times;

/* How far the results of a pass are from exact ones. */
typedef struct attention_verdict {
    int64_t checked, wrong;
    double worst; /* error in units of the tolerance */
} attention_verdict;

/* Run `count` rows of the same work. times[i] has its arrays, the rest is filled in; so are
 * verdicts[i], unless that is NULL: no check. On failure `error` has the sentence. With MPI all
 * processes get all results. */
ta_status attention_run(const attention_row *rows, int count, attention_times *times,
                        attention_verdict (*verdicts)[PASSES], char *error, size_t capacity);

#endif
