/* The table and the JSON rows of `treeattn-bench attention`; docs/benchmarks.md has the columns. */
#ifndef BENCH_ATTENTION_TABLE_H
#define BENCH_ATTENTION_TABLE_H

#include "check.h"
#include "common/json.h"
#include "common/stats.h"
#include "options.h"

/* Numbers of one row and pass. */
typedef struct pass_result {
    bench_stats us;
    double gflops, peak, fraction;
    double ratio; /* of the median to that of the first algorithm at this work */
    attention_verdict verdict;
} pass_result;

void attention_table_header(const attention_options *options, const bench_machine *machine,
                            int rows);
void attention_table_pass(const attention_options *options, const attention_row *row,
                          const attention_times *times, int pass, const pass_result *result);
void attention_json_pass(json_writer *json, const attention_row *row, const attention_times *times,
                         int pass, const pass_result *result);

#endif
