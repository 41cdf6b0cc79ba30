/* The operations of a decoder layer on the host, each against double within a bound that follows
 * from how it rounds: u is half the distance from 1 to the next float. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unity.h>

#include "common/elements.h"
#include "llama/config.h"
#include "llama/ops.h"
#include "llama/products.h"
#include "llama/sample.h"

#define U 0x1p-24

void setUp(void)
{
}

void tearDown(void)
{
}

static float *numbers(int64_t count, uint64_t seed, float range)
{
    float *data = malloc((size_t)count * sizeof *data);
    element_fill(TA_F32, data, 0, count, seed, range);
    return data;
}

static void near(double expected, double got, double bound, const char *what)
{
    char text[256];
    snprintf(text, sizeof text, "%s: %.17g, not %.17g: %g is more than %g", what, got, expected,
             fabs(got - expected), bound);
    TEST_ASSERT_TRUE_MESSAGE(fabs(got - expected) <= bound, text);
}

/* ---- Products ------------------------------------------------------------------------------ */

/* A sum of n products in 16 lanes rounds at most n / 16 + 1 times in a lane, 4 times over the
 * lanes, and once for the bias; without fused operations each product too. A BLAS may use any
 * order. */
static double product_bound(int64_t columns, double sizes, int any_order)
{
    double roundings = any_order ? (double)columns + 2 : (double)(columns / 16) + 7;
    return roundings * U / (1 - roundings * U) * sizes;
}

static void check_product(ta_dtype dtype, int64_t rows, int64_t outputs, int64_t columns,
                          int64_t stride, int threads, int shift)
{
    llama_ops *ops = llama_ops_host(threads);
    size_t each = element_bytes(dtype);
    char *memory = malloc((size_t)(outputs * stride + 1) * each);
    char *weights = memory + shift; /* a file may have them anywhere */
    void *aligned = malloc((size_t)stride * each);
    float *from = numbers(rows * columns, 3, 1), *bias = numbers(outputs, 4, 1);
    float *to = malloc((size_t)(rows * outputs) * sizeof *to);
    double *values = malloc((size_t)stride * sizeof *values);
    int any_order = strcmp(products_many_name(), products_one_name()) != 0;
    for (int64_t output = 0; output < outputs; output++) {
        element_fill(dtype, aligned, output * stride, stride, 7, 0.25f);
        memcpy(weights + (size_t)(output * stride) * each, aligned, (size_t)stride * each);
    }
    llama_matrix w = {weights, dtype, outputs, columns, stride};
    memset(to, 0xff, (size_t)(rows * outputs) * sizeof *to);
    TEST_ASSERT_EQUAL(0, ops->table->linear(ops, &w, rows % 2 ? bias : NULL, from, rows, to));
    for (int64_t output = 0; output < outputs; output++) {
        memcpy(aligned, weights + (size_t)(output * stride) * each, (size_t)stride * each);
        element_read(dtype, aligned, stride, values);
        for (int64_t row = 0; row < rows; row++) {
            double sum = rows % 2 ? bias[output] : 0, sizes = fabs(sum);
            for (int64_t i = 0; i < columns; i++) {
                sum += values[i] * from[row * columns + i];
                sizes += fabs(values[i] * from[row * columns + i]);
            }
            near(sum, to[row * outputs + output], product_bound(columns, sizes, any_order),
                 element_name(dtype));
        }
    }
    free(values);
    free(to);
    free(bias);
    free(from);
    free(aligned);
    free(memory);
    ops->table->destroy(ops);
}

static void check_products(void)
{
    static const int64_t shapes[][4] = {/* rows, outputs, columns, stride */
                                        {1, 37, 64, 64},  {1, 4, 7, 9},          {1, 130, 56, 56},
                                        {2, 5, 33, 40},   {3, 64, 16, 16},       {6, 8, 160, 160},
                                        {13, 29, 75, 80}, {50, 70, 100, 112},    {1, 3, 4096, 4100},
                                        {1, 1, 1, 1},     {200, 20, 2048, 2048}, {3, 5, 0, 8}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int dtype = TA_F32; dtype <= TA_BF16; dtype++)
            for (int threads = 1; threads <= 3; threads += 2)
                check_product((ta_dtype)dtype, shapes[i][0], shapes[i][1], shapes[i][2],
                              shapes[i][3], threads, (int)(i % 2));
}

static void test_products_of_every_level(void)
{
    static const char *const names[] = {"plain", "avx2", "avx512"};
    char error[256];
    TEST_ASSERT_EQUAL(0, products_use("own", error, sizeof error));
    for (int i = 0; i < 3; i++)
        if (products_level(names[i]) == 0)
            check_products();
    TEST_ASSERT_EQUAL(-1, products_level("other"));
    TEST_ASSERT_EQUAL(0, products_level(NULL));
}

