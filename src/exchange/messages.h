/* What all exchanges do with a message: a range of heads of the partial, their records, then the
 * fault. Used by exchange.c and the files of exchange/ that run one; implemented in messages.c. In
 * device memory relay.c does it all. */
#ifndef TA_EXCHANGE_MESSAGES_H
#define TA_EXCHANGE_MESSAGES_H

#include "decode/plan.h"
#include "rounds.h"

/* What decides who sends what to whom. */
ta_exchange_shape ta_exchange_shape_of(const ta_plan *plan);

int64_t ta_heads_floats(const ta_plan *plan, ta_heads heads);
float *ta_records_at(const ta_plan *plan, int head);

/* The fault of the step, if the plan tracks it in device memory. */
ta_fault *ta_tracked_fault(const ta_plan *plan);

/* Make the message for a range. The last range has room for the fault behind it, others are
 * copied. */
ta_status ta_message_pack(ta_plan *plan, ta_heads heads, const ta_fault *fault,
                          const void **message, void *stream);

/* Take a message that arrived into the range: merge it, or put it in its place. Of two faults the
 * lower rank's stays. */
ta_status ta_message_merge(ta_plan *plan, const float *message, ta_heads heads, ta_fault *fault,
                           void *stream);
ta_status ta_message_take(ta_plan *plan, const float *message, ta_heads heads, ta_fault *fault,
                          void *stream);

/* Rounds, and an all-gather, of a plan that tracks faults: relay.c. What arrived last is in
 * plan->last for finish(). */
ta_status ta_relay_run(ta_plan *plan, const ta_round_ops *ops, void *stream);
ta_status ta_relay_gather(ta_plan *plan, void *stream);

/* The two exchanges that are collectives of the group: all_gather.c, all_reduce.c. */
ta_status ta_all_gather_run(ta_plan *plan, ta_fault *fault, void *stream);
ta_status ta_all_reduce_run(ta_plan *plan, ta_fault *fault, void *stream);

#endif
