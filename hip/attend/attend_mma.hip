/* attend_mma. Grid: as attend_fma (attend.hip): equal shares of all items, or splits. Blocks have
 * shape.threads threads and shape.shared_bytes of shared memory.
 *
 * Attention of up to 64 query rows over pieces of the tokens by the matrix cores (mma.h), for
 * query, K and V of one 16-bit type, or K and V of 8 bits and a query of bf16. The waves of a block
 * share out 16 × 16 tiles:
 *     scores    (rows × keys), if there are few of them with parts of k_dim on different waves
 *     weights   16 threads share a row (softmax.h)
 *     sums      (rows × columns of V), which stay in the registers of their wave
 *
 * Weights are fp32. For the matrix cores each is split into a sum of numbers of V's type, or
 * rounded to one (weights.h). pieces.c and splits.c launch this; attend.hip does the rest. */
#include "mma.h"
#include "softmax.h"
#include "tell.h"
#include "tile.h"
#include "weights.h"

static const int row_lanes = 16;
static const int row_keys = TA_MMA_TILE / row_lanes;
static const int edge = TA_MMA_EDGE;

/* The query rows as they are, and zeros up to whole tiles in it and in K: their product must be
 * 0. */
TA_DEVICE void stage_query(const ta_attend_params &p, const ta_block &b, char *shared)
{
    const ta_attend_shape &s = p.shape;
    int32_t thread = static_cast<int32_t>(threadIdx.x), threads = static_cast<int32_t>(blockDim.x);
    int32_t k_dim = p.problem.k_dim, wide = (k_dim + edge - 1) / edge * edge;
    for (int32_t i = thread; i < s.rows * wide; i += threads) {
        int32_t row = i / wide, e = i % wide;
        uint16_t x = 0;
        if (row < b.row_count && e < k_dim)
            x = static_cast<const uint16_t *>(p.q.data)[ta_row_query(p, b, row) + e];
        *reinterpret_cast<uint16_t *>(shared + s.q_at + row * s.q_stride + e * 2) = x;
    }
    int32_t pad = wide - k_dim;
    for (int32_t i = thread; i < s.tile * pad; i += threads)
        *reinterpret_cast<uint16_t *>(shared + s.k_at + i / pad * s.k_stride +
                                      (k_dim + i % pad) * 2) = 0;
}

/* One tile of dot products: the rows from `row`, the keys from `key`, every k_parts-th part of
 * k_dim. */
template <class Type, int Wave>
TA_DEVICE void score(const ta_attend_params &p, char *shared, int32_t row, int32_t key,
                     int32_t part)
{
    const ta_attend_shape &s = p.shape;
    const char *q = shared + s.q_at + row * s.q_stride;
    const char *k = shared + s.k_at + key * s.k_stride;
    ta_product<Wave> c;
    ta_product_clear(c);
    for (int32_t at = part * edge; at < p.problem.k_dim; at += s.k_parts * edge)
        ta_mma<Type>(c, ta_load_a<Wave>(q + at * 2, s.q_stride),
                     ta_load_b_rows<Wave>(k + at * 2, s.k_stride));
    float *scores = reinterpret_cast<float *>(shared + s.scores_at) + part * s.rows * s.s_stride;
#pragma unroll
    for (int e = 0; e < 256 / Wave; e++)
        scores[(row + ta_product_row<Wave>(e)) * s.s_stride + key + ta_product_column<Wave>(e)] =
            c.x[e];
}

/* The dot products of all rows with all keys of the tile; the waves take turns. */
template <class Type, int Wave>
TA_DEVICE void score_tile(const ta_attend_params &p, char *shared, int32_t waves)
{
    const ta_attend_shape &s = p.shape;
    int32_t wait = ta_wave_id(); /* how many turns it is to the next of this wave */
    /* There is at least one row, key and part: to ask before the first would take registers. */
    int32_t row = 0;
    do {
        int32_t key = 0;
        do {
            int32_t part = 0;
            do {
                if (wait > 0) {
                    wait--;
                } else {
                    score<Type, Wave>(p, shared, row, key, part);
                    wait = waves - 1;
                }
            } while (++part < s.k_parts);
            key += edge;
        } while (key < s.tile);
        row += edge;
    } while (row < s.rows);
}

/* Make the scores of a row, from the dot products of all parts of k_dim, in the place of the first:
 * -inf for a key that the row does not see. */
