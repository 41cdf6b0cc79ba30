/* The operations of a decoder layer on a GPU, each against double within a bound that follows from
 * how it rounds. The device is simt. */
#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unity.h>

#include <treeattn/extension.h>

#include "device/model.h"
#include "llama/ops.h"
#include "llama/sample.h"
#include "numbers.h"

static ta_device *device;
static llama_ops *ops, *own;     /* products of many rows by a BLAS; by the kernel */
static const char *failing_blas; /* a library that makes no handle */

void setUp(void)
{
}

void tearDown(void)
{
}

static void ok(ta_status status)
{
    TEST_ASSERT_EQUAL_MESSAGE(TA_OK, status, ta_last_error());
}

/* Device memory with a copy; with NULL it has NaN in it. */
static void *there(const void *from, size_t bytes)
{
    void *memory, *nans = malloc(bytes);
    memset(nans, 0xff, bytes);
    ok(ta_device_alloc(device, bytes, &memory));
    ok(ta_device_copy(device, memory, from ? from : nans, bytes, NULL));
    free(nans);
    return memory;
}

/* Host memory with a copy, which the caller frees; frees the device's. */
static void *back(void *memory, size_t bytes)
{
    void *to = malloc(bytes);
    ok(ta_device_copy(device, to, memory, bytes, NULL));
    ok(ta_device_synchronize(device, NULL));
    ta_device_free(device, memory);
    return to;
}

/* The kernel adds a lane's products one by one, with one rounding each, then over the lanes, and
 * the bias. A BLAS is given inputs that were rounded to the weights' type, and adds in any
 * order. */
static void check_product(llama_ops *by, ta_dtype dtype, int64_t rows, int64_t outputs,
                          int64_t columns, int64_t stride, int shift)
{
    size_t each = element_bytes(dtype), bytes = (size_t)(outputs * stride) * each;
    int blas = by == ops && rows > 8;
    char *weights = malloc(bytes + 16);
    float *from = numbers(rows * columns, 3, 1), *bias = numbers(outputs, 4, 1);
    double *values = malloc((size_t)stride * sizeof *values);
    element_fill(dtype, weights, 0, outputs * stride, 7, 0.25f);
    char *w_there = there(NULL, bytes + 16);
    ok(ta_device_copy(device, w_there + shift, weights, bytes, NULL));
    void *from_there = there(from, (size_t)(rows * columns + 1) * sizeof *from - sizeof *from);
    void *bias_there = there(bias, (size_t)outputs * sizeof *bias);
    float *to = there(NULL, (size_t)(rows * outputs) * sizeof *to);
    llama_matrix w = {w_there + shift, dtype, outputs, columns, stride};
    ok(by->table->linear(by, &w, rows % 2 ? bias_there : NULL, from_there, rows, to));
    to = back(to, (size_t)(rows * outputs) * sizeof *to);
    for (int64_t output = 0; output < outputs; output++) {
        element_read(dtype, weights + (size_t)(output * stride) * each, stride, values);
        for (int64_t row = 0; row < rows; row++) {
            double sum = rows % 2 ? bias[output] : 0, sizes = fabs(sum);
            for (int64_t i = 0; i < columns; i++) {
                sum += values[i] * from[row * columns + i];
                sizes += fabs(values[i] * from[row * columns + i]);
            }
            double roundings = blas ? (double)columns + 2 : (double)columns / 32 + 8 + 7;
            double bound = roundings * U / (1 - roundings * U) * sizes;
            if (blas)
                bound += element_roundoff(dtype) * sizes * (dtype == TA_F32 ? 0 : 1);
            near(sum, to[row * outputs + output], bound, element_name(dtype));
        }
    }
    ta_device_free(device, bias_there);
    ta_device_free(device, from_there);
    ta_device_free(device, w_there);
    free(values);
    free(to);
    free(bias);
    free(from);
    free(weights);
}

static void test_products(void)
{
    static const int64_t shapes[][5] = {
        /* rows, outputs, columns, stride, elements of shift */
        {1, 37, 64, 64, 0},    {1, 4, 7, 9, 1},       {2, 5, 33, 40, 0},
        {3, 9, 160, 160, 0},   {8, 6, 100, 104, 0},   {13, 29, 75, 80, 0},
        {20, 11, 128, 128, 0}, {1, 3, 1100, 1104, 0}, {1, 1, 1, 1, 1}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int dtype = TA_F32; dtype <= TA_BF16; dtype++)
            for (int blas = 0; blas < 2; blas++)
                check_product(blas ? ops : own, (ta_dtype)dtype, shapes[i][0], shapes[i][1],
                              shapes[i][2], shapes[i][3],
                              (int)(shapes[i][4] * (int64_t)element_bytes((ta_dtype)dtype)));
}

