/* One step of pass-KV: slices of all shards go around the ring, and each rank attends with its part
 * of the query heads to every slice that comes by, while the slice is on its way to the next rank.
 * Called by api.c; ring.h says what it shares with pass-Q. */
#include "base/dtype.h"
#include "base/neighbors.h"
#include "base/partial.h"
#include "base/shard_map.h"
#include "base/status.h"
#include "parts.h"
#include "ring.h"
#include "step.h"

typedef struct kv_step {
    ta_plan *plan;
    const ta_problem *problem; /* of the step */
    ta_tensor query;           /* of this rank's part */
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
    size_t scales = ta_dtype_is_narrow(p->kv_dtype) ? 2 * sizeof(float) : 0;
    return (size_t)slots *
           (((size_t)p->k_dim + (size_t)p->v_dim) * ta_dtype_bytes(p->kv_dtype) + scales);
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
static ta_problem slice_of(const kv_step *s, int owner, int slice)
{
    ta_problem p = *s->problem;
    p.max_tokens = ta_ring_slice_tokens(&p);
    ta_shard_set_rank(&p.shard, s->plan->turn_starts, owner);
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
        const int32_t *bounds = ta_kv_bounds(s->kv, b);
        ta_visible seen =
            ta_shard_seen(&slice->shard, bounds, s->kv->lengths[b],
                          ta_problem_query_tokens(slice, b), slice->causal, slice->window);
        if (seen.first < seen.end && seen.end > most)
            most = seen.end;
    }
    return most;
}

/* Attend to a slice in one of the buffers, and merge. */
static ta_status attend(kv_step *s, int owner, int slice, void *block)
{
    ta_plan *plan = s->plan;
    ta_problem p = slice_of(s, owner, slice);
    int64_t slots = count_slots(s, &p);
    if (s->idle || (slots == 0 && s->begun))
        return TA_OK;
    ta_kv kv = *s->kv;
    kv.page_table = NULL;
    kv.k = (ta_tensor){block, p.kv_heads * slots * p.k_dim, p.k_dim, slots * p.k_dim};
    kv.v = (ta_tensor){(char *)block +
                           (size_t)(p.batch * kv.k.batch_stride) * ta_dtype_bytes(p.kv_dtype),
                       p.kv_heads * slots * p.v_dim, p.v_dim, slots * p.v_dim};
    if (ta_dtype_is_narrow(p.kv_dtype)) { /* its scales are behind it, one for each vector */
        int64_t vectors = p.batch * p.kv_heads * slots;
        float *scales = (float *)(void *)((char *)block + vectors * (p.k_dim + p.v_dim));
        kv.k_scale = (ta_scales){scales, p.kv_heads * slots, 1, slots};
        kv.v_scale = (ta_scales){scales + vectors, p.kv_heads * slots, 1, slots};
    }
    float *fresh = s->begun ? plan->fresh : s->merged;
    TA_TRY(ta_part_attend(plan, &p, plan->rank, &s->query, &kv, fresh, s->stream));
    if (!s->begun) {
        s->begun = 1;
        return TA_OK;
    }
    int first, heads;
    ta_part(plan, plan->rank, &first, &heads);
    return ta_device_merge(plan->device, s->merged, fresh, heads * ta_problem_rows(&p), p.v_dim,
                           s->stream);
}

/* This rank's own slice goes out like any other: packed. */
static ta_status pack_own(kv_step *s, int slice)
{
    ta_plan *plan = s->plan;
    ta_problem p = slice_of(s, plan->rank, slice);
    int32_t slots = count_slots(s, &p);
    if (s->idle || slots == 0)
        return TA_OK;
    p.max_tokens = s->problem->max_tokens;
    TA_TRY(plan->device->ops->pack_kv(plan->device, &p, s->kv, slots, plan->slices[0], s->stream));
    return ta_staging_out(&plan->staging, plan->wire[0], plan->slices[0], block_bytes(&p, slots),
                          s->stream);
}

/* Send on the slice of `owner` that is in buffer `buffer`, and receive the one of the rank before
 * it into the other buffer. Slices without a token are not sent. */
