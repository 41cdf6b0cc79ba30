/* attention_forward. Grid: one block for each (tile of 32 queries, query head), of fma_threads
 * threads.
 *
 * Attention over full sequences, forward, in fp32 on the ordinary cores: for f32, for tensors that
 * are not aligned, and for devices without matrix cores (forward_mma.hip is for the others).
 * 16 threads share 4 queries: each makes the scores of 4 × 2 pairs of a tile of 32 keys, and sums 4
 * × 4 columns of each 64 of V. Q stays in shared memory as floats, K and V go by in chunks of 32
 * keys by 64 dimensions; while one is worked on, the next is on its way. attention.c launches
 * this. */
#include "block.h"

static const int fma_threads = 128;
static const int row_lanes = 16; /* that share a row */
static const int lane_rows = 4;  /* that a lane has */
static const int block_rows = fma_threads / row_lanes * lane_rows;
static const int lane_keys = TA_ATTENTION_KEYS / row_lanes;
static const int chunk = 64; /* dimensions */
static const int lane_columns = chunk / row_lanes;
static const int chunk_stride = chunk + 4; /* so that 8 neighbouring rows lie in 32 banks */
static const int chunks_most = TA_ATTENTION_MAX_DIM / chunk;

struct alignas(16) ta_float4_row {
    float x[4];
};

TA_DEVICE ta_float4_row load4(const float *from)
{
    return *reinterpret_cast<const ta_float4_row *>(from);
}

/* K or V of a head, and where its rows are. In shared memory: it would take scalar registers that
 * are scarce where waves are wide. */
struct ta_attention_source {
    const char *data;
    int64_t stride; /* elements */
    const int32_t *rows;
    int32_t count, dim;
};

template <class Type>
TA_DEVICE ta_attention_source find_source(const ta_attention_work &w, const ta_tensor &from,
                                          int32_t dim, int32_t kv_head)
{
    const char *data = static_cast<const char *>(from.data);
    const int64_t size = sizeof(typename Type::element);
    return {data + kv_head * from.head_stride * size, from.token_stride, w.key_rows, w.keys, dim};
}

/* A chunk of K or V on its way to shared memory. */
template <class Type, bool Aligned> struct ta_attention_chunk {
    static const int unit = Aligned ? Type::unit : 1; /* elements that travel together */
    static const int row_units = chunk / unit;
    static const int count = TA_ATTENTION_KEYS * row_units / fma_threads;
    typename std::conditional<Aligned, ta_vec16, typename Type::element>::type units[count];

    /* The dimensions from `column` on of the keys from `at` on; zeros beyond the last of each. */
    __device__ __forceinline__ void load(const ta_attention_source &from, int32_t at,
                                         int32_t column)
    {
        typedef typename Type::element element;
        int32_t thread = static_cast<int32_t>(threadIdx.x);
#pragma unroll
        for (int i = 0; i < count; i++) {
            if (i % 4 == 0) /* or all addresses would be in registers at a time, for every turn */
                ta_opaque(thread);
            int32_t n = thread + i * fma_threads;
            int32_t key = at + n / row_units, e = column + n % row_units * unit;
            units[i] = {};
            if (key < from.count && e < from.dim) {
                const element *data = reinterpret_cast<const element *>(from.data) +
                                      ta_load_global(from.rows + key) * from.stride + e;
                if constexpr (Aligned)
                    units[i] = ta_load16_global(data);
                else
                    units[i] = *data;
            }
        }
    }

    __device__ __forceinline__ void store(float *to) const
    {
        int32_t thread = static_cast<int32_t>(threadIdx.x);
        ta_opaque(thread);
#pragma unroll
        for (int i = 0; i < count; i++) {
            int32_t n = thread + i * fma_threads;
            float *place = to + n / row_units * chunk_stride + n % row_units * unit;
            if constexpr (Aligned) {
                float x[Type::unit];
                Type::unpack(units[i], x);
#pragma unroll
                for (int e = 0; e < Type::unit; e++)
                    place[e] = x[e];
            } else {
                *place = Type::from(units[i]);
            }
        }
    }
};

/* The queries as floats, and zeros up to whole chunks, where K's chunks have zeros too. */
template <class Type>
TA_DEVICE void stage_queries(const ta_attention_work &w, const ta_attention_block &b, float *q,
                             int32_t stride)
{
    int32_t wide = stride - 4;
    for (int32_t i = static_cast<int32_t>(threadIdx.x); i < block_rows * wide; i += fma_threads) {
        int32_t row = i / wide, e = i % wide;
        float x = 0.0f;
        if (row < b.count && e < w.k_dim)
            x = Type::from(static_cast<const typename Type::element *>(
                w.q.data)[ta_attention_element(w.q, w.query_rows[b.first + row], b.head) + e]);
        q[row * stride + e] = x;
    }
}

