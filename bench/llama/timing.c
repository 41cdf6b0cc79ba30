/* See timing.h. Ranks start every step together; a step lasts as long as on the slowest of them. */
#include "timing.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/bandwidth.h"
#include "common/elements.h"
#include "common/launch.h"
#include "common/parallel.h"
#include "sample.h"

/* What ranks share. */
typedef struct row_run {
    const llama_timing *timing;
    llama_result *result;
    barrier together;
    pthread_mutex_t lock;
    decoder **decoders; /* [ranks] */
    const llama_part **parts;
    reader_team *readers;
    double *read_us; /* [new_words] */
    double swept_bytes;
} row_run;

/* One rank's. */
typedef struct rank_run {
    row_run *run;
    int rank;
    ta_group *group;
    decoder *d;
    float *logits, *first_logits; /* of this algorithm, and of the first */
} rank_run;

static int gather_ranks(row_run *run, int asleep)
{
    if (launch.mpi) {
        launch_wait(asleep);
        return 0;
    }
    return asleep ? barrier_sleep(&run->together) : barrier_wait(&run->together);
}

static void keep_most(row_run *run, double *most, double value)
{
    pthread_mutex_lock(&run->lock);
    *most = value > *most ? value : *most;
    pthread_mutex_unlock(&run->lock);
}

static void add_to(row_run *run, double *sum, double value)
{
    pthread_mutex_lock(&run->lock);
    *sum += value;
    pthread_mutex_unlock(&run->lock);
}

/* ---- Reading ------------------------------------------------------------------------------- */

/* The pieces that this process reads: of all its ranks, each weight once. */
static read_piece *list_pieces(const row_run *run, size_t *count)
{
    int first = launch.mpi ? launch.rank : 0;
    int end = launch.mpi ? launch.rank + 1 : run->result->row.ranks;
    const llama_part *whole =
        launch.mpi ? run->parts[first] : llama_weights_all(run->timing->weights);
    *count = llama_part_pieces(whole, NULL);
    for (int rank = first; rank < end; rank++)
        *count += decoder_cache_pieces(run->decoders[rank], NULL);
    read_piece *pieces = calloc(*count + 1, sizeof *pieces);
    if (!pieces)
        return NULL;
    size_t used = llama_part_pieces(whole, pieces);
    for (int rank = first; rank < end; rank++)
        used += decoder_cache_pieces(run->decoders[rank], pieces + used);
    return pieces;
}

/* By one rank of each process, when all have their caches. */
static ta_status make_readers(row_run *run)
{
    size_t count;
    const llama_row *row = &run->result->row;
    read_piece *pieces = list_pieces(run, &count);
    if (!pieces)
        return TA_ERR_NO_MEMORY;
    for (size_t i = 0; i < count; i++)
        run->swept_bytes += (double)pieces[i].bytes;
    int threads = row->threads * (launch.mpi ? 1 : row->ranks);
    int cpus = run->timing->machine->cpus;
    run->readers = readers_create(threads < cpus ? threads : cpus, cpus, pieces, count);
    free(pieces);
    if (!run->readers)
        return TA_ERR_NO_MEMORY;
    readers_choose(run->readers, 1);
    return TA_OK;
}

static ta_status sweep(rank_run *r, int64_t word)
{
    row_run *run = r->run;
    if (!run->timing->flags->read)
        return TA_OK;
    if (r->rank == 0 || launch.mpi)
        readers_sweep(run->readers, 1, &run->read_us[word]);
    return gather_ranks(run, 1) == 0 ? TA_OK : TA_ERR_ABORTED;
}

/* ---- Steps --------------------------------------------------------------------------------- */

/* Where time went between two looks, as parts of all of it. */
static void add_shares(row_run *run, const decoder_times *before, const decoder_times *after,
                       double *linear, double *attend, double *exchange)
{
    double each = 1 / (after->all_us - before->all_us) / run->result->row.ranks;
    add_to(run, linear, (after->linear_us - before->linear_us) * each);
    add_to(run, attend, (after->attend_us - before->attend_us) * each);
    add_to(run, exchange, (after->exchange_us - before->exchange_us) * each);
}

static double traffic(const ta_group_stats *a, const ta_group_stats *b, int messages)
{
    double out =
        (double)(messages ? b->messages_sent - a->messages_sent : b->bytes_sent - a->bytes_sent);
    double in = (double)(messages ? b->messages_received - a->messages_received
                                  : b->bytes_received - a->bytes_received);
    return out > in ? out : in;
}

