/* merge_pieces, merge_splits. Grid: one block for each (sequence, KV head, row), merge_threads
 * threads.
 * merge_records. Grid: one block for each record that is taken in or sent, record_threads threads.
 * finish. Grid: one block for each (head, row), record_threads threads.
 *
 * The first two make one partial of what the blocks of attend found in each piece or split of a
 * row's tokens, and put it where records go: packed for the wire. merge_records merges the partials
 * of other ranks into ours, and makes the next message in the same pass. finish merges what arrived
 * last and turns it into the caller's output and log-sum-exp; the sink joins here and nowhere else,
 * so it counts once. What merging is, partial.h says; this is who merges what. pieces.c and
 * splits.c launch them. */
#include "arrived.h"
#include "merge_block.h"

/* So few on a unit leave enough registers that none is spilled to fit more. */
static const int merge_blocks = 4;
static const int record_threads = 128;

static_assert(merge_threads >= TA_SPLITS_MAX, "a thread for each split");

/* Of equal shares, one row. An item that was not cut has its records in their place already. */
TA_DEVICE void merge_row(const ta_merge_pieces_params &p, const ta_merged_row &r, int32_t token)
{
    TA_SHARED(float, scales, [TA_SHARE_BLOCKS_MAX]);
    TA_SHARED(float, reduced, [reduce_groups]);
    TA_SHARED(float, scratch, [merge_threads * 4]);
    int32_t thread = static_cast<int32_t>(threadIdx.x), v_dim = p.problem.v_dim;
    int32_t heads = p.problem.query_heads / p.problem.kv_heads;
    int32_t row = token * heads + r.head % heads; /* of the sequence and KV head */
    int32_t rows = p.share.rows;
    int64_t item = ta_first_item(&p.problem, rows, r.sequence) +
                   r.head / heads * ta_sequence_groups(&p.problem, rows, r.sequence) + row / rows;
    int32_t first_block = p.share.spans[item].first_block, blocks = p.share.spans[item].blocks;
    if (blocks == 1)
        return;
    /* The first block has what it began behind what it ended. */
    int64_t beside = static_cast<int64_t>(rows) * p.split_floats, stride = 2 * beside;
    const float *from = p.share.pieces + first_block * stride + row % rows * p.split_floats;
    float *to = p.records + static_cast<int64_t>(blockIdx.x) * ta_record_floats(v_dim);

    float largest = -INFINITY, l = 0.0f;
    for (int32_t i = thread; i < blocks; i += merge_threads)
        largest = larger(largest, from[i * stride + (i ? 0 : beside) + v_dim]);
    largest = reduce_block(largest, take_larger(), reduced);
    for (int32_t i = thread; i < blocks; i += merge_threads) {
        const float *record = from + i * stride + (i ? 0 : beside);
        scales[i] = ta_merge_scale(largest, record[v_dim]).b;
        l = fmaf(record[v_dim + 1], scales[i], l);
    }
    float total = reduce_block(l, take_sum(), reduced);
    merge_columns(from, beside, stride, blocks, v_dim, scales, scratch, to);
    if (thread == 0) {
        to[v_dim] = largest;
        to[v_dim + 1] = total;
    }
}

/* With Finishes nothing is exchanged: output and log-sum-exp follow at once. */
template <bool Finishes>
__global__ void __launch_bounds__(merge_threads) merge_pieces(ta_merge_pieces_params p)
{
    ta_merged_row r = ta_find_merged_row(p.problem);
    int32_t token = static_cast<int32_t>(r.row - ta_problem_first_row(&p.problem, r.sequence));
    if (token < 0 || token >= ta_problem_query_tokens(&p.problem, r.sequence))
        return; /* starts that nobody could check */
    merge_row(p, r, token);
    if (!Finishes)
        return;
    ta_syncthreads(); /* the record is whole */
    int64_t floats = ta_record_floats(p.problem.v_dim);
    ta_arrived record = {p.records + static_cast<int64_t>(blockIdx.x) * floats, nullptr, 0, 0};
    ta_finish_partial<merge_threads>(p.finish, record, r.head, r.row);
}

/* Which splits of a row were written. */
TA_DEVICE int32_t count_splits(const ta_merge_splits_params &p, int32_t sequence)
{
    if (p.problem.prefix_starts) /* those of prefixes come behind the others: all of them were */
        return p.splits;
    const int32_t *bounds = ta_sequence_bounds(p.bounds, p.bounds_stride, sequence);
    ta_visible all = ta_tokens_see(p.problem, bounds, p.lengths[sequence], sequence);
    int32_t tokens = all.end - all.first;
    return static_cast<int32_t>(ta_ceil_div(tokens, ta_split_tokens(tokens, p.splits)));
}

