/* What the benchmark needs to know about the machine: for its header, its default thread count,
 * and to refuse a cache that does not fit. */
#ifndef BENCH_MACHINE_H
#define BENCH_MACHINE_H

#include <stdint.h>

typedef struct bench_machine {
    char cpu[128];    /* model name, or "unknown" */
    char system[256]; /* operating system, release, architecture */
    int cpus;         /* that this process may use */
    int64_t memory_bytes;
    int64_t available_bytes; /* that could be allocated without swapping */
} bench_machine;

void machine_read(bench_machine *machine);

/* Microseconds of a clock that only moves forward. */
double machine_time_us(void);

#endif
