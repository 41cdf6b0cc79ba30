/* The cost of an exchange in rounds: the same rounds that exchange.c runs, for all ranks at once.
 * Exchanges that have none estimate theirs beside what they run. */
#include "kinds.h"

/* A merge reads two ranges and writes one; a range that is not the last is copied before it is
 * sent, so that the fault can stand behind it; what replaces is copied into its place. In device
 * memory the copy is made by the kernel of the round before, if there is one, and the work of the
 * last round by finish. On a host these take as long apart as together. */
static void add_work(const ta_exchange_shape *shape, const ta_round *round, int is_first,
                     int is_last, ta_cost *cost)
{
    int kernels = 0;
    double bytes = 0;
    if (round->to >= 0 && round->given.end != shape->heads) {
        kernels += is_first || !shape->device_memory;
        bytes += 2.0 * (double)ta_message_bytes(shape, round->given);
    }
    if (round->from >= 0) {
        kernels += !is_last || !shape->device_memory;
        bytes += (round->replaces ? 2.0 : 3.0) * (double)ta_message_bytes(shape, round->kept);
    }
    ta_cost_work(cost, kernels, bytes);
}

void ta_rounds_estimate_all(const ta_round_ops *ops, const ta_exchange_shape *shape, ta_cost *cost)
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

/* Chunk by chunk. */
ta_status ta_rounds_estimate(const ta_exchange_entry *kind, const ta_exchange_shape *shape,
                             ta_cost *cost)
{
    int64_t chunks = ta_exchange_chunks((ta_exchange)(kind - ta_exchange_kinds), shape);
    for (int64_t chunk = 0; chunk < chunks; ++chunk) {
        ta_exchange_shape part = *shape;
        part.heads =
            (int)(shape->heads * (chunk + 1) / chunks) - (int)(shape->heads * chunk / chunks);
        ta_rounds_estimate_all(kind->rounds, &part, cost);
    }
    return TA_OK;
}
