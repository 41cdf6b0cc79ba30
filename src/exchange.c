/* The exchange of packed partials, for any number of ranks.
 *
 * Everywhere: recursive doubling. Ranks beyond the largest power of two first fold into a
 * neighbour, and get the result from it in the end. The merge is exactly commutative, so all ranks
 * have the same bits. Scattered by heads: the same, with halving: each round sends the half of the
 * heads that is complete on the other side. Root: a binomial tree. See docs/walkthrough.md for a
 * picture. */
#include "exchange.h"

#include <string.h>

#include "partial.h"
#include "shard_map.h"
#include "status.h"

/* Positions are the ranks that take part after folding; a power of two of them, in rank order. */
typedef struct layout {
    int ranks, positions, extras;
} layout;

static layout make_layout(int ranks)
{
    layout l = {ranks, 1, 0};
    while (l.positions * 2 <= ranks)
        l.positions *= 2;
    l.extras = ranks - l.positions;
    return l;
}

/* Among the first 2 · extras ranks, the even one of each pair folds into the odd one. */
static int folds(const layout *l, int rank)
{
    return rank < 2 * l->extras && rank % 2 == 0;
}

static int position_of(const layout *l, int rank)
{
    return rank < 2 * l->extras ? rank / 2 : rank - l->extras;
}

static int rank_at(const layout *l, int position)
{
    return position < l->extras ? 2 * position + 1 : position + l->extras;
}

/* The first rank whose heads a position collects; position = positions gives the end. */
static int first_rank_at(const layout *l, int position)
{
    return position < l->extras ? 2 * position : position + l->extras;
}

/* A range of heads of the partial, as it is sent: its records, then the fault. */
typedef struct range {
    int first, end;
} range;

static int64_t range_floats(const ta_plan *plan, range heads)
{
    return (heads.end - heads.first) * ta_problem_rows(&plan->problem) *
           ta_record_floats(plan->problem.v_dim);
}

static size_t message_bytes(const ta_plan *plan, range heads)
{
    return (size_t)range_floats(plan, heads) * sizeof(float) + sizeof(ta_fault);
}

static float *records_at(const ta_plan *plan, int head)
{
    return plan->exchange_records + range_floats(plan, (range){0, head});
}

/* The fault of the step, if it is in device memory. */
static ta_fault *tracked_fault(const ta_plan *plan)
{
    return (ta_fault *)records_at(plan, plan->problem.query_heads);
}

/* The message for a range. The last range has room for the fault behind it, others are copied. */
static ta_status pack(ta_plan *plan, range heads, const ta_fault *fault, const void **message,
                      void *stream)
{
    int64_t floats = range_floats(plan, heads);
    float *packed = records_at(plan, heads.first);
    ta_device *device = plan->exchange_device;
    if (heads.end != plan->problem.query_heads) {
        TA_TRY(
            device->ops->copy(device, plan->sent, packed, (size_t)floats * sizeof(float), stream));
        packed = plan->sent;
    }
    *message = packed;
    if (ta_plan_tracks(plan))
        fault = tracked_fault(plan);
    if ((const void *)fault == packed + floats)
        return TA_OK;
    return device->ops->copy(device, packed + floats, fault, sizeof *fault, stream);
}

static ta_status send_to(ta_plan *plan, int to, range heads, const ta_fault *fault, void *stream)
{
    const void *message;
    TA_TRY(pack(plan, heads, fault, &message, stream));
    return ta_group_exchange(plan->group, message, message_bytes(plan, heads), to, NULL, 0, -1,
                             stream);
}

/* Take what arrived in plan->received into the range. */
static ta_status merge_received(ta_plan *plan, range heads, ta_fault *fault, void *stream)
{
    ta_device *device = plan->exchange_device;
    const float *behind = plan->received + range_floats(plan, heads);
    ta_fault theirs;
    if (ta_plan_tracks(plan))
        return device->ops->merge_tracking(
            device, records_at(plan, heads.first), plan->received,
            (heads.end - heads.first) * ta_problem_rows(&plan->problem), plan->problem.v_dim,
            tracked_fault(plan), (const ta_fault *)behind, stream);
    TA_TRY(device->ops->copy(device, &theirs, behind, sizeof theirs, stream));
    *fault = ta_fault_merge(*fault, theirs);
    if (fault->status != TA_OK) /* nobody will read the result, but an earlier one may be in use */
        return TA_OK;
    int64_t records = (heads.end - heads.first) * ta_problem_rows(&plan->problem);
    return device->ops->merge(device, records_at(plan, heads.first), plan->received, records,
                              plan->problem.v_dim, stream);
}

static ta_status merge_from(ta_plan *plan, int from, range heads, ta_fault *fault, void *stream)
{
    TA_TRY(ta_group_exchange(plan->group, NULL, 0, -1, plan->received, message_bytes(plan, heads),
                             from, stream));
    return merge_received(plan, heads, fault, stream);
}

/* Give `given` to a partner and merge the `kept` that comes from it. */
static ta_status swap_with(ta_plan *plan, int partner, range given, range kept, ta_fault *fault,
                           void *stream)
{
    const void *message;
    TA_TRY(pack(plan, given, fault, &message, stream));
    TA_TRY(ta_group_exchange(plan->group, message, message_bytes(plan, given), partner,
                             plan->received, message_bytes(plan, kept), partner, stream));
    return merge_received(plan, kept, fault, stream);
}