/* One word by one algorithm; word -1 and before are to warm up, and leave nothing behind. */
static ta_status time_step(rank_run *r, int algorithm, int64_t word, int32_t input,
                           int32_t position)
{
    row_run *run = r->run;
    llama_steps *steps = &run->result->steps[algorithm];
    ta_group_stats before = TA_GROUP_STATS_INIT, after = TA_GROUP_STATS_INIT;
    decoder_times then = decoder_get_times(r->d);
    ta_status status = ta_group_get_stats(r->group, &before);
    if (status == TA_OK && gather_ranks(run, 0) != 0)
        return TA_ERR_ABORTED;
    double start = machine_time_us();
    if (status == TA_OK)
        status = decoder_step(r->d, algorithm, input, position, r->logits);
    double us = machine_time_us() - start;
    if (status == TA_OK)
        status = ta_group_get_stats(r->group, &after);
    if (status != TA_OK || word < 0)
        return status;
    decoder_times now = decoder_get_times(r->d);
    keep_most(run, &steps->us[word], us);
    add_shares(run, &then, &now, &steps->linear_share, &steps->attend_share,
               &steps->exchange_share);
    keep_most(run, &steps->bytes, traffic(&before, &after, 0));
    keep_most(run, &steps->messages, traffic(&before, &after, 1));
    return TA_OK;
}

/* How far its logits are from those of the first algorithm. */
static void compare(rank_run *r, int algorithm)
{
    int32_t words = llama_weights_all(r->run->timing->weights)->config.vocabulary;
    double most = 0;
    if (algorithm == 0)
        memcpy(r->first_logits, r->logits, (size_t)words * sizeof *r->logits);
    for (int32_t i = 0; i < words; i++) {
        double now = fabs((double)r->logits[i] - r->first_logits[i]);
        most = now <= most ? most : now;
    }
    keep_most(r->run, &r->run->result->steps[algorithm].difference, most);
}

/* The word that follows the logits of the first algorithm: the same on all ranks. */
static int32_t next_word(const rank_run *r, int64_t step)
{
    const llama_flags *f = r->run->timing->flags;
    int32_t vocabulary = llama_weights_all(r->run->timing->weights)->config.vocabulary;
    int32_t word = sample_word(r->first_logits, vocabulary, (double)f->temperature * 0.01,
                               (uint64_t)f->seed, (uint64_t)step);
    word = word < 0 ? 0 : word;
    if (r->rank == 0 || launch.mpi)
        r->run->result->words[step] = word;
    return word;
}

static ta_status time_words(rank_run *r)
{
    const llama_flags *f = r->run->timing->flags;
    int32_t position = r->run->result->row.tokens, input = next_word(r, 0);
    ta_status status = TA_OK;
    for (int64_t word = -f->warmup; status == TA_OK && word < f->new_words; word++) {
        for (int a = 0; status == TA_OK && a < r->run->result->algorithms; a++) {
            status = time_step(r, a, word, input, position);
            if (status == TA_OK && word >= 0)
                compare(r, a);
        }
        if (status != TA_OK || word < 0)
            continue;
        if (gather_ranks(r->run, 1) != 0)
            return TA_ERR_ABORTED;
        status = sweep(r, word);
        input = next_word(r, word + 1);
        position++;
    }
    return status;
}

/* ---- A rank -------------------------------------------------------------------------------- */

static ta_status time_prefill(rank_run *r)
{
    row_run *run = r->run;
    llama_result *result = run->result;
    decoder_times before = decoder_get_times(r->d);
    if (gather_ranks(run, 0) != 0)
        return TA_ERR_ABORTED;
    double start = machine_time_us();
    ta_status status =
        decoder_prefill(r->d, run->timing->prompt, result->row.tokens, r->first_logits);
    double us = machine_time_us() - start;
    decoder_times after = decoder_get_times(r->d);
    keep_most(run, &result->prefill_us, us);
    add_shares(run, &before, &after, &result->prefill_linear_share, &result->prefill_attend_share,
               &result->prefill_exchange_share);
    return status;
}

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
        .algorithms = f->algorithms.count,
        .device = f->device,
        .threads = row->threads,
    };
    for (int i = 0; i < o.algorithms; i++)
        o.algorithm[i] = llama_flags_algorithm(f, i);
    return o;
}

static ta_status use_decoder(rank_run *r)
{
    row_run *run = r->run;
    llama_result *result = run->result;
    double cache, other;
    run->decoders[r->rank] = r->d;
    ta_status status = time_prefill(r);
    if (status != TA_OK || gather_ranks(run, 0) != 0)
        return status != TA_OK ? status : TA_ERR_ABORTED;
    if (run->timing->flags->read && (r->rank == 0 || launch.mpi))
        status = make_readers(run);
    if (status == TA_OK)
        status = time_words(r);
    decoder_memory(r->d, &cache, &other);
    keep_most(run, &result->weight_bytes, llama_part_bytes(run->parts[r->rank]));
    keep_most(run, &result->cache_bytes, cache);
    keep_most(run, &result->other_bytes, other);
    add_to(run, &result->step_bytes,
           llama_part_bytes(run->parts[r->rank]) + decoder_cache_used(r->d));
    /* The decoders are read until the last word is done. */
    return status == TA_OK && gather_ranks(run, 0) != 0 ? TA_ERR_ABORTED : status;
}

