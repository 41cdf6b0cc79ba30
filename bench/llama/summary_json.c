/* The JSON of a run; see summary.h. docs/llama.md has its fields beside the columns. */
#include "common/elements.h"
#include "products.h"
#include "summary.h"

void summary_json_begin(json_writer *json, const llama_head *head)
{
    const llama_flags *f = head->flags;
    const llama_config *c = head->config;
    json_open(json, NULL, '{');
    run_head run = {"treeattn-bench llama", head->argc,   head->argv,
                    head->machine,          head->places, head->ranks};
    run_head_write(json, &run);
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
    if (!llama_flags_gpu(f)) { /* a GPU's are in the rows */
        json_string(json, "one_row_by", products_one_name());
        json_string(json, "many_rows_by", products_many_name());
    }
    json_string(json, "device", f->device);
    json_string(json, "group", f->group == RANK_GROUP_CCL ? "ccl" : "host");
    if (f->link)
        links_json(json, &f->speed);
    json_string(json, "ring", f->expanded ? "expanded" : "native");
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
    json_double(json, "ratio", s->ratio.median);
    json_double(json, "ratio_low", s->ratio.low);
    json_double(json, "ratio_high", s->ratio.high);
    json_double(json, "words_per_second", 1e6 / s->stats.median);
    json_double(json, "weights_share", s->linear_share);
    json_double(json, "attend_share", s->attend_share);
    json_double(json, "exchange_share", s->exchange_share);
    json_double(json, "exchange_bytes_per_rank", s->bytes);
    json_double(json, "messages_per_rank", s->messages);
    json_double(json, "fraction", summary_measured(s->fraction));
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
        json_string(json, "algorithm", r->steps[a].name);
        json_string(json, "one_row_by", r->products[0]);
        json_string(json, "many_rows_by", r->products[1]);
        if (summary_has_prefill(head)) {
            json_double(json, "prefill_us", r->prefill_us);
            json_double(json, "prefill_gflops", summary_measured(r->prefill_gflops));
            json_double(json, "library_gflops", summary_measured(r->library_gflops));
            json_double(json, "prefill_fraction", summary_measured(r->prefill_fraction));
            json_double(json, "prefill_weights_share", r->prefill_linear_share);
            json_double(json, "prefill_attend_share", r->prefill_attend_share);
            json_double(json, "prefill_exchange_share", r->prefill_exchange_share);
            json_double(json, "together_us", summary_together_us(r, a, words));
        }
        write_steps(json, &r->steps[a], words);
        if (r->others >= 0)
            json_double(json, "cpus_used_by_others", r->others);
        json_double(json, "weight_bytes_per_rank", r->weight_bytes);
        json_double(json, "kv_bytes_per_rank", r->cache_bytes);
        json_double(json, "other_bytes_per_rank", r->other_bytes);
        json_double(json, "step_weight_bytes", r->step_weight_bytes);
        json_double(json, "read_gbps", summary_measured(r->read_gbps));
        if (summary_paper(head, r, a) > 0)
            json_double(json, "paper_together_seconds", summary_paper(head, r, a));
        json_open(json, "words", '[');
        for (int64_t i = 0; i <= words; i++)
            json_int(json, NULL, r->words[i]);
        json_close(json, ']');
        if (forecasts)
            write_forecast(json, &forecasts[a]);
        json_close(json, '}');
    }
}

void summary_json_forecast(json_writer *json, const llama_row *row, const char *algorithm,
                           const llama_forecast *forecast)
{
    json_open(json, NULL, '{');
    json_int(json, "tokens", row->tokens);
    json_int(json, "ranks", row->ranks);
    json_string(json, "algorithm", algorithm);
    if (forecast->possible)
        write_forecast(json, forecast);
    json_close(json, '}');
}

void summary_json_end(json_writer *json)
{
    json_close(json, ']');
    json_close(json, '}');
}
