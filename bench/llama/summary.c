/* The table; see summary.h. summary_json.c has the JSON, summary_csv.c the CSV. */
#include "summary.h"

#include <math.h>

#include "common/cells.h"
#include "common/elements.h"
#include "common/quiet.h"
#include "paper.h"
#include "products.h"

double summary_together_us(const llama_result *r, int index, int64_t words)
{
    double sum = r->prefill_us;
    for (int64_t i = 0; i < words; i++)
        sum += r->steps[index].us[i];
    return sum;
}

int summary_has_prefill(const llama_head *head)
{
    return llama_flags_prefill(head->flags) != PREFILL_NONE;
}

double summary_measured(double value)
{
    return value > 0 ? value : NAN;
}

double summary_paper(const llama_head *head, const llama_result *r, int index)
{
    return paper_seconds(head->flags, head->config, paper_gpu(head->places, r->row.ranks),
                         r->row.ranks, r->row.tokens, index);
}

/* ---- The columns --------------------------------------------------------------------------- */

/* A column is always there, or with --wide; or, with --wide and otherwise where it says something:
 * if there is a prompt, if reading is measured, with --cluster or without, where the paper may have
 * the machine. */
enum { ALWAYS, WIDE, PROMPT, READ, PLAIN, MODEL, PAPER, REASONS };
static int shown[REASONS] = {[ALWAYS] = 1};

static void choose_columns(const llama_head *head)
{
    const llama_flags *f = head->flags;
    shown[WIDE] = f->wide != 0;
    shown[PROMPT] = f->wide || summary_has_prefill(head);
    shown[READ] = f->wide || f->read;
    shown[PLAIN] = f->wide || !f->cluster;
    shown[MODEL] = f->wide || f->cluster;
    shown[PAPER] = shown[MODEL] || llama_flags_gpu(f);
}

/* Numbers of a row that are 0 where there are none. */
typedef struct row_numbers {
    double prefill_ms, together_ms, model_ms, paper_s;
} row_numbers;

static cell or_dash(double value, int decimals)
{
    return value > 0 ? cell_number(value, decimals) : cell_as("-");
}

/* X(name, unit, width, when, cell): of the result r, its steps s by one algorithm, and numbers n */
#define COLUMNS(X)                                                                                 \
    X("tokens", "", 8, ALWAYS, cell_as("%d", (int)r->row.tokens))                                  \
    X("ranks", "", 5, ALWAYS, cell_as("%d", r->row.ranks))                                         \
    X("thr", "", 3, WIDE, cell_as("%d", r->row.threads))                                           \
    X("algo", "", 8, ALWAYS, cell_as("%s", s->name))                                               \
    X("prefill", "ms", 8, PROMPT, or_dash(n.prefill_ms, 1))                                        \
    X("min", "ms", 8, WIDE, cell_number(s->stats.min * 1e-3, 2))                                   \
    X("median", "ms", 8, ALWAYS, cell_number(s->stats.median * 1e-3, 2))                           \
    X("p99", "ms", 8, WIDE, cell_number(s->stats.p99 * 1e-3, 2))                                   \
    X("together", "ms", 8, PROMPT, or_dash(n.together_ms, 1))                                      \
    X("words/s", "", 7, WIDE, cell_number(1e6 / s->stats.median, 2))                               \
    X("ratio", "", 5, ALWAYS, cell_ratio(s->ratio.median))                                         \
    X("range", "", 10, ALWAYS, cell_range(s->ratio.low, s->ratio.high))                            \
    X("wgt", "%", 4, PLAIN, cell_number(100 * s->linear_share, 1))                                 \
    X("att", "%", 4, PLAIN, cell_number(100 * s->attend_share, 1))                                 \
    X("exch", "%", 4, PLAIN, cell_number(100 * s->exchange_share, 1))                              \
    X("bytes", "/rank", 10, WIDE, cell_number(s->bytes, 0))                                        \
    X("weights", "MB", 8, WIDE, cell_number(r->weight_bytes * 1e-6, 1))                            \
    X("KV", "MB", 8, WIDE, cell_number(r->cache_bytes * 1e-6, 1))                                  \
    X("other", "MB", 8, WIDE, cell_number(r->other_bytes * 1e-6, 1))                               \
    X("read", "GB/s", 6, WIDE, or_dash(r->read_gbps, 1))                                           \
    X("frac", "", 5, READ, or_dash(s->fraction, 2))                                                \
    X("differ", "", 7, ALWAYS, cell_as("%.1e", s->difference))                                     \
    X("model", "ms", 8, MODEL, or_dash(n.model_ms, 3))                                             \
    X("paper", "s", 6, PAPER, or_dash(n.paper_s, 2))

