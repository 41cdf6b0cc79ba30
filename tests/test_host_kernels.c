/* Every SIMD level that this CPU has against the scalar one, kernel by kernel, and the scalar one
 * against double precision where a sum has only one right answer, on usual numbers and on wild
 * ones: infinities, NaN, subnormals, zeros of both signs. With --bench [LEVEL] the same cases are
 * timed (lib/kernel_timer.h), at the shapes that decode steps have. */
#include "host/kernels.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>

#include "base/dtype.h"
#include "base/partial.h"
#include "lib/expect.h"
#include "lib/kernel_timer.h"
#include "lib/random.h"

#define MOST_DIM 576
#define HEADS 3
#define WIDE_END TA_E4M3 /* from here on types have 8 bits: widened, and then as bf16 */

void setUp(void)
{
}

void tearDown(void)
{
}

static const ta_host_kernels *best;
static random_source source = {0};
static float q[HEADS * TA_ROWS_MOST * MOST_DIM];
static uint32_t elements[HEADS * TA_TOKENS_MOST * MOST_DIM]; /* of any type */
static const void *tokens[TA_TOKENS_MOST];
static int even;   /* are the vectors at equal distances? */
static int heads;  /* of a block */
static int packed; /* are queries of the type of K, for score_packed()? */
static int wild;   /* are some elements no usual numbers? */
static int shared; /* as ta_block has it */
static int timing; /* are kernels timed? */
static float sums[HEADS * TA_ROWS_MOST * MOST_DIM];

/* The types whose blocks the level takes: those of 8 bits only with one row, and if it says so. */
static int types_end(void)
{
    return best->reads_narrow && best->reads_narrow() ? TA_DTYPE_END : WIDE_END;
}

/* A number, or something that breaks what is careless. Products with usual queries stay finite. */
static float pick_element(void)
{
    static const float odd[] = {INFINITY, -INFINITY, NAN,    0.0f,    -0.0f,
                                1e15f,    -1e15f,    1e-39f, -1e-44f, 0x1p-126f};
    if (!wild || !random_one_in(&source, 40))
        return (float)random_normal(&source);
    return odd[random_int(&source, 0, sizeof odd / sizeof odd[0] - 1)];
}

/* Not more than `allowed` away; a NaN only where the truth is one, infinities likewise. */
static void check_number(double got, double truth, double allowed, const char *text)
{
    int right = isnan(truth)   ? isnan(got)
                : isinf(truth) ? got == truth
                               : fabs(got - truth) <= allowed;
    TEST_ASSERT_TRUE_MESSAGE(right, text);
}

static void fill(ta_dtype dtype, int dim)
{
    for (int i = 0; i < HEADS * TA_ROWS_MOST * MOST_DIM; ++i)
        q[i] = (float)random_normal(&source);
    for (int i = 0; packed && i < HEADS * TA_ROWS_MOST * MOST_DIM; ++i) {
        uint32_t stored = 0;
        ta_dtype as = dtype < WIDE_END ? dtype : TA_BF16;
        ta_store(as, &stored, 0, q[i]);
        q[i] = ta_load(as, &stored, 0);
    }
    for (int i = 0; i < HEADS * TA_TOKENS_MOST * dim; ++i)
        ta_store(dtype, elements, i, pick_element());
    for (int t = 0; t < TA_TOKENS_MOST; ++t) { /* in any order, as pages are, or backwards */
        int index = even ? TA_TOKENS_MOST - 1 - t : t * 29 % TA_TOKENS_MOST;
        tokens[t] = ta_element(dtype, elements, (int64_t)index * HEADS * dim);
    }
}

