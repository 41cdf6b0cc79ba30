/* Achievable read bandwidth: how long this machine takes to read the same bytes with the same
 * number of threads and no arithmetic worth mentioning. decode/rank_steps.c alternates it with the
 * decode steps, so that whatever disturbs the machine disturbs both. docs/benchmarks.md has the
 * definition. */
#ifndef BENCH_BANDWIDTH_H
#define BENCH_BANDWIDTH_H

#include <stddef.h>

#include "read_loops.h"

typedef struct reader_team reader_team;

/* Make `threads` threads that sleep until there is something to read, then share in reading the
 * pieces in their order. The list is copied. NULL if they cannot be made. */
reader_team *readers_create(int threads, int cpus, const read_piece *pieces, size_t count);
void readers_destroy(reader_team *team);

/* Try every read loop `sweeps` times and keep the one with the fastest sweep. */
void readers_choose(reader_team *team, int sweeps);

/* The chosen loop's name. */
const char *readers_loop_name(const reader_team *team);

/* Read everything once without timing, then `sweeps` times. times_us[i] is from the first
 * thread's start to the last thread's end of sweep i. */
void readers_sweep(reader_team *team, int sweeps, double *times_us);

#endif