/* A row's numbers are the same bits alone and among others. */
static void test_products_have_one_order(void)
{
    enum { ROWS = 11, OUTPUTS = 13, COLUMNS = 200 };
    float *from = numbers(ROWS * COLUMNS, 3, 1), *weights = numbers(OUTPUTS * COLUMNS, 4, 1);
    float *from_there = there(from, sizeof *from * ROWS * COLUMNS);
    llama_matrix w = {there(weights, sizeof *weights * OUTPUTS * COLUMNS), TA_F32, OUTPUTS, COLUMNS,
                      COLUMNS};
    float *many = there(NULL, sizeof(float) * ROWS * OUTPUTS);
    ok(own->table->linear(own, &w, NULL, from_there, ROWS, many));
    many = back(many, sizeof(float) * ROWS * OUTPUTS);
    for (int row = 0; row < ROWS; row++) {
        float *one = there(NULL, sizeof(float) * OUTPUTS);
        ok(own->table->linear(own, &w, NULL, from_there + row * COLUMNS, 1, one));
        one = back(one, sizeof(float) * OUTPUTS);
        TEST_ASSERT_EQUAL_MEMORY(many + row * OUTPUTS, one, sizeof(float) * OUTPUTS);
        free(one);
    }
    ta_device_free(device, (void *)w.data);
    ta_device_free(device, from_there);
    free(many);
    free(weights);
    free(from);
}

/* The sum of squares rounds for each of a thread's numbers, 8 times over the block; division, sum,
 * root, reciprocal and two products follow. */
static void test_norm(void)
{
    enum { ROWS = 3, WIDTH = 700 };
    float *from = numbers(ROWS * WIDTH, 5, 2), *weight = numbers(WIDTH, 6, 1);
    float *x = there(from, sizeof *from * ROWS * WIDTH);
    float *weight_there = there(weight, sizeof *weight * WIDTH);
    ok(ops->table->norm(ops, x, weight_there, 1e-5f, ROWS, WIDTH, x));
    x = back(x, sizeof *from * ROWS * WIDTH);
    for (int row = 0; row < ROWS; row++) {
        double mean = 0;
        for (int i = 0; i < WIDTH; i++)
            mean += (double)from[row * WIDTH + i] * from[row * WIDTH + i] / WIDTH;
        for (int i = 0; i < WIDTH; i++) {
            double exact = from[row * WIDTH + i] / sqrt(mean + (double)1e-5f) * weight[i];
            near(exact, x[row * WIDTH + i], (WIDTH / 256 + 1 + 8 + 8) * U * fabs(exact), "norm");
        }
    }
    ta_device_free(device, weight_there);
    free(x);
    free(weight);
    free(from);
}

static void test_rope(void)
{
    enum { TOKENS = 3, HEADS = 5, DIM = 16, HALF = DIM / 2, COUNT = TOKENS * HEADS * DIM };
    const int32_t positions[TOKENS] = {0, 7, 1000};
    const llama_rope rope = {.theta = 10000};
    float cosines[TOKENS * HALF], sines[TOKENS * HALF], *from = numbers(COUNT, 8, 1);
    llama_rope_angles(&rope, DIM, positions, TOKENS, cosines, sines);
    float *x = there(from, sizeof *from * COUNT);
    float *c = there(cosines, sizeof cosines), *s = there(sines, sizeof sines);
    ok(ops->table->rope(ops, x, TOKENS, HEADS, DIM, c, s));
    x = back(x, sizeof *from * COUNT);
    for (int i = 0; i < COUNT; i++) {
        int token = i / (HEADS * DIM), at = i % DIM, pair = at < HALF ? i + HALF : i - HALF;
        double cosine = cosines[token * HALF + at % HALF], sine = sines[token * HALF + at % HALF];
        double a = from[i] * cosine, b = (at < HALF ? -1 : 1) * from[pair] * sine;
        near(a + b, x[i], 2 * U * (fabs(a) + fabs(b)), "rope");
    }
    ta_device_free(device, s);
    ta_device_free(device, c);
    free(x);
    free(from);
}