static void test_products_of_a_blas(void)
{
    char error[256];
    TEST_ASSERT_EQUAL(-1, products_use("no-such-library.so", error, sizeof error));
    TEST_ASSERT_NOT_NULL(strstr(error, "'no-such-library.so' is no BLAS"));
    TEST_ASSERT_EQUAL(-1, products_use("libm.so.6", error, sizeof error));
    TEST_ASSERT_EQUAL(0, products_use(NULL, error, sizeof error));
    if (strcmp(products_many_name(), products_one_name()) == 0)
        TEST_IGNORE_MESSAGE("no BLAS here");
    check_products();
}

/* A row's numbers are the same bits alone, among others, and on any number of threads. */
static void test_products_have_one_order(void)
{
    enum { ROWS = 40, OUTPUTS = 90, COLUMNS = 300 };
    char error[256];
    static float many[ROWS][OUTPUTS], one[OUTPUTS];
    llama_ops *ops = llama_ops_host(3), *alone = llama_ops_host(1);
    float *from = numbers(ROWS * COLUMNS, 3, 1), *weights = numbers(OUTPUTS * COLUMNS, 4, 1);
    llama_matrix w = {weights, TA_F32, OUTPUTS, COLUMNS, COLUMNS};
    TEST_ASSERT_EQUAL(0, products_use("own", error, sizeof error));
    ops->table->linear(ops, &w, NULL, from, ROWS, many[0]);
    for (int row = 0; row < ROWS; row++) {
        alone->table->linear(alone, &w, NULL, from + row * COLUMNS, 1, one);
        TEST_ASSERT_EQUAL_MEMORY(one, many[row], sizeof one);
    }
    free(weights);
    free(from);
    ops->table->destroy(ops);
    alone->table->destroy(alone);
}

/* ---- Rows ---------------------------------------------------------------------------------- */

static void test_norm(void)
{
    enum { ROWS = 700, WIDTH = 57 };
    llama_ops *ops = llama_ops_host(2);
    float *from = numbers(ROWS * WIDTH, 1, 4), *weight = numbers(WIDTH, 2, 2);
    float *to = malloc(ROWS * WIDTH * sizeof *to);
    memset(from, 0, WIDTH * sizeof *from); /* a row of zeros stays one */
    ops->table->norm(ops, from, weight, 1e-5f, ROWS, WIDTH, to);
    for (int row = 0; row < ROWS; row++) {
        double squares = 0;
        for (int i = 0; i < WIDTH; i++)
            squares += (double)from[row * WIDTH + i] * from[row * WIDTH + i];
        for (int i = 0; i < WIDTH; i++) {
            double exact = from[row * WIDTH + i] / sqrt(squares / WIDTH + 1e-5f) * weight[i];
            near(exact, to[row * WIDTH + i], 3.001 * U * fabs(exact), "norm"); /* 3 roundings */
        }
    }
    free(to);
    free(weight);
    free(from);
    ops->table->destroy(ops);
}

/* The angles by another way: powers of complex numbers would lose digits, so the formula of the
 * published scaling, written as its authors have it. */
static double published_frequency(const llama_rope *rope, int i, int dim)
{
    double plain = 1 / pow(rope->theta, (double)(2 * i) / dim), wave = 2 * acos(-1) / plain;
    if (!rope->scaled || wave < rope->original_tokens / rope->high_factor)
        return plain;
    if (wave > rope->original_tokens / rope->low_factor)
        return plain / rope->factor;
    double smooth =
        (rope->original_tokens / wave - rope->low_factor) / (rope->high_factor - rope->low_factor);
    return (1 - smooth) * plain / rope->factor + smooth * plain;
}

static void check_rope(const llama_config *config)
{
    enum { TOKENS = 5, HEADS = 3 };
    static const int32_t positions[TOKENS] = {0, 1, 100, 8191, 262143};
    int dim = config->head_dim, half = dim / 2;
    float *x = numbers(TOKENS * HEADS * dim, 9, 2), *before = numbers(TOKENS * HEADS * dim, 9, 2);
    float *c = malloc((size_t)(TOKENS * half) * 4), *s = malloc((size_t)(TOKENS * half) * 4);
    llama_ops *ops = llama_ops_host(2);
    llama_rope_angles(&config->rope, dim, positions, TOKENS, c, s);
    ops->table->rope(ops, x, TOKENS, HEADS, dim, c, s);
    for (int row = 0; row < TOKENS * HEADS; row++) {
        for (int i = 0; i < half; i++) {
            double angle = positions[row / HEADS] * published_frequency(&config->rope, i, dim);
            double a = before[row * dim + i], b = before[row * dim + i + half];
            /* Cosine, product and sum round; the angle itself has the error of a double. */
            double bound = (3.001 * U + angle * 0x1p-48) * (fabs(a) + fabs(b));
            near(a * cos(angle) - b * sin(angle), x[row * dim + i], bound, "rope");
            near(b * cos(angle) + a * sin(angle), x[row * dim + i + half], bound, "rope");
        }
    }
    ops->table->destroy(ops);
    free(s);
    free(c);
    free(before);
    free(x);
}

