/* `treeattn-bench attention`: flags, rows, the table and the JSON file. attention_run.c measures a
 * row, attention_check.c checks it; docs/benchmarks.md explains the columns. */
#include "attention.h"

#include <stdlib.h>
#include <string.h>

#include "args.h"
#include "attention_check.h"
#include "decode.h"
#include "elements.h"
#include "fma_loop.h"
#include "json.h"
#include "machine.h"
#include "stats.h"

static const char *const dtype_words[] = {"f32", "f16", "bf16", NULL};
static const ta_dtype dtype_values[] = {TA_F32, TA_F16, TA_BF16};
static const char *const map_words[] = {"contiguous", "striped", "zigzag", NULL};
static const char *const mask_words[] = {"causal", "full", NULL};
static const char *const algorithm_words[] = {"grid", "ring", NULL};
static const char *const pass_words[] = {"forward", "backward"};

typedef struct attention_options {
    int64_t begin, end, factor, iterations, warmup, check;
    arg_list ranks, algorithms, columns, maps, dtypes;
    int64_t threads, heads, kv_heads, head_dim, block, mask, help;
    const char *simd, *json;
} attention_options;

enum { FLAG_COUNT = 21 };

static void make_flags(attention_options *o, arg_flag flags[FLAG_COUNT])
{
    const int64_t most = INT32_MAX;
    const arg_flag table[FLAG_COUNT] = {
        {'b', "begin", ARG_INT, &o->begin, 1, most, NULL, "TOKENS",
         "shortest sequence, over all ranks (4k)"},
        {'e', "end", ARG_INT, &o->end, 1, most, NULL, "TOKENS", "longest sequence (--begin)"},
        {'f', "factor", ARG_INT, &o->factor, 2, 1 << 20, NULL, "N",
         "from each length to the next (4)"},
        {'n', "iterations", ARG_INT, &o->iterations, 1, 1000000, NULL, "N",
         "timed calls per row (5)"},
        {'w', "warmup", ARG_INT, &o->warmup, 0, 1000000, NULL, "N",
         "untimed calls before them (1)"},
        {'c', "check", ARG_INT, &o->check, 0, 1, NULL, "0|1",
         "check a sample of the results in double precision (1)"},
        {0, "ranks", ARG_INTS, &o->ranks, 1, 1024, NULL, "LIST",
         "ranks that share the sequence, as threads of this process (1)"},
        {0, "algo", ARG_CHOICES, &o->algorithms, 0, 0, algorithm_words, "LIST",
         "grid, ring (grid)"},
        {0, "columns", ARG_INTS, &o->columns, 0, 1024, NULL, "LIST",
         "columns of the grid of ranks; 0: the plan chooses (0)"},
        {0, "map", ARG_CHOICES, &o->maps, 0, 0, map_words, "LIST",
         "who holds what: contiguous, striped, zigzag (zigzag)"},
        {0, "block", ARG_INT, &o->block, 1, most, NULL, "TOKENS", "block of striped (1)"},
        {0, "threads", ARG_INT, &o->threads, 1, 1024, NULL, "N",
         "threads of each rank (the CPUs divided by the ranks, at least 1)"},
        {0, "heads", ARG_INT, &o->heads, 1, 65536, NULL, "N", "query heads (2)"},
        {0, "kv-heads", ARG_INT, &o->kv_heads, 1, 65536, NULL, "N", "KV heads (--heads)"},
        {0, "head-dim", ARG_INT, &o->head_dim, 8, 256, NULL, "N",
         "head dimension, a multiple of 8 (128)"},
        {0, "dtype", ARG_CHOICES, &o->dtypes, 0, 0, dtype_words, "LIST", "f32, f16, bf16 (f32)"},
        {0, "mask", ARG_CHOICE, &o->mask, 0, 0, mask_words, "KIND", "causal or full (causal)"},
        {0, "simd", ARG_TEXT, &o->simd, 0, 0, NULL, "LEVEL",
         "scalar, avx2, … (the best this CPU has)"},
        {0, "json", ARG_TEXT, &o->json, 0, 0, NULL, "FILE", "also write every sample there"},
        {'h', "help", ARG_HELP, &o->help, 0, 0, NULL, "", "print this"},
        {0, NULL, ARG_HELP, NULL, 0, 0, NULL, NULL, NULL},
    };
    memcpy(flags, table, sizeof table);
}

static void print_help(const arg_flag *flags)
{
    printf("treeattn-bench attention [FLAGS]: time attention over full sequences, forward and\n"
           "backward, on a grid of ranks. A LIST has commas: two rows for each combination.\n\n");
    for (const arg_flag *flag = flags; flag->name; flag++) {
        char name[64];
        snprintf(name, sizeof name, "%c%c%s--%s %s", flag->letter ? '-' : ' ',
                 flag->letter ? flag->letter : ' ', flag->letter ? ", " : "  ", flag->name,
                 flag->value_name);
        printf("  %-26s %s\n", name, flag->help);
    }
}

