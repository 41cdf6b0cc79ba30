/* See attention_check.h. */
#include "attention_check.h"

#include <math.h>
#include <stdio.h>

#include "expect.h"

static const char *const kinds[5] = {"out", "lse", "dq", "dk", "dv"};
static double worst[NUMBER_DTYPE_END][5]; /* by dtype */

const char *(*attention_settings)(void);

static void fail(const char *what, const attention_case *c, const attention_run *run)
{
    char text[1800];
    snprintf(text, sizeof text, "%s: %s%s%s", what, attention_describe(c, run),
             attention_settings ? "\n    " : "", attention_settings ? attention_settings() : "");
    TEST_FAIL_MESSAGE(text);
}

attention_result attention_run_case(const attention_case *c, const attention_run *run)
{
    attention_result result;
    if (attention_run_group(c, run, NULL, &result) != TA_OK)
        fail(ta_last_error(), c, run);
    return result;
}

attention_result attention_check(const attention_case *c, const attention_run *run)
{
    attention_result result = attention_run_case(c, run);
    for (int i = 0; i < 5; ++i) {
        if (!(result.worst[i] <= worst[c->dtype][i]))
            worst[c->dtype][i] = result.worst[i];
        if (!(result.worst[i] <= 1)) {
            char what[64];
            snprintf(what, sizeof what, "%s is %.3g times its bound off", kinds[i],
                     result.worst[i]);
            fail(what, c, run);
        }
    }
    return result;
}

double attention_print_worst(void)
{
    double least = INFINITY;
    for (int dtype = TA_F32; dtype < NUMBER_DTYPE_END; ++dtype)
        for (int i = 0; i < 5; ++i) {
            printf("%s: worst %s is %.3f of its bound\n", number_name((ta_dtype)dtype), kinds[i],
                   worst[dtype][i]);
            least = fmin(least, worst[dtype][i]);
        }
    return least;
}

attention_case attention_small_case(uint64_t seed, ta_dtype dtype, int length, int query_heads,
                                    int kv_heads, int dim)
{
    attention_case c = {.seed = seed, .dtype = dtype, .sequences = 2};
    c.problem = (oracle_problem){.query_heads = query_heads,
                                 .kv_heads = kv_heads,
                                 .k_dim = dim,
                                 .v_dim = dim,
                                 .causal = true,
                                 .scale = (float)(1 / sqrt(dim))};
    c.lengths[0] = length;
    c.lengths[1] = length / 3;
    return c;
}
