/* The error bound itself: it must hold, and it must be tight, or it would pass wrong results. For
 * each family of cases the worst error seen is between an eighth of the bound and the whole of it.
 * Also: the bound sees each of a list of small mistakes. */
#include <math.h>
#include <stdio.h>

#include "lib/case.h"
#include "lib/expect_case.h"
#include "lib/number.h"
#include "lib/options.h"
#include "unity.h"

void setUp(void)
{
}

void tearDown(void)
{
}

/* Run `count` cases that differ in their seed, in plain C and at the best SIMD level in turn, and
 * give the worst ratios. */
static bound_worst run_family(const char *name, decode_case c, int count)
{
    bound_worst worst = {{0}, 0};
    for (int i = 0; i < count; ++i) {
        c.seed = 500 + (uint64_t)i;
        snprintf(c.simd, sizeof c.simd, "%s", i % 2 ? "" : "scalar");
        expect_case(&c, &worst);
    }
    printf("%-16s worst error / bound: out %.3f lse %.3f\n", name,
           worst.out[c.plan.out_dtype ? c.plan.out_dtype : TA_F32], worst.lse);
    return worst;
}

static void assert_tight(const char *name, const char *what, double ratio)
{
    char text[100];
    snprintf(text, sizeof text, "%s: worst %s / bound is %g: must be from 1/8 to 1", name, what,
             ratio);
    TEST_ASSERT_TRUE_MESSAGE(ratio >= 0.125 && ratio <= 1, text);
}

static void assert_family_tight(const char *name, decode_case c, int count)
{
    bound_worst worst = run_family(name, c, count);
    assert_tight(name, "output error", worst.out[c.plan.out_dtype ? c.plan.out_dtype : TA_F32]);
    assert_tight(name, "lse error", worst.lse);
}

/* 4 heads, 64-dimensional, f32, one token of query: the common ground of the families. */
static decode_case common(int tokens)
{
    return case_grouped(64, tokens);
}

/* What 0 stands for is as common() has it. */
typedef struct family {
    const char *name;
    int tokens, cases;
    int k_dim, ranks;
    double query_deviation;
    float scale, softcap;
    bool alibi, sinks;
} family;

static void test_tight(void)
{
    static const family families[] = {
        {.name = "few tokens", .tokens = 7, .cases = 150},
        {.name = "one tile", .tokens = 60, .cases = 80},
        {.name = "6000 tokens", .tokens = 6000, .cases = 12},
        {.name = "576 dimensions", .tokens = 40, .cases = 60, .k_dim = 576, .query_deviation = 4},
        {.name = "large scores", .tokens = 50, .cases = 100, .scale = 1, .query_deviation = 2},
        {.name = "8 ranks", .tokens = 80, .cases = 60, .ranks = 8},
        {.name = "soft-cap", .tokens = 10, .cases = 300, .softcap = 20, .query_deviation = 8},
        {.name = "ALiBi", .tokens = 100, .cases = 100, .alibi = true},
        {.name = "sinks", .tokens = 30, .cases = 100, .sinks = true},
    };
    for (const family *f = families; f < families + sizeof families / sizeof *families; ++f) {
        decode_case c = common(f->tokens);
        c.plan.k_dim = f->k_dim ? f->k_dim : c.plan.k_dim;
        c.plan.scale = f->scale != 0 ? f->scale : c.plan.scale;
        c.plan.softcap = f->softcap;
        c.query_deviation = f->query_deviation != 0 ? f->query_deviation : c.query_deviation;
        c.ranks = f->ranks ? f->ranks : c.ranks;
        c.alibi = f->alibi;
        c.sinks = f->sinks;
        assert_family_tight(f->name, c, f->cases);
    }
}

static void test_tight_in_reproducible_mode(void)
{
    decode_case c = common(1500);
    c.plan.reproducible_tile = 64;
    assert_family_tight("reproducible", c, 30);
    c.ranks = 3;
    c.plan.map.block = c.plan.reproducible_tile = 256;
    assert_family_tight("reproducible, tiles of 256", c, 30);
}

