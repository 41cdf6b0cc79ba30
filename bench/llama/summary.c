/* See summary.h. */
#include "summary.h"

#include "common/elements.h"
#include "common/launch.h"
#include "products.h"

static double sum_us(const llama_steps *steps, int64_t words)
{
    double sum = 0;
    for (int64_t i = 0; i < words; i++)
        sum += steps->us[i];
    return sum;
}

static int has_prefill(const llama_head *head)
{
    return llama_flags_prefill(head->flags) != PREFILL_NONE;
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
    printf("# machine   %s, %d CPUs, %.1f GiB, %s\n", head->machine->cpu, head->machine->cpus,
           (double)head->machine->memory_bytes * 0x1p-30, head->machine->system);
    if (launch.mpi)
        printf("# ranks     %d processes of %s, %d of them on this host\n", launch.ranks,
               launch.library, launch.local_ranks);
    print_model(head);
    printf("# weights   %s; products: %s for one row, %s for many\n",
           f->tensor ? "divided over the ranks" : "on every rank", products_one_name(),
           products_many_name());
    printf("# cache     %s, blocks of %lld tokens dealt to the ranks, pages of %lld\n",
           element_name(element_dtype(f->kv_dtype)), (long long)f->block,
           (long long)f->page_tokens);
    if (has_prefill(head))
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
        "#%9s %5s %3s %7s %9s %9s %9s %9s %9s %7s %6s %5s %5s %5s %10s "
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

void summary_rows(const llama_head *head, const llama_result *r, const llama_forecast *forecasts)
{
    int64_t words = head->flags->new_words;
    double prefill = has_prefill(head) ? r->prefill_us * 1e-3 : 0;
    for (int a = 0; a < r->algorithms; a++) {
        const llama_steps *s = &r->steps[a];
        char first[32], together[32], fraction[32], model[32], paper[32];
        print_or_dash(first, sizeof first, "%.1f", prefill);
        print_or_dash(together, sizeof together, "%.1f",
                      prefill > 0 ? prefill + sum_us(s, words) * 1e-3 : 0);
        print_or_dash(fraction, sizeof fraction, "%.2f", s->fraction);
        print_or_dash(model, sizeof model, "%.3f", forecasts ? forecasts[a].step_s * 1e3 : 0);
        print_or_dash(paper, sizeof paper, "%.2f", forecasts ? forecasts[a].paper_s : 0);
        printf("%10d %5d %3d %7s %9s %9.2f %9.2f %9.2f %9s %7.2f %6.2f %5.1f %5.1f %5.1f %10.0f "
               "%8.1f %8.1f %8.1f %6.1f %5s %8.1e %9s %7s\n",
               (int)r->row.tokens, r->row.ranks, r->row.threads, llama_algorithm_word(s->algorithm),
               first, s->stats.min * 1e-3, s->stats.median * 1e-3, s->stats.p99 * 1e-3, together,
               1e6 / s->stats.median, s->ratio, 100 * s->linear_share, 100 * s->attend_share,
               100 * s->exchange_share, s->bytes, r->weight_bytes * 1e-6, r->cache_bytes * 1e-6,
               r->other_bytes * 1e-6, r->read_gbps, fraction, s->difference, model, paper);
    }
    if (has_prefill(head))
        printf("#          prefill: weights %.1f %%, attention %.1f %%, exchange %.1f %%; products "
               "at %.1f GFLOP/s\n",
               100 * r->prefill_linear_share, 100 * r->prefill_attend_share,
               100 * r->prefill_exchange_share, r->prefill_gflops);
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
        "# that; differ: largest difference of logits from the first algorithm's%s\n",
        head->flags->cluster ? "; model: the median as\n# predicted on --cluster; paper: "
                               "together, as its authors measured it there"
                             : "");
}

void summary_forecast_header(const llama_head *head)
{
    printf("# treeattn-bench llama --predict: nothing ran\n# cluster   %s\n", head->flags->cluster);
    print_model(head);
    printf("# weights   %s\n#\n", head->flags->tensor ? "divided over the ranks" : "on every rank");
    static const char *const format = "#%9s %5s %7s %10s %9s %9s %9s %9s %10s %6s %6s %8s %4s\n";
    printf(format, "tokens", "ranks", "algo", "prefill", "step", "weights", "attend", "exchange",
           "together", "ratio", "paper", "memory", "fits");
    printf(format, "", "", "", "ms", "ms", "ms", "ms", "ms", "s", "", "s", "GB", "");
}

void summary_forecast(const llama_row *row, ta_algorithm algorithm, const llama_forecast *f,
                      const llama_forecast *first, int64_t new_words)
{
    char paper[32];
    print_or_dash(paper, sizeof paper, "%.2f", f->paper_s);
    if (!f->possible) {
        printf("%10d %5d %7s  cannot be\n", (int)row->tokens, row->ranks,
               llama_algorithm_word(algorithm));
        return;
    }
    printf("%10d %5d %7s %10.2f %9.3f %9.3f %9.3f %9.3f %10.3f %6.2f %6s %8.2f %4s\n",
           (int)row->tokens, row->ranks, llama_algorithm_word(algorithm), f->prefill_s * 1e3,
           f->step_s * 1e3, f->weights_s * 1e3, f->attend_s * 1e3, f->exchange_s * 1e3,
           f->prefill_s + (double)new_words * f->step_s, f->step_s / first->step_s, paper,
           f->memory_bytes * 1e-9, f->fits ? "yes" : "no");
}

/* ---- JSON ---------------------------------------------------------------------------------- */

