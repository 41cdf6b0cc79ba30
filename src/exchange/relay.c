/* The rounds of an exchange in device memory, with one kernel each: taking in what came and making
 * the next message are one launch, and what came last is left to finish(). The same rounds and
 * merges as exchange.c runs in host memory, in the same order, so the same bits. Called by
 * exchange.c; step.c finishes. */
#include "base/status.h"
#include "estimate.h"
#include "messages.h"

/* A rank's next round from `index` on in which it has anything to do. */
static int next_round(const ta_exchange_shape *shape, const ta_round_ops *ops, int rank, int index,
                      ta_round *round)
{
    int rounds = ops->rounds(shape);
    for (; index < rounds; ++index) {
        *round = (ta_round){.to = -1, .from = -1};
        ops->round(shape, rank, index, round);
        if (round->to >= 0 || round->from >= 0)
            break;
    }
    return index;
}

/* Only the last heads have room for the fault behind them. */
static int is_packed(const ta_plan *plan, const ta_round *round)
{
    return round->to >= 0 && round->given.end != plan->problem.query_heads;
}

static void add_next_message(const ta_plan *plan, ta_heads given, ta_relay *relay)
{
    int64_t rows = ta_problem_rows(&plan->problem);
    relay->sent = plan->sent;
    relay->given_first = given.first * rows;
    relay->given_end = given.end * rows;
}

static void add_received(const ta_plan *plan, const ta_round *round, ta_relay *relay)
{
    int64_t rows = ta_problem_rows(&plan->problem);
    relay->received = plan->received;
    relay->messages = 1;
    relay->replaces = round->replaces;
    relay->kept_first = round->kept.first * rows;
    relay->kept_end = round->kept.end * rows;
}

ta_status ta_relay_run(ta_plan *plan, const ta_round_ops *ops, void *stream)
{
    ta_device *device = plan->device;
    ta_exchange_shape shape = ta_exchange_shape_of(plan);
    int rounds = ops->rounds(&shape), packed = 0;
    ta_round now, next;
    for (int at = next_round(&shape, ops, plan->rank, 0, &now), after; at < rounds;
         at = after, now = next) {
        ta_relay relay = {.records = plan->records,
                          .fault = ta_tracked_fault(plan),
                          .v_dim = plan->problem.v_dim};
        const void *message = ta_records_at(plan, now.given.first);
        after = next_round(&shape, ops, plan->rank, at + 1, &next);
        if (is_packed(plan, &now)) {
            message = plan->sent;
            ta_relay pack = relay;
            add_next_message(plan, now.given, &pack);
            if (!packed)
                TA_TRY(device->ops->relay(device, &pack, stream));
        }
        TA_TRY(ta_group_exchange(
            plan->group, message, now.to >= 0 ? ta_message_bytes(&shape, now.given) : 0, now.to,
            plan->received, now.from >= 0 ? ta_message_bytes(&shape, now.kept) : 0, now.from,
            stream));
        packed = 0;
        if (now.from < 0)
            continue;
        add_received(plan, &now, &relay);
        if (after < rounds && is_packed(plan, &next)) {
            add_next_message(plan, next.given, &relay);
            packed = 1;
        }
        if (after == rounds)
            plan->last = relay;
        else
            TA_TRY(device->ops->relay(device, &relay, stream));
    }
    return TA_OK;
}

/* Every rank's partial is where attend() and the all-gather put it; all are merged in finish(),
 * in the order of the ranks. */
ta_status ta_relay_gather(ta_plan *plan, void *stream)
{
    ta_exchange_shape shape = ta_exchange_shape_of(plan);
    int64_t records = shape.heads * ta_problem_rows(&plan->problem);
    int64_t floats = ta_heads_floats(plan, (ta_heads){0, shape.heads});
    int64_t stride = floats + (int64_t)(sizeof(ta_fault) / sizeof(float));
    TA_TRY(ta_group_all_gather(plan->group, plan->received, plan->gather_at, stream));
    plan->last = (ta_relay){.records = plan->received,
                            .fault = (ta_fault *)(plan->received + floats),
                            .received = plan->received + stride,
                            .stride = stride,
                            .messages = plan->ranks - 1,
                            .kept_end = records,
                            .v_dim = plan->problem.v_dim};
    return TA_OK;
}
