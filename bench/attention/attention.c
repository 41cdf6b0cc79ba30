/* `treeattn-bench attention`: options.c has the flags and rows, run.c measures
 * a row, check.c checks it, table.c prints it. Under mpirun every process runs
 * all of it in step with the others, and the first one prints. */
#include "attention.h"

#include <stdlib.h>
#include <string.h>

#include <treeattn/cluster.h>

#include "common/elements.h"
#include "common/exit_code.h"
#include "common/launch.h"
#include "prediction.h"
#include "table.h"

typedef struct attention_bench {
    attention_options options;
    bench_machine machine;
    ta_cluster *cluster;
    attention_row *rows;
    double (*medians)[PASSES]; /* [count] */
    int count;
    FILE *file;
    json_writer json;
} attention_bench;

static int fail(int code, const char *what)
{
    if (!launch.mpi || launch.rank == 0 || code != EXIT_USAGE)
        fprintf(stderr, "treeattn-bench: %s\n%s", what,
                code == EXIT_USAGE ? "Try 'treeattn-bench attention --help'.\n" : "");
    if (launch.mpi && code != EXIT_USAGE) /* so that no other process waits for this one */
        launch_abort(code);
    return code;
}

static int summarize(const attention_row *row, const attention_times *times, int pass,
                     pass_result *r)
{
    bench_stats peak;
    if (stats_of(times->pass_us[pass], row->iterations, &r->us) != 0 ||
        stats_of(times->peak_us, row->iterations, &peak) != 0)
        return -1;
    r->gflops = times->pass_flops[pass] / r->us.median * 1e-3;
    r->peak = times->peak_flops / peak.median * 1e-3;
    r->fraction = r->gflops / r->peak;
    return 0;
}

/* Rows of the same work follow one another, the first algorithm's first. */
static double ratio_to_first(const attention_bench *b, int index, int pass)
{
    int first = index;
    while (first > 0 && attention_same_work(&b->rows[first - 1], &b->rows[index]))
        first--;
    return b->medians[index][pass] / b->medians[first][pass];
}

static int report(attention_bench *b, int index, const attention_times *times,
                  const attention_verdict *verdicts)
{
    const attention_row *row = &b->rows[index];
    for (int pass = 0; pass < PASSES; pass++) {
        pass_result result = {.verdict = verdicts[pass]};
        if (summarize(row, times, pass, &result) != 0)
            return fail(EXIT_WRONG, "not enough memory for the samples");
        b->medians[index][pass] = result.us.median;
        result.ratio = ratio_to_first(b, index, pass);
        attention_table_pass(&b->options, row, times, pass, &result);
        if (b->file)
            attention_json_pass(&b->json, row, times, pass, &result);
    }
    return EXIT_OK;
}

/* The first process checks for all of them. */
static int check(const attention_bench *b, const attention_row *row, const attention_data *data,
                 attention_verdict verdicts[PASSES])
{
    double wrong[PASSES] = {0, 0};
    if (!b->options.sweep.check)
        return 0;
    if (launch.rank == 0 && attention_check(row, data, verdicts) != 0)
        return -1;
    for (int pass = 0; pass < PASSES; pass++)
        wrong[pass] = (double)verdicts[pass].wrong;
    launch_max(wrong, PASSES);
    for (int pass = 0; pass < PASSES; pass++)
        verdicts[pass].wrong = (int64_t)wrong[pass];
    return 0;
}

static int run_row(attention_bench *b, int index)
{
    const attention_row *row = &b->rows[index];
    attention_data data = {0};
    attention_times times = {0};
    attention_verdict verdicts[PASSES] = {{0, 0, 0}, {0, 0, 0}};
    char error[1200];
    int code = EXIT_OK;
    double *samples = calloc((PASSES + 1) * (size_t)row->iterations, sizeof(double));
    if (!samples || attention_data_make(&data, row) != 0) {
        free(samples);
        return fail(EXIT_WRONG, "not enough memory for the tensors");
    }
    times.pass_us[PASS_FORWARD] = samples;
    times.pass_us[PASS_BACKWARD] = samples + row->iterations;
    times.peak_us = samples + 2 * row->iterations;
    ta_status status = attention_run(row, &data, &times, error, sizeof error);
    if (status == TA_ERR_NOT_FOUND || status == TA_ERR_UNSUPPORTED)
        code = fail(EXIT_NO_DEVICE, error);
    else if (status != TA_OK)
        code = fail(status == TA_ERR_INVALID ? EXIT_USAGE : EXIT_WRONG, error);
    else if (check(b, row, &data, verdicts) != 0)
        code = fail(EXIT_WRONG, "not enough memory for the check");
    if (code == EXIT_OK)
        code = report(b, index, &times, verdicts);
    if (code == EXIT_OK && (verdicts[0].wrong || verdicts[1].wrong))
        code = EXIT_WRONG;
    attention_data_free(&data);
    free(samples);
    return code;
}

