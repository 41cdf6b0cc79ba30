/* Estimates of exchanges: the same rounds that exchange.c runs, for all ranks at once, and the
 * collectives of groups as cost_collectives.c has them. */
#include "estimate.h"

#include <stdlib.h>

#include "../status.h"

const ta_exchange_entry ta_exchange_kinds[TA_EXCHANGE_KINDS] = {
    [TA_EXCHANGE_DOUBLING] = {"doubling", "recursive doubling, or halving to scattered heads",
                              &ta_doubling_rounds},
    [TA_EXCHANGE_BINOMIAL] = {"binomial", "a binomial tree to a root, and back",
                              &ta_binomial_rounds},
    [TA_EXCHANGE_SCATTER] = {"scatter", "heads scattered by all-to-all, then gathered",
                             &ta_scatter_rounds},
    [TA_EXCHANGE_TWO_LEVEL] = {"two-level", "scatter inside nodes, a tree per lane between them",
                               &ta_two_level_rounds},
    [TA_EXCHANGE_ALL_GATHER] = {"all-gather", "one all-gather, all partials merged on each rank",
                                NULL},
    [TA_EXCHANGE_ALL_REDUCE] = {"all-reduce", "two all-reduces: the largest scores, then the sums",
                                NULL},
};

int ta_exchange_supports(ta_exchange_kind kind, const ta_exchange_shape *shape)
{
    const ta_round_ops *rounds = ta_exchange_kinds[kind].rounds;
    return !rounds || rounds->supports(shape);
}

/* A merge reads two ranges and writes one; a range that is not the last is copied before it is
 * sent, so that the fault can stand behind it; what replaces is copied into its place. */
static void add_work(const ta_exchange_shape *shape, const ta_round *round, ta_cost *cost)
{
    int kernels = 0;
    double bytes = 0;
    if (round->to >= 0 && round->given.end != shape->heads) {
        kernels += 1;
        bytes += 2.0 * (double)ta_message_bytes(shape, round->given);
    }
    if (round->from >= 0) {
        kernels += 1;
        bytes += (round->replaces ? 2.0 : 3.0) * (double)ta_message_bytes(shape, round->kept);
    }
    ta_cost_work(cost, kernels, bytes);
}

static void estimate_rounds(const ta_round_ops *ops, const ta_exchange_shape *shape, ta_cost *cost)
{
    int rounds = ops->rounds(shape);
    for (int index = 0; index < rounds; ++index) {
        const char *phase = "exchange";
        for (int rank = 0; rank < shape->ranks; ++rank) {
            ta_round round = {.to = -1, .from = -1};
            ops->round(shape, rank, index, &round);
            if (round.phase)
                phase = round.phase;
            if (round.to >= 0)
                ta_cost_message(cost, rank, round.to, ta_message_bytes(shape, round.given));
            add_work(shape, &round, cost);
        }
        ta_cost_round(cost, phase);
    }
}

static ta_status estimate_all_gather(const ta_exchange_shape *shape, ta_cost *cost)
{
    size_t message = ta_message_bytes(shape, (ta_heads){0, shape->heads});
    size_t *offsets = calloc((size_t)shape->ranks + 1, sizeof *offsets);
    if (!offsets)
        return ta_fail(TA_ERR_NO_MEMORY, "no memory for the offsets of %d ranks", shape->ranks);
    for (int rank = 0; rank <= shape->ranks; ++rank)
        offsets[rank] = (size_t)rank * message;
    ta_cost_all_gather(cost, "all-gather", offsets);
    free(offsets);
    int merges = shape->ranks - 1;
    ta_cost_local(cost, "merge",
                  ta_cost_memory_s(cost->cluster, merges, 3.0 * merges * (double)message));
    return TA_OK;
}

/* The largest scores and a number for the fault; then the sums. */
static void estimate_all_reduce(const ta_exchange_shape *shape, ta_cost *cost)
{
    uint64_t record = shape->record_bytes, records = shape->head_bytes / record;
    uint64_t all = (uint64_t)shape->heads * records;
    ta_cost_local(cost, "scale", ta_cost_memory_s(cost->cluster, 3, 5.0 * (double)(all * record)));
    ta_cost_all_reduce(cost, "largest scores", (all + 1) * sizeof(float));
    ta_cost_all_reduce(cost, "sums", all * (record - sizeof(float)));
}

ta_status ta_exchange_estimate(ta_exchange_kind kind, const ta_exchange_shape *shape, ta_cost *cost)
{
    if (shape->ranks == 1)
        return TA_OK;
    if (ta_exchange_kinds[kind].rounds)
        estimate_rounds(ta_exchange_kinds[kind].rounds, shape, cost);
    else if (kind == TA_EXCHANGE_ALL_GATHER)
        return estimate_all_gather(shape, cost);
    else
        estimate_all_reduce(shape, cost);
    return TA_OK;
}
