/* `treeattn-bench attention`: options.c has the flags and rows, run.c measures
 * the rows of one work, check.c checks them, table.c prints them. Under mpirun every process runs
 * all of it in step with the others, and the first one prints. */
#include "attention.h"

#include <stdlib.h>
#include <string.h>

#include <treeattn/cluster.h>

#include "common/elements.h"
#include "common/fail.h"
#include "common/launch.h"
#include "common/quiet.h"
#include "common/run_files.h"
#include "common/run_head.h"
#include "csv.h"
#include "prediction.h"
#include "table.h"

typedef struct attention_bench {
    attention_options options;
    bench_machine machine;
    ta_cluster *cluster;
    attention_row *rows;
    int count;
    double disturbed; /* the most that other programs used of the CPUs in a row */
    run_files files;
    json_writer json;
} attention_bench;

static const char command[] = "attention";

/* Rows of the same work follow one another. */
static int count_same_work(const attention_bench *b, int index)
{
    int count = 1;
    while (index + count < b->count &&
           attention_same_work(&b->rows[index], &b->rows[index + count]))
        count++;
    return count;
}

/* Both passes of a row. `first` has the times of the first row of its work. */
static int report(attention_bench *b, const attention_row *row, const attention_times *times,
                  const attention_times *first, const attention_verdict *verdicts, double others)
{
    int code = EXIT_OK;
    for (int pass = 0; pass < PASSES; pass++) {
        pass_result result = {.verdict = verdicts[pass], .others = others};
        if (attention_summarize(row, times, first, pass, &result) != 0)
            return fail_alone(command, EXIT_WRONG, "not enough memory for the samples");
        attention_table_pass(&b->options, row, times, pass, &result);
        if (b->files.json)
            attention_json_pass(&b->json, row, times, pass, &result);
        if (b->files.csv)
            attention_csv_pass(b->files.csv, &b->options, row, times, pass, &result);
        if (result.verdict.wrong)
            code = EXIT_WRONG;
    }
    return code;
}

/* `count` rows of one work, from `index` on. A wrong one does not stop the table, a failed one
 * does: then *failed. */
static int run_timed(attention_bench *b, int index, int count, attention_times *times,
                     attention_verdict (*verdicts)[PASSES], int *failed)
{
    const attention_row *rows = &b->rows[index];
    char error[1200];
    int code = EXIT_OK;
    quiet_watch watch;
    quiet_begin(&watch);
    ta_status status = attention_run(rows, count, times, b->options.sweep.check ? verdicts : NULL,
                                     error, sizeof error);
    *failed = status != TA_OK;
    if (status == TA_ERR_INVALID)
        return fail_alike(command, EXIT_USAGE, "%s", error);
    if (status != TA_OK)
        return fail_alone(command, fail_code(status), "%s", error);
    double others = quiet_others(&watch);
    b->disturbed = others > b->disturbed ? others : b->disturbed;
    for (int i = 0; i < count; i++) {
        int row_code = report(b, &rows[i], &times[i], times, verdicts[i], others);
        code = row_code != EXIT_OK ? row_code : code;
    }
    return code;
}

static int run_work(attention_bench *b, int index, int count, int *failed)
{
    size_t each = (size_t)b->rows[index].iterations, rows = (size_t)count;
    attention_times *times = calloc(rows, sizeof *times);
    attention_verdict(*verdicts)[PASSES] = calloc(rows, sizeof *verdicts);
    double *samples = calloc((rows * PASSES + 1) * each, sizeof(double));
    int code;
    *failed = 1;
    if (!times || !verdicts || !samples) {
        code = fail_alone(command, EXIT_WRONG, "not enough memory for the samples");
    } else {
        for (size_t i = 0; i < rows; i++) {
            times[i].peak_us = samples;
            for (size_t pass = 0; pass < PASSES; pass++)
                times[i].pass_us[pass] = samples + (1 + i * PASSES + pass) * each;
        }
        code = run_timed(b, index, count, times, verdicts, failed);
    }
    free(times);
    free(verdicts);
    free(samples);
    return code;
}

/* One rank's part in measuring the cluster; the first one of a process keeps it. */
static ta_status probe_rank(ta_group *group, void *context)
{
    attention_bench *b = context;
    const arg_list *asked = &b->options.sweep.threads;
    int threads =
        sweep_threads(asked->count ? asked->values[0] : 0, &b->machine, ta_group_size(group));
    rank_device_config config = attention_options_device(&b->options, threads);
    ta_device *device = NULL;
    ta_group *connected = group;
    ta_cluster *probed = NULL;
    ta_status status = rank_device_open(&config, group, &device, &connected);
    if (status == TA_OK)
        status = ta_cluster_probe(connected, device, &probed);
    if (connected != group)
        ta_group_destroy(connected);
    ta_device_close(device);
    if (status == TA_OK && (launch.mpi || ta_group_rank(group) == 0))
        b->cluster = probed;
    else
        ta_cluster_destroy(probed);
    return status;
}

