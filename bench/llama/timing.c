/* See timing.h: a row's state, and what its ranks found, summed up. rank_timing.c runs a rank. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/launch.h"
#include "timing_parts.h"

int row_gather(row_run *run, int asleep)
{
    if (launch.mpi) {
        launch_wait(asleep);
        return 0;
    }
    return asleep ? barrier_sleep(&run->together) : barrier_wait(&run->together);
}

double larger_or_nan(double a, double b)
{
    return isnan(a) || b <= a ? a : b;
}

void row_keep_most(row_run *run, double *most, double value)
{
    pthread_mutex_lock(&run->lock);
    *most = larger_or_nan(*most, value);
    pthread_mutex_unlock(&run->lock);
}

void row_add(row_run *run, double *sum, double value)
{
    pthread_mutex_lock(&run->lock);
    *sum += value;
    pthread_mutex_unlock(&run->lock);
}

void row_add_shares(row_run *run, const decoder_times *before, const decoder_times *after,
                    int64_t steps, double *linear, double *attend, double *exchange)
{
    double each = (double)steps / (after->all_us - before->all_us) / run->result->row.ranks;
    row_add(run, linear, (after->linear_us - before->linear_us) * each);
    row_add(run, attend, (after->attend_us - before->attend_us) * each);
    row_add(run, exchange, (after->exchange_us - before->exchange_us) * each);
}

/* ---- A row --------------------------------------------------------------------------------- */

/* MPI's largest number need not be NaN where one process has it: infinity goes in its place. */
static void reduce_difference(double *difference)
{
    double all = isnan(*difference) ? INFINITY : *difference;
    launch_max(&all, 1);
    *difference = isinf(all) ? NAN : all;
}

/* Bring the processes' numbers together. */
static void reduce_processes(row_run *run)
{
    llama_result *r = run->result;
    int words = (int)run->timing->flags->new_words;
    double *const most[] = {&r->prefill_us, &r->weight_bytes, &r->step_weight_bytes,
                            &r->cache_bytes, &r->other_bytes};
    double *const sums[] = {&r->prefill_linear_share,   &r->prefill_attend_share,
                            &r->prefill_exchange_share, &r->step_bytes,
                            &run->swept_bytes,          &run->library_us,
                            &run->library_flops};
    for (size_t i = 0; i < sizeof most / sizeof *most; i++)
        launch_max(most[i], 1);
    for (size_t i = 0; i < sizeof sums / sizeof *sums; i++)
        launch_sum(sums[i], 1);
    launch_max(run->read_us, words);
    for (int a = 0; a < r->algorithms; a++) {
        llama_steps *s = &r->steps[a];
        launch_max(s->us, words);
        launch_max(&s->bytes, 1);
        launch_max(&s->messages, 1);
        reduce_difference(&s->difference);
        launch_sum(&s->linear_share, 1);
        launch_sum(&s->attend_share, 1);
        launch_sum(&s->exchange_share, 1);
    }
}

/* What each step read in its time, over what the sweep after it did: the median. Returns -1 without
 * memory. */
static int find_fraction(const row_run *run, llama_steps *steps, int words)
{
    double *quotients = calloc((size_t)words, sizeof *quotients);
    bench_stats stats;
    if (!quotients)
        return -1;
    for (int i = 0; i < words; i++)
        quotients[i] =
            run->result->step_bytes / steps->us[i] / (run->swept_bytes / run->read_us[i]);
    int status = stats_of(quotients, words, &stats);
    if (status == 0)
        steps->fraction = stats.median;
    free(quotients);
    return status;
}

