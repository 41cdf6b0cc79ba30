/* The rows of `treeattn-bench attention` as comma-separated values, a line for each pass. */
#ifndef BENCH_ATTENTION_CSV_H
#define BENCH_ATTENTION_CSV_H

#include <stdio.h>

#include "options.h"
#include "times.h"

void attention_csv_head(FILE *file);
void attention_csv_pass(FILE *file, const attention_options *options, const attention_row *row,
                        const attention_times *times, int pass, const pass_result *result);

#endif
