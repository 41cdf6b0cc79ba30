/* What a call adds to its plan: from a ta_call to the problem of a step. Called by api.c, and by
 * check_more.c for what is in device memory. */
#ifndef TA_CALL_H
#define TA_CALL_H

#include "base/arguments.h"
#include "plan.h"

/* Set the step's problem and tag. After a failure the step has the plan's rows: with so many this
 * rank takes part for the others. NULL: the call adds nothing. */
ta_status ta_call_read(const ta_plan *plan, const ta_call *given, ta_step *step);

/* Add the lists of the call, if it has any: selected positions and prefixes. */
ta_status ta_call_read_lists(const ta_plan *plan, const ta_call *given, ta_step *step);

/* The shape of a query or output of so many heads: packed if the call is ragged. */
ta_tensor_shape ta_call_shape(const ta_problem *problem, const char *name, int heads, int32_t dim,
                              ta_dtype dtype);

/* Are the values that a call's pointers lead to as they must be? For those that the host can see:
 * NULL is nothing to check. `starts` is [batch + 1], sinks and slopes are [query_heads]. */
ta_status ta_call_check_starts(const ta_problem *problem, const int32_t *starts);
ta_status ta_call_check_prefixes(const ta_problem *problem);
ta_status ta_call_check_aligned(const char *name, const void *pointer);
ta_status ta_call_check_heads(const ta_problem *problem, const float *sinks, const float *slopes);

#endif
