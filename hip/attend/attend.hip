/* attend_fma. Grid: a block for each that the device holds at a time, or for each item if there are
 * more; where there are splits, one for each (sequence, KV head, split, row group). Blocks have
 * shape.threads threads and shape.shared_bytes of shared memory.
 *
 * Attention of up to 16 query rows over pieces of the tokens by fused multiply-adds, for any
 * element type and any layout. The threads form teams of up to 4 rows each; all teams use the same
 * tile of K and V. In a team:
 *     scores    8 to 32 threads share a key, each multiplies some of its elements with all rows
 *     weights   16 threads share a row (softmax.h)
 *     sums      a thread has 2 columns of V and some of the tokens, and adds for all rows
 * block_piece.h says which pieces a block has, pieces.c and splits.c launch it; attend_mma.hip is
 * for many rows of 16-bit elements. */
#include "softmax.h"
#include "tell.h"
#include "tile.h"

/* Threads that share a row while its scores become weights, and the keys that each has. */
static const int row_lanes = 16;
static const int row_keys = TA_FMA_TILE / row_lanes;

/* A team's share of the block. What it has in shared memory is found by a shape that the caller
 * has read again: kept over all tiles, its places would fill scalar registers. */
struct ta_team {
    char *shared;
    int32_t thread;    /* in the team */
    int32_t first_row; /* of the block's */

    __device__ __forceinline__ ta_team(const ta_attend_shape &s, char *memory) : shared(memory)
    {
        int32_t team = static_cast<int32_t>(threadIdx.x) / s.team_threads;
        thread = static_cast<int32_t>(threadIdx.x) - team * s.team_threads;
        first_row = team * s.team_rows;
    }

    /* [row][part][unit][4]: see q_index(). */
    __device__ __forceinline__ float *q(const ta_attend_shape &s) const
    {
        return reinterpret_cast<float *>(shared + s.q_at + first_row * s.q_stride);
    }

    /* [row][key] */
    __device__ __forceinline__ float *scores(const ta_attend_shape &s) const
    {
        return reinterpret_cast<float *>(shared + s.scores_at) + first_row * s.s_stride;
    }

    /* [key][row] */
    __device__ __forceinline__ float *weights(const ta_attend_shape &s) const
    {
        return reinterpret_cast<float *>(shared + s.weights_at) + first_row * s.tile;
    }

    __device__ __forceinline__ ta_row *rows(const ta_attend_shape &s) const
    {
        return reinterpret_cast<ta_row *>(shared + s.rows_at) + first_row;
    }

    /* [row] what o of the current run must be multiplied by, … */
    __device__ __forceinline__ float *rescale(const ta_attend_shape &s) const
    {
        return reinterpret_cast<float *>(shared + s.scales_at) + first_row;
    }

    /* … and o of the runs before. */
    __device__ __forceinline__ float *o_scale(const ta_attend_shape &s) const
    {
        return rescale(s) + s.rows;
    }
};

/* Where element `e` of a query row is kept: the floats that go with the units of neighbouring
 * threads are neighbours, 4 at a time, so that reading them meets no bank twice. */
template <class Type> TA_DEVICE int32_t q_index(int32_t k_dim, int32_t e)
{
    int32_t units = k_dim / Type::unit, unit = e / Type::unit, within = e % Type::unit;
    return (within / 4 * units + unit) * 4 + within % 4;
}

template <class Type>
TA_DEVICE void stage_query(const ta_attend_params &p, const ta_block &b, char *shared)
{
    int32_t k_dim = p.problem.k_dim;
    float *q = reinterpret_cast<float *>(shared + p.shape.q_at);
    for (int32_t i = static_cast<int32_t>(threadIdx.x); i < p.shape.rows * k_dim;
         i += static_cast<int32_t>(blockDim.x)) {
        int32_t row = i / k_dim, e = i % k_dim;
        float x = 0.0f;
        if (row < b.row_count)
            x = ta_load_element(p.problem.query_dtype, p.q.data, ta_row_query(p, b, row) + e);
        q[row * k_dim + q_index<Type>(k_dim, e)] = x;
    }
}

/* Halve the rows of which a lane has sums, by exchange with the lane at distance Half, until one is
 * left. */
template <int Half, int Rows> TA_DEVICE void halve_rows(float (&sum)[Rows], int32_t lane)
{
    if constexpr (Half > 0) {
        bool upper = (lane & Half) != 0;
#pragma unroll
        for (int r = 0; r < Half; r++) {
            float low = sum[r], high = sum[r + Half];
            float give = upper ? low : high, keep = upper ? high : low;
            sum[r] = keep + ta_shfl_xor(give, Half);
        }
        halve_rows<Half / 2>(sum, lane);
    }
}

