/* attend_direct. Grid: a block for each that the device holds at a time, or for each item if there
 * are more, of 4 waves; in reproducible mode one for each tile, sequence, KV head and row group.
 *
 * Attention of up to 16 query rows over caches of 16 or 8 bits and 64, 128 or 256 dimensions. Every
 * wave works by itself on its own tiles of 16 tokens: K and V go from memory straight into the
 * operands of the matrix cores, and the loop has no barrier and no shared memory.
 *
 *     block's piece   |tile 0|tile 1|tile 2|tile 3|tile 4|tile 5| …
 *     wave            |  0   |  1   |  2   |  3   |  0   |  1   | …
 *
 * At the end of a piece the waves merge what they have, in their order, and the record is written:
 * to its place if the piece is a whole item, else to the workspace for merge_pieces (merge.hip).
 * shares.h says which pieces a block has, direct_lanes.h which lane has what, direct_elements.h
 * what becomes of 8 bits. The .hip files of the head dimensions and of 8 bits include this, and
 * direct_fma.hip for the way that waves take a piece. */
#ifndef TA_HIP_DIRECT_KERNEL_H
#define TA_HIP_DIRECT_KERNEL_H

#include "direct_edge.h"
#include "softmax.h"
#include "tell.h"

/* What the teams of waves have of a piece, in shared memory, to be merged. */
template <int Dim, int Rows, int Teams> struct ta_team_partials {
    float m[Teams][Rows], l[Teams][Rows];
    float o[Rows][Dim + 4];
};

/* NaN is larger than anything. */
TA_DEVICE float ta_direct_larger(float a, float b)
{
    return a != a || a >= b ? a : b;
}

template <int Dim, int Rows, int Teams>
TA_DEVICE float ta_teams_largest(const ta_team_partials<Dim, Rows, Teams> &all, int32_t row)
{
    float m = all.m[0][row];
    for (int i = 1; i < Teams; i++)
        m = ta_direct_larger(m, all.m[i][row]);
    return m;
}

/* Each team writes down its m and l. */
template <class Type, int Dim, int Wave, int Rows, int Teams>
TA_DEVICE void ta_show_sums(const ta_direct_wave<Type, Dim, Wave, Rows> &w,
                            ta_team_partials<Dim, Rows, Teams> &all)
{
    typedef ta_lanes<Wave> lanes;
#pragma unroll
    for (int r = 0; r < w.slots; r++) {
        float l = w.whole_l(r);
        /* One for each row. */
        if (w.first_column() == 0 && (ta_lane() & (lanes::end_mask - lanes::first_mask)) == 0) {
            all.m[w.team()][lanes::row(r)] = l != l ? l : w.m[r];
            all.l[w.team()][lanes::row(r)] = l;
        }
    }
}

/* One team adds its o to those of the teams before it. */
template <class Type, int Dim, int Wave, int Rows, int Teams>
TA_DEVICE void ta_add_team(const ta_direct_wave<Type, Dim, Wave, Rows> &w,
                           ta_team_partials<Dim, Rows, Teams> &all)
{
    typedef ta_lanes<Wave> lanes;
    typedef ta_direct_wave<Type, Dim, Wave, Rows> wave;
    int32_t team = w.team();
#pragma unroll
    for (int r = 0; r < w.slots; r++) {
        int32_t row = lanes::row(r);
        float scale = ta_merge_scale(ta_teams_largest(all, row), all.m[team][row]).b *
                      (1.0f / ta_weight_scale(typename Type::staged()));
#pragma unroll
        for (int t = 0; t < w.products; t++)
#pragma unroll
            for (int i = 0; i < lanes::elements; i++) {
                float &to = all.o[row][wave::first_column() + wave::column(t, i)];
                float own = w.o[r][t][i] * scale;
                to = team == 0 ? own : to + own;
            }
    }
}

/* Merge what the waves have and write the records, of v_dim columns. W is here and below a
 * ta_direct_wave or, of direct_fma.hip, a ta_fma_wave. */
