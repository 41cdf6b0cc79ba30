/* See table.h. */
#include "table.h"

#include <treeattn/attention.h>

#include "common/elements.h"
#include "common/fma_loop.h"
#include "common/launch.h"

static const char *const pass_words[PASSES] = {"forward", "backward"};

static void print_columns(void)
{
    static const char *const format = "#%9s %5s %7s %7s %10s %3s %5s %7s %8s %9s %9s %9s %6s %9s "
                                      "%9s %8s %8s %5s %11s %5s %8s %9s %6s\n";
    printf(format, "tokens", "ranks", "algo", "grid", "map", "thr", "dtype", "heads", "pass", "min",
           "median", "p99", "ratio", "attend", "exchange", "GFLOP/s", "peak", "frac", "received",
           "msgs", "memory", "model", "#wrong");
    printf(format, "", "", "", "RxC", "", "", "", "q/kv", "", "ms", "ms", "ms", "", "ms", "ms", "",
           "GFLOP/s", "", "B/rank", "/rank", "MB", "ms", "");
}

void attention_table_header(const attention_options *options, const bench_machine *machine,
                            int rows)
{
    const attention_options *o = options;
    printf("# treeattn-bench attention, library %d.%d.%d\n", ta_version() / 10000,
           ta_version() / 100 % 100, ta_version() % 100);
    printf("# machine   %s, %d CPUs, %.1f GiB, %s\n", machine->cpu, machine->cpus,
           (double)machine->memory_bytes * 0x1p-30, machine->system);
    if (launch.mpi)
        printf("# ranks     %d processes of %s, %d of them on this host\n", launch.ranks,
               launch.library, launch.local_ranks);
    printf("# device    %s\n", o->sweep.device);
    if (o->cluster)
        printf("# cluster   %s\n", o->cluster);
    printf("# shape     head dim %lld, %s, %s scaling\n", (long long)o->head_dim,
           attention_mask_name((ta_mask)o->mask), sweep_scaling_words[o->sweep.scaling]);
    printf("# time      %lld calls after %lld to warm up, alternating with a loop of FMAs: %s\n",
           (long long)o->sweep.iterations, (long long)o->sweep.warmup, fma_loop_name());
    printf("# rows      2 of each of %d; check %s\n#\n", rows, o->sweep.check ? "on" : "off");
    print_columns();
    fflush(stdout);
}

void attention_table_pass(const attention_options *options, const attention_row *row,
                          const attention_times *times, int pass, const pass_result *result)
{
    const pass_result *r = result;
    char heads[32], wrong[32], grid[32] = "-", model[32] = "-";
    snprintf(heads, sizeof heads, "%d/%d", (int)row->query_heads, (int)row->kv_heads);
    snprintf(wrong, sizeof wrong, options->sweep.check ? "%lld" : "N/A",
             (long long)r->verdict.wrong);
    if (times->algorithm != TA_ATTENTION_RING)
        snprintf(grid, sizeof grid, "%dx%d", times->grid_rows, times->grid_columns);
    if (row->cluster)
        snprintf(model, sizeof model, "%.2f", times->model_us[pass] * 1e-3);
    printf("%10d %5d %7s %7s %10s %3d %5s %7s %8s %9.2f %9.2f %9.2f %6.2f %9.2f %9.2f %8.1f %8.1f "
           "%5.2f %11.0f %5.0f %8.1f %9s %6s\n",
           (int)row->tokens, row->ranks, attention_algorithm_name(times->algorithm), grid,
           attention_map_name(row->map), row->threads, element_name(row->dtype), heads,
           pass_words[pass], r->us.min * 1e-3, r->us.median * 1e-3, r->us.p99 * 1e-3, r->ratio,
           times->attend_us[pass] * 1e-3, times->exchange_us[pass] * 1e-3, r->gflops, r->peak,
           r->fraction, times->bytes[pass], times->messages[pass], times->peak_bytes * 1e-6, model,
           wrong);
    fflush(stdout);
}

void attention_json_pass(json_writer *json, const attention_row *row, const attention_times *times,
                         int pass, const pass_result *result)
{
    const pass_result *r = result;
    json_open(json, NULL, '{');
    json_int(json, "tokens", row->tokens);
    json_int(json, "ranks", row->ranks);
    json_string(json, "algorithm", attention_algorithm_name(times->algorithm));
    json_int(json, "columns", row->columns);
    json_int(json, "grid_rows", times->grid_rows);
    json_int(json, "grid_columns", times->grid_columns);
    json_string(json, "map", attention_map_name(row->map));
    json_int(json, "threads", row->threads);
    json_string(json, "dtype", element_name(row->dtype));
    json_int(json, "query_heads", row->query_heads);
    json_int(json, "kv_heads", row->kv_heads);
    json_int(json, "head_dim", row->head_dim);
    json_string(json, "mask", attention_mask_name(row->mask));
    json_string(json, "pass", pass_words[pass]);
    json_double(json, "ratio", r->ratio);
    json_double(json, "attend_us", times->attend_us[pass]);
    json_double(json, "exchange_us", times->exchange_us[pass]);
    json_double(json, "gflops", r->gflops);
    json_double(json, "peak_gflops", r->peak);
    json_double(json, "fraction", r->fraction);
    json_int(json, "bytes_received_per_rank", (int64_t)times->bytes[pass]);
    json_int(json, "messages_received_per_rank", (int64_t)times->messages[pass]);
    json_int(json, "peak_bytes_per_rank", (int64_t)times->peak_bytes);
    if (row->cluster)
        json_double(json, "model_us", times->model_us[pass]);
    json_int(json, "checked", r->verdict.checked);
    json_int(json, "wrong", r->verdict.wrong);
    json_double(json, "worst_error_in_tolerances", r->verdict.worst);
    json_doubles(json, "us", times->pass_us[pass], row->iterations);
    json_doubles(json, "peak_us", times->peak_us, row->iterations);
    json_close(json, '}');
}
