/* See table.h. */
#include "table.h"

#include <math.h>

#include <treeattn/attention.h>

#include "common/cells.h"
#include "common/elements.h"
#include "common/fma_loop.h"
#include "common/quiet.h"

static const char *const pass_words[PASSES] = {"forward", "backward"};

const char *attention_pass_name(int pass)
{
    return pass_words[pass];
}

/* A column is always there, or with --wide; or, with --wide and otherwise where it says something:
 * if several algorithms are compared, if there is one alone, if rows differ in it. */
enum { ALWAYS, WIDE, PAIRED, ALONE, MAPS, THREADS, DTYPES, HEADS, MODEL, REASONS };
static int shown[REASONS] = {[ALWAYS] = 1};

static void choose_columns(const attention_options *o)
{
    int several = o->algorithms.count * o->columns.count > 1;
    shown[WIDE] = o->wide != 0;
    shown[PAIRED] = o->wide || several;
    shown[ALONE] = o->wide || !several;
    shown[MAPS] = o->wide || o->maps.count > 1;
    shown[THREADS] = o->wide || o->sweep.threads.count > 1;
    shown[DTYPES] = o->wide || o->sweep.dtypes.count > 1;
    shown[HEADS] = o->wide || o->sweep.heads.count > 1 || o->sweep.kv_heads.count > 1;
    shown[MODEL] = o->cluster != NULL;
}

static cell grid_cell(const attention_times *times)
{
    if (times->algorithm == TA_ATTENTION_RING)
        return cell_as("-");
    return cell_as("%dx%d", times->grid_rows, times->grid_columns);
}

static cell ms(double us)
{
    return cell_number(us * 1e-3, 2);
}

/* X(name, unit, width, when, cell): of a row, its times t and the result r of a pass */
#define COLUMNS(X)                                                                                 \
    X("tokens", "", 8, ALWAYS, cell_as("%d", (int)row->tokens))                                    \
    X("ranks", "", 5, ALWAYS, cell_as("%d", row->ranks))                                           \
    X("algo", "", 7, ALWAYS, cell_as("%s", attention_algorithm_words[t->algorithm]))               \
    X("grid", "RxC", 6, ALWAYS, grid_cell(t))                                                      \
    X("map", "", 10, MAPS, cell_as("%s", attention_map_words[row->map]))                           \
    X("thr", "", 3, THREADS, cell_as("%d", row->threads))                                          \
    X("dtype", "", 5, DTYPES, cell_as("%s", element_name(row->dtype)))                             \
    X("heads", "q/kv", 7, HEADS, cell_as("%d/%d", (int)row->query_heads, (int)row->kv_heads))      \
    X("pass", "", 8, ALWAYS, cell_as("%s", pass_words[pass]))                                      \
    X("min", "ms", 8, WIDE, ms(r->us.min))                                                         \
    X("median", "ms", 8, ALWAYS, ms(r->us.median))                                                 \
    X("p99", "ms", 8, WIDE, ms(r->us.p99))                                                         \
    X("ratio", "", 5, PAIRED, cell_ratio(r->ratio.median))                                         \
    X("range", "", 10, PAIRED, cell_range(r->ratio.low, r->ratio.high))                            \
    X("attend", "ms", 8, ALWAYS, ms(t->attend_us[pass]))                                           \
    X("exchange", "ms", 8, ALWAYS, ms(t->exchange_us[pass]))                                       \
    X("GFLOP/s", "", 8, ALONE, cell_as("%.1f", r->gflops))                                         \
    X("peak", "GFLOP/s", 8, WIDE, cell_number(r->peak, 1))                                         \
    X("frac", "", 5, ALWAYS, cell_number(r->fraction, 2))                                          \
    X("received", "B/rank", 11, WIDE, cell_as("%.0f", t->bytes[pass]))                             \
    X("msgs", "/rank", 5, WIDE, cell_as("%.0f", t->messages[pass]))                                \
    X("memory", "MB", 8, WIDE, cell_as("%.1f", t->peak_bytes * 1e-6))                              \
    X("model", "ms", 8, MODEL, ms(t->model_us[pass]))                                              \
    X("#wrong", "", 6, ALWAYS,                                                                     \
      options->sweep.check ? cell_as("%lld", (long long)r->verdict.wrong) : cell_as("N/A"))

static const table_column heads[] = {COLUMNS(CELL_COLUMN)};

