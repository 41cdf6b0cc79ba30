/* See direct_case.h. */
#include "direct_case.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "device_array.h"
#include "expect.h"
#include "expect_case.h"
#include "options.h"
#include "plan_config.h"
#include "seed_main.h"

bound_worst direct_worst;

static const direct_kernel *taken;

/* Neighbours of 16 bytes stay neighbours. */
static void align(case_layout *layout)
{
    int unit = taken->types == DIRECT_8_BITS ? 16 : 8;
    layout->pad_head -= layout->pad_head % unit;
    layout->pad_token -= layout->pad_token % unit;
    layout->pad_batch -= layout->pad_batch % unit;
    layout->offset = 0;
}

static void choose_types(uint64_t seed, random_source *r, decode_case *c)
{
    c->plan.kv_dtype = c->plan.query_dtype = seed % 2 ? TA_BF16 : TA_F16;
    c->k_scale = c->v_scale = CASE_SCALES_NONE;
    if (taken->types == DIRECT_ANY) {
        static const ta_dtype all[] = {TA_F32, TA_F32, TA_F16, TA_BF16};
        c->plan.kv_dtype = c->plan.query_dtype = RANDOM_PICK(r, all);
        if (random_one_in(r, 2))
            c->plan.query_dtype = RANDOM_PICK(r, all);
    }
    if (taken->types != DIRECT_8_BITS)
        return;
    c->plan.kv_dtype = (ta_dtype)random_int(r, NUMBER_DTYPE_END, NUMBER_NARROW_END - 1);
    c->plan.query_dtype = TA_BF16;
    c->k_scale = (case_scales)random_int(r, CASE_SCALES_NONE, CASE_SCALES_TOKENS);
    c->v_scale = (case_scales)random_int(r, CASE_SCALES_NONE, CASE_SCALES_TOKENS);
}

void direct_choose_lengths(random_source *r, decode_case *c, int most, int batch)
{
    c->plan.batch = random_int(r, 1, batch);
    for (int b = 0; b < c->plan.batch; ++b)
        c->lengths[b] = random_one_in(r, 5) ? random_int(r, 0, 3) : random_int(r, 0, most);
    if (c->plan.window)
        c->plan.window = random_int(r, 1, most + 3);
}

void direct_choose_dims(random_source *r, decode_case *c)
{
    static const int dims[] = {64, 128, 128, 256};
    c->plan.k_dim = c->plan.v_dim = RANDOM_PICK(r, dims);
    c->v_in_k = false;
}

void direct_choose_rows(random_source *r, decode_case *c)
{
    static const int tokens[] = {1, 1, 1, 1, 2, 3, 4, 8}, longest[] = {5, 40, 40, 200, 700, 3000};
    c->plan.query_tokens = RANDOM_PICK(r, tokens);
    c->plan.kv_heads = random_int(r, 1, 3);
    int most = random_one_in(r, 5) ? 40 : 16; /* rows; above 16 in several groups */
    c->plan.query_heads = c->plan.kv_heads * random_int(r, 1, most / c->plan.query_tokens);
    most = RANDOM_PICK(r, longest);
    direct_choose_lengths(r, c, most, most > 200 ? 2 : 6);
}

/* Some query tokens for each sequence, and one at least. */
static void choose_tokens(random_source *r, decode_case *c)
{
    for (int b = 0; b < c->plan.batch; ++b)
        c->tokens[b] = random_int(r, b == 0, c->plan.query_tokens);
    c->spare_call_tokens = random_one_in(r, 2) ? -1 : 0;
}

static decode_case direct_case(uint64_t seed)
{
    static const int32_t pages[] = {1, 3, 8, 16, 16, 32, 48, 64};
    static const int32_t tiles[] = {16, 24, 40, 64, 100};
    decode_case c = case_random_on(seed, seed % 3 ? 1 : 0);
    random_source source = random_from(seed + taken->salt), *r = &source;
    c.selected = 0;
    c.prefixes = false; /* they were drawn for other lengths, too */
    choose_types(seed, r, &c);
    c.v_offset = 0;
    taken->choose_dims(r, &c);
    c.page_tokens = RANDOM_PICK(r, pages);
    taken->choose_rows(r, &c);
    choose_tokens(r, &c);
    align(&c.k);
    align(&c.v);
    if (random_one_in(r, 2)) /* what most callers have */
        c.plan.softcap = 0.0f, c.alibi = c.call_alibi = false;
    if (random_one_in(r, 8))
        case_reproducible(&c, RANDOM_PICK(r, tiles));
    return c;
}

static void run_seed(uint64_t seed)
{
    decode_case c = direct_case(seed);
    expect_case(&c, &direct_worst);
}

void test_random_cases(void)
{
    run_seeds(run_seed, 1, options.cases ? options.cases : taken->cases);
}

decode_case direct_plain(int dim, int heads, int tokens, int32_t length)
{
    decode_case c = case_plain();
    c.seed = (uint64_t)(1000 * dim + 100 * heads + 10 * tokens + length);
    c.plan.kv_dtype = c.plan.query_dtype = length % 2 ? TA_BF16 : TA_F16;
    c.plan.k_dim = c.plan.v_dim = dim;
    c.plan.query_heads = heads;
    c.plan.query_tokens = tokens;
    c.lengths[0] = length;
    c.spare_tokens = 1000;
    return c;
}

