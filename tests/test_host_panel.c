/* Products of tiles and panels (src/host/panel*): the scalar version against double, every SIMD
 * level against the scalar one, masks and NaN in both. */
#include "host/panel.h"

#include <math.h>
#include <string.h>

#include "host/kernels.h"
#include "lib/expect.h"
#include "lib/random.h"

#define ROWS 66
#define DIM 264
#define LANES TA_PANEL_LANES

static const ta_panel_kernels *levels[5];
static int level_count;
static float tile[ROWS * (DIM + 8)], panel[DIM * LANES], got[DIM * LANES], other[DIM * LANES];
static random_source source;

void setUp(void)
{
    static const char *const names[] = {"scalar", "neon", "avx2", "avx512", "avx512bf16"};
    level_count = 0;
    for (int i = 0; i < 5; ++i) {
        const ta_host_kernels *kernels = ta_host_kernels_find(names[i]);
        if (kernels) /* this CPU has it */
            levels[level_count++] = kernels->panels;
    }
    source = random_from(11);
    for (int i = 0; i < ROWS * (DIM + 8); ++i)
        tile[i] = (float)random_normal(&source);
    for (int i = 0; i < DIM * LANES; ++i)
        panel[i] = (float)random_normal(&source);
}

void tearDown(void)
{
}

static void test_dots(void)
{
    for (int level = 0; level < level_count; ++level)
        for (int n = 1; n <= 60; n += 7)
            for (int dim = 8; dim <= 256; dim += 56) {
                levels[level]->dots(tile, dim + 8, n, dim, panel, got);
                for (int i = 0; i < n * LANES; ++i) {
                    double sum = 0, sum_abs = 0;
                    for (int d = 0; d < dim; ++d) {
                        double term = (double)tile[i / LANES * (dim + 8) + d] *
                                      (double)panel[d * LANES + i % LANES];
                        sum += term;
                        sum_abs += fabs(term);
                    }
                    TEST_ASSERT_DOUBLE_WITHIN(sum_abs * (dim + 1) * 0x1p-24, sum, (double)got[i]);
                }
            }
}

/* As bf16, rounded towards 0: the bits, and the number. */
static uint16_t bf16_bits(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return (uint16_t)(bits >> 16);
}

static double bf16_number(uint16_t bits)
{
    uint32_t wide = (uint32_t)bits << 16;
    float x;
    memcpy(&x, &wide, sizeof x);
    return x;
}

/* Pairs of dimensions in the tile and in the panel, and a NaN in one row that stays there. */
static void check_dots_bf16(const ta_panel_kernels *kernels, int n, int dim)
{
    static uint16_t rows[ROWS * (DIM + 8) * 2], lanes[DIM * LANES * 2];
    const int64_t stride = dim / 2 + 8;
    const float factor = 0.375f;
    for (int i = 0; i < ROWS * (DIM + 8); ++i)
        rows[2 * i] = bf16_bits(tile[i]), rows[2 * i + 1] = bf16_bits(-tile[i] * 0.7f);
    for (int i = 0; i < DIM * LANES; ++i)
        lanes[2 * i] = bf16_bits(panel[i]), lanes[2 * i + 1] = bf16_bits(panel[i] * 1.3f);
    rows[2 * stride] = 0x7fc0; /* of row 1 */
    kernels->dots_bf16((const float *)(const void *)rows, stride, n, dim / 2,
                       (const float *)(const void *)lanes, factor, got);
    for (int i = 0; i < n * LANES; ++i) {
        double sum = 0, sum_abs = 0;
        for (int d = 0; d < dim; ++d) {
            double term = bf16_number(rows[2 * (i / LANES * stride + d / 2) + d % 2]) *
                          bf16_number(lanes[2 * (d / 2 * LANES + i % LANES) + d % 2]);
            sum += term;
            sum_abs += fabs(term);
        }
        if (i / LANES == 1)
            TEST_ASSERT_TRUE(isnan(got[i]));
        else
            TEST_ASSERT_DOUBLE_WITHIN(0x1p-24 * (dim + 2) * sum_abs * factor, sum * factor, got[i]);
    }
}

static void test_dots_of_bf16(void)
{
    int tested = 0;
    for (int level = 0; level < level_count; ++level) {
        for (int n = 1; n <= 60 && levels[level]->dots_bf16; n += 7)
            for (int dim = 8; dim <= 256; dim += 56)
                check_dots_bf16(levels[level], n, dim);
        tested += levels[level]->dots_bf16 != NULL;
    }
    if (!tested)
        TEST_IGNORE_MESSAGE("this CPU does not multiply bf16");
}

static void test_sums(void)
{
    float rescale[LANES];
    for (int j = 0; j < LANES; ++j)
        rescale[j] = 0.25f + 0.05f * (float)j;
    for (int level = 0; level < level_count; ++level)
        for (int n = 1; n <= 60; n += 7)
            for (int dim = 8; dim <= 256; dim += 56) {
                for (int i = 0; i < DIM * LANES; ++i)
                    got[i] = other[i] = (float)i / 64;
                levels[level]->sums(tile, dim + 8, n, dim, panel, n % 2 ? rescale : NULL, got);
                ta_panel_sums_hidden(tile, dim + 8, n, dim, panel, n % 2 ? rescale : NULL, other);
                for (int i = 0; i < dim * LANES; ++i) {
                    double before = i / 64.0 * (n % 2 ? (double)rescale[i % LANES] : 1);
                    double sum = before, sum_abs = before;
                    for (int t = 0; t < n; ++t) {
                        double term = (double)tile[t * (dim + 8) + i / LANES] *
                                      (double)panel[t * LANES + i % LANES];
                        sum += term;
                        sum_abs += fabs(term);
                    }
                    TEST_ASSERT_DOUBLE_WITHIN(sum_abs * (n + 2) * 0x1p-24, sum, (double)got[i]);
                    TEST_ASSERT_TRUE(got[i] == other[i]); /* to the bit, also at SIMD levels */
                }
            }
}

