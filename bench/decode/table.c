/* Printing the table; see table.h. docs/benchmarks.md says what each column is and how to read
 * it. */
#include "table.h"

#include <string.h>

#include "common/bars.h"
#include "common/cells.h"
#include "common/elements.h"
#include "common/quiet.h"

/* ---- The columns ---------------------------------------------------------------------------- */

/* A column is always there, or with --wide; or, with --wide and otherwise where it says something:
 * if several algorithms are compared, if there is one alone, if rows differ in it. */
enum { ALWAYS, WIDE, PAIRED, ALONE, THREADS, PAGES, DTYPES, HEADS, REASONS };
static int shown[REASONS] = {[ALWAYS] = 1};
static int is_brief; /* --brief */

static void choose_columns(const decode_options *o)
{
    const sweep_options *sweep = &o->sweep;
    shown[WIDE] = o->wide != 0;
    shown[PAIRED] = o->wide || o->algorithms.count > 1;
    shown[ALONE] = o->wide || o->algorithms.count == 1;
    shown[THREADS] = o->wide || sweep->threads.count > 1;
    shown[PAGES] = o->wide || o->pages == OPTIONS_BOTH_PAGES;
    shown[DTYPES] = o->wide || sweep->dtypes.count > 1 || o->kv_dtypes.count > 0;
    shown[HEADS] = o->wide || sweep->heads.count > 1 || sweep->kv_heads.count > 1;
}

/* X(name, unit, width, when, cell of the result r) */
#define COLUMNS(X)                                                                                 \
    X("tokens", "", 8, ALWAYS, cell_as("%d", (int)r->row.tokens))                                  \
    X("ranks", "", 5, ALWAYS, cell_as("%d", r->row.ranks))                                         \
    X("thr", "", 3, THREADS, cell_as("%d", r->row.threads))                                        \
    X("pages", "", 5, PAGES, cell_as("%s", options_pages_words[r->row.pages]))                     \
    X("dtype", "", 8, DTYPES, cell_as("%s", element_name(r->row.kv_dtype)))                        \
    X("heads", "q/kv", 6, HEADS, cell_as("%d/%d", (int)r->row.query_heads, (int)r->row.kv_heads))  \
    X("algo", "", 7, ALWAYS, cell_as("%s", r->algorithm))                                          \
    X("min", "us", 9, WIDE, cell_as("%.1f", r->step.min))                                          \
    X("median", "us", 9, ALWAYS, cell_as("%.1f", r->step.median))                                  \
    X("p99", "us", 9, WIDE, cell_as("%.1f", r->step.p99))                                          \
    X("ratio", "", 5, PAIRED, cell_ratio(r->ratio.median))                                         \
    X("range", "", 10, PAIRED, cell_range(r->ratio.low, r->ratio.high))                            \
    X("attend", "us", 8, ALWAYS, cell_number(result_attend_us(r), 1))                              \
    X("exchange", "us", 8, ALWAYS, cell_number(result_exchange_us(r), 1))                          \
    X("KV", "GB/s", 6, ALONE, cell_as("%.2f", result_kv_gbps(r)))                                  \
    X("KVeach", "GB/s", 6, WIDE, cell_as("%.2f", result_kv_gbps(r) / r->row.ranks))                \
    X("read", "GB/s", 6, ALONE, cell_as("%.2f", result_read_gbps(r)))                              \
    X("frac", "", 5, ALWAYS, cell_as("%.2f", r->fraction.median))                                  \
    X("fma", "", 5, WIDE, cell_number(r->fma_fraction.median, 2))                                  \
    X("bytes", "/rank", 9, ALWAYS, cell_as("%.0f", result_exchanged_bytes(r)))                     \
    X("msgs", "/rank", 5, ALWAYS, cell_as("%.3g", result_messages(r)))                             \
    X("peak", "MB", 8, WIDE, cell_as("%.1f", result_peak_bytes(r) * 1e-6))                         \
    X("#wrong", "", 6, ALWAYS, r->wrong < 0 ? cell_as("N/A") : cell_as("%lld", (long long)r->wrong))

