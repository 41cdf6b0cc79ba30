/* attention_forward_mma. Grid: one block for each (tile of queries, query head), of 16 queries for
 * each of its waves, with shape.shared_bytes of shared memory.
 *
 * Attention over full sequences, forward, by the matrix cores (mma.h), for aligned tensors of a
 * 16-bit type. Q stays in shared memory, K and V go by in tiles of 32 keys. A wave has 16 queries
 * to itself: scores, weights and sums of values in its registers, and only the weights pass through
 * shared memory, as sums of 16-bit numbers (weights.h). While scores are made V is on its way, and
 * K of the next tile while values are added up. attention.c launches this; forward.hip does all
 * that this can't. */
#include "block.h"
#include "mma.h"
#include "shape.h"
#include "weights.h"

static const int edge = TA_MMA_EDGE;
static const int steps = TA_ATTENTION_KEYS / edge;
static const int row_threads = 8; /* that bring a row of K or V, 16 bytes each at a time */

/* A tile of K or V on its way to shared memory, for heads of up to 16 · Tiles. */
template <int Tiles> struct ta_attention_tile {
    static const int rounds = TA_ATTENTION_KEYS * row_threads / TA_ATTENTION_THREADS_MIN;
    static const int wide = Tiles * 2 / row_threads;
    ta_vec16 units[rounds][wide];

    __device__ __forceinline__ void load(const ta_attention_work &w, const ta_tensor &from,
                                         int32_t dim, int32_t kv_head, int32_t at)
    {
        int32_t thread = static_cast<int32_t>(threadIdx.x);
        ta_opaque(thread); /* or what is compared with it would be kept for every turn */
        int32_t keys_at_once = static_cast<int32_t>(blockDim.x) / row_threads;
#pragma unroll
        for (int i = 0; i < rounds; i++) {
            int32_t key = thread / row_threads + i * keys_at_once;
            bool exists = key < TA_ATTENTION_KEYS && at + key < w.keys;
            int32_t row = exists ? ta_load_global(w.key_rows + at + key) : 0;
            const char *data =
                static_cast<const char *>(from.data) + ta_attention_element(from, row, kv_head) * 2;
#pragma unroll
            for (int j = 0; j < wide; j++) {
                int32_t unit = thread % row_threads + j * row_threads;
                units[i][j] = ta_vec16{{0, 0, 0, 0}};
                if (exists && unit * 8 < dim)
                    units[i][j] = ta_load16_global(data + unit * 16);
            }
        }
    }

    __device__ __forceinline__ void store(int32_t dim, char *to, int32_t stride) const
    {
        int32_t thread = static_cast<int32_t>(threadIdx.x);
        ta_opaque(thread); /* or what is compared with it would be kept for every turn */
        int32_t keys_at_once = static_cast<int32_t>(blockDim.x) / row_threads;
#pragma unroll
        for (int i = 0; i < rounds; i++) {
            int32_t key = thread / row_threads + i * keys_at_once;
#pragma unroll
            for (int j = 0; j < wide; j++) {
                int32_t unit = thread % row_threads + j * row_threads;
                if (key < TA_ATTENTION_KEYS && unit * 8 < dim)
                    ta_store16(to + key * stride + unit * 16, units[i][j]);
            }
        }
    }

    /* Is a value infinite or NaN? Then `note` becomes 1. */
    template <class Type> __device__ __forceinline__ void note_values(int32_t *note) const
    {
        uint32_t found = 0;
#pragma unroll
        for (int i = 0; i < rounds * wide * 4; i++)
            found |= ta_not_finite(Type(), units[i / 4 / wide][i / 4 % wide].word[i % 4]);
        if (found != 0)
            atomicOr(note, 1);
    }
};

/* The queries, and zeros up to whole tiles in them and in K: their product must be 0. */
TA_DEVICE void stage_queries(const ta_attention_work &w, const ta_attention_block &b,
                             const ta_attention_mma_shape &s, char *shared)
{
    int32_t thread = static_cast<int32_t>(threadIdx.x), threads = static_cast<int32_t>(blockDim.x);
    int32_t units = (w.k_dim + edge - 1) / edge * 2;
    for (int32_t i = thread; i < s.rows * units; i += threads) {
        int32_t row = i / units, unit = i % units;
        ta_vec16 x = {{0, 0, 0, 0}};
        if (row < b.count && unit * 8 < w.k_dim)
            x = ta_load16_global(
                static_cast<const char *>(w.q.data) +
                ta_attention_element(w.q, w.query_rows[b.first + row], b.head) * 2 + unit * 16);
        ta_store16(shared + s.q_at + row * s.k_stride + unit * 16, x);
    }
    if (w.k_dim % edge && thread < TA_ATTENTION_KEYS)
        ta_store16(shared + s.k_at + thread * s.k_stride + w.k_dim * 2, ta_vec16{{0, 0, 0, 0}});
}

