/* The computed columns of a row; see rows.h. */
#include "rows.h"

#include <math.h>
#include <stdlib.h>

/* Bytes per microsecond are MB/s. */
static double gbps(double bytes, double time_us)
{
    return bytes / time_us * 1e-3;
}

double result_kv_gbps(const bench_result *result)
{
    return gbps(result->kv_bytes, result->step.median);
}

double result_read_gbps(const bench_result *result)
{
    return gbps(result->kv_bytes, result->read.median);
}

double result_best_fraction(const bench_result *result)
{
    return result->read.min / result->step.min;
}

static double most(const bench_result *result, int messages)
{
    uint64_t largest = 0;
    for (int rank = 0; rank < result->row.ranks; rank++) {
        const ta_group_stats *s = &result->exchanged[rank];
        uint64_t sent = messages ? s->messages_sent : s->bytes_sent;
        uint64_t received = messages ? s->messages_received : s->bytes_received;
        uint64_t more = sent > received ? sent : received;
        largest = more > largest ? more : largest;
    }
    return (double)largest / (double)result->counted_steps;
}

double result_exchanged_bytes(const bench_result *result)
{
    return most(result, 0);
}

double result_messages(const bench_result *result)
{
    return most(result, 1);
}

/* By events; the rest is what is left of the time of a step. */
static double device_mean_us(const bench_result *result, int attend)
{
    double sum = 0, steps = 0;
    if (!result->divided)
        return NAN;
    for (int rank = 0; rank < result->row.ranks; rank++)
        sum += (double)result->costs[rank].device_attend_ns * 1e-3;
    for (int i = 0; i < result->samples; i++)
        steps += result->step_us[i];
    double attended = sum / result->row.ranks / result->samples;
    return attend ? attended : steps / result->samples - attended;
}

static double mean_us(const bench_result *result, int attend)
{
    double sum = 0;
    if (result->device_clock)
        return device_mean_us(result, attend);
    for (int rank = 0; rank < result->row.ranks; rank++) {
        const rank_cost *c = &result->costs[rank];
        sum += (double)(attend ? c->attend_ns : c->step_ns - c->attend_ns);
    }
    return sum * 1e-3 / result->row.ranks / (double)result->counted_steps;
}

double result_attend_us(const bench_result *result)
{
    return mean_us(result, 1);
}

double result_exchange_us(const bench_result *result)
{
    return mean_us(result, 0);
}

double result_peak_bytes(const bench_result *result)
{
    uint64_t largest = 0;
    for (int rank = 0; rank < result->row.ranks; rank++)
        if (result->costs[rank].peak_bytes > largest)
            largest = result->costs[rank].peak_bytes;
    return (double)largest;
}

void result_free(bench_result *result)
{
    free(result->costs);
    free(result->step_us);
    free(result->read_us);
    free(result->fma_us);
    free(result->exchanged);
    free(result->plan);
    free(result->predicted.cluster);
}
