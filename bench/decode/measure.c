/* The rows of one work. Every rank makes a plan for each algorithm, on a device of its own
 * (rank_plan.c); then steps of the algorithms take turns, and read sweeps of the same cache with as
 * many threads come between them, in one run, so that a disturbance of the machine reaches all
 * (rank_steps.c). docs/benchmarks.md defines what is timed. decode.c calls measure_rows(). */
#include "measure.h"

#include <stdio.h>
#include <stdlib.h>

#include "common/launch.h"
#include "prediction.h"
#include "rank_steps.h"

/* Called twice with the same, zeroed struct: then it holds what has passed between the calls. The
 * memory is that of the moment. On the host K and V are the benchmark's own; a GPU counts them on
 * the first algorithm's device. */
static ta_status count_costs(rank_run *r, const rank_run *first)
{
    const measurement *m = r->run->m;
    const bench_case *row = &r->result->row;
    rank_cost *cost = &r->result->costs[r->rank];
    ta_plan_stats now = TA_PLAN_STATS_INIT;
    ta_status status = ta_plan_get_stats(r->opened.plan, &now);
    cost->step_ns = now.step_ns - cost->step_ns;
    cost->attend_ns = now.attend_ns - cost->attend_ns;
    cost->device_attend_ns = now.device_attend_ns - cost->device_attend_ns;
    cost->peak_bytes = now.device_bytes_most - (r->scratch ? SWEEP_BYTES : 0);
    if (r != first)
        cost->peak_bytes += device_copy_cache_bytes(&first->data);
    if (!m->options->devices.gpu)
        cost->peak_bytes += (uint64_t)(kv_whole_bytes(m->options, row) / row->tokens *
                                       kv_most_tokens(m->options, row));
    return status;
}

static ta_status count_all_costs(rank_run *all)
{
    ta_status status = TA_OK;
    for (int a = 0; status == TA_OK && a < all->run->count; a++)
        status = count_costs(&all[a], all);
    return status;
}

/* One more step of an algorithm, whose results are then checked. */
static ta_status last_step(rank_run *r, rank_tensors *tensors)
{
    tensors_poison(tensors, r->run->m->options, &r->result->row);
    ta_status status = device_copy_results(&r->data, tensors, 0);
    if (status == TA_OK)
        status = rank_step(r);
    return status == TA_OK ? device_copy_results(&r->data, tensors, 1) : status;
}

static ta_status run_steps(rank_run *all)
{
    const measurement *m = all->run->m;
    ta_status status = rank_steps_warm_up(all);
    if (status == TA_OK && m->options->devices.gpu)
        status = ta_device_alloc(all->data.device, SWEEP_BYTES, &all->scratch);
    if (status == TA_OK)
        status = count_all_costs(all);
    if (status == TA_OK)
        status = rank_steps_alternate(all);
    if (status == TA_OK)
        status = count_all_costs(all);
    for (int a = 0; status == TA_OK && a < all->run->count; a++)
        status = last_step(&all[a], &m->tensors[a][all->rank]);
    return status;
}

/* The device and the plan of an algorithm, and its data; all share one copy of the cache. */
static ta_status open_algorithm(rank_run *r, const rank_run *first, ta_group *group, int index)
{
    row_run *run = r->run;
    const measurement *m = run->m;
    size_t spans = run->most_samples * (size_t)run->result->row.ranks;
    r->result = &run->result[index];
    r->rank = ta_group_rank(group);
    r->spans = run->spans + (size_t)index * spans;
    ta_status status = rank_plan_open(m->options, &r->result->row, group, &r->opened);
    if (status != TA_OK)
        r->opened = (rank_plan){0};
    return status != TA_OK
               ? status
               : device_copy_make(&r->data, r->opened.device, m->options, m->layout,
                                  &m->tensors[index][r->rank], r->rank,
                                  index > 0 && m->options->devices.gpu ? &first->data : NULL);
}