static ta_status rank_main(ta_group *group, void *context)
{
    row_run *run = context;
    const llama_timing *t = run->timing;
    decoder_options o = decoder_options_of(t, &run->result->row);
    rank_run r = {.run = run, .rank = ta_group_rank(group), .group = group};
    size_t words = (size_t)llama_weights_all(t->weights)->config.vocabulary;
    llama_part part;
    int divided = o.tensor ? ta_group_size(group) : 1;
    ta_status status = TA_ERR_NO_MEMORY;
    if (llama_part_make(t->weights, o.tensor ? r.rank : 0, divided, &part) != 0)
        goto break_barrier;
    run->parts[r.rank] = &part;
    r.logits = calloc(words, sizeof *r.logits);
    r.first_logits = calloc(words, sizeof *r.first_logits);
    if (r.logits && r.first_logits)
        status = decoder_create(group, &o, &part, &r.d);
    if (status == TA_OK)
        status = use_decoder(&r);
    decoder_destroy(r.d);
    free(r.first_logits);
    free(r.logits);
    llama_part_free(&part);
break_barrier:
    if (status != TA_OK)
        barrier_break(&run->together);
    return status;
}

/* ---- A row --------------------------------------------------------------------------------- */

/* Bring the processes' numbers together. */
static void reduce_processes(row_run *run)
{
    llama_result *r = run->result;
    int words = (int)run->timing->flags->new_words;
    double *const most[] = {&r->prefill_us, &r->weight_bytes, &r->cache_bytes, &r->other_bytes};
    double *const sums[] = {&r->prefill_linear_share, &r->prefill_attend_share,
                            &r->prefill_exchange_share, &r->step_bytes, &run->swept_bytes};
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
        launch_max(&s->difference, 1);
        launch_sum(&s->linear_share, 1);
        launch_sum(&s->attend_share, 1);
        launch_sum(&s->exchange_share, 1);
    }
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The median of what each step read in its time, over what the sweep after it did. */
static double median_fraction(const row_run *run, const llama_steps *steps, int words)
{
    double *quotients = calloc((size_t)words, sizeof *quotients), median = 0;
    for (int i = 0; quotients && i < words; i++)
        quotients[i] =
            run->result->step_bytes / steps->us[i] / (run->swept_bytes / run->read_us[i]);
    if (quotients) {
        qsort(quotients, (size_t)words, sizeof *quotients, by_size);
        median = quotients[words / 2];
    }
    free(quotients);
    return median;
}

static ta_status summarize(row_run *run)
{
    llama_result *r = run->result;
    int words = (int)run->timing->flags->new_words;
    const llama_config *c = &llama_weights_all(run->timing->weights)->config;
    double head = (double)c->vocabulary * c->hidden, per_step = 1.0 / words;
    double layer_elements = llama_config_step_elements(c) - head;
    /* Every token goes through the layers once, and the last through the head; where weights are
     * replicated and chunks computed by all, that is done on every rank and counts once. */
    double flops = 2 * (layer_elements * r->row.tokens + head);
    if (r->prefill_linear_share > 0)
        r->prefill_gflops = flops / (r->prefill_us * r->prefill_linear_share) * 1e-3;
    for (int a = 0; a < r->algorithms; a++) {
        llama_steps *s = &r->steps[a];
        if (stats_of(s->us, words, &s->stats) != 0)
            return TA_ERR_NO_MEMORY;
        s->ratio = s->stats.median / r->steps[0].stats.median;
        s->linear_share *= per_step;
        s->attend_share *= per_step;
        s->exchange_share *= per_step;
        if (run->timing->flags->read)
            s->fraction = median_fraction(run, s, words);
    }
    if (run->timing->flags->read) {
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
    r->algorithms = run->timing->flags->algorithms.count;
    for (int a = 0; a < r->algorithms; a++) {
        r->steps[a].algorithm = llama_flags_algorithm(run->timing->flags, a);
        r->steps[a].us = calloc(words, sizeof *r->steps[a].us);
        made = made && r->steps[a].us;
    }
    r->words = calloc(words + 1, sizeof *r->words);
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
        status = launch_run(row->ranks, rank_main, &run);
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
}
