/* attention_backward_mma. Grid: one block for each (tile of its own rows, KV head), of
 * shape.threads threads, with shape.shared_bytes of shared memory.
 *
 * Backward over full sequences by the matrix cores (mma.h), for f16 and bf16. backward.h says
 * what a block owns and meets. For each tile of others, the waves share out 16 × 16 tiles:
 *     scores    own rows × others: q·k and dout·v
 *     weights   16 threads share an own row: p and ds, in the place of the scores
 *     sums      own rows × columns: dV += p · dout, dK += ds · q; or dQ += ds · k
 *
 * Weights are fp32, and are split into sums of 16-bit numbers that lose nothing (weights.h). A row
 * of them is first multiplied by a power of two, so that the largest is close to the upper end of
 * f16: p of a key that nobody cares for and ds of a small dout may all be below its exponents.
 *
 * backward.hip launches this, and has the kernels for all other cases. */
#include "backward.h"
#include "mma.h"
#include "weights.h"

static const int mma_edge = 16;
static const int mma_others = TA_BACKWARD_OTHERS;
static const int mma_lanes = TA_BACKWARD_LANES;

/* 16 × 16 tiles of the sums for each 32 lanes of a wave: 64 registers. */
static const int mma_sums = 8;

/* 8 elements at any address. */
TA_DEVICE ta_vec16 gather8(const uint16_t *from)
{
    ta_vec16 x;
#pragma unroll
    for (int i = 0; i < 4; i++)
        x.word[i] = from[2 * i] | static_cast<uint32_t>(from[2 * i + 1]) << 16;
    return x;
}

/* `count` rows of a tensor, with zeros up to a whole number of tiles. Is any element not finite? */
template <class Type>
TA_DEVICE bool load_rows(const ta_tensor &tensor, int32_t dim, bool aligned, const ta_line *lines,
                         int32_t count, char *to, int32_t stride)
{
    int32_t thread = static_cast<int32_t>(threadIdx.x), lane = thread % mma_lanes;
    int32_t wide = (dim + mma_edge - 1) / mma_edge * mma_edge;
    uint32_t found = 0;
    for (int32_t i = thread / mma_lanes; i < count;
         i += static_cast<int32_t>(blockDim.x) / mma_lanes) {
        const uint16_t *from = static_cast<const uint16_t *>(tensor.data);
        from += lines[i].row < 0 ? 0 : ta_line_element(tensor, lines[i]);
        int32_t there = lines[i].row < 0 ? 0 : dim;
        for (int32_t e = lane * 8; e < wide; e += mma_lanes * 8) {
            ta_vec16 x = {{0, 0, 0, 0}};
            if (e < there)
                x = aligned ? ta_load16_global(from + e) : gather8(from + e);
#pragma unroll
            for (int j = 0; j < 4; j++)
                found |= ta_not_finite(Type(), x.word[j]);
            ta_store16(to + i * stride + e * 2, x);
        }
    }
    return found != 0;
}

/* A tile of query rows, or of keys: what has k_dim, then what has v_dim. */
template <class Type, bool Queries>
TA_DEVICE bool load_tile(const ta_backward_args &a, const ta_attention_backward_params &p,
                         const ta_line *lines, int32_t count, char *k, char *v)
{
    bool strange = false;
#pragma unroll 1
    for (int of_v = 0; of_v < 2; of_v++) {
        const ta_tensor &for_k = Queries ? p.common.work.q : p.common.work.k;
        const ta_tensor &for_v = Queries ? p.gradient.dout : p.common.work.v;
        strange |= load_rows<Type>(of_v ? for_v : for_k,
                                   of_v ? a.p.common.work.v_dim : a.p.common.work.k_dim,
                                   a.p.common.aligned != 0, lines, count, of_v ? v : k,
                                   of_v ? a.s.v_stride : a.s.k_stride);
    }
    return strange;
}

/* One tile of dot products of rows with rows. */
template <class Type, int Wave>
TA_DEVICE void multiply(const char *a, const char *b, int32_t stride, int32_t dim, float *to,
                        int32_t to_stride)
{
    ta_product<Wave> c;
    ta_product_clear(c);
    for (int32_t at = 0; at < dim; at += mma_edge)
        ta_mma<Type>(c, ta_load_a<Wave>(a + at * 2, stride),
                     ta_load_b_rows<Wave>(b + at * 2, stride));
#pragma unroll
    for (int e = 0; e < 256 / Wave; e++)
        to[ta_product_row<Wave>(e) * to_stride + ta_product_column<Wave>(e)] = c.x[e];
}

