/* Comma-separated values; see csv.h. decode.c writes them at the end, beside report.c's JSON. */
#include "csv.h"

#include <math.h>

#include "common/csv_line.h"
#include "common/elements.h"

/* X(name, format, value of the result r with options o) */
#define FIELDS(X)                                                                                  \
    X("tokens", "%d", (int)r->row.tokens)                                                          \
    X("ranks", "%d", r->row.ranks)                                                                 \
    X("threads", "%d", r->row.threads)                                                             \
    X("pages", "%s", options_pages_words[r->row.pages])                                            \
    X("dtype", "%s", element_name(r->row.dtype))                                                   \
    X("kv_dtype", "%s", element_name(r->row.kv_dtype))                                             \
    X("query_heads", "%d", (int)r->row.query_heads)                                                \
    X("kv_heads", "%d", (int)r->row.kv_heads)                                                      \
    X("k_dim", "%lld", (long long)o->head_dim)                                                     \
    X("v_dim", "%lld", (long long)o->v_dim)                                                        \
    X("batch", "%lld", (long long)o->batch)                                                        \
    X("query_tokens", "%lld", (long long)o->query_tokens)                                          \
    X("device", "%s", o->sweep.device)                                                             \
    X("emulated_link_delay_us", "%.9g", o->link ? o->speed.delay_us : NAN)                         \
    X("emulated_link_gbps", "%.9g", o->link ? o->speed.bytes_per_us * 1e-3 : NAN)                  \
    X("algorithm", "%s", r->algorithm)                                                             \
    X("samples", "%d", r->samples)                                                                 \
    CSV_TIME_FIELDS(X, r->step, r->ratio)                                                          \
    X("attend_us", "%.9g", result_attend_us(r))                                                    \
    X("exchange_us", "%.9g", result_exchange_us(r))                                                \
    X("kv_gbps", "%.9g", result_kv_gbps(r))                                                        \
    X("read_gbps", "%.9g", result_read_gbps(r))                                                    \
    X("fraction", "%.9g", r->fraction.median)                                                      \
    X("fma_fraction", "%.9g", r->fma_fraction.median)                                              \
    X("exchange_bytes_per_rank", "%.9g", result_exchanged_bytes(r))                                \
    X("messages_per_rank", "%.9g", result_messages(r))                                             \
    X("peak_bytes_per_rank", "%.9g", result_peak_bytes(r))                                         \
    X("cpus_used_by_others", "%.9g", r->others >= 0 ? r->others : NAN)                             \
    X("checked", "%lld", (long long)(r->wrong < 0 ? 0 : r->checked))                               \
    X("wrong", "%lld", (long long)r->wrong)

void csv_write(FILE *file, const decode_options *o, const bench_result *results, int count)
{
    csv_line line = {.file = file};
    FIELDS(CSV_NAME)
    csv_end(&line);
    for (int i = 0; i < count; i++) {
        const bench_result *r = &results[i];
        FIELDS(CSV_VALUE)
        csv_end(&line);
    }
}
