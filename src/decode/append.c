/* ta_append(): new keys and values go where the shard map wants them. Each rank stores what it
 * holds. If every rank has the new tokens, or its own ones, nothing moves; if they are scattered by
 * heads, the ranks gather them first, each with its fault record before its heads, so that all or
 * none of them store. */
#include <string.h>

#include "api.h"
#include "append_scales.h"
#include "base/arguments.h"
#include "base/dtype.h"
#include "base/shard_map.h"
#include "base/status.h"
#include "call.h"
#include "check_more.h"
#include "device/new_token.h"
#include "sizes.h"
#include "step.h"
#include "step_fault.h"

/* ---- Checks ---- */

static ta_status check_dtypes(const ta_plan *plan, ta_dtype dtype)
{
    const ta_device *device = plan->device;
    ta_dtype stored = plan->problem.kv_dtype;
    if (dtype == stored)
        return TA_OK;
    if (!device->ops->has_dtype(device, dtype, TA_AS_QUERY) ||
        !device->ops->has_dtype(device, stored, TA_AS_OUT))
        return ta_fail(TA_ERR_UNSUPPORTED,
                       "input.dtype is %s: device %s has nothing to convert it to the cache's %s",
                       ta_dtype_name(dtype), device->name, ta_dtype_name(stored));
    return TA_OK;
}

/* Does this rank need any new tokens of its own caller? Where the host cannot see lengths it is not
 * known whether it holds some of those that are local. */
static int needs_tokens(const ta_plan *plan, const ta_append_input *input, const ta_step *step,
                        int heads)
{
    if (input->source != TA_APPEND_LOCAL || heads == 0)
        return heads > 0;
    for (int32_t b = 0; !plan->device->ops->alloc_host && b < step->problem.batch; ++b)
        if (ta_new_tokens_held(&step->problem, &step->kv, b) > 0)
            return 1;
    return 0;
}

static ta_status check_tensor(const char *name, const ta_problem *p, const ta_tensor *given,
                              int heads, int32_t dim, int needed, ta_dtype dtype, ta_tensor *filled)
{
    ta_tensor_shape shape = ta_call_shape(p, name, heads, dim, dtype);
    if (!given->data && needed)
        return ta_fail(TA_ERR_INVALID,
                       "%s.data is NULL: must be the new tokens, this rank has %d KV heads of them",
                       name, heads);
    return ta_tensor_fill(given, &shape, filled);
}

/* Scales that are made must each have a place of its own. */
static ta_status check_made_scales(const ta_append_input *input, ta_step *step)
{
    const ta_problem *p = &step->problem;
    const ta_kv *kv = &step->kv;
    int64_t blocks = kv->page_table ? kv->page_count : p->batch;
    int64_t tokens = kv->page_table ? kv->page_tokens : p->max_tokens;
    ta_tensor_shape k = {"kv.k_scale", blocks, tokens, p->kv_heads, 1, p->kv_dtype}, v = k;
    v.name = "kv.v_scale";
    if (input->make_scales != 0 && input->make_scales != 1)
        return ta_fail(TA_ERR_INVALID, "input.make_scales is %d: must be 0 or 1",
                       (int)input->make_scales);
    if (input->reserved)
        return ta_fail(TA_ERR_INVALID, "input.reserved is %d: must be 0", (int)input->reserved);
    step->tokens.make_scales = input->make_scales;
    if (!input->make_scales)
        return TA_OK;
    if (!ta_dtype_is_narrow(p->kv_dtype) || step->tokens.dtype == p->kv_dtype)
        return ta_fail(TA_ERR_INVALID,
                       "input.make_scales is 1: must be 0 with input.dtype %s and config.kv_dtype "
                       "%s, scales are made of numbers that become 8 bits",
                       ta_dtype_name(step->tokens.dtype), ta_dtype_name(p->kv_dtype));
    if (!kv->k_scale.data || !kv->v_scale.data)
        return ta_fail(TA_ERR_INVALID,
                       "%s.data is NULL with input.make_scales 1: must have room for a scale of "
                       "each token and KV head",
                       kv->k_scale.data ? v.name : k.name);
    TA_TRY(ta_scales_check_distinct(&kv->k_scale, &k));
    return ta_scales_check_distinct(&kv->v_scale, &v);
}

