/* The peak that attention is measured against: a loop of fused multiply-adds on registers, in
 * vectors as wide as the CPU has, with enough of them under way to hide their latency. */
#ifndef BENCH_FMA_LOOP_H
#define BENCH_FMA_LOOP_H

#include <stdint.h>

/* Floating-point operations of one round; a multiply-add is two. */
#define FMA_ROUND_FLOPS (12 * 16 * 2)

/* The result only keeps the loop alive. */
float fma_loop(int64_t rounds);

/* So many rounds (an int64_t) on a thread of parallel_run(). */
void fma_loop_on_thread(int thread, int threads, void *rounds);

const char *fma_loop_name(void);

#endif