static const table_column heads[] = {COLUMNS(CELL_COLUMN)};

void table_row(const bench_result *r)
{
    printf("%c", quiet_mark(r->others));
    COLUMNS(CELL_PRINT)
    printf("\n");
    fflush(stdout);
}

/* The lines of a plan's description that the header does not say in another way. */
static int worth_printing(const char *line)
{
    static const char *const keys[] = {
        "host simd:", "algorithm:", "partial:", "exchange:", "workspace:"};
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        if (strncmp(line, keys[i], strlen(keys[i])) == 0)
            return 1;
    }
    return 0;
}

static void print_plan(const char *plan)
{
    printf("# plan      of the last row:\n");
    while (*plan) {
        int length = (int)strcspn(plan, "\n");
        if (worth_printing(plan))
            printf("#           %.*s\n", length, plan);
        plan += length + (plan[length] == '\n');
    }
}

static void print_list(const char *label, const arg_list *list)
{
    printf("%s", label);
    for (int i = 0; i < list->count; i++)
        printf("%s%lld", i ? "," : " ", (long long)list->values[i]);
}

static void print_cache(const decode_options *o)
{
    printf("# cache     %s shard map", options_map_words[o->map]);
    if (o->block)
        printf(", block %lld", (long long)o->block);
    printf(", outer axis %s, ", options_layout_words[o->layout]);
    if (o->page_tokens)
        printf("pages of %lld tokens\n", (long long)o->page_tokens);
    else
        printf("not paged\n");
}

/* ---- The header ----------------------------------------------------------------------------- */

/* What a screen has room for: the machine, and that links are emulated. */
static void brief_header(const decode_options *o, const bench_machine *machine)
{
    char text[128];
    printf("# %s, %d CPUs, %s; %lld/%lld heads x %lld", machine->cpu, machine->cpus,
           o->devices.said, (long long)o->sweep.heads.values[0],
           (long long)o->sweep.kv_heads.values[0], (long long)o->head_dim);
    if (!shown[DTYPES])
        printf(", %s", element_name(element_dtype(o->sweep.dtypes.values[0])));
    if (o->weights != TA_WEIGHTS_EXACT)
        printf(", %s weights", options_weights_words[o->weights]);
    printf("\n");
    links_text(&o->speed, text, sizeof text);
    if (o->link)
        printf("# %s\n", text);
    is_brief = 1;
}

void table_header(const decode_options *options, const bench_machine *machine, int rows,
                  const char *plan, const rank_place *places, int ranks)
{
    const decode_options *o = options;
    int library = ta_version();
    choose_columns(o);
    if (o->brief) {
        brief_header(o, machine);
        return;
    }
    printf("# treeattn-bench decode, version %d.%d.%d, library %d.%d.%d\n", TA_VERSION_MAJOR,
           TA_VERSION_MINOR, TA_VERSION_PATCH, library / 10000, library / 100 % 100, library % 100);
    run_machine_print(machine);
    printf("# device    %s%s%s;", o->devices.said,
           o->group == RANK_GROUP_CCL ? ", one for each rank" : "",
           o->graph ? "; steps replayed from a graph" : "");
    print_list(" ranks", &o->sweep.ranks);
    if (o->sweep.threads.count)
        print_list("; threads of each rank", &o->sweep.threads);
    else
        printf("; threads of each rank: %d CPUs / ranks", machine->cpus);
    printf("\n");
    if (o->link)
        links_print(&o->speed, "attending");
    places_print(places, ranks);
    print_list("# shape     heads", &o->sweep.heads);
    print_list("; KV heads", &o->sweep.kv_heads);
    printf("; head dim %lld, of V %lld; batch %lld; query tokens %lld", (long long)o->head_dim,
           (long long)o->v_dim, (long long)o->batch, (long long)o->query_tokens);
    if (o->ragged)
        printf(" at most, %lld in all", (long long)options_rows(o));
    if (o->selected)
        printf("; %lld keys selected for each", (long long)o->selected);
    if (o->shared_prefix)
        printf("; the first %lld tokens shared", (long long)o->shared_prefix);
    if (o->weights != TA_WEIGHTS_EXACT)
        printf("; weights %s", options_weights_words[o->weights]);
    printf("\n");
    print_cache(o);
    printf("# tensors   query on %s, output on %s\n", options_placement_words[o->query_placement],
           options_placement_words[o->out_placement]);
    print_plan(plan);
    printf("# time      %s%lld steps after %lld to warm up, %s\n",
           o->sweep.iterations ? "" : "up to ",
           (long long)(o->sweep.iterations ? o->sweep.iterations : OPTIONS_MAX_SAMPLES),
           (long long)o->sweep.warmup,
           o->algorithms.count > 1 ? "algorithms and read sweeps by turns"
                                   : "alternating with as many read sweeps");
    printf("# rows      %d; check %s\n", rows, o->sweep.check ? "on" : "off");
    fflush(stdout);
}

