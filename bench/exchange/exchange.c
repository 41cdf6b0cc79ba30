/* `treeattn-bench exchange`, in the manner of nccl-tests: bytes of a partial from and to, all kinds
 * of exchange side by side, checked. options.c has the flags, run.c measures; docs/benchmarks.md
 * explains the table. */
#include "exchange.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <treeattn/cluster.h>

#include "common/cells.h"
#include "common/exit_code.h"
#include "common/json.h"
#include "common/launch.h"
#include "common/machine.h"
#include "common/quiet.h"
#include "common/run_head.h"
#include "common/stats.h"
#include "options.h"

static int fail(int code, const char *what)
{
    fprintf(stderr, "treeattn-bench: %s\nTry 'treeattn-bench exchange --help'.\n", what);
    return code;
}

/* What the library says. Not all processes may know of it, and none is to wait for this one. */
static int fail_with(ta_status status)
{
    fprintf(stderr, "treeattn-bench: %s: %s\n", ta_status_name(status), ta_last_error());
    int code = status == TA_ERR_NOT_FOUND || status == TA_ERR_UNSUPPORTED ? EXIT_NO_DEVICE
               : status == TA_ERR_INVALID                                 ? EXIT_USAGE
                                                                          : EXIT_WRONG;
    if (launch.mpi)
        launch_abort(code);
    return code;
}

static const char *way_name(int way)
{
    switch (way) {
    case WAY_BARE:
        return "bare";
    case WAY_MPI_REDUCE:
        return "MPI_Allreduce";
    case WAY_MPI_GATHER:
        return "MPI_Allgather";
    case WAY_GROUP_REDUCE:
        return "ta_all_reduce";
    case WAY_GROUP_GATHER:
        return "ta_all_gather";
    case WAY_CCL_REDUCE:
        return "ncclAllReduce";
    default:
        return ta_exchange_name((ta_exchange)way);
    }
}

static void print_header(const exchange_options *o, const rank_place *places)
{
    bench_machine machine;
    machine_read(&machine);
    printf("# treeattn-bench exchange, library %d.%d.%d\n", ta_version() / 10000,
           ta_version() / 100 % 100, ta_version() % 100);
    printf("# machine   %s, %d CPUs\n", machine.cpu, machine.cpus);
    if (launch.mpi)
        printf("# ranks     %d processes of %s, %d of them on this host\n", launch.ranks,
               launch.library, launch.local_ranks);
    else
        printf("# ranks     %lld threads\n", (long long)o->ranks);
    if (o->gpu) {
        printf("# device    %s, one for each rank; connected by %s\n", o->device_said,
               o->group == EXCHANGE_GROUP_CCL ? "NCCL or RCCL" : "the host");
        places_print(places, (int)o->ranks);
    }
    if (o->cluster)
        printf("# cluster   %s\n", o->cluster);
    printf(
        "# time      of a step of ta_combine(), the slowest rank's; %lld samples of %lld steps "
        "of each\n#           kind after %lld to warm up, the kinds in turn step by step; output "
        "on %s\n#\n",
        (long long)o->iterations, (long long)o->repeat, (long long)o->warmup,
        exchange_placement_name(o));
    printf("#%9s %5s %-13s %9s %9s %9s %5s %10s %9s %5s %6s\n", "bytes", "ranks", "kind", "min",
           "median", "p99", "ratio", "range", "received", "msgs", "#wrong");
    printf("#%9s %5s %-13s %9s %9s %9s %5s %10s %9s %5s\n", "", "", "", "us", "us", "us", "", "",
           "B/rank", "/rank");
}

/* Of one kind in a row: its times, how they compare with those of the first kind in the same turns,
 * and the part of the CPUs that other programs used meanwhile. */
typedef struct kind_result {
    bench_stats us;
    bench_interval ratio;
    double others;
} kind_result;

/* Returns -1 without memory. */
static int find_result(const exchange_row *row, int i, int first, kind_result *result)
{
    int count = row->iterations, status = -1;
    double *quotients = calloc((size_t)count, sizeof *quotients);
    for (int k = 0; quotients && k < count; k++)
        quotients[k] = row->us[i][k] / row->us[first][k];
    if (quotients && stats_of(row->us[i], count, &result->us) == 0)
        status = stats_interval(quotients, count, &result->ratio);
    free(quotients);
    return status;
}

static void write_json(json_writer *json, const exchange_row *row, int i, const kind_result *r)
{
    json_open(json, NULL, '{');
    json_int(json, "bytes", (int64_t)row->heads * (row->dim + 2) * 4);
    json_int(json, "ranks", row->ranks);
    json_string(json, "kind", way_name(row->way[i]));
    json_double(json, "min_us", r->us.min);
    json_double(json, "median_us", r->us.median);
    json_double(json, "p99_us", r->us.p99);
    json_double(json, "ratio", r->ratio.median);
    json_double(json, "ratio_low", r->ratio.low);
    json_double(json, "ratio_high", r->ratio.high);
    json_double(json, "cpus_used_by_others", r->others >= 0 ? r->others : NAN);
    json_int(json, "bytes_received_per_rank", (int64_t)row->bytes[i]);
    json_int(json, "messages_received_per_rank", (int64_t)row->messages[i]);
    json_int(json, "checked", row->check && row->way[i] < WAY_BARE ? row->checked : 0);
    json_int(json, "wrong", row->wrong[i]);
    json_doubles(json, "us", row->us[i], row->iterations);
    json_close(json, '}');
}

