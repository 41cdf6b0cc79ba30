/* Measuring attention over full sequences; see run.h. */
#include "run.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "check.h"
#include "common/fma_loop.h"
#include "common/launch.h"
#include "common/machine.h"
#include "common/parallel.h"
#include "common/stats.h"
#include "part.h"
#include "prediction.h"
#include "times.h"

typedef struct attention_job {
    const attention_row *row; /* [count]; of one work, so that all but the plan is row[0]'s */
    attention_times *times;   /* [count] */
    int count;
    attention_verdict (*verdicts)[PASSES]; /* [count], or NULL */
    attention_data data;                   /* of the row that is being checked */
    barrier together;
    double *start_us, *end_us; /* [ranks] */
    pthread_mutex_t lock;
} attention_job;

/* One rank's. */
typedef struct rank_run {
    attention_job *job;
    int rank;
    ta_group *group; /* of the plans */
    rank_part part;
    ta_attention **plans; /* [count] */
} rank_run;

/* Ranks meet, actively or asleep: as threads, or as processes. */
static int gather_ranks(attention_job *job, int asleep)
{
    if (!launch.mpi)
        return asleep ? barrier_sleep(&job->together) : barrier_wait(&job->together);
    launch_wait(asleep);
    return 0;
}

/* Until its results are there. */
static ta_status run_pass(ta_attention *plan, const attention_row *row, const rank_part *part,
                          int pass)
{
    ta_attention_input input = TA_ATTENTION_INPUT_INIT;
    ta_attention_gradient gradient = TA_ATTENTION_GRADIENT_INIT;
    ta_status status;
    input.sequences = 1;
    input.lengths = &row->tokens;
    input.q.data = part->tensors[PART_Q];
    input.k.data = part->tensors[PART_K];
    input.v.data = part->tensors[PART_V];
    gradient.out.data = part->tensors[PART_OUT];
    gradient.dout.data = part->tensors[PART_DOUT];
    gradient.lse = part->tensors[PART_LSE];
    gradient.dq.data = part->tensors[PART_DQ];
    gradient.dk.data = part->tensors[PART_DK];
    gradient.dv.data = part->tensors[PART_DV];
    if (pass == PASS_FORWARD)
        status = ta_attention_forward(plan, &input, &gradient.out, part->tensors[PART_LSE], NULL);
    else
        status = ta_attention_backward(plan, &input, &gradient, NULL);
    return status == TA_OK ? ta_device_synchronize(part->device, NULL) : status;
}

/* From the first rank's start to the last one's end; all ranks have passed the barrier. Processes
 * have no common clock: there it is as long as it takes the slowest, from when all had come. */
static double span(const attention_job *job)
{
    if (launch.mpi)
        return job->end_us[launch.rank] - job->start_us[launch.rank];
    double start = job->start_us[0], end = job->end_us[0];
    for (int i = 1; i < job->row->ranks; i++) {
        start = job->start_us[i] < start ? job->start_us[i] : start;
        end = job->end_us[i] > end ? job->end_us[i] : end;
    }
    return end - start;
}

/* One sample: of a pass of a row, or of the peak for pass = PASSES. Sample -1 is not kept. */
static ta_status sample(rank_run *r, int row, int pass, int index)
{
    attention_job *job = r->job;
    ta_status status = TA_OK;
    int64_t rounds = ATTENTION_PEAK_ROUNDS;
    attention_times *times = &job->times[row];
    if (gather_ranks(job, 0) != 0)
        return TA_ERR_ABORTED;
    job->start_us[r->rank] = machine_time_us();
    if (pass < PASSES)
        status = run_pass(r->plans[row], job->row, &r->part, pass);
    else if (parallel_run(job->row->threads, fma_loop_on_thread, &rounds) != 0)
        status = TA_ERR_SYSTEM;
    job->end_us[r->rank] = machine_time_us();
    if (status != TA_OK) {
        barrier_break(&job->together);
        return status;
    }
    if (gather_ranks(job, 0) != 0)
        return TA_ERR_ABORTED;
    if ((r->rank == 0 || launch.mpi) && index >= 0)
        (pass < PASSES ? times->pass_us[pass] : times->peak_us)[index] = span(job);
    return TA_OK;
}

