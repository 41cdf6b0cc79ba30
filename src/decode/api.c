/* ta_decode(): check the arguments of a step and hand it to the plan's algorithm. Nothing else.
 * combine.c and append.c have checks in common with it: api.h. */
#include "api.h"

#include "base/arguments.h"
#include "base/clock.h"
#include "base/format.h"
#include "base/status.h"
#include "call.h"
#include "check_more.h"
#include "replay.h"
#include "sizes.h"
#include "step.h"
#include "step_fault.h"

static ta_status check_query(const ta_plan *plan, const ta_tensor *q, ta_step *step)
{
    const ta_problem *p = &step->problem;
    int first, heads;
    ta_plan_heads(plan, plan->query_placement, plan->query_root, plan->rank, &first, &heads);
    if (heads == 0)
        return TA_OK;
    if (!q || !q->data)
        return ta_fail(TA_ERR_INVALID,
                       "q is NULL: rank %d has %d query heads under the plan's "
                       "query_placement",
                       plan->rank, heads);
    ta_tensor_shape shape = ta_call_shape(p, "q", heads, p->k_dim, p->query_dtype);
    return ta_tensor_fill(q, &shape, &step->q);
}

ta_status ta_check_out(const ta_plan *plan, const ta_tensor *out, float *lse, ta_step *step)
{
    const ta_problem *p = &step->problem;
    int first, heads;
    ta_plan_heads(plan, plan->out_placement, plan->out_root, plan->rank, &first, &heads);
    if (heads == 0)
        return TA_OK;
    if (!out || !out->data)
        return ta_fail(TA_ERR_INVALID,
                       "out is NULL: rank %d gets %d query heads under the plan's "
                       "out_placement",
                       plan->rank, heads);
    if ((uintptr_t)lse % sizeof(float))
        return ta_fail(TA_ERR_INVALID, "lse is %p: must be aligned to 4 bytes", (void *)lse);
    ta_tensor_shape shape = ta_call_shape(p, "out", heads, p->v_dim, p->out_dtype);
    TA_TRY(ta_tensor_fill(out, &shape, &step->out));
    step->lse = lse;
    return ta_tensor_check_distinct(&step->out, &shape);
}

/* Is all of a tensor within the memory that the caller says it has? */
static ta_status check_extent(const ta_tensor *tensor, const ta_tensor_shape *shape, size_t bytes)
{
    size_t reach = ta_tensor_reach(tensor, shape);
    if (bytes == 0 || reach <= bytes)
        return TA_OK;
    return ta_fail(TA_ERR_INVALID,
                   "%s_bytes is %zu: %lld blocks of %lld tokens of %lld heads of %lld %s, with "
                   "strides of %lld, %lld and %lld elements, reach %zu",
                   shape->name, bytes, (long long)shape->batch, (long long)shape->tokens,
                   (long long)shape->heads, (long long)shape->dim, ta_dtype_name(shape->dtype),
                   (long long)tensor->batch_stride, (long long)tensor->token_stride,
                   (long long)tensor->head_stride, reach);
}