template <class W, int Dim, int Rows, int Teams>
TA_DEVICE void ta_end_piece(const W &w, const ta_direct_piece &b,
                            ta_team_partials<Dim, Rows, Teams> &all, int32_t v_dim)
{
    int32_t thread = static_cast<int32_t>(threadIdx.x);
    ta_opaque(thread); /* what follows from it is not kept from piece to piece */
    ta_show_sums(w, all);
    ta_syncthreads();
#pragma unroll 1
    for (int i = 0; i < Teams; i++) {
        if (w.team() == i)
            ta_add_team(w, all);
        ta_syncthreads();
    }
    int32_t rows = ta_uniform(b.row_count);
#pragma unroll 1
    for (int32_t i = thread; i < rows * v_dim; i += W::threads)
        ta_piece_record(b, i / v_dim)[i % v_dim] = all.o[i / v_dim][i % v_dim];
    if (thread < rows) {
        float m = ta_teams_largest(all, thread), l = 0.0f;
        for (int i = 0; i < Teams; i++)
            l += all.l[i][thread] * ta_merge_scale(m, all.m[i][thread]).b;
        float *record = ta_piece_record(b, thread);
        record[v_dim] = m;
        record[v_dim + 1] = l;
    }
}

/* The tiles from `t` to `last`, which all rows see whole, while the next is on its way. */
template <bool Native, bool Exact, class W>
TA_DEVICE void ta_take_seen_tiles(W &w, const ta_direct_params &p, const ta_direct_cache &c,
                                  int32_t t, int32_t last)
{
    const int32_t step = w.step;
    typename W::plain_addresses addresses(p, c);
    addresses.look_up(t);
#pragma unroll 1
    for (; t <= last && !addresses.exists(); t += step) {
        w.lose_all();
        addresses.look_up(t + step);
    }
    if (t > last)
        return;
    addresses.find(t);
    addresses.look_up(t + step);
    w.load_k(addresses);
    if (w.v_ahead)
        w.load_v(addresses);
    else if constexpr (W::v_asked)
        addresses.ask_for_v();
    w.scales.load(p, addresses);
#pragma unroll 1
    for (; t + step <= last; t += step)
        w.template take_seen_tile<true, Native, Exact>(p, addresses, t + step);
    w.template take_seen_tile<false, Native, Exact>(p, addresses, t);
}

/* Where weights can be rounded, there is a loop for that and one for those that must be exact. */
template <bool Native, class W>
TA_DEVICE void ta_take_seen_tiles_for(W &w, const ta_direct_params &p, const ta_direct_cache &c,
                                      int32_t t, int32_t last)
{
    if constexpr (W::rounds)
        if (!ta_keeps_weights(p.problem)) {
            ta_take_seen_tiles<Native, false>(w, p, c, t, last);
            return;
        }
    ta_take_seen_tiles<Native, true>(w, p, c, t, last);
}

/* Of 8 bits there are two of each, one of them with the device's own instructions. */
template <class W>
TA_DEVICE void ta_take_seen_tiles_by(W &w, const ta_direct_params &p, const ta_direct_cache &c,
                                     int32_t t, int32_t last)
{
    if (W::bytes == 1 && ta_pairs_native(p.problem.kv_dtype))
        ta_take_seen_tiles_for<true>(w, p, c, t, last);
    else
        ta_take_seen_tiles_for<false>(w, p, c, t, last);
}

template <class W, bool Any> TA_INLINE constexpr bool ta_has_seen_tiles()
{
    return !Any || W::takes_all;
}

/* All tiles of this wave: first those that not every row sees whole, at both ends. Any: there may
 * be a reason to take all of them for such. */
template <bool Any, class W>
TA_DEVICE void ta_take_tiles(W &w, const ta_direct_params &p, const ta_direct_piece &b)
{
    const int32_t step = w.step;
    ta_direct_cache c = ta_find_direct_cache<W::bytes>(p, b);
    c.v += w.first_column() * W::bytes;
    int32_t end = W::uniform(b.end), own = W::uniform(b.first + w.team() * W::tile_tokens);
    int32_t first = end, last = -1; /* of those that every row sees */
    if (ta_has_seen_tiles<W, Any>() && (!Any || p.plain)) {
        int32_t before = max(W::uniform(b.all_see.first) - own, 0);
        first = own + (before + step - 1) / step * step;
        last = min(W::uniform(b.all_see.end), c.end) - W::tile_tokens;
    }
#pragma unroll 1
    for (int32_t t = own; t < end; t += step) {
        if (t >= first && t <= last)
            t += (last - t) / step * step;
        else
            ta_take_edge_tile<Any>(w, ta_params_again(p), b, c, t);
    }
    if constexpr (ta_has_seen_tiles<W, Any>())
        if (first <= last)
            ta_take_seen_tiles_by(w, ta_params_again(p), c, first, last);
}

