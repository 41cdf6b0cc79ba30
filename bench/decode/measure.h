/* Run the rows of one work, which differ in their algorithm: ranks as threads, steps of the
 * algorithms by turns, and read sweeps between them. */
#ifndef BENCH_MEASURE_H
#define BENCH_MEASURE_H

#include "common/machine.h"
#include "kv_cache.h"
#include "rank_tensors.h"
#include "rows.h"

/* Called now and then on some thread with the part of the row that is done, 0 to 1. */
typedef void (*measure_progress_fn)(void *context, double done);

typedef struct measurement {
    const decode_options *options;
    const bench_machine *machine;
    const kv_layout *layout;
    rank_tensors *const *tensors; /* of each row */
    measure_progress_fn progress;
    void *progress_context;
} measurement;

/* Fill in everything of `count` results but the check; their `row` is set by the caller, and
 * result_free() may be called whatever happens. Afterwards the tensors of each row hold the output
 * of one more step that began with NaN in its place. On failure `error` has the sentence. */
ta_status measure_rows(const measurement *m, bench_result *results, int count, char *error,
                       size_t capacity);

#endif
