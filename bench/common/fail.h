/* How a command ends with an error: a sentence for people, an exit code, and under MPI no process
 * that waits for one that has left. */
#ifndef BENCH_FAIL_H
#define BENCH_FAIL_H

#include <treeattn/treeattn.h>

#include "exit_code.h"

/* What all processes find at once: each ends by itself, and the first one says why. Behind wrong
 * usage comes where the command's help is. Both return `code`. */
__attribute__((format(printf, 3, 4))) int fail_alike(const char *command, int code,
                                                     const char *format, ...);

/* What one process may find alone: it says so, and ends all of them. */
__attribute__((format(printf, 3, 4))) int fail_alone(const char *command, int code,
                                                     const char *format, ...);

/* For all processes together, whatever they found: the largest of their codes, for the sentence of
 * one that has it. With EXIT_OK from all nothing is said. */
int fail_agree(const char *command, int code, const char *sentence);

/* The exit code for an error of the library. */
int fail_code(ta_status status);

#endif
