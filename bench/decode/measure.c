/* One row of the table. Every rank opens its device and makes its plan (rank_plan.c); then
 * blocks of decode steps alternate with blocks of read sweeps of the same cache with as many
 * threads, in one run, so that a disturbance of the machine reaches both. docs/benchmarks.md
 * defines what is timed. decode.c calls measure_row() for each row. */
#include "measure.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "arithmetic.h"
#include "common/bandwidth.h"
#include "common/launch.h"
#include "common/parallel.h"
#include "device_copy.h"
#include "prediction.h"
#include "rank_plan.h"

/* Decode steps and read sweeps take turns this often, so that what disturbs the machine disturbs a
 * step and its sweep alike. Of more samples several steps come before as many sweeps. */
#define MAX_BLOCKS 64
#define CHOOSE_SWEEPS 3

/* Samples when the user leaves it open: as many as fit in a time, within limits. */
#define MIN_SAMPLES 7
#define SAMPLING_US 2e6

/* A rank's step, in microseconds of the machine's clock. */
typedef struct span {
    double start, end;
} span;

typedef struct row_run {
    const measurement *m;
    bench_result *result;
    reader_team *readers;
    barrier together; /* of the ranks */
    span *spans;      /* [samples][ranks] */
    double *sweeps;   /* [samples][ranks], on GPUs: each rank's read sweep */
} row_run;

/* What one rank needs for a step. */
typedef struct rank_run {
    row_run *run;
    int rank;
    ta_group *group;
    ta_plan *plan;
    device_copy data;
    void *scratch; /* of a GPU, for read sweeps */
} rank_run;

/* The ranks meet, actively or asleep: as threads, or as processes. */
static int gather_ranks(row_run *run, int asleep)
{
    if (!launch.mpi)
        return asleep ? barrier_sleep(&run->together) : barrier_wait(&run->together);
    launch_wait(asleep);
    return 0;
}

/* Does this rank do what is done once in a process? */
static int is_first_here(const rank_run *r)
{
    return r->rank == 0 || launch.mpi;
}

/* Until its results are there. */
static ta_status step(rank_run *r)
{
    const device_copy *data = &r->data;
    ta_status status =
        ta_decode(r->plan, &data->query, &data->kv, &data->out, data->lse, &data->call, NULL);
    return status == TA_OK ? ta_device_synchronize(data->device, NULL) : status;
}

/* On GPUs by events, from when the stream comes to the step until it has left it: then a step lasts
 * as long as it does on the rank that needs longest. */
static ta_status timed_step(rank_run *r, span *s)
{
    double seconds = 0;
    const device_copy *data = &r->data;
    if (!r->run->m->options->gpu) {
        s->start = machine_time_us();
        ta_status status = step(r);
        s->end = machine_time_us();
        return status;
    }
    ta_status status = ta_device_timer_start(data->device, NULL);
    if (status == TA_OK)
        status =
            ta_decode(r->plan, &data->query, &data->kv, &data->out, data->lse, &data->call, NULL);
    if (status == TA_OK)
        status = ta_device_timer_read(data->device, NULL, &seconds);
    *s = (span){0, seconds * 1e6};
    return status;
}

/* Steps [first, first + count) of the samples, after an untimed one that wakes what slept while the
 * readers ran. */
static ta_status timed_steps(rank_run *r, int first, int count)
{
    int ranks = r->run->result->row.ranks;
    ta_status status = step(r);
    for (int i = first; status == TA_OK && i < first + count; i++) {
        span *s = &r->run->spans[(size_t)i * (size_t)ranks + (size_t)r->rank];
        if (gather_ranks(r->run, 0) != 0)
            return TA_ERR_ABORTED;
        status = timed_step(r, s);
    }
    return status;
}

/* On the host threads read the cache. A GPU copies: its memory does as much work for a byte that is
 * written as for one that is read. */
