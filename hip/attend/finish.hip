/* finish. Grid: one block for each (head, row), finish_threads threads. Merges what arrived last.
 * pack_query. Grid: as many blocks as needed to copy every element once, pack_threads threads.
 *
 * The two ends of a step. finish() turns merged partials into the caller's output and log-sum-exp;
 * the sink joins here and nowhere else, so it counts once. pack_query() makes a dense copy of the
 * caller's query for the ranks that do not have it. device.c launches both. */
#include "arrived.h"

static const int finish_threads = 128;
static const int pack_threads = 256;

__global__ void __launch_bounds__(finish_threads) finish(ta_finish p)
{
    if (ta_report_fault(p))
        return;
    int32_t v_dim = p.problem.v_dim;
    int64_t rows = p.problem.rows;
    int64_t head = blockIdx.x / rows, row = blockIdx.x % rows;
    ta_arrived record =
        ta_find_arrived(p.last, p.first_head * rows + blockIdx.x, ta_record_floats(v_dim));
    float own_m = record.own[v_dim], m = own_m, o_scale = 1.0f;
    float l = ta_merge_column(record, v_dim + 1, v_dim, &m);
    if (p.problem.sinks) { /* a partial with this score, a sum of 1 and no value */
        ta_merge_scales s = ta_merge_scale(m, p.problem.sinks[p.first_head + head] * TA_LOG2E);
        l = ta_merge_add(l, 1.0f, s);
        m = s.m;
        o_scale = s.a;
    }
    float factor = o_scale * ta_partial_normalizer(m, l);
    int64_t at = ta_problem_row_at(&p.problem, &p.out, row) + head * p.out.head_stride;
    if (p.out.data)
        for (int32_t i = static_cast<int32_t>(threadIdx.x); i < v_dim; i += finish_threads) {
            float o_m = own_m, o = ta_merge_column(record, i, v_dim, &o_m);
            ta_store_element(p.problem.out_dtype, p.out.data, at + i, o * factor);
        }
    if (p.lse && threadIdx.x == 0)
        p.lse[row * p.heads + head] = ta_partial_lse(m, l);
}

__global__ void __launch_bounds__(pack_threads) pack_query(ta_pack_params p)
{
    int64_t elements = static_cast<int64_t>(p.heads) * p.rows * p.k_dim;
    int64_t step = static_cast<int64_t>(gridDim.x) * pack_threads;
    for (int64_t i = static_cast<int64_t>(blockIdx.x) * pack_threads + threadIdx.x; i < elements;
         i += step) {
        int64_t e = i % p.k_dim, row = i / p.k_dim % p.rows, head = i / p.k_dim / p.rows;
        int64_t at = row / p.query_tokens * p.q.batch_stride +
                     row % p.query_tokens * p.q.token_stride + head * p.q.head_stride + e;
        TA_WORD_SWITCH_IN_KERNEL(p.element_bytes, Word,
                                 static_cast<Word *>(p.packed)[i] =
                                     static_cast<const Word *>(p.q.data)[at])
    }
}

ta_launched ta_launch_finish(const ta_finish *params, void *stream)
{
    TA_NEED_TYPE("finish", params->problem.out_dtype);
    int64_t blocks = params->problem.rows * params->heads;
    ta_launch_result result = TA_LAUNCH(finish, dim3(static_cast<unsigned>(blocks)), finish_threads,
                                        0, static_cast<hipStream_t>(stream), *params);
    return ta_launched_of(result);
}

ta_launched ta_launch_pack(const ta_pack_params *params, void *stream)
{
    TA_NEED_TYPE("pack_query", params->dtype);
    int64_t elements = static_cast<int64_t>(params->heads) * params->rows * params->k_dim;
    int64_t blocks = ta_ceil_div(elements, pack_threads);
    if (blocks > INT32_MAX)
        blocks = INT32_MAX;
    ta_launch_result result = TA_LAUNCH(pack_query, dim3(static_cast<unsigned>(blocks)),
                                        pack_threads, 0, static_cast<hipStream_t>(stream), *params);
    return ta_launched_of(result);
}
