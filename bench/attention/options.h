/* What `treeattn-bench attention` was asked to do, and the rows that follow from it. */
#ifndef BENCH_ATTENTION_OPTIONS_H
#define BENCH_ATTENTION_OPTIONS_H

#include <treeattn/attention.h>

#include "common/sweep.h"
#include "run.h"

typedef struct attention_options {
    sweep_options sweep;                /* first */
    arg_list algorithms, columns, maps; /* one row for each combination */
    int64_t head_dim, block, mask, group;
    const char *cluster, *csv;
    int64_t wide;
    rank_devices devices; /* by attention_options_try_device() */
} attention_options;

/* As options_parse() and options_cases() of decode. Rows that cannot be (a grid with these columns
 * on so many ranks, columns of a ring) are left out. The order: dtypes, heads, KV heads, maps,
 * ranks, threads, tokens, algorithms, columns. */
int attention_options_parse(int argc, char **argv, attention_options *options, char *error,
                            size_t capacity);
/* As options_try_device() of decode. */
int attention_options_try_device(attention_options *options, char *error, size_t capacity);
attention_row *attention_options_rows(const attention_options *options,
                                      const bench_machine *machine, int *count);

/* What a rank opens, with so many threads. */
rank_device_config attention_options_device(const attention_options *options, int threads);

/* Do two rows differ in their algorithm and columns alone? */
int attention_same_work(const attention_row *a, const attention_row *b);

/* The words of the flags. */
extern const char *const attention_map_words[], *const attention_mask_words[],
                                                    *const attention_algorithm_words[];

void attention_options_help(FILE *file);

#endif
