/* Run one row: its ranks as threads, decode steps and read sweeps in alternation. */
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
    rank_tensors *tensors;
    measure_progress_fn progress;
    void *progress_context;
} measurement;

/* Fill in everything of the result but the check; its `row` is set by the caller, and
 * result_free() may be called whatever happens. Afterwards the tensors hold the output of one
 * more step that began with NaN in its place. On failure `error` has the sentence. */
ta_status measure_row(const measurement *m, bench_result *result, char *error, size_t capacity);

#endif