static ta_status check_tokens(const ta_plan *plan, const ta_append_input *input, ta_step *step)
{
    const ta_problem *p = &step->problem;
    ta_new_tokens *tokens = &step->tokens;
    int heads = p->kv_heads;
    if (input->source == TA_APPEND_HEADS)
        heads = ta_head_start(p->kv_heads, plan->ranks, plan->rank + 1) -
                ta_head_start(p->kv_heads, plan->ranks, plan->rank);
    tokens->local = input->source == TA_APPEND_LOCAL;
    TA_TRY(check_dtypes(plan, tokens->dtype));
    TA_TRY(check_made_scales(input, step));
    int needed = needs_tokens(plan, input, step, heads);
    TA_TRY(
        check_tensor("input.k", p, &input->k, heads, p->k_dim, needed, tokens->dtype, &tokens->k));
    return check_tensor("input.v", p, &input->v, heads, p->v_dim, needed, tokens->dtype,
                        &tokens->v);
}

/* As a step whose queries see themselves alone: so that the pages of the new tokens are looked at,
 * and no others. Scores have no part in it, so ranks need not agree on what would change them. */
static ta_status check_cache(const ta_plan *plan, const ta_kv *kv, ta_step *step)
{
    step->problem.causal = 1;
    step->problem.window = 1;
    step->problem.softcap = 0.0f;
    return ta_check_kv(plan, kv, step);
}

/* What is in the cache's memory already: the scales of new tokens, on a GPU also all tables. */
static ta_status check_memory(ta_plan *plan, const ta_step *step, void *stream)
{
    if (plan->device->ops->alloc_host)
        return plan->checks ? ta_check_append(plan, step, stream) : TA_OK;
    return ta_check_new_scales(plan->device, &step->problem, &step->kv, &step->tokens, NULL,
                               stream);
}

static ta_status check(ta_plan *plan, const ta_append_input *input, const ta_kv *kv, void *stream,
                       ta_step *step)
{
    if (input->source == TA_APPEND_HEADS)
        TA_TRY(ta_check_stream(plan, stream));
    else if (stream && !plan->device->ops->has_streams)
        return ta_fail(TA_ERR_INVALID, "stream is %p: must be NULL, device %s has no streams",
                       stream, plan->device->name);
    TA_TRY(check_cache(plan, kv, step));
    TA_TRY(check_tokens(plan, input, step));
    return check_memory(plan, step, stream);
}

static ta_status check_plan(const ta_plan *plan)
{
    if (!plan)
        return ta_fail(TA_ERR_INVALID, "plan is NULL: make one with ta_plan_create()");
    if (ta_plan_combines(plan))
        return ta_fail(TA_ERR_INVALID, "plan has config.combine_only: it has no K and V");
    return TA_OK;
}

/* The source says whether other ranks wait for this one. If the input does not tell it, they may:
 * it counts as scattered where the plan can have that. */
static ta_status read_input(const ta_plan *plan, const ta_append_input *given,
                            ta_append_input *input)
{
    const ta_append_source unknown = plan->gathers_tokens ? TA_APPEND_HEADS : TA_APPEND_ALL;
    ta_append_input known;
    *input = (ta_append_input){.source = unknown};
    TA_TRY(ta_struct_read(TA_STRUCT(ta_append_input), "input", given, &known));
    if (known.source < TA_APPEND_ALL || known.source > TA_APPEND_LOCAL)
        return ta_fail(TA_ERR_INVALID,
                       "input.source is %d: must be TA_APPEND_ALL, TA_APPEND_HEADS or "
                       "TA_APPEND_LOCAL",
                       (int)known.source);
    if (known.source == TA_APPEND_HEADS && !plan->gathers_tokens)
        return ta_fail(TA_ERR_INVALID,
                       "input.source is TA_APPEND_HEADS: the plan has no room to gather new "
                       "tokens, set config.append_scattered to 1");
    input->source = known.source;
    if (known.dtype && !ta_dtype_find(known.dtype))
        return ta_fail(TA_ERR_INVALID, "input.dtype is %d: there is no such type",
                       (int)known.dtype);
    *input = known;
    return TA_OK;
}

