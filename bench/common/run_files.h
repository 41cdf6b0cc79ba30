/* The files of --json and --csv, which the first process writes. */
#ifndef BENCH_RUN_FILES_H
#define BENCH_RUN_FILES_H

#include <stddef.h>
#include <stdio.h>

typedef struct run_files {
    FILE *json, *csv; /* NULL: not asked for, or not here */
} run_files;

/* Open those that are asked for, where the names are not NULL. A JSON file of "-" is standard
 * output, and what is printed from then on goes to standard error. Both return an exit code, and a
 * sentence where that is not EXIT_OK. */
int run_files_open(run_files *files, const char *json, const char *csv, char *error,
                   size_t capacity);
int run_files_close(run_files *files, char *error, size_t capacity);

#endif
