/* What a step of either ring sends and takes. In both, every rank makes the result of its part of
 * the query heads.
 *
 * pass-KV    the shards go around in two halves, p - 1 hops each, and a rank attends meanwhile
 * pass-Q     the parts' partials go around, p - 1 hops; attended with before, in one pass, or hop
 *            by hop if the queries are scattered and travel along */
#include "base/dtype.h"
#include "base/neighbors.h"
#include "base/partial.h"
#include "base/shard_map.h"
#include "base/status.h"
#include "predict.h"
#include "ring.h"

/* Above so many ranks all hops of pass-Q are taken to be as large as the largest. */
#define EXACT_RANKS 256

static size_t records_head_bytes(const ta_problem *p)
{
    return (size_t)ta_problem_rows(p) * (size_t)ta_record_floats(p->v_dim) * sizeof(float);
}

static int part_heads(const ta_step_shape *s, int rank)
{
    int heads = s->problem->query_heads;
    return ta_head_start(heads, s->ranks, rank + 1) - ta_head_start(heads, s->ranks, rank);
}

static double largest_part_bytes(const ta_step_shape *s)
{
    return (double)part_heads(s, s->ranks - 1) * (double)records_head_bytes(s->problem);
}

/* KV heads that the part with the most of them reads. */
static double part_kv_heads(const ta_step_shape *s)
{
    int group = s->problem->query_heads / s->problem->kv_heads, most = 0;
    for (int rank = 0; rank < s->ranks; ++rank) {
        int first = ta_head_start(s->problem->query_heads, s->ranks, rank);
        int heads = part_heads(s, rank);
        int kv_heads = heads ? (first + heads - 1) / group - first / group + 1 : 0;
        most = kv_heads > most ? kv_heads : most;
    }
    return most;
}

/* The finished parts go where the output belongs. */
static ta_status gather_parts(const ta_step_shape *s, ta_cost *cost)
{
    size_t each = records_head_bytes(s->problem);
    if (s->out_placement == TA_PLACE_HEADS)
        return TA_OK;
    if (s->out_placement == TA_PLACE_ROOT) {
        for (int rank = 0; rank < s->ranks; ++rank)
            if (rank != s->out_root && part_heads(s, rank)) {
                ta_cost_message(cost, rank, s->out_root, (uint64_t)part_heads(s, rank) * each);
                ta_cost_round(cost, "gather the parts");
            }
        return TA_OK;
    }
    return ta_cost_all_gather_divided(cost, "gather the parts", s->problem->query_heads, each);
}

/* Whether a rank has a fault: recursive doubling, which is as an all-reduce, or an all-gather. */
static ta_status exchange_fault(const ta_step_shape *s, ta_cost *cost)
{
    if (!s->device_memory) {
        ta_cost_all_reduce(cost, "agree", TA_FAULT_BYTES);
        return TA_OK;
    }
    return ta_cost_all_gather_divided(cost, "agree", s->ranks, TA_FAULT_BYTES);
}

ta_status ta_ring_kv_estimate(const ta_step_shape *s, ta_cost *cost)
{
    const ta_problem *p = s->problem;
    int32_t slice_tokens = ta_ring_slice_tokens(p);
    TA_TRY(exchange_fault(s, cost));
    if (s->query_placement != TA_PLACE_HEADS)
        TA_TRY(ta_predict_query(s, cost));
    for (int32_t first = 0; first < p->max_tokens; first += slice_tokens) {
        int32_t left = p->max_tokens - first;
        double tokens = left < slice_tokens ? left : slice_tokens;
        double scales = ta_dtype_is_narrow(p->kv_dtype) ? 2 * sizeof(float) : 0;
        double slice_bytes = ta_kv_bytes(p, tokens, p->kv_heads) +
                             (double)p->batch * tokens * (double)p->kv_heads * scales;
        double attend_s = ta_attend_s(s->cluster, ta_kv_bytes(p, tokens, part_kv_heads(s))) +
                          ta_cost_memory_s(s->cluster, 1, 3 * largest_part_bytes(s)); /* merge */
        ta_cost_local(cost, "pack K and V", ta_cost_memory_s(s->cluster, 1, 2 * slice_bytes));
        ta_cost_repeat(cost, s->ranks - 1);
        for (int rank = 0; rank < s->ranks; ++rank)
            ta_cost_message(cost, rank, ta_next_rank(rank, s->ranks), (uint64_t)slice_bytes);
        ta_cost_overlap(cost, attend_s);
        ta_cost_round(cost, "pass K and V, attend");
        ta_cost_local(cost, "attend", attend_s);
    }
    return gather_parts(s, cost);
}

static uint64_t partial_message(const ta_step_shape *s, int part, int with_query)
{
    const ta_problem *p = s->problem;
    uint64_t query =
        (uint64_t)ta_problem_rows(p) * (uint64_t)p->k_dim * ta_dtype_bytes(p->query_dtype);
    uint64_t each = records_head_bytes(p) + (with_query ? query : 0);
    return (uint64_t)part_heads(s, part) * each + TA_FAULT_BYTES;
}

/* A query that is scattered by heads travels with its partial from its rank all the way around, and
 * must arrive before it can be attended with; the last hop, home, is without it. Otherwise a
 * partial begins behind its rank. */
ta_status ta_ring_q_estimate(const ta_step_shape *s, ta_cost *cost)
{
    const ta_problem *p = s->problem;
    int travels = s->query_placement == TA_PLACE_HEADS, ranks = s->ranks;
    int hops = travels ? ranks : ranks - 1, repeats = ranks > EXACT_RANKS ? hops : 1;
    double kv_heads = travels ? part_kv_heads(s) : p->kv_heads;
    double attend_s = ta_attend_s(s->cluster, ta_kv_bytes(p, p->max_tokens, kv_heads));
    if (!travels)
        TA_TRY(ta_predict_query(s, cost));
    ta_cost_local(cost, "attend", travels ? ranks * attend_s : attend_s);
    ta_cost_local(cost, "copy parts", /* the first one out, the last one in */
                  ta_cost_memory_s(s->cluster, 2, 4 * largest_part_bytes(s)));
    for (int hop = 0; hop < hops; hop += repeats) {
        int with_query = travels && hop < ranks - 1;
        ta_cost_repeat(cost, repeats);
        for (int rank = 0; rank < ranks; ++rank) {
            int part = (rank + 2 * ranks - hop - !travels) % ranks;
            ta_cost_message(cost, rank,
                            ta_next_rank(rank, ranks), /* of many parts the last is largest */
                            partial_message(s, repeats > 1 ? ranks - 1 : part, with_query));
        }
        ta_cost_work(cost, 1, 3 * largest_part_bytes(s));
        ta_cost_round(cost, travels ? "pass queries and partials" : "pass partials");
    }
    return gather_parts(s, cost);
}
