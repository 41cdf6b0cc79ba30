/* ta_append() (src/decode/append.c): random caches that grow, compared bit by bit with ones that
 * the test builds, from every source; arguments that are wrong; ranks that are not in the same
 * step. A failing case prints its seed; `test_append --seed N` runs that one again. */
#include <math.h>
#include <string.h>

#include "group/group.h"
#include "lib/append_case.h"
#include "lib/case.h"
#include "lib/expect.h"
#include "lib/number.h"
#include "lib/options.h"
#include "lib/plan_config.h"
#include "lib/seed_main.h"
#include "lib/spoiled_call.h"

static char failure[2048];

void setUp(void)
{
}

void tearDown(void)
{
}

static void run_one(const append_case *c)
{
    if (!append_case_run(c, failure, sizeof failure))
        TEST_FAIL_MESSAGE(failure);
}

static void run_seed(uint64_t seed)
{
    append_case c = append_case_random(seed, 0);
    run_one(&c);
}

static void test_random_cases(void)
{
    run_seeds(run_seed, 0, options.cases ? 4 * options.cases : 800);
}

/* More ranks than KV heads, so that some ranks have none to give. */
static void test_few_heads(void)
{
    for (int heads = 1; heads <= 3; ++heads)
        for (int ragged = 0; ragged < 2; ++ragged) {
            append_case c = append_case_random(9000 + (uint64_t)heads, 5);
            c.kv_heads = c.query_heads = heads;
            c.source = TA_APPEND_HEADS;
            c.ragged = ragged;
            for (int call = 0; !ragged && call < c.calls; ++call)
                for (int b = 0; b < c.batch[call]; ++b)
                    c.added[call][b] = c.query_tokens;
            run_one(&c);
        }
}

/* A chunk of a prompt that is copied by more than one thread. */
static void test_a_long_chunk(void)
{
    append_case c = append_case_random(3, 2);
    c.plan_batch = c.batch[0] = c.calls = 1;
    c.query_tokens = c.added[0][0] = 200;
    c.first[0] = 0;
    c.kv_heads = c.query_heads = 5;
    c.k_dim = c.v_dim = 128;
    c.kv_dtype = TA_BF16;
    c.dtype = TA_F32;
    c.source = TA_APPEND_ALL;
    c.map = TA_SHARD_BLOCK_CYCLIC;
    c.block = 7;
    c.threads = 2;
    run_one(&c);
}

/* ---- Wrong arguments ---- */

enum { BATCH = 2, TOKENS = 6, HEADS = 3, DIM = 8, CACHE = BATCH * TOKENS * HEADS * DIM };

/* A small call with everything that a test may want to spoil; on the host. */
typedef struct small {
    ta_plan_config config;
    float k[CACHE], v[CACHE], new_k[BATCH * HEADS * DIM], new_v[BATCH * HEADS * DIM];
    int32_t lengths[BATCH], starts[BATCH + 1], pages[BATCH * TOKENS];
    ta_kv kv;
    ta_append_input input;
    ta_call call;
    void *stream;
    bool no_input;
} small;

/* What the calls of a test give. */
static ta_append_source source = TA_APPEND_HEADS;

static void small_init(void *call)
{
    small *s = call;
    memset(s, 0, sizeof *s);
    s->config = plan_config(TA_F32, BATCH, HEADS, DIM, TOKENS);
    s->config.map.kind = TA_SHARD_BLOCK_CYCLIC;
    s->config.map.block = 1;
    s->config.append_scattered = 1;
    s->kv = (ta_kv)TA_KV_INIT;
    s->kv.k.data = s->k;
    s->kv.v.data = s->v;
    s->kv.lengths = s->lengths;
    s->lengths[0] = 4;
    s->lengths[1] = 2;
    s->input = (ta_append_input)TA_APPEND_INPUT_INIT;
    s->input.source = source;
    s->input.k.data = s->new_k;
    s->input.v.data = s->new_v;
    s->call = (ta_call)TA_CALL_INIT;
    for (int i = 0; i < BATCH * HEADS * DIM; ++i)
        s->new_k[i] = s->new_v[i] = (float)i;
    number_poison(TA_F32, s->k, CACHE);
    number_poison(TA_F32, s->v, CACHE);
}

static ta_status small_append(void *call, ta_plan *plan)
{
    small *s = call;
    return ta_append(plan, s->no_input ? NULL : &s->input, &s->kv, &s->call, s->stream);
}

static bool is_untouched(const void *call)
{
    const small *s = call;
    for (int i = 0; i < CACHE; ++i)
        if (!number_is_poison(TA_F32, s->k, i) || !number_is_poison(TA_F32, s->v, i))
            return false;
    return true;
}

/* Of three ranks the last holds none of the new tokens, which are positions 3 and 1. */
static bool is_stored(const void *call, int rank)
{
    return is_untouched(call) == (rank == 2);
}

static const spoiled_call appends = {sizeof(small), small_init, small_append, is_untouched,
                                     is_stored};