static void test_tight_in_half_precision(void)
{
    decode_case c = common(30);
    c.plan.kv_dtype = c.plan.out_dtype = TA_F16;
    assert_family_tight("f16", c, 60);
    c.plan.kv_dtype = c.plan.out_dtype = TA_BF16;
    assert_family_tight("bf16", c, 60);
}

/* A sequence for the mistakes: 60 tokens, 2 heads, 3 query tokens, every option on. */
typedef struct example {
    oracle_problem problem;
    oracle_sequence sequence;
    float slopes[2], sinks[2];
    double q[3 * 2 * 32], k[60 * 32], v[60 * 16];
} example;

static void make_example(example *e)
{
    random_source source = random_from(11);
    for (size_t i = 0; i < sizeof e->q / sizeof *e->q; ++i)
        e->q[i] = random_normal(&source);
    for (size_t i = 0; i < sizeof e->k / sizeof *e->k; ++i)
        e->k[i] = random_normal(&source);
    for (size_t i = 0; i < sizeof e->v / sizeof *e->v; ++i)
        e->v[i] = random_normal(&source);
    e->slopes[0] = 0.05f, e->slopes[1] = 0.01f;
    e->sinks[0] = 0.5f, e->sinks[1] = -1.0f;
    e->problem =
        (oracle_problem){3, 2, 1, 32,   16,    true, 50, 1 / sqrt(32), 30, e->slopes, e->sinks,
                         0, 0, 0, NULL, false, 0,    0};
    e->sequence = (oracle_sequence){60, e->q, e->k, e->v};
}

/* The worst ratio between two answers to the same question. */
static double worst_difference(const example *right, const example *wrong, ta_dtype dtype)
{
    double worst = 0;
    oracle_row expected = {0}, got = {0};
    bound_row bound;
    for (int t = 0; t < 3; ++t)
        for (int h = 0; h < 2; ++h) {
            oracle_attend(&right->problem, &right->sequence, t, h, &expected);
            oracle_attend(&wrong->problem, &wrong->sequence, t, h, &got);
            bound_of_row(&right->problem, &expected, dtype, 4, &bound);
            for (int d = 0; d < 16; ++d)
                worst = fmax(worst, bound_compare(expected.out[d], bound.out[d], got.out[d]));
        }
    oracle_row_free(&expected);
    oracle_row_free(&got);
    return worst;
}

static void assert_seen(const char *mistake, const example *wrong)
{
    static example right;
    make_example(&right);
    for (int dtype = TA_F32; dtype < NUMBER_DTYPE_END; ++dtype)
        TEST_ASSERT_TRUE_MESSAGE(worst_difference(&right, wrong, (ta_dtype)dtype) > 1, mistake);
}

static void test_mistakes_exceed_the_bound(void)
{
    static example wrong;
    make_example(&wrong);
    wrong.problem.window = 51;
    assert_seen("a window one token too long", &wrong);
    make_example(&wrong);
    wrong.sinks[0] += 1.0986123f;
    assert_seen("a sink counted three times", &wrong);
    make_example(&wrong);
    wrong.problem.sinks = NULL;
    assert_seen("a sink ignored", &wrong);
    make_example(&wrong);
    wrong.problem.softcap = 0;
    assert_seen("a soft-cap ignored", &wrong);
    make_example(&wrong);
    wrong.slopes[1] *= 1.5f;
    assert_seen("a wrong slope", &wrong);
    make_example(&wrong);
    wrong.problem.scale *= 1.02;
    assert_seen("a wrong scale", &wrong);
    make_example(&wrong);
    wrong.problem.window = 49;
    assert_seen("the oldest token missed", &wrong);
    make_example(&wrong);
    wrong.v[40 * 16 + 3] += 0.5;
    assert_seen("one stale value", &wrong);
}

