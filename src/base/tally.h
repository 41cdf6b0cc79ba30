/* The algebra of reproducible mode: what a tally is, how a tile's partial is added to it, how two
 * of them merge, how one becomes an output. It takes the place of partial.h's merge where bits must
 * not depend on the order. C and HIP code can include this file. docs/numerics.md derives it.
 *
 * A tally holds v_dim + 1 sums, those of o and then that of l, over any set of tiles. Each sum is
 * kept as integers: a number is cut, from the top, into digits of base 2^32 on a grid of positions
 * that all numbers share, each digit rounded to nearest, so it is between -2^31 and 2^31. Of a sum
 * the digits at two neighbouring positions are added up, `high` and `low`; the upper of the two is
 * the highest that any of the numbers reached. Digits below are dropped, whole. What is left is
 * integer sums and maxima, so the result does not depend on the order in which tiles are added and
 * tallies are merged.
 *
 * Positions count from an anchor: the largest score, in base 2, rounded down to a multiple of 32,
 * which is -inf for an empty tally and NaN for a row that is NaN. A sum has its position as a code
 * of 0 to 29, where 0 is 2^-768 and 29 is 2^160 times 2^anchor. The code 30 stands for a sum that
 * is infinite, with the number of +inf in `high` and that of -inf in `low`; 31 for NaN.
 *
 * In memory and on the wire a tally is, for each sum, two 64-bit words, high · 32 + code and low;
 * then the anchor as a float, and a float that is not used. Tallies are ordered as records are. */
#ifndef TA_TALLY_H
#define TA_TALLY_H

#include <math.h>
#include <stdint.h>

#include "inline.h"

#define TA_TALLY_BITS 32
#define TA_TALLY_CODE_BITS 5
/* The code of position 2^0, the last one of a finite sum, and what comes after it. */
#define TA_TALLY_ONE 24
#define TA_TALLY_INFINITE 30
#define TA_TALLY_NAN 31

/* Fewer tiles than 2^27 fit a sum of 59 bits; positions have 31 bits. */
#define TA_TALLY_TILE_MIN 16
#define TA_TALLY_TILE_MAX (1 << 20)

/* Anchors this many digits apart have nothing in common. */
#define TA_TALLY_APART 64

/* Floats that a tally takes. */
TA_INLINE int ta_tally_floats(int v_dim)
{
    return 4 * (v_dim + 1) + 2;
}

/* Where the anchor is, as a float. */
TA_INLINE int ta_tally_anchor_at(int v_dim)
{
    return 4 * (v_dim + 1);
}

typedef struct ta_tally_sum {
    int64_t high, low;
    int code;
} ta_tally_sum;

TA_INLINE ta_tally_sum ta_tally_load(const int64_t *words)
{
    ta_tally_sum s;
    s.code = (int)(words[0] & ((1 << TA_TALLY_CODE_BITS) - 1));
    s.high = words[0] >> TA_TALLY_CODE_BITS; /* with its sign */
    s.low = words[1];
    return s;
}

TA_INLINE void ta_tally_store(ta_tally_sum s, int64_t *words)
{
    words[0] = (int64_t)((uint64_t)s.high << TA_TALLY_CODE_BITS | (uint64_t)s.code);
    words[1] = s.low;
}

/* The anchor of a partial whose largest score is m: -inf if it is empty. A score of +inf, as one of
 * NaN, makes the row NaN. The division, the product and m - anchor are exact; an anchor of 0 has no
 * sign. */
TA_INLINE float ta_tally_anchor(float m)
{
    if (m == INFINITY)
        return NAN;
    return m == -INFINITY ? m : floorf(m / TA_TALLY_BITS) * TA_TALLY_BITS + 0.0f;
}

/* The larger anchor, or NaN. */
TA_INLINE float ta_tally_anchor_max(float a, float b)
{
    return a != a || a > b ? a : b;
}

/* How many digits `anchor` is below the larger one `top`; at most TA_TALLY_APART. */
TA_INLINE int ta_tally_below(float anchor, float top)
{
    if (anchor == top) /* also both -inf */
        return 0;
    float digits = (top - anchor) / TA_TALLY_BITS;
    return digits < TA_TALLY_APART ? (int)digits : TA_TALLY_APART;
}

/* The sum's digits `by` positions higher up. */
TA_INLINE ta_tally_sum ta_tally_shift(ta_tally_sum s, int by)
{
    if (by > 0) {
        s.low = by == 1 ? s.high : 0;
        s.high = 0;
    }
    return s;
}

/* The same sum with its upper position at `code`, which is not below its own. A number adds nothing
 * to what is infinite or NaN. */
TA_INLINE ta_tally_sum ta_tally_raise(ta_tally_sum s, int code)
{
    s = ta_tally_shift(s, code == s.code ? 0 : code < TA_TALLY_INFINITE ? code - s.code : 2);
    s.code = code;
    return s;
}

