/* The words of a row on one rank: each by all algorithms in turn, then a read of the same bytes.
 * Ranks start every step together; a step lasts as long as on the slowest of them. rank_timing.c
 * calls it. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/launch.h"
#include "sample.h"
#include "timing_parts.h"

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

ta_status step_make_readers(row_run *run)
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
    return row_gather(run, 1) == 0 ? TA_OK : TA_ERR_ABORTED;
}

/* ---- Steps --------------------------------------------------------------------------------- */

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
    ta_status status = ta_group_get_stats(decoder_group(r->d), &before);
    if (status == TA_OK && row_gather(run, 0) != 0)
        return TA_ERR_ABORTED;
    double start = machine_time_us();
    if (status == TA_OK)
        status = decoder_step(r->d, algorithm, input, position, r->logits);
    double us = machine_time_us() - start;
    if (status == TA_OK)
        status = ta_group_get_stats(decoder_group(r->d), &after);
    if (status != TA_OK || word < 0)
        return status;
    decoder_times now = decoder_get_times(r->d);
    row_keep_most(run, &steps->us[word], us);
    row_add_shares(run, &then, &now, 1, &steps->linear_share, &steps->attend_share,
                   &steps->exchange_share);
    row_keep_most(run, &steps->bytes, traffic(&before, &after, 0));
    row_keep_most(run, &steps->messages, traffic(&before, &after, 1));
    return TA_OK;
}

double logits_apart(const float *a, const float *b, int32_t count)
{
    double most = 0;
    for (int32_t i = 0; i < count; i++)
        most = larger_or_nan(most, fabs((double)a[i] - b[i]));
    return most;
}

static int32_t vocabulary_of(const rank_run *r)
{
    return llama_weights_all(r->run->timing->weights)->config.vocabulary;
}

void step_keep_logits(const rank_run *r, int64_t step)
{
    size_t count = (size_t)vocabulary_of(r);
    float *kept = r->run->result->logits;
    if (kept && (r->rank == 0 || launch.mpi))
        memcpy(kept + (size_t)step * count, r->first_logits, count * sizeof *kept);
}

/* How far its logits are from those of the first algorithm. */
static void compare(rank_run *r, int algorithm, int64_t word)
{
    int32_t words = vocabulary_of(r);
    if (algorithm == 0) {
        memcpy(r->first_logits, r->logits, (size_t)words * sizeof *r->logits);
        step_keep_logits(r, word + 1);
    }
    row_keep_most(r->run, &r->run->result->steps[algorithm].difference,
                  logits_apart(r->logits, r->first_logits, words));
}

/* The word that follows the logits of the first algorithm: the same on all ranks. */
static int32_t next_word(const rank_run *r, int64_t step)
{
    const llama_flags *f = r->run->timing->flags;
    int32_t word = sample_word(r->first_logits, vocabulary_of(r), (double)f->temperature * 0.01,
                               (uint64_t)f->seed, (uint64_t)step);
    word = word < 0 ? 0 : word;
    if (r->rank == 0 || launch.mpi)
        r->run->result->words[step] = word;
    return word;
}

/* On a device with streams, one more step of each algorithm, in which the host waits for every
 * operation, tells where the time of a step goes. */
static ta_status look_inside(rank_run *r, int32_t input, int32_t position)
{
    row_run *run = r->run;
    int64_t words = run->timing->flags->new_words;
    ta_status status = TA_OK;
    decoder_wait(r->d, 1);
    for (int a = 0; status == TA_OK && a < run->result->algorithms; a++) {
        llama_steps *s = &run->result->steps[a];
        decoder_times before = decoder_get_times(r->d);
        status = decoder_step(r->d, a, input, position, r->logits);
        decoder_times after = decoder_get_times(r->d);
        row_add_shares(run, &before, &after, words, &s->linear_share, &s->attend_share,
                       &s->exchange_share);
    }
    decoder_wait(r->d, 0);
    return status;
}

ta_status step_time_words(rank_run *r)
{
    const llama_flags *f = r->run->timing->flags;
    int32_t position = r->run->result->row.tokens, input = next_word(r, 0);
    ta_status status = TA_OK;
    for (int64_t word = -f->warmup; status == TA_OK && word < f->new_words; word++) {
        for (int a = 0; status == TA_OK && a < r->run->result->algorithms; a++) {
            status = time_step(r, a, word, input, position);
            if (status == TA_OK && word >= 0)
                compare(r, a, word);
        }
        if (status != TA_OK || word < 0)
            continue;
        if (row_gather(r->run, 1) != 0)
            return TA_ERR_ABORTED;
        status = sweep(r, word);
        if (word + 1 == f->new_words && decoder_on_gpu(r->d))
            status = look_inside(r, input, position);
        input = next_word(r, word + 1);
        position++;
    }
    return status;
}
