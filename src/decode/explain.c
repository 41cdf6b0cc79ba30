/* ta_explain(): a plan in words and numbers. */
#include "base/dtype.h"
#include "base/partial.h"
#include "base/status.h"
#include "base/text.h"
#include "explain_choice.h"
#include "plan.h"
#include "ring.h"
#include "step.h"

static const char *placement_name(ta_placement placement)
{
    switch (placement) {
    case TA_PLACE_ALL:
        return "all";
    case TA_PLACE_ROOT:
        return "root";
    default:
        return "heads";
    }
}

static void add_weights(const ta_plan *plan, ta_text *out)
{
    ta_text_add(out, "shard map: weighted block-cyclic, block %d, weights",
                (int)plan->problem.shard.block);
    for (int rank = 0; rank < plan->ranks; ++rank)
        ta_text_add(out, " %d", (int)(plan->turn_starts[rank + 1] - plan->turn_starts[rank]));
    ta_text_add(out, "\n");
}

static void add_work(const ta_plan *plan, ta_text *out)
{
    const ta_problem *p = &plan->problem;
    ta_text_add(out, "batch: %d\nquery tokens: %d\n", (int)p->batch, (int)p->query_tokens);
    if (ta_plan_combines(plan)) {
        ta_text_add(out, "combines: %d query heads of dim %d\n", (int)p->query_heads,
                    (int)p->v_dim);
        ta_text_add(out, "dtypes: %s in, %s out\n", ta_dtype_name(p->query_dtype),
                    ta_dtype_name(p->out_dtype));
        ta_text_add(out, "scores: the caller's%s\n", p->sinks ? ", sinks" : "");
        return;
    }
    ta_text_add(out, "heads: %d query, %d kv\n", (int)p->query_heads, (int)p->kv_heads);
    ta_text_add(out, "head dim: %d k, %d v\n", (int)p->k_dim, (int)p->v_dim);
    ta_text_add(out, "dtypes: %s query, %s kv, %s out\n", ta_dtype_name(p->query_dtype),
                ta_dtype_name(p->kv_dtype), ta_dtype_name(p->out_dtype));
    ta_text_add(out, "tokens per sequence and rank: at most %d\n", (int)p->max_tokens);
    if (plan->turn_starts)
        add_weights(plan, out);
    else if (p->shard.cyclic)
        ta_text_add(out, "shard map: block-cyclic, block %d\n", (int)p->shard.block);
    else if (p->shard.block)
        ta_text_add(out, "shard map: contiguous, %d tokens per rank\n", (int)p->shard.block);
    else
        ta_text_add(out, "shard map: contiguous%s\n",
                    plan->ranks > 1 ? ", bounds given with each call" : "");
    ta_text_add(out, "mask: %s", p->causal ? "causal" : "full");
    if (p->window)
        ta_text_add(out, ", window %d", (int)p->window);
    ta_text_add(out, "\nscores: scale %.9g", (double)p->scale);
    if (p->softcap > 0.0f)
        ta_text_add(out, ", softcap %.9g", (double)p->softcap);
    ta_text_add(out, "%s%s\n", p->alibi_slopes ? ", ALiBi" : "", p->sinks ? ", sinks" : "");
}

static void add_algorithm(const ta_plan *plan, ta_text *out)
{
    ta_text_add(out, "algorithm: %s\n", ta_algorithm_name(plan->algorithm));
    ta_text_add(out, "why: ");
    ta_choice_explain_algorithm(plan, out);
    ta_text_add(out, "\n");
}

