/* Measuring attention over full sequences; see attention_run.h. */
#include "attention_run.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "elements.h"
#include "fma_loop.h"
#include "machine.h"
#include "parallel.h"

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

static int32_t input_heads(const attention_row *row, int input)
{
    return input == INPUT_Q || input == INPUT_DOUT ? row->query_heads : row->kv_heads;
}

/* Some rows of an input, for tokens in a row. */
static void fill_input(const attention_row *row, int input, int64_t first, int64_t rows, void *data)
{
    element_fill(row->dtype, data, first * row->head_dim, rows * row->head_dim, (uint64_t)input + 1,
                 input == INPUT_Q ? 4.0f : 1.0f);
}

void attention_input_row(const attention_row *row, int input, int32_t token, int32_t head,
                         double *numbers)
{
    float stored[256];
    fill_input(row, input, (int64_t)token * input_heads(row, input) + head, 1, stored);
    element_read(row->dtype, stored, row->head_dim, numbers);
}

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

ta_shard_map attention_map(const attention_row *row)
{
    ta_shard_map map = TA_SHARD_MAP_INIT;
    int parts = row->map == TA_SHARD_ZIGZAG ? 2 * row->ranks : row->ranks;
    map.kind = row->map;
    map.ranks = row->ranks;
    map.block = row->block;
    if (!map.block && row->map != TA_SHARD_BLOCK_CYCLIC)
        map.block = (row->tokens + parts - 1) / parts;
    return map;
}

/* One rank's part: inputs and results of its tokens, in the dtype. */
typedef struct rank_part {
    int32_t tokens;
    int32_t *positions;
    char *inputs[INPUTS];
    char *out, *dq, *dk, *dv;
    float *lse;
} rank_part;

static char *make_tensor(const attention_row *row, const rank_part *part, int32_t heads)
{
    size_t numbers = (size_t)part->tokens * (size_t)heads * (size_t)row->head_dim;
    return calloc(numbers + 1, element_bytes(row->dtype));
}

static ta_status make_part(const attention_row *row, int rank, rank_part *part)
{
    ta_shard_map map = attention_map(row);
    ta_status status = ta_shard_count(&map, rank, row->tokens, &part->tokens);
    if (status != TA_OK)
        return status;
    part->positions = calloc((size_t)part->tokens + 1, sizeof *part->positions);
    part->lse = calloc((size_t)part->tokens * (size_t)row->query_heads + 1, sizeof(float));
    part->out = make_tensor(row, part, row->query_heads);
    part->dq = make_tensor(row, part, row->query_heads);
    part->dk = make_tensor(row, part, row->kv_heads);
    part->dv = make_tensor(row, part, row->kv_heads);
    if (!part->positions || !part->lse || !part->out || !part->dq || !part->dk || !part->dv)
        return TA_ERR_NO_MEMORY;
    for (int32_t i = 0; status == TA_OK && i < part->tokens; i++)
        status = ta_shard_position(&map, rank, i, &part->positions[i]);
    for (int input = 0; status == TA_OK && input < INPUTS; input++) {
        int64_t heads = input_heads(row, input);
        size_t bytes = (size_t)heads * (size_t)row->head_dim * element_bytes(row->dtype);
        part->inputs[input] = make_tensor(row, part, (int32_t)heads);
        if (!part->inputs[input])
            return TA_ERR_NO_MEMORY;
        for (int32_t i = 0; i < part->tokens; i++)
            fill_input(row, input, part->positions[i] * heads, heads,
                       part->inputs[input] + (size_t)i * bytes);
    }
    return status;
}

static void free_part(rank_part *part)
{
    for (int input = 0; input < INPUTS; input++)
        free(part->inputs[input]);
    free(part->positions);
    free(part->lse);
    free(part->out);
    free(part->dq);
    free(part->dk);
    free(part->dv);
}

static void collect_tensor(const attention_row *row, const rank_part *part, const char *from,
                           int32_t heads, double *to)
{
    int64_t numbers = (int64_t)heads * row->head_dim;
    size_t bytes = (size_t)numbers * element_bytes(row->dtype);
    for (int32_t i = 0; i < part->tokens; i++)
        element_read(row->dtype, from + (size_t)i * bytes, numbers,
                     to + part->positions[i] * numbers);
}

/* Bring one rank's results together with the others'. */
static void collect(const attention_job *job, const rank_part *part)
{
    const attention_row *row = job->row;
    attention_data *d = job->data;
    collect_tensor(row, part, part->out, row->query_heads, d->out);
    collect_tensor(row, part, part->dq, row->query_heads, d->dq);
    collect_tensor(row, part, part->dk, row->kv_heads, d->dk);
    collect_tensor(row, part, part->dv, row->kv_heads, d->dv);
    for (int64_t i = 0; i < (int64_t)part->tokens * row->query_heads; i++)
        d->lse[(int64_t)part->positions[i / row->query_heads] * row->query_heads +
               i % row->query_heads] = (double)part->lse[i];
}

