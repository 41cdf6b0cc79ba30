/* What the commands that measure a table of rows have in common: flags, and how a row's number
 * becomes its index on each axis. decode/options.c and attention/options.c use it. */
#ifndef BENCH_SWEEP_H
#define BENCH_SWEEP_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <treeattn/treeattn.h>

#include "args.h"
#include "machine.h"

extern const char *const sweep_scaling_words[];

/* Values of a flag `scaling`: are the lengths those of the sequence, or of each rank's part? */
enum { SCALING_STRONG, SCALING_WEAK };

/* Sequence lengths from begin to end, each `factor` times the one before. */
typedef struct sweep_lengths {
    int64_t begin, end, factor;
} sweep_lengths;

/* What was asked for: the options of a command begin with it. */
typedef struct sweep_options {
    sweep_lengths lengths; /* tokens of a sequence, over all ranks */
    int64_t scaling, iterations, warmup, check;
    /* One row for each combination; no threads: sweep_threads() finds how many. */
    arg_list ranks, threads, dtypes, heads, kv_heads;
    const char *device, *simd;
    const char *json;
    int64_t help;
} sweep_options;

/* Its flags. */
extern const arg_flag sweep_flags[];

/* Read the flags of a command into its options, which begin with `sweep` and have the defaults.
 * Then fill in what follows from others: the lengths, and with MPI the ranks. Returns 0, or -1
 * with a sentence in `error`. */
int sweep_parse(sweep_options *sweep, const arg_flag *const *tables, int argc, char **argv,
                char *error, size_t capacity);

int64_t sweep_count(const sweep_lengths *lengths);

/* With MPI each process is a rank, and that is how many there are: `ranks` must say so if the flag
 * was given, and does afterwards. Returns 0, or -1 with a sentence in `error`. */
int sweep_use_processes(arg_list *ranks, int given, char *error, size_t capacity);

/* The list with one number. */
arg_list sweep_one(int64_t value);

/* Take the next digit off a row's number: which of `count` values it has on one axis. */
int64_t sweep_digit(int64_t *number, int64_t count);

/* The tokens of the sequence in the row with this digit, on so many ranks. */
int32_t sweep_tokens(const sweep_lengths *lengths, int64_t digit, int64_t scaling, int ranks);

/* Threads of each rank: `given`, or if that is 0 the CPUs divided by the ranks on this host. */
int sweep_threads(int64_t given, const bench_machine *machine, int ranks);

/* What no flag can check alone; -1 with a sentence in `error`. */
int sweep_check(const sweep_options *sweep, char *error, size_t capacity);
int sweep_check_dim(const char *flag, int64_t dim, char *error, size_t capacity);

#endif