/* ---- Tokens that are scattered by heads ---- */

/* This rank's heads, dense, behind the place of its fault. */
static ta_status pack(ta_plan *plan, const ta_step *step, char *piece, void *stream)
{
    const ta_new_tokens *tokens = &step->tokens;
    ta_problem p = step->problem;
    int heads = ta_head_start(p.kv_heads, plan->ranks, plan->rank + 1) -
                ta_head_start(p.kv_heads, plan->ranks, plan->rank);
    char *k = piece + TA_FAULT_BYTES;
    char *v = k + heads * p.rows * p.k_dim * (int64_t)ta_dtype_bytes(tokens->dtype);
    if (heads == 0)
        return TA_OK;
    p.query_dtype = tokens->dtype;
    TA_TRY(plan->device->ops->pack_query(plan->device, &p, &tokens->k, heads, k, stream));
    p.k_dim = p.v_dim;
    return plan->device->ops->pack_query(plan->device, &p, &tokens->v, heads, v, stream);
}

/* Everybody's pieces to where the device can read them. Returns whether they are: with a fault of
 * any rank, which the host sees if it stages, they are not. */
static ta_status stage_in(ta_plan *plan, int *arrived, void *stream)
{
    char *pieces = plan->exchange_gathered;
    ta_fault all = {0};
    for (int rank = 0; rank < plan->ranks; ++rank) {
        ta_fault next;
        memcpy(&next, pieces + plan->gathered_at[rank], sizeof next);
        all = rank ? ta_fault_merge(all, next) : next;
    }
    *arrived = all.status == TA_OK;
    if (!*arrived) {
        *plan->report = all;
        return TA_OK;
    }
    return ta_staging_copy(&plan->staging, plan->gathered, pieces, plan->gathered_at[plan->ranks],
                           stream);
}

static ta_status gather_and_store(ta_plan *plan, const ta_step *step, const ta_fault *own,
                                  void *stream)
{
    const ta_problem *p = &step->problem;
    size_t *at = plan->gathered_at;
    ta_new_tokens tokens = step->tokens;
    int64_t size = (int64_t)ta_dtype_bytes(tokens.dtype);
    for (int rank = 0; rank <= plan->ranks; ++rank)
        at[rank] = (size_t)ta_gathered_piece(p, p->rows, size, rank);
    char *piece = plan->gathered + at[plan->rank];
    char *wire = plan->exchange_gathered + at[plan->rank];
    ta_exchange_job fault = {.records = (float *)(void *)wire}; /* behind no records */
    TA_TRY(ta_begin_fault(plan, &fault, step, own, stream));
    TA_TRY(ta_end_fault(plan, &fault, step, own, stream));
    if (own->status == TA_OK) {
        TA_TRY(pack(plan, step, piece, stream));
        TA_TRY(ta_staging_copy(&plan->staging, wire + TA_FAULT_BYTES, piece + TA_FAULT_BYTES,
                               at[plan->rank + 1] - at[plan->rank] - TA_FAULT_BYTES, stream));
    }
    if (ta_plan_stages(plan)) /* also until the last call's pieces have been read */
        TA_TRY(ta_staging_wait(&plan->staging, stream));
    TA_TRY(ta_group_all_gather(plan->group, plan->exchange_gathered, at, stream));
    int arrived = 1;
    if (ta_plan_stages(plan))
        TA_TRY(stage_in(plan, &arrived, stream));
    if (own->status != TA_OK || !arrived)
        return TA_OK;
    tokens.gathered = plan->gathered;
    tokens.report = ta_plan_stages(plan) ? NULL : plan->report;
    return plan->device->ops->append(plan->device, p, &step->kv, &tokens, stream);
}

