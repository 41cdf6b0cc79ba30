/* One step of tree decode: move the query if it is not everywhere, attend to the local shard, merge
 * the partials of all ranks in one exchange, finish the heads that belong here. Called by api.c. */
#include "tree.h"

#include "../dtype.h"
#include "../exchange.h"
#include "../partial.h"
#include "../status.h"

/* Copy from the device to where other ranks can see it; returns when it is there. So whatever was
 * staged in by an earlier step has been read too, and its place may be written again. */
static ta_status stage_out(ta_plan *plan, void *to, const void *from, size_t bytes, void *stream)
{
    if (!ta_plan_stages(plan) || bytes == 0)
        return TA_OK;
    TA_TRY(plan->device->ops->copy(plan->device, to, from, bytes, stream));
    return plan->device->ops->synchronize(plan->device, stream);
}

static ta_status stage_in(ta_plan *plan, void *to, const void *from, size_t bytes, void *stream)
{
    if (!ta_plan_stages(plan) || bytes == 0)
        return TA_OK;
    return plan->device->ops->copy(plan->device, to, from, bytes, stream);
}

/* Bring the query to every rank. Afterwards *everywhere describes all query heads. */
static ta_status move_query(ta_plan *plan, const ta_tensor *q, const ta_fault *fault,
                            ta_tensor *everywhere, void *stream)
{
    const ta_problem *p = &plan->problem;
    if (!plan->query) {
        *everywhere = *q;
        return TA_OK;
    }
    int first, heads;
    ta_plan_heads(plan, plan->query_placement, plan->query_root, plan->rank, &first, &heads);
    int64_t rows = ta_problem_rows(p);
    size_t head_bytes = (size_t)(rows * p->k_dim) * ta_dtype_bytes(p->query_dtype);
    size_t all_bytes = (size_t)p->query_heads * head_bytes, before = (size_t)first * head_bytes;
    if (heads > 0 && fault->status == TA_OK) {
        char *packed = (char *)plan->query + before;
        TA_TRY(plan->device->ops->pack_query(plan->device, p, q, heads, packed, stream));
        TA_TRY(stage_out(plan, (char *)plan->exchange_query + before, packed,
                         (size_t)heads * head_bytes, stream));
    }
    if (plan->query_placement == TA_PLACE_ROOT)
        TA_TRY(ta_group_broadcast(plan->group, plan->exchange_query, all_bytes, plan->query_root,
                                  stream));
    else
        TA_TRY(ta_group_all_gather(plan->group, plan->exchange_query, plan->query_at, stream));
    *everywhere = (ta_tensor){.data = plan->query,
                              .batch_stride = (int64_t)p->query_tokens * p->k_dim,
                              .token_stride = p->k_dim,
                              .head_stride = rows * p->k_dim};
    if (fault->status != TA_OK) /* nothing will read it */
        return TA_OK;
    return stage_in(plan, plan->query, plan->exchange_query, all_bytes, stream);
}

ta_status ta_tree_decode(ta_plan *plan, const ta_tensor *q, const ta_kv *kv, const ta_tensor *out,
                         float *lse, ta_fault *fault, void *stream)
{
    const ta_problem *p = &plan->problem;
    ta_device *device = plan->device;
    int64_t head_floats = ta_problem_rows(p) * ta_record_floats(p->v_dim);
    size_t head_bytes = (size_t)head_floats * sizeof(float);
    ta_tensor query;
    TA_TRY(move_query(plan, q, fault, &query, stream));
    if (fault->status == TA_OK) {
        TA_TRY(device->ops->attend(device, p, &query, kv, plan->records, plan->attend, stream));
        TA_TRY(stage_out(plan, plan->exchange_records, plan->records,
                         (size_t)p->query_heads * head_bytes, stream));
    }
    TA_TRY(ta_exchange_run(plan, fault, stream));
    int first, heads;
    ta_plan_heads(plan, plan->out_placement, plan->out_root, plan->rank, &first, &heads);
    if (fault->status != TA_OK || heads == 0)
        return TA_OK;
    float *merged = plan->records + first * head_floats;
    TA_TRY(stage_in(plan, merged, plan->exchange_records + first * head_floats,
                    (size_t)heads * head_bytes, stream));
    return device->ops->finish(device, p, merged, first, heads, out, lse, stream);
}