static void page(small *s, int32_t entry)
{
    s->kv.page_table = s->pages;
    s->kv.page_table_stride = TOKENS;
    s->kv.page_tokens = 1;
    s->kv.page_count = 5;
    for (int i = 0; i < BATCH * TOKENS; ++i)
        s->pages[i] = entry;
}

SPOIL(k, s->input.k.data = NULL)
SPOIL(v, s->input.v.data = NULL)
SPOIL(k_aligned, s->input.k.data = (char *)s->new_k + 1)
SPOIL(v_stride, s->input.v.head_stride = -8)
SPOIL(cache_size, s->kv.size = 0)
SPOIL(lengths, s->kv.lengths = NULL)
SPOIL(negative, s->lengths[1] = -1)
SPOIL(full, s->lengths[0] = 100)
SPOIL(pages, page(s, 5))
SPOIL(negative_page, page(s, -1))
SPOIL(page_tokens, page(s, 0); s->kv.page_tokens = 0)
SPOIL(extent, s->kv.k_bytes = 8)
SPOIL(call_size, s->call.size = 3)
SPOIL(starts, s->call.tokens = 2)
SPOIL(bad_starts, s->call.tokens = 2; s->call.starts = s->starts)
SPOIL(batch, s->call.batch = 9)
SPOIL(stream, s->stream = s)
SPOIL(no_input, s->no_input = true)
SPOIL(input_size, s->input.size = 8)
SPOIL(source, s->input.source = (ta_append_source)3)
SPOIL(dtype, s->input.dtype = (ta_dtype)77)
SPOIL(two, s->no_input = true; s->call.batch = 9)

static const mistake mistakes[] = {
    {"input.k.data is NULL", "KV heads", spoil_k, NULL},
    {"input.v.data is NULL", "KV heads", spoil_v, NULL},
    {"input.k.data", "aligned", spoil_k_aligned, NULL},
    {"input.v.head_stride", "-8", spoil_v_stride, NULL},
    {"kv.size is 0", "TA_KV_INIT", spoil_cache_size, NULL},
    {"kv.lengths is NULL", "2 lengths", spoil_lengths, NULL},
    {"kv.lengths[1] is -1", "0", spoil_negative, NULL},
    {"kv.lengths[0] is 100", "max_tokens", spoil_full, NULL},
    {"kv.page_table is 5", "4", spoil_pages, NULL},
    {"kv.page_table is -1", "4", spoil_negative_page, NULL},
    {"kv.page_tokens is 0", "1", spoil_page_tokens, NULL},
    {"kv.k_bytes is 8", "reach", spoil_extent, NULL},
    {"call.size is 3", "TA_CALL_INIT", spoil_call_size, NULL},
    {"call.starts is NULL", "call.tokens 2", spoil_starts, NULL},
    {"call.starts[2] is 0", "call.tokens, 2", spoil_bad_starts, NULL},
    {"call.batch is 9", "2", spoil_batch, NULL},
    {"stream", "NULL", spoil_stream, NULL},
    {"input is NULL", "ta_append_input", spoil_no_input, NULL},
    {"input.size is 8", "TA_APPEND_INPUT_INIT", spoil_input_size, NULL},
    {"input.source is 3", "TA_APPEND_LOCAL", spoil_source, NULL},
    {"input.dtype is 77", "no such type", spoil_dtype, NULL},
    {"input is NULL", "ta_append_input", spoil_two, NULL},
};
#define MISTAKES (sizeof mistakes / sizeof *mistakes)

static void test_bad_arguments(void)
{
    for (source = TA_APPEND_ALL; source <= TA_APPEND_LOCAL; ++source)
        spoiled_alone(&appends, mistakes, MISTAKES);
    source = TA_APPEND_HEADS;
}

/* Tokens that are scattered, and a plan that has no room to gather them. */
static void test_bad_plans(void)
{
    ta_device *device;
    ta_plan *plan, *narrow;
    small s;
    small_init(&s);
    EXPECT_OK(ta_device_open("host", NULL, &device));
    EXPECT_OK(ta_plan_create(NULL, device, &s.config, &plan));
    s.config.append_scattered = 0;
    EXPECT_OK(ta_plan_create(NULL, device, &s.config, &narrow));
    EXPECT_ERROR(TA_ERR_INVALID, small_append(&s, narrow), "TA_APPEND_HEADS", "append_scattered");
    EXPECT_ERROR(TA_ERR_INVALID, small_append(&s, NULL), "plan is NULL", NULL);
    TEST_ASSERT_TRUE(is_untouched(&s));
    s.config.append_scattered = 2;
    ta_plan_destroy(plan);
    EXPECT_ERROR(TA_ERR_INVALID, ta_plan_create(NULL, device, &s.config, &plan),
                 "config.append_scattered is 2", "1");
    ta_plan_destroy(narrow);
    ta_device_close(device);
}