__global__ void __launch_bounds__(merge_threads, merge_blocks)
    merge_splits(ta_merge_splits_params p)
{
    TA_SHARED(float, scales, [TA_SPLITS_MAX]);
    TA_SHARED(float, reduced, [reduce_groups]);
    TA_SHARED(float, scratch, [merge_threads * 4]);
    int32_t thread = static_cast<int32_t>(threadIdx.x), v_dim = p.problem.v_dim;
    ta_merged_row r = ta_find_merged_row(p.problem);

    int32_t splits = count_splits(p, r.sequence);
    int64_t stride = ta_split_record_index(p.problem, p.splits, 0, 1, 0) * p.split_floats;
    const float *from =
        p.split_records +
        ta_split_record_index(p.problem, p.splits, r.head, 0, r.row) * p.split_floats;
    float *to = p.records + static_cast<int64_t>(blockIdx.x) * ta_record_floats(v_dim);

    float m = -INFINITY, l = 0.0f;
    if (thread < splits) {
        m = from[thread * stride + v_dim];
        l = from[thread * stride + v_dim + 1];
    }
    float largest = reduce_block(m, take_larger(), reduced);
    float scale = ta_merge_scale(largest, m).b;
    if (thread < splits)
        scales[thread] = scale;
    float total = reduce_block(l * scale, take_sum(), reduced);
    merge_columns(from, 0, stride, splits, v_dim, scales, scratch, to);
    if (thread == 0) {
        to[v_dim] = largest;
        to[v_dim + 1] = total;
    }
}

__global__ void __launch_bounds__(record_threads)
    merge_records(ta_merge p, int64_t first, int64_t end)
{
    const int64_t floats = ta_record_floats(p.v_dim);
    if (blockIdx.x == 0 && threadIdx.x == 0)
        ta_merge_faults(p, floats);
    for (int64_t i = first + blockIdx.x; i < end; i += gridDim.x) {
        bool kept = ta_is_kept(p, i), given = ta_is_given(p, i);
        if (!kept && !given)
            continue;
        ta_arrived record = ta_find_arrived(p, i, floats);
        float *ours = p.records + i * floats;
        float *to = p.sent + (given ? (i - p.given_first) * floats : 0);
        float own_m = record.own[p.v_dim];
        ta_syncthreads(); /* all have read m before it changes */
        for (int32_t c = static_cast<int32_t>(threadIdx.x); c < p.v_dim + 2; c += record_threads) {
            float m = own_m, x = ta_merge_column(record, c, p.v_dim, &m);
            if (c == p.v_dim)
                x = m;
            if (kept)
                ours[c] = x;
            if (given)
                to[c] = x;
        }
    }
}

__global__ void __launch_bounds__(record_threads) finish(ta_finish p)
{
    if (ta_report_fault(p))
        return;
    int64_t rows = p.problem.rows, record = p.first_head * rows + blockIdx.x;
    ta_finish_partial<record_threads>(
        p, ta_find_arrived(p.last, record, ta_record_floats(p.problem.v_dim)), blockIdx.x / rows,
        blockIdx.x % rows);
}

ta_launched ta_launch_merge_pieces(const ta_merge_pieces_params *params, void *stream)
{
    const ta_problem &p = params->problem;
    dim3 grid(static_cast<unsigned>(p.rows * p.query_heads));
    hipStream_t queue = static_cast<hipStream_t>(stream);
    if (!params->finishes)
        return ta_launched_of(
            TA_LAUNCH(merge_pieces<false>, grid, merge_threads, 0, queue, *params));
    TA_NEED_TYPE("finish", params->finish.problem.out_dtype);
    return ta_launched_of(TA_LAUNCH(merge_pieces<true>, grid, merge_threads, 0, queue, *params));
}

ta_launched ta_launch_merge_splits(const ta_merge_splits_params *params, void *stream)
{
    const ta_problem &p = params->problem;
    int64_t rows = p.rows * p.query_heads;
    ta_launch_result result =
        TA_LAUNCH(merge_splits, dim3(static_cast<unsigned>(rows)), merge_threads, 0,
                  static_cast<hipStream_t>(stream), *params);
    return ta_launched_of(result);
}

ta_launched ta_launch_merge(const ta_merge *merge, void *stream)
{
    int64_t first, end;
    ta_merge_range(merge, &first, &end);
    ta_launch_result result =
        TA_LAUNCH(merge_records, dim3(ta_merge_blocks(first, end)), record_threads, 0,
                  static_cast<hipStream_t>(stream), *merge, first, end);
    return ta_launched_of(result);
}

ta_launched ta_launch_finish(const ta_finish *params, void *stream)
{
    TA_NEED_TYPE("finish", params->problem.out_dtype);
    int64_t blocks = params->problem.rows * params->heads;
    ta_launch_result result = TA_LAUNCH(finish, dim3(static_cast<unsigned>(blocks)), record_threads,
                                        0, static_cast<hipStream_t>(stream), *params);
    return ta_launched_of(result);
}
