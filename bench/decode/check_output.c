/* Which rows are checked, and the comparison; exact_row.c has the truth and the tolerance. See
 * check_output.h; decode.c calls it after each row. */
#include "check_output.h"

#include <math.h>
#include <stdlib.h>

#include "common/elements.h"
#include "common/launch.h"
#include "common/parallel.h"
#include "exact_row.h"

/* Multiply-adds to spend on a row of the table, unless that is fewer than MIN_ROWS rows: a few
 * tenths of a second. */
#define WORK ((double)(1 << 27))
#define MIN_ROWS 4

/* V is within [-1, 1], and so is every weighted mean of it; the rest is room for rounding. */
#define OUT_LIMIT (1 + 0x1p-7)

typedef struct check_part {
    int64_t checked, wrong;
    double worst;
} check_part;

typedef struct check_job {
    const decode_options *options;
    const kv_layout *layout;
    const rank_tensors *tensors;
    int64_t rows, sampled; /* rows of attention in a step, and how many of them are checked */
    check_part *parts;     /* [threads] */
    atomic_int failed;
} check_job;

static void compare(check_part *part, double expected, double tolerance, double got)
{
    double ratio = fabs(got - expected) / tolerance;
    if (isnan(ratio)) /* a NaN must not pass a comparison */
        ratio = INFINITY;
    part->checked++;
    part->wrong += ratio > 1;
    part->worst = ratio > part->worst ? ratio : part->worst;
}

/* The sample is spread evenly, at a place in each interval that changes, so that it does not
 * meet the same query head of every KV head. */
static int64_t sampled_row(const check_job *job, int64_t i)
{
    int64_t first = job->rows * i / job->sampled, end = job->rows * (i + 1) / job->sampled;
    return first + (i * 7 + 3) % (end - first);
}

/* What a rank has of row `index`: v_dim outputs and the lse. Returns -1 if it has nothing of it, or
 * is another process, which checks its own. */
static int read_output(const check_job *job, int rank, int64_t index, double *out, double *lse)
{
    const bench_case *row = job->layout->row;
    const rank_tensors *tensors = &job->tensors[rank];
    int64_t v_dim = job->options->v_dim;
    int head = (int)(index % row->query_heads) - tensors->out.first_head;
    if (head < 0 || head >= tensors->out.heads || (launch.mpi && rank != launch.rank))
        return -1;
    int64_t vector = index / row->query_heads * tensors->out.heads + head;
    size_t offset = (size_t)(vector * v_dim) * element_bytes(row->dtype);
    element_read(row->dtype, (const char *)tensors->out.data + offset, v_dim, out);
    *lse = tensors->lse[vector];
    return 0;
}

static void compare_row(const check_job *job, int64_t index, const exact_row *exact,
                        check_part *part)
{
    double out[EXACT_MAX_DIM], lse;
    for (int rank = 0; rank < job->layout->row->ranks; rank++) {
        if (read_output(job, rank, index, out, &lse) != 0)
            continue;
        for (int64_t d = 0; d < job->options->v_dim; d++)
            compare(part, exact->out[d], exact->out_tolerance[d], out[d]);
        compare(part, exact->lse, exact->lse_tolerance, lse);
    }
}

static void check_sample(int thread, int threads, void *context)
{
    check_job *job = context;
    const bench_case *row = job->layout->row;
    exact_row *exact = malloc(sizeof *exact);
    exact_key *keys = malloc((size_t)row->tokens * sizeof *keys);
    if (!exact || !keys) {
        atomic_store(&job->failed, 1);
        goto free_memory;
    }
    for (int64_t i = thread; i < job->sampled; i += threads) {
        int64_t index = sampled_row(job, i);
        exact_row_compute(job->options, job->layout, index / row->query_heads,
                          (int)(index % row->query_heads), keys, exact);
        compare_row(job, index, exact, &job->parts[thread]);
    }
free_memory:
    free(exact);
    free(keys);
}

/* Among the outputs that the sample leaves out, those that are not even possible. */
static int64_t count_impossible(const check_job *job)
{
    int64_t wrong = 0, next = 0;
    double out[EXACT_MAX_DIM], lse;
    for (int64_t index = 0; index < job->rows; index++) {
        if (next < job->sampled && sampled_row(job, next) == index) {
            next++;
            continue;
        }
        for (int rank = 0; rank < job->layout->row->ranks; rank++) {
            if (read_output(job, rank, index, out, &lse) != 0)
                continue;
            for (int64_t d = 0; d < job->options->v_dim; d++)
                wrong += !(fabs(out[d]) <= OUT_LIMIT);
            wrong += !isfinite(lse);
        }
    }
    return wrong;
}

int check_result(const decode_options *options, const bench_machine *machine,
                 const kv_layout *layout, const rank_tensors *tensors, bench_result *result)
{
    const bench_case *row = layout->row;
    check_job job = {.options = options, .layout = layout, .tensors = tensors};
    int status = 0, threads = machine->cpus;
    double row_work = (double)row->tokens * (double)(options->head_dim + options->v_dim);
    job.rows = options_rows(options) * row->query_heads;
    job.sampled = WORK / row_work > MIN_ROWS ? (int64_t)(WORK / row_work) : MIN_ROWS;
    job.sampled = job.sampled < job.rows ? job.sampled : job.rows;
    threads = job.sampled < threads ? (int)job.sampled : threads;
    job.parts = calloc((size_t)threads, sizeof *job.parts);
    if (!job.parts)
        return -1;
    atomic_init(&job.failed, 0);
    if (parallel_run(threads, check_sample, &job) != 0 || atomic_load(&job.failed))
        status = -1;
    result->checked = result->wrong = 0;
    result->worst = 0;
    for (int i = 0; i < threads; i++) {
        result->checked += job.parts[i].checked;
        result->wrong += job.parts[i].wrong;
        result->worst = fmax(result->worst, job.parts[i].worst);
    }
    result->wrong += count_impossible(&job);
    double counts[] = {(double)result->checked, (double)result->wrong};
    launch_sum(counts, 2);
    launch_max(&result->worst, 1);
    result->checked = (int64_t)counts[0];
    result->wrong = (int64_t)counts[1];
    free(job.parts);
    return status;
}
