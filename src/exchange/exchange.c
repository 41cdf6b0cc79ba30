/* The list of the kinds of exchange, and running one: the chunks of a job, and the rounds of a kind
 * that has rounds, one after the other, for this rank. kinds.h says what an entry has, rounds.h
 * what a round is. The merge is exactly commutative and every head is merged either in pairs or on
 * one rank, so all ranks have the same bits.
 *
 * Taking in what came and making the next message are one call of the device, one kernel on a GPU,
 * and what came last can be left to finish(). */
#include "exchange.h"

#include <stdlib.h>

#include "base/status.h"
#include "device/peers.h"
#include "group/shared.h"

/* ---- The kinds ---- */

/* A partial of twice as many bytes or more is exchanged in chunks of about this many. */
#define CHUNK_BYTES (1 << 20)

static int supports_all(const ta_exchange_shape *shape)
{
    (void)shape;
    return 1;
}

const ta_exchange_entry ta_exchange_kinds[TA_EXCHANGE_KINDS] = {
    [TA_EXCHANGE_AUTO] = {.name = "auto", .what = "", .symbol = "TA_EXCHANGE_AUTO"},
    [TA_EXCHANGE_DOUBLING] = {.name = "doubling",
                              .what = "recursive doubling, or halving to scattered heads",
                              .symbol = "TA_EXCHANGE_DOUBLING",
                              .needs = "output on more than one rank; TA_PLACE_ROOT is for "
                                       "TA_EXCHANGE_BINOMIAL",
                              .supports = ta_doubling_supports,
                              .run = ta_rounds_run,
                              .estimate = ta_rounds_estimate,
                              .rounds = &ta_doubling_rounds,
                              .whole = 1},
    [TA_EXCHANGE_BINOMIAL] = {.name = "binomial",
                              .what = "a binomial tree to a root, and back",
                              .symbol = "TA_EXCHANGE_BINOMIAL",
                              .supports = supports_all,
                              .run = ta_rounds_run,
                              .estimate = ta_rounds_estimate,
                              .rounds = &ta_binomial_rounds,
                              .whole = 1},
    /* It has a round for each rank, whose latencies alone make it slow. */
    [TA_EXCHANGE_SCATTER] = {.name = "scatter",
                             .what = "heads scattered by all-to-all, then gathered",
                             .symbol = "TA_EXCHANGE_SCATTER",
                             .supports = supports_all,
                             .run = ta_rounds_run,
                             .estimate = ta_rounds_estimate,
                             .rounds = &ta_scatter_rounds,
                             .max_ranks = 1024},
    [TA_EXCHANGE_TWO_LEVEL] = {.name = "two-level",
                               .what = "scatter inside nodes, a tree per lane between them",
                               .symbol = "TA_EXCHANGE_TWO_LEVEL",
                               .needs = "a config.cluster with several nodes and several ranks "
                                        "on one of them",
                               .supports = ta_two_level_supports,
                               .run = ta_rounds_run,
                               .estimate = ta_rounds_estimate,
                               .rounds = &ta_two_level_rounds,
                               .by_nodes = 1},
    [TA_EXCHANGE_ALL_GATHER] = {.name = "all-gather",
                                .what = "one all-gather, all partials merged on each rank",
                                .symbol = "TA_EXCHANGE_ALL_GATHER",
                                .supports = supports_all,
                                .run = ta_all_gather_run,
                                .estimate = ta_all_gather_estimate,
                                .whole = 1,
                                .gathers = 1},
    [TA_EXCHANGE_ALL_REDUCE] = {.name = "all-reduce",
                                .what = "two all-reduces: the largest scores, then the sums",
                                .what_of_tallies =
                                    ", and one between them for the positions of the sums",
                                .symbol = "TA_EXCHANGE_ALL_REDUCE",
                                .needs = "a group that moves host memory, not device memory",
                                .supports = ta_all_reduce_supports,
                                .run = ta_all_reduce_run,
                                .estimate = ta_all_reduce_estimate},
    [TA_EXCHANGE_DIRECT] = {.name = "direct",
                            .what = "each rank reads the others' partials where they are",
                            .symbol = "TA_EXCHANGE_DIRECT",
                            .needs = "ranks that can address each other's memory: threads or MPI "
                                     "processes of one host, or GPUs of one host; of several nodes "
                                     "one must have several ranks",
                            .supports = ta_direct_supports,
                            .run = ta_direct_run,
                            .estimate = ta_direct_estimate,
                            .by_nodes = 1,
                            .shares = 1},
    [TA_EXCHANGE_MULTI_LEVEL] = {.name = "multi-level",
                                 .what = "scatter level by level, a tree per part between the "
                                         "last",
                                 .symbol = "TA_EXCHANGE_MULTI_LEVEL",
                                 .needs = "a config.cluster of several racks with several nodes, "
                                          "or of several nodes with packages, that have several "
                                          "ranks",
                                 .supports = ta_multi_level_supports,
                                 .run = ta_rounds_run,
                                 .estimate = ta_rounds_estimate,
                                 .rounds = &ta_multi_level_rounds,
                                 .by_nodes = 1,
                                 .by_levels = 1},
};

