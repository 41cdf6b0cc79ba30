/* One rank's way through a row: its weights, its group and its decoder, the prompt, and the words
 * (step_timing.c). timing.c runs it on all ranks. */
#include <stdio.h>
#include <stdlib.h>

#include "common/elements.h"
#include "common/launch.h"
#include "common/links.h"
#include "product_rate.h"
#include "timing_parts.h"

/* ---- The prompt ---------------------------------------------------------------------------- */

/* What the matrix library does on the products of a layer: right before the prompt (the first round
 * warms up) and right after it, on all ranks at once. */
static ta_status time_library(rank_run *r, product_rate *rate, int rounds)
{
    for (int i = 0; i < rounds; i++) {
        double us, flops;
        if (row_gather(r->run, 0) != 0)
            return TA_ERR_ABORTED;
        ta_status status = product_rate_run(rate, &us, &flops);
        if (status != TA_OK)
            return status;
        if (i + 1 < rounds)
            continue;
        row_add(r->run, &r->run->library_us, us);
        row_add(r->run, &r->run->library_flops, flops);
    }
    return TA_OK;
}

/* As many tokens as most products of the prompt have. */
static int64_t rows_of_prompt(const row_run *run)
{
    const llama_row *row = &run->result->row;
    const llama_flags *f = run->timing->flags;
    int64_t tokens = row->tokens;
    if (llama_flags_prefill(f) == PREFILL_GRID)
        tokens = (tokens + row->ranks - 1) / row->ranks;
    return tokens < f->chunk ? tokens : f->chunk;
}

static ta_status time_prompt(rank_run *r)
{
    row_run *run = r->run;
    llama_result *result = run->result;
    int32_t words = llama_weights_all(run->timing->weights)->config.vocabulary;
    decoder_times before = decoder_get_times(r->d);
    if (row_gather(run, 0) != 0)
        return TA_ERR_ABORTED;
    double start = machine_time_us();
    ta_status status =
        decoder_prefill(r->d, run->timing->prompt, result->row.tokens, r->first_logits);
    double us = machine_time_us() - start;
    decoder_times after = decoder_get_times(r->d);
    row_keep_most(run, &result->prefill_us, us);
    row_add_shares(run, &before, &after, 1, &result->prefill_linear_share,
                   &result->prefill_attend_share, &result->prefill_exchange_share);
    row_keep_most(run, &result->steps[0].difference,
                  logits_apart(r->first_logits, r->first_logits, words));
    step_keep_logits(r, 0);
    return status;
}

static ta_status time_prefill(rank_run *r)
{
    row_run *run = r->run;
    const llama_flags *f = run->timing->flags;
    if (!f->read || llama_flags_prefill(f) == PREFILL_NONE)
        return time_prompt(r);
    product_rate *rate =
        product_rate_create(run->parts[r->rank], rows_of_prompt(run), run->result->row.threads);
    if (!rate)
        return TA_ERR_NO_MEMORY;
    ta_status status = time_library(r, rate, 2);
    if (status == TA_OK)
        status = time_prompt(r);
    if (status == TA_OK)
        status = time_library(r, rate, 1);
    product_rate_destroy(rate);
    return status;
}

/* ---- A rank -------------------------------------------------------------------------------- */

static decoder_options decoder_options_of(const llama_timing *timing, const llama_row *row)
{
    const llama_flags *f = timing->flags;
    decoder_options o = {
        .weights = timing->weights,
        .tensor = (int)f->tensor,
        .prefill = llama_flags_prefill(f),
        .cache_dtype = element_dtype(f->kv_dtype),
        .tokens = row->tokens + (int32_t)f->new_words,
        .block = (int32_t)f->block,
        .page_tokens = (int32_t)f->page_tokens,
        .chunk = (int32_t)f->chunk,
        .reproducible_tile = (int32_t)f->tile,
        .algorithms = llama_flags_algorithms(f),
        .device = f->device,
        .products = f->matmul,
        .ccl = f->group == RANK_GROUP_CCL,
        .gpu_each = llama_flags_gpu_each(f),
        .threads = row->threads,
    };
    for (int i = 0; i < o.algorithms; i++) {
        o.algorithm[i] = llama_flags_algorithm(f, i);
        o.expanded[i] = llama_flags_is_expanded(f, i);
    }
    return o;
}

static ta_status use_decoder(rank_run *r)
{
    row_run *run = r->run;
    llama_result *result = run->result;
    double cache, other;
    run->decoders[r->rank] = r->d;
    for (int many = 0; many < 2 && (r->rank == 0 || launch.mpi); many++)
        snprintf(result->products[many], sizeof result->products[many], "%s",
                 decoder_products(r->d, many));
    ta_status status = time_prefill(r);
    if (status != TA_OK || row_gather(run, 0) != 0)
        return status != TA_OK ? status : TA_ERR_ABORTED;
    if (run->timing->flags->read && (r->rank == 0 || launch.mpi))
        status = step_make_readers(run);
    if (status == TA_OK)
        status = step_time_words(r);
    decoder_memory(r->d, &cache, &other);
    row_keep_most(run, &result->weight_bytes, llama_part_memory(run->parts[r->rank]));
    row_keep_most(run, &result->step_weight_bytes, llama_part_bytes(run->parts[r->rank]));
    row_keep_most(run, &result->cache_bytes, cache);
    row_keep_most(run, &result->other_bytes, other);
    row_add(run, &result->step_bytes,
            llama_part_bytes(run->parts[r->rank]) + decoder_cache_used(r->d));
    /* The decoders are read until the last word is done. */
    return status == TA_OK && row_gather(run, 0) != 0 ? TA_ERR_ABORTED : status;
}

/* With its part of the weights, and a group that may go through emulated links. */
static ta_status run_rank(rank_run *r, ta_group *group, const decoder_options *o,
                          const llama_part *part)
{
    size_t words = (size_t)part->config.vocabulary;
    ta_status status = TA_ERR_NO_MEMORY;
    r->run->parts[r->rank] = part;
    r->logits = calloc(words, sizeof *r->logits);
    r->first_logits = calloc(words, sizeof *r->first_logits);
    if (r->logits && r->first_logits)
        status = decoder_create(group, o, part, &r->d);
    if (status == TA_OK)
        status = use_decoder(r);
    decoder_destroy(r->d);
    free(r->first_logits);
    free(r->logits);
    return status;
}

ta_status rank_timing(ta_group *group, void *context)
{
    row_run *run = context;
    const llama_timing *t = run->timing;
    rank_run r = {.run = run, .rank = ta_group_rank(group)};
    decoder_options o = decoder_options_of(t, &run->result->row);
    llama_part part = {0};
    void *links = NULL;
    ta_group *linked = NULL;
    int divided = o.tensor ? ta_group_size(group) : 1;
    ta_status status = TA_OK;
    if (t->flags->link && ta_group_size(group) > 1)
        status = links_create(group, &t->flags->speed, &linked, &links);
    if (status == TA_OK && llama_part_make(t->weights, o.tensor ? r.rank : 0, divided, &part) != 0)
        status = TA_ERR_NO_MEMORY;
    if (status == TA_OK)
        status = run_rank(&r, linked ? linked : group, &o, &part);
    if (status != TA_OK)
        barrier_break(&run->together);
    llama_part_free(&part);
    ta_group_destroy(linked);
    links_destroy(links);
    return status;
}