static void test_swiglu_and_add(void)
{
    enum { COUNT = 1000 };
    float *gate = numbers(COUNT, 9, 8), *up = numbers(COUNT, 10, 2);
    float *x = there(gate, sizeof *gate * COUNT), *y = there(gate, sizeof *gate * COUNT);
    float *up_there = there(up, sizeof *up * COUNT);
    ok(ops->table->swiglu(ops, x, up_there, COUNT));
    ok(ops->table->add(ops, y, up_there, COUNT));
    x = back(x, sizeof *gate * COUNT);
    y = back(y, sizeof *gate * COUNT);
    for (int i = 0; i < COUNT; i++) {
        double exact = gate[i] / (1 + exp(-(double)gate[i])) * up[i];
        /* The exponential to 2 u of itself, a sum, a quotient and a product. */
        near(exact, x[i], 6 * U * fabs(exact), "swiglu");
        near((double)gate[i] + up[i], y[i], U * fabs((double)gate[i] + up[i]), "add");
    }
    ta_device_free(device, up_there);
    free(y);
    free(x);
    free(up);
    free(gate);
}

/* The host's rounding is the truth for both ways; words that the table does not have are NaN. */
static void test_types_and_embedding(void)
{
    enum { COUNT = 600, ROWS = 10, WIDTH = 60 };
    const int32_t words[] = {3, 9, -1, 0, 10};
    llama_ops *host = llama_ops_host(1);
    float *from = numbers(COUNT, 11, 4);
    from[0] = NAN;
    from[1] = 1e6f;
    from[2] = 1e-7f;
    float *from_there = there(from, sizeof *from * COUNT);
    int32_t *words_there = there(words, sizeof words);
    for (int dtype = TA_F32; dtype <= TA_BF16; dtype++) {
        size_t bytes = element_bytes((ta_dtype)dtype) * COUNT;
        uint16_t exact[2 * COUNT];
        void *narrow = there(NULL, bytes);
        float *wide = there(NULL, sizeof *wide * COUNT), *rows, widened[COUNT];
        ok(ops->table->narrow(ops, (ta_dtype)dtype, from_there, narrow, COUNT));
        ok(ops->table->widen(ops, (ta_dtype)dtype, narrow, wide, COUNT));
        llama_matrix table = {narrow, (ta_dtype)dtype, ROWS, WIDTH - 4, WIDTH};
        rows = there(NULL, sizeof *rows * 5 * (WIDTH - 4));
        ok(ops->table->embed(ops, &table, words_there, 5, rows));
        rows = back(rows, sizeof *rows * 5 * (WIDTH - 4));
        wide = back(wide, sizeof *wide * COUNT);
        char *got = back(narrow, bytes);
        host->table->narrow(host, (ta_dtype)dtype, from, exact, COUNT);
        host->table->widen(host, (ta_dtype)dtype, exact, widened, COUNT);
        size_t first = element_bytes((ta_dtype)dtype); /* a NaN may have other bits */
        TEST_ASSERT_EQUAL_MEMORY((char *)exact + first, got + first, bytes - first);
        TEST_ASSERT_EQUAL_MEMORY(widened + 1, wide + 1, sizeof *wide * (COUNT - 1));
        TEST_ASSERT_TRUE(isnan(wide[0]));
        for (int i = 0; i < 5 * (WIDTH - 4); i++) {
            int32_t word = words[i / (WIDTH - 4)];
            if (word < 0 || word >= ROWS)
                TEST_ASSERT_TRUE(isnan(rows[i]));
            else if (word || i % (WIDTH - 4))
                TEST_ASSERT_EQUAL_MEMORY(&widened[word * WIDTH + i % (WIDTH - 4)], &rows[i], 4);
        }
        free(got);
        free(wide);
        free(rows);
    }
    ta_device_free(device, words_there);
    ta_device_free(device, from_there);
    free(from);
    host->table->destroy(host);
}

static void test_repeat_and_argmax(void)
{
    enum { ROWS = 3, HEADS = 2, TIMES = 3, DIM = 5, FROM = ROWS * HEADS * DIM };
    float *from = numbers(FROM, 12, 1);
    float *from_there = there(from, sizeof *from * FROM);
    for (int dtype = TA_F32; dtype <= TA_F16; dtype++) { /* of 2 bytes: twice the dimensions */
        int parts = dtype == TA_F32 ? 1 : 2;
        float *to = there(NULL, sizeof *to * FROM * TIMES);
        ok(ops->table->repeat(ops, (ta_dtype)dtype, from_there, ROWS, HEADS, TIMES, DIM * parts,
                              to));
        to = back(to, sizeof *to * FROM * TIMES);
        for (int i = 0; i < FROM * TIMES; i++)
            TEST_ASSERT_EQUAL_MEMORY(&from[i / (DIM * TIMES) * DIM + i % DIM], &to[i], 4);
        free(to);
    }
    ta_device_free(device, from_there);
    free(from);
    for (int count = 1; count < 1000; count += 333) {
        float *x = numbers(count, (uint64_t)count, 1);
        for (int how = 0; how < 4; how++) {
            x[count / 2] = how == 1 ? NAN : how == 2 ? 5 : how == 3 ? -INFINITY : x[count / 2];
            x[count - 1] = how == 2 ? 5 : x[count - 1]; /* the first of two */
            for (int i = 0; how == 3 && i < count; i++)
                x[i] = NAN;
            float *x_there = there(x, sizeof *x * (size_t)count);
            int32_t *best = there(NULL, sizeof *best);
            ok(ops->table->argmax(ops, x_there, count, best));
            best = back(best, sizeof *best);
            TEST_ASSERT_EQUAL(sample_greedy(x, count), *best);
            ta_device_free(device, x_there);
            free(best);
        }
        free(x);
    }
}