template <bool Narrow>
TA_DEVICE void make_scores(const ta_attend_params &p, const ta_row &row, int32_t lane, int32_t at,
                           int32_t count, const int32_t *positions, const float *kv_scales,
                           float *scores)
{
    const ta_attend_shape &s = p.shape;
#pragma unroll 1
    for (int32_t first = 0; first < s.tile; first += row_lanes) {
        int32_t key = first + lane;
        float dot = scores[key];
        for (int32_t part = 1; part < s.k_parts; part++)
            dot += scores[part * s.rows * s.s_stride + key];
        bool seen = key < count && at + key >= row.sees.first && at + key < row.sees.end;
        if (Narrow)
            dot *= kv_scales[key];
        scores[key] = seen ? ta_make_score(p.rule, row, dot, positions + key) : -INFINITY;
    }
}

/* Scores of the tile that starts at `at` become weights: 0 for a key that the row does not see.
 * Rows and keys come in sixteens, so all lanes of a wave have one, or none has. */
template <class Type, bool Narrow>
TA_DEVICE void weigh_keys(const ta_attend_params &p, char *shared, int32_t at, int32_t count,
                          const int32_t *positions, const float *kv_scales)
{
    const ta_attend_shape &s = p.shape;
    const bool exact = ta_keeps_weights(p.problem);
    int32_t thread = static_cast<int32_t>(threadIdx.x);
    ta_opaque(thread);
    int32_t lane = thread % row_lanes, rows_at_once = static_cast<int32_t>(blockDim.x) / row_lanes;
    for (int32_t r = thread / row_lanes; ta_uniform(r < s.rows); r += rows_at_once) {
        ta_row *place = reinterpret_cast<ta_row *>(shared + s.rows_at) + r;
        ta_row row = *place;
        float *made = reinterpret_cast<float *>(shared + s.scores_at) + r * s.s_stride;
        make_scores<Narrow>(p, row, lane, at, count, positions, kv_scales, made);
        float scores[row_keys];
#pragma unroll
        for (int i = 0; i < row_keys; i++)
            scores[i] = i * row_lanes < s.tile ? made[i * row_lanes + lane] : -INFINITY;
        float rescale = ta_softmax_row<row_lanes>(row, scores);
        ta_end_run(row);
        if (Narrow)
#pragma unroll
            for (int i = 0; i < row_keys; i++) /* what a row does not see keeps its weight of 0 */
                if (i * row_lanes < s.tile && made[i * row_lanes + lane] != -INFINITY)
                    scores[i] *= kv_scales[2 * s.tile + i * row_lanes + lane];
#pragma unroll
        for (int i = 0; i < row_keys; i++)
            if (i * row_lanes < s.tile)
                ta_store_weight<Type>(shared + s.weights_at + r * s.w_stride +
                                          (i * row_lanes + lane) * 2,
                                      s.rows * s.w_stride, scores[i], exact);
        ta_syncwave(); /* the row's other lanes have read it */
        if (lane == 0) {
            *place = row;
            reinterpret_cast<float *>(shared + s.scales_at)[r] = rescale;
        }
    }
}

/* One tile of the output, over the tokens of one tile. */
template <class Type, int Wave>
TA_DEVICE void add_values(const ta_attend_params &p, const char *shared, int32_t row,
                          int32_t column, ta_product<Wave> &c)
{
    const ta_attend_shape &s = p.shape;
    const bool exact = ta_keeps_weights(p.problem);
    const char *v = shared + s.v_at + column * 2;
#pragma unroll 1
    for (int32_t key = 0; key < s.tile; key += edge) {
        ta_operand<Wave> values = ta_load_b<Wave>(v + key * s.v_stride, s.v_stride);
#pragma unroll
        for (int part = Type::weight_parts - 1; part >= 0; part--) {
            const char *weights =
                shared + s.weights_at + (part * s.rows + row) * s.w_stride + key * 2;
            if (part == 0 || exact)
                ta_mma<Type>(c, ta_load_a<Wave>(weights, s.w_stride), values);
        }
    }
}

/* A tile of the output; wave w has numbers w, w + waves, w + 2 · waves, … */
struct ta_output_tile {
    int32_t row, column;
    bool exists;
};

TA_DEVICE ta_output_tile find_output(int32_t row_tiles, int32_t v_dim, int32_t number)
{
    ta_output_tile t;
    t.row = number % row_tiles * edge;
    t.column = number / row_tiles * edge;
    t.exists = t.column < v_dim;
    return t;
}

/* Add the tile's values to the sums of rows [first_row, end_row). */
template <class Type, int Tiles, int Wave>
TA_DEVICE void sum_tile(const ta_attend_params &p, const char *shared, int32_t waves,
                        int32_t first_row, int32_t end_row, ta_product<Wave> (&o)[Tiles])
{
    const float *rescales = reinterpret_cast<const float *>(shared + p.shape.scales_at);
    int32_t wave = ta_wave_id();
    ta_opaque_uniform(wave);
#pragma unroll
    for (int i = 0; i < Tiles; i++) {
        ta_output_tile t = find_output(p.shape.row_tiles, p.problem.v_dim, wave + i * waves);
        if (!t.exists)
            continue;
        ta_product<Wave> c;
        ta_product_clear(c);
        add_values<Type, Wave>(p, shared, t.row, t.column, c);
#pragma unroll
        for (int e = 0; e < 256 / Wave; e++) {
            int32_t row = t.row + ta_product_row<Wave>(e);
            if (row >= first_row && row < end_row)
                o[i].x[e] = fmaf(o[i].x[e], rescales[row], c.x[e]);
        }
    }
}