static void test_rope(void)
{
    for (int i = 0; llama_config_names[i]; i++) {
        llama_config config;
        TEST_ASSERT_EQUAL(0, llama_config_builtin(llama_config_names[i], &config));
        check_rope(&config);
    }
}

static void test_swiglu_and_add(void)
{
    enum { COUNT = 100000 };
    llama_ops *ops = llama_ops_host(2);
    float *gate = numbers(COUNT, 1, 16), *before = numbers(COUNT, 1, 16),
          *up = numbers(COUNT, 2, 4);
    gate[0] = before[0] = -120; /* exp() of it is not finite */
    ops->table->swiglu(ops, gate, up, COUNT);
    for (int i = 0; i < COUNT; i++) {
        double exact = before[i] / (1 + exp(-(double)before[i])) * up[i];
        /* expf() is within 2 u of right here, then three roundings; the least floats are coarse. */
        near(exact, gate[i], 6 * U * fabs(exact) + 0x1p-148, "swiglu");
    }
    ops->table->add(ops, before, up, COUNT);
    float *again = numbers(COUNT, 1, 16);
    for (int i = 1; i < COUNT; i++)
        TEST_ASSERT_TRUE(before[i] == again[i] + up[i]);
    free(again);
    free(up);
    free(before);
    free(gate);
    ops->table->destroy(ops);
}

static void test_embed_and_types(void)
{
    enum { WORDS = 40, WIDTH = 24, TOKENS = 6 };
    static const int32_t words[TOKENS] = {39, 0, 7, 7, 1, 38};
    static float to[TOKENS][WIDTH];
    uint16_t table[WORDS * WIDTH];
    double exact[WIDTH];
    llama_ops *ops = llama_ops_host(2);
    for (int dtype = TA_F16; dtype <= TA_BF16; dtype++) {
        element_fill((ta_dtype)dtype, table, 0, WORDS * WIDTH, 1, 0.0009765625f);
        llama_matrix m = {table, (ta_dtype)dtype, WORDS, WIDTH, WIDTH};
        ops->table->embed(ops, &m, words, TOKENS, to[0]);
        for (int token = 0; token < TOKENS; token++) {
            element_read((ta_dtype)dtype, table + words[token] * WIDTH, WIDTH, exact);
            for (int i = 0; i < WIDTH; i++)
                TEST_ASSERT_TRUE(exact[i] == (double)to[token][i]);
        }
        /* Every number of 16 bits becomes itself, and numbers halfway become the even one. */
        for (uint32_t bits = 0; bits < 65535; bits++) {
            uint16_t in = (uint16_t)bits, out[2], next = (uint16_t)(bits + 1);
            float wide[2], middle;
            ops->table->widen(ops, (ta_dtype)dtype, &in, &wide[0], 1);
            ops->table->widen(ops, (ta_dtype)dtype, &next, &wide[1], 1);
            middle = wide[0] + (wide[1] - wide[0]) / 2;
            ops->table->narrow(ops, (ta_dtype)dtype, wide, &out[0], 1);
            ops->table->narrow(ops, (ta_dtype)dtype, &middle, &out[1], 1);
            if (isnan(wide[0]) || !isfinite(wide[1]))
                continue;
            TEST_ASSERT_EQUAL_HEX16(in, out[0]);
            TEST_ASSERT_EQUAL_HEX16(in % 2 ? next : in, out[1]);
        }
    }
    ops->table->destroy(ops);
}

/* ---- Sampling ------------------------------------------------------------------------------ */

static void test_sampling(void)
{
    enum { DRAWS = 20000 };
    static const float logits[] = {0, NAN, 1, 1, -INFINITY};
    static const float nothing[] = {NAN, NAN};
    int counts[5] = {0};
    TEST_ASSERT_EQUAL(2, sample_word(logits, 5, 0, 0, 0));
    TEST_ASSERT_EQUAL(-1, sample_word(nothing, 2, 1, 0, 0));
    for (uint64_t step = 0; step < DRAWS; step++) {
        int32_t word = sample_word(logits, 5, 0.5, 42, step);
        TEST_ASSERT_EQUAL(word, sample_word(logits, 5, 0.5, 42, step));
        counts[word]++;
    }
    TEST_ASSERT_EQUAL(0, counts[1] + counts[4]);
    double share = 1 / (1 + 2 * exp(2));
    double deviation = sqrt(DRAWS * share * (1 - share));
    TEST_ASSERT_TRUE(fabs(counts[0] - DRAWS * share) < 5 * deviation);
    TEST_ASSERT_TRUE(fabs(counts[2] - DRAWS * (1 - share) / 2) < 5 * sqrt(DRAWS / 4.0));
}

int main(void)
{
    element_init();
    UNITY_BEGIN();
    RUN_TEST(test_products_of_every_level);
    RUN_TEST(test_products_of_a_blas);
    RUN_TEST(test_products_have_one_order);
    RUN_TEST(test_norm);
    RUN_TEST(test_rope);
    RUN_TEST(test_swiglu_and_add);
    RUN_TEST(test_embed_and_types);
    RUN_TEST(test_sampling);
    return UNITY_END();
}