static ta_block make_block(ta_dtype dtype, int rows, int n, int dim, float *scores)
{
    int64_t head_bytes = dim * (int64_t)ta_dtype_bytes(dtype);
    ta_vectors all = {.n = n, .each = tokens};
    if (even)
        all = (ta_vectors){.n = n, .first = tokens[0], .step = -HEADS * head_bytes};
    return (ta_block){.rows = rows,
                      .heads = heads,
                      .row_stride = dim,
                      .head_stride = (int64_t)rows * dim,
                      .tokens = all,
                      .ahead = all,
                      .token_head_bytes = head_bytes,
                      .dim = dim,
                      .scores = scores,
                      .sums = sums,
                      .factor = 0.25f,
                      .shared = shared};
}

static void describe(char *text, size_t size, ta_dtype dtype, int rows, int n, int dim, int at)
{
    snprintf(text, size, "%s %s%s, %s%s, heads %d rows %d n %d dim %d, at %d", best->name,
             ta_dtype_name(dtype), packed ? " packed" : "", even ? "even" : "listed",
             shared ? ", shared" : "", heads, rows, n, dim, at);
}

/* The block for one row that asks for lines `row_ahead` tokens ahead; `list` has n of them. */
static ta_block make_row_ahead(ta_block block, int row_ahead, const void **list, float *scores)
{
    block.row_ahead = row_ahead;
    block.row_known = block.tokens.n;
    block.ahead = (ta_vectors){0};
    block.scores = scores;
    if (even)
        return block;
    memcpy(list, tokens, (size_t)block.tokens.n * sizeof *list);
    block.row_each = block.tokens.each = list;
    return block;
}

/* What is asked of memory changes no bit. */
static void check_same(const float *got, const float *truth, int n, const char *text)
{
    for (int i = 0; i < n; ++i)
        TEST_ASSERT_TRUE_MESSAGE(
            isnan(truth[i]) ? isnan(got[i]) : !memcmp(&got[i], &truth[i], sizeof *got), text);
}

static void check_score_ahead(const ta_block *block, ta_dtype dtype, const float *arranged)
{
    static float scores[HEADS * TA_BLOCK_SCORES];
    char text[128];
    int n = block->tokens.n;
    const void **list = malloc((size_t)n * sizeof *list); /* sanitizers see what is read past it */
    TEST_ASSERT_NOT_NULL(list);
    for (int row_ahead = 1; row_ahead < 200; row_ahead += 99) {
        ta_block ahead = make_row_ahead(*block, row_ahead, list, scores);
        (packed ? best->score_packed[dtype] : best->score[dtype])(&ahead, arranged);
        describe(text, sizeof text, dtype, 1, n, block->dim, row_ahead);
        for (int h = 0; h < heads; ++h)
            check_same(scores + h * TA_BLOCK_SCORES, block->scores + h * TA_BLOCK_SCORES, n, text);
    }
    free(list);
}

static void check_weigh_ahead(const ta_block *block, ta_dtype dtype, const float *before,
                              const float *rescale, const float *truth)
{
    static float o[TA_BLOCK_VALUES];
    char text[128];
    int n = block->tokens.n;
    const void **list = malloc((size_t)n * sizeof *list);
    TEST_ASSERT_NOT_NULL(list);
    for (int row_ahead = 1; row_ahead < 200; row_ahead += 99) {
        ta_block ahead = make_row_ahead(*block, row_ahead, list, block->scores);
        memcpy(o, before, sizeof o);
        best->weigh[dtype](&ahead, o, rescale);
        describe(text, sizeof text, dtype, 1, n, block->dim, row_ahead);
        check_same(o, truth, heads * block->dim, text);
    }
    free(list);
}