static void note_traffic(attention_job *job, int row, int pass, const ta_group_stats *before,
                         const ta_group_stats *after)
{
    double bytes = (double)(after->bytes_received - before->bytes_received);
    double messages = (double)(after->messages_received - before->messages_received);
    attention_times *times = &job->times[row];
    pthread_mutex_lock(&job->lock);
    times->bytes[pass] = bytes > times->bytes[pass] ? bytes : times->bytes[pass];
    times->messages[pass] = messages > times->messages[pass] ? messages : times->messages[pass];
    pthread_mutex_unlock(&job->lock);
}

/* Both passes of one row. */
static ta_status sample_row(rank_run *r, int row, int index)
{
    ta_status status = TA_OK;
    for (int pass = 0; status == TA_OK && pass < PASSES; pass++) {
        ta_group_stats before = TA_GROUP_STATS_INIT, after = TA_GROUP_STATS_INIT;
        status = ta_group_get_stats(r->group, &before);
        if (status == TA_OK)
            status = sample(r, row, pass, index);
        if (status == TA_OK)
            status = ta_group_get_stats(r->group, &after);
        if (status == TA_OK)
            note_traffic(r->job, row, pass, &before, &after);
    }
    return status;
}

/* All rows take turns, and then comes the peak: what disturbs the machine reaches all alike. */
static ta_status measure(rank_run *r)
{
    const attention_row *row = r->job->row;
    int count = r->job->count, rounds = row->warmup + row->iterations;
    ta_status status = TA_OK;
    for (int round = 0; status == TA_OK && round < rounds; round++) {
        int index = round < row->warmup ? -1 : round - row->warmup;
        for (int turn = 0; status == TA_OK && turn < count; turn++)
            status = sample_row(r, stats_turn(round, turn, count), index);
        if (status == TA_OK && !row->gpu)
            status = sample(r, 0, PASSES, index);
    }
    return status;
}

/* One more call of a row on results that are NaN before; the first rank checks what all have. */
static ta_status check_row(rank_run *r, int row)
{
    attention_job *job = r->job;
    ta_status status = part_poison(job->row, &r->part);
    for (int pass = 0; status == TA_OK && pass < PASSES; pass++)
        status = run_pass(r->plans[row], job->row, &r->part, pass);
    if (status == TA_OK)
        status = part_collect(job->row, &r->part, &job->data);
    if (status != TA_OK)
        return status;
    if (gather_ranks(job, 1) != 0)
        return TA_ERR_ABORTED;
    if (launch.mpi)
        attention_data_share(&job->data, job->row);
    if (r->rank == 0 && attention_check(job->row, &job->data, job->verdicts[row]) != 0)
        status = TA_ERR_NO_MEMORY;
    if (status != TA_OK)
        return status;
    return gather_ranks(job, 1) != 0 ? TA_ERR_ABORTED : TA_OK;
}

static ta_status check_rows(rank_run *r)
{
    attention_job *job = r->job;
    ta_status status = TA_OK;
    for (int row = 0; job->verdicts && status == TA_OK && row < job->count; row++) {
        if (launch.mpi && row > 0) { /* zeros where other processes have their numbers */
            attention_data_free(&job->data);
            if (attention_data_make(&job->data, job->row) != 0)
                return TA_ERR_NO_MEMORY;
        }
        status = check_row(r, row);
    }
    return status;
}

static ta_status make_plan(const attention_row *row, ta_group *group, ta_device *device,
                           ta_attention **plan)
{
    ta_attention_config config = TA_ATTENTION_CONFIG_INIT;
    ta_status status = attention_model_config(row, &config);
    if (status != TA_OK)
        return status;
    config.algorithm = row->algorithm;
    config.grid_columns = row->columns;
    config.grid_rows = row->columns ? row->ranks / row->columns : 0;
    config.cluster = row->algorithm == TA_ATTENTION_AUTO ? row->cluster : NULL;
    return ta_attention_create(group, device, &config, plan);
}

