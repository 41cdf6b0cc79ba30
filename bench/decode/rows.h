/* What is known about a row once it has been run: the samples, what they come to, and the check's
 * verdict. measure.c and check_output.c fill it in, table.c and report.c write it out. */
#ifndef BENCH_ROWS_H
#define BENCH_ROWS_H

#include <stdint.h>

#include <treeattn/treeattn.h>

#include "common/stats.h"
#include "options.h"

/* What a row cost one rank. */
typedef struct rank_cost {
    uint64_t step_ns, attend_ns; /* of all counted steps */
    uint64_t peak_bytes;         /* of device memory, K and V included */
    uint64_t device_attend_ns;   /* of the timed steps, by a GPU's clock */
} rank_cost;

/* What the model says of a row, on the cluster of --cluster. */
typedef struct row_prediction {
    char *cluster; /* its text; NULL: nothing was predicted */
    const char *exchange;
    double step_us, attend_us, messages, bytes, peak_bytes;
} row_prediction;

typedef struct bench_result {
    bench_case row;
    const char *algorithm;
    double kv_bytes; /* bytes of K and V that one step must read */
    /* Memory of K and V, and how much of it is in huge pages; -1: not known. */
    double mapped_bytes, huge_bytes;

    int samples;               /* of each of the two series */
    double *step_us, *read_us; /* [samples] */
    double *fma_us;            /* [samples], of the loop of multiply-adds; 0 on GPUs */
    double flops;              /* operations of a step */
    bench_stats fma_fraction;  /* of that loop's rate, sample by sample; NaN on GPUs */
    bench_stats step, read;    /* of the series */
    bench_stats fraction;      /* of the quotients of the two, sample by sample */
    const char *read_loop;     /* that the reading threads used */
    ta_group_stats *exchanged; /* [ranks], divided by `counted_steps` */
    rank_cost *costs;          /* [ranks] */
    uint64_t counted_steps;    /* steps that these two are the sum of */
    bench_interval ratio;      /* of each step to the first algorithm's of the same turn */
    double others;             /* part of the CPUs that other programs used; -1: not known */
    int device_clock;          /* times are of events on GPUs */
    int divided;               /* it is known how a step divides into attending and the rest */
    row_prediction predicted;
    char *plan; /* what ta_explain() says on rank 0 */

    int64_t checked, wrong; /* elements; -1 if there was no check */
    double worst;           /* the largest error as a multiple of its tolerance */
} bench_result;

/* The columns that are computed; docs/benchmarks.md derives them. */
double result_kv_gbps(const bench_result *result);
double result_read_gbps(const bench_result *result);
double result_best_fraction(const bench_result *result);

/* Of the rank that sends or receives the most, per step. */
double result_exchanged_bytes(const bench_result *result);
double result_messages(const bench_result *result);

/* Time of a step that ranks attend, and that they move, merge and wait; means over the ranks. */
double result_attend_us(const bench_result *result);
double result_exchange_us(const bench_result *result);

/* Of the rank that holds the most. */
double result_peak_bytes(const bench_result *result);

void result_free(bench_result *result);

#endif