/* The dot products of a wave's queries with the keys of a tile. */
template <class Type, int Wave>
TA_DEVICE void score_keys(int32_t k_dim, const char *q, const char *k, int32_t stride,
                          ta_product<Wave> (&scores)[steps])
{
#pragma unroll
    for (int i = 0; i < steps; i++)
        ta_product_clear(scores[i]);
#pragma unroll 2
    for (int32_t at = 0; at < k_dim; at += edge) {
        ta_operand<Wave> queries = ta_load_a<Wave>(q + at * 2, stride);
#pragma unroll
        for (int i = 0; i < steps; i++)
            ta_mma<Type>(scores[i], queries,
                         ta_load_b_rows<Wave>(k + i * edge * stride + at * 2, stride));
    }
}

/* Dot products become weights, in shared memory; `rescale` is what each row's o is to be multiplied
 * by. */
template <class Type, int Wave>
TA_DEVICE void weigh_keys(const ta_score_rule &rule, int32_t at,
                          const ta_product<Wave> (&dots)[steps],
                          ta_attention_row (&rows)[ta_product_rows<Wave>()],
                          float (&rescale)[ta_product_rows<Wave>()], char *weights)
{
    const int per_row = 256 / Wave / ta_product_rows<Wave>(); /* of one step */
#pragma unroll
    for (int r = 0; r < ta_product_rows<Wave>(); r++) {
        float scores[steps * per_row];
        int32_t keys[steps * per_row];
        int n = 0;
#pragma unroll
        for (int i = 0; i < steps; i++)
#pragma unroll
            for (int e = 0; e < 256 / Wave; e++)
                if (ta_product_slot<Wave>(e) == r) {
                    keys[n] = i * edge + ta_product_column<Wave>(e);
                    bool seen = at + keys[n] >= rows[r].first && at + keys[n] < rows[r].end;
                    scores[n++] = seen ? ta_attention_score(rule, dots[i].x[e]) : -INFINITY;
                }
        rescale[r] = ta_attention_softmax_row<ta_product_lanes<Wave>()>(rows[r], scores);
        int32_t row = ta_product_row<Wave>(ta_slot_element<Wave>(r));
#pragma unroll
        for (int i = 0; i < steps * per_row; i++)
            ta_store_weight<Type>(weights + row * TA_ATTENTION_WEIGHT_STRIDE + keys[i] * 2,
                                  edge * TA_ATTENTION_WEIGHT_STRIDE, scores[i]);
    }
    ta_syncwave();
}

/* In a tile in which some value is not finite and some row does not see all keys, a weight of 0
 * would not keep the value away. Then rows come one at a time, and see zeros where they must not
 * look: this brings V again, for the row that sees `sees`. */
TA_DEVICE void hide_values(const ta_attention_work &w, const ta_attention_mma_shape &s,
                           char *shared, int32_t kv_head, int32_t at, ta_visible sees)
{
    int32_t thread = static_cast<int32_t>(threadIdx.x), threads = static_cast<int32_t>(blockDim.x);
    int32_t units = w.v_dim / 8;
    ta_opaque(units); /* not in one of the scalar registers, which are scarce */
    ta_syncthreads(); /* the rows before are done with the values */
#pragma unroll 1
    for (int32_t i = thread; i < TA_ATTENTION_KEYS * units; i += threads) {
        int32_t key = i / units, unit = i % units;
        ta_vec16 x = {{0, 0, 0, 0}};
        if (at + key >= sees.first && at + key < sees.end)
            x = ta_load16_global(
                static_cast<const char *>(w.v.data) +
                ta_attention_element(w.v, ta_load_global(w.key_rows + at + key), kv_head) * 2 +
                unit * 16);
        ta_store16(shared + s.v_at + key * s.v_stride + unit * 16, x);
    }
    ta_syncthreads();
}