static ta_status run_pass(ta_attention *plan, const attention_row *row, const rank_part *part,
                          int pass)
{
    ta_attention_input input = TA_ATTENTION_INPUT_INIT;
    ta_attention_gradient gradient = TA_ATTENTION_GRADIENT_INIT;
    input.sequences = 1;
    input.lengths = &row->tokens;
    input.q.data = part->inputs[INPUT_Q];
    input.k.data = part->inputs[INPUT_K];
    input.v.data = part->inputs[INPUT_V];
    gradient.out.data = part->out;
    if (pass == PASS_FORWARD)
        return ta_attention_forward(plan, &input, &gradient.out, part->lse, NULL);
    gradient.dout.data = part->inputs[INPUT_DOUT];
    gradient.lse = part->lse;
    gradient.dq.data = part->dq;
    gradient.dk.data = part->dk;
    gradient.dv.data = part->dv;
    return ta_attention_backward(plan, &input, &gradient, NULL);
}

static void run_peak(int thread, int threads, void *context)
{
    volatile float result = fma_loop(PEAK_ROUNDS);
    (void)result;
    (void)thread;
    (void)threads;
    (void)context;
}

/* From the first rank's start to the last one's end; all ranks have passed the barrier. */
static double span(const attention_job *job)
{
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
    if (barrier_wait(&job->together) != 0)
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
    if (barrier_wait(&job->together) != 0)
        return TA_ERR_ABORTED;
    if (rank == 0 && index >= 0)
        (pass < PASSES ? times->pass_us[pass] : times->peak_us)[index] = span(job);
    return TA_OK;
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
            status = ta_group_count(group, &before);
            if (status == TA_OK)
                status = sample(job, rank, plan, part, pass, i < 0 ? -1 : i);
            if (status == TA_OK)
                status = ta_group_count(group, &after);
            uint64_t bytes = after.bytes_received - before.bytes_received;
            pthread_mutex_lock(&job->lock);
            if (bytes >= job->times->bytes[pass]) {
                job->times->bytes[pass] = bytes;
                job->times->messages[pass] = after.messages_received - before.messages_received;
            }
            pthread_mutex_unlock(&job->lock);
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
    config.query_heads = row->query_heads;
    config.kv_heads = row->kv_heads;
    config.k_dim = row->head_dim;
    config.dtype = row->dtype;
    ta_shard_map map = attention_map(row);
    for (int rank = 0; rank < row->ranks; rank++) {
        int32_t count;
        ta_status status = ta_shard_count(&map, rank, row->tokens, &count);
        if (status != TA_OK)
            return status;
        config.max_tokens = count > config.max_tokens ? count : config.max_tokens;
    }
    config.map.kind = row->map;
    config.map.block = row->block;
    config.mask = row->mask;
    config.algorithm = row->algorithm;
    config.grid_columns = row->columns;
    config.grid_rows = row->columns ? row->ranks / row->columns : 0;
    return ta_attention_create(group, device, &config, plan);
}

static ta_status run_rank(ta_group *group, void *context)
{
    attention_job *job = context;
    const attention_row *row = job->row;
    ta_device_config config = TA_DEVICE_CONFIG_INIT;
    ta_device *device = NULL;
    ta_attention *plan = NULL;
    rank_part part = {0};
    config.threads = row->threads;
    config.simd = row->simd;
    ta_status status = make_part(row, ta_group_rank(group), &part);
    if (status == TA_OK)
        status = ta_device_open("host", &config, &device);
    if (status == TA_OK)
        status = make_plan(row, group, device, &plan);
    if (status == TA_OK)
        status = measure(job, group, plan, &part);
    if (status == TA_OK)
        collect(job, &part);
    else
        barrier_break(&job->together);
    ta_attention_destroy(plan);
    ta_device_close(device);
    free_part(&part);
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

ta_status attention_run(const attention_row *row, attention_data *data, attention_times *times,
                        char *error, size_t capacity)
{
    attention_job job = {.row = row, .data = data, .times = times};
    int cpus = row->ranks * row->threads; /* the barrier spins: samples take milliseconds */
    job.start_us = calloc((size_t)row->ranks, sizeof(double));
    job.end_us = calloc((size_t)row->ranks, sizeof(double));
    if (!job.start_us || !job.end_us) {
        snprintf(error, capacity, "not enough memory");
        return TA_ERR_NO_MEMORY;
    }
    count_work(row, times);
    pthread_mutex_init(&job.lock, NULL);
    barrier_init(&job.together, row->ranks, cpus > 2 ? 0 : cpus);
    ta_status status = ta_group_run_threads(row->ranks, NULL, run_rank, &job);
    if (status != TA_OK)
        snprintf(error, capacity, "%s: %s", ta_status_name(status), ta_last_error());
    pthread_mutex_destroy(&job.lock);
    free(job.start_us);
    free(job.end_us);
    return status;
}
