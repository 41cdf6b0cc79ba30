/* The loops that read memory as fast as plain code can. bandwidth.c chooses among them by
 * measurement. */
#ifndef BENCH_READ_LOOPS_H
#define BENCH_READ_LOOPS_H

#include <stddef.h>
#include <stdint.h>

typedef struct read_loop {
    const char *name;
    /* Read `bytes`, a multiple of 1024, from 64-byte aligned memory. The result depends on all
     * of it, which keeps the compiler from leaving reads out. */
    uint64_t (*read)(const char *data, size_t bytes);
} read_loop;

/* The loops that this CPU can run. */
const read_loop *read_loops(int *count);

#endif
