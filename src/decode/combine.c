/* ta_combine(): every rank brings the attention of its own keys, as somebody's kernel left it, and
 * gets that of all. The second half of a tree: records are made of outputs and log-sum-exps, then
 * exchanged and finished as step.c does for a tree. */
#include "api.h"
#include "base/arguments.h"
#include "base/status.h"
#include "call.h"
#include "check_more.h"
#include "step.h"

static ta_status run(ta_plan *plan, const ta_step *step, const ta_fault *own, void *stream)
{
    ta_shard_output given = {step->q, step->part_lse, (int32_t)step->part_base_2};
    ta_device *device = plan->device;
    TA_TRY(ta_begin_fault(plan, &plan->job, step, own, stream));
    if (own->status == TA_OK)
        TA_TRY(device->ops->make_records(device, &step->problem, &given, plan->records,
                                         &plan->telling, stream));
    plan->telling.to = NULL; /* it is told */
    TA_TRY(ta_end_fault(plan, &plan->job, step, own, stream));
    return ta_tree_merge(plan, step, own, stream);
}

static size_t no_bytes(const ta_plan *plan)
{
    (void)plan;
    return 0;
}

const ta_algorithm_ops ta_combine_algorithm = {.name = "combine",
                                               .decode = run,
                                               .cut = ta_tree_cut,
                                               .heard = ta_tree_heard,
                                               .attend_bytes = no_bytes};

/* A number or a pointer of the lists, which must be left out. */
static ta_status refuse_number(const char *name, int32_t value)
{
    if (value)
        return ta_fail(TA_ERR_INVALID, "call.%s is %d: must be 0, a combine sees no keys", name,
                       (int)value);
    return TA_OK;
}

static ta_status refuse_list(const char *name, const int32_t *list)
{
    if (list)
        return ta_fail(TA_ERR_INVALID, "call.%s is %p: must be NULL, a combine sees no keys", name,
                       (const void *)list);
    return TA_OK;
}

static ta_status check_lists(const ta_call *given)
{
    ta_call call;
    TA_TRY(ta_struct_read(TA_STRUCT(ta_call), "call", given, &call));
    TA_TRY(refuse_list("selected", call.selected));
    TA_TRY(refuse_number("selected_count", call.selected_count));
    TA_TRY(refuse_number("selected_lists", call.selected_lists));
    TA_TRY(refuse_number("prefix_groups", call.prefix_groups));
    TA_TRY(refuse_list("prefix_starts", call.prefix_starts));
    TA_TRY(refuse_list("prefix_lengths", call.prefix_lengths));
    if (call.reserved)
        return ta_fail(TA_ERR_INVALID, "call.reserved is %d: must be 0", (int)call.reserved);
    return TA_OK;
}

/* What a call can add to a plan that has scores no more. */
static ta_status check_options(const ta_problem *p, const ta_call *call)
{
    if (p->window)
        return ta_fail(TA_ERR_INVALID,
                       "call.window is %d: must be 0, a combine sees no keys, only what others "
                       "made of them",
                       (int)p->window);
    if (p->softcap != 0.0f)
        return ta_fail(TA_ERR_INVALID, "call.softcap is %g: must be 0, a combine sees no scores",
                       (double)p->softcap);
    if (p->alibi_slopes)
        return ta_fail(TA_ERR_INVALID,
                       "call.alibi_slopes is %p: must be NULL, a combine sees no scores",
                       (const void *)p->alibi_slopes);
    return call ? check_lists(call) : TA_OK;
}

static ta_status check_part(const ta_tensor *part, const float *part_lse, ta_lse_base base,
                            ta_step *step)
{
    const ta_problem *p = &step->problem;
    if (base != TA_LSE_E && base != TA_LSE_2)
        return ta_fail(TA_ERR_INVALID, "base is %d: must be TA_LSE_E or TA_LSE_2", (int)base);
    if (!part || !part->data)
        return ta_fail(TA_ERR_INVALID,
                       "part is NULL: must be this rank's output of all %d query heads; a rank "
                       "without keys gives a part_lse of -inf",
                       (int)p->query_heads);
    if (!part_lse || (uintptr_t)part_lse % sizeof(float))
        return ta_fail(TA_ERR_INVALID,
                       "part_lse is %p: must be the log-sum-exp of each row and head, aligned to "
                       "4 bytes",
                       (const void *)part_lse);
    ta_tensor_shape shape = ta_call_shape(p, "part", p->query_heads, p->v_dim, p->query_dtype);
    step->part_lse = part_lse;
    step->part_base_2 = base == TA_LSE_2;
    return ta_tensor_fill(part, &shape, &step->q);
}

static ta_status check(const ta_plan *plan, const ta_tensor *part, const float *part_lse,
                       ta_lse_base base, const ta_tensor *out, float *lse, const ta_call *call,
                       void *stream, ta_step *step)
{
    TA_TRY(ta_call_read(plan, call, step));
    if (!ta_plan_combines(plan))
        return ta_fail(TA_ERR_INVALID,
                       "plan attends to K and V: make one with config.combine_only = 1, or call "
                       "ta_decode()");
    TA_TRY(ta_check_stream(plan, stream));
    TA_TRY(check_options(&step->problem, call));
    TA_TRY(check_part(part, part_lse, base, step));
    return ta_check_out(plan, out, lse, step);
}

ta_status ta_combine(ta_plan *plan, const ta_tensor *part, const float *part_lse, ta_lse_base base,
                     const ta_tensor *out, float *lse, const ta_call *call, void *stream)
{
    if (!plan)
        return ta_fail(TA_ERR_INVALID, "plan is NULL: make one with ta_plan_create()");
    ta_step step = {0};
    ta_status checked = check(plan, part, part_lse, base, out, lse, call, stream, &step);
    uint64_t shared = 0;
    if (checked == TA_OK && plan->checks)
        checked = ta_check_heads(plan, &step, &shared, stream);
    return ta_run_step(plan, &step, shared, checked, stream);
}