template <class Type, int Tiles, int Wave>
TA_DEVICE void write_records(const ta_attend_params &p, const ta_block &b, const char *shared,
                             int32_t waves, const ta_product<Wave> (&o)[Tiles])
{
    const ta_row *rows = reinterpret_cast<const ta_row *>(shared + p.shape.rows_at);
    int32_t v_dim = ta_uniform(b.v_dim);
#pragma unroll
    for (int i = 0; i < Tiles; i++) {
        ta_output_tile t = find_output(p.shape.row_tiles, v_dim, ta_wave_id() + i * waves);
#pragma unroll
        for (int e = 0; e < 256 / Wave; e++) {
            int32_t row = t.row + ta_product_row<Wave>(e);
            int32_t column = t.column + ta_product_column<Wave>(e);
            if (row < b.row_count && column < v_dim)
                ta_piece_record(b, row)[column] = o[i].x[e] * (1.0f / ta_weight_scale(Type()));
        }
    }
    int32_t row = static_cast<int32_t>(threadIdx.x);
    if (row < b.row_count) {
        float *record = ta_piece_record(b, row);
        record[v_dim] = ta_row_m(rows[row]);
        record[v_dim + 1] = rows[row].l;
    }
}

/* Is a value of the tile in registers not finite? Then `note` becomes 1. */
template <class Staged, class Tiles> TA_DEVICE void note_values(const Tiles &tiles, int32_t *note)
{
    uint32_t found = 0;
#pragma unroll
    for (int i = 0; i < TA_UNITS; i++) {
        ta_vec16 unit = tiles.staged(tiles.v_units[i]);
#pragma unroll
        for (int word = 0; word < 4; word++)
            found |= ta_not_finite(Staged(), unit.word[word]);
    }
    if (found != 0)
        atomicOr(note, 1);
}

/* In a tile in which some value is not finite and some row does not see all keys, a weight of 0
 * would not keep the value away. Then the rows of one query token come at a time, and see zeros
 * where they must not look. Returns the end of the rows like `first_row`. */
template <class Tiles>
TA_DEVICE int32_t hide_values(const ta_attend_params &p, const ta_block &b, char *shared,
                              Tiles &tiles, int32_t at, int32_t first_row)
{
    ta_visible sees = reinterpret_cast<const ta_row *>(shared + p.shape.rows_at)[first_row].sees;
    ta_syncthreads(); /* the rows before are done with the values */
    tiles.store_seen_v(sees.first - at, sees.end - at);
    ta_syncthreads();
    int32_t token = (b.first_row + first_row) / b.heads;
    int32_t next = min((token + 1) * b.heads - b.first_row, b.row_count);
    return ta_uniform(first_row < b.row_count ? next : p.shape.rows);
}

