/* A tile of a direct kernel that not every row sees whole, or with anything else out of the
 * ordinary: masks, windows, the end of a sequence, tokens without a place, soft-cap and ALiBi. What
 * a row must not see has the score -inf and so the weight 0. That does not keep out a value that is
 * not finite: if there is one, the rows of one query token come at a time, and see zeros where they
 * must not look. */
#ifndef TA_HIP_DIRECT_EDGE_H
#define TA_HIP_DIRECT_EDGE_H

#include "direct_wave.h"

/* The score of a token for one row. */
TA_DEVICE float ta_direct_score(const ta_direct_params &p, const ta_direct_piece &b,
                                const ta_direct_row &row, float dot, int32_t token)
{
    float score = dot * p.rule.factor;
    if (p.rule.cap > 0.0f)
        score = p.rule.cap * tanhf(score);
    if (p.rule.alibi) {
        int32_t at = static_cast<int32_t>(ta_shard_global(&p.problem.shard, b.bounds, token));
        int32_t distance = row.position - at;
        score -= row.slope * static_cast<float>(distance < 0 ? -distance : distance);
    }
    return score;
}

/* The same of any token: NaN if it lacks a place, -inf if the row does not see it. Any: there may
 * be a soft-cap or ALiBi. */
template <bool Any>
TA_DEVICE float ta_edge_score(const ta_direct_params &p, const ta_direct_piece &b,
                              const ta_direct_row &row, float dot, int32_t token, bool lacks)
{
    float score = Any ? ta_direct_score(p, b, row, dot, token) : dot * p.rule.factor;
    if (lacks)
        score = NAN;
    return token >= row.sees.first && token < row.sees.end ? score : -INFINITY;
}

/* A row's dot products with the lane's tokens of the tile at `t` become scores. */
template <int Wave, bool Any>
TA_DEVICE void ta_score_edge(const ta_direct_params &p, const ta_direct_piece &b, int32_t t, int r,
                             uint32_t lacks, float (&x)[4])
{
    const ta_direct_row &row = b.rows[ta_lanes<Wave>::row(r)];
#pragma unroll
    for (int i = 0; i < 4; i++)
        x[i] = ta_edge_score<Any>(p, b, row, x[i], t + ta_lanes<Wave>::v_token(i), lacks >> i & 1);
}

/* Halves of words that are all ones where the lane's values are of tokens in [first, end) that have
 * a place. */
template <int Wave>
TA_DEVICE void ta_hide_values(int32_t t, uint32_t lacks, int32_t first, int32_t end,
                              uint32_t (&hide)[2])
{
    hide[0] = hide[1] = 0;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        int32_t token = t + ta_lanes<Wave>::v_token(i);
        if (token >= first && token < end && !(lacks >> i & 1))
            hide[i / 2] |= 0xffffu << i % 2 * 16;
    }
}

/* Is a value of the tile, of a token that has a place, not finite? */
template <class Type, int Words>
TA_DEVICE bool ta_find_not_finite(const ta_direct_elements<Type> &operands,
                                  const uint32_t (&v)[4][Words], uint32_t lacks)
{
    uint32_t found = 0;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        uint32_t of_token = 0;
#pragma unroll
        for (int w = 0; w < Words; w++)
            of_token |= operands.not_finite(v[i][w]);
        found |= lacks >> i & 1 ? 0u : of_token;
    }
    return ta_any(found != 0);
}

/* Add the values of a tile, of all rows at once if that is safe. */
template <class Type, int Dim, int Wave, int Rows>
TA_DEVICE void
ta_add_edge_values(ta_direct_wave<Type, Dim, Wave, Rows> &w, const ta_direct_piece &b, int32_t t,
                   uint32_t lacks, const uint32_t (&weights)[Type::staged::weight_parts][4],
                   bool exact, const float (&rescale)[ta_row_slots<Wave, Rows>::count])
{
    bool careful = ta_find_not_finite(w.operands, w.v, lacks);
    int32_t token = 0, last = 0;
    if (careful) {
        token = ta_uniform(b.rows[0].token);
        last = ta_uniform(b.rows[b.row_count - 1].token);
    }
#pragma unroll 1
    for (; token <= last; token++) {
        int32_t first = 0, end = INT32_MAX;
        uint32_t rows = ~0u, hide[2];
        if (careful) {
            int32_t row = max(token * b.heads - b.first_row, 0);
            first = b.rows[row].sees.first;
            end = b.rows[row].sees.end;
            rows = 0;
#pragma unroll
            for (int r = 0; r < ta_row_slots<Wave, Rows>::count; r++)
                rows |= static_cast<uint32_t>(b.rows[ta_lanes<Wave>::row(r)].token == token) << r;
        }
        ta_hide_values<Wave>(t, lacks, first, end, hide);
        w.template add_values<true, false>(weights, exact, rescale, hide, rows, t);
    }
}

/* Add the values of a tile by the weights `x`, in parts or rounded. */
template <class Type, int Dim, int Wave, int Rows>
TA_DEVICE void ta_weigh_edge_values(ta_direct_wave<Type, Dim, Wave, Rows> &w,
                                    const ta_direct_piece &b, int32_t t, uint32_t lacks, bool exact,
                                    float (&x)[ta_row_slots<Wave, Rows>::count][4],
                                    const float (&rescale)[ta_row_slots<Wave, Rows>::count])
{
    uint32_t weights[Type::staged::weight_parts][4];
#pragma unroll
    for (int r = 0; r < ta_row_slots<Wave, Rows>::count; r++)
        w.take_weights(x[r], r, weights, exact);
    ta_add_edge_values(w, b, t, lacks, weights, exact, rescale);
}

/* Any tile, at `t`, with its loads. */
template <bool Any, class Type, int Dim, int Wave, int Rows>
TA_DEVICE void ta_take_edge_tile(ta_direct_wave<Type, Dim, Wave, Rows> &w,
                                 const ta_direct_params &p, const ta_direct_piece &b,
                                 const ta_direct_cache &c, int32_t t)
{
    const int slots = ta_row_slots<Wave, Rows>::count;
    float dots[slots][4], rescale[slots];
    typename ta_direct_wave<Type, Dim, Wave, Rows>::any_addresses addresses(p, c, t);
    w.load_k(addresses);
    if (w.v_ahead)
        w.load_v(addresses);
    w.scales.look_up(ta_params_again(p), c, t);
    w.template multiply_keys<false>(dots);
    if (!w.v_ahead)
        w.load_v(addresses);
#pragma unroll
    for (int r = 0; r < slots; r++) {
        w.scales.scale_dots(dots[r]);
        ta_score_edge<Wave, Any>(ta_params_again(p), b, t, r, addresses.lacking, dots[r]);
        rescale[r] = w.weigh(dots[r], r);
        w.scales.template scale_weights<true>(dots[r]);
    }
    /* Either way in code of its own: a branch at each product would take registers. */
    if (ta_keeps_weights(ta_params_again(p).problem))
        ta_weigh_edge_values(w, b, t, addresses.lacking, true, dots, rescale);
    else
        ta_weigh_edge_values(w, b, t, addresses.lacking, false, dots, rescale);
}

#endif
