/* `treeattn-bench decode`: the main job. Reads the flags, makes sure that what they ask for can
 * be, and runs work after work, with all algorithms of each together: measure.c times it,
 * check_output.c checks it, table.c prints it, report.c writes it down. */
#include "decode.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check_output.h"
#include "common/elements.h"
#include "common/fail.h"
#include "common/launch.h"
#include "common/quiet.h"
#include "common/run_files.h"
#include "csv.h"
#include "kv_cache.h"
#include "measure.h"
#include "progress.h"
#include "rank_plan.h"
#include "report.h"
#include "table.h"

typedef struct decode_job {
    decode_options options;
    bench_machine machine;
    bench_case *cases;
    bench_result *results;
    int count; /* of both */
    run_files files;
    rank_place *places; /* [most_ranks] */
    int64_t most_ranks; /* of all rows */
    size_t cache_bytes; /* of the largest row */
    kv_arena arena;
    progress progress;
} decode_job;

static const char command[] = "decode";

/* The memory of the largest row, compared with what there is. */
static int check_memory(decode_job *job, char *error, size_t capacity)
{
    const double gib = 0x1p-30;
    double largest = 0, largest_cache = 0;
    for (int i = 0; i < job->count; i++) {
        double cache = kv_layout_bytes(&job->options, &job->cases[i]);
        double bytes =
            cache + tensors_bytes(&job->options, &job->cases[i]) * job->options.algorithms.count;
        largest = bytes > largest ? bytes : largest;
        largest_cache = cache > largest_cache ? cache : largest_cache;
    }
    if (launch.mpi) /* the processes of this host share its memory */
        largest *= (double)launch.local_ranks / launch.ranks;
    if (largest > (double)job->machine.available_bytes) {
        snprintf(error, capacity,
                 "the largest row needs %.1f GiB, but this machine has %.1f GiB of memory, %.1f of "
                 "it available: lower --end, --batch, --kv-heads, --head-dim or --ranks",
                 largest * gib, (double)job->machine.memory_bytes * gib,
                 (double)job->machine.available_bytes * gib);
        return EXIT_USAGE;
    }
    job->cache_bytes = (size_t)largest_cache;
    return EXIT_OK;
}

static int find_places(decode_job *job)
{
    const decode_options *o = &job->options;
    for (int i = 0; i < job->count; i++)
        if (job->cases[i].ranks > job->most_ranks)
            job->most_ranks = job->cases[i].ranks;
    job->places = places_find(o->sweep.device, o->devices.each, (int)job->most_ranks);
    return job->places ? EXIT_OK
                       : fail_alone(command, EXIT_WRONG, "not enough memory for the list of ranks");
}

/* What one process finds alone, all must know before they go on. */
static int prepare(decode_job *job)
{
    char error[1200] = "";
    element_init();
    machine_read(&job->machine);
    job->cases = options_cases(&job->options, &job->machine, &job->count);
    job->results = job->cases ? calloc((size_t)job->count, sizeof *job->results) : NULL;
    if (!job->results)
        return fail_alone(command, EXIT_WRONG, "not enough memory for the list of rows");
    progress_init(&job->progress, job->count);
    int code = options_try_device(&job->options, error, sizeof error);
    if (code == EXIT_OK)
        code = check_memory(job, error, sizeof error);
    if (code == EXIT_OK)
        code = run_files_open(&job->files, job->options.sweep.json, job->options.csv, error,
                              sizeof error);
    code = fail_agree(command, code, error);
    return code == EXIT_OK ? find_places(job) : code;
}

static int print_header(decode_job *job)
{
    char *plan = NULL;
    const bench_case *last = &job->cases[job->count - 1];
    ta_status status = rank_plan_try(&job->options, last, &plan);
    if (status == TA_OK && launch.rank == 0)
        table_header(&job->options, &job->machine, job->count, plan, job->places,
                     (int)job->most_ranks);
    free(plan);
    if (status == TA_ERR_UNSUPPORTED && job->options.graph)
        return fail_alike(command, EXIT_NO_DEVICE,
                          "-G is not possible with this device and group: %s", ta_last_error());
    if (status != TA_OK)
        return fail_alone(command, fail_code(status), "%s: %s", ta_status_name(status),
                          ta_last_error());
    return EXIT_OK;
}

/* Rows of the same work follow one another. */
static int count_same_work(const decode_job *job, int index)
{
    int count = 1;
    while (index + count < job->count &&
           options_same_work(&job->cases[index], &job->cases[index + count]))
        count++;
    return count;
}

static int check_row(decode_job *job, const kv_layout *layout, rank_tensors *tensors,
                     bench_result *result)
{
    result->wrong = -1;
    if (!job->options.sweep.check)
        return EXIT_OK;
    progress_say(&job->progress, "checking the results");
    int status = check_result(&job->options, &job->machine, layout, tensors, result);
    progress_clear(&job->progress);
    if (status != 0)
        return fail_alone(command, EXIT_WRONG, "not enough memory or threads for the check");
    return result->wrong > 0 ? EXIT_WRONG : EXIT_OK;
}