int ta_exchange_supports(ta_exchange kind, const ta_exchange_shape *shape)
{
    return ta_exchange_kinds[kind].supports(shape);
}

int ta_exchange_chunks(ta_exchange kind, const ta_exchange_shape *shape)
{
    const ta_exchange_entry *entry = &ta_exchange_kinds[kind];
    double bytes = (double)shape->heads * (double)shape->head_bytes;
    if (!entry->whole || !entry->rounds || shape->device_memory ||
        shape->placement == TA_PLACE_HEADS || bytes < 2 * CHUNK_BYTES)
        return 1;
    return bytes / CHUNK_BYTES < shape->heads ? (int)(bytes / CHUNK_BYTES) : shape->heads;
}

ta_status ta_exchange_estimate(ta_exchange kind, const ta_exchange_shape *shape, ta_cost *cost)
{
    const ta_exchange_entry *entry = &ta_exchange_kinds[kind];
    return shape->ranks == 1 ? TA_OK : entry->estimate(entry, shape, cost);
}

/* ---- Jobs ---- */

int64_t ta_exchange_floats(const ta_exchange_job *job, int heads)
{
    return heads * (int64_t)(job->shape.head_bytes / sizeof(float));
}

ta_fault *ta_exchange_fault(const ta_exchange_job *job)
{
    return (ta_fault *)(void *)(job->records + ta_exchange_floats(job, job->shape.heads));
}

ta_merge ta_exchange_merge(const ta_exchange_job *job)
{
    return (ta_merge){.records = job->records,
                      .v_dim = job->shape.v_dim,
                      .tallies = job->shape.tallies,
                      .fault = ta_exchange_fault(job)};
}

size_t ta_exchange_partial_bytes(const ta_exchange_job *job)
{
    return ta_message_bytes(&job->shape, (ta_heads){0, job->shape.heads});
}

ta_status ta_exchange_prepare(ta_exchange_job *job)
{
    size_t ranks = (size_t)job->shape.ranks;
    if (ranks == 1 || !ta_exchange_kinds[job->kind].gathers)
        return TA_OK;
    job->gather_at = calloc(ranks + 1, sizeof *job->gather_at);
    if (!job->gather_at)
        return ta_fail(TA_ERR_NO_MEMORY, "no memory for the offsets of %zu ranks", ranks);
    ta_exchange_fit(job, job->shape.head_bytes);
    return TA_OK;
}

/* Fewer bytes never take more chunks. With one chunk, what comes last is left to finish() only if
 * it was so when the memory was cut. */
void ta_exchange_fit(ta_exchange_job *job, size_t head_bytes)
{
    job->shape.head_bytes = head_bytes;
    job->chunks = job->shape.ranks > 1 ? ta_exchange_chunks(job->kind, &job->shape) : 1;
    for (int rank = 0; job->gather_at && rank <= job->shape.ranks; ++rank)
        job->gather_at[rank] = (size_t)rank * ta_exchange_partial_bytes(job);
    if (ta_exchange_in_place(job))
        job->records = ta_exchange_own_records(job);
}

void ta_exchange_release(ta_exchange_job *job)
{
    free(job->gather_at);
    job->gather_at = NULL;
    if (job->slab)
        job->slab->release(job->slab);
    job->slab = NULL;
    job->signals = NULL;
    if (job->peers) {
        ta_group_remove_peers(job->group, job->peers);
        job->device->ops->peers->release(job->peers);
    }
    job->peers = NULL;
}

size_t ta_exchange_received(const ta_exchange_job *job)
{
    const ta_exchange_shape *shape = &job->shape;
    if (shape->ranks == 1)
        return 0;
    if (ta_exchange_kinds[job->kind].shares) /* between nodes: what comes, and what it goes into */
        return shape->nodes && shape->nodes->count > 1 ? 2 : 0;
    return ta_exchange_kinds[job->kind].gathers ? (size_t)shape->ranks : 1;
}

/* Whole partials go out from where they are, with the fault behind them. */
size_t ta_exchange_sent(const ta_exchange_job *job)
{
    const ta_exchange_entry *kind = &ta_exchange_kinds[job->kind];
    if (kind->shares)
        return ta_exchange_received(job) > 0;
    int whole = kind->whole && (job->shape.placement != TA_PLACE_HEADS || kind->gathers);
    return job->shape.ranks > 1 && !(whole && job->chunks == 1);
}

int ta_exchange_in_place(const ta_exchange_job *job)
{
    const ta_exchange_entry *kind = &ta_exchange_kinds[job->kind];
    return job->defers && job->shape.ranks > 1 &&
           (kind->gathers || (kind->shares && !job->shape.device_memory));
}

