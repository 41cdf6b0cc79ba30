/* A program that is run and listened to: its output is kept, its time is bounded. */
#ifndef BENCH_CHILD_H
#define BENCH_CHILD_H

#include <stddef.h>

typedef enum child_end {
    CHILD_EXITED,  /* `code` is its exit code */
    CHILD_KILLED,  /* by signal `code` */
    CHILD_TOO_LONG /* it was ended after its time; `code` is 0 */
} child_end;

typedef struct child_result {
    child_end end;
    int code;
    double seconds;
    char *output; /* standard output and error, the last CHILD_OUTPUT bytes; free() it */
} child_result;

enum { CHILD_OUTPUT = 1 << 16 };

/* Run argv[0] (a path), with a NULL behind the last argument. Returns 0, or -1 with a sentence in
 * `error` if it could not be started; then the result has nothing to free. */
int child_run(char *const argv[], double most_seconds, child_result *result, char *error,
              size_t capacity);

#endif