/* All pieces of this block. */
template <bool Any, class W, int Dim, int Rows, int Teams>
TA_DEVICE void ta_take_pieces(const ta_direct_params &params, ta_direct_piece &b,
                              ta_team_partials<Dim, Rows, Teams> &all)
{
    if (params.share.blocks)
        ta_find_shares(ta_params_again(params), b, b.scratch);
#pragma unroll 1
    for (bool again = false; ta_next_piece(ta_params_again(params), again, b); again = true) {
        W w;
        const ta_direct_params &p = ta_params_again(params);
        w.start(p, b);
        ta_take_tiles<Any>(w, p, b);
        ta_end_piece(w, b, all, w.v_dim(ta_params_again(p)));
    }
}

template <class Type, int Dim, int Wave, int Rows, bool Any>
__global__ void __launch_bounds__(Wave *TA_DIRECT_WAVES, TA_DIRECT_BLOCKS(Dim))
    attend_direct(ta_direct_params params)
{
    TA_ONLY_WAVE(Wave);
    /* Never launched: there are not enough registers (attend.c). */
    if (TA_MMA_CONVERTS_F16 && Dim == 256 && std::is_same<Type, ta_type_f16>::value)
        return;
    typedef ta_direct_wave<Type, Dim, Wave, Rows> wave;
    typedef ta_team_partials<Dim, Rows, wave::teams> partials;
    TA_SHARED(ta_direct_piece, b);
    TA_SHARED(partials, all);
    ta_tell_step(params.problem, params.kv, params.tell);
    ta_take_pieces<Any, wave>(params, b, all);
}

template <class Type, int Dim, int Wave, int Rows>
static ta_launch_result ta_launch_rows(const ta_direct_params &p, hipStream_t stream)
{
    dim3 grid(static_cast<unsigned>(p.share.grid));
    const unsigned threads = Wave * TA_DIRECT_WAVES;
    if constexpr (!ta_direct_wave<Type, Dim, Wave, Rows>::takes_all)
        if (p.plain)
            return TA_LAUNCH((attend_direct<Type, Dim, Wave, Rows, false>), grid, threads, 0,
                             stream, p);
    return TA_LAUNCH((attend_direct<Type, Dim, Wave, Rows, true>), grid, threads, 0, stream, p);
}

/* On AMD there are too few scalar registers for them (attend.c). */
template <class Type, int Dim> TA_INLINE constexpr bool ta_is_wide_narrow()
{
    return Dim == 256 && std::is_same<Type, ta_type_narrow>::value;
}

template <class Type, int Dim, int Wave>
static ta_launch_result ta_launch_wave(const ta_direct_params &p, hipStream_t stream)
{
    if constexpr (!ta_mma_has(Wave) || (Wave == 64 && ta_is_wide_narrow<Type, Dim>()))
        return {hipErrorInvalidValue, "attend_direct"};
    else if constexpr (Wave == 64)
        return ta_launch_rows<Type, Dim, Wave, 16>(p, stream);
    else if constexpr (Dim == 256)
        return ta_launch_rows<Type, Dim, Wave, 8>(p, stream);
    else if (p.share.rows == 8)
        return ta_launch_rows<Type, Dim, Wave, 8>(p, stream);
    else
        return ta_launch_rows<Type, Dim, Wave, 16>(p, stream);
}

/* The launchers of one head dimension. */
template <int Dim>
static ta_launched ta_launch_dim(const ta_direct_params *params, int wave, void *stream)
{
    hipStream_t s = static_cast<hipStream_t>(stream);
    ta_launch_result result = ta_no_type("attend_direct", params->problem.kv_dtype);
    TA_TYPE_SWITCH(TA_MATRIX_TYPES, params->problem.kv_dtype, Type,
                   TA_WAVE_SWITCH(wave, Wave, result = ta_launch_wave<Type, Dim, Wave>(*params, s)))
    return ta_launched_of(result);
}

template <int Dim>
static ta_launched ta_launch_narrow_dim(const ta_direct_params *params, int wave, void *stream)
{
    hipStream_t s = static_cast<hipStream_t>(stream);
    ta_launch_result result = ta_no_type("attend_direct", params->problem.kv_dtype);
    TA_WAVE_SWITCH(wave, Wave, result = ta_launch_wave<ta_type_narrow, Dim, Wave>(*params, s))
    return ta_launched_of(result);
}

#endif
