/* What a call lists: selected positions, and groups of sequences that share a prefix. See call.h;
 * each message names the field, its value and what would be right. */
#include "base/status.h"
#include "call.h"

ta_status ta_call_check_aligned(const char *name, const void *pointer)
{
    if ((uintptr_t)pointer % sizeof(float))
        return ta_fail(TA_ERR_INVALID, "call.%s is %p: must be aligned to 4 bytes", name, pointer);
    return TA_OK;
}

/* Lists are [row][selected_lists][selected_count], so their number must fit. */
static ta_status read_selected(const ta_plan *plan, const ta_call *call, ta_problem *p)
{
    if (!call->selected && !call->selected_count && !call->selected_lists)
        return TA_OK;
    if (!call->selected)
        return ta_fail(TA_ERR_INVALID,
                       "call.selected is NULL with call.selected_count %d and selected_lists %d: "
                       "must be the lists, or the others 0",
                       (int)call->selected_count, (int)call->selected_lists);
    if (call->selected_count < 1)
        return ta_fail(TA_ERR_INVALID, "call.selected_count is %d: must be 1 or more",
                       (int)call->selected_count);
    if (call->selected_lists < 0 ||
        (call->selected_lists > 1 && call->selected_lists != plan->problem.kv_heads))
        return ta_fail(TA_ERR_INVALID,
                       "call.selected_lists is %d: must be 0 or 1, for one list of all KV heads, "
                       "or config.kv_heads, %d",
                       (int)call->selected_lists, (int)plan->problem.kv_heads);
    TA_TRY(ta_call_check_aligned("selected", call->selected));
    if (ta_plan_is_ring(plan) && plan->algorithm == TA_ALGORITHM_RING_KV)
        return ta_fail(TA_ERR_UNSUPPORTED,
                       "call.selected is set: a ring that passes K and V has no selected "
                       "positions, make the plan with TA_ALGORITHM_TREE or TA_ALGORITHM_RING_Q");
    p->selected = call->selected;
    p->selected_count = call->selected_count;
    p->selected_lists = call->selected_lists ? call->selected_lists : 1;
    p->selected_stride = (int64_t)p->selected_lists * p->selected_count;
    return TA_OK;
}

static ta_status read_prefixes(const ta_plan *plan, const ta_call *call, ta_problem *p)
{
    if (call->reserved)
        return ta_fail(TA_ERR_INVALID, "call.reserved is %d: must be 0", (int)call->reserved);
    if (!call->prefix_groups && !call->prefix_starts && !call->prefix_lengths)
        return TA_OK;
    if (!plan->problem.shares_prefixes)
        return ta_fail(TA_ERR_INVALID,
                       "call.prefix_groups is %d: the plan has no room for shared prefixes, set "
                       "config.shared_prefixes to 1",
                       (int)call->prefix_groups);
    if (call->prefix_groups < 1 || call->prefix_groups > p->batch)
        return ta_fail(TA_ERR_INVALID,
                       "call.prefix_groups is %d: must be from 1 to the sequences of the call, "
                       "%d; or 0 without call.prefix_starts and prefix_lengths",
                       (int)call->prefix_groups, (int)p->batch);
    if (!call->prefix_starts || !call->prefix_lengths)
        return ta_fail(TA_ERR_INVALID,
                       "call.prefix_%s is NULL with call.prefix_groups %d: must have one for each",
                       call->prefix_starts ? "lengths" : "starts", (int)call->prefix_groups);
    TA_TRY(ta_call_check_aligned("prefix_starts", call->prefix_starts));
    TA_TRY(ta_call_check_aligned("prefix_lengths", call->prefix_lengths));
    p->prefix_groups = call->prefix_groups;
    p->prefix_starts = call->prefix_starts;
    p->prefix_lengths = call->prefix_lengths;
    return TA_OK;
}

ta_status ta_call_read_lists(const ta_plan *plan, const ta_call *given, ta_step *step)
{
    ta_call call;
    if (!given)
        return TA_OK;
    TA_TRY(ta_struct_read(TA_STRUCT(ta_call), "call", given, &call));
    TA_TRY(read_selected(plan, &call, &step->problem));
    TA_TRY(read_prefixes(plan, &call, &step->problem));
    if (plan->device->ops->alloc_host) /* the host cannot see them */
        return TA_OK;
    return ta_call_check_prefixes(&step->problem);
}

ta_status ta_call_check_prefixes(const ta_problem *problem)
{
    const ta_problem *p = problem;
    const int32_t *starts = p->prefix_starts, *lengths = p->prefix_lengths;
    if (!starts)
        return TA_OK;
    if (starts[0] != 0)
        return ta_fail(TA_ERR_INVALID, "call.prefix_starts[0] is %d: must be 0", (int)starts[0]);
    for (int32_t g = 0; g < p->prefix_groups; ++g) {
        if (starts[g + 1] <= starts[g])
            return ta_fail(TA_ERR_INVALID,
                           "call.prefix_starts[%d] is %d after %d: a group has at least one "
                           "sequence",
                           (int)g + 1, (int)starts[g + 1], (int)starts[g]);
        if (lengths[g] < 0)
            return ta_fail(TA_ERR_INVALID, "call.prefix_lengths[%d] is %d: must be 0 or more",
                           (int)g, (int)lengths[g]);
        if (p->tally_tile && lengths[g] % p->tally_tile)
            return ta_fail(TA_ERR_INVALID,
                           "call.prefix_lengths[%d] is %d: must be a multiple of "
                           "config.reproducible_tile, %d",
                           (int)g, (int)lengths[g], (int)p->tally_tile);
    }
    if (starts[p->prefix_groups] != p->batch)
        return ta_fail(TA_ERR_INVALID,
                       "call.prefix_starts[%d] is %d: must be the sequences of the call, %d",
                       (int)p->prefix_groups, (int)starts[p->prefix_groups], (int)p->batch);
    return TA_OK;
}
