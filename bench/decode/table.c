/* Printing the table; see table.h. docs/benchmarks.md says what each column is and how to read
 * it. */
#include "table.h"

#include <string.h>

#include "common/elements.h"
#include "common/launch.h"

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
    printf("# cache     %s shard map", options_map_name(o));
    if (o->block)
        printf(", block %lld", (long long)o->block);
    printf(", outer axis %s, ", options_layout_name(o));
    if (o->page_tokens)
        printf("pages of %lld tokens\n", (long long)o->page_tokens);
    else
        printf("not paged\n");
}

static void print_columns(void)
{
    static const char *const format = "#%9s %5s %3s %5s %5s %6s %7s %9s %9s %9s %6s %9s %9s %6s "
                                      "%6s %6s %5s %5s %10s %5s %8s %6s\n";
    printf(format, "tokens", "ranks", "thr", "pages", "dtype", "heads", "algo", "min", "median",
           "p99", "ratio", "attend", "exchange", "KV", "KVeach", "read", "frac", "fma", "bytes",
           "msgs", "peak", "#wrong");
    printf(format, "", "", "", "", "", "q/kv", "", "us", "us", "us", "", "us", "us", "GB/s", "GB/s",
           "GB/s", "", "", "/rank", "/rank", "MB", "");
}

void table_header(const decode_options *options, const bench_machine *machine, int rows,
                  const char *plan)
{
    const decode_options *o = options;
    int library = ta_version();
    printf("# treeattn-bench decode, version %d.%d.%d, library %d.%d.%d\n", TA_VERSION_MAJOR,
           TA_VERSION_MINOR, TA_VERSION_PATCH, library / 10000, library / 100 % 100, library % 100);
    printf("# machine   %s, %d CPUs, %.1f GiB, %s\n", machine->cpu, machine->cpus,
           (double)machine->memory_bytes * 0x1p-30, machine->system);
    if (launch.mpi)
        printf("# ranks     %d processes of %s, %d of them on this host\n", launch.ranks,
               launch.library, launch.local_ranks);
    printf("# device    %s%s%s;", o->sweep.device,
           o->group == GROUP_CCL ? ", one for each rank" : "",
           o->graph ? "; steps replayed from a graph" : "");
    print_list(" ranks", &o->sweep.ranks);
    if (o->sweep.threads.count)
        print_list("; threads of each rank", &o->sweep.threads);
    else
        printf("; threads of each rank: %d CPUs / ranks", machine->cpus);
    print_list("\n# shape     heads", &o->sweep.heads);
    print_list("; KV heads", &o->sweep.kv_heads);
    printf("; head dim %lld, of V %lld; batch %lld; query tokens %lld", (long long)o->head_dim,
           (long long)o->v_dim, (long long)o->batch, (long long)o->query_tokens);
    if (o->ragged)
        printf(" at most, %lld in all", (long long)options_rows(o));
    printf("\n");
    print_cache(o);
    printf("# tensors   query on %s, output on %s\n", options_placement_name(o->query_placement),
           options_placement_name(o->out_placement));
    print_plan(plan);
    printf("# time      %s%lld steps after %lld to warm up, alternating with as many read sweeps\n",
           o->sweep.iterations ? "" : "up to ",
           (long long)(o->sweep.iterations ? o->sweep.iterations : OPTIONS_MAX_SAMPLES),
           (long long)o->sweep.warmup);
    printf("# rows      %d; check %s\n", rows, o->sweep.check ? "on" : "off");
    fflush(stdout);
}

void table_pages(int pages, double mapped_bytes, double huge_bytes, int is_first)
{
    printf("# pages     %s: ", options_pages_name(pages));
    if (huge_bytes < 0)
        printf("the system does not tell how much of K and V is in huge pages\n");
    else
        printf("%.0f of %.0f MiB for K and V are in huge pages, the rest in pages of %d KiB\n",
               huge_bytes * 0x1p-20, mapped_bytes * 0x1p-20, (int)(pages_small_bytes() >> 10));
    if (is_first) {
        printf("#\n");
        print_columns();
    }
    fflush(stdout);
}

void table_row(const bench_result *result)
{
    const bench_case *row = &result->row;
    char heads[32], wrong[32], attend[32] = "N/A", exchange[32] = "N/A", fma[32] = "N/A";
    snprintf(heads, sizeof heads, "%d/%d", (int)row->query_heads, (int)row->kv_heads);
    snprintf(wrong, sizeof wrong, result->wrong < 0 ? "N/A" : "%lld", (long long)result->wrong);
    if (result->fma_fraction.median > 0)
        snprintf(fma, sizeof fma, "%.2f", result->fma_fraction.median);
    if (result->divided) {
        snprintf(attend, sizeof attend, "%.1f", result_attend_us(result));
        snprintf(exchange, sizeof exchange, "%.1f", result_exchange_us(result));
    }
    printf("%10d %5d %3d %5s %5s %6s %7s %9.1f %9.1f %9.1f %6.2f %9s %9s %6.2f %6.2f %6.2f %5.2f "
           "%5s %10.0f %5.3g %8.1f %6s\n",
           (int)row->tokens, row->ranks, row->threads, options_pages_name(row->pages),
           element_name(row->dtype), heads, result->algorithm, result->step.min,
           result->step.median, result->step.p99, result->ratio, attend, exchange,
           result_kv_gbps(result), result_kv_gbps(result) / row->ranks, result_read_gbps(result),
           result->fraction.median, fma, result_exchanged_bytes(result), result_messages(result),
           result_peak_bytes(result) * 1e-6, wrong);
    fflush(stdout);
}

void table_footer(const bench_result *results, int count)
{
    int64_t checked = 0, wrong = 0;
    for (int i = 0; i < count; i++) {
        if (results[i].wrong < 0)
            continue;
        checked += results[i].checked;
        wrong += results[i].wrong;
    }
    printf("#\n");
    if (checked)
        printf("# %lld results checked against double precision: %lld wrong\n", (long long)checked,
               (long long)wrong);
    printf(
        "# ratio: median / that of the first algorithm at the same work; attend, exchange: time\n"
        "# of a step that ranks attend, and that they move, merge and wait; KV: bytes of K and V\n"
        "# per time of a step, KVeach: of each rank; read: the same bytes only read, by as many\n"
        "# threads, in the same run; frac: time to read / time of the step before it, median;\n"
        "# fma: the step's multiply-adds per time, as a part of a loop of nothing else;\n"
        "# bytes, msgs: of the busiest rank, per step; peak: device memory of the fullest rank,\n"
        "# K and V included\n");
}
