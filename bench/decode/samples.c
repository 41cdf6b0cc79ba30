/* Samples become the numbers of a row; see samples.h. docs/benchmarks.md defines them, and
 * measure.c takes them. */
#include "samples.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "arithmetic.h"
#include "common/launch.h"

/* A sweep on GPUs lasts as long as on the slowest of them. */
static void reduce_gpu_sweeps(const row_run *run)
{
    int ranks = run->result->row.ranks;
    for (int i = 0; run->m->options->devices.gpu && i < run->result->samples; i++)
        for (int rank = 0; rank < ranks; rank++) {
            double us = run->sweeps[(size_t)i * (size_t)ranks + (size_t)rank];
            double *longest = &run->result->read_us[i];
            *longest = us > *longest ? us : *longest;
        }
}

/* Processes have no common clock: a step lasts as long as it does on the rank that needs longest,
 * from when all had come. */
static void reduce_processes(bench_result *result, const span *spans)
{
    for (int i = 0; i < result->samples; i++) {
        const span *own = &spans[(size_t)i * (size_t)launch.ranks + (size_t)launch.rank];
        result->step_us[i] = own->end - own->start;
    }
    launch_max(result->step_us, result->samples);
    launch_share(result->exchanged, sizeof *result->exchanged);
    launch_share(result->costs, sizeof *result->costs);
}

/* Processes that share CPUs read one after the other, each at the full speed of one. */
static void reduce_reads(const row_run *run)
{
    bench_result *result = run->result;
    for (int i = 0; launch.mpi && i < result->samples; i++) {
        double busy = run->m->options->devices.gpu ? 0 : result->read_us[i] * result->row.threads;
        launch_sum(&busy, 1);
        double cpus = (double)run->m->machine->cpus * launch.ranks / launch.local_ranks;
        launch_max(&result->read_us[i], 1);
        launch_max(&result->fma_us[i], 1);
        if (busy / cpus > result->read_us[i])
            result->read_us[i] = busy / cpus;
    }
}

/* A step lasts from the first rank's start to the last rank's end. */
static void reduce_spans(bench_result *result, const span *all_spans)
{
    int ranks = result->row.ranks;
    if (launch.mpi) {
        reduce_processes(result, all_spans);
        return;
    }
    for (int i = 0; i < result->samples; i++) {
        const span *spans = &all_spans[(size_t)i * (size_t)ranks];
        span whole = spans[0];
        for (int rank = 1; rank < ranks; rank++) {
            whole.start = spans[rank].start < whole.start ? spans[rank].start : whole.start;
            whole.end = spans[rank].end > whole.end ? spans[rank].end : whole.end;
        }
        result->step_us[i] = whole.end - whole.start;
    }
}

/* Of the samples, of each sweep's time over that of its step, and of what part each step reaches of
 * the rate of its loop of multiply-adds. Returns -1 without memory. */
static int make_stats(const decode_options *options, bench_result *result)
{
    const bench_case *row = &result->row;
    double loop_flops = arithmetic_sample_flops(row->threads * row->ranks);
    int count = result->samples;
    double *quotients = malloc((size_t)count * sizeof *quotients);
    if (!quotients)
        return -1;
    for (int i = 0; i < count; i++)
        quotients[i] = result->read_us[i] / result->step_us[i];
    int status = stats_of(result->step_us, count, &result->step);
    if (status == 0)
        status = stats_of(result->read_us, count, &result->read);
    if (status == 0)
        status = stats_of(quotients, count, &result->fraction);
    result->flops = arithmetic_step_flops(options, row);
    for (int i = 0; i < count; i++)
        quotients[i] = result->flops / result->step_us[i] * result->fma_us[i] / loop_flops;
    if (status == 0)
        status = stats_of(quotients, count, &result->fma_fraction);
    if (options->devices.gpu) /* there is no such loop */
        result->fma_fraction = (bench_stats){NAN, NAN, NAN};
    free(quotients);
    return status;
}

void samples_reduce_sweeps(const row_run *run)
{
    const decode_options *options = run->m->options;
    bench_result *first = run->result;
    double whole = kv_whole_bytes(options, &first->row);
    reduce_gpu_sweeps(run);
    reduce_reads(run);
    /* Threads read all of the cache; of less as much takes less. */
    for (int i = 0; !options->devices.gpu && i < first->samples; i++)
        first->read_us[i] *= first->kv_bytes / whole;
}

/* All rows have the sweeps of the first. */
int samples_finish(const row_run *run, int index)
{
    bench_result *result = &run->result[index], *first = run->result;
    const measurement *m = run->m;
    size_t spans = run->most_samples * (size_t)result->row.ranks;
    size_t bytes = (size_t)result->samples * sizeof(double);
    if (index > 0) {
        memcpy(result->read_us, first->read_us, bytes);
        memcpy(result->fma_us, first->fma_us, bytes);
    }
    reduce_spans(result, run->spans + (size_t)index * spans);
    result->device_clock = m->options->devices.gpu;
    result->divided = !m->options->graph; /* nobody sees into a graph */
    result->read_loop = m->options->devices.gpu ? "device copy" : readers_loop_name(run->readers);
    if (make_stats(m->options, result) != 0)
        return -1;
    return stats_ratio(result->step_us, first->step_us, result->samples, &result->ratio);
}
