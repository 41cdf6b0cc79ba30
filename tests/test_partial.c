/* The laws of the merge algebra (src/base/partial.h): the empty partial is exactly neutral, the
 * merge is exactly commutative, associative up to rounding, and a NaN reaches the result. */
#include "base/partial.h"

#include <string.h>

#include "lib/random.h"
#include "unity.h"

#define DIM 5
#define TRIALS 20000

typedef struct partial {
    float o[DIM], m, l;
} partial;

static const partial empty = {{0, 0, 0, 0, 0}, -INFINITY, 0};

void setUp(void)
{
}

void tearDown(void)
{
}

static partial merge(partial a, partial b)
{
    ta_merge_scales s = ta_merge_scale(a.m, b.m);
    partial merged;
    merged.m = s.m;
    merged.l = ta_merge_add(a.l, b.l, s);
    for (int i = 0; i < DIM; ++i)
        merged.o[i] = ta_merge_add(a.o[i], b.o[i], s);
    return merged;
}

/* Some keys' worth: l is at least 1, the largest weight. Equal, near and far scores, and empty
 * ones. */
static partial random_partial(random_source *source)
{
    static const float scores[] = {0.0f, 0.0f, 1.0f, -1.0f, 100.0f, -100.0f};
    partial p = empty;
    if (random_one_in(source, 8))
        return p;
    p.m = RANDOM_PICK(source, scores);
    if (random_one_in(source, 2))
        p.m += (float)random_normal(source) * 5;
    p.l = 1 + (float)random_unit(source) * 50;
    for (int i = 0; i < DIM; ++i)
        p.o[i] = (float)random_normal(source) * p.l;
    return p;
}

static void assert_same_bits(const partial *a, const partial *b)
{
    TEST_ASSERT_EQUAL_MEMORY(a, b, sizeof *a);
}

static void test_empty_is_neutral(void)
{
    random_source source = random_from(1);
    for (int i = 0; i < TRIALS; ++i) {
        partial p = random_partial(&source);
        partial left = merge(empty, p), right = merge(p, empty);
        assert_same_bits(&p, &left);
        assert_same_bits(&p, &right);
    }
    partial nothing = merge(empty, empty);
    assert_same_bits(&empty, &nothing);
}

static void test_merge_commutes(void)
{
    random_source source = random_from(2);
    for (int i = 0; i < TRIALS; ++i) {
        partial a = random_partial(&source), b = random_partial(&source);
        partial ab = merge(a, b), ba = merge(b, a);
        assert_same_bits(&ab, &ba);
    }
}

/* What a partial stands for, in double: Σ exp(score) and Σ exp(score) v, over the largest score. */
static void assert_close(const partial *p, const partial *parts, int count)
{
    double top = -INFINITY, l = 0, l_abs = 0;
    for (int i = 0; i < count; ++i)
        top = parts[i].m > top ? (double)parts[i].m : top;
    TEST_ASSERT_TRUE((double)p->m == top);
    if (isinf(top))
        return;
    for (int i = 0; i < count; ++i)
        l += (double)parts[i].l * exp2((double)parts[i].m - top);
    l_abs = l;
    /* Each of two merges rounds the difference of the scores (at most 220), an exp2 and a fused
     * multiply-add: 220 ln 2 / 2^24 would be for weights of 2^-220; where they count, 30 is plenty.
     * */
    double unit = 0x1p-24 * 2 * (30 + 4 + 1);
    TEST_ASSERT_TRUE(fabs((double)p->l - l) <= unit * l_abs);
    for (int d = 0; d < DIM; ++d) {
        double o = 0, o_abs = 0;
        for (int i = 0; i < count; ++i) {
            double term = (double)parts[i].o[d] * exp2((double)parts[i].m - top);
            o += term;
            o_abs += fabs(term);
        }
        TEST_ASSERT_TRUE(fabs((double)p->o[d] - o) <= unit * o_abs);
    }
}

static void test_merge_associates(void)
{
    random_source source = random_from(3);
    for (int i = 0; i < TRIALS; ++i) {
        partial parts[3];
        for (int k = 0; k < 3; ++k)
            parts[k] = random_partial(&source);
        partial left = merge(merge(parts[0], parts[1]), parts[2]);
        partial right = merge(parts[0], merge(parts[1], parts[2]));
        assert_close(&left, parts, 3);
        assert_close(&right, parts, 3);
        TEST_ASSERT_TRUE(left.m == right.m);
    }
}

static void test_nan_reaches_the_result(void)
{
    partial p = {{1, 2, 3, 4, 5}, 3, 2}, nan_m = p, nan_l = p, nan_o = p;
    nan_m.m = NAN;
    nan_l.l = NAN;
    nan_o.o[2] = NAN;
    static const float other_scores[] = {-INFINITY, -200, 0, 3, 500};
    for (int i = 0; i < 5; ++i) {
        partial other = {{1, 1, 1, 1, 1}, other_scores[i], 1};
        if (isinf(other.m))
            other = empty;
        for (int swap = 0; swap < 2; ++swap) {
            partial r = swap ? merge(other, nan_m) : merge(nan_m, other);
            TEST_ASSERT_TRUE(isnan(r.m) && isnan(r.l) && isnan(r.o[0]) && isnan(r.o[DIM - 1]));
            r = swap ? merge(other, nan_l) : merge(nan_l, other);
            TEST_ASSERT_TRUE(isnan(r.l) && !isnan(r.o[0]));
            r = swap ? merge(other, nan_o) : merge(nan_o, other);
            TEST_ASSERT_TRUE(isnan(r.o[2]) && !isnan(r.o[1]) && !isnan(r.l));
        }
    }
}

static void test_a_far_smaller_side_vanishes(void)
{
    partial big = {{1, 2, 3, 4, 5}, 1000, 2}, small = {{1, 1, 1, 1, 1}, -1000, 1};
    partial r = merge(big, small);
    assert_same_bits(&big, &r);
}

static void test_lse_and_normalizer(void)
{
    TEST_ASSERT_TRUE(ta_partial_empty(-INFINITY));
    TEST_ASSERT_FALSE(ta_partial_empty(-3e38f));
    TEST_ASSERT_FALSE(ta_partial_empty(NAN));
    TEST_ASSERT_TRUE(ta_partial_lse(-INFINITY, 0) == -INFINITY);
    TEST_ASSERT_TRUE(ta_partial_normalizer(-INFINITY, 0) == 0);
    TEST_ASSERT_TRUE(isnan(ta_partial_lse(NAN, 1)));
    TEST_ASSERT_TRUE(isnan(ta_partial_lse(0, NAN)));
    TEST_ASSERT_TRUE(isnan(ta_partial_normalizer(NAN, NAN)));
    /* Natural logarithm of 4 · 2^3 = 32. */
    TEST_ASSERT_TRUE(fabs((double)ta_partial_lse(3, 4) - log(32)) < 1e-6);
    TEST_ASSERT_TRUE(ta_partial_normalizer(3, 4) == 0.25f);
    TEST_ASSERT_EQUAL_INT(130, ta_record_floats(128));
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(test_empty_is_neutral);
    RUN_TEST(test_merge_commutes);
    RUN_TEST(test_merge_associates);
    RUN_TEST(test_nan_reaches_the_result);
    RUN_TEST(test_a_far_smaller_side_vanishes);
    RUN_TEST(test_lse_and_normalizer);
    return UNITY_END() != 0;
}