static int fail(int code, const char *what)
{
    fprintf(stderr, "treeattn-bench: %s\n%s", what,
            code == EXIT_USAGE ? "Try 'treeattn-bench attention --help'.\n" : "");
    return code;
}

/* Numbers of one row and pass. */
typedef struct pass_result {
    bench_stats us;
    double gflops, peak, fraction;
    attention_verdict verdict;
} pass_result;

static void print_header(const attention_options *o, const bench_machine *machine)
{
    static const char *const format =
        "#%9s %5s %4s %7s %10s %3s %5s %7s %8s %10s %10s %10s %8s %8s %5s %11s %5s%s\n";
    printf("# treeattn-bench attention, library %d.%d.%d\n", ta_version() / 10000,
           ta_version() / 100 % 100, ta_version() % 100);
    printf("# machine   %s, %d CPUs, %.1f GiB, %s\n", machine->cpu, machine->cpus,
           (double)machine->memory_bytes * 0x1p-30, machine->system);
    printf("# shape     head dim %lld, %s\n", (long long)o->head_dim, mask_words[o->mask]);
    printf("# time      %lld calls after %lld to warm up, alternating with a loop of FMAs: %s\n#\n",
           (long long)o->iterations, (long long)o->warmup, fma_loop_name());
    printf(format, "tokens", "ranks", "algo", "columns", "map", "thr", "dtype", "heads", "pass",
           "min", "median", "p99", "GFLOP/s", "peak", "frac", "received", "msgs", "  #wrong");
    printf(format, "", "", "", "", "", "", "", "q/kv", "", "ms", "ms", "ms", "", "GFLOP/s", "",
           "B/rank", "/rank", "");
    fflush(stdout);
}

static void print_pass(const attention_row *row, const attention_times *times, int pass,
                       const pass_result *r, int checked)
{
    char heads[32], wrong[32], columns[16];
    snprintf(heads, sizeof heads, "%d/%d", (int)row->query_heads, (int)row->kv_heads);
    snprintf(wrong, sizeof wrong, checked ? "%lld" : "N/A", (long long)r->verdict.wrong);
    snprintf(columns, sizeof columns, row->columns ? "%d" : "chosen", row->columns);
    if (row->algorithm == TA_ATTENTION_RING)
        snprintf(columns, sizeof columns, "-");
    printf(
        "%10d %5d %4s %7s %10s %3d %5s %7s %8s %10.2f %10.2f %10.2f %8.1f %8.1f %5.2f %11llu %5llu "
        "%7s\n",
        (int)row->tokens, row->ranks, algorithm_words[row->algorithm], columns, map_words[row->map],
        row->threads, element_name(row->dtype), heads, pass_words[pass], r->us.min * 1e-3,
        r->us.median * 1e-3, r->us.p99 * 1e-3, r->gflops, r->peak, r->fraction,
        (unsigned long long)times->bytes[pass], (unsigned long long)times->messages[pass], wrong);
    fflush(stdout);
}