static ta_status read_sweeps(rank_run *r, int first, int count)
{
    row_run *run = r->run;
    double seconds = 0, moved = 0, wanted = run->result->kv_bytes / run->result->row.ranks;
    ta_status status = TA_OK;
    if (!run->m->options->gpu) {
        if (is_first_here(r))
            readers_sweep(run->readers, count, run->result->read_us + first);
        return TA_OK;
    }
    for (int i = first; status == TA_OK && i < first + count; i++) {
        status = ta_device_timer_start(r->data.device, NULL);
        if (status == TA_OK)
            status = device_copy_sweep(&r->data, r->scratch, &moved);
        if (status == TA_OK)
            status = ta_device_timer_read(r->data.device, NULL, &seconds);
        run->sweeps[(size_t)i * (size_t)run->result->row.ranks + (size_t)r->rank] =
            moved > 0 ? seconds * 1e6 * wanted / moved : 0;
    }
    return status;
}

/* As often the loop of multiply-adds, on all threads of the ranks of this process. */
static ta_status fma_samples(const rank_run *r, int first, int count)
{
    const bench_case *row = &r->run->result->row;
    int threads = (launch.mpi ? 1 : row->ranks) * row->threads;
    for (int i = first; !r->run->m->options->gpu && is_first_here(r) && i < first + count; i++) {
        r->run->result->fma_us[i] = arithmetic_sample_us(threads);
        if (r->run->result->fma_us[i] < 0)
            return TA_ERR_SYSTEM;
    }
    return TA_OK;
}

static ta_status alternate(rank_run *r)
{
    row_run *run = r->run;
    int samples = run->result->samples;
    int blocks = samples < MAX_BLOCKS ? samples : MAX_BLOCKS;
    ta_status status = TA_OK;
    for (int block = 0; block < blocks; block++) {
        int first = samples * block / blocks, end = samples * (block + 1) / blocks;
        status = timed_steps(r, first, end - first);
        if (status != TA_OK || gather_ranks(run, 1) != 0)
            return status != TA_OK ? status : TA_ERR_ABORTED;
        status = read_sweeps(r, first, end - first);
        if (status == TA_OK)
            status = fma_samples(r, first, end - first);
        if (status != TA_OK)
            return status;
        if (is_first_here(r))
            run->m->progress(run->m->progress_context, (double)end / samples);
        if (gather_ranks(run, 1) != 0)
            return TA_ERR_ABORTED;
    }
    if (is_first_here(r))
        run->result->counted_steps = (uint64_t)(samples + blocks);
    return TA_OK;
}

/* Called twice with the same, zeroed struct: then it holds what has passed between the calls. */
static ta_status count_exchange(rank_run *r, ta_group_stats *difference)
{
    ta_group_stats now = TA_GROUP_STATS_INIT;
    ta_status status = ta_group_get_stats(r->group, &now);
    difference->messages_sent = now.messages_sent - difference->messages_sent;
    difference->messages_received = now.messages_received - difference->messages_received;
    difference->bytes_sent = now.bytes_sent - difference->bytes_sent;
    difference->bytes_received = now.bytes_received - difference->bytes_received;
    return status;
}

/* Likewise for the plan's times; the memory is that of the moment. On the host K and V are the
 * benchmark's own, elsewhere they are among what the device counts. */
static ta_status count_costs(rank_run *r, rank_cost *cost)
{
    const measurement *m = r->run->m;
    const bench_case *row = &r->run->result->row;
    ta_plan_stats now = TA_PLAN_STATS_INIT;
    ta_status status = ta_plan_get_stats(r->plan, &now);
    cost->step_ns = now.step_ns - cost->step_ns;
    cost->attend_ns = now.attend_ns - cost->attend_ns;
    cost->device_attend_ns = now.device_attend_ns - cost->device_attend_ns;
    cost->peak_bytes = now.device_bytes_most - (r->scratch ? SWEEP_BYTES : 0);
    if (!m->options->gpu)
        cost->peak_bytes += (uint64_t)(kv_read_bytes(m->options, row) / row->tokens *
                                       kv_most_tokens(m->options, row));
    return status;
}

static int choose_samples(const decode_options *options, double step_us)
{
    if (options->sweep.iterations)
        return (int)options->sweep.iterations;
    if (step_us * OPTIONS_MAX_SAMPLES <= SAMPLING_US)
        return OPTIONS_MAX_SAMPLES;
    return step_us * MIN_SAMPLES >= SAMPLING_US ? MIN_SAMPLES : (int)(SAMPLING_US / step_us);
}

