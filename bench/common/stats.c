/* Order statistics; see stats.h for their definitions. decode/measure.c calls it with a row's
 * samples. */
#include "stats.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double *sort_copy(const double *samples, int count)
{
    double *sorted = malloc((size_t)count * sizeof *sorted);
    if (!sorted)
        return NULL;
    memcpy(sorted, samples, (size_t)count * sizeof *sorted);
    qsort(sorted, (size_t)count, sizeof *sorted, compare);
    return sorted;
}

static double median_of(const double *sorted, int count)
{
    return (sorted[(count - 1) / 2] + sorted[count / 2]) / 2;
}

/* The most samples that may be left out at each end: at most 2.5 % for more to be on one side. */
static int outside(int count)
{
    double term = exp2(-count), sum = term;
    int left_out = 0;
    if (count > 1000) /* as the normal distribution, before the term is 0 */
        return (int)(count / 2.0 - 0.98 * sqrt(count)) - 1;
    while (sum <= 0.025) {
        left_out++;
        term *= (double)(count - left_out + 1) / left_out;
        sum += term;
    }
    return left_out > 0 ? left_out - 1 : 0;
}

int stats_interval(const double *samples, int count, bench_interval *interval)
{
    double *sorted = sort_copy(samples, count);
    if (!sorted)
        return -1;
    int left_out = outside(count);
    interval->median = median_of(sorted, count);
    interval->low = sorted[left_out];
    interval->high = sorted[count - 1 - left_out];
    free(sorted);
    return 0;
}

int stats_of(const double *samples, int count, bench_stats *stats)
{
    double *sorted = sort_copy(samples, count);
    if (!sorted)
        return -1;
    int rank = (99 * count + 99) / 100; /* ⌈0.99 · count⌉, counted from 1 */
    stats->min = sorted[0];
    stats->median = median_of(sorted, count);
    stats->p99 = sorted[rank - 1];
    free(sorted);
    return 0;
}

int stats_ratio(const double *samples, const double *first, int count, bench_interval *ratio)
{
    double *quotients = malloc((size_t)count * sizeof *quotients);
    if (!quotients)
        return -1;
    for (int i = 0; i < count; i++)
        quotients[i] = samples[i] / first[i];
    int status = stats_interval(quotients, count, ratio);
    free(quotients);
    return status;
}

int stats_turn(int round, int turn, int count)
{
    int forwards = round / count % 2 == 0;
    return (round + turn * (forwards ? 1 : count - 1)) % count;
}
