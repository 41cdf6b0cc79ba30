/* See csv.h. attention.c writes a line as soon as its row is measured. */
#include "csv.h"

#include <math.h>

#include "common/csv_line.h"
#include "common/elements.h"
#include "table.h"

/* X(name, format, value): of a row, its times t and the result r of a pass, with options o */
#define FIELDS(X)                                                                                  \
    X("tokens", "%d", (int)row->tokens)                                                            \
    X("ranks", "%d", row->ranks)                                                                   \
    X("threads", "%d", row->threads)                                                               \
    X("map", "%s", attention_map_words[row->map])                                                  \
    X("dtype", "%s", element_name(row->dtype))                                                     \
    X("query_heads", "%d", (int)row->query_heads)                                                  \
    X("kv_heads", "%d", (int)row->kv_heads)                                                        \
    X("head_dim", "%d", (int)row->head_dim)                                                        \
    X("mask", "%s", attention_mask_words[row->mask])                                               \
    X("device", "%s", o->sweep.device)                                                             \
    X("algorithm", "%s", attention_algorithm_words[t->algorithm])                                  \
    X("grid_rows", "%d", t->grid_rows)                                                             \
    X("grid_columns", "%d", t->grid_columns)                                                       \
    X("pass", "%s", attention_pass_name(pass))                                                     \
    X("samples", "%d", row->iterations)                                                            \
    CSV_TIME_FIELDS(X, r->us, r->ratio)                                                            \
    X("attend_us", "%.9g", t->attend_us[pass])                                                     \
    X("exchange_us", "%.9g", t->exchange_us[pass])                                                 \
    X("gflops", "%.9g", r->gflops)                                                                 \
    X("peak_gflops", "%.9g", r->peak)                                                              \
    X("fraction", "%.9g", r->fraction)                                                             \
    X("bytes_received_per_rank", "%.9g", t->bytes[pass])                                           \
    X("messages_received_per_rank", "%.9g", t->messages[pass])                                     \
    X("peak_bytes_per_rank", "%.9g", t->peak_bytes)                                                \
    X("model_us", "%.9g", row->cluster ? t->model_us[pass] : NAN)                                  \
    X("cpus_used_by_others", "%.9g", r->others >= 0 ? r->others : NAN)                             \
    X("checked", "%lld", (long long)r->verdict.checked)                                            \
    X("wrong", "%lld", (long long)r->verdict.wrong)

void attention_csv_head(FILE *file)
{
    csv_line line = {.file = file};
    FIELDS(CSV_NAME)
    csv_end(&line);
}

void attention_csv_pass(FILE *file, const attention_options *o, const attention_row *row,
                        const attention_times *t, int pass, const pass_result *r)
{
    csv_line line = {.file = file};
    FIELDS(CSV_VALUE)
    csv_end(&line);
}
