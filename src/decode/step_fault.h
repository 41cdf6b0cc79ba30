/* What a rank tells the others of a step, and what it hears of them: its fault record
 * (base/fault.h) with what all ranks must share, and the sentence for the user. api.c calls it;
 * implemented in step_fault.c. step.h has how a record goes into an exchange. */
#ifndef TA_STEP_FAULT_H
#define TA_STEP_FAULT_H

#include "plan.h"

/* This rank's record of a step whose arguments were checked with the result `checked`. `shared` is
 * the hash that checked mode made (check_more.h), 0 where there is none. Where lengths and bounds
 * are in device memory the device adds them (ta_tell). */
ta_fault ta_step_record(const ta_plan *plan, const ta_step *step, uint64_t shared,
                        ta_status checked);

/* The parts of it that are arguments of the call itself: what the host of every rank knows. */
void ta_step_share_call(const ta_plan *plan, const ta_step *step, ta_fault *own);

/* What finish() reported since it was asked last; status TA_OK: nothing. */
ta_fault ta_take_report(ta_plan *plan);

/* The error of a fault in `when` ("this") step; `what` says what became of the output. `appends`:
 * the step is an append, which has no window and no lists to differ in. */
ta_status ta_fail_of_fault(const ta_fault *fault, const char *when, const char *what, int appends);

#endif