/* q·k and dout·v of all pairs: a row has first the ones and then the others. */
template <class Type, int Wave>
TA_DEVICE void score_tile(const ta_backward_args &a, char *shared, int32_t waves)
{
    const ta_backward_shape &s = a.s;
    const int32_t columns = mma_others / mma_edge;
    for (int32_t i = ta_wave_id(); i < s.own / mma_edge * columns * 2; i += waves) {
        int32_t row = i / (columns * 2) * mma_edge, other = i / 2 % columns * mma_edge;
        bool of_v = i % 2 != 0;
        int32_t stride = of_v ? s.v_stride : s.k_stride;
        int32_t dim = of_v ? a.p.common.work.v_dim : a.p.common.work.k_dim;
        const char *own = shared + (of_v ? s.own_v_at : s.own_k_at) + row * stride;
        const char *others = shared + (of_v ? s.other_v_at : s.other_k_at) + other * stride;
        float *to = reinterpret_cast<float *>(shared + s.weights_at + row * s.weight_stride) +
                    (of_v ? mma_others : 0) + other;
        multiply<Type, Wave>(own, others, stride, dim, to, s.weight_stride / 4);
    }
}

TA_DEVICE float row_max(float x)
{
#pragma unroll
    for (int mask = mma_lanes / 2; mask > 0; mask /= 2)
        x = fmaxf(x, ta_shfl_xor(x, mask));
    return x;
}

/* Split a row's weights, of which this lane has some: `from` are those of its first part. They are
 * multiplied by a power of two that brings the largest to 2^14 or more and below 2^15; returns what
 * undoes that. A NaN stays one. */
template <class Type, int Count>
TA_DEVICE float split_weights(const float (&weights)[Count], char *to, int32_t lane)
{
    float most = 0.0f;
#pragma unroll
    for (int i = 0; i < Count; i++)
        most = fmaxf(most, fabsf(weights[i]));
    /* In biased exponents, where 127 is 1. Neither the factor nor its inverse may be subnormal. */
    uint32_t exponent = ta_as_bits(row_max(most)) >> 23;
    uint32_t up = min(127u + 14u + 127u - exponent, 253u);
    float factor = ta_as_float(up << 23);
#pragma unroll
    for (int i = 0; i < Count; i++) {
        float rest = weights[i] * factor;
#pragma unroll
        for (int part = 0; part < Type::weight_parts; part++) {
            uint16_t x = Type::to(rest);
            *reinterpret_cast<uint16_t *>(to + (part * mma_others + i * mma_lanes + lane) * 2) = x;
            rest -= Type::from(x);
        }
    }
    return ta_as_float((254u - up) << 23);
}

/* The scores become weights, in their place: the parts of ds, then those of p. A pair that is not
 * seen has weight 0. `undo` are the factors of ds, then those of p. */
template <class Type, bool Keys>
TA_DEVICE void weigh_tile(const ta_backward_args &a, char *shared, const ta_line *own_lines,
                          const ta_line *other_lines, int32_t own, int32_t other,
                          float (&undo)[2][TA_BACKWARD_OWN])
{
    const int count = mma_others / mma_lanes;
    int32_t thread = static_cast<int32_t>(threadIdx.x), lane = thread % mma_lanes;
    int32_t rows_at_once = static_cast<int32_t>(blockDim.x) / mma_lanes;
    for (int32_t r = thread / mma_lanes; ta_uniform(r < a.s.own); r += rows_at_once) {
        char *row = shared + a.s.weights_at + r * a.s.weight_stride;
        const float *scores = reinterpret_cast<const float *>(row);
        float p[count], ds[count];
#pragma unroll
        for (int i = 0; i < count; i++) {
            int32_t o = i * mma_lanes + lane;
            p[i] = ds[i] = 0.0f;
            if (ta_pair_seen<Keys>(own + r, own_lines[r], other + o, other_lines[o])) {
                ta_pair pair = ta_make_pair(a.p.common.rule, scores[o], scores[mma_others + o],
                                            Keys ? other_lines[o] : own_lines[r]);
                p[i] = pair.p;
                ds[i] = pair.ds;
            }
        }
        ta_syncwave(); /* all lanes of the row have read their scores */
        float undo_ds = split_weights<Type>(ds, row, lane), undo_p = 0.0f;
        if (Keys)
            undo_p = split_weights<Type>(p, row + Type::weight_parts * mma_others * 2, lane);
        if (lane == 0) {
            undo[0][r] = undo_ds;
            undo[1][r] = undo_p;
        }
    }
}