ta_status ta_check_kv(const ta_plan *plan, const ta_kv *given, ta_step *step)
{
    const ta_problem *p = &step->problem;
    ta_kv *kv = &step->kv;
    TA_TRY(ta_struct_read(TA_STRUCT(ta_kv), "kv", given, kv));
    int64_t blocks = p->batch, tokens = p->max_tokens;
    if (kv->page_table) {
        if (kv->page_tokens < 1)
            return ta_fail(TA_ERR_INVALID,
                           "kv.page_tokens is %d: must be 1 or more with a page "
                           "table",
                           (int)kv->page_tokens);
        if (kv->page_count < 0)
            return ta_fail(TA_ERR_INVALID, "kv.page_count is %d: must be 0 or more",
                           (int)kv->page_count);
        TA_TRY(ta_check_table_stride("kv.page_table_stride", kv->page_table_stride, p->batch));
        blocks = kv->page_count;
        tokens = kv->page_tokens;
    }
    if (kv->bounds && kv->bounds_stride > 0)
        TA_TRY(ta_check_table_stride("kv.bounds_stride", kv->bounds_stride, p->batch));
    ta_tensor_shape k = {"kv.k", blocks, tokens, p->kv_heads, p->k_dim, p->kv_dtype};
    ta_tensor_shape v = {"kv.v", blocks, tokens, p->kv_heads, p->v_dim, p->kv_dtype};
    TA_TRY(ta_tensor_fill(&kv->k, &k, &kv->k));
    TA_TRY(ta_tensor_fill(&kv->v, &v, &kv->v));
    TA_TRY(check_extent(&kv->k, &k, kv->k_bytes));
    TA_TRY(check_extent(&kv->v, &v, kv->v_bytes));
    k.name = "kv.k_scale";
    v.name = "kv.v_scale";
    TA_TRY(ta_scales_check(&kv->k_scale, &k));
    TA_TRY(ta_scales_check(&kv->v_scale, &v));
    return plan->device->ops->check_kv(plan->device, p, kv);
}

ta_status ta_check_stream(const ta_plan *plan, void *stream)
{
    if (stream && !plan->device->ops->has_streams)
        return ta_fail(TA_ERR_INVALID, "stream is %p: must be NULL, device %s has no streams",
                       stream, plan->device->name);
    if (ta_plan_stages(plan) && ta_device_captures(plan->device, stream))
        return ta_fail(TA_ERR_UNSUPPORTED,
                       "stream %p is being captured: group %s moves host memory, so a step of %d "
                       "ranks has to wait for the device; capture steps of one rank, or of a group "
                       "that moves device memory",
                       stream, plan->group->ops->name, plan->ranks);
    return TA_OK;
}

static ta_status check_step(const ta_plan *plan, const ta_tensor *q, const ta_kv *kv,
                            const ta_tensor *out, float *lse, const ta_call *call, void *stream,
                            ta_step *step)
{
    TA_TRY(ta_call_read(plan, call, step));
    if (ta_plan_combines(plan))
        return ta_fail(TA_ERR_INVALID, "plan has config.combine_only: it has no K and V, call "
                                       "ta_combine(), or make another plan");
    TA_TRY(ta_call_read_lists(plan, call, step));
    TA_TRY(ta_check_stream(plan, stream));
    TA_TRY(check_query(plan, q, step));
    TA_TRY(ta_check_kv(plan, kv, step));
    if (step->problem.selected && plan->marks) /* the host sees the lists */
        TA_TRY(ta_check_host_selected(&step->problem, &step->kv, plan->marks));
    return ta_check_out(plan, out, lse, step);
}

/* A rank with a fault does something else, and what the caller captures can't be captured twice. */
static ta_status run_or_replay(ta_plan *plan, const ta_step *step, const ta_fault *own,
                               void *stream)
{
    if (plan->replays && !plan->checks && own->status == TA_OK &&
        !ta_device_captures(plan->device, stream))
        return ta_replay_step(plan, step, own, stream);
    return plan->runs->decode(plan, step, own, stream);
}

/* The error of a message that had another size than its receiver expected: rows size messages.
 * ta_last_error() has the group's sentence. */
static ta_status fail_of_sizes(const ta_problem *p)
{
    char reason[400];
    ta_format(reason, sizeof reason, "%s", ta_last_error());
    return ta_fail(
        TA_ERR_MISMATCH,
        "%s; a call's query rows, %lld here, must be as many on all ranks: call.batch, %d "
        "here, and call.tokens, %lld here",
        reason, (long long)p->rows, (int)p->batch, (long long)(p->starts ? p->rows : 0));
}

/* The step, in messages of the sizes that the ranks agreed on. *asked is what came out if they had
 * to be agreed on first: unless that is TA_FAULT_ASKS the step did not run. */
