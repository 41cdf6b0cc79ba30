/* `treeattn-bench exchange`, in the manner of nccl-tests: bytes of a partial from and to, all kinds
 * of exchange side by side, checked. run.c measures; docs/benchmarks.md explains the table. */
#include "exchange.h"

#include <stdlib.h>
#include <string.h>

#include <treeattn/cluster.h>

#include "common/args.h"
#include "common/exit_code.h"
#include "common/json.h"
#include "common/launch.h"
#include "common/machine.h"
#include "common/stats.h"
#include "common/sweep.h"
#include "run.h"

static const char *const placement_words[] = {"all", "root", "heads", NULL};
static const char *const kind_words[] = {"doubling",   "binomial", "scatter", "all-gather",
                                         "all-reduce", "direct",   NULL};
static const int kinds[] = {TA_EXCHANGE_DOUBLING,   TA_EXCHANGE_BINOMIAL,   TA_EXCHANGE_SCATTER,
                            TA_EXCHANGE_ALL_GATHER, TA_EXCHANGE_ALL_REDUCE, TA_EXCHANGE_DIRECT};

typedef struct exchange_options {
    int64_t begin, end, factor, iterations, warmup, repeat, ranks, dim, placement, check, help;
    arg_list kinds;
    const char *json;
} exchange_options;

#define AT(field) offsetof(exchange_options, field)
static const arg_flag flags[] = {
    {'b', "begin", ARG_INT, AT(begin), 64, 1 << 30, NULL, "BYTES", "of the smallest partial", NULL},
    {'e', "end", ARG_INT, AT(end), 64, 1 << 30, NULL, "BYTES", "of the largest", NULL},
    {'f', "factor", ARG_INT, AT(factor), 2, 1024, NULL, "N", "from one to the next", NULL},
    {'n', "iterations", ARG_INT, AT(iterations), 1, 1000000, NULL, "N", "samples of each kind",
     NULL},
    {'w', "warmup", ARG_INT, AT(warmup), 0, 1000000, NULL, "N", "samples before them", NULL},
    {'r', "repeat", ARG_INT, AT(repeat), 1, 1000000, NULL, "N", "steps of a sample", NULL},
    {0, "ranks", ARG_INT, AT(ranks), 2, 1024, NULL, "N", "threads; under mpirun the processes",
     NULL},
    {0, "kinds", ARG_CHOICES, AT(kinds), 0, 0, kind_words, "LIST",
     "of exchange; rows are compared with the first", "all that there are"},
    {0, "head-dim", ARG_INT, AT(dim), 8, 576, NULL, "N", "head dimension, a multiple of 8", NULL},
    {0, "placement", ARG_CHOICE, AT(placement), 0, 0, placement_words, "WORD",
     "of the output: all, root, heads", NULL},
    {'c', "check", ARG_INT, AT(check), 0, 1, NULL, "0|1", "check the results", NULL},
    {0, "json", ARG_TEXT, AT(json), 0, 0, NULL, "FILE", "write every sample there", NULL},
    {'h', "help", ARG_SET, AT(help), 0, 0, NULL, "", "print this", NULL},
    {0},
};
static const arg_flag *const tables[] = {flags, NULL};
static const exchange_options defaults = {.begin = 4096,
                                          .end = 1 << 20,
                                          .factor = 4,
                                          .iterations = 50,
                                          .warmup = 5,
                                          .repeat = 20,
                                          .ranks = 2,
                                          .dim = 128,
                                          .check = 1};

static int fail(int code, const char *what)
{
    fprintf(stderr, "treeattn-bench: %s\nTry 'treeattn-bench exchange --help'.\n", what);
    return code;
}

static int parse(int argc, char **argv, exchange_options *o, char *error, size_t capacity)
{
    *o = defaults;
    if (args_parse(tables, o, argc, argv, error, capacity) != 0)
        return -1;
    if (launch.mpi)
        o->ranks = launch.ranks;
    if (launch.mpi && o->ranks < 2) {
        snprintf(error, capacity, "there is one process: an exchange needs two or more");
        return -1;
    }
    if (o->end < o->begin) {
        snprintf(error, capacity, "--end is %lld: must be at least --begin, %lld",
                 (long long)o->end, (long long)o->begin);
        return -1;
    }
    return sweep_check_dim("head-dim", o->dim, error, capacity);
}

static const char *way_name(int way)
{
    return way == WAY_ALL_REDUCE   ? "MPI_Allreduce"
           : way == WAY_ALL_GATHER ? "MPI_Allgather"
                                   : ta_exchange_name((ta_exchange)way);
}

static void choose_ways(const exchange_options *o, exchange_row *row)
{
    int all = (int)(sizeof kinds / sizeof *kinds);
    for (int i = 0; i < (o->kinds.count ? o->kinds.count : all); i++) {
        int kind = kinds[o->kinds.count ? o->kinds.values[i] : i];
        if (kind != TA_EXCHANGE_DOUBLING || row->placement != TA_PLACE_ROOT)
            row->way[row->ways++] = kind;
    }
    if (launch.mpi) {
        row->way[row->ways++] = WAY_ALL_REDUCE;
        row->way[row->ways++] = WAY_ALL_GATHER;
    }
}