/* The same sum for an anchor that is so many digits higher. */
TA_INLINE ta_tally_sum ta_tally_reanchor(ta_tally_sum s, int digits)
{
    if (s.code >= TA_TALLY_INFINITE)
        return s;
    if (s.code < digits) {
        s = ta_tally_shift(s, digits - s.code);
        s.code = digits;
    }
    s.code -= digits;
    return s;
}

/* Both sums, which have the same anchor. */
TA_INLINE ta_tally_sum ta_tally_plus(ta_tally_sum a, ta_tally_sum b)
{
    int code = a.code > b.code ? a.code : b.code;
    a = ta_tally_raise(a, code);
    b = ta_tally_raise(b, code);
    a.high += b.high;
    a.low += b.low;
    return a;
}

/* 2^(-32 n) for n of -30 to 30. */
TA_INLINE double ta_tally_scale(int n)
{
    union {
        uint64_t bits;
        double number;
    } power;
    power.bits = (uint64_t)(1023 - TA_TALLY_BITS * n) << 52;
    return power.number;
}

/* The lowest position, as a code, whose digit takes all of a finite y: |y| < 2^31 times it. */
TA_INLINE int ta_tally_code(double y)
{
    union {
        double number;
        uint64_t bits;
    } parts;
    parts.number = y;
    int exponent = (int)(parts.bits >> 52 & 2047) - 1022; /* |y| < 2^exponent */
    int code = (exponent + TA_TALLY_BITS * TA_TALLY_ONE) / TA_TALLY_BITS;
    return exponent + TA_TALLY_BITS * TA_TALLY_ONE > 0 ? code : 0;
}

/* The nearest whole number, of two the even one, of |x| < 2^51. */
TA_INLINE double ta_tally_round(double x)
{
    return (x + 0x1.8p52) - 0x1.8p52;
}

/* Add y, which is given with an anchor `digits` below that of the sum, and |y| < 2^160 if it is
 * finite. */
TA_INLINE ta_tally_sum ta_tally_add(ta_tally_sum s, double y, int digits)
{
    double size = y < 0 ? -y : y;
    if (!(size <= 0x1p160)) { /* infinite or NaN, at any distance */
        s = ta_tally_raise(s, y != y || s.code == TA_TALLY_NAN ? TA_TALLY_NAN : TA_TALLY_INFINITE);
        s.high += y > 0;
        s.low += y < 0;
        return s;
    }
    if (s.code >= TA_TALLY_INFINITE)
        return s;
    int code = ta_tally_code(y) - digits;
    if (code > s.code)
        s = ta_tally_raise(s, code);
    int n = s.code - TA_TALLY_ONE + digits;
    if (n > 30) /* no digit of it is kept */
        return s;
    double scaled = y * ta_tally_scale(n), high = ta_tally_round(scaled);
    s.high += (int64_t)high;
    s.low += (int64_t)ta_tally_round((scaled - high) * 0x1p32);
    return s;
}

/* A finite sum as a number times 2^(32 · (code - 25)). */
TA_INLINE double ta_tally_number(ta_tally_sum s)
{
    return (double)s.high * 0x1p32 + (double)s.low;
}

/* A sum of o over that of l, which is above 0. */
TA_INLINE double ta_tally_quotient(ta_tally_sum o, ta_tally_sum l)
{
    if (o.code == TA_TALLY_NAN)
        return NAN;
    if (o.code == TA_TALLY_INFINITE)
        return o.high && o.low ? NAN : o.high ? INFINITY : -INFINITY;
    return ldexp(ta_tally_number(o) / ta_tally_number(l), TA_TALLY_BITS * (o.code - l.code));
}

/* How a row ends. */
typedef struct ta_tally_end {
    double lse;   /* in base 2 */
    double share; /* of the keys in the sum of all weights: 1 without a sink; 0: no key was seen */
} ta_tally_end;

/* The end of a row with this anchor and this sum l. `sink` is a score in base 2, or -inf. */
TA_INLINE ta_tally_end ta_tally_end_of(float anchor, ta_tally_sum l, float sink)
{
    ta_tally_end end;
    double keys = (double)anchor;
    if (anchor > -INFINITY)
        keys += TA_TALLY_BITS * (l.code - TA_TALLY_ONE - 1) + log2(ta_tally_number(l));
    end.lse = keys;
    end.share = anchor == -INFINITY ? 0.0 : 1.0;
    if (sink == -INFINITY || keys != keys)
        return end;
    double score = (double)sink, top = keys > score ? keys : score;
    end.lse = top + log2(1.0 + exp2((keys > score ? score : keys) - top));
    end.share = exp2(keys - end.lse);
    return end;
}

/* An element of a row's output. */
TA_INLINE float ta_tally_value(float anchor, ta_tally_sum o, ta_tally_sum l, ta_tally_end end)
{
    if (anchor != anchor)
        return NAN;
    return anchor == -INFINITY ? 0.0f : (float)(ta_tally_quotient(o, l) * end.share);
}

#define TA_TALLY_LN2 0.69314718055994530942

#endif