static void check_score(ta_dtype dtype, int rows, int n, int dim)
{
    static float arranged[HEADS * TA_ROWS_MOST * MOST_DIM], scores[HEADS * TA_BLOCK_SCORES];
    char text[128];
    memcpy(arranged, q, sizeof q);
    for (int row = 0; row < heads * rows; ++row)
        (packed ? best->pack[dtype] : best->arrange[dtype])(arranged + row * dim, dim);
    ta_block block = make_block(dtype, rows, n, dim, scores);
    (packed ? best->score_packed[dtype] : best->score[dtype])(&block, arranged);
    for (int i = 0; i < heads * n * rows; ++i) {
        int head = i / (n * rows), token = i / rows % n, row = i % rows;
        double sum = 0, magnitude = 0;
        for (int d = 0; d < dim; ++d) {
            double product = (double)q[(head * rows + row) * dim + d] *
                             ta_load(dtype, tokens[token], (int64_t)head * dim + d) *
                             (packed ? block.factor : 1.0f);
            sum += product;
            magnitude += fabs(product);
        }
        describe(text, sizeof text, dtype, rows, n, dim, i);
        double allowed = (dim / 8 + 4) * FLT_EPSILON * magnitude + dim * 8 * FLT_MIN;
        check_number(scores[head * TA_BLOCK_SCORES + token * rows + row], sum, allowed, text);
    }
    if (rows == 1)
        check_score_ahead(&block, dtype, arranged);
    if (timing) {
        describe(text, sizeof text, dtype, rows, n, dim, 0);
        TIME_KERNEL("score", text, (double)heads * n * rows * dim,
                    (packed ? best->score_packed[dtype] : best->score[dtype])(&block, arranged));
    }
}

static void check_weigh(ta_dtype dtype, int rows, int n, int dim)
{
    static float weights[HEADS * TA_BLOCK_SCORES], o[TA_BLOCK_VALUES], before[TA_BLOCK_VALUES];
    float rescale[HEADS * TA_ROWS_MOST];
    char text[128];
    if (heads * rows * dim > TA_BLOCK_VALUES)
        return;
    for (int i = 0; i < HEADS * TA_BLOCK_SCORES; ++i)
        weights[i] = (float)random_unit(&source);
    for (int i = 0; i < HEADS * TA_ROWS_MOST; ++i)
        rescale[i] = (float)random_unit(&source);
    for (int i = 0; i < heads * rows * dim; ++i)
        o[i] = before[i] = (float)random_normal(&source);
    ta_block block = make_block(dtype, rows, n, dim, weights);
    best->weigh[dtype](&block, o, rescale);
    for (int i = 0; i < heads * rows * dim; ++i) {
        int head = i / (rows * dim), row = i / dim % rows, d = i % dim;
        double sum = (double)before[i] * rescale[head * TA_ROWS_MOST + row], magnitude = fabs(sum);
        for (int t = 0; t < n; ++t) {
            double product = (double)weights[head * TA_BLOCK_SCORES + t * rows + row] *
                             ta_load(dtype, tokens[t], (int64_t)head * dim + d);
            sum += product;
            magnitude += fabs(product);
        }
        describe(text, sizeof text, dtype, rows, n, dim, i);
        check_number(o[i], sum, (n + 2) * FLT_EPSILON * magnitude + n * FLT_MIN, text);
    }
    if (rows == 1)
        check_weigh_ahead(&block, dtype, before, rescale, o);
    if (timing) {
        describe(text, sizeof text, dtype, rows, n, dim, 0);
        TIME_KERNEL("weigh", text, (double)heads * n * rows * dim,
                    best->weigh[dtype](&block, o, rescale));
    }
}

/* The shapes of decode steps, with one KV head and with several that are neighbours. */
static void for_timed_shapes(void (*check)(ta_dtype dtype, int rows, int n, int dim))
{
    static const int dims[] = {64, 128, 512, 576};
    even = 1;
    for (int i = 4; i < 4 * types_end(); ++i) {
        ta_dtype dtype = (ta_dtype)(i / 4);
        if (packed && !best->pack[dtype])
            continue;
        fill(dtype, dims[i % 4]);
        for (heads = 1; heads <= HEADS; heads += HEADS - 1) {
            check(dtype, 1, TA_TOKEN_BLOCK, dims[i % 4]);
            if (dtype >= WIDE_END)
                continue;
            check(dtype, TA_ROW_BLOCK, TA_TOKENS_MOST, dims[i % 4]);
            if (best->rows_most == TA_ROWS_MOST)
                check(dtype, TA_ROWS_MOST, TA_TOKEN_BLOCK, dims[i % 4]);
        }
    }
}

