/* tally_splits. Grid: one block for each (head, row), tally_threads threads.
 * merge_tallies. Grid: one block for each tally that is taken in or sent, tally_threads threads.
 * finish_tallies. Grid: one block for each (head, row), tally_threads threads. Merges what arrived
 * last.
 *
 * Reproducible mode, in place of merge.hip: what the blocks of attend found in each
 * tile becomes a tally of integers, which does not depend on the order. What a tally is,
 * base/tally.h says; this is which thread has which sum. device.c and attend.c launch them. */
#include "arrived.h"

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

TA_DEVICE void store_anchor(float *tally, int32_t v_dim, float anchor)
{
    tally[ta_tally_anchor_at(v_dim)] = anchor;
    tally[ta_tally_anchor_at(v_dim) + 1] = 0.0f;
}

/* The tiles of a row that were written. */
TA_DEVICE int32_t count_tiles(const ta_merge_splits_params &p, int32_t sequence)
{
    const int32_t *bounds = ta_sequence_bounds(p.bounds, p.bounds_stride, sequence);
    ta_visible all = ta_tokens_see(p.problem, bounds, p.lengths[sequence], sequence);
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
    ta_merged_row r = ta_find_merged_row(p.problem);
    int32_t tiles = count_tiles(p, r.sequence);
    int64_t stride = ta_split_record_index(p.problem, p.splits, 0, 1, 0) * p.split_floats;
    const float *from =
        p.split_records +
        ta_split_record_index(p.problem, p.splits, r.head, 0, r.row) * p.split_floats;
    float *to = p.records + static_cast<int64_t>(blockIdx.x) * ta_tally_floats(v_dim);
    float anchor = find_anchor(from, stride, tiles, v_dim, scratch);
    for (int32_t i = static_cast<int32_t>(threadIdx.x); i <= v_dim; i += tally_threads)
        ta_tally_store(add_tiles(from, stride, tiles, v_dim, i, anchor), sum_words(to, i));
    if (threadIdx.x == 0)
        store_anchor(to, v_dim, anchor);
}

/* The largest anchor of a tally and of all that is merged into it. */
TA_DEVICE float merge_anchors(const ta_arrived &r, int32_t v_dim)
{
    float top = r.own[ta_tally_anchor_at(v_dim)];
#pragma unroll 1
    for (int32_t i = 0; i < r.messages; i++)
        top = ta_tally_anchor_max(top, r.others[i * r.stride + ta_tally_anchor_at(v_dim)]);
    return top;
}

/* Its sum number `i` after all merges, at the anchor `top`; `own` is its own anchor. */
TA_DEVICE ta_tally_sum merge_sums(const ta_arrived &r, int32_t i, int32_t v_dim, float own,
                                  float top)
{
    ta_tally_sum sum = ta_tally_reanchor(load_sum(r.own, i), ta_tally_below(own, top));
#pragma unroll 1
    for (int32_t k = 0; k < r.messages; k++) {
        const float *other = r.others + k * r.stride;
        int lift = ta_tally_below(other[ta_tally_anchor_at(v_dim)], top);
        sum = ta_tally_plus(sum, ta_tally_reanchor(load_sum(other, i), lift));
    }
    return sum;
}

__global__ void __launch_bounds__(tally_threads)
    merge_tallies(ta_merge p, int64_t first, int64_t end)
{
    const int64_t floats = ta_tally_floats(p.v_dim);
    if (blockIdx.x == 0 && threadIdx.x == 0)
        ta_merge_faults(p, floats);
    for (int64_t i = first + blockIdx.x; i < end; i += gridDim.x) {
        bool kept = ta_is_kept(p, i), given = ta_is_given(p, i);
        if (!kept && !given)
            continue;
        ta_arrived tally = ta_find_arrived(p, i, floats);
        float *ours = p.records + i * floats;
        float *to = p.sent + (given ? (i - p.given_first) * floats : 0);
        float own = tally.own[ta_tally_anchor_at(p.v_dim)], top = merge_anchors(tally, p.v_dim);
        ta_syncthreads(); /* all have read the anchor before it changes */
        for (int32_t c = static_cast<int32_t>(threadIdx.x); c <= p.v_dim; c += tally_threads) {
            ta_tally_sum sum = merge_sums(tally, c, p.v_dim, own, top);
            if (kept)
                ta_tally_store(sum, sum_words(ours, c));
            if (given)
                ta_tally_store(sum, sum_words(to, c));
        }
        if (threadIdx.x == 0 && kept)
            store_anchor(ours, p.v_dim, top);
        if (threadIdx.x == 0 && given)
            store_anchor(to, p.v_dim, top);
    }
}

__global__ void __launch_bounds__(tally_threads, tally_blocks) finish_tallies(ta_finish p)
{
    if (ta_report_fault(p))
        return;
    int32_t v_dim = p.problem.v_dim;
    int64_t rows = p.problem.rows;
    int64_t head = blockIdx.x / rows, row = blockIdx.x % rows;
    ta_arrived tally =
        ta_find_arrived(p.last, p.first_head * rows + blockIdx.x, ta_tally_floats(v_dim));
    float own = tally.own[ta_tally_anchor_at(v_dim)], anchor = merge_anchors(tally, v_dim);
    float sink = -INFINITY;
    if (p.problem.sinks)
        sink = p.problem.sinks[p.first_head + head] * TA_LOG2E;
    ta_tally_sum l = merge_sums(tally, v_dim, v_dim, own, anchor);
    ta_tally_end end = ta_tally_end_of(anchor, l, sink);
    int64_t at = ta_problem_row_at(&p.problem, &p.out, row) + head * p.out.head_stride;
    if (p.out.data)
        for (int32_t i = static_cast<int32_t>(threadIdx.x); i < v_dim; i += tally_threads) {
            ta_tally_sum o = merge_sums(tally, i, v_dim, own, anchor);
            ta_store_element(p.problem.out_dtype, p.out.data, at + i,
                             ta_tally_value(anchor, o, l, end));
        }
    if (p.lse && threadIdx.x == 0)
        p.lse[row * p.heads + head] = static_cast<float>(end.lse * TA_TALLY_LN2);
}

ta_launched ta_launch_tally_splits(const ta_merge_splits_params *params, void *stream)
{
    const ta_problem &p = params->problem;
    int64_t rows = p.rows * p.query_heads;
    ta_launch_result result =
        TA_LAUNCH(tally_splits, dim3(static_cast<unsigned>(rows)), tally_threads, 0,
                  static_cast<hipStream_t>(stream), *params);
    return ta_launched_of(result);
}

ta_launched ta_launch_merge_tallies(const ta_merge *merge, void *stream)
{
    int64_t first, end;
    ta_merge_range(merge, &first, &end);
    ta_launch_result result =
        TA_LAUNCH(merge_tallies, dim3(ta_merge_blocks(first, end)), tally_threads, 0,
                  static_cast<hipStream_t>(stream), *merge, first, end);
    return ta_launched_of(result);
}

ta_launched ta_launch_finish_tallies(const ta_finish *params, void *stream)
{
    TA_NEED_TYPE("finish_tallies", params->problem.out_dtype);
    int64_t blocks = params->problem.rows * params->heads;
    ta_launch_result result =
        TA_LAUNCH(finish_tallies, dim3(static_cast<unsigned>(blocks)), tally_threads, 0,
                  static_cast<hipStream_t>(stream), *params);
    return ta_launched_of(result);
}
