/* Parts of the query heads: see parts.h. */
#include "parts.h"

#include "base/dtype.h"
#include "base/status.h"
#include "step.h"

void ta_part(const ta_plan *plan, int rank, int *first, int *heads)
{
    ta_plan_heads(plan, TA_PLACE_HEADS, 0, rank, first, heads);
}

/* Query heads that a device can attend with in one call: all of the query heads of some KV heads,
 * or some of those of one KV head. */
typedef struct piece {
    int first, heads, kv_first, kv_heads;
} piece;

/* The piece from `first` on, within heads that end at `end`. A part has three of them at most. */
static piece piece_from(const ta_problem *p, int first, int end)
{
    int group = p->query_heads / p->kv_heads;
    piece c = {first, group - first % group, first / group, 1};
    if (first % group == 0 && end - first >= group) {
        c.kv_heads = (end - first) / group;
        c.heads = c.kv_heads * group;
    }
    if (c.heads > end - first)
        c.heads = end - first;
    return c;
}

static ta_problem problem_of(const ta_problem *p, piece c)
{
    ta_problem part = *p;
    part.query_heads = c.heads;
    part.kv_heads = c.kv_heads;
    if (part.alibi_slopes)
        part.alibi_slopes += c.first;
    part.sinks = NULL; /* finish() takes care of them */
    if (part.selected_lists > 1)
        part.selected += (int64_t)c.kv_first * part.selected_count;
    return part;
}

size_t ta_part_attend_bytes(const ta_plan *plan, const ta_problem *problem, int rank)
{
    int first, heads;
    size_t most = 0;
    ta_part(plan, rank, &first, &heads);
    for (int end = first + heads; first < end;) {
        piece c = piece_from(problem, first, end);
        ta_problem part = problem_of(problem, c);
        size_t bytes = plan->device->ops->attend_bytes(plan->device, &part);
        most = bytes > most ? bytes : most;
        first += c.heads;
    }
    return most;
}

ta_tensor ta_heads_from(ta_tensor tensor, int first, ta_dtype dtype)
{
    if (tensor.data)
        tensor.data =
            (char *)tensor.data + first * tensor.head_stride * (int64_t)ta_dtype_bytes(dtype);
    return tensor;
}

ta_status ta_part_attend(ta_plan *plan, const ta_problem *problem, int rank, const ta_tensor *q,
                         const ta_kv *kv, float *records, void *stream)
{
    int first, heads;
    ta_part(plan, rank, &first, &heads);
    for (int at = first, end = first + heads; at < end;) {
        piece c = piece_from(problem, at, end);
        ta_problem part = problem_of(problem, c);
        ta_tensor query = ta_heads_from(*q, at - first, problem->query_dtype);
        ta_kv cache = *kv;
        cache.k = ta_heads_from(cache.k, c.kv_first, problem->kv_dtype);
        cache.v = ta_heads_from(cache.v, c.kv_first, problem->kv_dtype);
        if (cache.k_scale.data)
            cache.k_scale.data += c.kv_first * cache.k_scale.head_stride;
        if (cache.v_scale.data)
            cache.v_scale.data += c.kv_first * cache.v_scale.head_stride;
        TA_TRY(ta_plan_attend(plan, &part, &query, &cache,
                              records + ta_exchange_floats(&plan->job, at - first), stream));
        at += c.heads;
    }
    return TA_OK;
}

/* Everybody sends its part to the root. */
static ta_status gather_at_root(ta_plan *plan, void *stream)
{
    char *records = (char *)plan->job.records;
    const size_t *at = plan->part_at;
    int rank = plan->rank, root = plan->out_root;
    if (rank != root)
        return at[rank + 1] == at[rank]
                   ? TA_OK
                   : ta_group_exchange(plan->group, records + at[rank], at[rank + 1] - at[rank],
                                       root, NULL, 0, -1, stream);
    for (int r = 0; r < plan->ranks; ++r)
        if (r != root && at[r + 1] > at[r])
            TA_TRY(ta_group_exchange(plan->group, NULL, 0, -1, records + at[r], at[r + 1] - at[r],
                                     r, stream));
    return TA_OK;
}

ta_status ta_parts_gather(ta_plan *plan, void *stream)
{
    switch (plan->out_placement) {
    case TA_PLACE_ROOT:
        return gather_at_root(plan, stream);
    case TA_PLACE_HEADS:
        return TA_OK;
    default:
        return ta_group_all_gather(plan->group, plan->job.records, plan->part_at, stream);
    }
}