static void for_shapes(void (*check)(ta_dtype dtype, int rows, int n, int dim))
{
    if (timing) {
        for_timed_shapes(check);
        return;
    }
    static const int dims[] = {8, 16, 24, 40, 64, 80, 128, 136, 576},
                     counts[] = {1, 2, 5, 63, 64, 128};
    for (int i = 9; i < 9 * types_end(); ++i) {
        ta_dtype dtype = (ta_dtype)(i / 9);
        if (packed && !best->pack[dtype])
            continue;
        for (even = 0; even < 2; ++even) {
            fill(dtype, dims[i % 9]);
            for (int j = 0; j < 12; ++j) {
                heads = j % 2 ? HEADS : 1;
                check(dtype, 1, counts[j / 2], dims[i % 9]);
                if (dtype >= WIDE_END)
                    continue;
                check(dtype, TA_ROW_BLOCK, counts[j / 2], dims[i % 9]);
                if (best->rows_most == TA_ROWS_MOST && counts[j / 2] <= TA_TOKEN_BLOCK)
                    check(dtype, TA_ROWS_MOST, counts[j / 2], dims[i % 9]);
            }
        }
    }
}

static void test_scores(void)
{
    for_shapes(check_score);
}

static void test_scores_of_packed_queries(void)
{
    packed = 1;
    for_shapes(check_score);
    packed = 0;
}

static void test_weighted_sums(void)
{
    for (shared = 0; shared < 2; ++shared)
        for_shapes(check_weigh);
    shared = 0;
}

static void test_wild_numbers(void)
{
    wild = 1;
    for_shapes(check_score);
    for_shapes(check_weigh);
    for (packed = 1; packed && best->pack[TA_BF16]; packed = 0)
        for_shapes(check_score);
    packed = wild = 0;
}

static void time_softmax(int rows, int n)
{
    static float given[TA_BLOCK_SCORES], scores[TA_BLOCK_SCORES];
    float m[TA_ROWS_MOST] = {0}, l[TA_ROWS_MOST] = {0}, rescale[TA_ROWS_MOST];
    ta_token_set hidden[TA_ROWS_MOST];
    char text[128];
    for (int i = 0; i < n * rows; ++i)
        given[i] = (float)(random_normal(&source) * 20);
    snprintf(text, sizeof text, "%s rows %d n %d", best->name, rows, n);
    TIME_KERNEL("softmax", text, (double)n * rows,
                (memcpy(scores, given, sizeof scores),
                 best->softmax(scores, n, rows, m, l, rescale, hidden)));
}

/* One row and many: the maximum, the sum and the weights of a block, and a NaN that stays in its
 * row. */
static void check_softmax(int rows, int n, int nan_row)
{
    float scores[TA_BLOCK_SCORES], given[TA_BLOCK_SCORES], rescale[TA_ROWS_MOST];
    float m[TA_ROWS_MOST], l[TA_ROWS_MOST];
    ta_token_set hidden[TA_ROWS_MOST];
    for (int i = 0; i < n * rows; ++i)
        given[i] = scores[i] = (float)(random_normal(&source) * 20);
    if (nan_row >= 0)
        given[nan_row] = scores[nan_row] = NAN; /* its first token */
    for (int r = 0; r < rows; ++r) {
        m[r] = -3.0f;
        l[r] = 2.0f;
    }
    TEST_ASSERT_EQUAL_INT(0, best->softmax(scores, n, rows, m, l, rescale, hidden));
    for (int r = 0; r < rows; ++r) {
        double largest = -3, sum, sum_allowed = 0;
        if (r == nan_row) {
            TEST_ASSERT_TRUE(isnan(l[r]));
            continue;
        }
        for (int t = 0; t < n; ++t)
            largest = fmax(largest, given[t * rows + r]);
        TEST_ASSERT_TRUE(m[r] == (float)largest);
        sum = 2 * exp2(-3 - largest);
        for (int t = 0; t < n; ++t) {
            /* The difference of two floats is rounded before exp2 takes it. */
            double x = given[t * rows + r] - largest, weight = exp2(x);
            double allowed = (4 - x) * FLT_EPSILON * weight;
            TEST_ASSERT_TRUE(fabs(scores[t * rows + r] - weight) <= allowed + 1e-37);
            sum += weight;
            sum_allowed += allowed;
        }
        TEST_ASSERT_TRUE(fabs(l[r] - sum) <= sum_allowed + 16 * FLT_EPSILON * sum);
    }
}