static void print_header(const exchange_options *o)
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
    printf("# time      of a step of ta_combine(), the slowest rank's; %lld samples of %lld steps "
           "of each\n#           kind after %lld to warm up, the kinds by turns; output on %s\n#\n",
           (long long)o->iterations, (long long)o->repeat, (long long)o->warmup,
           placement_words[o->placement]);
    printf("#%9s %5s %-14s %9s %9s %9s %6s %10s %5s %6s\n", "bytes", "ranks", "kind", "min",
           "median", "p99", "ratio", "received", "msgs", "#wrong");
    printf("#%9s %5s %-14s %9s %9s %9s %6s %10s %5s\n", "", "", "", "us", "us", "us", "", "B/rank",
           "/rank");
}

static void write_json(json_writer *json, const exchange_row *row, int i, const bench_stats *us,
                       double ratio)
{
    json_open(json, NULL, '{');
    json_int(json, "bytes", (int64_t)row->heads * (row->dim + 2) * 4);
    json_int(json, "ranks", row->ranks);
    json_string(json, "kind", way_name(row->way[i]));
    json_double(json, "min_us", us->min);
    json_double(json, "median_us", us->median);
    json_double(json, "p99_us", us->p99);
    json_double(json, "ratio", ratio);
    json_int(json, "bytes_received_per_rank", (int64_t)row->bytes[i]);
    json_int(json, "messages_received_per_rank", (int64_t)row->messages[i]);
    json_int(json, "checked", row->check && row->way[i] <= TA_EXCHANGE_DIRECT ? row->checked : 0);
    json_int(json, "wrong", row->wrong[i]);
    json_doubles(json, "us", row->us[i], row->iterations);
    json_close(json, '}');
}

/* Returns the number of wrong results, or -1 without memory. */
static int64_t print_row(const exchange_row *row, json_writer *json)
{
    int64_t wrong = 0;
    double first = 0;
    for (int i = 0; i < row->ways; i++) {
        bench_stats us;
        char count[24] = "N/A";
        if (stats_of(row->us[i], row->iterations, &us) != 0)
            return -1;
        first = i == 0 ? us.median : first;
        if (row->check && row->way[i] <= TA_EXCHANGE_DIRECT)
            snprintf(count, sizeof count, "%lld", (long long)row->wrong[i]);
        printf("%10d %5d %-14s %9.2f %9.2f %9.2f %6.2f %10.0f %5.0f %6s\n",
               row->heads * (row->dim + 2) * 4, row->ranks, way_name(row->way[i]), us.min,
               us.median, us.p99, us.median / first, row->bytes[i], row->messages[i], count);
        wrong += row->wrong[i];
        if (json)
            write_json(json, row, i, &us, us.median / first);
    }
    fflush(stdout);
    return wrong;
}

static int run_row(const exchange_options *o, int64_t bytes, json_writer *json)
{
    int64_t record = 4 * (o->dim + 2), heads = (bytes + record / 2) / record;
    exchange_row row = {.ranks = (int)o->ranks,
                        .heads = (int)(heads < 1 ? 1 : heads),
                        .dim = (int)o->dim,
                        .iterations = (int)o->iterations,
                        .warmup = (int)o->warmup,
                        .repeat = (int)o->repeat,
                        .check = (int)o->check,
                        .placement = (ta_placement)o->placement};
    int code = EXIT_OK;
    choose_ways(o, &row);
    for (int i = 0; i < row.ways; i++)
        if (!(row.us[i] = calloc((size_t)row.iterations, sizeof(double))))
            code = fail(EXIT_WRONG, "not enough memory for the samples");
    if (code == EXIT_OK && exchange_run(&row) != TA_OK)
        code = fail(EXIT_WRONG, ta_last_error());
    if (code == EXIT_OK && launch.rank == 0 && print_row(&row, json) != 0)
        code = EXIT_WRONG;
    for (int i = 0; i < row.ways; i++)
        free(row.us[i]);
    return code;
}

int exchange_command(int argc, char **argv)
{
    char error[512];
    exchange_options o;
    json_writer json;
    int code = EXIT_OK;
    if (parse(argc, argv, &o, error, sizeof error) != 0)
        return fail(EXIT_USAGE, error);
    if (o.help) {
        printf("treeattn-bench exchange [FLAGS]: time the kinds of exchange by the bytes of a "
               "partial\n\n");
        args_print(stdout, tables, &defaults);
        return EXIT_OK;
    }
    FILE *file = o.json && launch.rank == 0 ? fopen(o.json, "w") : NULL;
    if (o.json && launch.rank == 0 && !file)
        return fail(EXIT_USAGE, "the file of --json cannot be written");
    if (file) {
        json_init(&json, file);
        json_open(&json, NULL, '{');
        json_string(&json, "program", "treeattn-bench exchange");
        json_open(&json, "rows", '[');
    }
    print_header(&o);
    for (int64_t bytes = o.begin; bytes <= o.end && code == EXIT_OK; bytes *= o.factor)
        code = run_row(&o, bytes, file ? &json : NULL);
    if (file) {
        json_close(&json, ']');
        json_close(&json, '}');
        fputs("\n", file);
        fclose(file);
    }
    return code;
}
