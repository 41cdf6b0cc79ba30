/* The operations of a decoder layer on the host, each against double within a bound that follows
 * from how it rounds. */
#include <dlfcn.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unity.h>

#include "llama/blas_library.h"
#include "llama/config.h"
#include "llama/ops.h"
#include "llama/products.h"
#include "llama/sample.h"
#include "numbers.h"

void setUp(void)
{
}

void tearDown(void)
{
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

/* Inputs that are rounded to bf16 first. */
static double bf16_bound(double sizes)
{
    return element_roundoff(TA_BF16) * (1 + 1e-3) * sizes;
}

static const char *onednn; /* a library that has what oneDNN has */

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
            double bound = product_bound(columns, sizes, any_order);
            if (products_type(dtype, rows) == TA_BF16)
                bound += bf16_bound(sizes);
            near(sum, to[row * outputs + output], bound, element_name(dtype));
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
    llama_ops *ops = llama_ops_host(1);
    float one = 1;
    llama_matrix narrow = {&one, TA_E4M3, 1, 1, 1};
    TEST_ASSERT_EQUAL(TA_ERR_UNSUPPORTED, ops->table->linear(ops, &narrow, NULL, &one, 1, &one));
    ops->table->destroy(ops);
    TEST_ASSERT_EQUAL(-1, products_level("other"));
    TEST_ASSERT_EQUAL(0, products_level(NULL));
}

static void *symbol_of(const char *name)
{
    void *handle = dlopen(onednn, RTLD_NOW | RTLD_NOLOAD);
    TEST_ASSERT_NOT_NULL(handle);
    void *symbol = dlsym(handle, name);
    TEST_ASSERT_NOT_NULL(symbol);
    dlclose(handle);
    return symbol;
}

static void test_products_of_a_blas(void)
{
    char error[256];
    TEST_ASSERT_EQUAL(-1, products_use("no-such-library.so", error, sizeof error));
    TEST_ASSERT_NOT_NULL(strstr(error, "'no-such-library.so' is no BLAS"));
    TEST_ASSERT_EQUAL(-1, products_use("libm.so.6", error, sizeof error));
    TEST_ASSERT_NOT_NULL(strstr(error, "none of cblas_sgemm, sgemm_ and dnnl_sgemm"));
    TEST_ASSERT_EQUAL(0, products_use(NULL, error, sizeof error));
    check_products(); /* by the one that was chosen, or by the own loops */
    if (products_use("libblas.so.3", error, sizeof error) != 0)
        TEST_IGNORE_MESSAGE(error);
    TEST_ASSERT_EQUAL_STRING("libblas.so.3", products_many_name());
    check_products();
}

/* By each way in which a library is called, with one that is in this program. */
static int called;

static void multiply(int64_t rows, int64_t outputs, int64_t columns, const float *from,
                     const float *w, int64_t w_stride, float *to, int64_t to_stride)
{
    called++;
    for (int64_t row = 0; row < rows; row++)
        for (int64_t output = 0; output < outputs; output++) {
            double sum = 0;
            for (int64_t i = 0; i < columns; i++)
                sum += (double)from[row * columns + i] * w[output * w_stride + i];
            to[row * to_stride + output] = (float)sum;
        }
}

static void fortran_sgemm(const char *transpose_a, const char *transpose_b, const int *m,
                          const int *n, const int *k, const float *alpha, const float *a,
                          const int *lda, const float *b, const int *ldb, const float *beta,
                          float *c, const int *ldc, size_t length_a, size_t length_b)
{
    TEST_ASSERT_TRUE(*transpose_a == 'T' && *transpose_b == 'N' && length_a + length_b == 2);
    TEST_ASSERT_TRUE(*alpha == 1 && *beta == 0 && *ldb == *k);
    multiply(*n, *m, *k, b, a, *lda, c, *ldc);
}

static void c_sgemm_64(int order, int transpose_a, int transpose_b, int64_t m, int64_t n, int64_t k,
                       float alpha, const float *a, int64_t lda, const float *b, int64_t ldb,
                       float beta, float *c, int64_t ldc)
{
    TEST_ASSERT_TRUE(order == 101 && transpose_a == 111 && transpose_b == 112);
    TEST_ASSERT_TRUE(alpha == 1 && beta == 0 && lda == k);
    multiply(m, n, k, a, b, ldb, c, ldc);
}

