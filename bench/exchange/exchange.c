/* `treeattn-bench exchange`, in the manner of nccl-tests: bytes of a partial from and to, all kinds
 * of exchange side by side, checked. options.c has the flags, run.c measures, exchange/report.c
 * prints; docs/benchmarks.md explains the table. */
#include "exchange.h"

#include <stdio.h>
#include <stdlib.h>

#include "common/fail.h"
#include "common/launch.h"
#include "common/quiet.h"
#include "report.h"

static const char command[] = "exchange";

/* What the library says. On what cannot be, all of its ranks agree; of other errors not all
 * processes may know, and none is to wait for this one. */
static int fail_with(ta_status status)
{
    if (status == TA_ERR_INVALID)
        return fail_alike(command, EXIT_USAGE, "%s: %s", ta_status_name(status), ta_last_error());
    return fail_alone(command, fail_code(status), "%s: %s", ta_status_name(status),
                      ta_last_error());
}

/* What the first process sees of a row that was measured. All are told if it is wrong: so they end
 * alike. */
static int report_row(const exchange_row *row, double others, exchange_report *report)
{
    int64_t wrong = launch.rank == 0 ? exchange_report_row(report, row, others) : 0;
    if (wrong < 0)
        return fail_alone(command, EXIT_WRONG, "not enough memory for the quotients");
    double told = wrong > 0;
    launch_max(&told, 1);
    report->wrong |= told > 0;
    report->disturbed = others > report->disturbed ? others : report->disturbed;
    return EXIT_OK;
}

/* A wrong row does not stop the table, a failed one does. */
static int run_row(const exchange_options *o, int64_t bytes, exchange_report *report)
{
    int64_t record = 4 * (o->dim + 2), heads = (bytes + record / 2) / record;
    exchange_row row = {.ranks = (int)o->ranks,
                        .heads = (int)(heads < 1 ? 1 : heads),
                        .dim = (int)o->dim,
                        .iterations = (int)o->iterations,
                        .warmup = (int)o->warmup,
                        .repeat = (int)o->repeat,
                        .check = (int)o->check,
                        .placement = (ta_placement)o->placement,
                        .device = o->device,
                        .gpu = o->devices.gpu,
                        .ccl = o->group == RANK_GROUP_CCL,
                        .cluster = o->cluster};
    int code = EXIT_OK;
    ta_status status;
    quiet_watch watch;
    exchange_options_choose(o, &row);
    for (int i = 0; i < row.ways; i++)
        if (!(row.us[i] = calloc((size_t)row.iterations, sizeof(double))))
            code = fail_alone(command, EXIT_WRONG, "not enough memory for the samples");
    quiet_begin(&watch);
    if (code == EXIT_OK && (status = exchange_run(&row)) != TA_OK)
        code = fail_with(status);
    double others = code == EXIT_OK ? quiet_others(&watch) : -1;
    if (code == EXIT_OK && launch.rank == 0 && bytes == o->bytes.begin)
        exchange_report_left_out(&row);
    if (code == EXIT_OK)
        code = report_row(&row, others, report);
    for (int i = 0; i < row.ways; i++)
        free(row.us[i]);
    return code;
}

static int run_rows(const exchange_options *o, const run_head *head)
{
    char error[512] = "";
    exchange_report report = {.options = o};
    int code = run_files_open(&report.files, o->json, o->csv, error, sizeof error);
    code = fail_agree(command, code, error);
    if (code != EXIT_OK)
        return code;
    exchange_report_begin(&report, head);
    const sweep_lengths *sizes = &o->bytes;
    for (int64_t bytes = sizes->begin; bytes <= sizes->end && code == EXIT_OK;
         bytes *= sizes->factor)
        code = run_row(o, bytes, &report);
    if (code == EXIT_OK && report.wrong)
        code = EXIT_WRONG;
    exchange_report_end(&report);
    if (run_files_close(&report.files, error, sizeof error) != EXIT_OK)
        code = fail_alone(command, EXIT_WRONG, "%s", error);
    return code;
}

int exchange_command(int argc, char **argv)
{
    char error[512];
    exchange_options o;
    if (exchange_options_parse(argc, argv, &o, error, sizeof error) != 0)
        return fail_alike(command, EXIT_USAGE, "%s", error);
    if (o.help) {
        exchange_options_help(stdout);
        return EXIT_OK;
    }
    int code = exchange_options_try_device(&o, error, sizeof error);
    code = fail_agree(command, code, error);
    if (code != EXIT_OK)
        return code;
    rank_place *places = places_find(o.device, o.devices.gpu, (int)o.ranks);
    if (!places)
        return fail_alone(command, EXIT_WRONG, "not enough memory for the list of ranks");
    bench_machine machine;
    machine_read(&machine);
    run_head head = {"treeattn-bench exchange", argc, argv, &machine, places, (int)o.ranks};
    code = run_rows(&o, &head);
    free(places);
    return code;
}
