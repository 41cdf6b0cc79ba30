/* Order statistics; see stats.h for their definitions. decode/measure.c calls it with a row's
 * samples. */
#include "stats.h"

#include <stdlib.h>
#include <string.h>

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

int stats_of(const double *samples, int count, bench_stats *stats)
{
    double *sorted = malloc((size_t)count * sizeof *sorted);
    if (!sorted)
        return -1;
    memcpy(sorted, samples, (size_t)count * sizeof *sorted);
    qsort(sorted, (size_t)count, sizeof *sorted, compare);
    int rank = (99 * count + 99) / 100; /* ⌈0.99 · count⌉, counted from 1 */
    stats->min = sorted[0];
    stats->median = (sorted[(count - 1) / 2] + sorted[count / 2]) / 2;
    stats->p99 = sorted[rank - 1];
    free(sorted);
    return 0;
}
