/* Merging records on the host, and turning them into output: the slots of merge.h, in pieces that
 * the threads of the pool share. What merging is, base/partial.h and base/tally.h say; the loops
 * over one record are in the kernels_*.c and in tally.c. */
#include "merge.h"

#include <string.h>

#include "base/dtype.h"
#include "base/partial.h"
#include "host/host.h"
#include "record_walk.h"
#include "tally.h"

/* Fewer floats than this are merged or finished faster by one thread than others wake. */
#define FLOATS_WORTH_WAKING (64 << 10)

/* Records that one piece of a loop over records takes. */
#define RECORDS_PER_PIECE 16

/* Floats of the largest record. */
#define MAX_RECORD (4 * (TA_MAX_DIM + 1) + 2)
_Static_assert(MAX_RECORD >= TA_MAX_DIM + 2, "a tally is the larger record");

static int64_t record_floats(const ta_merge *m)
{
    return m->tallies ? ta_tally_floats(m->v_dim) : ta_record_floats(m->v_dim);
}

/* Call fn for pieces that cover `records`; with other threads only if that pays. */
static void for_records(ta_host *host, int64_t records, int32_t v_dim, ta_pool_fn fn, void *context)
{
    int64_t pieces = (records + RECORDS_PER_PIECE - 1) / RECORDS_PER_PIECE;
    if (records * ta_record_floats(v_dim) < FLOATS_WORTH_WAKING)
        ta_pool_run_here(host->pool, pieces, fn, context);
    else
        ta_pool_run(host->pool, pieces, fn, context);
}

static int64_t piece_end(int64_t piece, int64_t records)
{
    int64_t end = (piece + 1) * RECORDS_PER_PIECE;
    return end < records ? end : records;
}

/* The fault of this rank and of all messages. */
static ta_fault all_faults(const ta_merge *m)
{
    ta_fault fault = *m->fault;
    for (int32_t i = 0; m->theirs && i < m->messages; i++) {
        const float *theirs = (const float *)(const void *)m->theirs + i * m->stride;
        ta_fault next = *(const ta_fault *)(const void *)theirs;
        fault = m->replaces ? next : ta_fault_merge(fault, next);
    }
    return fault;
}

/* Take record `i` of all messages into `record`, which is this rank's. */
static void take_in(const ta_host_kernels *kernels, const ta_merge *m, int64_t i, float *record)
{
    int64_t floats = record_floats(m);
    const float *theirs = m->received + (i - m->kept_first) * floats;
    for (int32_t message = 0; message < m->messages; message++, theirs += m->stride) {
        if (m->replaces)
            memcpy(record, theirs, (size_t)floats * sizeof *record);
        else if (m->tallies)
            ta_tally_merge(record, theirs, m->v_dim);
        else
            kernels->merge(record, theirs, m->v_dim);
    }
}

static int is_kept(const ta_merge *m, int64_t i)
{
    return m->messages > 0 && i >= m->kept_first && i < m->kept_end;
}

static int is_given(const ta_merge *m, int64_t i)
{
    return m->sent && i >= m->given_first && i < m->given_end;
}

typedef struct merge_job {
    const ta_host_kernels *kernels;
    const ta_merge *merge;
    int64_t first, end;
    int takes; /* nobody has a fault: what arrived is taken in */
} merge_job;

static void merge_piece(void *context, int64_t piece, int thread)
{
    const merge_job *job = context;
    const ta_merge *m = job->merge;
    int64_t floats = record_floats(m), end = job->first + piece_end(piece, job->end - job->first);
    (void)thread;
    for (int64_t i = job->first + piece * RECORDS_PER_PIECE; i < end; i++) {
        float *record = m->records + i * floats;
        if (job->takes && is_kept(m, i))
            take_in(job->kernels, m, i, record);
        if (is_given(m, i))
            memcpy(m->sent + (i - m->given_first) * floats, record,
                   (size_t)floats * sizeof *record);
    }
}

ta_status ta_host_merge(ta_device *device, const ta_merge *merge, void *stream)
{
    ta_host *host = (ta_host *)device;
    const ta_merge *m = merge;
    merge_job job = {host->kernels, m, 0, 0, 1};
    (void)stream;
    if (m->fault) {
        *m->fault = all_faults(m);
        job.takes = m->fault->status == TA_OK;
    }
    if (m->fault && m->sent)
        *(ta_fault *)(void *)(m->sent + (m->given_end - m->given_first) * record_floats(m)) =
            *m->fault;
    ta_merge_range(m, &job.first, &job.end);
    for_records(host, job.end - job.first, m->v_dim, merge_piece, &job);
    return TA_OK;
}

typedef struct finish_job {
    const ta_host_kernels *kernels;
    const ta_finish *finish;
} finish_job;

