/* The direct kernels (hip/attend/direct_kernel.h) on the executor: random cases that they are for,
 * with every head dimension, row count, page size and option, compared with the oracle; that they
 * are what runs; lengths around tiles and shares; and pages that are none. `--seed N` runs that
 * case alone. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lib/case.h"
#include "lib/device_array.h"
#include "lib/expect.h"
#include "lib/options.h"
#include "lib/plan_config.h"
#include "lib/seed_main.h"
#include "simt/simt_control.h"
#include "unity.h"

static char failure[2048];
static bound_worst worst;

void setUp(void)
{
}

void tearDown(void)
{
}

static void run(const decode_case *c)
{
    if (!case_run(c, &worst, failure, sizeof failure))
        TEST_FAIL_MESSAGE(failure);
}

/* Neighbours of 16 bytes stay neighbours. */
static void align(case_layout *layout)
{
    layout->pad_head -= layout->pad_head % 8;
    layout->pad_token -= layout->pad_token % 8;
    layout->pad_batch -= layout->pad_batch % 8;
    layout->offset = 0;
}

static void choose_rows(random_source *r, decode_case *c)
{
    static const int tokens[] = {1, 1, 1, 1, 2, 3, 4, 8};
    c->plan.query_tokens = RANDOM_PICK(r, tokens);
    c->plan.kv_heads = random_int(r, 1, 3);
    int most = random_one_in(r, 5) ? 40 : 16; /* rows; above 16 in several groups */
    c->plan.query_heads = c->plan.kv_heads * random_int(r, 1, most / c->plan.query_tokens);
}

static void choose_lengths(random_source *r, decode_case *c)
{
    static const int longest[] = {5, 40, 40, 200, 700, 3000};
    int most = RANDOM_PICK(r, longest);
    c->plan.batch = random_int(r, 1, most > 200 ? 2 : 6);
    for (int b = 0; b < c->plan.batch; ++b)
        c->lengths[b] = random_one_in(r, 5) ? random_int(r, 0, 3) : random_int(r, 0, most);
    if (c->plan.window)
        c->plan.window = random_int(r, 1, most + 3);
}

/* Some query tokens for each sequence, and one at least. */
static void choose_tokens(random_source *r, decode_case *c)
{
    for (int b = 0; b < c->plan.batch; ++b)
        c->tokens[b] = random_int(r, b == 0, c->plan.query_tokens);
    c->spare_call_tokens = random_one_in(r, 2) ? -1 : 0;
}

/* Everything that case_random() draws, but for what the direct kernels do not take. */
static decode_case direct_case(uint64_t seed)
{
    static const int dims[] = {64, 128, 128, 256};
    static const int32_t pages[] = {1, 3, 8, 16, 16, 32, 48, 64};
    static const int32_t tiles[] = {16, 24, 40, 64, 100};
    decode_case c = case_random_on(seed, seed % 3 ? 1 : 0);
    random_source source = random_from(seed + 7777), *r = &source;
    c.plan.kv_dtype = c.plan.query_dtype = seed % 2 ? TA_BF16 : TA_F16;
    c.plan.k_dim = c.plan.v_dim = RANDOM_PICK(r, dims);
    c.v_in_k = false;
    c.v_offset = 0;
    c.page_tokens = RANDOM_PICK(r, pages);
    choose_rows(r, &c);
    choose_lengths(r, &c);
    choose_tokens(r, &c);
    align(&c.q);
    align(&c.k);
    align(&c.v);
    if (random_one_in(r, 2)) /* what most callers have */
        c.plan.softcap = 0.0f, c.alibi = c.call_alibi = false;
    if (random_one_in(r, 8))
        case_reproducible(&c, RANDOM_PICK(r, tiles));
    return c;
}

static void test_one_seed(void)
{
    decode_case c = direct_case(options.seed);
    run(&c);
}

static void test_random_cases(void)
{
    int count = options.cases ? options.cases : 250;
    for (int seed = 1; seed <= count; ++seed) {
        decode_case c = direct_case((uint64_t)seed);
        run(&c);
    }
}

static decode_case case_of(int dim, int heads, int tokens, int32_t length)
{
    decode_case c = case_plain();
    c.seed = (uint64_t)(1000 * dim + 100 * heads + 10 * tokens + length);
    c.plan.kv_dtype = c.plan.query_dtype = length % 2 ? TA_BF16 : TA_F16;
    c.plan.k_dim = c.plan.v_dim = dim;
    c.plan.query_heads = heads;
    c.plan.query_tokens = tokens;
    c.lengths[0] = length;
    c.spare_tokens = 1000; /* so that sequences are cut for a whole device */
    return c;
}

/* A launch that is refused says which kernel it was. */
static void test_they_run(void)
{
    static const int dims[] = {64, 96, 128, 256};
    for (int d = 0; d < 4; ++d)
        for (int heads = 1; heads <= 17; heads += 8) {
            decode_case c = case_of(dims[d], heads, 1, 200);
            simt_fail_launch(1);
            TEST_ASSERT_FALSE(case_run(&c, &worst, failure, sizeof failure));
            simt_fail_launch(0);
            bool direct = strstr(failure, "launching kernel attend_direct") != NULL;
            TEST_ASSERT_TRUE_MESSAGE(direct == (dims[d] != 96), failure);
        }
}

