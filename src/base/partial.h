/* The merge algebra: what a partial is, how two of them merge, how one becomes an output. C and HIP
 * code include this file, and nothing else in the library restates it.
 *
 * A partial summarises the attention of one query row and head over a set of keys:
 *
 *     m   the largest score, in base 2 (natural score times log2 e), -inf if the set is empty
 *     l   the sum of exp2(score - m)
 *     o   the sum of exp2(score - m) · v, v_dim numbers
 *
 * Two partials merge by scaling the one with the smaller m to the larger and adding. The merge is
 * exactly commutative: the partial with the larger m is multiplied by exp2(0) = 1 on either side,
 * and with equal m both are. The empty partial is exactly neutral. A NaN in m, l or o reaches the
 * result.
 *
 * In memory and on the wire a partial is a record of v_dim + 2 floats: o, then m, then l. Records
 * are ordered by query head, then row (sequence · query_tokens + token), so a range of heads is a
 * range of memory. */
#ifndef TA_PARTIAL_H
#define TA_PARTIAL_H

#include <math.h>

#include "inline.h"

#define TA_LOG2E 1.44269504088896340736f
#define TA_LN2 0.69314718055994530942f
/* What TA_LOG2E lacks of log2 e. */
#define TA_LOG2E_REST 1.92596299112661746887e-8f

/* Floats in a record. */
TA_INLINE int ta_record_floats(int v_dim)
{
    return v_dim + 2;
}

typedef struct ta_merge_scales {
    float m;    /* of the merged partial */
    float a, b; /* what l and o of either side are multiplied by */
} ta_merge_scales;

/* How to merge partials whose largest scores are m_a and m_b. An empty side is scaled by
 * exp2(-inf), which is 0; its l and o are 0 already. */
TA_INLINE ta_merge_scales ta_merge_scale(float m_a, float m_b)
{
    ta_merge_scales s;
    if (m_a == m_b) { /* also both -inf, whose difference would be NaN */
        s.m = m_a;
        s.a = 1.0f;
        s.b = 1.0f;
    } else if (m_a > m_b) {
        s.m = m_a;
        s.a = 1.0f;
        s.b = exp2f(m_b - m_a);
    } else if (m_b > m_a) {
        s.m = m_b;
        s.a = exp2f(m_a - m_b);
        s.b = 1.0f;
    } else { /* one of them is NaN */
        s.m = m_a + m_b;
        s.a = s.m;
        s.b = s.m;
    }
    return s;
}

/* Was no key seen? */
TA_INLINE int ta_partial_empty(float m)
{
    return m == -INFINITY;
}

/* Both sides scaled and added in a way that does not depend on which is which: one of the scales is
 * 1, so a plain product of it is exact and a fused multiply-add may round the other side only
 * once. */
TA_INLINE float ta_merge_add(float a, float b, ta_merge_scales s)
{
    return s.a == 1.0f ? fmaf(b, s.b, a) : fmaf(a, s.a, b * s.b);
}

/* The natural log-sum-exp of a partial: -inf if it is empty. */
TA_INLINE float ta_partial_lse(float m, float l)
{
    return ta_partial_empty(m) ? -INFINITY : (m + log2f(l)) * TA_LN2;
}

/* The score m of a partial with l = 1, whose o is the normalised output of a set of keys that has
 * this log-sum-exp: -inf if the set is empty, NaN for +inf and for NaN. */
TA_INLINE float ta_partial_of_lse(float lse, int base_2)
{
    float m = base_2 ? lse : fmaf(lse, TA_LOG2E, lse * TA_LOG2E_REST);
    return m < INFINITY ? m : NAN;
}

/* What o is multiplied by to give the output: 0 for a row that saw nothing. */
TA_INLINE float ta_partial_normalizer(float m, float l)
{
    return ta_partial_empty(m) ? 0.0f : 1.0f / l;
}

#endif
