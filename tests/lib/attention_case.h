/* A case of attention over full sequences: random inputs, the exact results with their bounds, and
 * a run of it on any number of ranks. Everything that the library must not read is poisoned. */
#ifndef TESTS_ATTENTION_CASE_H
#define TESTS_ATTENTION_CASE_H

#include <treeattn/attention.h>

#include "gradient.h"
#include "random.h"

#define ATTENTION_SEQUENCES 4

/* Of a weighted shard map, for as many ranks as there are. */
extern const int32_t attention_weights[16];

typedef struct attention_case {
    uint64_t seed;
    oracle_problem problem; /* query_tokens is set for each sequence */
    ta_dtype dtype;
    int sequences;
    int32_t lengths[ATTENTION_SEQUENCES];
    double *q[ATTENTION_SEQUENCES], *k[ATTENTION_SEQUENCES], *v[ATTENTION_SEQUENCES];
    double *dout[ATTENTION_SEQUENCES];
    gradient_sequence exact[ATTENTION_SEQUENCES]; /* for `ranks` ranks at most */
} attention_case;

/* How it is run. */
typedef struct attention_run {
    int ranks, grid_rows, grid_columns;
    ta_attention_algorithm algorithm;
    ta_shard_kind kind;
    int32_t block;
    int threads;
    const char *simd;
    double *(*kept)[ATTENTION_SEQUENCES]; /* if not NULL: results of each kind and sequence */
} attention_run;

/* The worst error in units of its bound: of out, lse, dq, dk, dv. */
typedef struct attention_result {
    double worst[5];
    uint64_t bits;          /* of all results, mixed: the same if all bits are the same */
    ta_group_stats traffic; /* of rank 0: forward, then backward */
    ta_group_stats traffic_backward;
} attention_result;

/* Fill in inputs from the seed, with what the other fields say; then the exact results. */
void attention_case_make(attention_case *c, int ranks);
void attention_case_free(attention_case *c);

/* Any shape, lengths, mask and dtype; any ranks, grid, layout and algorithm. */
attention_case attention_random_case(uint64_t seed);
attention_run attention_random_run(uint64_t seed);

/* The same of other sizes: of those dimensions, up to so many heads, and so much work. */
typedef struct attention_sizes {
    const int *dims;
    int dim_count;
    int kv_heads, heads_per_kv_head;
    int window;
    int least_sequences;
    int work; /* tokens · (dimensions + 40) · query heads of a sequence */
    int longest;
} attention_sizes;
attention_case attention_random_sized(uint64_t seed, const attention_sizes *sizes);

/* As one line, for messages. */
const char *attention_describe(const attention_case *c, const attention_run *run);

/* Forward and backward on ranks that are threads, or with a group as this rank of it: then the
 * result is of its own tokens. */
ta_status attention_run_group(const attention_case *c, const attention_run *run, ta_group *group,
                              attention_result *result);

#endif
