/* Order statistics of a few samples: what the table prints of a series of times; and in which order
 * what is compared takes turns. */
#ifndef BENCH_STATS_H
#define BENCH_STATS_H

typedef struct bench_stats {
    double min, median, p99;
} bench_stats;

/* The samples are left as they are. The median of an even count is the mean of the middle two.
 * p99 is by nearest rank: the sample that is at least as large as 99 of 100, so the largest when
 * there are fewer than 100. Returns -1 without memory, else 0; count ≥ 1. */
int stats_of(const double *samples, int count, bench_stats *stats);

/* A median, and an interval that holds the median of all such samples in 95 of 100 runs, whatever
 * their distribution: two of the samples, by the binomial distribution of how many are below it.
 * With fewer than six samples it is their whole range, which is less certain. */
typedef struct bench_interval {
    double median, low, high;
} bench_interval;

int stats_interval(const double *samples, int count, bench_interval *interval);

/* The same of the quotients of two series, sample by sample: what disturbs the machine reaches
 * both. */
int stats_ratio(const double *samples, const double *first, int count, bench_interval *ratio);

/* Who of `count` comes at turn `turn` of round `round`, both from 0. Another one begins each round,
 * and every other set of rounds goes backwards, so that none always comes behind the same one: a
 * step pays for what the one before it left, caches and the scheduler's patience with threads that
 * were just busy. */
int stats_turn(int round, int turn, int count);

#endif
