/* The table; see summary.h. summary_json.c has the JSON. */
#include "summary.h"

#include "common/elements.h"
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

double summary_paper(const llama_head *head, const llama_result *r, int index)
{
    return paper_seconds(head->flags, head->config, paper_gpu(head->places, r->row.ranks),
                         r->row.ranks, r->row.tokens, index);
}

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
    static const char *const format =
        "#%9s %5s %3s %8s %9s %9s %9s %9s %9s %7s %6s %5s %5s %5s %10s "
        "%8s %8s %8s %6s %5s %8s %9s %7s\n";
    printf(format, "tokens", "ranks", "thr", "algo", "prefill", "min", "median", "p99", "together",
           "words/s", "ratio", "wgt", "att", "exch", "bytes", "weights", "KV", "other", "read",
           "frac", "differ", "model", "paper");
    printf(format, "", "", "", "", "ms", "ms", "ms", "ms", "ms", "", "", "%", "%", "%", "/rank",
           "MB", "MB", "MB", "GB/s", "", "", "ms", "s");
    fflush(stdout);
}

static void print_or_dash(char *text, size_t capacity, const char *format, double number)
{
    if (number > 0)
        snprintf(text, capacity, format, number);
    else
        snprintf(text, capacity, "-");
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

void summary_rows(const llama_head *head, const llama_result *r, const llama_forecast *forecasts)
{
    int64_t words = head->flags->new_words;
    double prefill = summary_has_prefill(head) ? r->prefill_us * 1e-3 : 0;
    for (int a = 0; a < r->algorithms; a++) {
        const llama_steps *s = &r->steps[a];
        /* Of this machine or, if it is none of the paper's, of --cluster. */
        double here = summary_paper(head, r, a);
        char first[32], together[32], read[32], fraction[32], model[32], paper[32];
        print_or_dash(first, sizeof first, "%.1f", prefill);
        print_or_dash(together, sizeof together, "%.1f",
                      prefill > 0 ? summary_together_us(r, a, words) * 1e-3 : 0);
        print_or_dash(read, sizeof read, "%.1f", r->read_gbps);
        print_or_dash(fraction, sizeof fraction, "%.2f", s->fraction);
        print_or_dash(model, sizeof model, "%.3f", forecasts ? forecasts[a].step_s * 1e3 : 0);
        print_or_dash(paper, sizeof paper, "%.2f",
                      here > 0 || !forecasts ? here : forecasts[a].paper_s);
        printf("%10d %5d %3d %8s %9s %9.2f %9.2f %9.2f %9s %7.2f %6.2f %5.1f %5.1f %5.1f %10.0f "
               "%8.1f %8.1f %8.1f %6s %5s %8.1e %9s %7s\n",
               (int)r->row.tokens, r->row.ranks, r->row.threads, s->name, first,
               s->stats.min * 1e-3, s->stats.median * 1e-3, s->stats.p99 * 1e-3, together,
               1e6 / s->stats.median, s->ratio, 100 * s->linear_share, 100 * s->attend_share,
               100 * s->exchange_share, s->bytes, r->weight_bytes * 1e-6, r->cache_bytes * 1e-6,
               r->other_bytes * 1e-6, read, fraction, s->difference, model, paper);
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

void summary_footer(const llama_head *head)
{
    printf(
        "#\n"
        "# prefill: until the first new word is known; min, median, p99: of each word after it;\n"
        "# together: prefill and all new words; ratio: median / that of the first algorithm;\n"
        "# wgt, att, exch: shares of a step in products with weights, in attending, and in\n"
        "# moving, merging and waiting; bytes: of the busiest rank, for each word; weights, KV,\n"
        "# other: memory of the fullest rank; read: what this machine only reads, of the same\n"
        "# weights and cache, in the same run; frac: bytes that a step reads in its time, over\n"
        "# that; differ: largest difference of logits from the first algorithm's%s%s\n",
        head->flags->expanded ? ";\n# expanded: ring-kv over KV heads repeated for every query "
                                "head, as published code has it"
                              : "",
        head->flags->cluster ? "; model: the median as\n# predicted on --cluster" : "");
    printf("# paper: together, as Tree Attention's authors measured it on such GPUs\n");
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
    char paper[32];
    print_or_dash(paper, sizeof paper, "%.2f", f->paper_s);
    if (!f->possible) {
        printf("%10d %5d %8s  cannot be\n", (int)row->tokens, row->ranks, algorithm);
        return;
    }
    printf("%10d %5d %8s %10.2f %9.3f %9.3f %9.3f %9.3f %10.3f %6.2f %6s %8.2f %4s\n",
           (int)row->tokens, row->ranks, algorithm, f->prefill_s * 1e3, f->step_s * 1e3,
           f->weights_s * 1e3, f->attend_s * 1e3, f->exchange_s * 1e3,
           f->prefill_s + (double)new_words * f->step_s, f->step_s / first->step_s, paper,
           f->memory_bytes * 1e-9, f->fits ? "yes" : "no");
}