static void test_ways_to_call_a_blas(void)
{
    enum { ROWS = 3, OUTPUTS = 4, COLUMNS = 5, STRIDE = 7, APART = 6 };
    static float found[ROWS * APART], exact[ROWS * APART];
    float *from = numbers(ROWS * COLUMNS, 1, 1), *w = numbers(OUTPUTS * STRIDE, 2, 1);
    const blas_library ways[] = {{"f", BLAS_FORTRAN, (void (*)(void))fortran_sgemm, NULL, NULL},
                                 {"c", BLAS_C_64, (void (*)(void))c_sgemm_64, NULL, NULL}};
    multiply(ROWS, OUTPUTS, COLUMNS, from, w, STRIDE, exact, APART);
    for (int i = 0; i < 2; i++) {
        called = 0;
        memset(found, 0, sizeof found);
        blas_multiply(&ways[i], ROWS, OUTPUTS, COLUMNS, from, w, STRIDE, found, APART);
        TEST_ASSERT_EQUAL(1, called);
        TEST_ASSERT_EQUAL_MEMORY(exact, found, sizeof exact);
    }
    free(w);
    free(from);
}

/* One that has a product of bf16: it is used for weights of bf16, where the CPU has it too, and it
 * says so when it has no memory. */
static void test_products_of_bf16(void)
{
    char error[256];
    TEST_ASSERT_EQUAL_MESSAGE(0, products_use(onednn, error, sizeof error), error);
    _Atomic int *calls = symbol_of("onednn_bf16_calls");
    int *fails = symbol_of("onednn_fails");
    int has_bf16 = *calls > 0; /* blas_open() tried it */
    TEST_ASSERT_EQUAL(TA_F32, products_type(TA_F32, 100));
    TEST_ASSERT_EQUAL(TA_F32, products_type(TA_BF16, 1));
    TEST_ASSERT_EQUAL(has_bf16 ? TA_BF16 : TA_F32, products_type(TA_BF16, 100));
    check_products();
    TEST_ASSERT_TRUE((*calls > 1) == has_bf16);
    enum { ROWS = 20, COLUMNS = 16 };
    static uint16_t weights[COLUMNS];
    static float to[ROWS];
    float *from = numbers(ROWS * COLUMNS, 3, 1);
    llama_ops *ops = llama_ops_host(1);
    llama_matrix w = {weights, TA_BF16, 1, COLUMNS, COLUMNS};
    const uint32_t last = 0x7fffffff; /* NaN of the second row alone, which rounding must keep */
    memcpy(&from[COLUMNS + 3], &last, sizeof last);
    TEST_ASSERT_EQUAL(TA_OK, ops->table->linear(ops, &w, NULL, from, ROWS, to));
    for (int row = 0; row < ROWS; row++)
        TEST_ASSERT_EQUAL(row == 1, isnan(to[row]) != 0);
    /* Inputs go to the nearest, ties to even: with 1 as the only weight, outputs are inputs. */
    static const float given[] = {1 + 0x1p-8f, 1 + 0x3p-8f, -1.999f, 0x1.028p0f, 1e-40f};
    static const float rounded[] = {1, 1 + 0x1p-6f, -2, 1 + 0x1p-7f, 0x1p-133f};
    weights[0] = 0x3f80;
    for (int row = 0; row < 5; row++)
        from[row * COLUMNS] = given[row];
    from[COLUMNS + 3] = 0;
    TEST_ASSERT_EQUAL(TA_OK, ops->table->linear(ops, &w, NULL, from, ROWS, to));
    for (int row = 0; row < 5; row++)
        TEST_ASSERT_TRUE(to[row] == (has_bf16 ? rounded : given)[row]);
    *fails = 1;
    TEST_ASSERT_EQUAL(TA_ERR_NO_MEMORY, ops->table->linear(ops, &w, NULL, from, ROWS, to));
    w.dtype = TA_F32;
    w.columns = w.stride = COLUMNS / 2;
    TEST_ASSERT_EQUAL(TA_ERR_NO_MEMORY, ops->table->linear(ops, &w, NULL, from, ROWS, to));
    *fails = 0;
    ops->table->destroy(ops);
    free(from);
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

int main(int argc, char **argv)
{
    element_init();
    onednn = argc > 1 ? argv[1] : "";
    UNITY_BEGIN();
    RUN_TEST(test_products_of_every_level);
    RUN_TEST(test_products_of_a_blas);
    RUN_TEST(test_ways_to_call_a_blas);
    RUN_TEST(test_products_of_bf16);
    RUN_TEST(test_products_have_one_order);
    RUN_TEST(test_norm);
    RUN_TEST(test_rope);
    RUN_TEST(test_swiglu_and_add);
    RUN_TEST(test_embed_and_types);
    RUN_TEST(test_sampling);
    return UNITY_END() != 0;
}
