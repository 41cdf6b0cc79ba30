/* attention_backward_fma. Grid: one block for each (tile of its own rows, KV head), of
 * shape.threads threads, with shape.shared_bytes of shared memory.
 *
 * Backward over full sequences by fused multiply-adds, for any element type; what all threads share
 * is fp32. backward.h says what a block owns and meets. For each tile of others:
 *     weights   a thread has 2 own rows × 2 others: q·k, dout·v, and from them p and ds
 *     sums      a thread has 8 own rows × 4 columns: dV += p · dout, dK += ds · q; or dQ += ds · k
 *
 * attention.c launches backward through the functions at the end; aligned tensors of f16
 * and bf16 go to backward_mma.hip on devices with matrix cores. */
#include "backward_shape.h"

static const int fma_lanes = TA_BACKWARD_LANES;

/* Others whose weights are added up before they are added to the sum of all
 * (docs/numerics.md). */
static const int run_others = TA_RUN_TOKENS;

/* 8 elements at a multiple of 16 bytes. */
template <class Type> TA_DEVICE void load8_aligned(const void *data, int64_t at, float (&x)[8])
{
    const typename Type::element *from = static_cast<const typename Type::element *>(data) + at;
#pragma unroll
    for (int i = 0; i < 8; i += Type::unit) {
        float unit[Type::unit];
        Type::unpack(ta_load16_global(from + i), unit);
#pragma unroll
        for (int j = 0; j < Type::unit; j++)
            x[i + j] = unit[j];
    }
}

/* 8 elements, at any address or at a multiple of 16 bytes. */
TA_DEVICE void load8(ta_dtype dtype, const void *data, int64_t at, bool aligned, float (&x)[8])
{
    if (!aligned) {
#pragma unroll
        for (int i = 0; i < 8; i++)
            x[i] = ta_load_element(dtype, data, at + i);
        return;
    }
    TA_TYPE_SWITCH_IN_KERNEL(TA_ALL_TYPES, dtype, Type, load8_aligned<Type>(data, at, x))
}

TA_DEVICE void store4(float *to, const float *x)
{
    ta_vec16 v;
#pragma unroll
    for (int i = 0; i < 4; i++)
        v.word[i] = ta_as_bits(x[i]);
    ta_store16(to, v);
}

TA_DEVICE void load4(const float *from, float (&x)[4])
{
    ta_vec16 v = ta_load16(from);
#pragma unroll
    for (int i = 0; i < 4; i++)
        x[i] = ta_as_float(v.word[i]);
}

TA_DEVICE bool is_finite(float x)
{
    return x - x == 0.0f;
}

/* `count` rows of a tensor, as fp32. Is any element not finite? */
TA_DEVICE bool load_rows(const ta_attention_params &p, const ta_tensor &tensor, int32_t dim,
                         const ta_line *lines, int32_t count, char *to, int32_t stride)
{
    int32_t thread = static_cast<int32_t>(threadIdx.x);
    bool strange = false;
#pragma unroll 1
    for (int32_t i = thread / fma_lanes; i < count;
         i += static_cast<int32_t>(blockDim.x) / fma_lanes) {
        float *row = reinterpret_cast<float *>(to + i * stride);
        bool there = lines[i].row >= 0;
        int64_t at = there ? ta_line_element(tensor, lines[i]) : 0;
#pragma unroll 1
        for (int32_t e = thread % fma_lanes * 8; e < dim; e += fma_lanes * 8) {
            float x[8] = {0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f};
            if (there)
                load8(p.work.dtype, tensor.data, at + e, p.aligned != 0, x);
#pragma unroll
            for (int j = 0; j < 8; j++)
                strange |= !is_finite(x[j]);
            store4(row + e, x);
            store4(row + e + 4, x + 4);
        }
    }
    return strange;
}

/* A tile of query rows, or of keys: what has k_dim, then what has v_dim. */
template <bool Queries>
TA_DEVICE bool load_tile(const ta_backward_args &a, const ta_attention_backward_params &p,
                         const ta_line *lines, int32_t count, char *k, char *v)
{
    bool strange = false;
#pragma unroll 1
    for (int of_v = 0; of_v < 2; of_v++) {
        const ta_tensor &for_k = Queries ? p.common.work.q : p.common.work.k;
        const ta_tensor &for_v = Queries ? p.gradient.dout : p.common.work.v;
        strange |= load_rows(a.p.common, of_v ? for_v : for_k,
                             of_v ? a.p.common.work.v_dim : a.p.common.work.k_dim, lines, count,
                             of_v ? v : k, of_v ? a.s.v_stride : a.s.k_stride);
    }
    return strange;
}