/* Each lane has a sum for every row; afterwards sum[0] is the total over `lanes` neighbours for row
 * lane % Rows. Halving takes fewer exchanges than a total for each row. */
template <int Rows> TA_DEVICE void reduce_rows(float (&sum)[Rows], int32_t lane, int32_t lanes)
{
    halve_rows<Rows / 2>(sum, lane);
    for (int mask = Rows; mask < lanes; mask *= 2)
        sum[0] += ta_shfl_xor(sum[0], mask);
}

/* The dot products of the team's rows with `Keys` keys per thread. */
template <class Type, int Rows, int Keys>
TA_DEVICE void score_tile(const ta_attend_params &p, const ta_team &t, const char *k)
{
    const ta_attend_shape &s = p.shape;
    int32_t lane = t.thread & (s.lanes - 1), slot = t.thread / s.lanes;
    int32_t keys_at_once = s.team_threads / s.lanes;
    int32_t units = p.problem.k_dim / Type::unit;
    for (int32_t base = slot; base - slot < s.tile; base += Keys * keys_at_once) {
        float sum[Keys][Rows];
        const char *key[Keys];
#pragma unroll
        for (int j = 0; j < Keys; j++) {
            key[j] = k + min(base + j * keys_at_once, s.tile - 1) * s.k_stride;
#pragma unroll
            for (int r = 0; r < Rows; r++)
                sum[j][r] = 0.0f;
        }
        for (int32_t u = lane; u < units; u += s.lanes) {
            float x[Keys][Type::unit];
#pragma unroll
            for (int j = 0; j < Keys; j++)
                Type::unpack(ta_load16(key[j] + u * 16), x[j]);
#pragma unroll
            for (int part = 0; part < Type::unit / 4; part++) {
#pragma unroll
                for (int r = 0; r < Rows; r++) {
                    ta_vec16 q = ta_load16(t.q(s) + r * p.problem.k_dim + (part * units + u) * 4);
#pragma unroll
                    for (int i = 0; i < 4 * Keys; i++)
                        sum[i / 4][r] = fmaf(ta_as_float(q.word[i % 4]), x[i / 4][part * 4 + i % 4],
                                             sum[i / 4][r]);
                }
            }
        }
#pragma unroll
        for (int j = 0; j < Keys; j++) {
            reduce_rows<Rows>(sum[j], lane, s.lanes);
            if (lane < Rows && base + j * keys_at_once < s.tile)
                t.scores(s)[lane * s.s_stride + base + j * keys_at_once] = sum[j][0];
        }
    }
}

/* Scores of the tile that starts at `at` become weights: below 0 for a key that the row does not
 * see. */
template <bool Narrow, int Rows>
TA_DEVICE void weigh_keys(const ta_attend_params &p, const ta_team &t, int32_t at, int32_t count,
                          const int32_t *positions, const float *kv_scales, bool ends_run)
{
    const ta_attend_shape &s = p.shape;
    int32_t r = t.thread / row_lanes, lane = t.thread % row_lanes;
    bool has_row = r < Rows;
    ta_row row = {}; /* of a thread too many: row 0 is written by another */
    if (has_row)
        row = t.rows(s)[r];
    float scores[row_keys];
    bool seen[row_keys];
#pragma unroll
    for (int i = 0; i < row_keys; i++) {
        int32_t key = lane + i * row_lanes;
        seen[i] = has_row && key < count && at + key >= row.sees.first && at + key < row.sees.end;
        scores[i] = -INFINITY;
        if (seen[i]) {
            float dot = t.scores(s)[r * s.s_stride + key];
            if (Narrow)
                dot *= kv_scales[key];
            scores[i] = ta_make_score(p.rule, row, dot, positions + key);
        }
    }
    float rescale = ta_softmax_row<row_lanes>(row, scores);
    float o_scale = 1.0f;
    if (ends_run)
        o_scale = ta_end_run(row);
    ta_syncwave(); /* the row's other lanes have read it: the first one writes */
    if (!has_row)
        return;
    if (Narrow)
#pragma unroll
        for (int i = 0; i < row_keys; i++)
            if (seen[i])
                scores[i] *= kv_scales[2 * s.tile + lane + i * row_lanes];
#pragma unroll
    for (int i = 0; i < row_keys; i++)
        if (lane + i * row_lanes < s.tile)
            t.weights(s)[(lane + i * row_lanes) * Rows + r] = seen[i] ? scores[i] : -1.0f;
    if (lane == 0) {
        t.rows(s)[r] = row;
        t.rescale(s)[r] = rescale;
        t.o_scale(s)[r] = o_scale;
    }
}