/* One rank's part in measuring the cluster; the first one of a process keeps it. */
static ta_status probe_rank(ta_group *group, void *context)
{
    attention_bench *b = context;
    ta_device_config config = TA_DEVICE_CONFIG_INIT;
    ta_device *device = NULL;
    ta_cluster *probed = NULL;
    config.threads =
        sweep_threads(b->options.sweep.threads.count ? b->options.sweep.threads.values[0] : 0,
                      &b->machine, ta_group_size(group));
    config.simd = b->options.sweep.simd;
    ta_status status = ta_device_open(b->options.sweep.device, &config, &device);
    if (status == TA_OK)
        status = ta_cluster_probe(group, device, &probed);
    ta_device_close(device);
    if (status == TA_OK && (launch.mpi || ta_group_rank(group) == 0))
        b->cluster = probed;
    else
        ta_cluster_destroy(probed);
    return status;
}

/* The largest number of ranks, as they will be: a cluster serves fewer of them too. */
static ta_status make_cluster(attention_bench *b)
{
    int most = 1;
    if (strcmp(b->options.cluster, "probe") != 0)
        return ta_cluster_create(b->options.cluster, &b->cluster);
    for (int i = 0; i < b->options.sweep.ranks.count; i++)
        if (b->options.sweep.ranks.values[i] > most)
            most = (int)b->options.sweep.ranks.values[i];
    return launch_run(most, probe_rank, b);
}

static int prepare(attention_bench *b)
{
    const attention_options *o = &b->options;
    element_init();
    machine_read(&b->machine);
    if (o->cluster && make_cluster(b) != TA_OK)
        return fail(EXIT_USAGE, ta_last_error());
    b->rows = attention_options_rows(o, &b->machine, &b->count);
    b->medians = calloc((size_t)b->count + 1, sizeof *b->medians);
    if (!b->rows || !b->medians)
        return fail(EXIT_WRONG, "not enough memory for the list of rows");
    for (int i = 0; i < b->count; i++) {
        b->rows[i].cluster = b->cluster;
        if (attention_model_columns(&b->rows[i]) != TA_OK)
            return fail(EXIT_USAGE, ta_last_error());
    }
    if (o->sweep.json && launch.rank == 0 && !(b->file = fopen(o->sweep.json, "w")))
        return fail(EXIT_USAGE, "the file of --json cannot be written");
    return EXIT_OK;
}

static void begin_json(attention_bench *b)
{
    json_init(&b->json, b->file);
    json_open(&b->json, NULL, '{');
    json_string(&b->json, "program", "treeattn-bench attention");
    json_string(&b->json, "cpu", b->machine.cpu);
    json_string(&b->json, "scaling", sweep_scaling_words[b->options.sweep.scaling]);
    json_string(&b->json, "cluster", b->options.cluster ? b->options.cluster : "");
    json_open(&b->json, "rows", '[');
}

static int run_rows(attention_bench *b)
{
    int code = EXIT_OK;
    attention_table_header(&b->options, &b->machine, b->count);
    if (b->file)
        begin_json(b);
    for (int i = 0; i < b->count; i++) {
        int row_code = run_row(b, i);
        code = row_code != EXIT_OK ? row_code : code;
        if (row_code == EXIT_USAGE || row_code == EXIT_NO_DEVICE)
            break;
    }
    if (b->file) {
        json_close(&b->json, ']');
        json_close(&b->json, '}');
        if (fclose(b->file) != 0)
            code = fail(EXIT_WRONG, "the file of --json could not be written");
    }
    return code;
}

int attention_command(int argc, char **argv)
{
    char error[512];
    attention_bench bench = {0};
    if (attention_options_parse(argc, argv, &bench.options, error, sizeof error) != 0)
        return fail(EXIT_USAGE, error);
    if (bench.options.sweep.help) {
        attention_options_help(stdout);
        return EXIT_OK;
    }
    int code = prepare(&bench);
    if (code == EXIT_OK)
        code = run_rows(&bench);
    ta_cluster_destroy(bench.cluster);
    free(bench.rows);
    free(bench.medians);
    return code;
}
