/* The JSON file: everything the table has, every sample, and what is needed to repeat the run. */
#ifndef BENCH_REPORT_H
#define BENCH_REPORT_H

#include <stdio.h>

#include "common/run_head.h"
#include "options.h"
#include "rows.h"

typedef struct report_run {
    const decode_options *options;
    const run_head *head;
} report_run;

void report_write(FILE *file, const report_run *run, const bench_result *results, int count);

#endif