/* What rank 0 keeps of a plan, with what its last step did. */
static ta_status keep_plan(rank_run *r)
{
    ta_status status = rank_plan_explain(&r->opened, &r->result->plan);
    if (status == TA_OK && r->opened.cluster)
        status = prediction_keep(r->opened.cluster, r->result);
    return status;
}

static ta_status rank_main(ta_group *group, void *context)
{
    row_run *run = context;
    rank_run all[ARG_LIST_MAX] = {{0}};
    ta_status status = TA_OK;
    int opened = 0;
    while (status == TA_OK && opened < run->count) {
        all[opened].run = run;
        status = open_algorithm(&all[opened], all, group, opened);
        opened++;
    }
    if (status == TA_OK)
        status = run_steps(all);
    for (int a = 0; status == TA_OK && all->rank == 0 && a < opened; a++)
        status = keep_plan(&all[a]);
    if (all->scratch)
        ta_device_free(all->opened.device, all->scratch);
    while (opened-- > 0) { /* the first one has the cache */
        device_copy_free(&all[opened].data);
        rank_plan_close(&all[opened].opened);
    }
    if (status != TA_OK)
        barrier_break(&run->together);
    return status;
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

static ta_status allocate_result(const row_run *run, bench_result *result)
{
    const measurement *m = run->m;
    size_t samples = run->most_samples, ranks = (size_t)result->row.ranks;
    result->algorithm = options_algorithm_name(&result->row);
    result->kv_bytes = kv_read_bytes(m->options, &result->row);
    result->step_us = calloc(samples, sizeof *result->step_us);
    result->read_us = calloc(samples, sizeof *result->read_us);
    result->fma_us = calloc(samples, sizeof *result->fma_us);
    result->exchanged = calloc(ranks, sizeof *result->exchanged);
    result->costs = calloc(ranks, sizeof *result->costs);
    return result->step_us && result->read_us && result->fma_us && result->exchanged &&
                   result->costs
               ? TA_OK
               : TA_ERR_NO_MEMORY;
}

static ta_status allocate(row_run *run)
{
    const measurement *m = run->m;
    size_t ranks = (size_t)run->result->row.ranks;
    run->most_samples =
        (size_t)(m->options->sweep.iterations ? m->options->sweep.iterations : OPTIONS_MAX_SAMPLES);
    for (int a = 0; a < run->count; a++)
        if (allocate_result(run, &run->result[a]) != TA_OK)
            return TA_ERR_NO_MEMORY;
    run->spans = calloc((size_t)run->count * run->most_samples * ranks, sizeof *run->spans);
    run->sweeps = calloc(run->most_samples * ranks, sizeof *run->sweeps);
    make_readers(run);
    return run->spans && run->sweeps && run->readers ? TA_OK : TA_ERR_NO_MEMORY;
}

ta_status measure_rows(const measurement *m, bench_result *results, int count, char *error,
                       size_t capacity)
{
    row_run run = {.m = m, .result = results, .count = count};
    ta_status status = allocate(&run);
    if (status != TA_OK) {
        snprintf(error, capacity, "not enough memory or threads to time %d ranks of %d threads",
                 results->row.ranks, results->row.threads);
        goto free_run;
    }
    barrier_init(&run.together, results->row.ranks, m->machine->cpus);
    status = launch_run(results->row.ranks, rank_main, &run);
    if (status != TA_OK) {
        snprintf(error, capacity, "%s: %s", ta_status_name(status), ta_last_error());
        goto free_run;
    }
    samples_reduce_sweeps(&run);
    for (int a = 0; a < count; a++) {
        if (samples_finish(&run, a) != 0) {
            snprintf(error, capacity, "not enough memory to sort %d samples", results->samples);
            status = TA_ERR_NO_MEMORY;
            goto free_run;
        }
        status = prediction_make(m->options, &results[a]);
        if (status != TA_OK) {
            snprintf(error, capacity, "the row could not be predicted: %s", ta_last_error());
            goto free_run;
        }
    }
free_run:
    readers_destroy(run.readers);
    free(run.sweeps);
    free(run.spans);
    return status;
}
