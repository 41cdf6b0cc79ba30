/* make_records. Grid: one block for each (head, row), record_threads threads.
 *
 * The first half of a combine: somebody's normalised output and its log-sum-exp become the partials
 * that the ranks merge. An empty row's output is not read. device.c launches it. */
#include "tell.h"

static const int record_threads = 128;

/* The first wave of the first block: there are no lengths and bounds, only starts. Field by field:
 * a struct of the parameters that is copied whole goes through the stack. */
TA_DEVICE void tell_starts(const ta_problem &p, const ta_tell &tell)
{
    uint64_t starts = 0;
#pragma unroll 1
    for (int32_t i = ta_lane() % tell_lanes; p.starts && i <= p.batch; i += tell_lanes)
        starts += ta_hash_at(static_cast<uint32_t>(i), static_cast<uint32_t>(p.starts[i]));
    starts = ta_sum_lanes(starts);
    if (threadIdx.x != 0)
        return;
    ta_fault told = {tell.own.status, tell.own.rank, tell.own.other,
                     tell.own.what,   tell.own.hash, tell.own.tag};
    if (p.starts)
        ta_fault_share(&told, TA_COMMON_STARTS, starts);
    tell.to->status = told.status;
    tell.to->rank = told.rank;
    tell.to->other = told.other;
    tell.to->what = told.what;
    tell.to->hash = told.hash;
    tell.to->tag = told.tag;
}

__global__ void __launch_bounds__(record_threads) make_records(ta_make_records_params p)
{
    int32_t v_dim = p.problem.v_dim, thread = static_cast<int32_t>(threadIdx.x);
    int64_t head = blockIdx.x / p.problem.rows, row = blockIdx.x % p.problem.rows;
    if (p.tell.to && blockIdx.x == 0 && ta_wave_id() == 0)
        tell_starts(p.problem, p.tell);
    float m = ta_partial_of_lse(p.given.lse[row * p.problem.query_heads + head], p.given.base_2);
    float *record = p.records + static_cast<int64_t>(blockIdx.x) * ta_record_floats(v_dim);
    int64_t at = ta_problem_row_at(&p.problem, &p.given.out, row) + head * p.given.out.head_stride;
    bool reads = m > -INFINITY; /* not one that is NaN, which its sum is too */
    for (int32_t i = thread; i < v_dim; i += record_threads) {
        float value = 0.0f;
        if (reads)
            value = ta_load_element(p.problem.query_dtype, p.given.out.data, at + i);
        record[i] = value;
    }
    if (thread == 0) {
        record[v_dim] = m;
        record[v_dim + 1] = ta_partial_empty(m) ? 0.0f : m == m ? 1.0f : m;
    }
}

ta_launched ta_launch_make_records(const ta_make_records_params *params, void *stream)
{
    TA_NEED_TYPE("make_records", params->problem.query_dtype);
    int64_t blocks = params->problem.rows * params->problem.query_heads;
    ta_launch_result result =
        TA_LAUNCH(make_records, dim3(static_cast<unsigned>(blocks)), record_threads, 0,
                  static_cast<hipStream_t>(stream), *params);
    return ta_launched_of(result);
}