static ta_status run_sized(ta_plan *plan, const ta_step *step, const ta_fault *own, ta_fault *asked,
                           void *stream)
{
    ta_step idle;
    *asked = ta_fault_of(TA_FAULT_ASKS, plan->rank);
    if (!ta_sizes_are_agreed(plan)) {
        ta_plan_fit(plan, step->problem.rows);
        return run_or_replay(plan, step, own, stream);
    }
    ta_plan_fit(plan, plan->sizes.rows);
    if (own->status != TA_OK) {
        ta_sizes_make_idle(plan, &plan->sizes, &idle);
        TA_TRY(ta_sizes_notify(plan, own, stream));
        return plan->runs->decode(plan, &idle, own, stream);
    }
    if (ta_sizes_change(plan, step))
        TA_TRY(ta_sizes_agree(plan, step, asked, stream));
    if (asked->status != TA_FAULT_ASKS)
        return TA_OK;
    ta_plan_fit(plan, step->problem.rows);
    TA_TRY(ta_sizes_notify(plan, own, stream));
    return run_or_replay(plan, step, own, stream);
}

ta_status ta_step_end(ta_plan *plan, const ta_step *step, ta_status status, ta_fault *found)
{
    *found = ta_fault_of(TA_OK, plan->rank);
    if (status == TA_ERR_MISMATCH)
        status = fail_of_sizes(&step->problem);
    if (status != TA_OK) {
        ta_group_abort(plan->group, ta_last_error());
        return status;
    }
    if (!ta_plan_tracks(plan)) /* else it is not known yet */
        *found = ta_take_report(plan);
    return TA_OK;
}

ta_status ta_run_step(ta_plan *plan, ta_step *step, uint64_t shared, ta_status checked,
                      void *stream)
{
    if (checked != TA_OK && plan->ranks == 1)
        return checked;
    if (checked == TA_OK && ta_sizes_change(plan, step))
        checked = ta_sizes_check_capture(plan, step, stream);
    /* The other ranks expect this one, so it takes part and tells them. */
    ta_fault own = ta_step_record(plan, step, shared, checked),
             earlier = ta_fault_of(TA_OK, plan->rank);
    if (checked == TA_OK)
        earlier = ta_take_report(plan);
    if (earlier.status != TA_OK) { /* this call is an error, and writes nothing */
        step->out = (ta_tensor){NULL, 0, 0, 0};
        step->lse = NULL;
    }
    ta_fault asked;
    ta_step_counts before = ta_step_count(plan);
    int64_t begin_ns = ta_clock_ns();
    ta_status status = run_sized(plan, step, &own, &asked, stream);
    plan->step_ns += (uint64_t)(ta_clock_ns() - begin_ns);
    plan->last_step = ta_step_count_since(plan, &before);
    ++plan->steps;
    ta_fault now;
    TA_TRY(ta_step_end(plan, step, status, &now));
    if (checked != TA_OK)
        return checked;
    if (earlier.status != TA_OK)
        return ta_fail_of_fault(&earlier, "an earlier",
                                "neither that step nor this one wrote anything here", 0);
    if (asked.status != TA_FAULT_ASKS)
        return ta_fail_of_fault(&asked, "this", "nothing was written", 0);
    if (now.status != TA_OK)
        return ta_fail_of_fault(&now, "this", "nothing was written", 0);
    return TA_OK;
}

ta_status ta_decode(ta_plan *plan, const ta_tensor *q, const ta_kv *kv, const ta_tensor *out,
                    float *lse, const ta_call *call, void *stream)
{
    if (!plan)
        return ta_fail(TA_ERR_INVALID, "plan is NULL: make one with ta_plan_create()");
    ta_step step = {0};
    ta_status checked = check_step(plan, q, kv, out, lse, call, stream, &step);
    uint64_t shared = 0;
    if (checked == TA_OK && plan->checks)
        checked = ta_check_more(plan, &step, &shared, stream);
    return ta_run_step(plan, &step, shared, checked, stream);
}
