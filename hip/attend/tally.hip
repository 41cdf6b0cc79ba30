/* tally_splits. Grid: one block for each (sequence, KV head, row), tally_threads threads.
 * merge_tallies. Grid: one block for each tally, tally_threads threads.
 * finish_tallies. Grid: one block for each (head, row), tally_threads threads.
 *
 * Reproducible mode, in place of merge.hip and finish.hip: what the blocks of attend found in each
 * tile becomes a tally of integers, which does not depend on the order. What a tally is,
 * base/tally.h says; this is which thread has which sum. device.c and attend.c launch them. */
#include "rows.h"

static const int tally_threads = 128;

/* So few on a unit leave enough registers that none is spilled to fit more. */
static const int tally_blocks = 4;

TA_DEVICE int64_t *sum_words(float *tally, int32_t i)
{
    return reinterpret_cast<int64_t *>(tally) + 2 * static_cast<int64_t>(i);
}

TA_DEVICE ta_tally_sum load_sum(const float *tally, int32_t i)
{
    return ta_tally_load(reinterpret_cast<const int64_t *>(tally) + 2 * static_cast<int64_t>(i));
}

/* The tiles of a row that were written. */
TA_DEVICE int32_t count_tiles(const ta_merge_splits_params &p, int32_t sequence)
{
    const int32_t *bounds = ta_sequence_bounds(p.bounds, p.bounds_stride, sequence);
    ta_visible all = ta_tokens_see(p.problem, bounds, p.lengths[sequence]);
    if (all.first >= all.end)
        return 0;
    ta_cut cut = ta_cut_tokens(p.problem.tally_tile, p.splits, all.first, all.end);
    return (all.end - 1 - cut.first) / cut.split_tokens + 1;
}

/* The largest anchor of all tiles. `scratch` has a place for each thread. */
TA_DEVICE float find_anchor(const float *from, int64_t stride, int32_t tiles, int32_t v_dim,
                            float *scratch)
{
    int32_t thread = static_cast<int32_t>(threadIdx.x);
    float anchor = -INFINITY;
    for (int32_t tile = thread; tile < tiles; tile += tally_threads)
        anchor = ta_tally_anchor_max(anchor, ta_tally_anchor(from[tile * stride + v_dim]));
    scratch[thread] = anchor;
    for (int half = tally_threads / 2; half > 0; half /= 2) {
        ta_syncthreads();
        if (thread < half)
            scratch[thread] = ta_tally_anchor_max(scratch[thread], scratch[thread + half]);
    }
    ta_syncthreads();
    return scratch[0];
}

/* One sum over all tiles: element `i` of o, or l. */
TA_DEVICE ta_tally_sum add_tiles(const float *from, int64_t stride, int32_t tiles, int32_t v_dim,
                                 int32_t i, float anchor)
{
    ta_tally_sum sum = {0, 0, 0};
    for (const float *end = from + tiles * stride; from != end; from += stride) {
        float m = from[v_dim], own = ta_tally_anchor(m);
        if (own == -INFINITY)
            continue;
        double factor = static_cast<double>(ta_exp2(m - own));
        double y = static_cast<double>(from[i < v_dim ? i : v_dim + 1]) * factor;
        sum = ta_tally_add(sum, y, ta_tally_below(own, anchor));
    }
    return sum;
}

__global__ void __launch_bounds__(tally_threads, tally_blocks)
    tally_splits(ta_merge_splits_params p)
{
    TA_SHARED(float, scratch, [tally_threads]);
    int32_t v_dim = p.problem.v_dim;
    int32_t rows = p.problem.query_heads / p.problem.kv_heads * p.problem.query_tokens;
    int32_t row = static_cast<int32_t>(blockIdx.x % static_cast<uint32_t>(rows));
    int32_t head = static_cast<int32_t>(blockIdx.x / static_cast<uint32_t>(rows));
    int32_t sequence = head / p.problem.kv_heads, kv_head = head % p.problem.kv_heads;
    int32_t tiles = count_tiles(p, sequence);
    int64_t stride = static_cast<int64_t>(rows) * p.split_floats;
    const float *from =
        p.split_records +
        ta_split_record_index(p.problem, p.splits, sequence, kv_head, 0, row) * p.split_floats;
    float *to =
        p.records + ta_record_index(p.problem, sequence, kv_head, row) * ta_tally_floats(v_dim);
    float anchor = find_anchor(from, stride, tiles, v_dim, scratch);
    for (int32_t i = static_cast<int32_t>(threadIdx.x); i <= v_dim; i += tally_threads)
        ta_tally_store(add_tiles(from, stride, tiles, v_dim, i, anchor), sum_words(to, i));
    if (threadIdx.x == 0) {
        to[ta_tally_anchor_at(v_dim)] = anchor;
        to[ta_tally_anchor_at(v_dim) + 1] = 0.0f;
    }
}

