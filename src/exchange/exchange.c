/* Running an exchange: the rounds of its kind, one after the other, for this rank.
 * exchange/rounds.h says what a round is, exchange/estimate.c lists the kinds. The merge is exactly
 * commutative and every head is merged either in pairs or on one rank, so all ranks have the same
 * bits. */
#include "exchange.h"

#include "base/status.h"
#include "estimate.h"
#include "messages.h"

/* Send, receive, and take in what came. */
static ta_status run_round(ta_plan *plan, const ta_exchange_shape *shape, const ta_round *round,
                           ta_fault *fault, void *stream)
{
    const void *message = NULL;
    size_t given = 0, kept = 0;
    if (round->to < 0 && round->from < 0)
        return TA_OK;
    if (round->to >= 0) {
        TA_TRY(ta_message_pack(plan, round->given, fault, &message, stream));
        given = ta_message_bytes(shape, round->given);
    }
    if (round->from >= 0)
        kept = ta_message_bytes(shape, round->kept);
    TA_TRY(ta_group_exchange(plan->group, message, given, round->to, plan->received, kept,
                             round->from, stream));
    if (round->from < 0)
        return TA_OK;
    return round->replaces ? ta_message_take(plan, plan->received, round->kept, fault, stream)
                           : ta_message_merge(plan, plan->received, round->kept, fault, stream);
}

/* The rounds of heads [first, end) alone; to a round the first of them is head 0. */
static ta_status run_rounds(ta_plan *plan, const ta_round_ops *ops, ta_heads heads, ta_fault *fault,
                            void *stream)
{
    ta_exchange_shape shape = ta_exchange_shape_of(plan);
    shape.heads = heads.end - heads.first;
    int rounds = ops->rounds(&shape);
    for (int index = 0; index < rounds; ++index) {
        ta_round round = {.to = -1, .from = -1};
        ops->round(&shape, plan->rank, index, &round);
        round.given = (ta_heads){round.given.first + heads.first, round.given.end + heads.first};
        round.kept = (ta_heads){round.kept.first + heads.first, round.kept.end + heads.first};
        TA_TRY(run_round(plan, &shape, &round, fault, stream));
    }
    return TA_OK;
}

ta_status ta_exchange_chunk(ta_plan *plan, int chunk, ta_fault *fault, void *stream)
{
    ta_heads heads;
    ta_exchange kind = plan->choice.exchange;
    if (plan->ranks == 1)
        return TA_OK;
    plan->last = (ta_relay){0};
    if (ta_plan_tracks(plan))
        TA_TRY(plan->device->ops->copy(plan->device, ta_tracked_fault(plan),
                                       &plan->faults[-fault->status], sizeof *fault, stream));
    if (ta_plan_relays(plan))
        return kind == TA_EXCHANGE_ALL_GATHER
                   ? ta_relay_gather(plan, stream)
                   : ta_relay_run(plan, ta_exchange_kinds[kind].rounds, stream);
    if (kind == TA_EXCHANGE_ALL_GATHER)
        return ta_all_gather_run(plan, fault, stream);
    if (kind == TA_EXCHANGE_ALL_REDUCE)
        return ta_all_reduce_run(plan, fault, stream);
    ta_plan_chunk(plan, chunk, &heads.first, &heads.end);
    return run_rounds(plan, ta_exchange_kinds[kind].rounds, heads, fault, stream);
}

ta_status ta_exchange_run(ta_plan *plan, ta_fault *fault, void *stream)
{
    for (int chunk = 0; chunk < ta_plan_chunks(plan); ++chunk)
        TA_TRY(ta_exchange_chunk(plan, chunk, fault, stream));
    return TA_OK;
}
