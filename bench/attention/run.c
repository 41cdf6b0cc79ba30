/* Measuring attention over full sequences; see run.h. */
#include "run.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/fma_loop.h"
#include "common/launch.h"
#include "common/machine.h"
#include "common/parallel.h"
#include "part.h"
#include "prediction.h"

/* Rounds of the FMA loop in one sample, on each thread: some milliseconds. */
#define PEAK_ROUNDS 2000000

typedef struct attention_job {
    const attention_row *row;
    attention_data *data;
    attention_times *times;
    barrier together;
    double *start_us, *end_us; /* [ranks] */
    pthread_mutex_t lock;
} attention_job;

int attention_data_make(attention_data *data, const attention_row *row)
{
    size_t rows = (size_t)row->tokens * (size_t)row->query_heads;
    size_t keys = (size_t)row->tokens * (size_t)row->kv_heads, dim = (size_t)row->head_dim;
    data->lse = calloc(rows, sizeof(double));
    data->out = calloc(rows * dim, sizeof(double));
    data->dq = calloc(rows * dim, sizeof(double));
    data->dk = calloc(keys * dim, sizeof(double));
    data->dv = calloc(keys * dim, sizeof(double));
    if (data->lse && data->out && data->dq && data->dk && data->dv)
        return 0;
    attention_data_free(data);
    return -1;
}

void attention_data_free(attention_data *data)
{
    free(data->lse);
    free(data->out);
    free(data->dq);
    free(data->dk);
    free(data->dv);
}

