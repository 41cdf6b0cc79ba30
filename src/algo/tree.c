/* One step of tree decode: move the query if it is not everywhere, attend to the local shard, merge
 * the partials of all ranks in one exchange, finish the heads that belong here. Called by api.c. */
#include "tree.h"

#include "../exchange.h"
#include "../partial.h"
#include "../status.h"
#include "step.h"

ta_status ta_tree_decode(ta_plan *plan, const ta_tensor *q, const ta_kv *kv, const ta_tensor *out,
                         float *lse, ta_fault *fault, void *stream)
{
    const ta_problem *p = &plan->problem;
    int64_t floats = p->query_heads * ta_problem_rows(p) * ta_record_floats(p->v_dim);
    ta_tensor query;
    TA_TRY(ta_move_query(plan, q, fault, &query, stream));
    if (fault->status == TA_OK) {
        TA_TRY(ta_plan_attend(plan, p, &query, kv, plan->records, stream));
        TA_TRY(ta_stage_out(plan, plan->exchange_records, plan->records,
                            (size_t)floats * sizeof(float), stream));
    }
    TA_TRY(ta_exchange_run(plan, fault, stream));
    return ta_finish_heads(plan, out, lse, fault, stream);
}
