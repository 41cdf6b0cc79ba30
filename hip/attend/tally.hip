/* tally_splits. Grid: one block for each (head, row), tally_threads threads.
 * merge_tallies. Grid: one block for each tally that is taken in or sent, tally_threads threads.
 * finish_tallies. Grid: one block for each (head, row), tally_threads threads. Merges what arrived
 * last.
 *
 * Reproducible mode, in place of merge.hip: what the blocks of attend found in each
 * tile becomes a tally of integers, which does not depend on the order. What a tally is,
 * base/tally.h says; this is which thread has which sum. pieces.c and attend.c launch them. */
#include "arrived.h"

static const int tally_threads = 128;

/* So few on a unit leave enough registers that none is spilled to fit more. */
static const int tally_blocks = 4;

/* The tiles of a row that were written. */
TA_DEVICE int32_t count_tiles(const ta_merge_splits_params &p, int32_t sequence)
{
    if (p.problem.prefix_starts) /* those of prefixes come behind the others: all of them were */
        return p.splits;
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
        ta_tally_store(add_tiles(from, stride, tiles, v_dim, i, anchor), ta_sum_words(to, i));
    if (threadIdx.x == 0)
        ta_store_anchor(to, v_dim, anchor);
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
        float own = tally.own[ta_tally_anchor_at(p.v_dim)], top = ta_merge_anchors(tally, p.v_dim);
        ta_syncthreads(); /* all have read the anchor before it changes */
        for (int32_t c = static_cast<int32_t>(threadIdx.x); c <= p.v_dim; c += tally_threads) {
            ta_tally_sum sum = ta_merge_sums(tally, c, p.v_dim, own, top);
            if (kept)
                ta_tally_store(sum, ta_sum_words(ours, c));
            if (given)
                ta_tally_store(sum, ta_sum_words(to, c));
        }
        if (threadIdx.x == 0 && kept)
            ta_store_anchor(ours, p.v_dim, top);
        if (threadIdx.x == 0 && given)
            ta_store_anchor(to, p.v_dim, top);
    }
}

__global__ void __launch_bounds__(tally_threads, tally_blocks) finish_tallies(ta_finish p)
{
    if (ta_report_fault(p))
        return;
    int64_t rows = p.problem.rows, record = p.first_head * rows + blockIdx.x;
    ta_finish_tally<tally_threads>(
        p, ta_find_arrived(p.last, record, ta_tally_floats(p.problem.v_dim)), blockIdx.x / rows,
        blockIdx.x % rows);
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