void direct_around_edge(decode_case c, int edge, int off)
{
    if (!options_chosen(c.seed))
        return;
    expect_case(&c, &direct_worst);
    c.plan.window = edge / 2 + off;
    expect_case(&c, &direct_worst);
}

void direct_unequal_lengths(decode_case c, const int32_t lengths[8])
{
    c.plan.batch = 8;
    memcpy(c.lengths, lengths, 8 * sizeof *lengths);
    expect_case(&c, &direct_worst);
    c.paged = true;
    c.page_tokens = 16;
    expect_case(&c, &direct_worst);
}

void direct_not_finite(decode_case c, int variant)
{
    c.seed = (uint64_t)variant;
    c.special = variant % 2 ? CASE_NAN_VALUE : CASE_INFINITE_VALUE;
    c.plan.window = variant % 4 ? 0 : 9;
    c.alibi = variant % 5 == 0;
    expect_case(&c, &direct_worst);
}

void direct_any_query(decode_case c)
{
    static const case_layout layouts[] = {
        {.offset = 1},
        {.offset = 2},
        {.offset = 4, .pad_head = 8, .strides_given = true},
        {.pad_head = 1, .pad_token = 2, .strides_given = true},
    };
    case_kept first = keep_case(&c, &direct_worst);
    for (int i = 0; i < 4; ++i) {
        c.q = layouts[i];
        expect_bits(&first, &c, &direct_worst, "with a dense query");
    }
    case_kept_free(&first);
}

void direct_same_bits(decode_case c)
{
    static const int32_t pages[] = {0, 16, 64};
    if (!options_chosen(c.seed))
        return;
    case_reproducible(&c, 128); /* each wave has two tiles of 16 tokens, or four */
    c.plan.map.kind = TA_SHARD_BLOCK_CYCLIC;
    c.plan.map.block = 128;
    c.want_lse = true;
    case_kept first = keep_case(&c, &direct_worst);
    for (int i = 0; i < 9; ++i) {
        c.ranks = 1 + i / 3;
        c.paged = pages[i % 3] > 0;
        c.page_tokens = c.paged ? pages[i % 3] : 0;
        if (i > 0)
            expect_bits(&first, &c, &direct_worst, "on one rank, in one block");
    }
    case_kept_free(&first);
}

/* Two sequences of zeros in pages of 16 tokens, the first with an entry of its table that is no
 * page. */
static void run_without_page(ta_dtype dtype, int k_dim, int v_dim, int32_t length, int entry,
                             int32_t page)
{
    enum { PAGES = 8, PAGE = 16 }; /* too few tokens to be cut: a wave has two tiles */
    device_array q, kv, numbers, out;
    ta_device *device = NULL;
    ta_plan *plan = NULL;
    ta_plan_config config = plan_config(dtype, 2, 1, k_dim, PAGES * PAGE);
    config.query_dtype = TA_BF16;
    config.v_dim = v_dim;
    config.out_dtype = TA_F32;
    EXPECT_OK(ta_device_open(options.device, NULL, &device));
    EXPECT_OK(ta_plan_create(NULL, device, &config, &plan));
    EXPECT_OK(device_array_make(device, 2 * (size_t)k_dim, 2, &q));
    EXPECT_OK(device_array_make(device, 2 * PAGES * PAGE * (size_t)k_dim, 4, &kv));
    EXPECT_OK(device_array_make(device, 2 + 2 * PAGES, sizeof(int32_t), &numbers));
    EXPECT_OK(device_array_make(device, 2 * (size_t)v_dim, sizeof(float), &out));
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
    cache.k = cache.v = (ta_tensor){kv.device, (int64_t)PAGE * k_dim, k_dim, k_dim};
    cache.lengths = numbers.device;
    cache.page_table = cache.lengths + 2;
    cache.page_table_stride = PAGES;
    cache.page_tokens = PAGE;
    cache.page_count = 2 * PAGES;
    EXPECT_OK(ta_decode(plan, &query, &cache, &result, NULL, NULL, NULL));
    EXPECT_OK(device_array_from(&out, NULL));
    for (int i = 0; i < 2 * v_dim; ++i) {
        float x = ((const float *)out.host)[i];
        TEST_ASSERT_TRUE_MESSAGE(i < v_dim ? isnan(x) : x == 0.0f, i < v_dim ? "first" : "second");
    }
    ta_plan_destroy(plan);
    device_array_free(&q);
    device_array_free(&kv);
    device_array_free(&numbers);
    device_array_free(&out);
    ta_device_close(device);
}

void direct_pages_that_are_none(ta_dtype dtype, int k_dim, int v_dim)
{
    static const int32_t wrong[] = {-1, 16, INT32_MAX};
    for (int i = 0; i < 3; ++i) {
        run_without_page(dtype, k_dim, v_dim, 128, 0, wrong[i]);
        run_without_page(dtype, k_dim, v_dim, 128, 5, wrong[i]);
        run_without_page(dtype, k_dim, v_dim, 121, 7, wrong[i]);
    }
}

int direct_main(int argc, char **argv, const direct_kernel *kernel, void (*all)(void))
{
    taken = kernel;
    if (!getenv("TA_TEST_DEVICE"))
        options.device = "simt";
    int code = seed_main(argc, argv, run_seed, all);
    bound_worst_print(&direct_worst);
    return code;
}