/* This thread's part of the output: 2 columns of every row, over some of the tokens. */
template <int Rows> struct ta_columns {
    float run[Rows][TA_TEAM_COLUMNS]; /* of the current run */
    float all[Rows][TA_TEAM_COLUMNS]; /* of the runs before */
    int32_t column;                   /* the first of them */
    int32_t first_token, token_step;  /* in each tile; none if first_token is beyond it */
};

template <int Rows>
TA_DEVICE void start_columns(const ta_attend_params &p, const ta_team &t, ta_columns<Rows> &o)
{
    int32_t columns = p.problem.v_dim / TA_TEAM_COLUMNS;
    o.column = t.thread % columns * TA_TEAM_COLUMNS;
    o.first_token = t.thread / columns;
    o.token_step = p.shape.team_threads / columns;
    if (o.first_token >= o.token_step) /* a thread too many: it has no tokens and no sums */
        o.first_token = max(p.shape.tile, o.token_step);
#pragma unroll
    for (int i = 0; i < Rows * TA_TEAM_COLUMNS; i++)
        o.run[i / TA_TEAM_COLUMNS][i % TA_TEAM_COLUMNS] =
            o.all[i / TA_TEAM_COLUMNS][i % TA_TEAM_COLUMNS] = 0.0f;
}

/* Add the values of the tile's first `count` tokens. A row that must not see all of them needs
 * Careful: a weight of 0 would still let a NaN through. */
template <class Type, int Rows, bool Careful>
TA_DEVICE void add_values(const ta_attend_params &p, const ta_team &t, const char *v, int32_t count,
                          ta_columns<Rows> &o)
{
    const ta_attend_shape &s = p.shape;
#pragma unroll
    for (int i = 0; i < Rows * TA_TEAM_COLUMNS; i++)
        o.run[i / TA_TEAM_COLUMNS][i % TA_TEAM_COLUMNS] *= t.rescale(s)[i / TA_TEAM_COLUMNS];
#pragma unroll 4
    for (int32_t key = o.first_token; key < count; key += o.token_step) {
        float x[TA_TEAM_COLUMNS];
        ta_load2<Type>(
            reinterpret_cast<const typename Type::element *>(v + key * s.v_stride) + o.column, x);
        ta_vec16 weights;
        if (Rows == 4)
            weights = ta_load16(t.weights(s) + key * Rows);
#pragma unroll
        for (int r = 0; r < Rows; r++) {
            float w = Rows == 4 ? ta_as_float(weights.word[r]) : t.weights(s)[key * Rows + r];
#pragma unroll
            for (int i = 0; i < TA_TEAM_COLUMNS; i++)
                if (!Careful || !(w < 0.0f))
                    o.run[r][i] = fmaf(w, x[i], o.run[r][i]);
        }
    }
}

template <int Rows>
TA_DEVICE void end_run(const ta_attend_shape &s, const ta_team &t, ta_columns<Rows> &o)
{
#pragma unroll
    for (int i = 0; i < Rows * TA_TEAM_COLUMNS; i++) {
        o.all[i / TA_TEAM_COLUMNS][i % TA_TEAM_COLUMNS] =
            fmaf(o.all[i / TA_TEAM_COLUMNS][i % TA_TEAM_COLUMNS], t.o_scale(s)[i / TA_TEAM_COLUMNS],
                 o.run[i / TA_TEAM_COLUMNS][i % TA_TEAM_COLUMNS]);
        o.run[i / TA_TEAM_COLUMNS][i % TA_TEAM_COLUMNS] = 0.0f;
    }
}

/* Add up what the threads have of each row, in the order of their tokens, and write the records. */
template <int Rows>
TA_DEVICE void write_records(const ta_attend_params &p, const ta_block &b, const ta_team &t,
                             const ta_columns<Rows> &o, char *shared)
{
    const ta_attend_shape &s = p.shape;
    int32_t v_dim = ta_uniform(b.v_dim);
    float *scratch =
        reinterpret_cast<float *>(shared + s.v_at) + (threadIdx.x - t.thread) * TA_TEAM_COLUMNS;
#pragma unroll
    for (int r = 0; r < Rows; r++) {
        ta_syncthreads();
        if (o.first_token < o.token_step) {
            for (int i = 0; i < TA_TEAM_COLUMNS; i++)
                scratch[o.first_token * v_dim + o.column + i] = o.all[r][i];
        }
        ta_syncthreads();
        if (t.first_row + r >= b.row_count)
            continue;
        float *record = ta_piece_record(b, t.first_row + r);
        for (int32_t i = t.thread; i < v_dim; i += s.team_threads) {
            float sum = scratch[i];
            for (int32_t part = 1; part < o.token_step; part++)
                sum += scratch[part * v_dim + i];
            record[i] = sum;
        }
    }
    int32_t r = t.thread;
    if (r < Rows && t.first_row + r < b.row_count) {
        float *record = ta_piece_record(b, t.first_row + r);
        record[v_dim] = ta_row_m(t.rows(s)[r]);
        record[v_dim + 1] = t.rows(s)[r].l;
    }
}

