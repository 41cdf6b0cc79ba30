/* The check of a row's results, on the benchmark's own terms: a fixed sample of rows against double
 * precision, every other output against what no weighted mean of V can be. */
#ifndef BENCH_CHECK_OUTPUT_H
#define BENCH_CHECK_OUTPUT_H

#include "common/machine.h"
#include "kv_cache.h"
#include "rank_tensors.h"
#include "rows.h"

/* Set `checked`, `wrong` and `worst` of the result. Returns -1 without memory or threads. */
int check_result(const decode_options *options, const bench_machine *machine,
                 const kv_layout *layout, const rank_tensors *tensors, bench_result *result);

#endif
