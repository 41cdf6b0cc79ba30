/* One step of pass-KV: slices of all shards go around the ring, and each rank attends with its part
 * of the query heads to every slice that comes by, while the slice is on its way to the next rank.
 * Called by api.c; ring.h says what it shares with pass-Q. */
#include "base/dtype.h"
#include "base/neighbors.h"
#include "base/partial.h"
#include "base/status.h"
#include "exchange/messages.h"
#include "parts.h"
#include "ring.h"
#include "step.h"

typedef struct kv_step {
    ta_plan *plan;
    ta_tensor query; /* of this rank's part */
    const ta_kv *kv;
    float *merged; /* this rank's part */
    int begun;     /* `merged` has been written */
    int idle;      /* this rank has a fault: it passes on what comes, and has nothing of its own */
    void *stream;
} kv_step;

int32_t ta_ring_slice_tokens(const ta_problem *problem)
{
    return (problem->max_tokens + TA_RING_SLICES - 1) / TA_RING_SLICES;
}

static size_t head_bytes(const ta_problem *p, int32_t slots)
{
    return (size_t)slots * ((size_t)p->k_dim + (size_t)p->v_dim) * ta_dtype_bytes(p->kv_dtype);
}

size_t ta_ring_slice_head_bytes(const ta_problem *problem)
{
    return head_bytes(problem, ta_ring_slice_tokens(problem));
}

static size_t block_bytes(const ta_problem *p, int32_t slots)
{
    return (size_t)p->batch * (size_t)p->kv_heads * head_bytes(p, slots);
}

/* The problem of attending to one slice of `owner`'s shard. Its shard map gives the slice's tokens
 * their positions. */
static ta_problem slice_of(const ta_plan *plan, int owner, int slice)
{
    ta_problem p = plan->problem;
    p.max_tokens = ta_ring_slice_tokens(&p);
    p.shard.rank = owner;
    p.shard.slice_first = slice * p.max_tokens;
    p.shard.slice_tokens = p.max_tokens;
    return p;
}

/* Tokens of each sequence that the slice is sent with: up to the last one that any query sees. The
 * host cannot look at lengths in a device's memory: if any rank has such a device, all send slices
 * whole. */
static int32_t count_slots(const kv_step *s, const ta_problem *slice)
{
    int32_t most = 0;
    if (s->plan->lengths_hidden)
        return slice->max_tokens;
    for (int32_t b = 0; b < slice->batch; ++b) {
        const int32_t *bounds = s->kv->bounds ? s->kv->bounds + b * s->kv->bounds_stride : NULL;
        ta_visible seen = ta_shard_seen(&slice->shard, bounds, s->kv->lengths[b],
                                        slice->query_tokens, slice->causal, slice->window);
        if (seen.first < seen.end && seen.end > most)
            most = seen.end;
    }
    return most;
}

/* Attend to a slice in one of the buffers, and merge. */
static ta_status attend(kv_step *s, int owner, int slice, void *block)
{
    ta_plan *plan = s->plan;
    ta_problem p = slice_of(plan, owner, slice);
    int64_t slots = count_slots(s, &p);
    if (s->idle || (slots == 0 && s->begun))
        return TA_OK;
    ta_kv kv = *s->kv;
    kv.page_table = NULL;
    kv.k = (ta_tensor){block, p.kv_heads * slots * p.k_dim, p.k_dim, slots * p.k_dim};
    kv.v = (ta_tensor){(char *)block +
                           (size_t)(p.batch * kv.k.batch_stride) * ta_dtype_bytes(p.kv_dtype),
                       p.kv_heads * slots * p.v_dim, p.v_dim, slots * p.v_dim};
    float *fresh = s->begun ? plan->fresh : s->merged;
    TA_TRY(ta_part_attend(plan, &p, plan->rank, &s->query, &kv, fresh, s->stream));
    if (!s->begun) {
        s->begun = 1;
        return TA_OK;
    }
    int first, heads;
    ta_part(plan, plan->rank, &first, &heads);
    return plan->device->ops->merge(plan->device, s->merged, fresh, heads * ta_problem_rows(&p),
                                    p.v_dim, s->stream);
}

/* This rank's own slice goes out like any other: packed. */
static ta_status pack_own(kv_step *s, int slice)
{
    ta_plan *plan = s->plan;
    ta_problem p = slice_of(plan, plan->rank, slice);
    int32_t slots = count_slots(s, &p);
    if (s->idle || slots == 0)
        return TA_OK;
    p.max_tokens = plan->problem.max_tokens;
    TA_TRY(plan->device->ops->pack_kv(plan->device, &p, s->kv, slots, plan->slices[0], s->stream));
    return ta_stage_out(plan, plan->wire[0], plan->slices[0], block_bytes(&p, slots), s->stream);
}

/* Send on the slice of `owner` that is in buffer `buffer`, and receive the one of the rank before
 * it into the other buffer. Slices without a token are not sent. */
