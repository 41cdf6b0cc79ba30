/* merge_pieces. Grid: one block for each (head, row), merge_threads threads.
 *
 * Makes one partial of what the blocks of attend_direct found in the pieces of an item, and puts it
 * where records go. An item that was not cut has its records there already. attend.c launches
 * it. */
#include "merge_block.h" /* first: it says what TA_INLINE is for the header below */

#include "direct.h"

__global__ void __launch_bounds__(merge_threads) merge_pieces(ta_direct_params p)
{
    TA_SHARED(float, scales, [TA_DIRECT_BLOCKS_MAX]);
    TA_SHARED(float, reduced, [reduce_groups]);
    TA_SHARED(float, scratch, [merge_threads * 4]);
    int32_t thread = static_cast<int32_t>(threadIdx.x), v_dim = p.problem.v_dim;
    ta_merged_row r = ta_find_merged_row(p.problem);
    int32_t heads = p.problem.query_heads / p.problem.kv_heads;
    int32_t token = static_cast<int32_t>(r.row - ta_problem_first_row(&p.problem, r.sequence));
    int32_t row = token * heads + r.head % heads; /* of the sequence and KV head */
    if (token >= ta_problem_query_tokens(&p.problem, r.sequence))
        return; /* starts that nobody could check */
    int64_t item = ta_direct_first_item(&p.problem, p.rows, r.sequence) +
                   r.head / heads * ta_direct_groups(&p.problem, p.rows, r.sequence) + row / p.rows;
    int32_t first_block = p.spans[item].first_block, blocks = p.spans[item].blocks;
    if (blocks == 1)
        return;
    /* The first block has what it began behind what it ended. */
    int64_t beside = static_cast<int64_t>(p.rows) * p.split_floats, stride = 2 * beside;
    const float *from = p.pieces + first_block * stride + row % p.rows * p.split_floats;
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

ta_launched ta_launch_merge_pieces(const ta_direct_params *params, void *stream)
{
    const ta_problem &p = params->problem;
    int64_t rows = p.rows * p.query_heads;
    ta_launch_result result =
        TA_LAUNCH(merge_pieces, dim3(static_cast<unsigned>(rows)), merge_threads, 0,
                  static_cast<hipStream_t>(stream), *params);
    return ta_launched_of(result);
}