/* A tile of the sums; wave w has numbers w, w + waves, w + 2 · waves, … */
struct ta_sum_tile {
    int32_t row, column;
    bool of_v; /* of dV; else of dK or dQ */
    bool exists;
};

template <bool Keys> TA_DEVICE ta_sum_tile find_sum(const ta_backward_args &a, int32_t number)
{
    int32_t row_tiles = a.s.own / mma_edge;
    int32_t k_wide = (a.p.common.work.k_dim + mma_edge - 1) / mma_edge * mma_edge;
    ta_sum_tile t;
    t.row = number % row_tiles * mma_edge;
    t.column = number / row_tiles * mma_edge;
    t.of_v = Keys && t.column >= k_wide;
    if (t.of_v)
        t.column -= k_wide;
    t.exists = t.column < (t.of_v ? a.p.common.work.v_dim : a.p.common.work.k_dim);
    return t;
}

/* Elements that are not finite become 0. */
template <class Type, int Wave> TA_DEVICE void hide_not_finite(ta_operand<Wave> &x)
{
#pragma unroll
    for (int i = 0; i < 128 / Wave; i++)
        x.word[i] &= ~((ta_not_finite(Type(), x.word[i]) >> 15) * 0xffffu);
}

/* One tile of the sums over one tile of the others. */
template <class Type, int Wave>
TA_DEVICE void add_others(const char *weights, int32_t weight_stride, const char *values,
                          int32_t stride, bool careful, ta_product<Wave> &c)
{
#pragma unroll
    for (int32_t o = 0; o < mma_others; o += mma_edge) {
        ta_operand<Wave> x = ta_load_b<Wave>(values + o * stride, stride);
        if (careful)
            hide_not_finite<Type>(x);
#pragma unroll
        for (int part = Type::weight_parts - 1; part >= 0; part--)
            ta_mma<Type>(c, ta_load_a<Wave>(weights + (part * mma_others + o) * 2, weight_stride),
                         x);
    }
}

/* The sums that must see an element that add_others() hid become NaN; all others have the bits that
 * they always have. `values` is the column of the element. */
template <class Type, bool Keys>
TA_DEVICE float show_not_finite(float sum, const char *values, int32_t stride, int32_t own,
                                const ta_line &own_line, int32_t other, const ta_line *other_lines)
{
#pragma unroll 1
    for (int32_t o = 0; o < mma_others; o++) {
        uint16_t x = *reinterpret_cast<const uint16_t *>(values + o * stride);
        if (ta_not_finite(Type(), x) != 0 &&
            ta_pair_seen<Keys>(own, own_line, other + o, other_lines[o]))
            return NAN;
    }
    return sum;
}

/* Add a tile of the others to all sums. */
template <class Type, bool Keys, int Tiles, int Wave>
TA_DEVICE void sum_tile(const ta_backward_args &a, const char *shared, int32_t waves,
                        const ta_line *own_lines, const ta_others &others, int32_t own,
                        int32_t other, const float (&undo)[2][TA_BACKWARD_OWN],
                        ta_product<Wave> (&sums)[Tiles])
{
    const ta_backward_shape &s = a.s;
    bool careful = ta_uniform(others.not_finite);
    int32_t number = ta_wave_id() - waves;
#pragma unroll
    for (int i = 0; i < Tiles; i++) {
        ta_opaque_uniform(number); /* where the tiles are is not to be known in advance */
        ta_sum_tile t = find_sum<Keys>(a, number += waves);
        if (!t.exists)
            continue;
        int32_t stride = t.of_v ? s.v_stride : s.k_stride;
        const char *values = shared + (t.of_v ? s.other_v_at : s.other_k_at) + t.column * 2;
        const char *weights = shared + s.weights_at + t.row * s.weight_stride +
                              (t.of_v ? Type::weight_parts * mma_others * 2 : 0);
        ta_product<Wave> c;
        ta_product_clear(c);
        add_others<Type, Wave>(weights, s.weight_stride, values, stride, careful, c);
#pragma unroll
        for (int e = 0; e < 256 / Wave; e++) {
            int32_t row = t.row + ta_product_row<Wave>(e);
            if (careful)
                c.x[e] = show_not_finite<Type, Keys>(
                    c.x[e], values + ta_product_column<Wave>(e) * 2, stride, own + row,
                    own_lines[row], other, others.lines);
            sums[i].x[e] = fmaf(c.x[e], undo[t.of_v][row], sums[i].x[e]);
        }
    }
}