/* Weights or partials kept in half precision: pitfalls that a tolerance of 1e-2 would pass. */
static double worst_with_weights_as(ta_dtype dtype)
{
    static example e;
    make_example(&e);
    double worst = 0;
    oracle_row row = {0};
    bound_row bound;
    for (int t = 0; t < 3; ++t) {
        oracle_attend(&e.problem, &e.sequence, t, 0, &row);
        bound_of_row(&e.problem, &row, TA_F32, 4, &bound);
        for (int d = 0; d < 16; ++d) {
            double out = 0;
            for (int i = 0; i < row.keys; ++i) {
                uint32_t stored;
                number_encode(dtype, &stored, 0, row.term[i].weight);
                out += number_decode(dtype, &stored, 0) * row.term[i].v[d];
            }
            worst = fmax(worst, bound_compare(row.out[d], bound.out[d], out));
        }
    }
    oracle_row_free(&row);
    return worst;
}

static void test_half_precision_weights_exceed_the_bound(void)
{
    TEST_ASSERT_TRUE(worst_with_weights_as(TA_F16) > 10);
    TEST_ASSERT_TRUE(worst_with_weights_as(TA_BF16) > 100);
    TEST_ASSERT_TRUE(worst_with_weights_as(TA_F32) < 1);
}

/* An option for matrix cores, which the host has none of. */
static void test_the_host_keeps_weights_exact(void)
{
    static char failure[2048];
    static const ta_dtype types[] = {TA_F32, TA_F16, TA_BF16};
    for (int i = 0; i < 3; ++i) {
        decode_case c = common(300);
        case_kept exact, other;
        bound_worst worst = {{0}, 0};
        c.plan.kv_dtype = types[i];
        TEST_ASSERT_TRUE(case_run_keep(&c, &worst, &exact, failure, sizeof failure));
        c.plan.weights = TA_WEIGHTS_ROUNDED;
        TEST_ASSERT_TRUE(case_run_keep(&c, &worst, &other, failure, sizeof failure));
        TEST_ASSERT_EQUAL_MEMORY(exact.out, other.out, (size_t)exact.out_count * sizeof(double));
        TEST_ASSERT_EQUAL_MEMORY(exact.lse, other.lse, (size_t)exact.lse_count * sizeof(double));
        case_kept_free(&exact);
        case_kept_free(&other);
    }
}

static void test_nan_and_infinity_never_pass(void)
{
    TEST_ASSERT_TRUE(isinf(bound_compare(1, 100, NAN)));
    TEST_ASSERT_TRUE(isinf(bound_compare(NAN, NAN, 1)));
    TEST_ASSERT_TRUE(isinf(bound_compare(1, 100, INFINITY)));
    TEST_ASSERT_TRUE(isinf(bound_compare(-INFINITY, 0, INFINITY)));
    TEST_ASSERT_TRUE(isinf(bound_compare(0, 0, 1e-30)));
    TEST_ASSERT_TRUE(isinf(bound_compare(1, NAN, 2)));
    TEST_ASSERT_TRUE(bound_compare(NAN, NAN, NAN) == 0);
    TEST_ASSERT_TRUE(bound_compare(-INFINITY, 0, -INFINITY) == 0);
    TEST_ASSERT_TRUE(isinf(bound_compare(INFINITY, INFINITY, 1e30)));
    TEST_ASSERT_TRUE(bound_compare(INFINITY, INFINITY, NAN) == 0);
    bound_worst worst = {{0}, 0}, bad = {{0}, NAN}, good = {{0}, 0.5};
    bound_worst_include(&worst, &bad);
    bound_worst_include(&worst, &good);
    TEST_ASSERT_TRUE(isnan(worst.lse));
}

int main(int argc, char **argv)
{
    if (!options_read(argc, argv))
        return 2;
    UNITY_BEGIN();
    RUN_TEST(test_tight);
    RUN_TEST(test_tight_in_reproducible_mode);
    RUN_TEST(test_tight_in_half_precision);
    RUN_TEST(test_mistakes_exceed_the_bound);
    RUN_TEST(test_half_precision_weights_exceed_the_bound);
    RUN_TEST(test_the_host_keeps_weights_exact);
    RUN_TEST(test_nan_and_infinity_never_pass);
    return UNITY_END() != 0;
}
