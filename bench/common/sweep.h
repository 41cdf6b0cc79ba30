/* What the commands that measure a table of rows have in common: words of their flags, and how a
 * row's number becomes its place on each axis. decode/options.c and attention/options.c use it. */
#ifndef BENCH_SWEEP_H
#define BENCH_SWEEP_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <treeattn/treeattn.h>

#include "args.h"
#include "machine.h"

extern const char *const sweep_dtype_words[];
extern const ta_dtype sweep_dtype_values[];
extern const char *const sweep_scaling_words[];

/* Values of a flag `scaling`: are the lengths those of the sequence, or of each rank's part? */
enum { SCALING_STRONG, SCALING_WEAK };

/* Sequence lengths from begin to end, each `factor` times the one before. */
typedef struct sweep_lengths {
    int64_t begin, end, factor;
} sweep_lengths;

int64_t sweep_count(const sweep_lengths *lengths);

/* The list with one number. */
arg_list sweep_one(int64_t value);

/* Take the next digit off a row's number: which of `count` values it has on one axis. */
int64_t sweep_digit(int64_t *number, int64_t count);

/* The tokens of the sequence in the row with this digit, on so many ranks. */
int32_t sweep_tokens(const sweep_lengths *lengths, int64_t digit, int64_t scaling, int ranks);

/* Threads of each rank: `given`, or if that is 0 the CPUs divided by the ranks on this host. */
int sweep_threads(int64_t given, const bench_machine *machine, int ranks);

/* What no flag can check alone; -1 with a sentence in `error`. */
int sweep_check_lengths(const sweep_lengths *lengths, int64_t scaling, const arg_list *ranks,
                        char *error, size_t capacity);
int sweep_check_heads(const arg_list *heads, const arg_list *kv_heads, char *error,
                      size_t capacity);

/* With MPI each process is a rank, and that is how many there are; likewise. */
int sweep_use_processes(arg_list *ranks, const arg_list *defaults, char *error, size_t capacity);

/* One line for each flag. */
void sweep_print_flags(FILE *file, const arg_flag *flags);

#endif