template <bool Keys, int Tiles, int Wave>
TA_DEVICE void store_sums(const ta_backward_args &a, int32_t waves,
                          const ta_backward_tables &tables, const ta_product<Wave> (&sums)[Tiles])
{
    int32_t number = ta_wave_id() - waves;
#pragma unroll
    for (int i = 0; i < Tiles; i++) {
        ta_opaque_uniform(number);
        ta_sum_tile t = find_sum<Keys>(a, number += waves);
        int32_t dim = t.of_v ? a.p.common.work.v_dim : a.p.common.work.k_dim;
#pragma unroll
        for (int e = 0; e < 256 / Wave; e++) {
            const ta_line &line = tables.own[t.row + ta_product_row<Wave>(e)];
            int32_t column = t.column + ta_product_column<Wave>(e);
            if (line.row >= 0 && column < dim)
                ta_store_gradient<Keys>(a, tables.p.gradient, line, column, t.of_v, sums[i].x[e]);
        }
    }
}

template <class Type, bool Keys, int Wave>
__global__ void __launch_bounds__(TA_BACKWARD_THREADS) attention_backward_mma(ta_backward_args a)
{
    TA_ONLY_WAVE(Wave);
    TA_SHARED_DYNAMIC(char, shared);
    ta_backward_tables &tables = *reinterpret_cast<ta_backward_tables *>(shared);
    const int tile_count = mma_sums * Wave / 32;
    const int32_t waves = static_cast<int32_t>(blockDim.x) / Wave;
    const ta_backward_shape &s = a.s;
    ta_meeting m = ta_find_meeting<Keys>(a);
    ta_start_tables<Keys>(a, m, tables);
    load_tile<Type, !Keys>(a, tables.p, tables.own, s.own, shared + s.own_k_at,
                           shared + s.own_v_at);
    ta_product<Wave> sums[tile_count];
#pragma unroll
    for (int i = 0; i < tile_count; i++)
        ta_product_clear(sums[i]);

    int32_t turn = 0;
    const int32_t end = ta_uniform(m.end);
    for (int32_t at = ta_uniform(m.first); at < end; at += mma_others, turn ^= 1) {
        ta_others &now = tables.others[turn];
        ta_find_others<Keys>(tables, at, mma_others, now);
        ta_syncthreads(); /* also: the sums of the tile before are done with its rows */
        if (load_tile<Type, Keys>(a, tables.p, now.lines, mma_others, shared + s.other_k_at,
                                  shared + s.other_v_at))
            atomicOr(&now.not_finite, 1);
        ta_syncthreads();
        score_tile<Type, Wave>(a, shared, waves);
        ta_syncthreads();
        weigh_tile<Type, Keys>(a, shared, tables.own, now.lines, tables.m.own, at, tables.undo);
        ta_syncthreads();
        sum_tile<Type, Keys, tile_count, Wave>(a, shared, waves, tables.own, now, tables.m.own, at,
                                               tables.undo, sums);
    }
    store_sums<Keys, tile_count, Wave>(a, waves, tables, sums);
}

/* ---- The host's side ------------------------------------------------------------------------ */

static int32_t cut(ta_backward_shape &s, int64_t bytes)
{
    int32_t at = s.shared_bytes;
    s.shared_bytes += static_cast<int32_t>(bytes);
    return at;
}

/* The sizes of a block with so many rows of its own; rows are padded to whole tiles, and by 16
 * bytes more so that neighbours lie in other banks. */