/* Warm up; rank 0 then settles what is left open: the read loop and the number of samples. */
static ta_status warm_up(rank_run *r)
{
    const decode_options *options = r->run->m->options;
    double step_us = 0;
    for (int64_t i = 0; i < options->sweep.warmup; i++) {
        double start = machine_time_us();
        ta_status status = step(r);
        if (status != TA_OK)
            return status;
        step_us = machine_time_us() - start;
    }
    if (gather_ranks(r->run, 1) != 0)
        return TA_ERR_ABORTED;
    if (is_first_here(r)) {
        launch_max(&step_us, 1);
        r->run->result->samples = choose_samples(options, step_us);
        if (!options->gpu)
            readers_choose(r->run->readers, CHOOSE_SWEEPS);
    }
    return gather_ranks(r->run, 1) != 0 ? TA_ERR_ABORTED : TA_OK;
}

static ta_status run_steps(rank_run *r)
{
    const measurement *m = r->run->m;
    ta_group_stats *exchanged = &r->run->result->exchanged[r->rank];
    rank_cost *cost = &r->run->result->costs[r->rank];
    ta_status status = warm_up(r);
    if (status == TA_OK && m->options->gpu)
        status = ta_device_alloc(r->data.device, SWEEP_BYTES, &r->scratch);
    if (status == TA_OK)
        status = count_exchange(r, exchanged);
    if (status == TA_OK)
        status = count_costs(r, cost);
    if (status == TA_OK)
        status = alternate(r);
    if (status == TA_OK)
        status = count_exchange(r, exchanged);
    if (status == TA_OK)
        status = count_costs(r, cost);
    if (status == TA_OK) {
        tensors_poison(&m->tensors[r->rank], m->options, &r->run->result->row);
        status = device_copy_results(&r->data, &m->tensors[r->rank], 0);
    }
    if (status == TA_OK)
        status = step(r);
    if (status == TA_OK)
        status = device_copy_results(&r->data, &m->tensors[r->rank], 1);
    return status;
}

static ta_status rank_main(ta_group *group, void *context)
{
    row_run *run = context;
    const measurement *m = run->m;
    int rank = ta_group_rank(group);
    rank_run r = {.run = run, .rank = rank, .group = group};
    rank_plan opened;
    ta_status status = rank_plan_open(m->options, &run->result->row, group, &opened);
    if (status == TA_OK) {
        r.plan = opened.plan;
        r.group = opened.group;
        status = device_copy_make(&r.data, opened.device, m->options, m->layout, &m->tensors[rank],
                                  rank);
        if (status == TA_OK)
            status = run_steps(&r);
        if (status == TA_OK && rank == 0) /* with what the last step did */
            status = rank_plan_explain(&opened, &run->result->plan);
        if (status == TA_OK && rank == 0 && opened.cluster)
            status = prediction_keep(opened.cluster, run->result);
        ta_device_free(opened.device, r.scratch);
        device_copy_free(&r.data);
        rank_plan_close(&opened);
    }
    if (status != TA_OK)
        barrier_break(&run->together);
    return status;
}

/* A sweep on GPUs lasts as long as on the slowest of them. */
static void reduce_sweeps(row_run *run)
{
    int ranks = run->result->row.ranks;
    for (int i = 0; run->m->options->gpu && i < run->result->samples; i++)
        for (int rank = 0; rank < ranks; rank++) {
            double us = run->sweeps[(size_t)i * (size_t)ranks + (size_t)rank];
            double *longest = &run->result->read_us[i];
            *longest = us > *longest ? us : *longest;
        }
}

/* Processes have no common clock: a step lasts as long as it does on the rank that needs longest,
 * from when all had come. */
static void reduce_processes(row_run *run)
{
    bench_result *result = run->result;
    for (int i = 0; i < result->samples; i++) {
        const span *own = &run->spans[(size_t)i * (size_t)launch.ranks + (size_t)launch.rank];
        result->step_us[i] = own->end - own->start;
    }
    launch_max(result->step_us, result->samples);
    for (int i = 0; i < result->samples; i++) {
        /* Processes that share CPUs read one after the other, each at the full speed of one. */
        double busy = run->m->options->gpu ? 0 : result->read_us[i] * result->row.threads;
        launch_sum(&busy, 1);
        double cpus = (double)run->m->machine->cpus * launch.ranks / launch.local_ranks;
        launch_max(&result->read_us[i], 1);
        launch_max(&result->fma_us[i], 1);
        if (busy / cpus > result->read_us[i])
            result->read_us[i] = busy / cpus;
    }
    launch_share(result->exchanged, sizeof *result->exchanged);
    launch_share(result->costs, sizeof *result->costs);
}