static void add_ring(const ta_plan *plan, ta_text *out)
{
    const ta_problem *p = &plan->problem;
    int hops = plan->ranks - 1;
    if (plan->algorithm == TA_ALGORITHM_RING_Q) {
        int travels = plan->query_placement == TA_PLACE_HEADS;
        ta_text_add(out, "exchange: partials%s around the ring, %d hops of at most %zu bytes\n",
                    travels ? " and queries" : "", hops + travels, ta_ring_partial_bytes(plan));
    } else {
        size_t heads = (size_t)p->batch * (size_t)p->kv_heads;
        ta_text_add(out,
                    "exchange: K and V around the ring in %d slices, %d hops each of at most "
                    "%zu bytes\n",
                    p->max_tokens > 1 ? TA_RING_SLICES : 1, hops,
                    heads * ta_ring_slice_head_bytes(p));
    }
    if (plan->out_placement != TA_PLACE_HEADS)
        ta_text_add(out, "then: the parts to where the output belongs\n");
}

static void add_run(const ta_plan *plan, ta_text *out)
{
    const ta_problem *p = &plan->problem;
    long long partial = (long long)p->query_heads * ta_problem_rows(p) *
                        ta_problem_record_floats(p) * (long long)sizeof(float);
    add_algorithm(plan, out);
    if (!ta_plan_combines(plan))
        ta_text_add(out, "query: on %s%s\n", placement_name(plan->query_placement),
                    plan->query ? ", moved to all ranks each step" : "");
    ta_text_add(out, "output: on %s\n", placement_name(plan->out_placement));
    if (p->tally_tile)
        ta_text_add(out,
                    "reproducible: tiles of %d tokens, summed up in integers; the bits do not "
                    "depend on ranks, shard map or exchange\n",
                    (int)p->tally_tile);
    if (p->rounds_weights)
        ta_text_add(out, "weights: may be rounded to 16 bits, where a device multiplies such "
                         "numbers\n");
    ta_text_add(out, "partial: %lld bytes per rank\n", partial);
    if (ta_plan_is_ring(plan))
        add_ring(plan, out);
    ta_choice_explain(plan, out);
    if (ta_plan_stages(plan))
        ta_text_add(out, "staging: %zu bytes of pinned host memory\n", plan->staging.bytes);
    ta_text_add(out, "workspace: %zu bytes, %s\n", plan->memory_bytes,
                plan->owns_memory ? "the plan's own" : "the caller's");
}

/* Counted, not derived from the plan: what ta_decode() itself queued, copied and sent. */
static void add_last_step(const ta_plan *plan, ta_text *out)
{
    const ta_device_stats *device = &plan->last_step.device;
    const ta_group_stats *group = &plan->last_step.group;
    ta_text_add(out, "steps: %llu%s\n", (unsigned long long)plan->steps,
                plan->replays ? ", replayed from a graph" : "");
    if (plan->steps == 0)
        return;
    ta_text_add(out, "last step launches: %llu\n", (unsigned long long)device->launches);
    ta_text_add(out, "last step queued copies: %llu\n", (unsigned long long)device->copies);
    ta_text_add(out, "last step waits: %llu\n", (unsigned long long)device->waits);
    ta_text_add(out, "last step copies: %llu bytes to the device, %llu bytes from it\n",
                (unsigned long long)device->bytes_to_device,
                (unsigned long long)device->bytes_from_device);
    ta_text_add(out,
                "last step exchange: %llu messages and %llu bytes sent, %llu messages and %llu "
                "bytes received\n",
                (unsigned long long)group->messages_sent, (unsigned long long)group->bytes_sent,
                (unsigned long long)group->messages_received,
                (unsigned long long)group->bytes_received);
}

ta_status ta_explain(const ta_plan *plan, char *text, size_t capacity, size_t *needed_bytes)
{
    ta_text out;
    if (!plan)
        return ta_fail(TA_ERR_INVALID, "plan is NULL: make one with ta_plan_create()");
    TA_TRY(ta_text_open(&out, text, capacity));
    ta_text_add(&out, "device: %s\n", plan->device->name);
    plan->device->ops->describe(plan->device, &out);
    ta_text_add(&out, "group: %s, %d ranks, this is rank %d\n",
                plan->group ? plan->group->ops->name : "none", plan->ranks, plan->rank);
    add_work(plan, &out);
    add_run(plan, &out);
    add_last_step(plan, &out);
    return ta_text_close(&out, needed_bytes);
}
