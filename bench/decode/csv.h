/* The rows as comma-separated values, one line each with everything that a spreadsheet can plot. */
#ifndef BENCH_DECODE_CSV_H
#define BENCH_DECODE_CSV_H

#include <stdio.h>

#include "options.h"
#include "rows.h"

void csv_write(FILE *file, const decode_options *options, const bench_result *results, int count);

#endif