static ta_status start(kv_step *s, int owner, int slice, int buffer)
{
    ta_plan *plan = s->plan;
    int ranks = plan->ranks;
    ta_problem out = slice_of(plan, owner, slice);
    ta_problem in = slice_of(plan, ta_previous_rank(owner, ranks), slice);
    size_t out_bytes = block_bytes(&out, count_slots(s, &out));
    size_t in_bytes = block_bytes(&in, count_slots(s, &in));
    return ta_group_start(plan->group, plan->wire[buffer], out_bytes,
                          out_bytes ? ta_next_rank(plan->rank, ranks) : -1, plan->wire[1 - buffer],
                          in_bytes, in_bytes ? ta_previous_rank(plan->rank, ranks) : -1, s->stream);
}

/* What arrived is needed on the device; its buffer on the host may be written again after this. */
static ta_status bring_in(kv_step *s, int owner, int slice, int buffer)
{
    ta_plan *plan = s->plan;
    ta_problem p = slice_of(plan, owner, slice);
    size_t bytes = block_bytes(&p, count_slots(s, &p));
    if (!ta_plan_stages(plan) || bytes == 0)
        return TA_OK;
    TA_TRY(ta_stage_in(plan, plan->slices[buffer], plan->wire[buffer], bytes, s->stream));
    return plan->device->ops->synchronize(plan->device, s->stream);
}

/* The same slice of all shards goes around once. */
static ta_status pass(kv_step *s, int slice)
{
    ta_plan *plan = s->plan;
    int ranks = plan->ranks;
    TA_TRY(pack_own(s, slice));
    for (int hop = 0; hop < ranks; ++hop) {
        int owner = (plan->rank + ranks - hop) % ranks, buffer = hop % 2;
        if (hop > 0)
            TA_TRY(bring_in(s, owner, slice, buffer));
        if (hop == ranks - 1)
            return attend(s, owner, slice, plan->slices[buffer]);
        TA_TRY(start(s, owner, slice, buffer));
        ta_status attended = attend(s, owner, slice, plan->slices[buffer]);
        TA_TRY(ta_end_exchange(plan, attended, s->stream));
    }
    return TA_OK;
}

/* In device memory: the host does not hear of it before the step has run, and the step goes on with
 * a rank that is idle. Its slices are whole, as the host does not know the lengths. */
static ta_status agree_on_device(ta_plan *plan, const ta_fault *fault, void *stream)
{
    ta_fault *worst = ta_tracked_fault(plan);
    TA_TRY(plan->device->ops->copy(plan->device, worst, &plan->faults[-fault->status],
                                   sizeof *worst, stream));
    return ta_group_all_reduce(plan->group, worst, worst, 1, TA_ELEMENT_I64, TA_REDUCE_MAX, stream);
}

/* What is sent has the size that the lengths give, so that a rank with a fault could not take part.
 * All ranks hear of the lowest rank that has one before anything is sent. */
static ta_status agree_on_fault(ta_plan *plan, ta_fault *fault, void *stream)
{
    int64_t worst = 0;
    if (ta_plan_tracks(plan))
        return agree_on_device(plan, fault, stream);
    if (fault->status != TA_OK)
        worst = (int64_t)(plan->ranks - plan->rank) << 32 | -fault->status;
    TA_TRY(
        ta_group_all_reduce(plan->group, &worst, &worst, 1, TA_ELEMENT_I64, TA_REDUCE_MAX, stream));
    if (worst)
        *fault = (ta_fault){-(int32_t)(worst & INT32_MAX), plan->ranks - (int32_t)(worst >> 32)};
    return TA_OK;
}

ta_status ta_ring_kv_decode(ta_plan *plan, const ta_tensor *q, const ta_kv *kv,
                            const ta_tensor *out, float *lse, ta_fault *fault, void *stream)
{
    int first, heads;
    kv_step s = {.plan = plan, .kv = kv, .stream = stream};
    TA_TRY(agree_on_fault(plan, fault, stream));
    if (fault->status != TA_OK && !ta_plan_tracks(plan))
        return TA_OK;
    s.idle = fault->status != TA_OK;
    TA_TRY(ta_move_query(plan, q, fault, &s.query, stream));
    ta_part(plan, plan->rank, &first, &heads);
    if (plan->query_placement != TA_PLACE_HEADS) /* else it is what this rank was given */
        s.query = ta_heads_from(s.query, first, plan->problem.query_dtype);
    s.merged = plan->records + ta_part_floats(plan, first);
    int32_t slice_tokens = ta_ring_slice_tokens(&plan->problem);
    for (int slice = 0; slice * slice_tokens < plan->problem.max_tokens; ++slice)
        TA_TRY(pass(&s, slice));
    TA_TRY(ta_stage_out(plan, plan->exchange_records + ta_part_floats(plan, first), s.merged,
                        (size_t)ta_part_floats(plan, heads) * sizeof(float), stream));
    TA_TRY(ta_parts_gather(plan, stream));
    return ta_finish_heads(plan, out, lse, fault, stream);
}
