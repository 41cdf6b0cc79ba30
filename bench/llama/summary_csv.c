/* Rows with commas between their columns; see summary.h. llama.c writes them as soon as they are
 * measured. */
#include <math.h>

#include "common/csv_line.h"
#include "common/elements.h"
#include "summary.h"

/* X(name, format, value): of the result r, its steps s by one algorithm, and the flags f */
#define FIELDS(X)                                                                                  \
    X("model", "%s", head->config->name)                                                           \
    X("weights", "%s", f->tensor ? "tensor" : "replicated")                                        \
    X("prefill", "%s", llama_flags_prefill_name(f))                                                \
    X("kv_dtype", "%s", element_name(element_dtype(f->kv_dtype)))                                  \
    X("device", "%s", f->device)                                                                   \
    X("group", "%s", rank_group_words[f->group])                                                   \
    X("emulated_link_delay_us", "%.9g", f->link ? f->speed.delay_us : NAN)                         \
    X("emulated_link_gbps", "%.9g", f->link ? f->speed.bytes_per_us * 1e-3 : NAN)                  \
    X("tokens", "%d", (int)r->row.tokens)                                                          \
    X("ranks", "%d", r->row.ranks)                                                                 \
    X("threads", "%d", r->row.threads)                                                             \
    X("algorithm", "%s", s->name)                                                                  \
    X("samples", "%lld", (long long)f->new_words)                                                  \
    CSV_TIME_FIELDS(X, s->stats, s->ratio)                                                         \
    X("words_per_second", "%.9g", 1e6 / s->stats.median)                                           \
    X("prefill_us", "%.9g", prefill_us)                                                            \
    X("together_us", "%.9g", together_us)                                                          \
    X("prefill_gflops", "%.9g", summary_measured(r->prefill_gflops))                               \
    X("library_gflops", "%.9g", summary_measured(r->library_gflops))                               \
    X("prefill_fraction", "%.9g", summary_measured(r->prefill_fraction))                           \
    X("weights_share", "%.9g", s->linear_share)                                                    \
    X("attend_share", "%.9g", s->attend_share)                                                     \
    X("exchange_share", "%.9g", s->exchange_share)                                                 \
    X("read_gbps", "%.9g", summary_measured(r->read_gbps))                                         \
    X("fraction", "%.9g", summary_measured(s->fraction))                                           \
    X("exchange_bytes_per_rank", "%.9g", s->bytes)                                                 \
    X("messages_per_rank", "%.9g", s->messages)                                                    \
    X("weight_bytes_per_rank", "%.9g", r->weight_bytes)                                            \
    X("kv_bytes_per_rank", "%.9g", r->cache_bytes)                                                 \
    X("other_bytes_per_rank", "%.9g", r->other_bytes)                                              \
    X("step_weight_bytes", "%.9g", r->step_weight_bytes)                                           \
    X("paper_together_seconds", "%.9g", summary_measured(summary_paper(head, r, index)))           \
    X("cpus_used_by_others", "%.9g", r->others >= 0 ? r->others : NAN)                             \
    X("logits_differ", "%.9g", s->difference)

void summary_csv_head(FILE *file)
{
    csv_line line = {.file = file};
    FIELDS(CSV_NAME)
    csv_end(&line);
}

void summary_csv_rows(FILE *file, const llama_head *head, const llama_result *r)
{
    const llama_flags *f = head->flags;
    csv_line line = {.file = file};
    for (int index = 0; index < r->algorithms; index++) {
        const llama_steps *s = &r->steps[index];
        int prompt = summary_has_prefill(head);
        double prefill_us = prompt ? r->prefill_us : NAN;
        double together_us = prompt ? summary_together_us(r, index, f->new_words) : NAN;
        FIELDS(CSV_VALUE)
        csv_end(&line);
    }
}
