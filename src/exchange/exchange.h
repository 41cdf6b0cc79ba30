/* The exchange: from one partial on every rank to the merged partial where the plan wants it, in
 * one pass of logarithmic depth. Called by the algorithms; implemented in exchange.c. */
#ifndef TA_EXCHANGE_H
#define TA_EXCHANGE_H

#include "decode/plan.h"

/* Merge plan->exchange_records over all ranks. Afterwards a rank's own heads under the plan's
 * out_placement are complete in them, the other heads are left in any state. `*fault` goes in as
 * this rank's own and comes out as the lowest rank's, wherever results arrive. If the plan tracks
 * faults, that is so for the one behind plan->records, and `*fault` stays. */
ta_status ta_exchange_run(ta_plan *plan, ta_fault *fault, void *stream);

/* One chunk of it: ta_plan_chunk() says which heads. All chunks in order are the whole. */
ta_status ta_exchange_chunk(ta_plan *plan, int chunk, ta_fault *fault, void *stream);

#endif
