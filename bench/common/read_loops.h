/* The loops that read memory as fast as plain code can. bandwidth.c chooses among them by
 * measurement. */
#ifndef BENCH_READ_LOOPS_H
#define BENCH_READ_LOOPS_H

#include <stddef.h>
#include <stdint.h>

/* Bytes that follow each other in memory; a multiple of 8, at a multiple of 8. */
typedef struct read_piece {
    const char *start;
    size_t bytes;
} read_piece;

/* Pages of so many bytes are touched at once by the loops that touch, see read_loops.c. */
#define READ_BATCH_BYTES ((size_t)64 << 10)

/* Loops look at pieces after those that they read: a list has so many more entries at its end, of
 * any pieces. */
#define READ_MORE 32

typedef struct read_loop {
    const char *name;
    /* Read pieces [0, count), each of at most READ_BATCH_BYTES. The result depends on all of it,
     * which keeps the compiler from leaving reads out. */
    uint64_t (*read)(const read_piece *pieces, size_t count);
} read_loop;

/* The loops that this CPU can run. */
const read_loop *read_loops(int *count);

#endif
