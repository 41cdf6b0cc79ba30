/* How long a kernel takes on what is in the first levels of cache: the shortest of many runs, which
 * is the one that nothing disturbed. Beside the time stands the part of what a loop of nothing but
 * multiply-adds does in the same time (bench/common/fma_loop.c). */
#ifndef TESTS_KERNEL_TIMER_H
#define TESTS_KERNEL_TIMER_H

#include <stdio.h>
#include <time.h>

#include "../../bench/common/fma_loop.h"

#define TIMER_RUNS 200 /* at most, and what fits into a time */
#define TIMER_CALLS 4  /* of a run */
#define TIMER_NS 10e6

static inline double timer_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

/* Multiply-adds in a nanosecond, of one thread at its best. */
static inline double timer_peak(void)
{
    static double peak;
    enum { ROUNDS = 2000 };
    for (int i = 0, runs = peak == 0 ? TIMER_RUNS : 0; i < runs; ++i) {
        double start = timer_ns();
        volatile float result = fma_loop(ROUNDS);
        double rate = 0.5 * FMA_ROUND_FLOPS * ROUNDS / (timer_ns() - start);
        (void)result;
        peak = rate > peak ? rate : peak;
    }
    return peak;
}

/* Time the expression `call`, which does so many multiply-adds. */
#define TIME_KERNEL(name, text, multiply_adds, call)                                               \
    do {                                                                                           \
        double timer_best = 1e30;                                                                  \
        double timer_end = timer_ns() + TIMER_NS;                                                  \
        for (int timer_run = 0;                                                                    \
             timer_run < 3 || (timer_run < TIMER_RUNS && timer_ns() < timer_end); ++timer_run) {   \
            double timer_start = timer_ns();                                                       \
            for (int timer_call = 0; timer_call < TIMER_CALLS; ++timer_call)                       \
                (void)(call);                                                                      \
            double timer_took = (timer_ns() - timer_start) / TIMER_CALLS;                          \
            timer_best = timer_took < timer_best ? timer_took : timer_best;                        \
        }                                                                                          \
        printf("%-8s %9.0f ns %6.2f of multiply-adds  %s\n", name, timer_best,                     \
               (multiply_adds) / timer_best / timer_peak(), text);                                 \
    } while (0)

#endif
