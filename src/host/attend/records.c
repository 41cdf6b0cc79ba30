/* The make_records() slot of the host device: somebody's output and log-sum-exp as partials, in
 * pieces that the threads of the pool share. base/partial.h says what they are. host.c lists it. */
#include "records.h"

#include <string.h>

#include "base/dtype.h"
#include "base/partial.h"
#include "host/host.h"
#include "record_walk.h"

/* Fewer floats than this are made faster by one thread than others wake. */
#define FLOATS_WORTH_WAKING (64 << 10)

/* Records that one piece has. */
#define RECORDS_PER_PIECE 16

typedef struct records_job {
    const ta_host_kernels *kernels;
    const ta_problem *problem;
    const ta_shard_output *given;
    float *records;
} records_job;

/* One record; an empty one, and one that is NaN by its sum, reads nothing. */
static void make_record(const records_job *job, const ta_record_walk *at, float *record)
{
    const ta_problem *p = job->problem;
    const ta_shard_output *given = job->given;
    float m = ta_partial_of_lse(given->lse[at->row * p->query_heads + at->head], given->base_2);
    record[p->v_dim] = m;
    record[p->v_dim + 1] = ta_partial_empty(m) ? 0.0f : m == m ? 1.0f : NAN;
    if (m > -INFINITY)
        job->kernels->load[p->query_dtype](ta_element(p->query_dtype, given->out.data, at->at),
                                           p->v_dim, 1.0f, record);
    else
        memset(record, 0, (size_t)p->v_dim * sizeof *record);
}

static void make_piece(void *context, int64_t piece, int thread)
{
    const records_job *job = context;
    const ta_problem *p = job->problem;
    int64_t records = ta_problem_rows(p) * p->query_heads, first = piece * RECORDS_PER_PIECE;
    ta_record_walk at = ta_record_walk_start(p, &job->given->out, first);
    (void)thread;
    for (int64_t i = first; i < first + RECORDS_PER_PIECE && i < records; i++) {
        make_record(job, &at, job->records + i * ta_record_floats(p->v_dim));
        ta_record_walk_next(&at);
    }
}

ta_status ta_host_make_records(ta_device *device, const ta_problem *problem,
                               const ta_shard_output *given, float *records, const ta_tell *tell,
                               void *stream)
{
    ta_host *host = (ta_host *)device;
    records_job job = {host->kernels, problem, given, records};
    int64_t count = ta_problem_rows(problem) * problem->query_heads;
    int64_t pieces = (count + RECORDS_PER_PIECE - 1) / RECORDS_PER_PIECE;
    (void)tell; /* the host tells */
    (void)stream;
    if (count * ta_record_floats(problem->v_dim) < FLOATS_WORTH_WAKING)
        ta_pool_run_here(host->pool, pieces, make_piece, &job);
    else
        ta_pool_run(host->pool, pieces, make_piece, &job);
    return TA_OK;
}