/* Add the products over one chunk of K to the dot products of 4 rows with 2 keys. */
TA_DEVICE void add_dots(const float *q, int32_t stride, const float *k,
                        float (&dots)[lane_rows][lane_keys])
{
    int32_t lane = static_cast<int32_t>(threadIdx.x) % row_lanes;
#pragma unroll 2
    for (int32_t e = 0; e < chunk; e += 4) {
        ta_float4_row keys[lane_keys];
#pragma unroll
        for (int j = 0; j < lane_keys; j++)
            keys[j] = load4(k + (lane + j * row_lanes) * chunk_stride + e);
#pragma unroll
        for (int i = 0; i < lane_rows; i++) {
            ta_float4_row query = load4(q + i * stride + e);
#pragma unroll
            for (int x = 0; x < 4 * lane_keys; x++)
                dots[i][x / 4] = fmaf(query.x[x % 4], keys[x / 4].x[x % 4], dots[i][x / 4]);
        }
    }
}

/* Dot products become weights, [key][row] in shared memory where only this wave looks. */
TA_DEVICE void weigh_keys(const ta_score_rule &rule, int32_t at,
                          float (&dots)[lane_rows][lane_keys], ta_attention_row (&rows)[lane_rows],
                          float (&rescale)[lane_rows], float *weights)
{
    int32_t lane = static_cast<int32_t>(threadIdx.x) % row_lanes;
#pragma unroll
    for (int i = 0; i < lane_rows; i++) {
#pragma unroll
        for (int j = 0; j < lane_keys; j++) {
            int32_t key = at + lane + j * row_lanes;
            bool seen = key >= rows[i].first && key < rows[i].end;
            dots[i][j] = seen ? ta_attention_score(rule, dots[i][j]) : -INFINITY;
        }
        rescale[i] = ta_attention_softmax_row<row_lanes>(rows[i], dots[i]);
    }
#pragma unroll
    for (int j = 0; j < lane_keys; j++) {
        ta_float4_row column;
#pragma unroll
        for (int i = 0; i < lane_rows; i++)
            column.x[i] = dots[i][j];
        *reinterpret_cast<ta_float4_row *>(weights + (lane + j * row_lanes) * block_rows) = column;
    }
    ta_syncwave();
}

/* Add one chunk of V to the sums of 4 rows and 4 columns. If some row does not see all keys, a
 * weight of 0 would not keep a value that is not finite away. */
TA_DEVICE void add_values(const float *weights, const float *v, int32_t at, bool masked,
                          const ta_attention_row (&rows)[lane_rows],
                          const float (&rescale)[lane_rows], float (&o)[lane_rows][lane_columns])
{
    float sums[lane_rows][lane_columns] = {};
#pragma unroll 2
    for (int32_t key = 0; key < TA_ATTENTION_KEYS; key++) {
        ta_float4_row values = load4(v + key * chunk_stride);
        ta_float4_row weight = load4(weights + key * block_rows);
#pragma unroll
        for (int i = 0; i < lane_rows; i++) {
            bool seen = !masked || (at + key >= rows[i].first && at + key < rows[i].end);
#pragma unroll
            for (int j = 0; j < lane_columns; j++)
                sums[i][j] = seen ? fmaf(weight.x[i], values.x[j], sums[i][j]) : sums[i][j];
        }
    }
#pragma unroll
    for (int i = 0; i < lane_rows; i++)
#pragma unroll
        for (int j = 0; j < lane_columns; j++)
            o[i][j] = fmaf(o[i][j], rescale[i], sums[i][j]);
}

TA_DEVICE void write_records(const ta_attention_work &w, const ta_attention_block &b,
                             float *records, const ta_attention_row (&rows)[lane_rows],
                             const float (&o)[chunks_most][lane_rows][lane_columns])
{
    int32_t thread = static_cast<int32_t>(threadIdx.x), lane = thread % row_lanes;
#pragma unroll
    for (int i = 0; i < lane_rows; i++) {
        int32_t row = thread / row_lanes * lane_rows + i;
        if (row >= b.count)
            continue;
        float *record = ta_attention_record(w, b, row, records);
#pragma unroll
        for (int c = 0; c < chunks_most; c++) {
            int32_t column = c * chunk + lane * lane_columns;
            if (column >= w.v_dim) /* a multiple of 8: all columns of a lane, or none */
                continue;
#pragma unroll
            for (int j = 0; j < lane_columns; j++)
                record[column + j] = o[c][i][j];
        }
        if (lane == 0) {
            record[w.v_dim] = rows[i].l != rows[i].l ? rows[i].l : rows[i].m;
            record[w.v_dim + 1] = rows[i].l;
        }
    }
}

