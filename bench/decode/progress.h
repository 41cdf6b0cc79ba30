/* The progress line: what is being done, on standard error if that is a terminal, gone when
 * done. */
#ifndef BENCH_PROGRESS_H
#define BENCH_PROGRESS_H

#include "options.h"

typedef struct progress {
    int enabled;
    int row, rows; /* from 0 */
    const bench_case *shape;
} progress;

void progress_init(progress *p, int rows);

/* Something other than a row is going on. */
void progress_say(const progress *p, const char *what);

/* For measure_row(); `context` is the progress. */
void progress_row(void *context, double done);

void progress_clear(const progress *p);

#endif