static void test_what_is_refused(void)
{
    const void *table = NULL;
    llama_ops *made = NULL;
    ta_device *host;
    TEST_ASSERT_EQUAL(TA_ERR_NOT_FOUND, llama_ops_gpu(device, "no-such-library.so", 1, &made));
    TEST_ASSERT_NOT_NULL(strstr(ta_last_error(), "'no-such-library.so'"));
    TEST_ASSERT_EQUAL(TA_ERR_NOT_FOUND, llama_ops_gpu(device, "libm.so.6", 1, &made));
    TEST_ASSERT_NOT_NULL(strstr(ta_last_error(), "cublasGemmEx"));
    TEST_ASSERT_EQUAL(TA_ERR_INVALID, llama_ops_gpu(device, NULL, -1, &made));
    TEST_ASSERT_NULL(made);
    llama_matrix w = {NULL, TA_E4M3, 4, 4, 4};
    TEST_ASSERT_EQUAL(TA_ERR_UNSUPPORTED, own->table->linear(own, &w, NULL, NULL, 1, NULL));
    TEST_ASSERT_EQUAL(TA_ERR_UNSUPPORTED, ops->table->linear(ops, &w, NULL, NULL, 20, NULL));
    TEST_ASSERT_NOT_NULL(strstr(ta_last_error(), "must be f32, f16 or bf16"));
    w = (llama_matrix){NULL, TA_F32, 4, 4, 3};
    TEST_ASSERT_EQUAL(TA_ERR_INVALID, own->table->linear(own, &w, NULL, NULL, 1, NULL));
    TEST_ASSERT_EQUAL(TA_ERR_UNSUPPORTED, ta_device_extension(device, TA_MODEL_NAME, 99, &table));
    TEST_ASSERT_NOT_NULL(strstr(ta_last_error(), "version is 99"));
    ok(ta_device_open("host", NULL, &host));
    TEST_ASSERT_EQUAL(TA_ERR_UNSUPPORTED, llama_ops_gpu(host, NULL, 1, &made));
    ta_device_close(host);
}

/* A library that cannot be used does not stay open. */
static void test_failing_library_is_closed(void)
{
    llama_ops *made = NULL;
    void *before = dlopen(failing_blas, RTLD_NOW | RTLD_NOLOAD);
    TEST_ASSERT_NULL(before);
    TEST_ASSERT_EQUAL(TA_ERR_NOT_FOUND, llama_ops_gpu(device, failing_blas, 1, &made));
    TEST_ASSERT_NOT_NULL(strstr(ta_last_error(), "made no handle: its status is 3"));
    TEST_ASSERT_NULL(dlopen(failing_blas, RTLD_NOW | RTLD_NOLOAD));
}

int main(int argc, char **argv)
{
    if (argc != 2) {
        printf("usage: test_llama_device FAILING_BLAS\n");
        return 2;
    }
    failing_blas = argv[1];
    element_init();
    if (ta_device_open("simt:0", NULL, &device) != TA_OK ||
        llama_ops_gpu(device, NULL, 20 * 1104, &ops) != TA_OK ||
        llama_ops_gpu(device, "own", 0, &own) != TA_OK) {
        printf("%s\n", ta_last_error());
        return 1;
    }
    UNITY_BEGIN();
    RUN_TEST(test_products);
    RUN_TEST(test_products_have_one_order);
    RUN_TEST(test_norm);
    RUN_TEST(test_rope);
    RUN_TEST(test_swiglu_and_add);
    RUN_TEST(test_types_and_embedding);
    RUN_TEST(test_repeat_and_argmax);
    RUN_TEST(test_what_is_refused);
    RUN_TEST(test_failing_library_is_closed);
    own->table->destroy(own);
    ops->table->destroy(ops);
    ta_device_close(device);
    return UNITY_END() != 0;
}
