/* Steps that are captured in graphs and replayed, and what steps do, as counted. Called by api.c
 * and plan.c. */
#ifndef TA_REPLAY_H
#define TA_REPLAY_H

#include "plan.h"

/* Recordings that a plan keeps: enough for the layers of a model, each with K and V of its own. */
#define TA_RECORDINGS 64

/* What the plan's device and group counted so far; and since `before`. */
ta_step_counts ta_step_count(const ta_plan *plan);
ta_step_counts ta_step_count_since(const ta_plan *plan, const ta_step_counts *before);

/* Places for recordings, if the plan's steps are replayed. */
ta_status ta_replay_prepare(ta_plan *plan);
void ta_replay_release(ta_plan *plan);

/* Replay the step if it was recorded with the same arguments; otherwise record it first, in the
 * place of the one that was not used for the longest time, and then replay it. */
ta_status ta_replay_step(ta_plan *plan, const ta_step *step, const ta_fault *own, void *stream);

#endif