static void test_hidden_weights_hide(void)
{
    tile[3 * 16] = NAN;
    tile[5 * 16 + 1] = INFINITY;
    for (int j = 0; j < LANES; ++j) { /* row 3 hidden from all, row 5 from even lanes */
        panel[3 * LANES + j] = -0.0f;
        if (j % 2 == 0)
            panel[5 * LANES + j] = -0.0f;
        got[j] = got[LANES + j] = 0;
    }
    TEST_ASSERT_FALSE(ta_tile_finite(tile, 16, 8, 8));
    TEST_ASSERT_TRUE(ta_tile_finite(tile + 6 * 16, 16, 2, 8));
    ta_panel_sums_hidden(tile, 16, 8, 8, panel, NULL, got);
    for (int j = 0; j < LANES; ++j) {
        TEST_ASSERT_TRUE(isfinite(got[j]));
        TEST_ASSERT_EQUAL_INT(j % 2 == 0, isfinite(got[LANES + j]));
    }
}

static void test_transpose(void)
{
    for (int level = 0; level < level_count; ++level) {
        levels[level]->transpose(tile, 40, 16, 32, got, 24);
        for (int i = 0; i < 16; ++i)
            for (int j = 0; j < 32; ++j)
                TEST_ASSERT_EQUAL_FLOAT(tile[i * 40 + j], got[j * 24 + i]);
    }
}

/* Three calls, as three tiles of keys: one seen by all, one by some, one by none. */
static void test_softmax(void)
{
    for (int level = 0; level < level_count; ++level) {
        ta_panel_partial partial;
        ta_panel_mask some, none = {0};
        float scores[3][30 * LANES];
        double top[LANES], sum[LANES] = {0};
        for (int j = 0; j < LANES; ++j) {
            partial.m[j] = -INFINITY;
            partial.l[j] = 0;
            some.first[j] = (float)(j / 2);
            some.end[j] = (float)(2 * j);
            top[j] = -INFINITY;
        }
        for (int t = 0; t < 3 * 30 * LANES; ++t)
            scores[t / (30 * LANES)][t % (30 * LANES)] = 8 * tile[t];
        for (int t = 0; t < 60 * LANES; ++t) {
            int j = t % LANES, key = t / LANES;
            if (key < 30 || (key - 30 >= j / 2 && key - 30 < 2 * j)) {
                double s = 8 * (double)tile[t];
                sum[j] = sum[j] * (s > top[j] ? exp2(top[j] - s) : 1);
                top[j] = fmax(top[j], s);
                sum[j] += exp2(s - top[j]);
            }
        }
        levels[level]->softmax(scores[2], 30, &none, &partial);
        levels[level]->softmax(scores[0], 30, NULL, &partial);
        levels[level]->softmax(scores[1], 30, &some, &partial);
        for (int j = 0; j < LANES; ++j) {
            TEST_ASSERT_DOUBLE_WITHIN(1e-6, top[j], (double)partial.m[j]);
            TEST_ASSERT_DOUBLE_WITHIN(1e-5 * sum[j], sum[j], (double)partial.l[j]);
            for (int i = 0; i < 30; ++i) {
                float w = scores[1][i * LANES + j];
                int seen = i >= j / 2 && i < 2 * j;
                TEST_ASSERT_TRUE(seen ? !signbit(w) : w == 0 && signbit(w));
            }
        }
    }
}

static void check_gradient(const ta_panel_kernels *kernels, float cap)
{
    float scores[48 * LANES], products[48 * LANES], lse[48], delta[48], first[48], end[48];
    for (int i = 0; i < 48; ++i) {
        lse[i] = 6 + tile[i];
        delta[i] = tile[100 + i];
        first[i] = (float)(i % 5);
        end[i] = (float)(16 - i % 7);
    }
    for (int i = 0; i < 48 * LANES; ++i) {
        scores[i] = cap > 0 ? tanhf(tile[i]) : tile[i];
        products[i] = panel[i % (DIM * LANES)];
    }
    kernels->gradient(scores, products, 48, lse, delta, first, end, cap);
    for (int i = 0; i < 48 * LANES; ++i) {
        int row = i / LANES, lane = i % LANES;
        double t = cap > 0 ? (double)tanhf(tile[i]) : (double)tile[i];
        double p = exp2((cap > 0 ? (double)cap * t : t) - (double)lse[row]);
        double ds = p * ((double)panel[i] - (double)delta[row]) * (cap > 0 ? 1 - t * t : 1);
        if ((float)lane < first[row] || (float)lane >= end[row]) {
            TEST_ASSERT_TRUE(scores[i] == 0 && signbit(scores[i]));
            TEST_ASSERT_TRUE(products[i] == 0 && signbit(products[i]));
        } else {
            TEST_ASSERT_DOUBLE_WITHIN(2e-6 * p, p, (double)scores[i]);
            TEST_ASSERT_DOUBLE_WITHIN(4e-6 * p, ds, (double)products[i]);
        }
    }
}

static void test_gradient(void)
{
    for (int level = 0; level < level_count; ++level) {
        check_gradient(levels[level], 0);
        check_gradient(levels[level], 3);
    }
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(test_dots);
    RUN_TEST(test_dots_of_bf16);
    RUN_TEST(test_sums);
    RUN_TEST(test_hidden_weights_hide);
    RUN_TEST(test_transpose);
    RUN_TEST(test_softmax);
    RUN_TEST(test_gradient);
    return UNITY_END() != 0;
}
