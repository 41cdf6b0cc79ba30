/* Order statistics of a few samples: what the table prints of a series of times. */
#ifndef BENCH_STATS_H
#define BENCH_STATS_H

typedef struct bench_stats {
    double min, median, p99;
} bench_stats;

/* The samples are left as they are. The median of an even count is the mean of the middle two.
 * p99 is by nearest rank: the sample that is at least as large as 99 of 100, so the largest when
 * there are fewer than 100. Returns -1 without memory, else 0; count ≥ 1. */
int stats_of(const double *samples, int count, bench_stats *stats);

#endif
