/* What the files that time a row share: timing.c makes the row's state and sums it up,
 * rank_timing.c is one rank's way through it, step_timing.c its words. */
#ifndef BENCH_LLAMA_TIMING_PARTS_H
#define BENCH_LLAMA_TIMING_PARTS_H

#include <pthread.h>

#include "common/bandwidth.h"
#include "common/parallel.h"
#include "timing.h"

/* What ranks share. */
typedef struct row_run {
    const llama_timing *timing;
    llama_result *result;
    barrier together;
    pthread_mutex_t lock;
    decoder **decoders; /* [ranks] */
    const llama_part **parts;
    reader_team *readers;
    double *read_us; /* [new_words] */
    double swept_bytes;
    double library_us, library_flops; /* of all ranks: products by the matrix library alone */
} row_run;

/* One rank's. */
typedef struct rank_run {
    row_run *run;
    int rank;
    decoder *d;
    float *logits, *first_logits; /* of this algorithm, and of the first */
} rank_run;

/* Wait for the other ranks; not 0 if one of them has failed. */
int row_gather(row_run *run, int asleep);

/* Of all ranks: the largest, or NaN if one was given; and the sum. */
void row_keep_most(row_run *run, double *most, double value);
void row_add(row_run *run, double *sum, double value);

/* The larger of two, or NaN if one of them is. */
double larger_or_nan(double a, double b);

/* Where time went between two looks, as parts of all of it, for so many steps. */
void row_add_shares(row_run *run, const decoder_times *before, const decoder_times *after,
                    int64_t steps, double *linear, double *attend, double *exchange);

/* A rank of launch_run(), with a row_run. (rank_timing.c) */
ta_status rank_timing(ta_group *group, void *context);

/* The readers of this process, when all ranks have their caches; by one of them. The words after
 * the prompt, whose logits are r->first_logits. (step_timing.c) */
ta_status step_make_readers(row_run *run);
ta_status step_time_words(rank_run *r);

/* How far logits are from others; NaN if one of them is none, or not finite. */
double logits_apart(const float *a, const float *b, int32_t count);

/* Keep the logits that follow the prompt (0) or word `step`, where --logits asks for them. */
void step_keep_logits(const rank_run *r, int64_t step);

#endif