/* Returns the number of wrong results, or -1 without memory. */
static int64_t print_row(const exchange_row *row, double others, json_writer *json)
{
    int64_t wrong = 0;
    int first = -1;
    for (int i = 0; i < row->ways; i++) {
        kind_result r = {.others = others};
        char count[24] = "N/A";
        if (*row->why[i])
            continue;
        first = first < 0 ? i : first;
        if (find_result(row, i, first, &r) != 0)
            return -1;
        if (row->check && row->way[i] < WAY_BARE)
            snprintf(count, sizeof count, "%lld", (long long)row->wrong[i]);
        printf("%c%9d %5d %-13s %9.2f %9.2f %9.2f %5s %10s %9.0f %5.0f %6s\n",
               others > QUIET_LIMIT ? '!' : ' ', row->heads * (row->dim + 2) * 4, row->ranks,
               way_name(row->way[i]), r.us.min, r.us.median, r.us.p99,
               cell_ratio(r.ratio.median).text, cell_range(r.ratio.low, r.ratio.high).text,
               row->bytes[i], row->messages[i], count);
        wrong += row->wrong[i];
        if (json)
            write_json(json, row, i, &r);
    }
    fflush(stdout);
    return wrong;
}

static void print_left_out(const exchange_row *row)
{
    for (int i = 0; i < row->ways; i++)
        if (*row->why[i])
            printf("# no %s: %s\n", way_name(row->way[i]), row->why[i]);
}

/* *disturbed becomes the part of the CPUs that others used, if that is more than it was. */
static int run_row(const exchange_options *o, int64_t bytes, json_writer *json, double *disturbed)
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
                        .gpu = o->gpu,
                        .ccl = o->group == EXCHANGE_GROUP_CCL,
                        .cluster = o->cluster};
    int code = EXIT_OK;
    ta_status status;
    quiet_watch watch;
    exchange_options_choose(o, &row);
    for (int i = 0; i < row.ways; i++)
        if (!(row.us[i] = calloc((size_t)row.iterations, sizeof(double))))
            code = fail(EXIT_WRONG, "not enough memory for the samples");
    quiet_begin(&watch);
    if (code == EXIT_OK && (status = exchange_run(&row)) != TA_OK)
        code = fail_with(status);
    double others = code == EXIT_OK ? quiet_others(&watch) : -1;
    *disturbed = others > *disturbed ? others : *disturbed;
    if (code == EXIT_OK && launch.rank == 0 && bytes == o->begin)
        print_left_out(&row);
    if (code == EXIT_OK && launch.rank == 0 && print_row(&row, others, json) != 0)
        code = EXIT_WRONG;
    for (int i = 0; i < row.ways; i++)
        free(row.us[i]);
    return code;
}

/* The device must be there before anything else is worth doing. */
static int try_device(exchange_options *o)
{
    char error[512];
    ta_device *device = NULL;
    int code = EXIT_OK;
    ta_status status = ta_device_open(o->device, NULL, &device);
    if (status != TA_OK)
        return fail_with(status);
    if (exchange_options_set_device(o, ta_device_name(device), error, sizeof error) != 0)
        code = fail(EXIT_USAGE, error);
    ta_device_close(device);
    return code;
}

static void begin_json(json_writer *json, FILE *file, const exchange_options *o,
                       const run_head *head)
{
    json_init(json, file);
    json_open(json, NULL, '{');
    run_head_write(json, head);
    json_open(json, "options", '{');
    json_int(json, "head_dim", o->dim);
    json_string(json, "placement", exchange_placement_name(o));
    json_string(json, "device", o->device);
    json_string(json, "group", exchange_group_name(o));
    if (o->cluster)
        json_string(json, "cluster", o->cluster);
    json_close(json, '}');
    json_open(json, "rows", '[');
}

static int run_rows(const exchange_options *o, const rank_place *places, int argc, char **argv)
{
    bench_machine machine;
    json_writer json;
    double disturbed = 0;
    int code = EXIT_OK;
    FILE *file = o->json && launch.rank == 0 ? run_json_open(o->json) : NULL;
    if (o->json && launch.rank == 0 && !file)
        return fail(EXIT_USAGE, "the file of --json cannot be written");
    machine_read(&machine);
    run_head head = {"treeattn-bench exchange", argc, argv, &machine, places, (int)o->ranks};
    if (file)
        begin_json(&json, file, o, &head);
    print_header(o, places);
    for (int64_t bytes = o->begin; bytes <= o->end && code == EXIT_OK; bytes *= o->factor)
        code = run_row(o, bytes, file ? &json : NULL, &disturbed);
    if (disturbed > QUIET_LIMIT)
        quiet_print(disturbed);
    if (file) {
        json_close(&json, ']');
        json_close(&json, '}');
        fputs("\n", file);
        fclose(file);
    }
    return code;
}

int exchange_command(int argc, char **argv)
{
    char error[512];
    exchange_options o;
    if (exchange_options_parse(argc, argv, &o, error, sizeof error) != 0)
        return fail(EXIT_USAGE, error);
    if (o.help) {
        exchange_options_help(stdout);
        return EXIT_OK;
    }
    int code = try_device(&o);
    if (code != EXIT_OK)
        return code;
    rank_place *places = places_find(o.device, o.gpu, (int)o.ranks);
    if (!places)
        return fail(EXIT_WRONG, "not enough memory for the list of ranks");
    code = run_rows(&o, places, argc, argv);
    free(places);
    return code;
}