float *ta_exchange_own_records(const ta_exchange_job *job)
{
    size_t floats = ta_exchange_partial_bytes(job) / sizeof(float);
    if (ta_exchange_kinds[job->kind].shares)
        return ta_direct_own_records(job);
    return job->received ? job->received + (size_t)job->rank * floats : NULL;
}

ta_heads ta_exchange_chunk_heads(const ta_exchange_job *job, int chunk)
{
    int64_t heads = job->shape.heads, chunks = job->chunks;
    return (ta_heads){(int)(heads * chunk / chunks), (int)(heads * (chunk + 1) / chunks)};
}

ta_status ta_exchange_chunk(ta_exchange_job *job, int chunk, void *stream)
{
    job->last = ta_exchange_merge(job);
    if (job->shape.ranks == 1) {
        job->last.fault = NULL; /* a single rank knows before it begins */
        return TA_OK;
    }
    return ta_exchange_kinds[job->kind].run(job, ta_exchange_chunk_heads(job, chunk), stream);
}

ta_status ta_exchange_run(ta_exchange_job *job, void *stream)
{
    for (int chunk = 0; chunk < job->chunks; ++chunk)
        TA_TRY(ta_exchange_chunk(job, chunk, stream));
    return TA_OK;
}

/* ---- Rounds ---- */

/* The rounds of this rank, of heads from `first` on; to a round the first of them is head 0. */
typedef struct rounds {
    const ta_round_ops *ops;
    ta_exchange_shape shape;
    int rank, first;
} rounds;

/* The next round from `index` on in which this rank has anything to do. */
static int next_round(const rounds *r, int index, ta_round *round)
{
    int count = r->ops->rounds(&r->shape);
    for (; index < count; ++index) {
        *round = (ta_round){.to = -1, .from = -1};
        r->ops->round(&r->shape, r->rank, index, round);
        if (round->to < 0 && round->from < 0)
            continue;
        round->given.first += r->first;
        round->given.end += r->first;
        round->kept.first += r->first;
        round->kept.end += r->first;
        break;
    }
    return index;
}

/* Only the last heads have the fault behind them; others are copied to go out. */
static int is_copied(const ta_exchange_job *job, const ta_round *round)
{
    return round->to >= 0 && round->given.end != job->shape.heads;
}

static int64_t rows_of(const ta_exchange_job *job)
{
    return (int64_t)(job->shape.head_bytes / job->shape.record_bytes);
}

static void add_next_message(const ta_exchange_job *job, ta_heads given, ta_merge *merge)
{
    merge->sent = job->sent;
    merge->given_first = given.first * rows_of(job);
    merge->given_end = given.end * rows_of(job);
}

static void add_received(const ta_exchange_job *job, const ta_round *round, ta_merge *merge)
{
    int heads = round->kept.end - round->kept.first;
    merge->received = job->received;
    merge->theirs = (ta_fault *)(void *)(job->received + ta_exchange_floats(job, heads));
    merge->messages = 1;
    merge->replaces = round->replaces;
    merge->kept_first = round->kept.first * rows_of(job);
    merge->kept_end = round->kept.end * rows_of(job);
}

static ta_status send_and_receive(ta_exchange_job *job, const ta_round *round, void *stream)
{
    const void *message = is_copied(job, round)
                              ? job->sent
                              : job->records + ta_exchange_floats(job, round->given.first);
    return ta_group_exchange(
        job->group, message, round->to >= 0 ? ta_message_bytes(&job->shape, round->given) : 0,
        round->to, job->received, round->from >= 0 ? ta_message_bytes(&job->shape, round->kept) : 0,
        round->from, stream);
}

ta_status ta_rounds_run(ta_exchange_job *job, ta_heads heads, void *stream)
{
    return ta_rounds_run_all(job, ta_exchange_kinds[job->kind].rounds, heads, stream);
}

ta_status ta_rounds_run_all(ta_exchange_job *job, const ta_round_ops *ops, ta_heads heads,
                            void *stream)
{
    rounds r = {ops, job->shape, job->rank, heads.first};
    ta_round now, next;
    int copied = 0; /* this round's message was made by the last merge */
    r.shape.heads = heads.end - heads.first;
    int count = r.ops->rounds(&r.shape);
    for (int at = next_round(&r, 0, &now), after; at < count; at = after, now = next) {
        ta_merge merge = ta_exchange_merge(job);
        after = next_round(&r, at + 1, &next);
        if (is_copied(job, &now) && !copied) {
            ta_merge copy = merge;
            add_next_message(job, now.given, &copy);
            TA_TRY(job->device->ops->merge(job->device, &copy, stream));
        }
        TA_TRY(send_and_receive(job, &now, stream));
        copied = 0;
        if (now.from < 0)
            continue;
        add_received(job, &now, &merge);
        if (after < count && is_copied(job, &next)) {
            add_next_message(job, next.given, &merge);
            copied = 1;
        }
        if (after == count && job->defers)
            job->last = merge;
        else
            TA_TRY(job->device->ops->merge(job->device, &merge, stream));
    }
    return TA_OK;
}
