/* attend_direct_fma. Grid: as attend_direct (direct_kernel.h).
 *
 * Attention by fused multiply-adds of 1 or up to 4 query rows over caches of f32, f16 and bf16 with
 * up to 256 dimensions, of K and V each any multiple of 8, and a query of any type: what the matrix
 * cores do not multiply, or not well. Every wave works by itself on its own tiles, as there, and
 * the loop has no barrier and no shared memory. direct_fma_wave.h has what a wave does, and which
 * lane has what. attend.c launches it. */
#include "direct_fma_wave.h"

/* Any tile, at `t`, with its loads. */
template <bool Any, class Type, int Dim, int Wave, int Rows>
TA_DEVICE void ta_take_edge_tile(ta_fma_wave<Type, Dim, Wave, Rows> &w, const ta_direct_params &p,
                                 const ta_direct_piece &b, const ta_direct_cache &c, int32_t t)
{
    typedef ta_fma_wave<Type, Dim, Wave, Rows> wave;
    float x[wave::held];
    bool seen[wave::held];
    ta_token_place own = ta_find_token(p, c, t + ta_lane() % wave::tile_tokens);
    uint32_t lacking = w.load_any(ta_params_again(p), c, own);
    w.multiply_keys(x);
    const ta_direct_params &again = ta_params_again(p);
    const ta_direct_row &row = b.rows[w.row()];
#pragma unroll
    for (int i = 0; i < wave::held; i++) {
        int32_t of_group = wave::own_token(i),
                token = t + wave::lanes::k_token(0) + wave::lanes::k_step(of_group);
        x[i] = ta_edge_score<Any>(again, b, row, x[i], token, lacking >> of_group & 1);
        seen[i] = token >= row.sees.first && token < row.sees.end;
    }
    float rescale = w.weigh(x);
#pragma unroll
    for (int i = 0; i < wave::held; i++)
        x[i] = seen[i] ? x[i] : -1.0f;
    w.template add_values<true>(x, rescale);
}

/* A wave writes down its m and l: one lane for each row. */
template <class Type, int Dim, int Wave, int Rows, int Teams>
TA_DEVICE void ta_show_sums(const ta_fma_wave<Type, Dim, Wave, Rows> &w,
                            ta_team_partials<Dim, Rows, Teams> &all)
{
    float l = w.row_sum(w.l);
    if (ta_lane() < w.spread && ta_lane() % w.row_lanes == 0) {
        all.m[w.team()][w.row()] = l != l ? l : w.m;
        all.l[w.team()][w.row()] = l;
    }
}

/* One wave adds its o to those of the waves before it, its groups together. */
template <class Type, int Dim, int Wave, int Rows, int Teams>
TA_DEVICE void ta_add_team(const ta_fma_wave<Type, Dim, Wave, Rows> &w,
                           ta_team_partials<Dim, Rows, Teams> &all)
{
    typedef ta_fma_wave<Type, Dim, Wave, Rows> wave;
    int32_t team = w.team();
#pragma unroll
    for (int r = 0; r < Rows; r++) {
        float scale = ta_merge_scale(ta_teams_largest(all, r), all.m[team][r]).b;
#pragma unroll
        for (int i = 0; i < w.floats; i++) {
            float own = ta_lanes_total<wave::group, Wave>(w.o[r][i]) * scale;
            float &to = all.o[r][wave::column(i)];
            if (ta_lane() < wave::group)
                to = team == 0 ? own : to + own;
        }
    }
}

/* Dim: of K and of V, at most. */
template <class Type, int Dim, int Wave, int Rows>
__global__ void __launch_bounds__(Wave *TA_DIRECT_WAVES, TA_DIRECT_FMA_BLOCKS(Rows))
    attend_direct_fma(ta_direct_params params)
{
    TA_ONLY_WAVE(Wave);
    typedef ta_team_partials<Dim, Rows, TA_DIRECT_WAVES> partials;
    TA_SHARED(ta_direct_piece, b);
    TA_SHARED(partials, all);
    ta_tell_step(params.problem, params.kv, params.tell);
    ta_take_pieces<true, ta_fma_wave<Type, Dim, Wave, Rows>>(params, b, all);
}

template <class Type, int Dim, int Wave>
static ta_launch_result launch(const ta_direct_params &p, hipStream_t stream)
{
    dim3 grid(static_cast<unsigned>(p.share.grid));
    const unsigned threads = Wave * TA_DIRECT_WAVES;
    if (p.share.rows == 1)
        return TA_LAUNCH((attend_direct_fma<Type, Dim, Wave, 1>), grid, threads, 0, stream, p);
    return TA_LAUNCH((attend_direct_fma<Type, Dim, Wave, TA_DIRECT_FMA_ROWS>), grid, threads, 0,
                     stream, p);
}

ta_launched ta_launch_direct_fma(const ta_direct_params *params, int wave, void *stream)
{
    const ta_problem &p = params->problem;
    hipStream_t s = static_cast<hipStream_t>(stream);
    TA_NEED_TYPE("attend_direct_fma", p.query_dtype);
    ta_launch_result result = ta_no_type("attend_direct_fma", p.kv_dtype);
    if (p.k_dim <= 128 && p.v_dim <= 128)
        TA_TYPE_SWITCH(TA_ALL_TYPES, p.kv_dtype, Type,
                       TA_WAVE_SWITCH(wave, Wave, result = launch<Type, 128, Wave>(*params, s)))
    else
        TA_TYPE_SWITCH(TA_ALL_TYPES, p.kv_dtype, Type,
                       TA_WAVE_SWITCH(wave, Wave, result = launch<Type, 256, Wave>(*params, s)))
    return ta_launched_of(result);
}