/* What no column says if all rows have it. */
static void print_constant(const attention_options *o, const bench_machine *machine)
{
    const sweep_options *sweep = &o->sweep;
    if (o->wide)
        return;
    printf("# all rows  ");
    if (o->maps.count == 1)
        printf("%s, ", attention_map_words[o->maps.values[0]]);
    if (sweep->dtypes.count == 1)
        printf("%s, ", element_name(element_dtype(sweep->dtypes.values[0])));
    if (sweep->heads.count == 1 && sweep->kv_heads.count <= 1)
        printf(
            "%lld query heads, %lld KV heads, ", (long long)sweep->heads.values[0],
            (long long)(sweep->kv_heads.count ? sweep->kv_heads.values : sweep->heads.values)[0]);
    if (sweep->threads.count == 1)
        printf("%lld thread%s of each rank\n", (long long)sweep->threads.values[0],
               sweep->threads.values[0] == 1 ? "" : "s");
    else if (sweep->threads.count)
        printf("threads as in their column\n");
    else
        printf("the %d CPUs divided among the ranks\n", machine->cpus);
}

void attention_table_header(const attention_options *options, const bench_machine *machine,
                            int rows, const rank_place *places, int ranks)
{
    const attention_options *o = options;
    printf("# treeattn-bench attention, library %d.%d.%d\n", ta_version() / 10000,
           ta_version() / 100 % 100, ta_version() % 100);
    run_machine_print(machine);
    printf("# device    %s%s\n", o->devices.said,
           o->group == RANK_GROUP_CCL ? ", one for each rank; connected by NCCL or RCCL" : "");
    places_print(places, ranks);
    if (o->cluster)
        printf("# cluster   %s\n", o->cluster);
    printf("# shape     head dim %lld, %s, %s scaling\n", (long long)o->head_dim,
           attention_mask_words[o->mask], sweep_scaling_words[o->sweep.scaling]);
    print_constant(o, machine);
    printf("# time      %lld calls after %lld to warm up; algorithms take turns with each other",
           (long long)o->sweep.iterations, (long long)o->sweep.warmup);
    if (o->devices.gpu)
        printf("\n");
    else
        printf(" and with a\n#           loop of FMAs: %s\n", fma_loop_name());
    printf("# rows      2 of each of %d; check %s\n#\n", rows, o->sweep.check ? "on" : "off");
    choose_columns(o);
    table_print_heads(heads, sizeof heads / sizeof heads[0], shown);
    fflush(stdout);
}

void attention_table_pass(const attention_options *options, const attention_row *row,
                          const attention_times *times, int pass, const pass_result *result)
{
    const pass_result *r = result;
    const attention_times *t = times;
    printf("%c", quiet_mark(r->others));
    COLUMNS(CELL_PRINT)
    printf("\n");
    fflush(stdout);
}

void attention_table_footer(const attention_options *options, double disturbed)
{
    quiet_print(disturbed);
    if (shown[PAIRED])
        printf("# ratio: of each call to the first algorithm's in the same round: the median, and "
               "the\n"
               "# range that it is in, in 95 of 100 runs\n");
    if (!options->wide)
        printf("# --wide has more columns\n");
}

void attention_json_pass(json_writer *json, const attention_row *row, const attention_times *times,
                         int pass, const pass_result *result)
{
    const pass_result *r = result;
    json_open(json, NULL, '{');
    json_int(json, "tokens", row->tokens);
    json_int(json, "ranks", row->ranks);
    json_string(json, "algorithm", attention_algorithm_words[times->algorithm]);
    json_int(json, "columns", row->columns);
    json_int(json, "grid_rows", times->grid_rows);
    json_int(json, "grid_columns", times->grid_columns);
    json_string(json, "map", attention_map_words[row->map]);
    json_int(json, "threads", row->threads);
    json_string(json, "dtype", element_name(row->dtype));
    json_int(json, "query_heads", row->query_heads);
    json_int(json, "kv_heads", row->kv_heads);
    json_int(json, "head_dim", row->head_dim);
    json_string(json, "mask", attention_mask_words[row->mask]);
    json_string(json, "pass", pass_words[pass]);
    json_double(json, "ratio", r->ratio.median);
    json_double(json, "ratio_low", r->ratio.low);
    json_double(json, "ratio_high", r->ratio.high);
    if (r->others >= 0)
        json_double(json, "cpus_used_by_others", r->others);
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
    if (row->gpu)
        json_double(json, "peak_us", NAN);
    else
        json_doubles(json, "peak_us", times->peak_us, row->iterations);
    json_close(json, '}');
}