/* Add the tile's values to the sums of rows [first, end) of the wave's 16. */
template <class Type, int Tiles, int Wave>
TA_DEVICE void add_values(int32_t v_dim, const char *weights, const char *v, int32_t stride,
                          const float (&rescale)[ta_product_rows<Wave>()], int32_t first,
                          int32_t end, ta_product<Wave> (&o)[Tiles])
{
    const int parts = Type::weight_parts;
    const int kept = Tiles > 8 && parts > 2 ? 2 : parts; /* the widest heads leave few registers */
    auto load = [&](int step, int part) {
        return ta_load_a<Wave>(weights + part * edge * TA_ATTENTION_WEIGHT_STRIDE + step * edge * 2,
                               TA_ATTENTION_WEIGHT_STRIDE);
    };
    ta_operand<Wave> w[steps][kept];
#pragma unroll
    for (int i = 0; i < steps * kept; i++)
        w[i / kept][i % kept] = load(i / kept, i % kept);
    ta_opaque_uniform(v_dim);
#pragma unroll
    for (int i = 0; i < Tiles; i++) {
        if (i * edge >= v_dim)
            continue;
        ta_product<Wave> c;
        ta_product_clear(c);
#pragma unroll
        for (int step = 0; step < steps; step++) {
            ta_operand<Wave> values =
                ta_load_b<Wave>(v + step * edge * stride + i * edge * 2, stride);
#pragma unroll
            for (int part = parts - 1; part >= 0; part--)
                ta_mma<Type>(c, part < kept ? w[step][part % kept] : load(step, part), values);
        }
#pragma unroll
        for (int e = 0; e < 256 / Wave; e++) {
            int32_t row = ta_product_row<Wave>(e);
            if (row >= first && row < end)
                o[i].x[e] = fmaf(o[i].x[e], rescale[ta_product_slot<Wave>(e)], c.x[e]);
        }
    }
}

template <class Type, int Tiles, int Wave>
TA_DEVICE void write_records(const ta_attention_work &w, const ta_attention_block &b,
                             float *records,
                             const ta_attention_row (&rows)[ta_product_rows<Wave>()],
                             const ta_product<Wave> (&o)[Tiles])
{
#pragma unroll
    for (int r = 0; r < ta_product_rows<Wave>(); r++) {
        int32_t row = ta_wave_id() * edge + ta_product_row<Wave>(ta_slot_element<Wave>(r));
        if (row >= b.count)
            continue;
        float *record = ta_attention_record(w, b, row, records);
#pragma unroll
        for (int i = 0; i < Tiles; i++)
#pragma unroll
            for (int e = 0; e < 256 / Wave; e++) {
                int32_t column = i * edge + ta_product_column<Wave>(e);
                if (ta_product_slot<Wave>(e) == r && column < w.v_dim)
                    record[column] = o[i].x[e] * (1.0f / ta_weight_scale(Type()));
            }
        if (ta_product_column<Wave>(0) == 0) {
            record[w.v_dim] = rows[r].l != rows[r].l ? rows[r].l : rows[r].m;
            record[w.v_dim + 1] = rows[r].l;
        }
    }
}

template <class Type, int Tiles, int Wave>
__global__ void __launch_bounds__(TA_ATTENTION_WAVES *Wave)
    attention_forward_mma(ta_attention_params p, ta_attention_mma_shape s, float *records)
{
    TA_ONLY_WAVE(Wave);
    TA_SHARED_DYNAMIC(char, shared);
    TA_SHARED(ta_visible, sees, [TA_ATTENTION_WAVES * TA_MMA_EDGE]);
    TA_SHARED(int32_t, notes, [2]);
    const ta_attention_work &w = p.work;
    const ta_attention_block b = ta_find_attention_block(w, s.rows);
    const int32_t thread = static_cast<int32_t>(threadIdx.x);
    if (thread < s.rows)
        sees[thread] = ta_attention_sees(w, b, thread);
    if (thread < 2)
        notes[thread] = 0;
    stage_queries(w, b, s, shared);
    ta_syncthreads();

    const int32_t own_row = ta_wave_id() * edge;
    const ta_visible wave_first = sees[own_row], wave_last = sees[own_row + edge - 1];
    const char *q = shared + s.q_at + own_row * s.k_stride;
    char *weights =
        shared + s.weights_at + own_row * Type::weight_parts * TA_ATTENTION_WEIGHT_STRIDE;
    ta_attention_row rows[ta_product_rows<Wave>()];
#pragma unroll
    for (int r = 0; r < ta_product_rows<Wave>(); r++) {
        ta_visible v = sees[own_row + ta_product_row<Wave>(ta_slot_element<Wave>(r))];
        rows[r] = ta_attention_row{v.first, v.end, -INFINITY, 0.0f};
    }
    ta_product<Wave> o[Tiles];
#pragma unroll
    for (int i = 0; i < Tiles; i++)
        ta_product_clear(o[i]);

    ta_attention_tile<Tiles> tile;
    int32_t searched = 0, number = 0;
    int32_t at = ta_next_seen(sees, s.rows, 0, searched);
    if (at < INT32_MAX)
        tile.load(w, w.k, w.k_dim, b.kv_head, at);
    while (at < INT32_MAX) {
        tile.store(w.k_dim, shared + s.k_at, s.k_stride);
        ta_syncthreads(); /* also: nobody needs the values before any more */
        tile.load(w, w.v, w.v_dim, b.kv_head, at);
        int32_t next = ta_next_seen(sees, s.rows, at + TA_ATTENTION_KEYS, searched);
        bool works = ta_uniform(wave_first.first < at + TA_ATTENTION_KEYS && wave_last.end > at);
        float rescale[ta_product_rows<Wave>()];
        if (works) {
            ta_product<Wave> scores[steps];
            score_keys<Type, Wave>(w.k_dim, q, shared + s.k_at, s.k_stride, scores);
            weigh_keys<Type, Wave>(p.rule, at, scores, rows, rescale, weights);
        }
        tile.store(w.v_dim, shared + s.v_at, s.v_stride);
        if (sees[s.rows - 1].first > at || sees[0].end < at + TA_ATTENTION_KEYS)
            tile.template note_values<Type>(&notes[number]);
        if (thread == 0)
            notes[1 - number] = 0;
        ta_syncthreads(); /* also: nobody needs the keys any more */
        if (next < INT32_MAX)
            tile.load(w, w.k, w.k_dim, b.kv_head, next);
        bool careful = ta_uniform(notes[number]);
        for (int32_t first = 0, end = s.rows; first < s.rows; first = end) {
            if (careful) {
                hide_values(w, s, shared, b.kv_head, at, sees[first]);
                end = first + 1;
            }
            if (works && ta_uniform(first < own_row + edge && end > own_row))
                add_values<Type, Tiles, Wave>(w.v_dim, weights, shared + s.v_at, s.v_stride,
                                              rescale, first - own_row, end - own_row, o);
        }
        number = 1 - number;
        at = next;
    }
    write_records<Type, Tiles, Wave>(w, b, records, rows, o);
}