/* Ranks meet: as threads, or as processes. */
static int gather_ranks(attention_job *job)
{
    if (!launch.mpi)
        return barrier_wait(&job->together);
    launch_wait(0);
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

static void run_peak(int thread, int threads, void *context)
{
    volatile float result = fma_loop(PEAK_ROUNDS);
    (void)result;
    (void)thread;
    (void)threads;
    (void)context;
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

/* One sample: of a pass, or of the peak for pass = PASSES. Sample -1 is not kept. */
static ta_status sample(attention_job *job, int rank, ta_attention *plan, const rank_part *part,
                        int pass, int index)
{
    ta_status status = TA_OK;
    attention_times *times = job->times;
    if (gather_ranks(job) != 0)
        return TA_ERR_ABORTED;
    job->start_us[rank] = machine_time_us();
    if (pass < PASSES)
        status = run_pass(plan, job->row, part, pass);
    else if (parallel_run(job->row->threads, run_peak, NULL) != 0)
        status = TA_ERR_SYSTEM;
    job->end_us[rank] = machine_time_us();
    if (status != TA_OK) {
        barrier_break(&job->together);
        return status;
    }
    if (gather_ranks(job) != 0)
        return TA_ERR_ABORTED;
    if ((rank == 0 || launch.mpi) && index >= 0)
        (pass < PASSES ? times->pass_us[pass] : times->peak_us)[index] = span(job);
    return TA_OK;
}

static void note_traffic(attention_job *job, int pass, const ta_group_stats *before,
                         const ta_group_stats *after)
{
    double bytes = (double)(after->bytes_received - before->bytes_received);
    double messages = (double)(after->messages_received - before->messages_received);
    attention_times *times = job->times;
    pthread_mutex_lock(&job->lock);
    times->bytes[pass] = bytes > times->bytes[pass] ? bytes : times->bytes[pass];
    times->messages[pass] = messages > times->messages[pass] ? messages : times->messages[pass];
    pthread_mutex_unlock(&job->lock);
}

static ta_status measure(attention_job *job, ta_group *group, ta_attention *plan,
                         const rank_part *part)
{
    const attention_row *row = job->row;
    int rank = ta_group_rank(group);
    ta_status status = TA_OK;
    for (int i = -row->warmup; status == TA_OK && i < row->iterations; i++) {
        for (int pass = 0; status == TA_OK && pass < PASSES; pass++) {
            ta_group_stats before = TA_GROUP_STATS_INIT, after = TA_GROUP_STATS_INIT;
            status = ta_group_get_stats(group, &before);
            if (status == TA_OK)
                status = sample(job, rank, plan, part, pass, i < 0 ? -1 : i);
            if (status == TA_OK)
                status = ta_group_get_stats(group, &after);
            note_traffic(job, pass, &before, &after);
        }
        if (status == TA_OK)
            status = sample(job, rank, plan, part, PASSES, i < 0 ? -1 : i);
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
static ta_status note_stats(attention_job *job, int rank, const ta_attention *plan,
                            size_t tensor_bytes)
{
    ta_attention_stats s = TA_ATTENTION_STATS_INIT;
    attention_times *times = job->times;
    ta_status status = ta_attention_get_stats(plan, &s);
    if (status != TA_OK)
        return status;
    const uint64_t calls[PASSES] = {s.forward_calls, s.backward_calls};
    const uint64_t ns[PASSES] = {s.forward_ns, s.backward_ns};
    const uint64_t attend_ns[PASSES] = {s.forward_attend_ns, s.backward_attend_ns};
    double bytes = (double)tensor_bytes + (double)s.workspace_bytes;
    pthread_mutex_lock(&job->lock);
    times->peak_bytes = bytes > times->peak_bytes ? bytes : times->peak_bytes;
    for (int pass = 0; pass < PASSES; pass++) { /* means over the calls and the ranks */
        double each = 1e-3 / (double)calls[pass] / job->row->ranks;
        times->attend_us[pass] += (double)attend_ns[pass] * each;
        times->exchange_us[pass] += (double)(ns[pass] - attend_ns[pass]) * each;
    }
    if (rank == 0 || launch.mpi) {
        times->algorithm = s.algorithm;
        times->grid_rows = s.grid_rows;
        times->grid_columns = s.grid_columns;
    }
    pthread_mutex_unlock(&job->lock);
    return TA_OK;
}

static ta_status run_rank(ta_group *group, void *context)
{
    attention_job *job = context;
    const attention_row *row = job->row;
    ta_device_config config = TA_DEVICE_CONFIG_INIT;
    ta_device *device = NULL;
    ta_attention *plan = NULL;
    rank_part part = {0};
    int rank = ta_group_rank(group);
    config.threads = row->threads;
    config.simd = row->simd;
    ta_status status = ta_device_open(row->device, &config, &device);
    if (status == TA_OK)
        status = part_make(row, rank, device, &part);
    if (status == TA_OK)
        status = make_plan(row, group, device, &plan);
    if (status == TA_OK)
        status = measure(job, group, plan, &part);
    if (status == TA_OK)
        status = note_stats(job, rank, plan, part.bytes);
    if (status == TA_OK)
        status = part_collect(row, &part, job->data);
    if (status != TA_OK)
        barrier_break(&job->together);
    ta_attention_destroy(plan);
    part_free(&part);
    ta_device_close(device);
    return status;
}

/* A score takes a multiply-add for each dimension, and so does each of the other products: two in
 * forward, five in backward. */
static void count_work(const attention_row *row, attention_times *times)
{
    double n = row->tokens, pairs = row->mask == TA_MASK_CAUSAL ? n * (n + 1) / 2 : n * n;
    double product = 2 * pairs * row->query_heads * row->head_dim;
    times->pass_flops[PASS_FORWARD] = 2 * product;
    times->pass_flops[PASS_BACKWARD] = 5 * product;
    times->peak_flops = (double)FMA_ROUND_FLOPS * PEAK_ROUNDS * row->threads * row->ranks;
}

/* Every process has its own tokens' numbers, and 0 elsewhere. */
static void share_numbers(double *numbers, size_t count)
{
    const size_t most = 1 << 20;
    for (size_t done = 0; done < count; done += most)
        launch_sum(numbers + done, (int)(count - done < most ? count - done : most));
}

/* Bring the processes' numbers together. */
static void reduce_processes(const attention_row *row, attention_data *data, attention_times *times)
{
    size_t rows = (size_t)row->tokens * (size_t)row->query_heads;
    size_t keys = (size_t)row->tokens * (size_t)row->kv_heads, dim = (size_t)row->head_dim;
    for (int pass = 0; pass < PASSES; pass++)
        launch_max(times->pass_us[pass], row->iterations);
    launch_max(times->peak_us, row->iterations);
    launch_max(times->bytes, PASSES);
    launch_max(times->messages, PASSES);
    launch_max(&times->peak_bytes, 1);
    launch_sum(times->attend_us, PASSES);
    launch_sum(times->exchange_us, PASSES);
    share_numbers(data->out, rows * dim);
    share_numbers(data->lse, rows);
    share_numbers(data->dq, rows * dim);
    share_numbers(data->dk, keys * dim);
    share_numbers(data->dv, keys * dim);
}

ta_status attention_run(const attention_row *row, attention_data *data, attention_times *times,
                        char *error, size_t capacity)
{
    attention_job job = {.row = row, .data = data, .times = times};
    int cpus = row->ranks * row->threads; /* the barrier spins: samples take milliseconds */
    job.start_us = calloc((size_t)row->ranks, sizeof(double));
    job.end_us = calloc((size_t)row->ranks, sizeof(double));
    ta_status status = TA_ERR_NO_MEMORY;
    if (!job.start_us || !job.end_us) {
        snprintf(error, capacity, "not enough memory");
        goto free_times;
    }
    count_work(row, times);
    pthread_mutex_init(&job.lock, NULL);
    barrier_init(&job.together, row->ranks, cpus > 2 ? 0 : cpus);
    status = launch_run(row->ranks, run_rank, &job);
    if (status == TA_OK && launch.mpi)
        reduce_processes(row, data, times);
    if (status == TA_OK && row->cluster)
        status = attention_model_times(row, times);
    if (status != TA_OK)
        snprintf(error, capacity, "%s: %s", ta_status_name(status), ta_last_error());
    pthread_mutex_destroy(&job.lock);

free_times:
    free(job.start_us);
    free(job.end_us);
    return status;
}