static const table_column heads[] = {COLUMNS(CELL_COLUMN)};

/* ---- The table ----------------------------------------------------------------------------- */

static void print_model(const llama_head *head)
{
    const llama_config *c = head->config;
    printf("# model     %s: %d layers, width %d, MLP %d, heads %d/%d of %d, %d words; %.1f million "
           "weights, %s\n",
           c->name, (int)c->layers, (int)c->hidden, (int)c->inner, (int)c->heads, (int)c->kv_heads,
           (int)c->head_dim, (int)c->vocabulary, llama_config_elements(c) * 1e-6, head->weights);
}

void summary_header(const llama_head *head)
{
    const llama_flags *f = head->flags;
    int library = ta_version();
    printf("# treeattn-bench llama, library %d.%d.%d\n", library / 10000, library / 100 % 100,
           library % 100);
    run_machine_print(head->machine);
    if (f->link)
        links_print(&f->speed, "computing");
    places_print(head->places, head->ranks);
    print_model(head);
    const char *where = f->tensor ? "divided over the ranks" : "on every rank";
    if (llama_flags_gpu(f))
        printf("# weights   %s\n# device    %s, ranks connected by %s\n", where, f->device,
               f->group == RANK_GROUP_CCL ? "NCCL or RCCL" : "the host");
    else
        printf("# weights   %s; products: %s for one row, %s for many\n", where,
               products_one_name(), products_many_name());
    printf("# cache     %s, blocks of %lld tokens dealt to the ranks, pages of %lld\n",
           element_name(element_dtype(f->kv_dtype)), (long long)f->block,
           (long long)f->page_tokens);
    if (summary_has_prefill(head))
        printf("# prefill   by %s, %lld tokens computed at a time\n", llama_flags_prefill_name(f),
               (long long)f->chunk);
    else
        printf("# prefill   NONE: the cache has random numbers, steps alone are measured\n");
    if (f->tile)
        printf("# bits      the same on any number of ranks, tiles of %lld tokens\n",
               (long long)f->tile);
    printf("# time      %lld words after %lld to warm up; algorithms take turns at each word\n#\n",
           (long long)f->new_words, (long long)f->warmup);
    choose_columns(head);
    table_print_heads(heads, sizeof heads / sizeof heads[0], shown);
    fflush(stdout);
}

static void print_prefill(const llama_result *r)
{
    printf("#          prefill: weights %.1f %%, attention %.1f %%, exchange %.1f %%; products at "
           "%.1f GFLOP/s",
           100 * r->prefill_linear_share, 100 * r->prefill_attend_share,
           100 * r->prefill_exchange_share, r->prefill_gflops);
    if (r->prefill_fraction > 0)
        printf(", %.2f of the %.1f of %s alone", r->prefill_fraction, r->library_gflops,
               r->products[1]);
    printf("\n");
}

static void print_row(const llama_result *r, const llama_steps *s, row_numbers n)
{
    printf("%c", quiet_mark(r->others));
    COLUMNS(CELL_PRINT)
    printf("\n");
}

