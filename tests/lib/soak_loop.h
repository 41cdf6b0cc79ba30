/* Decode step after decode step on one group, with random shapes, each checked against the oracle;
 * what the process holds must not grow. soak.c runs it on threads, mpi/soak.c on processes. */
#ifndef TESTS_SOAK_LOOP_H
#define TESTS_SOAK_LOOP_H

#include <treeattn/treeattn.h>

/* What a process holds. */
typedef struct soak_use {
    double heap_bytes;     /* handed out by malloc() */
    double resident_bytes; /* of all memory */
    int descriptors;
} soak_use;

soak_use soak_now(void);

/* At the start of main(): start again with an allocator that counts exactly. */
void soak_restart_without_caches(char **argv);

/* Run at least `steps` steps from `seed` on, on `ranks` ranks, with case_launch as it is set. The
 * first tenth is for warming up; from there on the heap may grow by `heap_slack` bytes, and no
 * descriptor may be added. `report` says whether to print. */
ta_status soak_run(int ranks, long steps, uint64_t seed, double heap_slack, int report);

#endif