/* What the plan says of itself and of its calls. */
static ta_status note_stats(rank_run *r, int row)
{
    ta_attention_stats s = TA_ATTENTION_STATS_INIT;
    attention_job *job = r->job;
    attention_times *times = &job->times[row];
    ta_status status = ta_attention_get_stats(r->plans[row], &s);
    if (status != TA_OK)
        return status;
    const uint64_t calls[PASSES] = {s.forward_calls, s.backward_calls};
    const uint64_t ns[PASSES] = {s.forward_ns, s.backward_ns};
    const uint64_t attend_ns[PASSES] = {s.forward_attend_ns, s.backward_attend_ns};
    double bytes = (double)r->part.bytes + (double)s.workspace_bytes;
    pthread_mutex_lock(&job->lock);
    times->peak_bytes = bytes > times->peak_bytes ? bytes : times->peak_bytes;
    for (int pass = 0; pass < PASSES; pass++) { /* means over the calls and the ranks */
        double each = 1e-3 / (double)calls[pass] / job->row->ranks;
        times->attend_us[pass] += job->row->gpu ? NAN : (double)attend_ns[pass] * each;
        times->exchange_us[pass] +=
            job->row->gpu ? NAN : (double)(ns[pass] - attend_ns[pass]) * each;
    }
    if (r->rank == 0 || launch.mpi) {
        times->algorithm = s.algorithm;
        times->grid_rows = s.grid_rows;
        times->grid_columns = s.grid_columns;
    }
    pthread_mutex_unlock(&job->lock);
    return TA_OK;
}

static ta_status run_rows(rank_run *r)
{
    attention_job *job = r->job;
    ta_status status = part_make(job->row, r->rank, r->part.device, &r->part);
    for (int row = 0; status == TA_OK && row < job->count; row++)
        status = make_plan(&job->row[row], r->group, r->part.device, &r->plans[row]);
    if (status == TA_OK)
        status = measure(r);
    for (int row = 0; status == TA_OK && row < job->count; row++)
        status = note_stats(r, row);
    return status == TA_OK ? check_rows(r) : status;
}

static ta_status run_rank(ta_group *group, void *context)
{
    attention_job *job = context;
    rank_run r = {.job = job, .rank = ta_group_rank(group), .group = group};
    ta_status status = TA_ERR_NO_MEMORY;
    r.plans = calloc((size_t)job->count, sizeof(ta_attention *));
    if (r.plans)
        status = rank_device_open(&job->row->device, group, &r.part.device, &r.group);
    if (status == TA_OK)
        status = run_rows(&r);
    if (status != TA_OK)
        barrier_break(&job->together);
    for (int row = 0; r.plans && row < job->count; row++)
        ta_attention_destroy(r.plans[row]);
    part_free(&r.part);
    if (r.group != group)
        ta_group_destroy(r.group);
    ta_device_close(r.part.device);
    free(r.plans);
    return status;
}

ta_status attention_run(const attention_row *rows, int count, attention_times *times,
                        attention_verdict (*verdicts)[PASSES], char *error, size_t capacity)
{
    attention_job job = {.row = rows, .times = times, .count = count, .verdicts = verdicts};
    int cpus = rows->ranks * rows->threads; /* the barrier spins: samples take milliseconds */
    job.start_us = calloc((size_t)rows->ranks, sizeof(double));
    job.end_us = calloc((size_t)rows->ranks, sizeof(double));
    ta_status status = TA_ERR_NO_MEMORY;
    if (!job.start_us || !job.end_us || (verdicts && attention_data_make(&job.data, rows) != 0)) {
        snprintf(error, capacity, "not enough memory for the results of %d tokens",
                 (int)rows->tokens);
        goto free_times;
    }
    for (int row = 0; row < count; row++)
        attention_count_work(&rows[row], &times[row]);
    pthread_mutex_init(&job.lock, NULL);
    barrier_init(&job.together, rows->ranks, cpus > 2 ? 0 : cpus);
    status = launch_run(rows->ranks, run_rank, &job);
    if (status == TA_OK)
        status = attention_times_finish(rows, count, times, verdicts);
    if (status != TA_OK)
        snprintf(error, capacity, "%s: %s", ta_status_name(status), ta_last_error());
    pthread_mutex_destroy(&job.lock);
    attention_data_free(&job.data);

free_times:
    free(job.start_us);
    free(job.end_us);
    return status;
}
