/* What a call adds to its plan: see call.h. Each message names the field, its value and what would
 * be right. */
#include "call.h"

#include <math.h>

#include "base/arguments.h"
#include "base/status.h"

static ta_status read_batch(const ta_plan *plan, const ta_call *call, ta_problem *p)
{
    int32_t most = plan->problem.batch;
    if (call->batch < 0 || call->batch > most)
        return ta_fail(TA_ERR_INVALID,
                       "call.batch is %d: must be from 1 to config.batch, %d, or 0 for that",
                       (int)call->batch, (int)most);
    p->batch = call->batch ? call->batch : most;
    return TA_OK;
}

static ta_status read_uniform(const ta_plan *plan, const ta_call *call, ta_problem *p)
{
    int64_t rows = (int64_t)p->batch * p->query_tokens;
    if (call->starts)
        return ta_fail(TA_ERR_INVALID,
                       "call.starts is %p with call.tokens 0: must be NULL in a uniform call, or "
                       "give the tokens of all sequences",
                       (const void *)call->starts);
    if (rows > plan->problem.rows)
        return ta_fail(TA_ERR_INVALID,
                       "call.tokens is 0, so %d sequences have %d query tokens each: with "
                       "config.max_call_tokens %lld give call.tokens and call.starts",
                       (int)p->batch, (int)p->query_tokens, (long long)plan->problem.rows);
    p->rows = rows;
    return TA_OK;
}

static ta_status read_ragged(const ta_plan *plan, const ta_call *call, ta_problem *p)
{
    int64_t most = plan->problem.rows;
    if (call->tokens < 0 || call->tokens > most)
        return ta_fail(TA_ERR_INVALID,
                       "call.tokens is %d: must be from 1 to config.max_call_tokens, %lld, or 0 "
                       "for a uniform call",
                       (int)call->tokens, (long long)most);
    if (!call->starts)
        return ta_fail(TA_ERR_INVALID,
                       "call.starts is NULL with call.tokens %d: must be the %d starts of %d "
                       "sequences",
                       (int)call->tokens, (int)p->batch + 1, (int)p->batch);
    p->rows = call->tokens;
    p->starts = call->starts;
    return TA_OK;
}

static ta_status read_scores(const ta_call *call, ta_problem *p)
{
    if (call->window < -1)
        return ta_fail(TA_ERR_INVALID,
                       "call.window is %d: must be 1 or more, 0 for the plan's, or -1 for none",
                       (int)call->window);
    if (!isfinite(call->softcap))
        return ta_fail(TA_ERR_INVALID,
                       "call.softcap is %g: must be finite; 0 for the plan's, below it for none",
                       (double)call->softcap);
    TA_TRY(ta_call_check_aligned("starts", call->starts));
    TA_TRY(ta_call_check_aligned("sinks", call->sinks));
    TA_TRY(ta_call_check_aligned("alibi_slopes", call->alibi_slopes));
    if (call->window)
        p->window = call->window > 0 ? call->window : 0;
    if (call->softcap != 0.0f)
        p->softcap = call->softcap > 0.0f ? call->softcap : 0.0f;
    if (call->sinks)
        p->sinks = call->sinks;
    if (call->alibi_slopes)
        p->alibi_slopes = call->alibi_slopes;
    return TA_OK;
}

ta_status ta_call_read(const ta_plan *plan, const ta_call *given, ta_step *step)
{
    const ta_call none = TA_CALL_INIT;
    ta_call call;
    step->problem = plan->problem;
    TA_TRY(ta_struct_read(TA_STRUCT(ta_call), "call", given ? given : &none, &call));
    ta_problem p = plan->problem;
    TA_TRY(read_batch(plan, &call, &p));
    TA_TRY(call.tokens ? read_ragged(plan, &call, &p) : read_uniform(plan, &call, &p));
    step->problem = p; /* the rows are known: whatever else is wrong, messages have their sizes */
    step->tag = call.tag;
    TA_TRY(read_scores(&call, &step->problem));
    if (plan->device->ops->alloc_host) /* the host cannot see them */
        return TA_OK;
    TA_TRY(ta_call_check_starts(&step->problem, call.tokens ? call.starts : NULL));
    return ta_call_check_heads(&step->problem, call.sinks, call.alibi_slopes);
}

ta_tensor_shape ta_call_shape(const ta_problem *problem, const char *name, int heads, int32_t dim,
                              ta_dtype dtype)
{
    const ta_problem *p = problem;
    if (p->starts)
        return (ta_tensor_shape){name, 1, p->rows, heads, dim, dtype};
    return (ta_tensor_shape){name, p->batch, p->query_tokens, heads, dim, dtype};
}

ta_status ta_call_check_starts(const ta_problem *problem, const int32_t *starts)
{
    const ta_problem *p = problem;
    if (!starts)
        return TA_OK;
    if (starts[0] != 0)
        return ta_fail(TA_ERR_INVALID, "call.starts[0] is %d: must be 0", (int)starts[0]);
    for (int32_t b = 0; b < p->batch; ++b) {
        int64_t tokens = (int64_t)starts[b + 1] - starts[b];
        if (tokens < 0 || tokens > p->query_tokens)
            return ta_fail(TA_ERR_INVALID,
                           "call.starts[%d] is %d after %d: a sequence has from 0 to "
                           "config.query_tokens, %d, query tokens",
                           (int)b + 1, (int)starts[b + 1], (int)starts[b], (int)p->query_tokens);
    }
    if (starts[p->batch] != p->rows)
        return ta_fail(TA_ERR_INVALID, "call.starts[%d] is %d: must be call.tokens, %lld",
                       (int)p->batch, (int)starts[p->batch], (long long)p->rows);
    return TA_OK;
}

static ta_status check_finite(const char *name, const float *values, int32_t count)
{
    for (int32_t i = 0; values && i < count; ++i)
        if (!isfinite(values[i]))
            return ta_fail(TA_ERR_INVALID, "call.%s[%d] is %g: must be finite", name, (int)i,
                           (double)values[i]);
    return TA_OK;
}

ta_status ta_call_check_heads(const ta_problem *problem, const float *sinks, const float *slopes)
{
    TA_TRY(check_finite("sinks", sinks, problem->query_heads));
    return check_finite("alibi_slopes", slopes, problem->query_heads);
}