/* Where the output of a record goes; NULL: nobody wants it. */
static void *out_at(const ta_finish *f, const ta_record_walk *at)
{
    if (!f->out.data)
        return NULL;
    return (char *)f->out.data + at->at * (int64_t)ta_dtype_bytes(f->problem.out_dtype);
}

static void finish_tally(const finish_job *job, const ta_record_walk *at, const float *tally)
{
    const ta_finish *f = job->finish;
    const ta_problem *p = &f->problem;
    float sink = p->sinks ? (float)(p->sinks[f->first_head + at->head] * M_LOG2E) : -INFINITY;
    float values[TA_MAX_DIM], lse = ta_tally_finish(tally, p->v_dim, sink, values);
    void *to = out_at(f, at);
    if (to)
        job->kernels->store[p->out_dtype](values, p->v_dim, 1.0f, to);
    if (f->lse)
        f->lse[at->row * f->heads + at->head] = lse;
}

/* The o of a chain, times `factor`, as output. */
static void store_chain(const ta_host_kernels *kernels, const ta_problem *p,
                        const ta_merge_chain *chain, float factor, void *to)
{
    float values[TA_MAX_DIM];
    if (chain->count == 0) {
        kernels->store[p->out_dtype](chain->first, p->v_dim, factor, to);
    } else if (p->out_dtype == TA_F32) {
        kernels->merge_chain(chain, p->v_dim, factor, to);
    } else {
        kernels->merge_chain(chain, p->v_dim, 1.0f, values);
        kernels->store[p->out_dtype](values, p->v_dim, factor, to);
    }
}

static void finish_partial(const finish_job *job, const ta_record_walk *at, ta_merge_chain *chain)
{
    const ta_finish *f = job->finish;
    const ta_problem *p = &f->problem;
    float m = chain->first[p->v_dim], l = chain->first[p->v_dim + 1];
    float o_scale = 1.0f;
    for (int k = 0; k < chain->count; k++) {
        const float *other = chain->others + k * chain->stride;
        chain->scales[k] = ta_merge_scale(m, other[p->v_dim]);
        l = ta_merge_add(l, other[p->v_dim + 1], chain->scales[k]);
        m = chain->scales[k].m;
    }
    if (p->sinks) { /* a partial with this score, a sum of 1 and no value */
        ta_merge_scales s =
            ta_merge_scale(m, (float)(p->sinks[f->first_head + at->head] * M_LOG2E));
        l = ta_merge_add(l, 1.0f, s);
        m = s.m;
        o_scale = s.a;
    }
    void *to = out_at(f, at);
    if (to)
        store_chain(job->kernels, p, chain, o_scale * ta_partial_normalizer(m, l), to);
    if (f->lse)
        f->lse[at->row * f->heads + at->head] = ta_partial_lse(m, l);
}

/* Record `number` with the messages that are merged into it: as a chain where they can be read as
 * they are, else in `merged`. */
static void finish_record(const finish_job *job, const ta_record_walk *at, int64_t number)
{
    const ta_merge *last = &job->finish->last;
    int64_t floats = record_floats(last);
    _Alignas(8) float merged[MAX_RECORD];
    ta_merge_chain chain;
    chain.first = last->records + number * floats;
    chain.count = 0;
    if (is_kept(last, number) && !last->tallies && !last->replaces &&
        last->messages <= TA_CHAIN_MOST) {
        chain.others = last->received + (number - last->kept_first) * floats;
        chain.stride = last->stride;
        chain.count = last->messages;
    } else if (is_kept(last, number)) {
        memcpy(merged, chain.first, (size_t)floats * sizeof *merged);
        take_in(job->kernels, last, number, merged);
        chain.first = merged;
    }
    if (last->tallies)
        finish_tally(job, at, chain.first);
    else
        finish_partial(job, at, &chain);
}

static void finish_piece(void *context, int64_t piece, int thread)
{
    const finish_job *job = context;
    const ta_finish *f = job->finish;
    int64_t rows = ta_problem_rows(&f->problem), first = piece * RECORDS_PER_PIECE;
    ta_record_walk at = ta_record_walk_start(&f->problem, &f->out, first);
    (void)thread;
    for (int64_t i = first; i < piece_end(piece, rows * f->heads); i++) {
        finish_record(job, &at, f->first_head * rows + i);
        ta_record_walk_next(&at);
    }
}

ta_status ta_host_finish(ta_device *device, const ta_finish *finish, void *stream)
{
    ta_host *host = (ta_host *)device;
    finish_job job = {host->kernels, finish};
    ta_fault fault = finish->last.fault ? all_faults(&finish->last) : ta_fault_of(TA_OK, 0);
    (void)stream;
    if (fault.status == TA_OK)
        for_records(host, ta_problem_rows(&finish->problem) * finish->heads, finish->problem.v_dim,
                    finish_piece, &job);
    else if (finish->report->status == TA_OK)
        *finish->report = fault;
    return TA_OK;
}