static void test_softmax(void)
{
    for (int n = 1; n <= TA_TOKENS_MOST; ++n) {
        check_softmax(1, n, -1);
        check_softmax(TA_ROW_BLOCK, n, -1);
        check_softmax(TA_ROW_BLOCK, n, n % TA_ROW_BLOCK);
        if (best->rows_most == TA_ROWS_MOST && n <= TA_TOKEN_BLOCK) {
            check_softmax(TA_ROWS_MOST, n, -1);
            check_softmax(TA_ROWS_MOST, n, n % TA_ROWS_MOST);
        }
    }
}

/* Tokens with a score of -inf have no weight, and are told. */
static void test_softmax_tells_what_is_hidden(void)
{
    for (int n = 1; n <= TA_TOKENS_MOST; ++n) {
        int most = n <= TA_TOKEN_BLOCK && n % 3 ? best->rows_most : TA_ROW_BLOCK;
        int rows = n % 2 ? most : 1;
        float scores[TA_BLOCK_SCORES], rescale[TA_ROWS_MOST], m[TA_ROWS_MOST], l[TA_ROWS_MOST];
        ta_token_set hidden[TA_ROWS_MOST];
        for (int i = 0; i < n * rows; ++i)
            scores[i] = i / rows % 5 == i % rows ? -INFINITY : (float)random_normal(&source);
        for (int r = 0; r < rows; ++r) {
            m[r] = 0.5f;
            l[r] = 1.0f;
        }
        TEST_ASSERT_EQUAL_INT(1, best->softmax(scores, n, rows, m, l, rescale, hidden));
        for (int i = 0; i < n * rows; ++i) {
            int t = i / rows, is_hidden = t % 5 == i % rows;
            TEST_ASSERT_EQUAL_INT(is_hidden, hidden[i % rows].words[t / 64] >> t % 64 & 1);
            TEST_ASSERT_EQUAL_INT(is_hidden, scores[i] == 0.0f);
        }
    }
}

static void test_merge_is_the_scalar_one_and_commutes(void)
{
    float a[MOST_DIM + 2], b[MOST_DIM + 2], ab[MOST_DIM + 2], ba[MOST_DIM + 2];
    for (int i = 0; i < 300; ++i) {
        int dim = 8 + i % 72 * 8;
        size_t bytes = (size_t)ta_record_floats(dim) * sizeof(float);
        for (int d = 0; d < dim + 2; ++d) {
            a[d] = (float)random_normal(&source);
            b[d] = (float)random_normal(&source);
        }
        if (i % 5 == 0)
            b[dim] = a[dim];
        memcpy(ab, a, bytes);
        best->merge(ab, b, dim);
        memcpy(ba, b, bytes);
        best->merge(ba, a, dim);
        TEST_ASSERT_EQUAL_MEMORY(ab, ba, bytes);
        memcpy(ba, a, bytes);
        ta_kernels_scalar.merge(ba, b, dim);
        TEST_ASSERT_EQUAL_MEMORY(ab, ba, bytes);
    }
}

