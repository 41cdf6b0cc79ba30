/* Timing one row: a prompt once, then each new word by all algorithms in turn, and a read of the
 * same bytes after them. llama.c runs rows, summary.c prints them. */
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
    ta_algorithm algorithm;
    double *us; /* [new_words]: each step, of the slowest rank */
    bench_stats stats;
    double ratio; /* median over that of the first algorithm */
    double linear_share, attend_share, exchange_share;
    double bytes, messages; /* that the busiest rank sends or receives, for each word */
    double fraction;        /* of the bandwidth of reading; 0: not measured */
    double difference;      /* largest, of its logits from those of the first algorithm */
} llama_steps;

typedef struct llama_result {
    llama_row row;
    double prefill_us, prefill_linear_share, prefill_attend_share, prefill_exchange_share;
    double prefill_gflops; /* of products with weights, all ranks together */
    double weight_bytes, cache_bytes, other_bytes; /* memory of the fullest rank */
    double step_bytes;                             /* of weights and cache that a step reads */
    double read_gbps;                              /* 0: not measured */
    int algorithms;
    llama_steps steps[DECODER_ALGORITHMS];
    int32_t *words; /* [new_words + 1]: that were chosen, the first by the prompt */
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