static ta_backward_shape lay_out(const ta_attention_work &w, bool keys, int32_t own)
{
    ta_backward_shape s = {};
    int32_t k_wide = (w.k_dim + mma_edge - 1) / mma_edge * mma_edge;
    int32_t v_wide = (w.v_dim + mma_edge - 1) / mma_edge * mma_edge;
    int32_t sums = own / mma_edge * ((k_wide + (keys ? v_wide : 0)) / mma_edge);
    int32_t parts = 0; /* of a weight */
    TA_TYPE_SWITCH(TA_MATRIX_TYPES, w.dtype, Type, parts = Type::weight_parts)
    s.threads = sums > mma_sums * TA_BACKWARD_THREADS / 2 / 32 ? TA_BACKWARD_THREADS
                                                               : TA_BACKWARD_THREADS / 2;
    if (sums > mma_sums * TA_BACKWARD_THREADS / 32)
        return s;
    s.own = own;
    s.others = mma_others;
    s.blocks = ta_backward_blocks(w, keys, own);
    s.k_stride = k_wide * 2 + 16;
    s.v_stride = v_wide * 2 + 16;
    /* Two fp32 scores, or all parts of the weights. */
    s.weight_stride = mma_others * (keys && parts == 3 ? 12 : 8) + 16;
    cut(s, sizeof(ta_backward_tables));
    s.own_k_at = cut(s, static_cast<int64_t>(own) * s.k_stride);
    s.own_v_at = cut(s, static_cast<int64_t>(own) * s.v_stride);
    s.other_k_at = cut(s, static_cast<int64_t>(mma_others) * s.k_stride);
    s.other_v_at = cut(s, static_cast<int64_t>(mma_others) * s.v_stride);
    s.weights_at = cut(s, static_cast<int64_t>(own) * s.weight_stride);
    return s;
}

/* The most rows whose sums fit the registers, and whose tiles fit shared memory: of the largest
 * heads 16 do with 64 KB. */
static ta_backward_shape choose_shape(const ta_gpu_limits *limits, const ta_attention_work &w,
                                      bool keys)
{
    ta_backward_shape s = {};
    for (int32_t own = TA_BACKWARD_OWN; own >= mma_edge; own /= 2) {
        s = lay_out(w, keys, own);
        if (s.own > 0 && s.shared_bytes <= limits->shared_bytes)
            return s;
    }
    s.blocks = 0;
    return s;
}

/* Whatever is done for all kernels of a width. */
template <int Wave, class Do> static ta_launch_result pick(ta_dtype dtype, bool keys, Do act)
{
    ta_launch_result result = ta_no_type("attention_backward_mma", dtype);
    TA_TYPE_SWITCH(TA_MATRIX_TYPES, dtype, Type,
                   result = keys ? act("attention_backward_mma<keys>",
                                       attention_backward_mma<Type, true, Wave>)
                                 : act("attention_backward_mma<queries>",
                                       attention_backward_mma<Type, false, Wave>))
    return result;
}

template <int Wave>
static ta_launch_result launch(const ta_backward_args &a, bool keys, hipStream_t stream)
{
    if constexpr (!ta_mma_has(Wave))
        return {hipErrorInvalidValue, "attention_backward_mma"};
    else
        return pick<Wave>(
            a.p.common.work.dtype, keys, [&](const char *name, void (*kernel)(ta_backward_args)) {
                return ta_launch(name, kernel, dim3(static_cast<unsigned>(a.s.blocks)),
                                 static_cast<unsigned>(a.s.threads),
                                 static_cast<size_t>(a.s.shared_bytes), stream, a);
            });
}

template <int Wave> static ta_launch_result prepare(int shared_bytes)
{
    ta_launch_result result = {hipSuccess, "attention_backward_mma"};
    if constexpr (ta_mma_has(Wave)) {
        auto allow = [&](const char *name, void (*kernel)(ta_backward_args)) {
            hipError_t error =
                hipFuncSetAttribute(reinterpret_cast<const void *>(kernel),
                                    hipFuncAttributeMaxDynamicSharedMemorySize, shared_bytes);
            return ta_launch_result{error, name};
        };
        for (ta_dtype dtype : ta_matrix_dtypes)
            for (bool keys : {false, true})
                if (result.error == hipSuccess)
                    result = pick<Wave>(dtype, keys, allow);
    }
    return result;
}

ta_launched ta_launch_attention_backward_mma(const ta_gpu_limits *limits,
                                             const ta_attention_backward_params *params, bool keys,
                                             hipStream_t stream)
{
    ta_backward_args a = {*params, choose_shape(limits, params->common.work, keys)};
    ta_launch_result result = {hipErrorInvalidValue, "attention_backward_mma"};
    if (a.s.blocks > 0)
        TA_WAVE_SWITCH(limits->wave, Wave, result = launch<Wave>(a, keys, stream));
    return ta_launched_of(result);
}

ta_launched ta_prepare_attention_backward_mma(int wave, int shared_bytes)
{
    ta_launch_result result = {hipErrorInvalidValue, "attention_backward_mma"};
    TA_WAVE_SWITCH(wave, Wave, result = prepare<Wave>(shared_bytes));
    return ta_launched_of(result);
}
