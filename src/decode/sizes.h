/* What sizes the messages of a call, and how the ranks agree on it. A call's own arguments decide
 * how large its messages are: query rows, for pass-KV sequences, for new tokens their type. Ranks
 * that disagree must not find out by messages of different sizes: NCCL does not compare them, and
 * other groups are out of step afterwards. So messages have the sizes that all ranks agreed on
 * last, to begin with those of the plan's largest call.
 *
 * A rank whose call has other sizes does not send it. It takes part in one exchange of the agreed
 * sizes, idle as a rank with a fault is, and its fault record asks for the new ones
 * (TA_FAULT_ASKS). If all ranks ask for the same, the new sizes are agreed on and the call runs;
 * otherwise all hear of a difference, in messages of equal sizes, and the old ones stay. Whether to
 * ask depends on the agreed sizes and on the call alone, so ranks with the same call do the same.
 *
 * So calls of equal sizes cost nothing, and a change one exchange more; in device memory also a
 * wait of the host, which is why it cannot be captured. Called by api.c and append.c. */
#ifndef TA_DECODE_SIZES_H
#define TA_DECODE_SIZES_H

#include "plan.h"

/* Are the sizes of steps agreed on? Not in a ring that passes K and V in host memory, which
 * compares first in every step. Nor with output on one root in host memory, if the exchange is in
 * rounds: they tell nobody but the root, so a rank that asks would hear nothing, and a way back in
 * every step would cost more than the exchange. There a group notices sizes that differ itself, and
 * is broken. */
int ta_sizes_are_agreed(const ta_plan *plan);

/* In device memory nobody notices, so there every step of such a plan begins with an all-gather of
 * notices: records of what is agreed on, or of a rank that asks or has a fault. Only a rank that
 * asks looks at them. */
int ta_sizes_need_notices(const ta_plan *plan);
ta_status ta_sizes_notify(ta_plan *plan, const ta_fault *own, void *stream);

/* The notice of the sizes that are agreed on now. */
ta_status ta_sizes_set_usual(ta_plan *plan, void *stream);

/* Must the ranks be asked before this step, or append, can run? */
int ta_sizes_change(const ta_plan *plan, const ta_step *step);
int ta_sizes_of_append_change(const ta_plan *plan, const ta_step *step);

/* The error, as a fault of this rank, if they must while the stream is being captured. */
ta_status ta_sizes_check_capture(const ta_plan *plan, const ta_step *step, void *stream);

/* A step, or an append, that sends messages of the agreed sizes and is otherwise nothing: for a
 * rank that asks, or that has a fault. */
void ta_sizes_make_idle(const ta_plan *plan, const ta_sizes *sizes, ta_step *idle);

/* What this rank asks. */
ta_fault ta_sizes_ask(const ta_plan *plan, const ta_step *step);

/* Ask, and wait for the answer: TA_FAULT_ASKS if the sizes are agreed on now, otherwise the fault
 * or the difference. Collective. */
ta_status ta_sizes_agree(ta_plan *plan, const ta_step *step, ta_fault *answer, void *stream);

/* What is left of asking, once an exchange ran: `record` number `number` of one rank or of some is
 * heard; and when all `count` are, *all is what they say together. It starts with rank -1. */
ta_status ta_sizes_hear(ta_plan *plan, int number, const void *record, ta_fault *all, void *stream);
ta_status ta_sizes_end_hearing(ta_plan *plan, int count, ta_fault *all, void *stream);

#endif