__global__ void __launch_bounds__(tally_threads)
    merge_tallies(float *into, const float *from, int64_t records, int32_t v_dim, ta_fault *fault,
                  const ta_fault *theirs)
{
    if (fault && blockIdx.x == 0 && threadIdx.x == 0)
        *fault = ta_fault_merge(*fault, *theirs);
    for (int64_t i = blockIdx.x; i < records; i += gridDim.x) {
        float *a = into + i * ta_tally_floats(v_dim);
        const float *b = from + i * ta_tally_floats(v_dim);
        float anchor_a = a[ta_tally_anchor_at(v_dim)], anchor_b = b[ta_tally_anchor_at(v_dim)];
        float top = ta_tally_anchor_max(anchor_a, anchor_b);
        int lift_a = ta_tally_below(anchor_a, top), lift_b = ta_tally_below(anchor_b, top);
        ta_syncthreads(); /* all have read the anchor before it changes */
        for (int32_t c = static_cast<int32_t>(threadIdx.x); c <= v_dim; c += tally_threads)
            ta_tally_store(ta_tally_plus(ta_tally_reanchor(load_sum(a, c), lift_a),
                                         ta_tally_reanchor(load_sum(b, c), lift_b)),
                           sum_words(a, c));
        if (threadIdx.x == 0)
            a[ta_tally_anchor_at(v_dim)] = top;
    }
}

__global__ void __launch_bounds__(tally_threads) finish_tallies(ta_finish_params p)
{
    if (p.place.fault && p.place.fault->status != TA_OK) {
        if (blockIdx.x == 0 && threadIdx.x == 0) /* in one piece: the host may be looking */
            *reinterpret_cast<volatile uint64_t *>(p.place.report) =
                *reinterpret_cast<const uint64_t *>(p.place.fault);
        return;
    }
    int32_t v_dim = p.problem.v_dim;
    int64_t rows = static_cast<int64_t>(p.problem.batch) * p.problem.query_tokens;
    int64_t head = blockIdx.x / rows, row = blockIdx.x % rows;
    const float *tally = p.records + blockIdx.x * static_cast<int64_t>(ta_tally_floats(v_dim));
    float anchor = tally[ta_tally_anchor_at(v_dim)], sink = -INFINITY;
    if (p.problem.sinks)
        sink = p.problem.sinks[p.first_head + head] * TA_LOG2E;
    ta_tally_sum l = load_sum(tally, v_dim);
    ta_tally_end end = ta_tally_end_of(anchor, l, sink);
    int64_t at = row / p.problem.query_tokens * p.out.batch_stride +
                 row % p.problem.query_tokens * p.out.token_stride + head * p.out.head_stride;
    if (p.out.data)
        for (int32_t i = static_cast<int32_t>(threadIdx.x); i < v_dim; i += tally_threads)
            ta_store_element(p.problem.out_dtype, p.out.data, at + i,
                             ta_tally_value(anchor, load_sum(tally, i), l, end));
    if (p.lse && threadIdx.x == 0)
        p.lse[row * p.heads + head] = static_cast<float>(end.lse * TA_TALLY_LN2);
}

ta_launched ta_launch_tally_splits(const ta_merge_splits_params *params, void *stream)
{
    const ta_problem &p = params->problem;
    int64_t rows = static_cast<int64_t>(p.batch) * p.query_heads * p.query_tokens;
    ta_launch_result result =
        TA_LAUNCH(tally_splits, dim3(static_cast<unsigned>(rows)), tally_threads, 0,
                  static_cast<hipStream_t>(stream), *params);
    return ta_launched_of(result);
}

ta_launched ta_launch_merge_tallies(float *into, const float *from, int64_t records, int32_t v_dim,
                                    ta_fault *fault, const ta_fault *theirs, void *stream)
{
    unsigned blocks = static_cast<unsigned>(records < INT32_MAX ? records : INT32_MAX);
    if (blocks == 0)
        blocks = 1; /* for the fault */
    ta_launch_result result =
        TA_LAUNCH(merge_tallies, dim3(blocks), tally_threads, 0, static_cast<hipStream_t>(stream),
                  into, from, records, v_dim, fault, theirs);
    return ta_launched_of(result);
}

ta_launched ta_launch_finish_tallies(const ta_finish_params *params, void *stream)
{
    TA_NEED_TYPE("finish_tallies", params->problem.out_dtype);
    int64_t blocks =
        static_cast<int64_t>(params->problem.batch) * params->problem.query_tokens * params->heads;
    ta_launch_result result =
        TA_LAUNCH(finish_tallies, dim3(static_cast<unsigned>(blocks)), tally_threads, 0,
                  static_cast<hipStream_t>(stream), *params);
    return ta_launched_of(result);
}