template <class Type, int Few, int Wave>
__global__ void __launch_bounds__(TA_BLOCK_THREADS_MAX) attend_mma(ta_attend_params p)
{
    TA_ONLY_WAVE(Wave);
    TA_SHARED_DYNAMIC(char, shared);
    TA_SHARED(ta_block, b);
    TA_SHARED(int32_t, note);
    typedef typename Type::staged Staged;
    const bool narrow = sizeof(typename Type::element) == 1;
    const int tile_count = Few * Wave / 32;
    const int32_t waves = static_cast<int32_t>(blockDim.x) / Wave;
    ta_tell_step(p.problem, p.kv, p.tell);
    if (p.share.blocks)
        ta_find_shares(ta_params_again(p), b, *reinterpret_cast<ta_share_scratch *>(shared));
#pragma unroll 1
    for (bool again = false;
         ta_next_piece(ta_params_again(p), again, sizeof(typename Type::element), b,
                       reinterpret_cast<ta_row *>(shared + ta_params_again(p).shape.rows_at));
         again = true) {
        ta_tiles<Type, true, TA_UNITS> tiles(ta_params_again(p), b, shared);
        ta_product<Wave> o[tile_count];
#pragma unroll
        for (int i = 0; i < tile_count; i++)
            ta_product_clear(o[i]);
        for (bool more = false; ta_next_tokens(ta_params_again(p), more, b, shared); more = true) {
            tiles.begin();
            if (!more)
                stage_query(ta_params_again(p), b, shared);
            const int32_t end = ta_uniform(b.end);
            for (int32_t at = ta_uniform(b.first); at < end; at += ta_params_again(p).shape.tile) {
                tiles.make_opaque();
                /* Arguments again, here and below, or scalar registers would be spilled. */
                const ta_attend_shape &s = ta_params_again(p).shape;
                int32_t count = min(end - at, s.tile);
                bool all_see = ta_uniform(at >= b.all_see.first && at + count <= b.all_see.end);
                const int32_t *positions = tiles.positions(s) + tiles.found_at(s);
                const float *kv_scales = tiles.kv_scales(s) + tiles.found_at(s);
                tiles.store_k();
                tiles.look_up();
                ta_syncthreads();
                int32_t thread = static_cast<int32_t>(threadIdx.x);
                ta_opaque(thread);
                if (thread == 0)
                    note = 0;
                tiles.load_k();
                score_tile<Staged, Wave>(ta_params_again(p), shared, waves);
                ta_syncthreads();
                weigh_keys<Staged, narrow>(ta_params_again(p), shared, at, count, positions,
                                           kv_scales);
                tiles.store_v();
                if (!all_see)
                    note_values<Staged>(tiles, &note);
                ta_syncthreads();
                bool careful = !all_see && ta_uniform(note);
                tiles.load_v();
                const int32_t rows = ta_params_again(p).shape.rows;
                for (int32_t first_row = 0, end_row = rows; first_row < rows; first_row = end_row) {
                    if (careful)
                        end_row = hide_values(ta_params_again(p), b, shared, tiles, at, first_row);
                    sum_tile<Staged, tile_count, Wave>(ta_params_again(p), shared, waves, first_row,
                                                       end_row, o);
                }
            }
        }
        write_records<Staged, tile_count, Wave>(ta_params_again(p), b, shared, waves, o);
    }
}

/* Whatever is done for all kernels of a width. */
template <int Wave, class Do> static ta_launch_result pick(ta_dtype dtype, int tiles, Do act)
{
    ta_launch_result result = ta_no_type("attend_mma", dtype);
    TA_TYPE_SWITCH(TA_STAGED_TYPES, dtype, Type,
                   result =
                       tiles == TA_MMA_TILES_FEW
                           ? act("attend_mma<few>", attend_mma<Type, TA_MMA_TILES_FEW, Wave>)
                           : act("attend_mma<many>", attend_mma<Type, TA_MMA_TILES_MANY, Wave>))
    return result;
}

template <int Wave> static ta_launch_result launch(const ta_attend_params &p, hipStream_t stream)
{
    if constexpr (!ta_mma_has(Wave))
        return {hipErrorInvalidValue, "attend_mma"};
    else
        return pick<Wave>(p.problem.kv_dtype, p.shape.tiles,
                          [&](const char *name, void (*kernel)(ta_attend_params)) {
                              int64_t blocks = ta_attend_blocks(&p);
                              return ta_launch(name, kernel, dim3(static_cast<unsigned>(blocks)),
                                               static_cast<unsigned>(p.shape.threads),
                                               static_cast<size_t>(p.shape.shared_bytes), stream,
                                               p);
                          });
}

template <int Wave> static ta_launch_result prepare(int shared_bytes)
{
    int dynamic_bytes = shared_bytes - TA_BLOCK_BYTES; /* a block has that many beside them */
    ta_launch_result result = {hipSuccess, "attend_mma"};
    if constexpr (ta_mma_has(Wave)) {
        auto allow = [&](const char *name, void (*kernel)(ta_attend_params)) {
            hipError_t error =
                hipFuncSetAttribute(reinterpret_cast<const void *>(kernel),
                                    hipFuncAttributeMaxDynamicSharedMemorySize, dynamic_bytes);
            return ta_launch_result{error, name};
        };
        for (ta_dtype dtype : ta_staged_dtypes)
            for (int tiles : {TA_MMA_TILES_FEW, TA_MMA_TILES_MANY})
                if (result.error == hipSuccess)
                    result = pick<Wave>(dtype, tiles, allow);
    }
    return result;
}

int ta_mma_runs(int wave)
{
    return ta_mma_has(wave);
}

ta_launched ta_launch_attend_mma(const ta_attend_params *params, int wave, void *stream)
{
    ta_launch_result result = {hipErrorInvalidValue, "attend_mma"};
    TA_WAVE_SWITCH(wave, Wave, result = launch<Wave>(*params, static_cast<hipStream_t>(stream)));
    return ta_launched_of(result);
}

ta_launched ta_prepare_attend_mma(int wave, int shared_bytes)
{
    ta_launch_result result = {hipErrorInvalidValue, "attend_mma"};
    TA_WAVE_SWITCH(wave, Wave, result = prepare<Wave>(shared_bytes));
    return ta_launched_of(result);
}
