/* The ends of a decode step, which all algorithms share: bring the query to the ranks, and turn the
 * merged records into the output. In between, each algorithm merges the partials of all ranks in
 * its own way. */
#ifndef TA_STEP_H
#define TA_STEP_H

#include "plan.h"

/* Copy from the device to where other ranks can see it; returns when it is there. So whatever was
 * staged in by an earlier step has been read too, and its place may be written again. */
ta_status ta_stage_out(ta_plan *plan, void *to, const void *from, size_t bytes, void *stream);
ta_status ta_stage_in(ta_plan *plan, void *to, const void *from, size_t bytes, void *stream);

/* Bring the query to every rank. Afterwards *everywhere describes all query heads. */
ta_status ta_move_query(ta_plan *plan, const ta_tensor *q, const ta_fault *fault,
                        ta_tensor *everywhere, void *stream);

/* End the exchange that was started before some work, of which `status` is the result. If the work
 * failed, so does the group. */
ta_status ta_end_exchange(ta_plan *plan, ta_status status, void *stream);

/* Make output and lse of the heads that belong on this rank, from the merged records in
 * plan->exchange_records; nothing if there is a fault. */
ta_status ta_finish_heads(ta_plan *plan, const ta_tensor *out, float *lse, const ta_fault *fault,
                          void *stream);

#endif