template <class Type, int Rows, bool Aligned>
__global__ void __launch_bounds__(TA_BLOCK_THREADS_MAX, 1) attend_fma(ta_attend_params p)
{
    TA_SHARED_DYNAMIC(char, shared);
    TA_SHARED(ta_block, b);
    typedef typename Type::staged Staged;
    const bool narrow = sizeof(typename Type::element) == 1;
    ta_tell_step(p.problem, p.kv, p.tell);
    if (p.share.blocks)
        ta_find_shares(ta_params_again(p), b, *reinterpret_cast<ta_share_scratch *>(shared));
    ta_team t(p.shape, shared);
    bool two_keys = p.shape.tile > p.shape.team_threads / p.shape.lanes;
#pragma unroll 1
    for (bool again = false;
         ta_next_piece(ta_params_again(p), again, sizeof(typename Type::element), b,
                       reinterpret_cast<ta_row *>(shared + ta_params_again(p).shape.rows_at));
         again = true) {
        ta_columns<Rows> o;
        start_columns<Rows>(ta_params_again(p), t, o);
        ta_tiles<Type, Aligned, TA_UNITS> tiles(ta_params_again(p), b, shared);
        for (bool more = false; ta_next_tokens(ta_params_again(p), more, b, shared); more = true) {
            tiles.begin();
            if (!more)
                stage_query<Staged>(ta_params_again(p), b, shared);
            int32_t tile_of_run = 0;
            const int32_t end = ta_uniform(b.end);
            for (int32_t at = ta_uniform(b.first); at < end; at += ta_params_again(p).shape.tile) {
                /* Arguments again, here and below, or scalar registers would be spilled. */
                const ta_attend_shape &s = ta_params_again(p).shape;
                ta_opaque(t.thread);
                ta_opaque(t.first_row);
                tiles.make_opaque();
                bool ends_run = ++tile_of_run == s.run || at + s.tile >= end;
                const int32_t *positions = tiles.positions(s) + tiles.found_at(s);
                const float *kv_scales = tiles.kv_scales(s) + tiles.found_at(s);
                tiles.store_k();
                tiles.look_up();
                ta_syncthreads();
                tiles.load_k();
                if (two_keys)
                    score_tile<Staged, Rows, 2>(ta_params_again(p), t, shared + s.k_at);
                else
                    score_tile<Staged, Rows, 1>(ta_params_again(p), t, shared + s.k_at);
                ta_syncthreads();
                int32_t count = min(end - at, s.tile);
                weigh_keys<narrow, Rows>(ta_params_again(p), t, at, count, positions, kv_scales,
                                         ends_run);
                tiles.store_v();
                ta_syncthreads();
                tiles.load_v();
                if (ta_uniform(at >= b.all_see.first && at + count <= b.all_see.end))
                    add_values<Staged, Rows, false>(ta_params_again(p), t, shared + s.v_at, count,
                                                    o);
                else
                    add_values<Staged, Rows, true>(ta_params_again(p), t, shared + s.v_at, count,
                                                   o);
                if (ends_run) {
                    end_run<Rows>(ta_params_again(p).shape, t, o);
                    tile_of_run = 0;
                }
            }
        }
        write_records<Rows>(ta_params_again(p), b, t, o, shared);
    }
}

template <class Type>
static ta_launch_result launch_type(const ta_attend_params &p, int aligned, hipStream_t stream)
{
    int64_t blocks = ta_attend_blocks(&p);
    dim3 grid(static_cast<unsigned>(blocks));
    unsigned threads = static_cast<unsigned>(p.shape.threads);
    size_t bytes = static_cast<size_t>(p.shape.shared_bytes);
    if (!aligned)
        return TA_LAUNCH((attend_fma<Type, TA_TEAM_ROWS, false>), grid, threads, bytes, stream, p);
    if (p.shape.team_rows == 1)
        return TA_LAUNCH((attend_fma<Type, 1, true>), grid, threads, bytes, stream, p);
    return TA_LAUNCH((attend_fma<Type, TA_TEAM_ROWS, true>), grid, threads, bytes, stream, p);
}

ta_launched ta_launch_attend_fma(const ta_attend_params *params, int aligned, void *stream)
{
    hipStream_t s = static_cast<hipStream_t>(stream);
    TA_NEED_TYPE("attend_fma", params->problem.query_dtype);
    ta_launch_result result = ta_no_type("attend_fma", params->problem.kv_dtype);
    TA_TYPE_SWITCH(TA_CACHE_TYPES, params->problem.kv_dtype, Type,
                   result = launch_type<Type>(*params, aligned, s))
    return ta_launched_of(result);
}
