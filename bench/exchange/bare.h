/* The least that an exchange in shared memory does: every rank writes as many bytes as a partial
 * has, signals, waits for the others and reads what they wrote, adding it up. No records, weights,
 * checks or faults: what a direct exchange can be compared with. run.c measures it as a kind. */
#ifndef BENCH_EXCHANGE_BARE_H
#define BENCH_EXCHANGE_BARE_H

#include <stddef.h>
#include <stdint.h>

/* Of one rank. */
typedef struct bare_rank {
    char *memory; /* bare_bytes(), zero at first, the same of all ranks */
    int rank, ranks;
    int spins; /* how often to look before the CPU is given up */
    size_t floats;
    uint32_t epoch;
} bare_rank;

size_t bare_bytes(int ranks, size_t floats);

/* One exchange of `floats` numbers: their sums over the ranks come to `sums`. */
void bare_step(bare_rank *r, const float *own, float *sums);

#endif
