/* Estimates of exchanges: the same rounds that exchange.c runs, for all ranks at once. Those that
 * are collectives of the group have theirs beside what they run. */
#include "estimate.h"

/* A partial of twice as many bytes or more is exchanged in chunks of about this many. */
#define CHUNK_BYTES (1 << 20)

const ta_exchange_entry ta_exchange_kinds[TA_EXCHANGE_KINDS] = {
    [TA_EXCHANGE_AUTO] = {"auto", "", NULL},
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

int ta_exchange_supports(ta_exchange kind, const ta_exchange_shape *shape)
{
    const ta_round_ops *rounds = ta_exchange_kinds[kind].rounds;
    return !rounds || rounds->supports(shape);
}

/* A merge reads two ranges and writes one; a range that is not the last is copied before it is
 * sent, so that the fault can stand behind it; what replaces is copied into its place. In device
 * memory (relay.c) the copy is made by the kernel of the round before, if there is one, and the
 * work of the last round by finish. */
static void add_work(const ta_exchange_shape *shape, const ta_round *round, int is_first,
                     int is_last, ta_cost *cost)
{
    int kernels = 0;
    double bytes = 0;
    if (round->to >= 0 && round->given.end != shape->heads) {
        kernels += is_first || !ta_shape_relays(shape);
        bytes += 2.0 * (double)ta_message_bytes(shape, round->given);
    }
    if (round->from >= 0) {
        kernels += !is_last || !ta_shape_relays(shape);
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
            add_work(shape, &round, index == 0, index == rounds - 1, cost);
        }
        ta_cost_round(cost, phase);
    }
}

int ta_exchange_chunks(ta_exchange kind, const ta_exchange_shape *shape)
{
    double bytes = (double)shape->heads * (double)shape->head_bytes;
    if ((kind != TA_EXCHANGE_DOUBLING && kind != TA_EXCHANGE_BINOMIAL) || shape->device_memory ||
        shape->placement == TA_PLACE_HEADS || bytes < 2 * CHUNK_BYTES)
        return 1;
    return bytes / CHUNK_BYTES < shape->heads ? (int)(bytes / CHUNK_BYTES) : shape->heads;
}

static void estimate_chunks(ta_exchange kind, const ta_exchange_shape *shape, ta_cost *cost)
{
    int64_t chunks = ta_exchange_chunks(kind, shape);
    for (int64_t chunk = 0; chunk < chunks; ++chunk) {
        ta_exchange_shape part = *shape;
        part.heads =
            (int)(shape->heads * (chunk + 1) / chunks) - (int)(shape->heads * chunk / chunks);
        estimate_rounds(ta_exchange_kinds[kind].rounds, &part, cost);
    }
}

ta_status ta_exchange_estimate(ta_exchange kind, const ta_exchange_shape *shape, ta_cost *cost)
{
    if (shape->ranks == 1)
        return TA_OK;
    if (ta_exchange_kinds[kind].rounds)
        estimate_chunks(kind, shape, cost);
    else if (kind == TA_EXCHANGE_ALL_GATHER)
        return ta_all_gather_estimate(shape, cost);
    else
        ta_all_reduce_estimate(shape, cost);
    return TA_OK;
}
