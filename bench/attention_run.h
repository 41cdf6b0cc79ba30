/* One row of `treeattn-bench attention`: forward and backward of one sequence on ranks that are
 * threads, alternating with the FMA loop on as many threads. */
#ifndef BENCH_ATTENTION_RUN_H
#define BENCH_ATTENTION_RUN_H

#include <stddef.h>
#include <stdint.h>

#include <treeattn/treeattn.h>

enum { PASS_FORWARD, PASS_BACKWARD, PASSES };

typedef struct attention_row {
    int32_t tokens, query_heads, kv_heads, head_dim;
    ta_dtype dtype;
    int ranks, threads, columns; /* columns 0: the plan chooses */
    ta_attention_algorithm algorithm;
    ta_shard_kind map;
    int32_t block; /* 0: the plan's default */
    ta_mask mask;
    int iterations, warmup;
    const char *simd;
} attention_row;

/* The inputs are functions of their place, see attention_input_row(). */
enum { INPUT_Q, INPUT_K, INPUT_V, INPUT_DOUT, INPUTS };

/* Results of the whole sequence, dense [token][head][dim]. */
typedef struct attention_data {
    double *out, *lse, *dq, *dk, *dv;
} attention_data;

typedef struct attention_times {
    double *pass_us[PASSES], *peak_us; /* [iterations] */
    double peak_flops;                 /* of one sample of peak_us */
    double pass_flops[PASSES];
    uint64_t bytes[PASSES], messages[PASSES]; /* of the busiest rank, received */
} attention_times;

/* head_dim numbers of one token and head of an input. */
void attention_input_row(const attention_row *row, int input, int32_t token, int32_t head,
                         double *numbers);

int attention_data_make(attention_data *data, const attention_row *row);
void attention_data_free(attention_data *data);

/* Run the row. On failure `error` has the sentence. */
ta_status attention_run(const attention_row *row, attention_data *data, attention_times *times,
                        char *error, size_t capacity);

/* The map with the block that the plan uses. */
ta_shard_map attention_map(const attention_row *row);

#endif
