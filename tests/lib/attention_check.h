/* Attention cases as tests: each is run and compared with the exact results, and the worst error of
 * each kind of result is kept. */
#ifndef TESTS_ATTENTION_CHECK_H
#define TESTS_ATTENTION_CHECK_H

#include "attention_case.h"

/* What is added to every message of a failure, or NULL. */
extern const char *(*attention_settings)(void);

/* Fails the test if the library reports an error. */
attention_result attention_run_case(const attention_case *c, const attention_run *run);

/* The same, and if a result is further off than its bound. */
attention_result attention_check(const attention_case *c, const attention_run *run);

/* Print the worst errors of all cases so far, in units of their bounds. Returns the least. */
double attention_print_worst(void);

/* Two causal sequences, the second a third as long. */
attention_case attention_small_case(uint64_t seed, ta_dtype dtype, int length, int query_heads,
                                    int kv_heads, int dim);

#endif