/* The dot products of 2 rows with 2 rows. */
TA_DEVICE void multiply(const char *a, int32_t a_step, const char *b, int32_t b_step, int32_t dim,
                        float (&sum)[2][2])
{
#pragma unroll
    for (int i = 0; i < 4; i++)
        sum[i / 2][i % 2] = 0.0f;
#pragma unroll 1
    for (int32_t e = 0; e < dim; e += 4) {
        float x[2][4], y[2][4];
#pragma unroll
        for (int i = 0; i < 2; i++) {
            load4(reinterpret_cast<const float *>(a + i * a_step) + e, x[i]);
            load4(reinterpret_cast<const float *>(b + i * b_step) + e, y[i]);
        }
#pragma unroll
        for (int j = 0; j < 4; j++) {
#pragma unroll
            for (int i = 0; i < 4; i++)
                sum[i / 2][i % 2] = fmaf(x[i / 2][j], y[i % 2][j], sum[i / 2][i % 2]);
        }
    }
}

/* [other][own row] weights of ds, and after them those of p. */
TA_DEVICE float *ds_weights(const ta_backward_shape &s, char *shared)
{
    return reinterpret_cast<float *>(shared + s.weights_at);
}

TA_DEVICE float *p_weights(const ta_backward_shape &s, char *shared)
{
    return ds_weights(s, shared) + s.others * s.own;
}

/* The weights of all pairs: 0 for one that is not seen. */
template <bool Keys>
TA_DEVICE void weigh_tile(const ta_backward_args &a, char *shared, const ta_line *own_lines,
                          const ta_line *other_lines, int32_t own, int32_t other)
{
    const ta_backward_shape &s = a.s;
    /* Rows of a thread are half a tile apart, so that its neighbours' lie in other banks. */
    int32_t own_half = s.own / 2, other_half = s.others / 2;
    ta_opaque_uniform(own_half);
    ta_opaque_uniform(other_half);
    for (int32_t i = static_cast<int32_t>(threadIdx.x); i < own_half * other_half;
         i += static_cast<int32_t>(blockDim.x)) {
        int32_t r = other_half == 16 ? i / 16 : i / 8, o = i & (other_half - 1);
        float dot[2][2], product[2][2] = {{0.0f, 0.0f}, {0.0f, 0.0f}};
#pragma unroll 1
        for (int of_v = 0; of_v < 2; of_v++) {
            int32_t stride = of_v ? s.v_stride : s.k_stride;
#pragma unroll
            for (int j = 0; j < 4; j++)
                dot[j / 2][j % 2] = product[j / 2][j % 2];
            multiply(shared + (of_v ? s.own_v_at : s.own_k_at) + r * stride, own_half * stride,
                     shared + (of_v ? s.other_v_at : s.other_k_at) + o * stride,
                     other_half * stride, of_v ? a.p.common.work.v_dim : a.p.common.work.k_dim,
                     product);
        }
#pragma unroll
        for (int j = 0; j < 4; j++) {
            int32_t row = r + j / 2 * own_half, column = o + j % 2 * other_half;
            ta_pair pair = {0.0f, 0.0f};
            if (ta_pair_seen<Keys>(own + row, own_lines[row], other + column, other_lines[column]))
                pair = ta_make_pair(a.p.common.rule, dot[j / 2][j % 2], product[j / 2][j % 2],
                                    Keys ? other_lines[column] : own_lines[row]);
            ds_weights(s, shared)[column * s.own + row] = pair.ds;
            if (Keys)
                p_weights(s, shared)[column * s.own + row] = pair.p;
        }
    }
}

/* This thread's part of the sums. */
struct ta_part {
    float run[sum_rows][sum_columns]; /* of the current run */
    float all[sum_rows][sum_columns]; /* of the runs before */
    int32_t row, column;              /* the first of them */
    bool of_v;                        /* of dV; else of dK or dQ */
    bool exists;
};