template <class Type, bool Aligned>
__global__ void __launch_bounds__(fma_threads)
    attention_forward(ta_attention_params p, int32_t q_stride, float *records)
{
    TA_SHARED_DYNAMIC(float, q);
    TA_SHARED(float, tile, [TA_ATTENTION_KEYS * chunk_stride]);
    TA_SHARED(float, all_weights, [TA_ATTENTION_KEYS * block_rows]);
    TA_SHARED(ta_visible, sees, [block_rows]);
    TA_SHARED(ta_attention_source, sources, [2]);
    const ta_attention_work &w = p.work;
    const ta_attention_block b = ta_find_attention_block(w, block_rows);
    const int32_t thread = static_cast<int32_t>(threadIdx.x);
    if (thread < block_rows)
        sees[thread] = ta_attention_sees(w, b, thread);
    if (thread == 0) {
        sources[0] = find_source<Type>(w, w.k, w.k_dim, b.kv_head);
        sources[1] = find_source<Type>(w, w.v, w.v_dim, b.kv_head);
    }
    stage_queries<Type>(w, b, q, q_stride);
    ta_syncthreads();

    const int32_t own_row = thread / row_lanes * lane_rows;
    const float *own_q = q + own_row * q_stride;
    float *weights = all_weights + own_row;
    ta_attention_row rows[lane_rows];
#pragma unroll
    for (int i = 0; i < lane_rows; i++)
        rows[i] = ta_attention_row{sees[own_row + i].first, sees[own_row + i].end, -INFINITY, 0.0f};
    float o[chunks_most][lane_rows][lane_columns] = {};

    ta_attention_chunk<Type, Aligned> next;
    int32_t searched = 0, at = ta_next_seen(sees, block_rows, 0, searched);
    if (at < INT32_MAX)
        next.load(sources[0], at, 0);
    while (at < INT32_MAX) {
        int32_t then = ta_next_seen(sees, block_rows, at + TA_ATTENTION_KEYS, searched);
        float dots[lane_rows][lane_keys] = {}, rescale[lane_rows];
        for (int32_t e = 0; e < w.k_dim; e += chunk) {
            ta_syncthreads(); /* nobody needs the chunk before any more */
            next.store(tile);
            ta_syncthreads();
            if (e + chunk < w.k_dim)
                next.load(sources[0], at, e + chunk);
            else
                next.load(sources[1], at, 0);
            add_dots(own_q + e, q_stride, tile, dots);
        }
        weigh_keys(p.rule, at, dots, rows, rescale, weights);
        bool masked =
            ta_uniform(sees[block_rows - 1].first > at || sees[0].end < at + TA_ATTENTION_KEYS);
        int32_t v_dim = w.v_dim;
        ta_opaque_uniform(v_dim);
#pragma unroll
        for (int c = 0; c < chunks_most; c++) {
            if (c * chunk >= v_dim)
                continue;
            ta_syncthreads();
            next.store(tile);
            ta_syncthreads();
            if ((c + 1) * chunk < v_dim)
                next.load(sources[1], at, (c + 1) * chunk);
            else if (then < INT32_MAX)
                next.load(sources[0], then, 0);
            add_values(weights, tile + thread % row_lanes * lane_columns, at, masked, rows, rescale,
                       o[c]);
        }
        at = then;
    }
    write_records(w, b, records, rows, o);
}

template <class Type>
static ta_launch_result launch(const ta_attention_params &p, float *records, hipStream_t stream)
{
    int32_t q_stride = static_cast<int32_t>(ta_round_up(p.work.k_dim, chunk)) + 4;
    dim3 blocks(
        static_cast<unsigned>(ta_ceil_div(p.work.queries, block_rows) * p.work.query_heads));
    size_t shared = static_cast<size_t>(block_rows * q_stride) * sizeof(float);
    if (p.aligned)
        return TA_LAUNCH((attention_forward<Type, true>), blocks, fma_threads, shared, stream, p,
                         q_stride, records);
    return TA_LAUNCH((attention_forward<Type, false>), blocks, fma_threads, shared, stream, p,
                     q_stride, records);
}

ta_launched ta_launch_attention_forward(const ta_attention_params *params, float *records,
                                        void *stream)
{
    hipStream_t on = static_cast<hipStream_t>(stream);
    ta_launch_result result = ta_no_type("attention_forward", params->work.dtype);
    TA_TYPE_SWITCH(TA_ALL_TYPES, params->work.dtype, Type,
                   result = launch<Type>(*params, records, on))
    return ta_launched_of(result);
}
