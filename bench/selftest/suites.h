/* What the self-test runs: test programs of the library, each with a device. */
#ifndef BENCH_SUITES_H
#define BENCH_SUITES_H

#include <stddef.h>

#include "child.h"

typedef struct selftest_suite {
    const char *name;     /* as --only has it */
    const char *program;  /* in the directory of the test programs */
    const char *what;     /* one line for people */
    int groups;           /* also runs with a GPU for each rank, joined by NCCL or RCCL */
    int every_device;     /* also runs on the second and later devices of a kind */
    const char *exchange; /* of all trees, which need several GPUs; NULL: as they are drawn */
} selftest_suite;

/* Number `i`, or NULL after the last. */
const selftest_suite *suite_get(int i);

/* How a suite is run. */
typedef struct suite_run {
    const selftest_suite *suite;
    const char *device;
    int ranks; /* 0: ranks share the device; otherwise so many devices, one for each */
    int quick;
} suite_run;

/* What came of it. */
typedef struct suite_result {
    int tests, failures, ignored;
    int passed;    /* every test did, in time */
    char end[120]; /* in words: "passed", "failed", "ended by signal 11", … */
    char command[512];
    child_result child;
} suite_result;

/* The directory of the test programs: of this installation, or of this build. Returns 0, or -1 with
 * a sentence in `error`. */
int suite_find_programs(char *directory, size_t capacity, char *error, size_t error_capacity);

/* Run it. Returns 0 if it could be started, and then free result->child.output. */
int suite_start(const char *directory, const suite_run *run, double most_seconds,
                suite_result *result, char *error, size_t capacity);

/* The next line of `*text` that begins with one of the words of a report (errors in units of their
 * bounds, cases left out, failures), as a copy in `line`. Returns 0 after the last. */
int suite_next_line(const char **text, int failures, char *line, size_t capacity);

#endif