void summary_rows(const llama_head *head, const llama_result *r, const llama_forecast *forecasts)
{
    int64_t words = head->flags->new_words;
    for (int a = 0; a < r->algorithms; a++) {
        /* Of this machine or, if it is none of the paper's, of --cluster. */
        row_numbers n = {.paper_s = summary_paper(head, r, a)};
        if (summary_has_prefill(head)) {
            n.prefill_ms = r->prefill_us * 1e-3;
            n.together_ms = summary_together_us(r, a, words) * 1e-3;
        }
        if (forecasts) {
            n.model_ms = forecasts[a].step_s * 1e3;
            n.paper_s = n.paper_s > 0 ? n.paper_s : forecasts[a].paper_s;
        }
        print_row(r, &r->steps[a], n);
    }
    if (llama_flags_gpu(head->flags))
        printf(
            "#          products: %s for one row, %s for many; shares: of one more step, in which "
            "the host waits for every operation\n",
            r->products[0], r->products[1]);
    else if (summary_has_prefill(head))
        print_prefill(r);
    printf("#          words:");
    for (int64_t i = 0; i <= words && i <= 16; i++)
        printf(" %d", (int)r->words[i]);
    printf(words > 16 ? " …\n" : "\n");
    fflush(stdout);
}

void summary_footer(const llama_head *head, double disturbed)
{
    quiet_print(disturbed);
    printf(
        "#\n"
        "# prefill: until the first new word is known; min, median, p99: of each word after it;\n"
        "# together: prefill and all new words; ratio: of each word to the first algorithm's: the\n"
        "# median, and the range that it is in, in 95 of 100 runs; wgt, att, exch: shares of a "
        "step\n"
        "# in products with weights, in attending, and in moving, merging and waiting; bytes: of "
        "the\n"
        "# busiest rank, for each word; weights, KV, other: memory of the fullest rank; read: "
        "what\n"
        "# this machine only reads, of the same weights and cache, in the same run; frac: bytes "
        "that\n"
        "# a step reads in its time, over that; differ: largest difference of logits from the "
        "first\n"
        "# algorithm's%s%s\n",
        head->flags->expanded ? ";\n# expanded: ring-kv over KV heads repeated for every query "
                                "head, as published code has it"
                              : "",
        head->flags->cluster ? ";\n# model: the median as predicted on --cluster" : "");
    if (shown[PAPER])
        printf("# paper: together, as Tree Attention's authors measured it on such GPUs\n");
    if (!head->flags->wide)
        printf("# --wide has more columns\n");
}

void summary_forecast_header(const llama_head *head)
{
    printf("# treeattn-bench llama --predict: nothing ran\n# cluster   %s\n", head->flags->cluster);
    print_model(head);
    printf("# weights   %s\n#\n", head->flags->tensor ? "divided over the ranks" : "on every rank");
    static const char *const format = "#%9s %5s %8s %10s %9s %9s %9s %9s %10s %6s %6s %8s %4s\n";
    printf(format, "tokens", "ranks", "algo", "prefill", "step", "weights", "attend", "exchange",
           "together", "ratio", "paper", "memory", "fits");
    printf(format, "", "", "", "ms", "ms", "ms", "ms", "ms", "s", "", "s", "GB", "");
}

void summary_forecast(const llama_row *row, const char *algorithm, const llama_forecast *f,
                      const llama_forecast *first, int64_t new_words)
{
    if (!f->possible) {
        printf("%10d %5d %8s  cannot be\n", (int)row->tokens, row->ranks, algorithm);
        return;
    }
    printf("%10d %5d %8s %10.2f %9.3f %9.3f %9.3f %9.3f %10.3f %6.2f %6s %8.2f %4s\n",
           (int)row->tokens, row->ranks, algorithm, f->prefill_s * 1e3, f->step_s * 1e3,
           f->weights_s * 1e3, f->attend_s * 1e3, f->exchange_s * 1e3,
           f->prefill_s + (double)new_words * f->step_s, f->step_s / first->step_s,
           or_dash(f->paper_s, 2).text, f->memory_bytes * 1e-9, f->fits ? "yes" : "no");
}
