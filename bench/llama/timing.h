/* Timing one row: a prompt once, then each new word by all algorithms in turn, and a read of the
 * same bytes after them. llama.c runs rows, summary.c prints them; timing_parts.h has how. */
#ifndef BENCH_LLAMA_TIMING_H
#define BENCH_LLAMA_TIMING_H

#include "common/machine.h"
#include "common/stats.h"
#include "flags.h"

typedef struct llama_row {
    int ranks, threads;
    int32_t tokens; /* of the prompt */
} llama_row;

/* What one algorithm did. Shares are parts of the time of its steps, means over the ranks. */
typedef struct llama_steps {
    const char *name;
    double *us; /* [new_words]: each step, of the slowest rank */
    bench_stats stats;
    bench_interval ratio; /* of each step to the first algorithm's of the same word */
    double linear_share, attend_share, exchange_share;
    double bytes, messages; /* that the busiest rank sends or receives, for each word */
    double fraction;        /* of the bandwidth of reading; 0: not measured */
    double difference;      /* largest, of its logits from those of the first algorithm; NaN if
                             * one of them is not a finite number */
} llama_steps;

typedef struct llama_result {
    llama_row row;
    double prefill_us, prefill_linear_share, prefill_attend_share, prefill_exchange_share;
    double prefill_gflops; /* of products with weights, all ranks together */
    /* What the matrix library does on such products alone, counted likewise, and the former over
     * it; 0: not measured. */
    double library_gflops, prefill_fraction;
    double weight_bytes, cache_bytes, other_bytes; /* memory of the fullest rank */
    double step_weight_bytes; /* of them, what a step of the rank that reads most reads */
    double step_bytes;        /* of weights and cache that a step of all ranks reads */
    double read_gbps;         /* 0: not measured */
    double others;            /* part of the CPUs that other programs used; -1: not known */
    int algorithms;
    llama_steps steps[DECODER_ALGORITHMS];
    char products[2][64]; /* what computed those of one row, and of many */
    int32_t *words;       /* [new_words + 1]: that were chosen, the first by the prompt */
    float *logits;        /* [new_words + 1][vocabulary], the first of the prompt; NULL: not kept */
} llama_result;

typedef struct llama_timing {
    const llama_flags *flags;
    const bench_machine *machine;
    const llama_weights *weights;
    const int32_t *prompt; /* [row.tokens] */
} llama_timing;

/* Returns TA_OK, or an error with a sentence in `error`. Free the result in any case. */
ta_status llama_time_row(const llama_timing *timing, llama_result *result, char *error,
                         size_t capacity);
void llama_result_free(llama_result *result);

#endif