/* Some of the m are equal, -inf or NaN. */
static void test_a_chain_of_merges_is_one_merge_after_the_other(void)
{
    enum { STRIDE = MOST_DIM + 6 };
    static float all[(TA_CHAIN_MOST + 1) * STRIDE];
    float merged[MOST_DIM + 2], out[MOST_DIM + 1], factor = 0.37f;
    for (int i = 0; i < 300; ++i) {
        int dim = 8 + i % 72 * 8, count = i % (TA_CHAIN_MOST + 1);
        ta_merge_chain chain = {
            .first = all, .others = all + STRIDE, .stride = STRIDE, .count = count};
        for (int d = 0; d < (count + 1) * STRIDE; ++d)
            all[d] = (float)random_normal(&source);
        if (i % 3 == 1 && count > 0)
            all[STRIDE + dim] = i % 2 ? all[dim] : -INFINITY;
        if (i % 7 == 6)
            all[count / 2 * STRIDE + dim] = NAN;
        memcpy(merged, all, (size_t)ta_record_floats(dim) * sizeof(float));
        for (int k = 0; k < count; ++k) {
            const float *other = chain.others + k * STRIDE;
            chain.scales[k] = ta_merge_scale(merged[dim], other[dim]);
            best->merge(merged, other, dim);
        }
        out[dim] = 42.0f;
        best->merge_chain(&chain, dim, factor, out);
        TEST_ASSERT_EQUAL_FLOAT(42.0f, out[dim]);
        for (int d = 0; d < dim; ++d) {
            float expected = merged[d] * factor;
            TEST_ASSERT_TRUE(expected != expected ? out[d] != out[d]
                                                  : memcmp(&expected, &out[d], 4) == 0);
        }
    }
}

static void test_conversions_are_the_scalar_ones(void)
{
    for (int dtype = TA_DTYPE_NONE + 1; dtype < TA_DTYPE_END; ++dtype) {
        float from[64], back[64], truth[64];
        uint32_t to[64], expected[64];
        for (int i = 0; i < 64; ++i)
            from[i] = (float)(random_normal(&source) * exp2(i - 32));
        memset(to, 0, sizeof to);
        memset(expected, 0, sizeof expected);
        best->store[dtype](from, 64, 0.75f, to);
        ta_kernels_scalar.store[dtype](from, 64, 0.75f, expected);
        TEST_ASSERT_EQUAL_MEMORY(expected, to, sizeof to);
        best->load[dtype](to, 64, 1.25f, back);
        ta_kernels_scalar.load[dtype](to, 64, 1.25f, truth);
        TEST_ASSERT_EQUAL_MEMORY(truth, back, sizeof back);
    }
}

/* All codes at all places of a vector, and nothing beyond the end. */
static void test_widening_is_the_scalar_one(void)
{
    for (int dtype = WIDE_END; dtype < TA_DTYPE_END; ++dtype)
        for (int n = 8; n <= MOST_DIM; n += 8) {
            uint8_t from[MOST_DIM];
            uint16_t to[MOST_DIM + 8];
            char text[128];
            for (int i = 0; i < n; ++i)
                from[i] = (uint8_t)(i + 37 * n);
            for (int i = 0; i < MOST_DIM + 8; ++i)
                to[i] = 0xabcd;
            best->widen[dtype](from, n, to);
            for (int i = 0; i < MOST_DIM + 8; ++i) {
                float truth = i < n ? ta_load((ta_dtype)dtype, from, i) : 0;
                snprintf(text, sizeof text, "%s %s n %d at %d", best->name,
                         ta_dtype_name((ta_dtype)dtype), n, i);
                int right = i >= n         ? to[i] == 0xabcd
                            : isnan(truth) ? isnan(ta_bf16_to_f32(to[i]))
                                           : to[i] == ta_float_bits(truth) >> 16;
                TEST_ASSERT_TRUE_MESSAGE(right, text);
            }
        }
}

static void time_widening(void)
{
    static uint8_t from[TA_TOKEN_BLOCK * 128];
    static uint16_t to[TA_TOKEN_BLOCK * 128];
    char text[128];
    for (int dtype = WIDE_END; dtype < TA_DTYPE_END; ++dtype) {
        snprintf(text, sizeof text, "%s %s n %d", best->name, ta_dtype_name((ta_dtype)dtype),
                 (int)sizeof from);
        TIME_KERNEL("widen", text, (double)sizeof from,
                    best->widen[dtype](from, (int32_t)sizeof from, to));
    }
}

