/* What the JSON of an explanation must be like, whatever is explained. */
#ifndef TESTS_EXPLANATION_H
#define TESTS_EXPLANATION_H

/* The text of an explanation (ta_explain_json(), ta_attention_explain_json()): NULL if it is JSON
 * with exactly one candidate chosen, which is what the plan runs, and calls and steps that add up;
 * otherwise what is wrong. `candidates` is how many it must have; 0: none may be there. */
const char *explanation_fault(const char *text, int *candidates);

#endif