/* take_from() in device memory: the message goes where its records belong. The fault behind them
 * may take the place of records of other heads, which nobody needs any more. */
static ta_status take_tracking(ta_plan *plan, int from, range heads, void *stream)
{
    ta_device *device = plan->exchange_device;
    float *records = records_at(plan, heads.first);
    TA_TRY(ta_group_exchange(plan->group, NULL, 0, -1, records, message_bytes(plan, heads), from,
                             stream));
    if (heads.end == plan->problem.query_heads)
        return TA_OK;
    return device->ops->copy(device, tracked_fault(plan), records + range_floats(plan, heads),
                             sizeof(ta_fault), stream);
}

/* Receive finished records in place of this rank's own. */
static ta_status take_from(ta_plan *plan, int from, range heads, ta_fault *fault, void *stream)
{
    ta_device *device = plan->exchange_device;
    size_t bytes = message_bytes(plan, heads);
    if (ta_plan_tracks(plan))
        return take_tracking(plan, from, heads, stream);
    TA_TRY(ta_group_exchange(plan->group, NULL, 0, -1, plan->received, bytes, from, stream));
    TA_TRY(device->ops->copy(device, fault, plan->received + range_floats(plan, heads),
                             sizeof *fault, stream));
    if (fault->status != TA_OK)
        return TA_OK;
    return device->ops->copy(device, records_at(plan, heads.first), plan->received,
                             bytes - sizeof *fault, stream);
}

static ta_status to_all(ta_plan *plan, range all, ta_fault *fault, void *stream)
{
    layout l = make_layout(plan->ranks);
    int rank = plan->rank;
    if (folds(&l, rank)) {
        TA_TRY(send_to(plan, rank + 1, all, fault, stream));
        return take_from(plan, rank + 1, all, fault, stream);
    }
    int unfolds = rank < 2 * l.extras;
    if (unfolds)
        TA_TRY(merge_from(plan, rank - 1, all, fault, stream));
    for (int distance = 1; distance < l.positions; distance *= 2) {
        int partner = rank_at(&l, position_of(&l, rank) ^ distance);
        TA_TRY(swap_with(plan, partner, all, all, fault, stream));
    }
    return unfolds ? send_to(plan, rank - 1, all, fault, stream) : TA_OK;
}

static range heads_between(const ta_plan *plan, int first_rank, int end_rank)
{
    int heads = plan->problem.query_heads;
    return (range){ta_head_start(heads, plan->ranks, first_rank),
                   ta_head_start(heads, plan->ranks, end_rank)};
}

static ta_status to_heads(ta_plan *plan, ta_fault *fault, void *stream)
{
    layout l = make_layout(plan->ranks);
    int rank = plan->rank, position = position_of(&l, rank);
    range all = {0, plan->problem.query_heads};
    if (folds(&l, rank)) {
        TA_TRY(send_to(plan, rank + 1, all, fault, stream));
        return take_from(plan, rank + 1, heads_between(plan, rank, rank + 1), fault, stream);
    }
    int unfolds = rank < 2 * l.extras;
    if (unfolds)
        TA_TRY(merge_from(plan, rank - 1, all, fault, stream));
    for (int first = 0, count = l.positions; count > 1;) {
        count /= 2;
        int upper = position >= first + count;
        range low = heads_between(plan, first_rank_at(&l, first), first_rank_at(&l, first + count));
        range high = heads_between(plan, first_rank_at(&l, first + count),
                                   first_rank_at(&l, first + 2 * count));
        int partner = rank_at(&l, upper ? position - count : position + count);
        TA_TRY(swap_with(plan, partner, upper ? low : high, upper ? high : low, fault, stream));
        first += upper ? count : 0;
    }
    if (!unfolds)
        return TA_OK;
    return send_to(plan, rank - 1, heads_between(plan, rank - 1, rank), fault, stream);
}

static ta_status to_root(ta_plan *plan, range all, ta_fault *fault, void *stream)
{
    int ranks = plan->ranks, place = (plan->rank + ranks - plan->out_root) % ranks;
    for (int distance = 1; distance < ranks; distance *= 2) {
        if (place & distance)
            return send_to(plan, (plan->rank + ranks - distance) % ranks, all, fault, stream);
        if (place + distance < ranks)
            TA_TRY(merge_from(plan, (plan->rank + distance) % ranks, all, fault, stream));
    }
    return TA_OK;
}

ta_status ta_exchange_chunk(ta_plan *plan, int chunk, ta_fault *fault, void *stream)
{
    range heads;
    if (plan->ranks == 1)
        return TA_OK;
    if (ta_plan_tracks(plan))
        TA_TRY(plan->device->ops->copy(plan->device, tracked_fault(plan),
                                       &plan->faults[-fault->status], sizeof *fault, stream));
    ta_plan_chunk(plan, chunk, &heads.first, &heads.end);
    switch (plan->out_placement) {
    case TA_PLACE_ROOT:
        return to_root(plan, heads, fault, stream);
    case TA_PLACE_HEADS:
        return to_heads(plan, fault, stream);
    default:
        return to_all(plan, heads, fault, stream);
    }
}

ta_status ta_exchange_run(ta_plan *plan, ta_fault *fault, void *stream)
{
    for (int chunk = 0; chunk < ta_plan_chunks(plan); ++chunk)
        TA_TRY(ta_exchange_chunk(plan, chunk, fault, stream));
    return TA_OK;
}
