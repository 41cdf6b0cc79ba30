/* The query, output and log-sum-exp of each rank of a row, where the placements put them. */
#ifndef BENCH_RANK_TENSORS_H
#define BENCH_RANK_TENSORS_H

#include <stdint.h>

#include "options.h"

/* What one rank has of the query or of the output. */
typedef struct head_part {
    void *data; /* NULL: nothing */
    int first_head, heads;
} head_part;

typedef struct rank_tensors {
    head_part query, out;
    float *lse; /* of the heads of `out` */
} rank_tensors;

/* Bytes of all ranks' tensors of a row. */
double tensors_bytes(const decode_options *options, const bench_case *row);

/* The tensors of all ranks. Query values are within ±QUERY_RANGE and the same wherever a head is
 * placed. NULL without memory, or if a placement is refused. */
rank_tensors *tensors_make(const decode_options *options, const bench_case *row);
void tensors_free(rank_tensors *tensors, const bench_case *row);

/* Fill a rank's output with NaN, so that a result which is not written cannot pass for one. */
void tensors_poison(rank_tensors *tensors, const decode_options *options, const bench_case *row);

/* With K in [-1, 1] and the scale 1 / sqrt(head dimension), scores then have a standard
 * deviation of about 8 / 3: the softmax is neither flat nor decided by one key. */
#define QUERY_RANGE 8.0f

/* The query of one head and query token, from its definition: k_dim numbers. */
void tensors_query_row(const decode_options *options, const bench_case *row, int64_t token_row,
                       int head, double *values);

#endif