/* Every level in the tree has every type; one that lacks a slot says so, for that role alone. */
static void test_an_empty_slot_is_a_type_that_is_missing(void)
{
    static const ta_dtype_role roles[] = {TA_AS_QUERY, TA_AS_KV, TA_AS_OUT, TA_AS_ATTENTION};
    for (int dtype = TA_DTYPE_NONE + 1; dtype < TA_DTYPE_END; ++dtype) {
        for (int slot = 0; slot < 7; ++slot) {
            ta_host_kernels less = *best;
            int narrow = dtype >= WIDE_END, as = narrow ? TA_BF16 : dtype;
            if (slot == 1)
                less.load[dtype] = NULL;
            else if (slot == 2)
                less.store[dtype] = NULL;
            else if (slot == 3)
                less.arrange[as] = NULL;
            else if (slot == 4)
                less.score[as] = NULL;
            else if (slot == 5)
                less.weigh[as] = NULL;
            else if (slot == 6)
                less.widen[dtype] = NULL;
            int missing[] = {slot == 1, slot >= 3 && slot < 6 + narrow, slot == 2,
                             slot == 1 || slot == 2};
            for (int i = 0; i < 4; ++i)
                TEST_ASSERT_EQUAL_INT(!missing[i],
                                      ta_host_kernels_have(&less, (ta_dtype)dtype, roles[i]));
            TEST_ASSERT_EQUAL_INT(slot == 0 || (slot == 6 && !narrow),
                                  ta_host_kernels_have(&less, (ta_dtype)dtype, TA_AS_ANY));
        }
    }
    static const int unknown[] = {-1, TA_DTYPE_NONE, TA_DTYPE_END, 1000};
    for (int i = 0; i < 4; ++i)
        TEST_ASSERT_FALSE(ta_host_kernels_have(best, (ta_dtype)unknown[i], TA_AS_KV));
}

static void time_level(void)
{
    test_scores();
    if (best->pack[TA_BF16])
        test_scores_of_packed_queries();
    test_weighted_sums();
    time_widening();
    time_softmax(1, TA_TOKEN_BLOCK);
    time_softmax(TA_ROW_BLOCK, TA_TOKENS_MOST);
    if (best->rows_most == TA_ROWS_MOST)
        time_softmax(TA_ROWS_MOST, TA_TOKEN_BLOCK);
}

static void run_level(const char *name)
{
    best = ta_host_kernels_find(name);
    printf("level %s\n", best->name);
    if (timing) {
        RUN_TEST(time_level);
        return;
    }
    RUN_TEST(test_scores);
    if (best->pack[TA_BF16])
        RUN_TEST(test_scores_of_packed_queries);
    RUN_TEST(test_weighted_sums);
    RUN_TEST(test_wild_numbers);
    RUN_TEST(test_softmax);
    RUN_TEST(test_softmax_tells_what_is_hidden);
    RUN_TEST(test_merge_is_the_scalar_one_and_commutes);
    RUN_TEST(test_a_chain_of_merges_is_one_merge_after_the_other);
    RUN_TEST(test_conversions_are_the_scalar_ones);
    RUN_TEST(test_widening_is_the_scalar_one);
    RUN_TEST(test_an_empty_slot_is_a_type_that_is_missing);
}

int main(int argc, char **argv)
{
    UNITY_BEGIN();
    timing = argc > 1 && strcmp(argv[1], "--bench") == 0;
    static const char *const levels[] = {"scalar", "neon", "avx2", "avx512", "avx512bf16"};
    for (int i = 0; i < 5; ++i) {
        int wanted = argc < 3 || strcmp(argv[2], levels[i]) == 0;
        if (wanted && ta_host_kernels_find(levels[i])) /* this CPU has it */
            run_level(levels[i]);
    }
    return UNITY_END() != 0;
}
