/* One row of attention (one query token and head) in double precision, straight from the
 * definition, and how far a right result may be from it. The library has no part in it. */
#ifndef BENCH_EXACT_ROW_H
#define BENCH_EXACT_ROW_H

#include "kv_cache.h"

#define EXACT_MAX_DIM 576

typedef struct exact_row {
    double out[EXACT_MAX_DIM], out_tolerance[EXACT_MAX_DIM];
    double lse, lse_tolerance;
} exact_row;

/* A key that the row sees, while it is being computed. */
typedef struct exact_key {
    kv_vectors at;
    double score, products_square;
} exact_key;

/* Compute a row. `token_row` is sequence · query tokens + query token; `keys` is memory for as
 * many keys as the sequence has tokens. */
void exact_row_compute(const decode_options *options, const kv_layout *layout, int64_t token_row,
                       int head, exact_key *keys, exact_row *row);

#endif
