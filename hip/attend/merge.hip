/* merge_splits. Grid: one block for each (sequence, KV head, row), merge_threads threads.
 * merge_records. Grid: one block for each record, record_threads threads.
 * relay_records. Grid: one block for each record in either range, record_threads threads.
 *
 * The first makes one partial of what the blocks of attend found in each split of a row's tokens,
 * and puts it where records go: packed for the wire. The second merges the partials of another rank
 * into ours. The third does that too, and makes the next message in the same pass. What merging is,
 * partial.h says; this is who merges what. device.c launches them. */
#include "rows.h"

static const int merge_threads = 256; /* at least TA_SPLITS_MAX */
static const int record_threads = 128;

/* Threads that reduce by exchanges; divides every wave. */
static const int reduce_lanes = 32;
static const int reduce_groups = merge_threads / reduce_lanes;

static_assert(merge_threads >= TA_SPLITS_MAX, "a thread for each split");

/* NaN is larger than anything. */
TA_DEVICE float larger(float a, float b)
{
    return a != a || a >= b ? a : b;
}

struct take_larger {
    __device__ __forceinline__ float operator()(float a, float b) const
    {
        return larger(a, b);
    }
};

struct take_sum {
    __device__ __forceinline__ float operator()(float a, float b) const
    {
        return a + b;
    }
};

/* What all threads have, put together in an order that never changes. `scratch` has a place for
 * each group of lanes. */
template <class Take> TA_DEVICE float reduce_block(float x, Take take, float *scratch)
{
    int thread = static_cast<int>(threadIdx.x);
    for (int mask = reduce_lanes / 2; mask > 0; mask /= 2)
        x = take(x, ta_shfl_xor(x, mask));
    ta_syncthreads(); /* the last reduction has been read */
    if (thread % reduce_lanes == 0)
        scratch[thread / reduce_lanes] = x;
    ta_syncthreads();
    x = scratch[0];
    for (int i = 1; i < reduce_groups; i++)
        x = take(x, scratch[i]);
    return x;
}

/* Which splits of a row were written. */
TA_DEVICE int32_t count_splits(const ta_merge_splits_params &p, int32_t sequence)
{
    const int32_t *bounds = ta_sequence_bounds(p.bounds, p.bounds_stride, sequence);
    ta_visible all = ta_tokens_see(p.problem, bounds, p.lengths[sequence]);
    int32_t tokens = all.end - all.first;
    return static_cast<int32_t>(ta_ceil_div(tokens, ta_split_tokens(tokens, p.splits)));
}