static ta_status start(kv_step *s, int owner, int slice, int buffer)
{
    ta_plan *plan = s->plan;
    int ranks = plan->ranks;
    ta_problem out = slice_of(s, owner, slice);
    ta_problem in = slice_of(s, ta_previous_rank(owner, ranks), slice);
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
    ta_problem p = slice_of(s, owner, slice);
    size_t bytes = block_bytes(&p, count_slots(s, &p));
    if (!ta_plan_stages(plan) || bytes == 0)
        return TA_OK;
    TA_TRY(ta_staging_copy(&plan->staging, plan->slices[buffer], plan->wire[buffer], bytes,
                           s->stream));
    return ta_staging_wait(&plan->staging, s->stream);
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

/* All ranks hear of faults before anything is sent: what is sent has the size that the lengths
 * give, so that a rank with a fault, or with other lengths, could not take part. Where a device has
 * the lengths it tells of them when it attends, so there faults go last, and a rank that has one of
 * its own is idle until then; slices are whole, as the host does not know the lengths. */
static ta_status exchange_fault(ta_plan *plan, const ta_step *step, const ta_fault *own,
                                void *stream)
{
    TA_TRY(ta_end_fault(plan, &plan->fault_job, step, own, stream));
    if (ta_plan_stages(plan))
        TA_TRY(ta_staging_wait(&plan->staging, stream));
    return ta_exchange_run(&plan->fault_job, stream);
}

/* The fault that finish() has to look at, and the records. */
static ta_merge last_of(const ta_plan *plan)
{
    ta_merge last = plan->fault_job.last;
    last.records = plan->job.records;
    return last;
}

static ta_merge heard(const ta_plan *plan)
{
    return plan->fault_job.last;
}

static ta_status decode(ta_plan *plan, const ta_step *step, const ta_fault *own, void *stream)
{
    int first, heads;
    kv_step s = {.plan = plan, .problem = &step->problem, .kv = &step->kv, .stream = stream};
    s.idle = own->status != TA_OK;
    TA_TRY(ta_begin_fault(plan, &plan->fault_job, step, own, stream));
    if (!plan->lengths_hidden) {
        TA_TRY(exchange_fault(plan, step, own, stream));
        if (ta_step_failed(plan, &plan->fault_job))
            return TA_OK;
    }
    TA_TRY(ta_move_query(plan, step, own, &s.query, stream));
    ta_part(plan, plan->rank, &first, &heads);
    if (plan->query_placement != TA_PLACE_HEADS) /* else it is what this rank was given */
        s.query = ta_heads_from(s.query, first, plan->problem.query_dtype);
    int64_t before = ta_exchange_floats(&plan->job, first);
    s.merged = plan->records + before;
    int32_t slice_tokens = ta_ring_slice_tokens(&plan->problem);
    for (int slice = 0; slice * slice_tokens < plan->problem.max_tokens; ++slice)
        TA_TRY(pass(&s, slice));
    if (plan->lengths_hidden) {
        TA_TRY(exchange_fault(plan, step, own, stream));
        if (ta_step_failed(plan, &plan->fault_job))
            return TA_OK;
    }
    TA_TRY(ta_staging_out(&plan->staging, plan->job.records + before, s.merged,
                          (size_t)ta_exchange_floats(&plan->job, heads) * sizeof(float), stream));
    TA_TRY(ta_parts_gather(plan, stream));
    ta_merge last = last_of(plan);
    return ta_finish_heads(plan, &last, step, own, stream);
}

/* The fault alone is exchanged as a partial of no heads: on a host by doubling, and in device
 * memory by one all-gather, which takes no kernel but finish(). */
static void cut_fault(ta_plan *plan, ta_cutter *exchange)
{
    ta_exchange_job *job = &plan->fault_job;
    *job = plan->job;
    job->kind = ta_plan_tracks(plan) ? TA_EXCHANGE_ALL_GATHER : TA_EXCHANGE_DOUBLING;
    job->shape.heads = 0;
    job->chunks = 1;
    job->shape.placement = TA_PLACE_ALL;
    job->defers = ta_plan_tracks(plan);
    job->received = ta_cut(exchange, ta_exchange_received(job), ta_exchange_partial_bytes(job));
    job->records = ta_exchange_in_place(job) ? ta_exchange_own_records(job)
                                             : ta_cut(exchange, 1, ta_exchange_partial_bytes(job));
}

/* Slices of K and V on the device and, if they are staged, on the host too. */
static void cut(ta_plan *plan, ta_cutter *device, ta_cutter *exchange)
{
    const ta_problem *p = &plan->problem;
    size_t slice_heads = (size_t)p->batch * (size_t)p->kv_heads;
    int first, heads;
    ta_part(plan, plan->rank, &first, &heads);
    plan->fresh = ta_cut(device, (size_t)heads, plan->job.shape.head_bytes);
    for (int i = 0; i < 2; ++i) {
        plan->slices[i] = ta_cut(device, slice_heads, ta_ring_slice_head_bytes(p));
        plan->wire[i] = plan->slices[i];
        if (ta_plan_stages(plan))
            plan->wire[i] = ta_cut(exchange, slice_heads, ta_ring_slice_head_bytes(p));
    }
    cut_fault(plan, exchange);
}

static size_t attend_bytes(const ta_plan *plan)
{
    ta_problem p = plan->problem;
    p.max_tokens = ta_ring_slice_tokens(&p);
    return ta_part_attend_bytes(plan, &p, plan->rank);
}

const ta_algorithm_ops ta_ring_kv_algorithm = {.name = "ring-kv",
                                               .decode = decode,
                                               .cut = cut,
                                               .heard = heard,
                                               .attend_bytes = attend_bytes,
                                               .keeps_scattered_query = 1};
