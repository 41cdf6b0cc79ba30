/* Tallies on the host: see tally.h. Everything from here on is in double precision or in integers,
 * and the same for every SIMD level. */
#include "tally.h"

#include <string.h>

static int64_t *words_of(float *tally, int32_t i)
{
    return (int64_t *)(void *)tally + 2 * (int64_t)i;
}

static const int64_t *words_in(const float *tally, int32_t i)
{
    return (const int64_t *)(const void *)tally + 2 * (int64_t)i;
}

void ta_tally_clear(float *tally, int32_t v_dim)
{
    memset(tally, 0, (size_t)ta_tally_floats(v_dim) * sizeof *tally);
    tally[ta_tally_anchor_at(v_dim)] = -INFINITY;
}

/* Bring the tally to an anchor that is not below its own. */
static void lift(float *tally, float anchor, int32_t v_dim)
{
    int digits = ta_tally_below(tally[ta_tally_anchor_at(v_dim)], anchor);
    tally[ta_tally_anchor_at(v_dim)] = anchor;
    for (int32_t i = 0; digits > 0 && i <= v_dim; i++)
        ta_tally_store(ta_tally_reanchor(ta_tally_load(words_in(tally, i)), digits),
                       words_of(tally, i));
}

static void add(int64_t *words, double y, int digits)
{
    ta_tally_store(ta_tally_add(ta_tally_load(words), y, digits), words);
}

void ta_tally_add_partial(float *tally, float m, float l, const float *o, int32_t v_dim)
{
    float own = ta_tally_anchor(m), *anchor = &tally[ta_tally_anchor_at(v_dim)];
    if (own == -INFINITY)
        return;
    float top = ta_tally_anchor_max(*anchor, own);
    lift(tally, top, v_dim);
    if (top != top)
        return;
    double factor = (double)exp2f(m - own); /* times a float it is exact */
    int digits = ta_tally_below(own, top);
    for (int32_t i = 0; i < v_dim; i++)
        add(words_of(tally, i), (double)o[i] * factor, digits);
    add(words_of(tally, v_dim), (double)l * factor, digits);
}

void ta_tally_merge(float *into, const float *from, int32_t v_dim)
{
    float own = from[ta_tally_anchor_at(v_dim)];
    float top = ta_tally_anchor_max(into[ta_tally_anchor_at(v_dim)], own);
    int digits = ta_tally_below(own, top);
    lift(into, top, v_dim);
    for (int32_t i = 0; i <= v_dim; i++) {
        ta_tally_sum theirs = ta_tally_reanchor(ta_tally_load(words_in(from, i)), digits);
        ta_tally_store(ta_tally_plus(ta_tally_load(words_in(into, i)), theirs), words_of(into, i));
    }
}

float ta_tally_finish(const float *tally, int32_t v_dim, float sink, float *out)
{
    float anchor = tally[ta_tally_anchor_at(v_dim)];
    ta_tally_sum l = ta_tally_load(words_in(tally, v_dim));
    ta_tally_end end = ta_tally_end_of(anchor, l, sink);
    for (int32_t i = 0; i < v_dim; i++)
        out[i] = ta_tally_value(anchor, ta_tally_load(words_in(tally, i)), l, end);
    return (float)(end.lse * TA_TALLY_LN2);
}
