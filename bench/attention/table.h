/* The table and the JSON rows of `treeattn-bench attention`; docs/benchmarks.md has the columns. */
#ifndef BENCH_ATTENTION_TABLE_H
#define BENCH_ATTENTION_TABLE_H

#include "common/json.h"
#include "common/run_head.h"
#include "options.h"
#include "times.h"

void attention_table_header(const attention_options *options, const bench_machine *machine,
                            int rows, const rank_place *places, int ranks);
void attention_table_pass(const attention_options *options, const attention_row *row,
                          const attention_times *times, int pass, const pass_result *result);

/* What the columns mean, and that the machine was not quiet: `disturbed` is the most that other
 * programs used of its CPUs. */
void attention_table_footer(const attention_options *options, double disturbed);

void attention_json_pass(json_writer *json, const attention_row *row, const attention_times *times,
                         int pass, const pass_result *result);

/* The words of the column `pass`. */
const char *attention_pass_name(int pass);

#endif