static ta_status summarize(row_run *run)
{
    llama_result *r = run->result;
    const llama_flags *f = run->timing->flags;
    int words = (int)f->new_words;
    const llama_config *c = &llama_weights_all(run->timing->weights)->config;
    double head = (double)c->vocabulary * c->hidden, per_step = 1.0 / words;
    double layer_elements = llama_config_step_elements(c) - head;
    /* Every token goes through the layers once, and the last through the head; where weights are
     * replicated and chunks computed by all, that is done on every rank and counts once. */
    double flops = 2 * (layer_elements * r->row.tokens + head);
    if (r->prefill_linear_share > 0)
        r->prefill_gflops = flops / (r->prefill_us * r->prefill_linear_share) * 1e-3;
    if (run->library_us > 0) {
        int repeated = !f->tensor && llama_flags_prefill(f) == PREFILL_CHUNKS;
        double counted = run->library_flops / (repeated ? r->row.ranks : 1);
        r->library_gflops = counted / (run->library_us / r->row.ranks) * 1e-3;
        r->prefill_fraction = r->prefill_gflops / r->library_gflops;
    }
    for (int a = 0; a < r->algorithms; a++) {
        llama_steps *s = &r->steps[a];
        if (stats_of(s->us, words, &s->stats) != 0 ||
            stats_ratio(s->us, r->steps[0].us, words, &s->ratio) != 0 ||
            (f->read && find_fraction(run, s, words) != 0))
            return TA_ERR_NO_MEMORY;
        s->linear_share *= per_step;
        s->attend_share *= per_step;
        s->exchange_share *= per_step;
    }
    if (f->read) {
        bench_stats read;
        if (stats_of(run->read_us, words, &read) != 0)
            return TA_ERR_NO_MEMORY;
        r->read_gbps = run->swept_bytes / read.median * 1e-3;
    }
    return TA_OK;
}

static ta_status allocate(row_run *run)
{
    llama_result *r = run->result;
    size_t words = (size_t)run->timing->flags->new_words, ranks = (size_t)r->row.ranks;
    int made = 1;
    r->algorithms = llama_flags_algorithms(run->timing->flags);
    for (int a = 0; a < r->algorithms; a++) {
        r->steps[a].name = llama_flags_algorithm_word(run->timing->flags, a);
        r->steps[a].us = calloc(words, sizeof *r->steps[a].us);
        made = made && r->steps[a].us;
    }
    r->words = calloc(words + 1, sizeof *r->words);
    if (run->timing->flags->logits) {
        int32_t vocabulary = llama_weights_all(run->timing->weights)->config.vocabulary;
        r->logits = calloc((words + 1) * (size_t)vocabulary, sizeof *r->logits);
        made = made && r->logits;
    }
    run->read_us = calloc(words, sizeof *run->read_us);
    run->decoders = calloc(ranks, sizeof *run->decoders);
    run->parts = calloc(ranks, sizeof *run->parts);
    return made && r->words && run->read_us && run->decoders && run->parts ? TA_OK
                                                                           : TA_ERR_NO_MEMORY;
}

ta_status llama_time_row(const llama_timing *timing, llama_result *result, char *error,
                         size_t capacity)
{
    row_run run = {.timing = timing, .result = result};
    const llama_row *row = &result->row;
    ta_status status = allocate(&run);
    pthread_mutex_init(&run.lock, NULL);
    barrier_init(&run.together, row->ranks, timing->machine->cpus);
    if (status == TA_OK)
        status = launch_run(row->ranks, rank_timing, &run);
    if (status == TA_OK && launch.mpi)
        reduce_processes(&run);
    if (status == TA_OK)
        status = summarize(&run);
    if (status != TA_OK)
        snprintf(error, capacity, "%s: %s", ta_status_name(status),
                 status == TA_ERR_NO_MEMORY ? "not enough memory or threads" : ta_last_error());
    readers_destroy(run.readers);
    pthread_mutex_destroy(&run.lock);
    free(run.parts);
    free(run.decoders);
    free(run.read_us);
    return status;
}

void llama_result_free(llama_result *result)
{
    for (int a = 0; a < DECODER_ALGORITHMS; a++)
        free(result->steps[a].us);
    free(result->words);
    free(result->logits);
}