static int most_ranks(const attention_bench *b)
{
    int most = 1;
    for (int i = 0; i < b->options.sweep.ranks.count; i++)
        if (b->options.sweep.ranks.values[i] > most)
            most = (int)b->options.sweep.ranks.values[i];
    return most;
}

/* The largest number of ranks, as they will be: a cluster serves fewer of them too. */
static ta_status make_cluster(attention_bench *b)
{
    if (strcmp(b->options.cluster, "probe") != 0)
        return ta_cluster_create(b->options.cluster, &b->cluster);
    return launch_run(most_ranks(b), probe_rank, b);
}

static int make_rows(attention_bench *b, char *error, size_t capacity)
{
    b->rows = attention_options_rows(&b->options, &b->machine, &b->count);
    if (!b->rows) {
        snprintf(error, capacity, "not enough memory for the list of rows");
        return EXIT_WRONG;
    }
    for (int i = 0; i < b->count; i++) {
        b->rows[i].cluster = b->cluster;
        if (attention_model_columns(&b->rows[i]) != TA_OK) {
            snprintf(error, capacity, "%s", ta_last_error());
            return EXIT_USAGE;
        }
    }
    return EXIT_OK;
}

/* What one process finds alone, all must know before they go on. */
static int prepare(attention_bench *b)
{
    char error[1200] = "";
    element_init();
    machine_read(&b->machine);
    int code = attention_options_try_device(&b->options, error, sizeof error);
    code = fail_agree(command, code, error);
    if (code != EXIT_OK)
        return code;
    if (b->options.cluster && make_cluster(b) != TA_OK) {
        snprintf(error, sizeof error, "%s", ta_last_error());
        code = EXIT_USAGE;
    }
    if (code == EXIT_OK)
        code = make_rows(b, error, sizeof error);
    if (code == EXIT_OK)
        code =
            run_files_open(&b->files, b->options.sweep.json, b->options.csv, error, sizeof error);
    return fail_agree(command, code, error);
}

static void begin_json(attention_bench *b, int argc, char **argv, const rank_place *places,
                       int ranks)
{
    json_init(&b->json, b->files.json);
    json_open(&b->json, NULL, '{');
    run_head head = {"treeattn-bench attention", argc, argv, &b->machine, places, ranks};
    run_head_write(&b->json, &head);
    json_string(&b->json, "device", b->options.sweep.device);
    json_string(&b->json, "scaling", sweep_scaling_words[b->options.sweep.scaling]);
    json_string(&b->json, "cluster", b->options.cluster ? b->options.cluster : "");
    json_open(&b->json, "options", '{'); /* that rows do not have */
    json_int(&b->json, "block", b->options.block);
    json_int(&b->json, "warmup", b->options.sweep.warmup);
    json_string(&b->json, "group", rank_group_words[b->options.group]);
    json_close(&b->json, '}');
    json_open(&b->json, "rows", '[');
}

static int run_rows(attention_bench *b, int argc, char **argv)
{
    int code = EXIT_OK, ranks = most_ranks(b);
    rank_place *places = places_find(b->options.sweep.device, b->options.devices.each, ranks);
    attention_table_header(&b->options, &b->machine, b->count, places, places ? ranks : 0);
    if (b->files.json)
        begin_json(b, argc, argv, places, ranks);
    if (b->files.csv)
        attention_csv_head(b->files.csv);
    free(places);
    for (int done = 0, failed = 0; done < b->count && !failed;) {
        int count = count_same_work(b, done);
        int work_code = run_work(b, done, count, &failed);
        code = work_code != EXIT_OK ? work_code : code;
        done += count;
    }
    attention_table_footer(&b->options, b->disturbed);
    if (b->files.json) {
        json_close(&b->json, ']');
        json_close(&b->json, '}');
    }
    return code;
}

int attention_command(int argc, char **argv)
{
    char error[512];
    attention_bench bench = {0};
    if (attention_options_parse(argc, argv, &bench.options, error, sizeof error) != 0)
        return fail_alike(command, EXIT_USAGE, "%s", error);
    if (bench.options.sweep.help) {
        attention_options_help(stdout);
        return EXIT_OK;
    }
    int code = prepare(&bench);
    if (code == EXIT_OK)
        code = run_rows(&bench, argc, argv);
    if (run_files_close(&bench.files, error, sizeof error) != EXIT_OK)
        code = fail_alone(command, EXIT_WRONG, "%s", error);
    ta_cluster_destroy(bench.cluster);
    free(bench.rows);
    return code;
}