/* A cache of 8 bits and its scales: of each token, one page each, and head. */
static struct narrow {
    uint8_t k[CACHE], v[CACHE];
    float scales[2][BATCH * TOKENS * HEADS];
} narrow;

static void give_scales(small *s)
{
    memset(&narrow, 0x11, sizeof narrow);
    memset(narrow.scales, 0, sizeof narrow.scales);
    source = TA_APPEND_ALL;
    small_init(s);
    source = TA_APPEND_HEADS;
    s->config.kv_dtype = TA_E4M3;
    s->config.query_dtype = TA_F32;
    s->input.dtype = TA_F32;
    page(s, 0);
    s->kv.page_count = BATCH * TOKENS;
    for (int i = 0; i < BATCH * TOKENS; ++i)
        s->pages[i] = i;
    s->kv.k.data = narrow.k;
    s->kv.v.data = narrow.v;
    s->kv.k_scale = (ta_scales){narrow.scales[0], HEADS, HEADS, 1};
    s->kv.v_scale = (ta_scales){narrow.scales[1], HEADS, HEADS, 1};
    for (int values = 0; values < 2; ++values)
        for (int head = 0; head < HEADS; ++head) /* of the new tokens alone */
            narrow.scales[values][3 * HEADS + head] =
                narrow.scales[values][(TOKENS + 1) * HEADS + head] = 0.5f;
}

/* New numbers are divided by what is there, so each of it must be a scale. */
static void test_scales_that_are_not_there(void)
{
    static const float bad[] = {0.0f, -1.0f, INFINITY, NAN};
    ta_device *device;
    ta_plan *plan;
    small s;
    give_scales(&s);
    const struct narrow before = narrow;
    EXPECT_OK(ta_device_open("host", NULL, &device));
    EXPECT_OK(ta_plan_create(NULL, device, &s.config, &plan));
    for (int i = 0; i < 2 * BATCH * HEADS * 4; ++i) {
        int head = i / 4 % HEADS, row = i / 4 / HEADS % BATCH, values = i / 4 / HEADS / BATCH;
        float *scale = &narrow.scales[values][(row ? TOKENS + 1 : 3) * HEADS + head];
        char what[100];
        snprintf(what, sizeof what,
                 "kv.%c_scale of row %d, a new token of sequence %d, and KV "
                 "head %d is %g",
                 values ? 'v' : 'k', row, row, head, (double)bad[i % 4]);
        *scale = bad[i % 4];
        EXPECT_ERROR(TA_ERR_INVALID, small_append(&s, plan), what, "finite and above 0");
        *scale = 0.5f;
        TEST_ASSERT_EQUAL_MEMORY(&before, &narrow, sizeof narrow);
    }
    EXPECT_OK(small_append(&s, plan));
    TEST_ASSERT_TRUE(memcmp(&before, &narrow, sizeof narrow) != 0);
    memset(narrow.scales, 0, sizeof narrow.scales);
    s.input.dtype = TA_DTYPE_NONE; /* bytes are not divided */
    EXPECT_OK(small_append(&s, plan));
    s.input.dtype = TA_F32;
    s.input.make_scales = 1;
    EXPECT_OK(small_append(&s, plan));
    ta_plan_destroy(plan);
    ta_device_close(device);
}

/* ---- In a group ---- */

static void test_one_rank_is_wrong(void)
{
    spoiled_on_one_rank(&appends, mistakes, MISTAKES);
}

SPOIL(tag, s->call.tag = 5)
SPOIL(ahead, ++s->lengths[0])
SPOIL(halves, s->input.dtype = TA_F16)
SPOIL(bhalves, s->input.dtype = TA_BF16)
SPOIL(fewer, s->call.batch = 1)

static void test_ranks_that_differ(void)
{
    static const char *nothing = "nothing was stored";
    const mistake differences[] = {
        {"the tag", nothing, spoil_tag, NULL},
        {"kv.lengths", nothing, spoil_ahead, NULL},
        {"input.dtype", nothing, spoil_halves, spoil_bhalves}, /* as many bytes */
    };
    spoiled_differently(&appends, differences, sizeof differences / sizeof *differences);
}

/* Rows and types size messages. */
static void test_other_sizes(void)
{
    static const mistake differences[] = {{"call.batch", NULL, spoil_fewer, NULL},
                                          {"input.dtype", NULL, spoil_halves, NULL}};
    spoiled_in_size(&appends, differences, sizeof differences / sizeof *differences);
}

static void run_all(void)
{
    RUN_TEST(test_random_cases);
    RUN_TEST(test_few_heads);
    RUN_TEST(test_a_long_chunk);
    if (options_host()) {
        RUN_TEST(test_bad_arguments);
        RUN_TEST(test_bad_plans);
        RUN_TEST(test_scales_that_are_not_there);
        RUN_TEST(test_one_rank_is_wrong);
        RUN_TEST(test_ranks_that_differ);
        RUN_TEST(test_other_sizes);
    }
}

int main(int argc, char **argv)
{
    return seed_main(argc, argv, run_seed, run_all);
}
