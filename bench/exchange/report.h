/* A row of `treeattn-bench exchange`, a line for each kind: in the table, as JSON, with commas. */
#ifndef BENCH_EXCHANGE_REPORT_H
#define BENCH_EXCHANGE_REPORT_H

#include "common/run_files.h"
#include "common/run_head.h"
#include "options.h"

/* Where rows go, and what is known of them all. */
typedef struct exchange_report {
    const exchange_options *options;
    run_files files;
    json_writer json;
    double disturbed; /* the most that other programs used of the CPUs in a row */
    int wrong;        /* was a result? */
} exchange_report;

/* The head of the table and of the files, which are open; and their end. */
void exchange_report_begin(exchange_report *report, const run_head *head);
void exchange_report_end(exchange_report *report);

/* One size. `others`: the part of the CPUs that other programs used; -1: not known. Returns the
 * number of wrong results, or -1 without memory. */
int64_t exchange_report_row(exchange_report *report, const exchange_row *row, double others);

/* What of a row could not be measured, and why. */
void exchange_report_left_out(const exchange_row *row);

#endif