/* Whatever is done for all kernels of a width. */
template <class Type, int Wave, class Do> static ta_launch_result pick_tiles(int tiles, Do act)
{
    if (tiles == 4)
        return act("attention_forward_mma<64>", attention_forward_mma<Type, 4, Wave>);
    if (tiles == 8)
        return act("attention_forward_mma<128>", attention_forward_mma<Type, 8, Wave>);
    return act("attention_forward_mma<256>", attention_forward_mma<Type, 16, Wave>);
}

template <int Wave, class Do> static ta_launch_result pick(ta_dtype dtype, int tiles, Do act)
{
    ta_launch_result result = ta_no_type("attention_forward_mma", dtype);
    TA_TYPE_SWITCH(TA_MATRIX_TYPES, dtype, Type, result = pick_tiles<Type, Wave>(tiles, act))
    return result;
}

template <int Wave>
static ta_launch_result launch(const ta_attention_params &p, const ta_attention_mma_shape &s,
                               float *records, hipStream_t stream)
{
    if constexpr (!ta_mma_has(Wave))
        return {hipErrorInvalidValue, "attention_forward_mma"};
    else
        return pick<Wave>(p.work.dtype, s.tiles, [&](const char *name, auto kernel) {
            int64_t blocks = ta_ceil_div(p.work.queries, s.rows) * p.work.query_heads;
            return ta_launch(name, kernel, dim3(static_cast<unsigned>(blocks)),
                             static_cast<unsigned>(s.threads), static_cast<size_t>(s.shared_bytes),
                             stream, p, s, records);
        });
}

ta_launched ta_launch_attention_forward_mma(const ta_attention_params *params, int wave,
                                            const ta_attention_mma_shape *shape, float *records,
                                            void *stream)
{
    ta_launch_result result = {hipErrorInvalidValue, "attention_forward_mma"};
    TA_WAVE_SWITCH(wave, Wave,
                   result =
                       launch<Wave>(*params, *shape, records, static_cast<hipStream_t>(stream)));
    return ta_launched_of(result);
}

template <int Wave> static ta_launch_result prepare(int shared_bytes)
{
    int dynamic_bytes = shared_bytes - TA_BLOCK_BYTES; /* a block has that many beside them */
    ta_launch_result result = {hipSuccess, "attention_forward_mma"};
    if constexpr (ta_mma_has(Wave)) {
        auto allow = [&](const char *name, auto kernel) {
            hipError_t error =
                hipFuncSetAttribute(reinterpret_cast<const void *>(kernel),
                                    hipFuncAttributeMaxDynamicSharedMemorySize, dynamic_bytes);
            return ta_launch_result{error, name};
        };
        for (ta_dtype dtype : ta_matrix_dtypes)
            for (int tiles = 4; tiles <= 16 && result.error == hipSuccess; tiles *= 2)
                result = pick<Wave>(dtype, tiles, allow);
    }
    return result;
}

ta_launched ta_prepare_attention_forward_mma(int wave, int shared_bytes)
{
    ta_launch_result result = {hipErrorInvalidValue, "attention_forward_mma"};
    TA_WAVE_SWITCH(wave, Wave, result = prepare<Wave>(shared_bytes));
    return ta_launched_of(result);
}
