/* The planner's part of ta_explain(); implemented in explain_choice.c. */
#ifndef TA_EXPLAIN_CHOICE_H
#define TA_EXPLAIN_CHOICE_H

#include "plan.h"

void ta_choice_explain(const ta_plan *plan, ta_text *out);

#endif