/* Four columns at a time; `groups` threads share a column, each takes every groups-th split. */
TA_DEVICE void merge_columns(const float *from, int64_t stride, int32_t splits, int32_t v_dim,
                             const float *scales, float *scratch, float *to)
{
    int32_t thread = static_cast<int32_t>(threadIdx.x);
    int32_t columns = v_dim / 4, groups = merge_threads / columns;
    int32_t column = thread % columns, group = thread / columns;
    float sum[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    if (group < groups) {
#pragma unroll 4
        for (int32_t split = group; split < splits; split += groups) {
            ta_vec16 o = ta_load16(from + split * stride + column * 4);
            for (int i = 0; i < 4; i++)
                sum[i] = fmaf(ta_as_float(o.word[i]), scales[split], sum[i]);
        }
        for (int i = 0; i < 4; i++)
            scratch[(group * columns + column) * 4 + i] = sum[i];
    }
    ta_syncthreads();
    for (int32_t i = thread; i < v_dim; i += merge_threads) {
        float total = scratch[i];
        for (int32_t g = 1; g < groups; g++)
            total += scratch[g * v_dim + i];
        to[i] = total;
    }
}

__global__ void __launch_bounds__(merge_threads) merge_splits(ta_merge_splits_params p)
{
    TA_SHARED(float, scales, [TA_SPLITS_MAX]);
    TA_SHARED(float, reduced, [reduce_groups]);
    TA_SHARED(float, scratch, [merge_threads * 4]);
    int32_t thread = static_cast<int32_t>(threadIdx.x), v_dim = p.problem.v_dim;
    int32_t rows = p.problem.query_heads / p.problem.kv_heads * p.problem.query_tokens;
    int32_t row = static_cast<int32_t>(blockIdx.x % static_cast<uint32_t>(rows));
    int32_t head = static_cast<int32_t>(blockIdx.x / static_cast<uint32_t>(rows));
    int32_t sequence = head / p.problem.kv_heads, kv_head = head % p.problem.kv_heads;

    int32_t splits = count_splits(p, sequence);
    int64_t stride = static_cast<int64_t>(rows) * p.split_floats;
    const float *from =
        p.split_records +
        ta_split_record_index(p.problem, p.splits, sequence, kv_head, 0, row) * p.split_floats;
    float *to =
        p.records + ta_record_index(p.problem, sequence, kv_head, row) * ta_record_floats(v_dim);

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
    merge_columns(from, stride, splits, v_dim, scales, scratch, to);
    if (thread == 0) {
        to[v_dim] = largest;
        to[v_dim + 1] = total;
    }
}

__global__ void __launch_bounds__(record_threads)
    merge_records(float *into, const float *from, int64_t records, int32_t v_dim, ta_fault *fault,
                  const ta_fault *theirs)
{
    if (fault && blockIdx.x == 0 && threadIdx.x == 0)
        *fault = ta_fault_merge(*fault, *theirs);
    for (int64_t i = blockIdx.x; i < records; i += gridDim.x) {
        float *a = into + i * ta_record_floats(v_dim);
        const float *b = from + i * ta_record_floats(v_dim);
        ta_merge_scales scales = ta_merge_scale(a[v_dim], b[v_dim]);
        ta_syncthreads(); /* all have read m before it changes */
        for (int32_t c = static_cast<int32_t>(threadIdx.x); c < v_dim + 2; c += record_threads) {
            if (c != v_dim)
                a[c] = ta_merge_add(a[c], b[c], scales);
            else
                a[c] = scales.m;
        }
    }
}

/* The fault that arrived behind the records joins ours, and both go out behind the next message. */
TA_DEVICE void relay_fault(const ta_relay &p)
{
    int64_t floats = ta_record_floats(p.v_dim);
    ta_fault fault = *p.fault;
    if (p.messages) {
        ta_fault theirs =
            *reinterpret_cast<const ta_fault *>(p.received + (p.kept_end - p.kept_first) * floats);
        fault = p.replaces ? theirs : ta_fault_merge(fault, theirs);
        *p.fault = fault;
    }
    if (p.sent)
        *reinterpret_cast<ta_fault *>(p.sent + (p.given_end - p.given_first) * floats) = fault;
}

__global__ void __launch_bounds__(record_threads) relay_records(ta_relay p, int64_t first)
{
    int64_t i = first + blockIdx.x, floats = ta_record_floats(p.v_dim);
    bool kept = p.messages && i >= p.kept_first && i < p.kept_end;
    bool given = p.sent && i >= p.given_first && i < p.given_end;
    if (blockIdx.x == 0 && threadIdx.x == 0)
        relay_fault(p);
    if (!kept && !given)
        return;
    bool merges = kept && !p.replaces;
    float *ours = p.records + i * floats;
    const float *theirs = p.received + (kept ? (i - p.kept_first) * floats : 0);
    const float *from = kept && p.replaces ? theirs : ours;
    float *to = p.sent + (given ? (i - p.given_first) * floats : 0);
    ta_merge_scales scales = {0.0f, 1.0f, 1.0f};
    if (merges)
        scales = ta_merge_scale(ours[p.v_dim], theirs[p.v_dim]);
    ta_syncthreads(); /* all have read m before it changes */
    for (int32_t c = static_cast<int32_t>(threadIdx.x); c < p.v_dim + 2; c += record_threads) {
        float x = from[c];
        if (merges)
            x = c == p.v_dim ? scales.m : ta_merge_add(x, theirs[c], scales);
        if (kept)
            ours[c] = x;
        if (given)
            to[c] = x;
    }
}

ta_launched ta_launch_merge_splits(const ta_merge_splits_params *params, void *stream)
{
    const ta_problem &p = params->problem;
    int64_t rows = static_cast<int64_t>(p.batch) * p.query_heads * p.query_tokens;
    ta_launch_result result =
        TA_LAUNCH(merge_splits, dim3(static_cast<unsigned>(rows)), merge_threads, 0,
                  static_cast<hipStream_t>(stream), *params);
    return ta_launched_of(result);
}

ta_launched ta_launch_merge(float *into, const float *from, int64_t records, int32_t v_dim,
                            ta_fault *fault, const ta_fault *theirs, void *stream)
{
    unsigned blocks = static_cast<unsigned>(records < INT32_MAX ? records : INT32_MAX);
    if (blocks == 0)
        blocks = 1; /* for the fault */
    ta_launch_result result =
        TA_LAUNCH(merge_records, dim3(blocks), record_threads, 0, static_cast<hipStream_t>(stream),
                  into, from, records, v_dim, fault, theirs);
    return ta_launched_of(result);
}

ta_launched ta_launch_relay(const ta_relay *relay, void *stream)
{
    int64_t first = relay->messages ? relay->kept_first : relay->given_first;
    int64_t end = relay->messages ? relay->kept_end : relay->given_end;
    if (relay->sent && relay->given_first < first)
        first = relay->given_first;
    if (relay->sent && relay->given_end > end)
        end = relay->given_end;
    unsigned blocks = end > first ? static_cast<unsigned>(end - first) : 1; /* for the fault */
    ta_launch_result result = TA_LAUNCH(relay_records, dim3(blocks), record_threads, 0,
                                        static_cast<hipStream_t>(stream), *relay, first);
    return ta_launched_of(result);
}
