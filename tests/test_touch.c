/* Does touching a batch of tokens ask for each page of memory that has one of their vectors, and
 * for no other? Caches of many shapes, with and without pages of their own. */
#include "host/attend/touch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unity.h>

#include "base/dtype.h"
#include "lib/random.h"

#define MEMORY_PAGES 4096
#define TOKENS 300

static random_source source = {7};
static char *memory; /* of which only addresses are used */
static char wanted[MEMORY_PAGES], touched[MEMORY_PAGES];
static int lines;

void setUp(void)
{
    memory = aligned_alloc(TA_MEMORY_PAGE, (size_t)MEMORY_PAGES * TA_MEMORY_PAGE);
    TEST_ASSERT_NOT_NULL(memory);
}

void tearDown(void)
{
    free(memory);
}

static void note(void *context, const char *line)
{
    ptrdiff_t page = (line - memory) / TA_MEMORY_PAGE;
    (void)context;
    TEST_ASSERT_TRUE(line >= memory && page < MEMORY_PAGES);
    touched[page] = 1;
    lines++;
}

typedef struct cache_case {
    ta_problem problem;
    ta_kv kv;
    int32_t pages[TOKENS];
    int heads;
    char text[160];
} cache_case;

static int pick(int low, int high)
{
    return random_int(&source, low, high);
}

/* Token-major or head-major, perhaps padded, perhaps backwards, perhaps in pages. */
static void make_case(cache_case *c)
{
    int token_major = pick(0, 1), page = pick(0, 2) ? 0 : pick(1, 20), backwards = !pick(0, 3);
    int32_t kv_heads = pick(1, 6), dim = 8 * pick(1, 16), room = page ? page : TOKENS;
    int64_t padded = dim + 8 * (pick(0, 2) ? 0 : pick(0, 100)); /* a head is within a page */
    *c = (cache_case){.heads = token_major ? pick(1, kv_heads) : 1};
    c->problem.k_dim = c->problem.v_dim = dim;
    c->problem.kv_dtype = pick(0, 1) ? TA_F32 : TA_BF16;
    ta_tensor t = {memory, padded * room * kv_heads, token_major ? padded * kv_heads : padded,
                   token_major ? padded : padded * room};
    int32_t count = page ? (TOKENS + page - 1) / page : 1;
    int64_t size = (int64_t)ta_dtype_bytes(c->problem.kv_dtype);
    if (count * t.batch_stride * size > (int64_t)MEMORY_PAGES * TA_MEMORY_PAGE)
        t = (ta_tensor){memory, dim * room, dim, 0}; /* smaller: one head */
    if (t.head_stride == 0)
        c->heads = kv_heads = 1;
    if (backwards) {
        t.data = (char *)memory + (room - 1) * t.token_stride * size;
        t.token_stride = -t.token_stride;
    }
    c->kv.k = c->kv.v = t;
    for (int i = 0; i < count; i++)
        c->pages[i] = (int32_t)((i * 37 + 5) % count);
    c->kv.page_table = page ? c->pages : NULL;
    c->kv.page_tokens = page;
    snprintf(c->text, sizeof c->text, "page %d, dim %d of %lld, strides %lld %lld, heads %d, %s",
             page, (int)dim, (long long)padded, (long long)t.token_stride, (long long)t.head_stride,
             c->heads, ta_dtype_name(c->problem.kv_dtype));
}

static void want_token(const cache_case *c, int32_t at)
{
    int64_t size = (int64_t)ta_dtype_bytes(c->problem.kv_dtype), page = 0;
    const ta_tensor *t = &c->kv.k;
    if (c->kv.page_table) {
        page = c->pages[at / c->kv.page_tokens];
        at %= c->kv.page_tokens;
    }
    for (int head = 0; head < c->heads; head++) {
        const char *vector =
            (const char *)t->data +
            size * (page * t->batch_stride + at * t->token_stride + head * t->head_stride);
        for (int64_t byte = 0; byte < c->problem.k_dim * size; byte += 16)
            wanted[(vector + byte - memory) / TA_MEMORY_PAGE] = 1;
    }
}

static void check_touched(const cache_case *c, int32_t first, int count, int32_t lane_tokens)
{
    ta_tile_source tile_source = ta_tile_source_of(&c->problem, &c->kv, 0, 0);
    ta_touch touch = {&tile_source, c->heads, pick(0, 1), lane_tokens};
    int lanes = lane_tokens ? TA_TILE_LANES : 1;
    memset(wanted, 0, sizeof wanted);
    memset(touched, 0, sizeof touched);
    lines = 0;
    for (int i = 0; i < count; i++)
        want_token(c, first + i / lanes + i % lanes * lane_tokens);
    ta_touch_lines(&touch, first, count, note, NULL);
    for (int i = 0; i < MEMORY_PAGES; i++)
        TEST_ASSERT_EQUAL_MESSAGE(wanted[i], touched[i], c->text);
    ta_touch_pages(&touch, first, count); /* the same lines, as hints */
}

static void test_every_page_is_touched(void)
{
    cache_case c;
    for (int i = 0; i < 2000; i++) {
        make_case(&c);
        int first = pick(0, TOKENS - 1);
        check_touched(&c, first, pick(1, TOKENS - first), 0);
        check_touched(&c, pick(0, 10), 4 * pick(1, 60), 70);
    }
}

static void test_nothing_is_touched_of_nothing(void)
{
    cache_case c;
    make_case(&c);
    check_touched(&c, 5, 0, 0);
    TEST_ASSERT_EQUAL(0, lines);
}

/* A batch has about as many bytes whatever the shape is, and ends with a block. */
static void test_batches(void)
{
    ta_problem problem = {.k_dim = 128, .v_dim = 64, .kv_dtype = TA_F16};
    ta_kv kv = {.k = {memory, 0, 128, 1 << 20}, .v = {memory, 0, 8 * 64, 64}};
    ta_tile_source tile_source = ta_tile_source_of(&problem, &kv, 0, 0);
    ta_touch keys = {&tile_source, 1, 0, 0}, values = {&tile_source, 8, 1, 0};
    TEST_ASSERT_EQUAL(TA_TOUCH_BYTES / 256, ta_touch_tokens(&keys, 64));
    TEST_ASSERT_EQUAL(TA_TOUCH_BYTES / 1024, ta_touch_tokens(&values, 64));
    TEST_ASSERT_EQUAL(192, ta_touch_tokens(&keys, 96));
    TEST_ASSERT_EQUAL(128, ta_touch_tokens(&values, 128));
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(test_every_page_is_touched);
    RUN_TEST(test_nothing_is_touched_of_nothing);
    RUN_TEST(test_batches);
    return UNITY_END() != 0;
}
