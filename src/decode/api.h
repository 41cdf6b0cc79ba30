/* What the calls on a plan have in common: checks of arguments, which fill in a step, and running a
 * step that was checked. ta_decode() has them (api.c), combine.c and append.c use them. */
#ifndef TA_DECODE_API_H
#define TA_DECODE_API_H

#include "plan.h"

/* What the call adds is in the step before any of them: ta_call_read(). */

/* Has the device streams, and can a step of this plan be captured? */
ta_status ta_check_stream(const ta_plan *plan, void *stream);

ta_status ta_check_kv(const ta_plan *plan, const ta_kv *given, ta_step *step);
ta_status ta_check_out(const ta_plan *plan, const ta_tensor *out, float *lse, ta_step *step);

/* Run a step of which `checked` is the result of all checks, and say what became of it: of this
 * rank's arguments, of an earlier step, of another rank. `shared` is what checked mode found. */
ta_status ta_run_step(ta_plan *plan, ta_step *step, uint64_t shared, ta_status checked,
                      void *stream);

/* What a step's way through the group came to. After an error, `status`, the group is aborted: the
 * others wait for this rank. Otherwise `found` is the fault of the first rank that has one; its
 * status is TA_OK if none has, or if the device will say it later. */
ta_status ta_step_end(ta_plan *plan, const ta_step *step, ta_status status, ta_fault *found);

#endif
