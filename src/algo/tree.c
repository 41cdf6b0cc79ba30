/* One step of tree decode: move the query if it is not everywhere, attend to the local shard, merge
 * the partials of all ranks in one exchange, finish the heads that belong here. Called by api.c. */
#include "tree.h"

#include "../dtype.h"
#include "../exchange.h"
#include "../partial.h"
#include "../status.h"

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
    if (heads > 0 && fault->status == TA_OK)
        TA_TRY(plan->device->ops->pack_query(
            plan->device, p, q, heads, (char *)plan->query + (size_t)first * head_bytes, stream));
    *everywhere = (ta_tensor){.data = plan->query,
                              .batch_stride = (int64_t)p->query_tokens * p->k_dim,
                              .token_stride = p->k_dim,
                              .head_stride = rows * p->k_dim};
    if (plan->query_placement == TA_PLACE_ROOT)
        return ta_group_broadcast(plan->group, plan->query, (size_t)p->query_heads * head_bytes,
                                  plan->query_root, stream);
    return ta_group_all_gather(plan->group, plan->query, plan->query_at, stream);
}

ta_status ta_tree_decode(ta_plan *plan, const ta_tensor *q, const ta_kv *kv, const ta_tensor *out,
                         float *lse, ta_fault *fault, void *stream)
{
    const ta_problem *p = &plan->problem;
    ta_device *device = plan->device;
    ta_tensor query;
    TA_TRY(move_query(plan, q, fault, &query, stream));
    if (fault->status == TA_OK)
        TA_TRY(device->ops->attend(device, p, &query, kv, plan->records, plan->attend, stream));
    TA_TRY(ta_exchange_run(plan, fault, stream));
    int first, heads;
    ta_plan_heads(plan, plan->out_placement, plan->out_root, plan->rank, &first, &heads);
    if (fault->status != TA_OK || heads == 0)
        return TA_OK;
    int64_t records_before = first * ta_problem_rows(p);
    return device->ops->finish(device, p,
                               plan->records + records_before * ta_record_floats(p->v_dim), first,
                               heads, out, lse, stream);
}