/* Just below, at and above tiles of 16, units of 64, and shares of several pieces. */
static void test_lengths_around_tiles_and_shares(void)
{
    static const int edges[] = {16, 32, 64, 128, 192, 1024, 2048, 4096};
    for (int i = 0; i < 8; ++i)
        for (int off = -1; off <= 1; ++off) {
            decode_case c = case_of(64, 1 + i * 2, 1 + i % 2, edges[i] + off);
            if (!options_chosen(c.seed))
                continue;
            run(&c);
            c.plan.window = edges[i] / 2 + off;
            run(&c);
        }
}

/* One long sequence among short ones and empty ones: most blocks have a part of it. */
static void test_unequal_lengths(void)
{
    static const int32_t lengths[] = {3, 5000, 0, 17, 64, 0, 130, 1};
    for (int heads = 1; heads <= 3; ++heads) {
        decode_case c = case_of(64, 2 * heads, 1, 0);
        c.plan.kv_heads = heads;
        c.plan.batch = 8;
        memcpy(c.lengths, lengths, sizeof lengths);
        run(&c);
        c.paged = true;
        c.page_tokens = 16;
        run(&c);
    }
}

/* A value that is not finite, in tiles of which the queries see parts. */
static void test_values_that_are_not_finite(void)
{
    for (int variant = 0; variant < 24; ++variant) {
        decode_case c = case_of(variant % 3 ? 64 : 128, 2, 4, 30 + variant);
        c.seed = (uint64_t)variant;
        c.special = variant % 2 ? CASE_NAN_VALUE : CASE_INFINITE_VALUE;
        c.plan.window = variant % 4 ? 0 : 9;
        c.alibi = variant % 5 == 0;
        run(&c);
    }
}

/* Two sequences of zeros in pages of 16 tokens, the first with an entry of its table that is no
 * page: its result is NaN, that of the other is not touched. */
static void run_without_page(int32_t length, int entry, int32_t page)
{
    enum { DIM = 64, PAGES = 8, PAGE = 16 }; /* too few tokens to be cut: a wave has two tiles */
    device_array q, kv, numbers, out;
    ta_device *device = NULL;
    ta_plan *plan = NULL;
    ta_plan_config config = plan_config(TA_BF16, 2, 1, DIM, PAGES * PAGE);
    config.out_dtype = TA_F32;
    EXPECT_OK(ta_device_open(options.device, NULL, &device));
    EXPECT_OK(ta_plan_create(NULL, device, &config, &plan));
    EXPECT_OK(device_array_make(device, 2 * DIM, 2, &q));
    EXPECT_OK(device_array_make(device, 2 * PAGES * PAGE * DIM, 2, &kv));
    EXPECT_OK(device_array_make(device, 2 + 2 * PAGES, sizeof(int32_t), &numbers));
    EXPECT_OK(device_array_make(device, 2 * DIM, sizeof(float), &out));
    int32_t *lengths = numbers.host, *table = lengths + 2;
    lengths[0] = lengths[1] = length;
    for (int32_t i = 0; i < 2 * PAGES; ++i)
        table[i] = i;
    table[entry] = page;
    EXPECT_OK(device_array_to(&q, NULL));
    EXPECT_OK(device_array_to(&kv, NULL));
    EXPECT_OK(device_array_to(&numbers, NULL));
    ta_kv cache = TA_KV_INIT;
    ta_tensor query = {.data = q.device}, result = {.data = out.device};
    cache.k.data = cache.v.data = kv.device;
    cache.lengths = numbers.device;
    cache.page_table = cache.lengths + 2;
    cache.page_table_stride = PAGES;
    cache.page_tokens = PAGE;
    cache.page_count = 2 * PAGES;
    EXPECT_OK(ta_decode(plan, &query, &cache, &result, NULL, NULL, NULL));
    EXPECT_OK(device_array_from(&out, NULL));
    for (int i = 0; i < 2 * DIM; ++i) {
        float x = ((const float *)out.host)[i];
        TEST_ASSERT_TRUE_MESSAGE(i < DIM ? isnan(x) : x == 0.0f, i < DIM ? "first" : "second");
    }
    ta_plan_destroy(plan);
    device_array_free(&q);
    device_array_free(&kv);
    device_array_free(&numbers);
    device_array_free(&out);
    ta_device_close(device);
}

/* In tiles that are seen whole, the first and later ones, and in one at the end. */
static void test_pages_that_are_none(void)
{
    static const int32_t wrong[] = {-1, 16, INT32_MAX};
    for (int i = 0; i < 3; ++i) {
        run_without_page(128, 0, wrong[i]);
        run_without_page(128, 5, wrong[i]);
        run_without_page(121, 7, wrong[i]);
    }
}

static void test_all(void)
{
    RUN_TEST(test_random_cases);
    RUN_TEST(test_they_run);
    RUN_TEST(test_lengths_around_tiles_and_shares);
    RUN_TEST(test_unequal_lengths);
    RUN_TEST(test_values_that_are_not_finite);
    RUN_TEST(test_pages_that_are_none);
    bound_worst_print(&worst);
}

int main(int argc, char **argv)
{
    if (!getenv("TA_TEST_DEVICE"))
        options.device = "simt";
    return seed_main(argc, argv, test_one_seed, test_all);
}