void summary_json_begin(json_writer *json, const llama_head *head)
{
    const llama_flags *f = head->flags;
    const llama_config *c = head->config;
    json_open(json, NULL, '{');
    json_string(json, "command", "llama");
    json_open(json, "arguments", '[');
    for (int i = 0; i < head->argc; i++)
        json_string(json, NULL, head->argv[i]);
    json_close(json, ']');
    json_open(json, "machine", '{');
    json_string(json, "cpu", head->machine->cpu);
    json_int(json, "cpus", head->machine->cpus);
    json_int(json, "memory_bytes", head->machine->memory_bytes);
    json_string(json, "system", head->machine->system);
    json_close(json, '}');
    json_open(json, "launch", '{');
    json_string(json, "ranks_are", launch.mpi ? "processes" : "threads");
    json_close(json, '}');
    json_open(json, "model", '{');
    json_string(json, "name", c->name);
    json_string(json, "weights", head->weights);
    json_int(json, "layers", c->layers);
    json_int(json, "hidden", c->hidden);
    json_int(json, "inner", c->inner);
    json_int(json, "heads", c->heads);
    json_int(json, "kv_heads", c->kv_heads);
    json_int(json, "head_dim", c->head_dim);
    json_int(json, "vocabulary", c->vocabulary);
    json_double(json, "elements", llama_config_elements(c));
    json_close(json, '}');
    json_open(json, "options", '{');
    json_string(json, "weights", f->tensor ? "tensor" : "replicated");
    json_string(json, "prefill", llama_flags_prefill_name(f));
    json_string(json, "kv_dtype", element_name(element_dtype(f->kv_dtype)));
    json_int(json, "new", f->new_words);
    json_int(json, "chunk", f->chunk);
    json_int(json, "block", f->block);
    json_int(json, "page_tokens", f->page_tokens);
    json_int(json, "reproducible_tile", f->tile);
    json_string(json, "one_row_by", products_one_name());
    json_string(json, "many_rows_by", products_many_name());
    json_string(json, "cluster", f->cluster ? f->cluster : "none");
    json_close(json, '}');
    json_open(json, "rows", '[');
}

static void write_forecast(json_writer *json, const llama_forecast *f)
{
    json_open(json, "predicted", '{');
    json_double(json, "prefill_us", f->prefill_s * 1e6);
    json_double(json, "step_us", f->step_s * 1e6);
    json_double(json, "weights_us", f->weights_s * 1e6);
    json_double(json, "attend_us", f->attend_s * 1e6);
    json_double(json, "exchange_us", f->exchange_s * 1e6);
    json_double(json, "memory_bytes", f->memory_bytes);
    json_truth(json, "fits", f->fits);
    if (f->paper_s > 0)
        json_double(json, "paper_together_seconds", f->paper_s);
    json_close(json, '}');
}

static void write_steps(json_writer *json, const llama_steps *s, int64_t words)
{
    json_open(json, "step_us", '{');
    json_double(json, "min", s->stats.min);
    json_double(json, "median", s->stats.median);
    json_double(json, "p99", s->stats.p99);
    json_doubles(json, "samples", s->us, (int)words);
    json_close(json, '}');
    json_double(json, "ratio", s->ratio);
    json_double(json, "words_per_second", 1e6 / s->stats.median);
    json_double(json, "weights_share", s->linear_share);
    json_double(json, "attend_share", s->attend_share);
    json_double(json, "exchange_share", s->exchange_share);
    json_double(json, "exchange_bytes_per_rank", s->bytes);
    json_double(json, "messages_per_rank", s->messages);
    json_double(json, "fraction", s->fraction);
    json_double(json, "logits_differ", s->difference);
}

void summary_json_rows(json_writer *json, const llama_head *head, const llama_result *r,
                       const llama_forecast *forecasts)
{
    int64_t words = head->flags->new_words;
    for (int a = 0; a < r->algorithms; a++) {
        json_open(json, NULL, '{');
        json_int(json, "tokens", r->row.tokens);
        json_int(json, "ranks", r->row.ranks);
        json_int(json, "threads", r->row.threads);
        json_string(json, "algorithm", llama_algorithm_word(r->steps[a].algorithm));
        if (has_prefill(head)) {
            json_double(json, "prefill_us", r->prefill_us);
            json_double(json, "prefill_gflops", r->prefill_gflops);
            json_double(json, "prefill_weights_share", r->prefill_linear_share);
            json_double(json, "prefill_attend_share", r->prefill_attend_share);
            json_double(json, "prefill_exchange_share", r->prefill_exchange_share);
            json_double(json, "together_us", r->prefill_us + sum_us(&r->steps[a], words));
        }
        write_steps(json, &r->steps[a], words);
        json_double(json, "weight_bytes_per_rank", r->weight_bytes);
        json_double(json, "kv_bytes_per_rank", r->cache_bytes);
        json_double(json, "other_bytes_per_rank", r->other_bytes);
        json_double(json, "read_gbps", r->read_gbps);
        json_open(json, "words", '[');
        for (int64_t i = 0; i <= words; i++)
            json_int(json, NULL, r->words[i]);
        json_close(json, ']');
        if (forecasts)
            write_forecast(json, &forecasts[a]);
        json_close(json, '}');
    }
}

void summary_json_forecast(json_writer *json, const llama_row *row, ta_algorithm algorithm,
                           const llama_forecast *forecast)
{
    json_open(json, NULL, '{');
    json_int(json, "tokens", row->tokens);
    json_int(json, "ranks", row->ranks);
    json_string(json, "algorithm", llama_algorithm_word(algorithm));
    if (forecast->possible)
        write_forecast(json, forecast);
    json_close(json, '}');
}

void summary_json_end(json_writer *json)
{
    json_close(json, ']');
    json_close(json, '}');
}
