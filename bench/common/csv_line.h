/* Comma-separated values, one field after the other. decode/csv.c and attention/csv.c have the
 * lists of fields. "nan" is how the system writes what is not known; most programs read it as
 * missing. */
#ifndef BENCH_CSV_LINE_H
#define BENCH_CSV_LINE_H

#include <stdio.h>

typedef struct csv_line {
    FILE *file;
    int fields; /* so far */
} csv_line;

__attribute__((format(printf, 2, 3))) void csv_field(csv_line *line, const char *format, ...);

/* The next field begins another line. */
void csv_end(csv_line *line);

/* In a list of fields, X(name, format, value): a bench_stats of microseconds, and how they compare
 * with those of the first algorithm, a bench_interval. */
#define CSV_TIME_FIELDS(X, us, ratio)                                                              \
    X("min_us", "%.9g", (us).min)                                                                  \
    X("median_us", "%.9g", (us).median)                                                            \
    X("p99_us", "%.9g", (us).p99)                                                                  \
    X("ratio", "%.9g", (ratio).median)                                                             \
    X("ratio_low", "%.9g", (ratio).low)                                                            \
    X("ratio_high", "%.9g", (ratio).high)

/* For the head and for a line: of the csv_line `line`, which they see. */
#define CSV_NAME(name, format, value) csv_field(&line, "%s", name);
#define CSV_VALUE(name, format, value) csv_field(&line, format, value);

#endif