/* A step lasts from the first rank's start to the last rank's end. */
static void reduce_spans(row_run *run)
{
    int ranks = run->result->row.ranks;
    if (launch.mpi) {
        reduce_processes(run);
        return;
    }
    for (int i = 0; i < run->result->samples; i++) {
        const span *spans = &run->spans[(size_t)i * (size_t)ranks];
        span whole = spans[0];
        for (int rank = 1; rank < ranks; rank++) {
            whole.start = spans[rank].start < whole.start ? spans[rank].start : whole.start;
            whole.end = spans[rank].end > whole.end ? spans[rank].end : whole.end;
        }
        run->result->step_us[i] = whole.end - whole.start;
    }
}

/* Threads that read all of the cache, or the part of it that this process has. */
static void make_readers(row_run *run)
{
    const bench_case *row = &run->result->row;
    size_t count = 0;
    int first = launch.mpi ? launch.rank : 0, end = launch.mpi ? launch.rank + 1 : row->ranks;
    read_piece *pieces = kv_layout_pieces(run->m->layout, first, end, &count);
    if (pieces)
        run->readers =
            readers_create((end - first) * row->threads, run->m->machine->cpus, pieces, count);
    free(pieces);
}

static ta_status allocate(row_run *run)
{
    bench_result *result = run->result;
    const measurement *m = run->m;
    size_t samples =
        (size_t)(m->options->sweep.iterations ? m->options->sweep.iterations : OPTIONS_MAX_SAMPLES);
    size_t ranks = (size_t)result->row.ranks;
    result->algorithm = options_algorithm_name(&result->row);
    result->kv_bytes = kv_read_bytes(m->options, &result->row);
    result->step_us = calloc(samples, sizeof *result->step_us);
    result->read_us = calloc(samples, sizeof *result->read_us);
    result->fma_us = calloc(samples, sizeof *result->fma_us);
    result->exchanged = calloc(ranks, sizeof *result->exchanged);
    result->costs = calloc(ranks, sizeof *result->costs);
    run->spans = calloc(samples * ranks, sizeof *run->spans);
    run->sweeps = calloc(samples * ranks, sizeof *run->sweeps);
    make_readers(run);
    if (!result->step_us || !result->read_us || !result->fma_us || !result->exchanged ||
        !result->costs || !run->spans || !run->sweeps || !run->readers)
        return TA_ERR_NO_MEMORY;
    return TA_OK;
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
    free(quotients);
    return status;
}

ta_status measure_row(const measurement *m, bench_result *result, char *error, size_t capacity)
{
    row_run run = {.m = m, .result = result};
    ta_status status = allocate(&run);
    if (status != TA_OK) {
        snprintf(error, capacity, "not enough memory or threads to time %d ranks of %d threads",
                 result->row.ranks, result->row.threads);
        goto free_run;
    }
    barrier_init(&run.together, result->row.ranks, m->machine->cpus);
    status = launch_run(result->row.ranks, rank_main, &run);
    if (status != TA_OK) {
        snprintf(error, capacity, "%s: %s", ta_status_name(status), ta_last_error());
        goto free_run;
    }
    reduce_sweeps(&run);
    reduce_spans(&run);
    result->device_clock = m->options->gpu;
    result->divided = !m->options->graph; /* nobody sees into a graph */
    result->read_loop = m->options->gpu ? "device copy" : readers_loop_name(run.readers);
    if (make_stats(m->options, result) != 0) {
        snprintf(error, capacity, "not enough memory to sort %d samples", result->samples);
        status = TA_ERR_NO_MEMORY;
        goto free_run;
    }
    status = prediction_make(m->options, result);
    if (status != TA_OK)
        snprintf(error, capacity, "the row could not be predicted: %s", ta_last_error());
free_run:
    readers_destroy(run.readers);
    free(run.sweeps);
    free(run.spans);
    return status;
}