static void write_pass(json_writer *json, const attention_row *row, const attention_times *times,
                       int pass, const pass_result *r)
{
    json_open(json, NULL, '{');
    json_int(json, "tokens", row->tokens);
    json_int(json, "ranks", row->ranks);
    json_string(json, "algorithm", algorithm_words[row->algorithm]);
    json_int(json, "columns", row->columns);
    json_string(json, "map", map_words[row->map]);
    json_int(json, "threads", row->threads);
    json_string(json, "dtype", element_name(row->dtype));
    json_int(json, "query_heads", row->query_heads);
    json_int(json, "kv_heads", row->kv_heads);
    json_int(json, "head_dim", row->head_dim);
    json_string(json, "mask", mask_words[row->mask]);
    json_string(json, "pass", pass_words[pass]);
    json_double(json, "gflops", r->gflops);
    json_double(json, "peak_gflops", r->peak);
    json_double(json, "fraction", r->fraction);
    json_int(json, "bytes_received_per_rank", (int64_t)times->bytes[pass]);
    json_int(json, "messages_received_per_rank", (int64_t)times->messages[pass]);
    json_int(json, "checked", r->verdict.checked);
    json_int(json, "wrong", r->verdict.wrong);
    json_double(json, "worst_error_in_tolerances", r->verdict.worst);
    json_doubles(json, "us", times->pass_us[pass], row->iterations);
    json_doubles(json, "peak_us", times->peak_us, row->iterations);
    json_close(json, '}');
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

static int run_row(const attention_options *o, const attention_row *row, json_writer *json)
{
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
    if (status != TA_OK)
        code = fail(status == TA_ERR_INVALID ? EXIT_USAGE : EXIT_WRONG, error);
    else if (o->check && attention_check(row, &data, verdicts) != 0)
        code = fail(EXIT_WRONG, "not enough memory for the check");
    for (int pass = 0; code == EXIT_OK && pass < PASSES; pass++) {
        pass_result result = {.verdict = verdicts[pass]};
        if (summarize(row, &times, pass, &result) != 0)
            code = fail(EXIT_WRONG, "not enough memory for the samples");
        else
            print_pass(row, &times, pass, &result, (int)o->check);
        if (json)
            write_pass(json, row, &times, pass, &result);
    }
    if (verdicts[0].wrong || verdicts[1].wrong)
        code = EXIT_WRONG;
    attention_data_free(&data);
    free(samples);
    return code;
}

static int run_rows(const attention_options *o, const bench_machine *machine, json_writer *json)
{
    int code = EXIT_OK;
    int64_t combinations = (int64_t)o->dtypes.count * o->ranks.count * o->algorithms.count *
                           o->columns.count * o->maps.count;
    for (int64_t i = 0; i < combinations; i++) {
        int64_t digits = i;
        attention_row row = {.query_heads = (int32_t)o->heads,
                             .kv_heads = (int32_t)o->kv_heads,
                             .head_dim = (int32_t)o->head_dim,
                             .mask = (ta_mask)o->mask,
                             .iterations = (int)o->iterations,
                             .warmup = (int)o->warmup,
                             .simd = o->simd};
        row.map = (ta_shard_kind)o->maps.values[digits % o->maps.count];
        digits /= o->maps.count;
        row.columns = (int)o->columns.values[digits % o->columns.count];
        int first_columns = digits % o->columns.count == 0;
        digits /= o->columns.count;
        row.algorithm = (ta_attention_algorithm)o->algorithms.values[digits % o->algorithms.count];
        digits /= o->algorithms.count;
        row.ranks = (int)o->ranks.values[digits % o->ranks.count];
        row.dtype = dtype_values[o->dtypes.values[digits / o->ranks.count]];
        row.block = row.map == TA_SHARD_BLOCK_CYCLIC ? (int32_t)o->block : 0;
        row.threads = (int)o->threads;
        if (!row.threads)
            row.threads = machine->cpus > row.ranks ? machine->cpus / row.ranks : 1;
        if (row.algorithm == TA_ATTENTION_RING) {
            if (!first_columns)
                continue; /* it has none */
            row.columns = 0;
        }
        if (row.columns && row.ranks % row.columns)
            continue; /* no such grid */
        for (int64_t tokens = o->begin; tokens <= o->end; tokens *= o->factor) {
            row.tokens = (int32_t)tokens;
            int row_code = run_row(o, &row, json);
            code = row_code != EXIT_OK ? row_code : code;
            if (row_code == EXIT_USAGE)
                return code;
        }
    }
    return code;
}

static int check_options(attention_options *o)
{
    if (o->end == 0)
        o->end = o->begin;
    if (o->kv_heads == 0)
        o->kv_heads = o->heads;
    if (o->begin > o->end)
        return fail(EXIT_USAGE, "--begin must be at most --end");
    if (o->heads % o->kv_heads)
        return fail(EXIT_USAGE, "--heads must be a multiple of --kv-heads");
    if (o->head_dim % 8)
        return fail(EXIT_USAGE, "--head-dim must be a multiple of 8");
    return EXIT_OK;
}

static int run_and_report(attention_options *o)
{
    bench_machine machine;
    json_writer json;
    FILE *file = NULL;
    if (o->json && !(file = fopen(o->json, "w")))
        return fail(EXIT_USAGE, "the file of --json cannot be written");
    element_init();
    machine_read(&machine);
    print_header(o, &machine);
    if (file) {
        json_init(&json, file);
        json_open(&json, NULL, '{');
        json_string(&json, "program", "treeattn-bench attention");
        json_string(&json, "cpu", machine.cpu);
        json_open(&json, "rows", '[');
    }
    int code = run_rows(o, &machine, file ? &json : NULL);
    if (file) {
        json_close(&json, ']');
        json_close(&json, '}');
        if (fclose(file) != 0)
            code = fail(EXIT_WRONG, "the file of --json could not be written");
    }
    return code;
}

int attention_command(int argc, char **argv)
{
    char error[512];
    arg_flag flags[FLAG_COUNT];
    attention_options o = {.begin = 4096,
                           .factor = 4,
                           .iterations = 5,
                           .warmup = 1,
                           .check = 1,
                           .ranks = {1, {1}},
                           .algorithms = {1, {TA_ATTENTION_GRID}},
                           .columns = {1, {0}},
                           .maps = {1, {TA_SHARD_ZIGZAG}},
                           .dtypes = {1, {0}},
                           .heads = 2,
                           .head_dim = 128,
                           .block = 1};
    make_flags(&o, flags);
    if (args_parse(flags, argc, argv, error, sizeof error) != 0)
        return fail(EXIT_USAGE, error);
    if (o.help) {
        print_help(flags);
        return EXIT_OK;
    }
    int code = check_options(&o);
    return code == EXIT_OK ? run_and_report(&o) : code;
}