/* As ta_sizes_agree() for steps: pieces of the agreed sizes, in which all ranks ask for others. */
static ta_status agree(ta_plan *plan, const ta_step *step, ta_fault *answer, void *stream)
{
    ta_step idle;
    ta_fault own = ta_sizes_ask(plan, step);
    *answer = ta_fault_of(TA_OK, -1);
    ta_sizes_make_idle(plan, &plan->append_sizes, &idle);
    TA_TRY(gather_and_store(plan, &idle, &own, stream));
    for (int rank = 0; rank < plan->ranks; ++rank)
        TA_TRY(ta_sizes_hear(plan, rank, plan->exchange_gathered + plan->gathered_at[rank], answer,
                             stream));
    TA_TRY(ta_sizes_end_hearing(plan, plan->ranks, answer, stream));
    if (answer->status == TA_FAULT_ASKS)
        plan->append_sizes = (ta_sizes){
            .rows = step->problem.rows, .batch = step->problem.batch, .dtype = step->tokens.dtype};
    return TA_OK;
}

/* In pieces of the sizes that the ranks agreed on; *asked as in api.c. */
static ta_status gather_sized(ta_plan *plan, const ta_step *step, const ta_fault *own,
                              ta_fault *asked, void *stream)
{
    ta_step idle;
    *asked = ta_fault_of(TA_FAULT_ASKS, plan->rank);
    if (own->status != TA_OK) {
        ta_sizes_make_idle(plan, &plan->append_sizes, &idle);
        return gather_and_store(plan, &idle, own, stream);
    }
    if (ta_sizes_of_append_change(plan, step))
        TA_TRY(agree(plan, step, asked, stream));
    if (asked->status != TA_FAULT_ASKS)
        return TA_OK;
    return gather_and_store(plan, step, own, stream);
}

/* The other ranks expect this one, so it takes part, whatever the checks found, and tells them. */
static ta_status append_scattered(ta_plan *plan, const ta_step *step, ta_status checked,
                                  void *stream)
{
    ta_fault asked, now;
    if (checked == TA_OK && ta_sizes_of_append_change(plan, step))
        checked = ta_sizes_check_capture(plan, step, stream);
    ta_fault own = ta_step_record(plan, step, 0, checked);
    ta_status status = gather_sized(plan, step, &own, &asked, stream);
    TA_TRY(ta_step_end(plan, step, status, &now));
    if (asked.status != TA_FAULT_ASKS)
        now = asked;
    if (checked != TA_OK || now.status == TA_OK)
        return checked;
    return ta_fail_of_fault(&now, "this", "nothing was stored", 1);
}

ta_status ta_append(ta_plan *plan, const ta_append_input *input, const ta_kv *kv,
                    const ta_call *call, void *stream)
{
    ta_append_input known;
    ta_step step = {0};
    TA_TRY(check_plan(plan));
    ta_status checked = ta_call_read(plan, call, &step); /* first: it sizes messages */
    ta_status read = read_input(plan, input, &known);
    step.tokens.dtype = known.dtype ? known.dtype : plan->problem.kv_dtype;
    if (read != TA_OK)
        checked = read;
    if (checked == TA_OK)
        checked = check(plan, &known, kv, stream, &step);
    if (known.source == TA_APPEND_HEADS && plan->ranks > 1)
        return append_scattered(plan, &step, checked, stream);
    if (checked != TA_OK)
        return checked;
    return plan->device->ops->append(plan->device, &step.problem, &step.kv, &step.tokens, stream);
}
