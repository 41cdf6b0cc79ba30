/* From dot products to weights: the online softmax in base 2 over one tile, the same for both
 * attend kernels. A few lanes share a row; each has some of its keys. */
#ifndef TA_HIP_SOFTMAX_H
#define TA_HIP_SOFTMAX_H

#include "attend/rows.h"

TA_DEVICE float ta_make_score(const ta_score_rule &rule, const ta_row &row, float dot,
                              const int32_t *position)
{
    float score = dot * rule.factor;
    if (rule.cap > 0.0f)
        score = rule.cap * tanhf(score);
    if (rule.alibi) {
        int32_t distance = row.position - *position;
        score -= row.slope * static_cast<float>(distance < 0 ? -distance : distance);
    }
    return score;
}

template <int Lanes> TA_DEVICE float ta_lanes_max(float x)
{
#pragma unroll
    for (int mask = Lanes / 2; mask > 0; mask /= 2)
        x = fmaxf(x, ta_shfl_xor(x, mask));
    return x;
}

template <int Lanes> TA_DEVICE float ta_lanes_sum(float x)
{
#pragma unroll
    for (int mask = Lanes / 2; mask > 0; mask /= 2)
        x += ta_shfl_xor(x, mask);
    return x;
}

/* The scores of a tile, `Keys` on each of `Lanes` lanes and -inf where the row does not see the
 * key, become weights, whose sum is `sum`, and m is brought up to date. Returns what earlier sums
 * must be multiplied by. A NaN among the scores makes its weight and then the sum NaN; it never
 * makes m one. */
template <int Lanes, int Keys>
TA_DEVICE float ta_softmax_scores(float &m, float (&scores)[Keys], float &sum)
{
    float largest = m;
#pragma unroll
    for (int i = 0; i < Keys; i++)
        largest = fmaxf(largest, scores[i]);
    largest = ta_lanes_max<Lanes>(largest);
    /* Nothing seen yet: a difference to -inf would be NaN. */
    float base = largest == -INFINITY ? 0.0f : largest;
    sum = 0.0f;
#pragma unroll
    for (int i = 0; i < Keys; i++) {
        scores[i] = ta_exp2(scores[i] - base);
        sum += scores[i];
    }
    float rescale = ta_exp2(m - base);
    m = largest;
    sum = ta_lanes_sum<Lanes>(sum);
    return rescale;
}

/* The same, and the row's sums are brought up to date but for o. Returns what o of the current run
 * must be multiplied by. Of a NaN see ta_row_m(). */
template <int Lanes, int Keys> TA_DEVICE float ta_softmax_row(ta_row &row, float (&scores)[Keys])
{
    float sum;
    float rescale = ta_softmax_scores<Lanes>(row.m, scores, sum);
    row.l *= rescale;
    row.run = fmaf(row.run, rescale, sum);
    row.o_scale *= rescale;
    return rescale;
}

/* The run is complete; returns what o of all runs before must be multiplied by. */
TA_DEVICE float ta_end_run(ta_row &row)
{
    float scale = row.o_scale;
    row.l += row.run;
    row.run = 0.0f;
    row.o_scale = 1.0f;
    return scale;
}

/* m as a record has it: NaN if anything the row saw was. */
TA_DEVICE float ta_row_m(const ta_row &row)
{
    return row.l != row.l ? row.l : row.m;
}

#endif