template <bool Keys> TA_DEVICE void start_part(const ta_backward_args &a, ta_part &part)
{
    int32_t k_dim = a.p.common.work.k_dim, dims = k_dim + (Keys ? a.p.common.work.v_dim : 0);
    int32_t units = dims / sum_columns, thread = static_cast<int32_t>(threadIdx.x);
    part.row = thread / units * sum_rows;
    part.column = thread % units * sum_columns;
    part.exists = part.row < a.s.own;
    part.of_v = part.column >= k_dim;
    if (part.of_v)
        part.column -= k_dim;
#pragma unroll
    for (int i = 0; i < sum_rows * sum_columns; i++)
        part.run[i / sum_columns][i % sum_columns] = part.all[i / sum_columns][i % sum_columns] =
            0.0f;
}

TA_DEVICE void end_run(ta_part &part)
{
#pragma unroll
    for (int i = 0; i < sum_rows * sum_columns; i++) {
        part.all[i / sum_columns][i % sum_columns] += part.run[i / sum_columns][i % sum_columns];
        part.run[i / sum_columns][i % sum_columns] = 0.0f;
    }
}

/* Add a tile of the others to the run; elements that are not finite count as 0 if `careful`. */
TA_DEVICE void sum_tile(const ta_backward_shape &s, const float *weights, const char *values,
                        int32_t stride, bool careful, ta_part &part)
{
#pragma unroll 1
    for (int32_t o = 0; o < s.others; o++) {
        float x[sum_columns], w[2][4];
        load4(reinterpret_cast<const float *>(values + o * stride), x);
        load4(weights + o * s.own, w[0]);
        load4(weights + o * s.own + 4, w[1]);
        if (careful) {
#pragma unroll
            for (int i = 0; i < sum_columns; i++)
                x[i] = is_finite(x[i]) ? x[i] : 0.0f;
        }
#pragma unroll
        for (int i = 0; i < sum_rows * sum_columns; i++)
            part.run[i / sum_columns][i % sum_columns] =
                fmaf(w[i / 16][i / sum_columns % 4], x[i % sum_columns],
                     part.run[i / sum_columns][i % sum_columns]);
    }
}

/* The sums that must see an element that sum_tile() took for 0 become NaN; all others have the bits
 * that they always have. */
template <bool Keys>
TA_DEVICE void show_not_finite(const ta_backward_shape &s, const ta_backward_tables &tables,
                               const ta_line *other_lines, int32_t other, const char *values,
                               int32_t stride, ta_part &part)
{
#pragma unroll
    for (int r = 0; r < sum_rows; r++) {
#pragma unroll 1
        for (int32_t o = 0; o < s.others; o++) {
            float x[sum_columns];
            load4(reinterpret_cast<const float *>(values + o * stride), x);
            bool seen = ta_pair_seen<Keys>(tables.m.own + part.row + r, tables.own[part.row + r],
                                           other + o, other_lines[o]);
#pragma unroll
            for (int i = 0; i < sum_columns; i++)
                part.run[r][i] = seen && !is_finite(x[i]) ? NAN : part.run[r][i];
        }
    }
}

/* One tile of the others, and the end of a run if there have been enough. */
template <bool Keys>
TA_DEVICE void add_tile(const ta_backward_shape &s, char *shared, const ta_backward_tables &tables,
                        const ta_others &others, int32_t other, bool ends_run, ta_part &part)
{
    int32_t stride = part.of_v ? s.v_stride : s.k_stride;
    const char *values = shared + (part.of_v ? s.other_v_at : s.other_k_at) + part.column * 4;
    const float *weights = (part.of_v ? p_weights(s, shared) : ds_weights(s, shared)) + part.row;
    bool careful = ta_uniform(others.not_finite);
    sum_tile(s, weights, values, stride, careful, part);
    if (careful)
        show_not_finite<Keys>(s, tables, others.lines, other, values, stride, part);
    if (ends_run)
        end_run(part);
}

