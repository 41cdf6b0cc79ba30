/* See report.h. exchange.c calls it in the first process; docs/benchmarks.md has the columns. */
#include "report.h"

#include <math.h>

#include <treeattn/cluster.h>

#include "common/cells.h"
#include "common/csv_line.h"
#include "common/launch.h"
#include "common/quiet.h"
#include "common/stats.h"

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
    case WAY_CCL_REDUCE:
        return "ncclAllReduce";
    case WAY_GROUP_GATHER:
        return "ta_all_gather";
    default:
        return ta_exchange_name((ta_exchange)way);
    }
}

static void print_header(const exchange_options *o, const run_head *head)
{
    printf("# treeattn-bench exchange, library %d.%d.%d\n", ta_version() / 10000,
           ta_version() / 100 % 100, ta_version() % 100);
    printf("# machine   %s, %d CPUs\n", head->machine->cpu, head->machine->cpus);
    if (launch.mpi)
        printf("# ranks     %d processes of %s, %d of them on this host\n", launch.ranks,
               launch.library, launch.local_ranks);
    else
        printf("# ranks     %lld threads\n", (long long)o->ranks);
    if (o->devices.gpu) {
        printf("# device    %s, one for each rank; connected by %s\n", o->devices.said,
               o->group == RANK_GROUP_CCL ? "NCCL or RCCL" : "the host");
        places_print(head->places, (int)o->ranks);
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

static int64_t row_bytes(const exchange_row *row)
{
    return (int64_t)row->heads * (row->dim + 2) * 4;
}

static int64_t row_checked(const exchange_row *row, int i)
{
    return row->check && row->way[i] < WAY_BARE ? row->checked : 0;
}

static void write_json(json_writer *json, const exchange_row *row, int i, const kind_result *r)
{
    json_open(json, NULL, '{');
    json_int(json, "bytes", row_bytes(row));
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
    json_int(json, "checked", row_checked(row, i));
    json_int(json, "wrong", row->wrong[i]);
    json_doubles(json, "us", row->us[i], row->iterations);
    json_close(json, '}');
}

/* X(name, format, value): of way i of a row, with its result r and the options o */
#define FIELDS(X)                                                                                  \
    X("bytes", "%lld", (long long)row_bytes(row))                                                  \
    X("ranks", "%d", row->ranks)                                                                   \
    X("head_dim", "%lld", (long long)o->dim)                                                       \
    X("placement", "%s", exchange_placement_name(o))                                               \
    X("device", "%s", o->device)                                                                   \
    X("group", "%s", rank_group_words[o->group])                                                   \
    X("kind", "%s", way_name(row->way[i]))                                                         \
    X("samples", "%d", row->iterations)                                                            \
    CSV_TIME_FIELDS(X, r->us, r->ratio)                                                            \
    X("bytes_received_per_rank", "%.9g", row->bytes[i])                                            \
    X("messages_received_per_rank", "%.9g", row->messages[i])                                      \
    X("cpus_used_by_others", "%.9g", r->others >= 0 ? r->others : NAN)                             \
    X("checked", "%lld", (long long)row_checked(row, i))                                           \
    X("wrong", "%lld", (long long)row->wrong[i])

static void write_csv_head(FILE *file)
{
    csv_line line = {.file = file};
    FIELDS(CSV_NAME)
    csv_end(&line);
}

static void write_csv(FILE *file, const exchange_options *o, const exchange_row *row, int i,
                      const kind_result *r)
{
    csv_line line = {.file = file};
    FIELDS(CSV_VALUE)
    csv_end(&line);
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
    json_string(json, "group", rank_group_words[o->group]);
    if (o->cluster)
        json_string(json, "cluster", o->cluster);
    json_close(json, '}');
    json_open(json, "rows", '[');
}

int64_t exchange_report_row(exchange_report *report, const exchange_row *row, double others)
{
    int64_t wrong = 0;
    int first = -1;
    for (int i = 0; i < row->ways; i++) {
        kind_result r = {.others = others};
        char count[24] = "N/A";
        if (*row->why[i])
            continue;
        first = first < 0 ? i : first;
        if (stats_of(row->us[i], row->iterations, &r.us) != 0 ||
            stats_ratio(row->us[i], row->us[first], row->iterations, &r.ratio) != 0)
            return -1;
        if (row->check && row->way[i] < WAY_BARE)
            snprintf(count, sizeof count, "%lld", (long long)row->wrong[i]);
        printf("%c%9d %5d %-13s %9.2f %9.2f %9.2f %5s %10s %9.0f %5.0f %6s\n", quiet_mark(others),
               (int)row_bytes(row), row->ranks, way_name(row->way[i]), r.us.min, r.us.median,
               r.us.p99, cell_ratio(r.ratio.median).text,
               cell_range(r.ratio.low, r.ratio.high).text, row->bytes[i], row->messages[i], count);
        wrong += row->wrong[i];
        if (report->files.json)
            write_json(&report->json, row, i, &r);
        if (report->files.csv)
            write_csv(report->files.csv, report->options, row, i, &r);
    }
    fflush(stdout);
    return wrong;
}

void exchange_report_left_out(const exchange_row *row)
{
    for (int i = 0; i < row->ways; i++)
        if (*row->why[i])
            printf("# no %s: %s\n", way_name(row->way[i]), row->why[i]);
}

void exchange_report_begin(exchange_report *report, const run_head *head)
{
    if (report->files.json)
        begin_json(&report->json, report->files.json, report->options, head);
    if (report->files.csv)
        write_csv_head(report->files.csv);
    print_header(report->options, head);
}

void exchange_report_end(exchange_report *report)
{
    quiet_print(report->disturbed);
    if (!report->files.json)
        return;
    json_close(&report->json, ']');
    json_close(&report->json, '}');
    fputs("\n", report->files.json);
}
