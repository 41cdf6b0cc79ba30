/* What a rank times: decode steps of the algorithms by turns, and between them read sweeps and the
 * loop of multiply-adds, each between points where all ranks meet. measure.c opens what a rank
 * needs and calls in here; samples.c makes numbers of the spans. */
#include "rank_steps.h"

#include "arithmetic.h"
#include "common/launch.h"
#include "common/stats.h"

/* Decode steps and read sweeps take turns this often, so that what disturbs the machine disturbs a
 * step and its sweep alike. Of more samples several steps come before as many sweeps. */
#define MAX_BLOCKS 64
#define CHOOSE_SWEEPS 3

/* Samples when the user leaves it open: as many as fit in a time, within limits. */
#define MIN_SAMPLES 7
#define SAMPLING_US 2e6

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

ta_status rank_step(rank_run *r)
{
    const device_copy *data = &r->data;
    ta_status status = ta_decode(r->opened.plan, &data->query, &data->kv, &data->out, data->lse,
                                 &data->call, NULL);
    return status == TA_OK ? ta_device_synchronize(data->device, NULL) : status;
}

/* On GPUs by events, from when the stream comes to the step until it has left it: then a step lasts
 * as long as it does on the rank that needs longest. */
static ta_status timed_step(rank_run *r, span *s)
{
    double seconds = 0;
    const device_copy *data = &r->data;
    if (!r->run->m->options->devices.gpu) {
        s->start = machine_time_us();
        ta_status status = rank_step(r);
        s->end = machine_time_us();
        return status;
    }
    ta_status status = ta_device_timer_start(data->device, NULL);
    if (status == TA_OK)
        status = ta_decode(r->opened.plan, &data->query, &data->kv, &data->out, data->lse,
                           &data->call, NULL);
    if (status == TA_OK)
        status = ta_device_timer_read(data->device, NULL, &seconds);
    *s = (span){0, seconds * 1e6};
    return status;
}

/* Add what the group's counters have moved on by, `sign` times. */
static ta_status count_exchange(rank_run *r, int sign)
{
    ta_group_stats now = TA_GROUP_STATS_INIT, *sum = &r->result->exchanged[r->rank];
    ta_status status = ta_group_get_stats(r->opened.group, &now);
    uint64_t factor = (uint64_t)(int64_t)sign;
    sum->messages_sent += factor * now.messages_sent;
    sum->messages_received += factor * now.messages_received;
    sum->bytes_sent += factor * now.bytes_sent;
    sum->bytes_received += factor * now.bytes_received;
    return status;
}

/* Steps [first, first + count) of the samples, after an untimed one that wakes what slept while
 * others ran. */
static ta_status timed_steps(rank_run *r, int first, int count)
{
    int ranks = r->result->row.ranks;
    ta_status status = count_exchange(r, -1);
    if (status == TA_OK)
        status = rank_step(r);
    for (int i = first; status == TA_OK && i < first + count; i++) {
        span *s = &r->spans[(size_t)i * (size_t)ranks + (size_t)r->rank];
        if (gather_ranks(r->run, 0) != 0)
            return TA_ERR_ABORTED;
        status = timed_step(r, s);
    }
    if (is_first_here(r))
        r->result->counted_steps += (uint64_t)count + 1;
    return status == TA_OK ? count_exchange(r, 1) : status;
}

/* All algorithms, one step of each in turn. */
static ta_status take_turns(rank_run *all, int first, int count)
{
    int algorithms = all->run->count;
    ta_status status = TA_OK;
    if (algorithms == 1)
        return timed_steps(all, first, count);
    for (int i = first; i < first + count; i++)
        for (int turn = 0; status == TA_OK && turn < algorithms; turn++)
            status = timed_steps(&all[stats_turn(i, turn, algorithms)], i, 1);
    return status;
}

/* On the host threads read the cache. A GPU copies: its memory does as much work for a byte that is
 * written as for one that is read. */
static ta_status read_sweeps(rank_run *r, int first, int count)
{
    row_run *run = r->run;
    double seconds = 0, moved = 0, wanted = run->result->kv_bytes / run->result->row.ranks;
    ta_status status = TA_OK;
    if (!run->m->options->devices.gpu) {
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
    for (int i = first; !r->run->m->options->devices.gpu && is_first_here(r) && i < first + count;
         i++) {
        r->run->result->fma_us[i] = arithmetic_sample_us(threads);
        if (r->run->result->fma_us[i] < 0)
            return TA_ERR_SYSTEM;
    }
    return TA_OK;
}

ta_status rank_steps_alternate(rank_run *r)
{
    row_run *run = r->run;
    int samples = run->result->samples;
    int blocks = samples < MAX_BLOCKS ? samples : MAX_BLOCKS;
    ta_status status = TA_OK;
    for (int block = 0; block < blocks; block++) {
        int first = samples * block / blocks, end = samples * (block + 1) / blocks;
        status = take_turns(r, first, end - first);
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
    return TA_OK;
}

static int choose_samples(const decode_options *options, double step_us)
{
    if (options->sweep.iterations)
        return (int)options->sweep.iterations;
    if (step_us * OPTIONS_MAX_SAMPLES <= SAMPLING_US)
        return OPTIONS_MAX_SAMPLES;
    return step_us * MIN_SAMPLES >= SAMPLING_US ? MIN_SAMPLES : (int)(SAMPLING_US / step_us);
}

ta_status rank_steps_warm_up(rank_run *all)
{
    row_run *run = all->run;
    const decode_options *options = run->m->options;
    double step_us = 0; /* of the last round, in the mean over algorithms */
    for (int64_t i = 0; i < options->sweep.warmup; i++) {
        double start = machine_time_us();
        for (int a = 0; a < run->count; a++) {
            ta_status status = rank_step(&all[a]);
            if (status != TA_OK)
                return status;
        }
        step_us = (machine_time_us() - start) / run->count;
    }
    if (gather_ranks(run, 1) != 0)
        return TA_ERR_ABORTED;
    if (is_first_here(all)) {
        launch_max(&step_us, 1);
        for (int a = 0; a < run->count; a++)
            run->result[a].samples = choose_samples(options, step_us);
        if (!options->devices.gpu)
            readers_choose(run->readers, CHOOSE_SWEEPS);
    }
    return gather_ranks(run, 1) != 0 ? TA_ERR_ABORTED : TA_OK;
}