template <bool Keys>
__global__ void __launch_bounds__(TA_BACKWARD_THREADS) attention_backward_fma(ta_backward_args a)
{
    TA_SHARED_DYNAMIC(char, shared);
    ta_backward_tables &tables = *reinterpret_cast<ta_backward_tables *>(shared);
    const ta_backward_shape &s = a.s;
    ta_block_ranges m = ta_find_block_ranges<Keys>(a);
    ta_start_tables<Keys>(a, m, tables);
    load_tile<!Keys>(a, tables.p, tables.own, s.own, shared + s.own_k_at, shared + s.own_v_at);
    ta_part part;
    start_part<Keys>(a, part);

    int32_t which = 0, in_run = 0;
    const int32_t end = ta_uniform(m.end);
    for (int32_t at = ta_uniform(m.first); at < end; at += s.others, which ^= 1) {
        ta_others &now = tables.others[which];
        ta_find_others<Keys>(tables, at, s.others, now);
        ta_syncthreads(); /* also: the sums of the tile before are done with its rows */
        if (load_tile<Keys>(a, tables.p, now.lines, s.others, shared + s.other_k_at,
                            shared + s.other_v_at))
            atomicOr(&now.not_finite, 1);
        ta_syncthreads();
        weigh_tile<Keys>(a, shared, tables.own, now.lines, tables.m.own, at);
        ta_syncthreads();
        in_run = in_run + s.others < run_others ? in_run + s.others : 0;
        if (part.exists)
            add_tile<Keys>(s, shared, tables, now, at, in_run == 0, part);
    }
    end_run(part);
    if (!part.exists)
        return;
#pragma unroll
    for (int r = 0; r < sum_rows; r++) {
        const ta_line &line = tables.own[part.row + r];
#pragma unroll
        for (int i = 0; i < sum_columns; i++)
            if (line.row >= 0)
                ta_store_gradient<Keys>(a, tables.p.gradient, line, part.column + i, part.of_v,
                                        part.all[r][i]);
    }
}

/* ---- The host's side ------------------------------------------------------------------------ */

static ta_launch_result launch_fma(const ta_gpu_limits *limits,
                                   const ta_attention_backward_params *params, bool keys,
                                   hipStream_t stream)
{
    ta_backward_args a = {*params, ta_backward_fma_shape(limits, params->common.work, keys)};
    if (a.s.blocks == 0)
        return {hipErrorInvalidValue, "attention_backward_fma"};
    dim3 grid(static_cast<unsigned>(a.s.blocks));
    unsigned threads = static_cast<unsigned>(a.s.threads);
    size_t bytes = static_cast<size_t>(a.s.shared_bytes);
    if (keys)
        return TA_LAUNCH(attention_backward_fma<true>, grid, threads, bytes, stream, a);
    return TA_LAUNCH(attention_backward_fma<false>, grid, threads, bytes, stream, a);
}

static bool fits_mma(const ta_gpu_limits *limits, const ta_attention_backward_params *params,
                     bool keys)
{
    const ta_attention_work &w = params->common.work;
    return limits->matrix && params->common.aligned && ta_type_in_matrices(w.dtype) &&
           ta_backward_mma_shape(limits, w, keys).blocks > 0;
}

size_t ta_gpu_backward_bytes(const ta_gpu_limits *limits, const ta_attention_work *shape)
{
    (void)limits, (void)shape;
    return 0;
}

int ta_attention_backward_steps(const ta_gpu_limits *limits,
                                const ta_attention_backward_params *params)
{
    (void)limits, (void)params;
    return 2; /* dK and dV, then dQ */
}

ta_launched ta_launch_attention_backward(const ta_gpu_limits *limits,
                                         const ta_attention_backward_params *params, int step,
                                         void *stream)
{
    bool keys = step == 0;
    hipStream_t s = static_cast<hipStream_t>(stream);
    TA_NEED_TYPE("attention_backward", params->common.work.dtype);
    TA_NEED_TYPE("attention_backward", params->gradient.dq_dtype);
    TA_NEED_TYPE("attention_backward", params->gradient.kv_dtype);
    if (fits_mma(limits, params, keys))
        return ta_launch_attention_backward_mma(limits, params, keys, s);
    ta_launch_result result = launch_fma(limits, params, keys, s);
    return ta_launched_of(result);
}

ta_launched ta_prepare_attention_backward(int wave, int shared_bytes)
{
    ta_launched result = ta_launched_of({hipSuccess, "attention_backward_fma"});
    const void *kernels[] = {reinterpret_cast<const void *>(attention_backward_fma<false>),
                             reinterpret_cast<const void *>(attention_backward_fma<true>)};
    for (int i = 0; i < 2 && result.error == 0; i++)
        result.error = static_cast<int>(hipFuncSetAttribute(
            kernels[i], hipFuncAttributeMaxDynamicSharedMemorySize, shared_bytes));
    return result.error == 0 ? ta_prepare_attention_backward_mma(wave, shared_bytes) : result;
}