/* All rows of one work. A wrong one does not stop the table, a failed one does: then *failed. */
static int measure_and_check(decode_job *job, const kv_layout *layout, rank_tensors *const *tensors,
                             bench_result *results, int count, int *failed)
{
    char error[512];
    int code = EXIT_OK;
    quiet_watch watch;
    measurement m = {&job->options, &job->machine, layout, tensors, progress_row, &job->progress};
    quiet_begin(&watch);
    ta_status status = measure_rows(&m, results, count, error, sizeof error);
    progress_clear(&job->progress);
    *failed = status != TA_OK;
    if (status != TA_OK)
        return fail_alone(command, fail_code(status), "%s", error);
    double others = quiet_others(&watch);
    for (int i = 0; i < count && !*failed; i++) {
        int row_code = check_row(job, layout, tensors[i], &results[i]);
        results[i].others = others;
        *failed = row_code != EXIT_OK && results[i].wrong <= 0;
        if (!*failed)
            table_row(&results[i]);
        code = row_code != EXIT_OK ? row_code : code;
    }
    return code;
}

/* Memory of the row's kind of pages, with the row's contents, divided as the row wants it. */
static int make_cache(decode_job *job, const bench_case *row, kv_layout *layout)
{
    kv_arena *arena = &job->arena;
    if (!arena->data || arena->pages != row->pages) {
        kv_arena_free(arena);
        if (kv_arena_alloc(arena, job->cache_bytes, row->pages) != 0)
            return fail_alone(command, EXIT_WRONG, "%.1f GiB for K and V could not be allocated",
                              (double)job->cache_bytes * 0x1p-30);
    }
    if (launch.mpi || arena->filled != row->kv_dtype)
        progress_say(&job->progress, "filling the cache");
    if (!launch.mpi && kv_arena_fill(arena, row->kv_dtype, job->machine.cpus) != 0)
        return fail_alone(command, EXIT_WRONG, "the threads that fill the cache could not be made");
    if (kv_layout_make(layout, &job->options, row, arena) != 0)
        return fail_alone(command, EXIT_WRONG, "not enough memory for the shards of %d ranks",
                          row->ranks);
    if (launch.mpi && kv_shard_fill(layout, row->threads) != 0) {
        kv_layout_free(layout);
        return fail_alone(command, EXIT_WRONG, "the threads that fill the shard could not be made");
    }
    return EXIT_OK;
}

/* Which pages the row's memory is in; printed when that may have changed. */
static void see_pages(decode_job *job, const kv_layout *layout, int index)
{
    bench_result *result = &job->results[index];
    const kv_arena *arena = &job->arena;
    result->mapped_bytes = launch.mpi ? (double)kv_shard_bytes(layout) : (double)arena->bytes;
    result->huge_bytes = pages_huge_bytes(launch.mpi ? layout->shards[launch.rank].k : arena->data,
                                          (size_t)result->mapped_bytes);
    if (launch.rank == 0 && (index == 0 || result[-1].row.pages != result->row.pages))
        table_pages(result->row.pages, result->mapped_bytes, result->huge_bytes, index == 0);
}

static void free_tensors(rank_tensors **tensors, const bench_case *row, int count)
{
    for (int i = 0; i < count; i++)
        tensors_free(tensors[i], row);
}

/* The rows of one work, from `index` on. */
static int run_work(decode_job *job, int index, int count, int *failed)
{
    const bench_case *row = &job->cases[index];
    rank_tensors *tensors[ARG_LIST_MAX] = {NULL};
    kv_layout layout;
    *failed = 1;
    for (int i = 0; i < count; i++)
        job->results[index + i].row = row[i];
    job->progress.row = index;
    job->progress.shape = row;
    int code = make_cache(job, row, &layout);
    if (code != EXIT_OK)
        return code;
    progress_clear(&job->progress);
    see_pages(job, &layout, index);
    for (int i = 0; i < count; i++) {
        job->results[index + i].mapped_bytes = job->results[index].mapped_bytes;
        job->results[index + i].huge_bytes = job->results[index].huge_bytes;
        tensors[i] = tensors_make(&job->options, row);
        if (!tensors[i])
            code = fail_alone(command, EXIT_WRONG, "not enough memory for the tensors of %d ranks",
                              row->ranks);
    }
    if (code == EXIT_OK)
        code = measure_and_check(job, &layout, tensors, &job->results[index], count, failed);
    free_tensors(tensors, row, count);
    kv_layout_free(&layout);
    return code;
}

static int run_rows(decode_job *job, int argc, char **argv)
{
    int code = EXIT_OK, done = 0, failed = 0;
    while (done < job->count) {
        int count = count_same_work(job, done);
        int work_code = run_work(job, done, count, &failed);
        code = work_code != EXIT_OK ? work_code : code;
        if (failed)
            break;
        done += count;
    }
    table_footer(&job->options, job->results, done);
    run_head head = {"treeattn-bench decode", argc,        argv,
                     &job->machine,           job->places, (int)job->most_ranks};
    report_run run = {&job->options, &head};
    if (job->files.json)
        report_write(job->files.json, &run, job->results, done);
    if (job->files.csv)
        csv_write(job->files.csv, &job->options, job->results, done);
    return code;
}

int decode_command(int argc, char **argv)
{
    char error[512];
    decode_job job = {0};
    if (options_parse(argc, argv, &job.options, error, sizeof error) != 0)
        return fail_alike(command, EXIT_USAGE, "%s", error);
    if (job.options.sweep.help) {
        options_help(stdout);
        return EXIT_OK;
    }
    int code = prepare(&job);
    if (code == EXIT_OK)
        code = print_header(&job);
    if (code == EXIT_OK)
        code = run_rows(&job, argc, argv);
    if (run_files_close(&job.files, error, sizeof error) != EXIT_OK)
        code = fail_alone(command, EXIT_WRONG, "%s", error);
    for (int i = 0; job.results && i < job.count; i++)
        result_free(&job.results[i]);
    free(job.places);
    kv_arena_free(&job.arena);
    free(job.results);
    free(job.cases);
    return code;
}
