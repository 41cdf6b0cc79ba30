/* One step of tree decode: move the query if it is not everywhere, attend to the local shard, merge
 * the partials of all ranks in one exchange, finish the heads that belong here. Called by api.c. */
#include "tree.h"

#include "base/partial.h"
#include "base/status.h"
#include "exchange/exchange.h"
#include "step.h"

/* Begin to copy a chunk of the records from the device to where other ranks can see it. */
static ta_status begin_staging(ta_plan *plan, int chunk, void *stream)
{
    const ta_problem *p = &plan->problem;
    int64_t head_floats = ta_problem_rows(p) * ta_problem_record_floats(p);
    int first, end;
    ta_plan_chunk(plan, chunk, &first, &end);
    return plan->device->ops->copy(plan->device, plan->exchange_records + first * head_floats,
                                   plan->records + first * head_floats,
                                   (size_t)((end - first) * head_floats) * sizeof(float), stream);
}

/* While a chunk is exchanged, the next one is copied. */
static ta_status exchange_staged(ta_plan *plan, ta_fault *fault, void *stream)
{
    int own_fault = fault->status != TA_OK; /* then there are no records */
    if (!own_fault)
        TA_TRY(begin_staging(plan, 0, stream));
    for (int chunk = 0; chunk < ta_plan_chunks(plan); ++chunk) {
        if (!own_fault)
            TA_TRY(plan->device->ops->synchronize(plan->device, stream));
        if (!own_fault && chunk + 1 < ta_plan_chunks(plan))
            TA_TRY(begin_staging(plan, chunk + 1, stream));
        TA_TRY(ta_exchange_chunk(plan, chunk, fault, stream));
    }
    return TA_OK;
}

ta_status ta_tree_decode(ta_plan *plan, const ta_tensor *q, const ta_kv *kv, const ta_tensor *out,
                         float *lse, ta_fault *fault, void *stream)
{
    const ta_problem *p = &plan->problem;
    ta_tensor query;
    TA_TRY(ta_move_query(plan, q, fault, &query, stream));
    if (fault->status == TA_OK)
        TA_TRY(ta_plan_attend(plan, p, &query, kv, plan->records, stream));
    if (ta_plan_stages(plan))
        TA_TRY(exchange_staged(plan, fault, stream));
    else
        TA_TRY(ta_exchange_run(plan, fault, stream));
    return ta_finish_heads(plan, out, lse, fault, stream);
}
