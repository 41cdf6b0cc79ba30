/* Threads of the benchmark itself: a function run on several threads at once, and a barrier with
 * which ranks or readers start together. Neither belongs to what is measured. */
#ifndef BENCH_PARALLEL_H
#define BENCH_PARALLEL_H

#include <stdatomic.h>

typedef void (*parallel_fn)(int thread, int threads, void *context);

/* Run fn on `threads` threads, the caller's included, and wait for all. Returns -1 if a thread
 * could not be made; then fn may not have run on all of them. */
int parallel_run(int threads, parallel_fn fn, void *context);

typedef struct barrier {
    int count;
    int spin; /* 0: more threads than CPUs, so a waiting thread makes room for others at once */
    atomic_int arrived;
    atomic_int round;
    atomic_int broken;
} barrier;

void barrier_init(barrier *b, int count, int cpus);

/* Wait actively: all threads leave within a fraction of a microsecond, if each has a CPU. */
int barrier_wait(barrier *b);

/* Wait asleep, for as long as something else is being measured. */
int barrier_sleep(barrier *b);

/* Let everybody out, now and in the future: the waits above return -1 in place of 0. */
void barrier_break(barrier *b);

#endif
