/* What the steps of all algorithms share: attend, timed; this rank's own fault; bring the query to
 * the ranks; and turn the merged records into the output. In between, each algorithm merges the
 * partials of all ranks in its own way. Implemented in step.c. */
#ifndef TA_STEP_H
#define TA_STEP_H

#include "plan.h"

/* As the device's slot, timed. */
ta_status ta_plan_attend(ta_plan *plan, const ta_problem *problem, const ta_tensor *q,
                         const ta_kv *kv, float *records, void *stream);

/* Put what this rank has to tell into the place of a job's fault. */
ta_status ta_begin_fault(ta_plan *plan, const ta_exchange_job *job, const ta_fault *own,
                         void *stream);

/* Does the host know by now that some rank has a fault? Then it is reported, and nothing is written
 * to a job's records any more: an earlier step's copies of them may still be under way. */
int ta_step_failed(ta_plan *plan, const ta_exchange_job *job);

/* Bring the query to every rank. Afterwards *everywhere describes all query heads. */
ta_status ta_move_query(ta_plan *plan, const ta_tensor *q, const ta_fault *own,
                        ta_tensor *everywhere, void *stream);

/* End the exchange that was started before some work, of which `status` is the result. If the work
 * failed, so does the group. */
ta_status ta_end_exchange(ta_plan *plan, ta_status status, void *stream);

/* Make output and lse of the heads that belong on this rank, from the records that `last` names and
 * what it says is still to be merged; if there is a fault, report it. A rank with one of its own
 * has neither output to write nor anything to hear. */
ta_status ta_finish_heads(ta_plan *plan, const ta_merge *last, const ta_step *step,
                          const ta_fault *own, void *stream);

#endif
