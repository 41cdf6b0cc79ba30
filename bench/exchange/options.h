/* The flags of `treeattn-bench exchange`, and what they ask to be measured. */
#ifndef BENCH_EXCHANGE_OPTIONS_H
#define BENCH_EXCHANGE_OPTIONS_H

#include <stdio.h>

#include "common/args.h"
#include "common/rank_device.h"
#include "common/sweep.h"
#include "run.h"

typedef struct exchange_options {
    sweep_lengths bytes; /* of a partial */
    int64_t iterations, warmup, repeat, ranks, dim, placement, check, help;
    int64_t group;
    arg_list kinds;
    const char *device, *cluster, *json, *csv;
    /* By exchange_options_try_device(): */
    rank_devices devices;
} exchange_options;

/* Returns 0, or -1 with a sentence in `error`. */
int exchange_options_parse(int argc, char **argv, exchange_options *options, char *error,
                           size_t capacity);

/* Open the device that --device is, and settle what depends on it. Returns an exit code, and a
 * sentence where that is not EXIT_OK. */
int exchange_options_try_device(exchange_options *options, char *error, size_t capacity);

/* The ways of a row, from its placement on. */
void exchange_options_choose(const exchange_options *options, exchange_row *row);

void exchange_options_help(FILE *file);
const char *exchange_placement_name(const exchange_options *options);

#endif