static void print_pages(int pages, double mapped_bytes, double huge_bytes)
{
    printf("# pages     %s: ", options_pages_words[pages]);
    if (huge_bytes < 0)
        printf("the system does not tell how much of K and V is in huge pages\n");
    else
        printf("%.0f of %.0f MiB for K and V are in huge pages, the rest in pages of %d KiB\n",
               huge_bytes * 0x1p-20, mapped_bytes * 0x1p-20, (int)(pages_small_bytes() >> 10));
}

void table_pages(int pages, double mapped_bytes, double huge_bytes, int is_first)
{
    if (!is_brief)
        print_pages(pages, mapped_bytes, huge_bytes);
    if (is_first) {
        printf("#\n");
        table_print_heads(heads, sizeof heads / sizeof heads[0], shown);
    }
    fflush(stdout);
}

/* A bar for each row. */
static void print_bars(const decode_options *o, const bench_result *results, int count)
{
    bars picture = {0};
    char label[64], title[200], where[128] = "";
    if (o->link) {
        where[0] = ',', where[1] = ' ';
        links_text(&o->speed, where + 2, sizeof where - 2);
    }
    snprintf(title, sizeof title, "microseconds of a step%s", where);
    for (int i = 0; i < count; i++) {
        const bench_case *row = &results[i].row;
        snprintf(label, sizeof label, "%d tokens, %d ranks", (int)row->tokens, row->ranks);
        bars_add(&picture, i > 0 && options_same_work(&results[i - 1].row, row) ? "" : label,
                 results[i].algorithm, results[i].step.median);
    }
    bars_print(stdout, "# ", title, &picture);
}

void table_footer(const decode_options *options, const bench_result *results, int count)
{
    int64_t checked = 0, wrong = 0;
    double disturbed = 0;
    for (int i = 0; i < count; i++) {
        if (results[i].wrong < 0)
            continue;
        checked += results[i].checked;
        wrong += results[i].wrong;
    }
    printf("#\n");
    if (options->bars)
        print_bars(options, results, count);
    if (checked)
        printf("# %lld results checked against double precision: %lld wrong\n", (long long)checked,
               (long long)wrong);
    for (int i = 0; i < count; i++)
        disturbed = results[i].others > disturbed ? results[i].others : disturbed;
    quiet_print(disturbed);
    if (options->brief)
        return;
    if (shown[PAIRED])
        printf("# ratio: of each step to that of the first algorithm in the same turn: the median, "
               "and\n# the range that it is in, in 95 of 100 runs\n");
    printf("# attend, exchange: time that ranks attend, and that they move, merge and wait; frac: "
           "time\n# to only read K and V / time of the step; bytes, msgs: of the busiest rank, per "
           "step");
    printf(
        shown[WIDE]
            ? ";\n# KV: bytes of K and V per time of a step,\n"
              "# KVeach: of each rank; read: the same bytes only read, by as many threads; fma: "
              "the\n"
              "# step's multiply-adds per time, as a part of a loop of nothing else; peak: device\n"
              "# memory of the fullest rank, K and V included\n"
            : ";\n# --wide has more columns\n");
}
