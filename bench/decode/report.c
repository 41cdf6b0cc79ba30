/* The JSON file; see report.h. docs/benchmarks.md lists its fields beside the columns of the
 * table. */
#include "report.h"

#include "common/elements.h"
#include "common/json.h"

static void write_options(json_writer *json, const decode_options *o)
{
    json_open(json, "options", '{');
    json_string(json, "device", o->sweep.device);
    json_string(json, "group", rank_group_words[o->group]);
    json_int(json, "graph", o->graph);
    json_string(json, "cluster", o->cluster ? o->cluster : "none");
    if (o->link)
        links_json(json, &o->speed);
    json_string(json, "scaling", sweep_scaling_words[o->sweep.scaling]);
    json_string(json, "simd", o->sweep.simd ? o->sweep.simd : "best");
    json_int(json, "warmup", o->sweep.warmup);
    json_int(json, "check", o->sweep.check);
    json_int(json, "batch", o->batch);
    json_int(json, "query_tokens", o->query_tokens);
    json_int(json, "call_tokens", options_rows(o));
    json_int(json, "selected", o->selected);
    json_int(json, "shared_prefix", o->shared_prefix);
    json_int(json, "k_dim", o->head_dim);
    json_int(json, "v_dim", o->v_dim);
    json_int(json, "latent", o->latent);
    json_string(json, "map", options_map_words[o->map]);
    json_int(json, "block", o->block);
    json_int(json, "reproducible_tile", o->tile);
    json_string(json, "weights", options_weights_words[o->weights]);
    json_string(json, "layout", options_layout_words[o->layout]);
    json_int(json, "page_tokens", o->page_tokens);
    json_string(json, "pages", options_pages_words[o->pages]);
    json_string(json, "query_placement", options_placement_words[o->query_placement]);
    json_string(json, "out_placement", options_placement_words[o->out_placement]);
    json_close(json, '}');
}

static void write_series(json_writer *json, const char *name, const bench_stats *stats,
                         const double *samples, int count)
{
    json_open(json, name, '{');
    json_double(json, "min", stats->min);
    json_double(json, "median", stats->median);
    json_double(json, "p99", stats->p99);
    json_doubles(json, "samples", samples, count);
    json_close(json, '}');
}

static void write_exchange(json_writer *json, const bench_result *result)
{
    double steps = (double)result->counted_steps;
    json_double(json, "exchange_bytes_per_rank", result_exchanged_bytes(result));
    json_double(json, "messages_per_rank", result_messages(result));
    json_open(json, "exchange_per_step", '[');
    for (int rank = 0; rank < result->row.ranks; rank++) {
        const ta_group_stats *s = &result->exchanged[rank];
        json_open(json, NULL, '{');
        json_double(json, "bytes_sent", (double)s->bytes_sent / steps);
        json_double(json, "bytes_received", (double)s->bytes_received / steps);
        json_double(json, "messages_sent", (double)s->messages_sent / steps);
        json_double(json, "messages_received", (double)s->messages_received / steps);
        json_close(json, '}');
    }
    json_close(json, ']');
}

static void write_prediction(json_writer *json, const row_prediction *p)
{
    if (!p->cluster)
        return;
    json_open(json, "predicted", '{');
    json_double(json, "step_us", p->step_us);
    json_double(json, "attend_us", p->attend_us);
    json_string(json, "exchange", p->exchange);
    json_double(json, "exchange_bytes_per_rank", p->bytes);
    json_double(json, "messages_per_rank", p->messages);
    json_double(json, "peak_bytes_per_rank", p->peak_bytes);
    json_string(json, "cluster", p->cluster);
    json_close(json, '}');
}

static void write_pages(json_writer *json, const bench_result *result)
{
    json_open(json, "memory", '{');
    json_string(json, "pages", options_pages_words[result->row.pages]);
    json_double(json, "bytes", result->mapped_bytes);
    if (result->huge_bytes >= 0)
        json_double(json, "huge_page_bytes", result->huge_bytes);
    json_int(json, "small_page", (int64_t)pages_small_bytes());
    json_close(json, '}');
}

static void write_row(json_writer *json, const bench_result *result)
{
    const bench_case *row = &result->row;
    json_open(json, NULL, '{');
    json_int(json, "tokens", row->tokens);
    json_int(json, "ranks", row->ranks);
    json_int(json, "threads", row->threads);
    json_string(json, "dtype", element_name(row->dtype));
    json_string(json, "kv_dtype", element_name(row->kv_dtype));
    json_int(json, "query_heads", row->query_heads);
    json_int(json, "kv_heads", row->kv_heads);
    json_string(json, "algorithm", result->algorithm);
    json_double(json, "kv_bytes", result->kv_bytes);
    write_pages(json, result);
    json_int(json, "samples", result->samples);
    write_series(json, "step_us", &result->step, result->step_us, result->samples);
    write_series(json, "read_us", &result->read, result->read_us, result->samples);
    json_string(json, "read_loop", result->read_loop);
    json_double(json, "flops", result->flops);
    json_doubles(json, "fma_us", result->fma_us, result->samples);
    json_double(json, "ratio", result->ratio.median);
    json_double(json, "ratio_low", result->ratio.low);
    json_double(json, "ratio_high", result->ratio.high);
    if (result->others >= 0)
        json_double(json, "cpus_used_by_others", result->others);
    json_double(json, "attend_us", result_attend_us(result));
    json_double(json, "exchange_us", result_exchange_us(result));
    json_double(json, "peak_bytes_per_rank", result_peak_bytes(result));
    json_double(json, "kv_gbps", result_kv_gbps(result));
    json_double(json, "kv_gbps_per_rank", result_kv_gbps(result) / row->ranks);
    json_double(json, "read_gbps", result_read_gbps(result));
    json_double(json, "fraction", result->fraction.median);
    json_double(json, "fraction_of_best", result_best_fraction(result));
    json_double(json, "fma_fraction", result->fma_fraction.median);
    write_exchange(json, result);
    if (result->wrong >= 0) {
        json_int(json, "checked", result->checked);
        json_int(json, "wrong", result->wrong);
        json_double(json, "worst_error_in_tolerances", result->worst);
    }
    json_string(json, "clock", result->device_clock ? "events" : "host");
    write_prediction(json, &result->predicted);
    json_string(json, "plan", result->plan);
    json_close(json, '}');
}

void report_write(FILE *file, const report_run *run, const bench_result *results, int count)
{
    json_writer json;
    json_init(&json, file);
    json_open(&json, NULL, '{');
    run_head_write(&json, run->head);
    write_options(&json, run->options);
    json_open(&json, "rows", '[');
    for (int i = 0; i < count; i++)
        write_row(&json, &results[i]);
    json_close(&json, ']');
    json_close(&json, '}');
}
