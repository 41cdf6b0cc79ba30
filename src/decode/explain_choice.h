/* The planner's part of ta_explain(); implemented in explain_choice.c. */
#ifndef TA_EXPLAIN_CHOICE_H
#define TA_EXPLAIN_CHOICE_H

#include "plan.h"

/* Why this algorithm, without the end of the line. */
void ta_choice_explain_algorithm(const ta_plan *plan, ta_text *out);

void ta_choice_explain(const ta_plan *plan, ta_text *out);

#endif
