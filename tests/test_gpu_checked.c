/* Checked mode on a GPU (src/decode/check_more.c): lengths, bounds, pages and what a call points to
 * are looked at before the step, and the host reads copies of them alone. The guard of the executor
 * makes device memory unreadable while nothing runs on the device, so a look at it ends the
 * program. */
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "device/device.h"
#include "lib/expect.h"
#include "lib/small_step.h"
#include "lib/wrapped_allocation.h"
#include "simt/simt_control.h"

static atomic_int kept;     /* what was allocated and not freed yet */
static atomic_int fails;    /* the allocation that fails; 0: none */
static atomic_int overruns; /* what was freed with another mark behind it */

/* Behind what calloc() gives are words that nobody may write to; as a length, of one token. The
 * address sanitizer looks itself. */
static const int32_t mark[] = {1, 1};
#ifdef __SANITIZE_ADDRESS__
#define MARK_BYTES 0
#else
#define MARK_BYTES sizeof mark
#endif
static struct {
    char *memory, *end;
} marked[64];
static pthread_mutex_t marked_mutex = PTHREAD_MUTEX_INITIALIZER;

/* The place of this memory, or a free one for NULL; -1: there is none. */
static int find_marked(const char *memory)
{
    for (int i = 0; i < 64; ++i)
        if (marked[i].memory == memory)
            return i;
    return -1;
}

static void set_mark(char *memory, size_t bytes)
{
    pthread_mutex_lock(&marked_mutex);
    int at = find_marked(NULL);
    if (at >= 0) {
        marked[at].memory = memory;
        marked[at].end = memory + bytes;
        memcpy(marked[at].end, mark, MARK_BYTES);
    }
    pthread_mutex_unlock(&marked_mutex);
}

static void look_at_mark(const char *memory)
{
    pthread_mutex_lock(&marked_mutex);
    int at = memory ? find_marked(memory) : -1;
    if (at >= 0) {
        atomic_fetch_add(&overruns, memcmp(marked[at].end, mark, MARK_BYTES) != 0);
        marked[at].memory = NULL;
    }
    pthread_mutex_unlock(&marked_mutex);
}

void *__wrap_calloc(size_t count, size_t bytes)
{
    if (atomic_load(&fails) > 0 && atomic_fetch_sub(&fails, 1) == 1)
        return NULL;
    atomic_fetch_add(&kept, 1);
    char *memory = __real_calloc(1, count * bytes + MARK_BYTES);
    if (memory)
        set_mark(memory, count * bytes);
    return memory;
}

void __wrap_free(void *memory)
{
    look_at_mark(memory);
    atomic_fetch_sub(&kept, memory != NULL);
    __real_free(memory);
}

static ta_device *device;
static small_step step;
static ta_plan *plan;

void setUp(void)
{
    simt_reset();
    EXPECT_OK(ta_device_open("simt", NULL, &device));
    small_step_init(&step, 0, 1);
    step.config.check = 1;
}

void tearDown(void)
{
    simt_set_guard(0);
    ta_plan_destroy(plan);
    plan = NULL;
    small_step_release(&step);
    ta_device_close(device);
    simt_reset();
    TEST_ASSERT_EQUAL_INT(0, atomic_load(&overruns));
}

static void make_plan(void)
{
    EXPECT_OK(ta_plan_create(NULL, device, &step.config, &plan));
    simt_set_guard(1);
}

/* The checks free what they allocate. */
static void expect_nothing_kept(void)
{
    int before = atomic_load(&kept);
    EXPECT_OK(small_step_decode(&step, plan));
    TEST_ASSERT_EQUAL_INT(before, atomic_load(&kept));
}

static void expect_right(void)
{
    EXPECT_OK(small_step_decode(&step, plan));
    TEST_ASSERT_TRUE(small_step_right(&step));
    expect_nothing_kept();
}

static void expect_refused(const char *what, const char *value)
{
    EXPECT_OK(small_step_fill(&step));
    EXPECT_ERROR(TA_ERR_INVALID, small_step_queue(&step, plan, NULL), what, value);
    EXPECT_OK(small_step_fetch(&step, NULL));
    TEST_ASSERT_TRUE(small_step_untouched(&step));
}

/* Each copy that there is no memory for is an error, and nothing of the others is kept: of `least`
 * copies or more. */
static void expect_no_memory(int least)
{
    int failed = 0;
    for (ta_status status = TA_ERR_NO_MEMORY; status != TA_OK; failed += status != TA_OK) {
        EXPECT_OK(small_step_fill(&step));
        int before = atomic_load(&kept);
        atomic_store(&fails, failed + 1);
        status = small_step_queue(&step, plan, NULL);
        atomic_store(&fails, 0);
        TEST_ASSERT_EQUAL_INT(before, atomic_load(&kept));
        EXPECT_OK(small_step_fetch(&step, NULL));
        TEST_ASSERT_EQUAL_INT(status != TA_OK, small_step_untouched(&step));
        if (status != TA_OK)
            EXPECT_ERROR(TA_ERR_NO_MEMORY, status, "no memory to check", "device memory");
    }
    TEST_ASSERT_TRUE(failed >= least);
}

/* A device that is lost from one of the copies and waits of a call on. */
static const ta_device_ops *right_ops;
static int lost_at, asked; /* which of them, from 1, or 0; and how many there were */

static ta_status lose(void)
{
    ++asked;
    if (!lost_at || asked < lost_at)
        return TA_OK;
    return ta_fail(TA_ERR_DEVICE, "lost for %d of them", asked - lost_at + 1);
}

static ta_status lose_copy(ta_device *of, void *to, const void *from, size_t bytes, void *stream)
{
    TA_TRY(lose());
    return right_ops->copy(of, to, from, bytes, stream);
}

static ta_status lose_wait(ta_device *of, void *stream)
{
    TA_TRY(right_ops->synchronize(of, stream)); /* nothing is on its way any more */
    return lose();
}

static ta_status queue_losing(int at)
{
    ta_device_ops losing = *device->ops;
    right_ops = device->ops;
    losing.copy = lose_copy;
    losing.synchronize = lose_wait;
    lost_at = at;
    asked = 0;
    device->ops = &losing;
    ta_status status = small_step_queue(&step, plan, NULL);
    device->ops = right_ops;
    return status;
}

/* What is not there is not checked: each copy and each wait that fails is the call's error, nothing
 * is written, and nothing kept. Of `least` or more. */
static void expect_losses(int least)
{
    EXPECT_OK(small_step_fill(&step));
    EXPECT_OK(queue_losing(0));
    EXPECT_OK(small_step_fetch(&step, NULL));
    int count = asked;
    TEST_ASSERT_TRUE(count >= least);
    for (int at = 1; at <= count; ++at) {
        EXPECT_OK(small_step_fill(&step));
        int before = atomic_load(&kept);
        EXPECT_ERROR(TA_ERR_DEVICE, queue_losing(at), "lost for 1 of them", NULL);
        TEST_ASSERT_EQUAL_INT(before, atomic_load(&kept));
        EXPECT_OK(small_step_fetch(&step, NULL));
        TEST_ASSERT_TRUE(small_step_untouched(&step));
    }
    expect_right();
}

/* Of the last sequence, so that all are looked at. */
static void test_lengths(void)
{
    EXPECT_OK(small_step_to_device(&step, device));
    make_plan();
    expect_right();
    step.lengths[SMALL_BATCH - 1] = -3;
    expect_refused("kv.lengths[1] is -3", NULL);
}

/* Where device memory ends, so that one row too many would be noticed, and with a gap between the
 * rows, which the host's copy has not. */
static void test_bounds(void)
{
    int32_t bounds[64] = {0}, *last = bounds + 59; /* all that an allocation is rounded up to */
    void *memory = NULL;
    last[1] = SMALL_TOKENS;
    last[2] = 1000;
    last[4] = 3;
    step.config.map.kind = TA_SHARD_CONTIGUOUS;
    step.config.map.block = 0;
    EXPECT_OK(small_step_to_device(&step, device));
    EXPECT_OK(device->ops->alloc(device, sizeof bounds, &memory));
    EXPECT_OK(device->ops->copy(device, memory, bounds, sizeof bounds, NULL));
    step.kv.bounds = (const int32_t *)memory + 59;
    step.kv.bounds_stride = 3;
    make_plan();
    expect_right();
    last[4] = 2; /* of the second sequence, which has three tokens */
    EXPECT_OK(device->ops->copy(device, memory, bounds, sizeof bounds, NULL));
    expect_refused("kv.bounds", "2");
    device->ops->free(device, memory);
}

/* Of two ranks, so that a sequence has more of them than there are sequences. */
static ta_status look_at_bounds(ta_group *group, void *context)
{
    static const int32_t bounds[SMALL_BATCH][3] = {{0, 4, SMALL_TOKENS}, {0, 2, 3}};
    ta_device *own;
    ta_plan *with = NULL;
    small_step s;
    (void)context;
    TA_TRY(ta_device_open("simt", NULL, &own));
    small_step_init(&s, ta_group_rank(group), ta_group_size(group));
    s.config.check = 1;
    s.config.map.kind = TA_SHARD_CONTIGUOUS;
    s.config.map.block = 0;
    s.config.max_tokens = SMALL_TOKENS;
    memcpy(s.bounds, bounds, sizeof bounds);
    s.kv.bounds = s.bounds;
    s.kv.bounds_stride = 3;
    TA_TRY(small_step_to_device(&s, own));
    TA_TRY(ta_plan_create(group, own, &s.config, &with));
    TA_TRY(small_step_decode(&s, with));
    RANK_EXPECT(!small_step_untouched(&s));
    s.bounds[5] = 2; /* of the second sequence, which has three tokens */
    TA_TRY(rank_expect_error(TA_ERR_INVALID, small_step_decode(&s, with),
                             "kv.bounds of sequence 1 end at 2", "kv.lengths[1], 3"));
    RANK_EXPECT(small_step_untouched(&s));
    ta_plan_destroy(with);
    small_step_release(&s);
    ta_device_close(own);
    return TA_OK;
}

static void test_bounds_of_ranks(void)
{
    EXPECT_OK(ta_group_run_threads(2, NULL, look_at_bounds, NULL));
}

/* Pages of one token, one behind the other. Returns the table, which comes along with the arrays of
 * the step. */
static int32_t *give_pages(void)
{
    int32_t *pages = step.bounds; /* whose memory is a page table here */
    for (int i = 0; i < SMALL_BATCH * SMALL_TOKENS; ++i)
        pages[i] = i;
    step.kv.bounds = pages;
    EXPECT_OK(small_step_to_device(&step, device));
    step.kv.page_table = step.kv.bounds;
    step.kv.page_table_stride = SMALL_TOKENS;
    step.kv.page_tokens = 1;
    step.kv.page_count = SMALL_BATCH * SMALL_TOKENS;
    step.kv.bounds = NULL;
    return pages;
}

static void test_pages(void)
{
    int32_t *pages = give_pages();
    make_plan();
    expect_right();
    pages[1] = -2;
    expect_refused("page 1 of sequence 0 in kv.page_table", "-2");
    pages[1] = 1;
    pages[SMALL_TOKENS + 2] = -1;
    expect_refused("page 2 of sequence 1 in kv.page_table", "-1");
    ta_append_input input = TA_APPEND_INPUT_INIT; /* the caches are as good as new tokens */
    input.k.data = step.kv.k.data;
    input.v.data = step.kv.v.data;
    EXPECT_ERROR(TA_ERR_INVALID, ta_append(plan, &input, &step.kv, NULL, NULL),
                 "page 2 of sequence 1 in kv.page_table", "-1");
    step.kv.page_table_stride = -1;
    expect_refused("kv.page_table_stride is -1", NULL);
    step.kv.page_table_stride = INT64_C(1) << 62; /* whose bytes count as 0 */
    expect_refused("kv.page_table_stride is 4611686018427387904", "address space");
    step.kv.page_table_stride = 2; /* too few for the tokens, and none of them is read */
    expect_refused("kv.page_table_stride is 2", NULL);
    memset(step.lengths, 0, sizeof step.lengths); /* of which none is enough */
    step.kv.page_table_stride = 0;
    EXPECT_OK(small_step_decode(&step, plan));
}

/* Where device memory ends with the last entry in use. */
static void test_the_end_of_the_pages(void)
{
    int32_t pages[64] = {0}; /* all that an allocation is rounded up to */
    void *memory = NULL;
    const int used = SMALL_TOKENS + step.lengths[1];
    for (int i = 0; i < used; ++i)
        pages[64 - used + i] = i;
    EXPECT_OK(small_step_to_device(&step, device));
    EXPECT_OK(device->ops->alloc(device, sizeof pages, &memory));
    EXPECT_OK(device->ops->copy(device, memory, pages, sizeof pages, NULL));
    step.kv.page_table = (const int32_t *)memory + 64 - used;
    step.kv.page_table_stride = SMALL_TOKENS;
    step.kv.page_tokens = 1;
    step.kv.page_count = SMALL_BATCH * SMALL_TOKENS;
    make_plan();
    expect_right();
    device->ops->free(device, memory);
}

/* Of each sequence and KV head, and one for all. */
static void test_scales(void)
{
    enum { EACH = SMALL_BATCH * SMALL_KV_HEADS };
    float scales[2 * EACH] = {1, 2, 3, 4, 5, 6, 7, 8};
    void *memory = NULL;
    step.config.kv_dtype = TA_E4M3;
    step.config.query_dtype = TA_F32;
    step.config.out_dtype = TA_F32;
    EXPECT_OK(small_step_to_device(&step, device));
    EXPECT_OK(device->ops->alloc(device, sizeof scales, &memory));
    EXPECT_OK(device->ops->copy(device, memory, scales, sizeof scales, NULL));
    step.kv.k_scale = (ta_scales){memory, SMALL_KV_HEADS, 0, 1};
    step.kv.v_scale = (ta_scales){(float *)memory + EACH, SMALL_KV_HEADS, 0, 1};
    make_plan();
    EXPECT_OK(small_step_decode(&step, plan));
    expect_nothing_kept();
    expect_no_memory(11); /* the same, with two of scales and without pages */
    for (int i = 0; i < 2 * EACH; ++i) {
        float spoiled[2 * EACH];
        char what[80];
        memcpy(spoiled, scales, sizeof scales);
        spoiled[i] = -1.0f;
        EXPECT_OK(device->ops->copy(device, memory, spoiled, sizeof spoiled, NULL));
        snprintf(what, sizeof what, "kv.%c_scale of sequence %d and KV head %d is -1",
                 i < EACH ? 'k' : 'v', i % EACH / SMALL_KV_HEADS, i % SMALL_KV_HEADS);
        expect_refused(what, "above 0");
    }
    EXPECT_OK(device->ops->copy(device, memory, scales, sizeof scales, NULL));
    step.kv.v_scale = (ta_scales){(float *)memory + 2 * EACH - 1, 0, 0, 0};
    EXPECT_OK(small_step_decode(&step, plan));
    step.kv.v_scale.data = (float *)memory + 2 * EACH - 2;
    scales[2 * EACH - 2] = 0.0f;
    EXPECT_OK(device->ops->copy(device, memory, scales, sizeof scales, NULL));
    expect_refused("kv.v_scale of sequence 0 and KV head 0 is 0", "above 0");
    device->ops->free(device, memory);
}

/* Of each page, which a step's check does not look at: they stay in device memory. Those of new
 * tokens are brought to the host, unless the tokens are bytes. */
static void test_scales_of_pages(void)
{
    enum { EACH = SMALL_BATCH * SMALL_TOKENS * SMALL_KV_HEADS };
    float scales[EACH];
    void *memory = NULL;
    for (int i = 0; i < EACH; ++i)
        scales[i] = 1.0f;
    step.config.kv_dtype = TA_E4M3;
    step.config.query_dtype = TA_F32;
    step.config.out_dtype = TA_F32;
    (void)give_pages();
    EXPECT_OK(device->ops->alloc(device, sizeof scales, &memory));
    EXPECT_OK(device->ops->copy(device, memory, scales, sizeof scales, NULL));
    step.kv.k_scale = step.kv.v_scale = (ta_scales){memory, SMALL_KV_HEADS, 0, 1};
    make_plan();
    EXPECT_OK(small_step_decode(&step, plan));
    expect_nothing_kept();
    ta_append_input input = TA_APPEND_INPUT_INIT; /* bytes that are copied, of the cache itself */
    input.k.data = step.kv.k.data;
    input.v.data = step.kv.v.data;
    scales[4 * SMALL_KV_HEADS] = 0.0f; /* of a token that is there */
    EXPECT_OK(device->ops->copy(device, memory, scales, sizeof scales, NULL));
    EXPECT_OK(ta_append(plan, &input, &step.kv, NULL, NULL));
    input.k.data = input.v.data = step.q.data;
    input.dtype = TA_F32;
    EXPECT_OK(ta_append(plan, &input, &step.kv, NULL, NULL));
    scales[(SMALL_TOKENS + 2) * SMALL_KV_HEADS + 1] = 0.0f;
    EXPECT_OK(device->ops->copy(device, memory, scales, sizeof scales, NULL));
    EXPECT_ERROR(TA_ERR_INVALID, ta_append(plan, &input, &step.kv, NULL, NULL),
                 "kv.k_scale of row 3, a new token of sequence 1, and KV head 1 is 0",
                 "input.make_scales");
    input.k.data = step.kv.k.data;
    input.v.data = step.kv.v.data;
    input.dtype = TA_DTYPE_NONE;
    EXPECT_OK(ta_append(plan, &input, &step.kv, NULL, NULL));
    device->ops->free(device, memory);
}

enum { ROWS = SMALL_BATCH * SMALL_QUERY_TOKENS, PLACES = SMALL_TOKENS + 1 };

/* In device memory: lists of all positions, from the last to the first; then groups of one. */
static struct lists {
    int32_t selected[ROWS][PLACES], starts[SMALL_BATCH + 1], lengths[SMALL_BATCH];
} lists;

static void copy_lists(void *memory)
{
    EXPECT_OK(device->ops->copy(device, memory, &lists, sizeof lists, NULL));
}

/* A list that has a position twice, or one beyond its sequence, and groups that are none. */
static void test_lists(void)
{
    void *memory = NULL;
    memset(&lists, 0, sizeof lists);
    for (int row = 0; row < ROWS; ++row)
        for (int y = 0; y < PLACES; ++y)
            lists.selected[row][PLACES - 1 - y] =
                y < step.lengths[row / SMALL_QUERY_TOKENS] ? y : -1;
    for (int b = 0; b <= SMALL_BATCH; ++b)
        lists.starts[b] = b;
    step.config.shared_prefixes = 1;
    EXPECT_OK(small_step_to_device(&step, device));
    EXPECT_OK(device->ops->alloc(device, sizeof lists, &memory));
    copy_lists(memory);
    const struct lists *there = memory;
    step.call.selected = &there->selected[0][0];
    step.call.selected_count = PLACES;
    step.call.prefix_groups = SMALL_BATCH;
    step.call.prefix_starts = there->starts;
    step.call.prefix_lengths = there->lengths;
    make_plan();
    expect_right();
    const ta_call both = step.call;
    step.call.selected = NULL;
    step.call.selected_count = 0;
    expect_right();
    step.call = (ta_call)TA_CALL_INIT;
    step.call.selected = both.selected;
    step.call.selected_count = both.selected_count;
    expect_right();
    step.call = both;
    expect_losses(8); /* three lists and lengths; they are waited for, with starts and heads */
    lists.selected[1][0] = 2;
    copy_lists(memory);
    expect_refused("call.selected of row 1, list 0, place 5 is 2", "twice");
    lists.selected[1][0] = SMALL_TOKENS;
    copy_lists(memory);
    expect_refused("call.selected of row 1, list 0, place 0 is 7", "7 tokens");
    lists.selected[1][0] = -1;
    lists.lengths[1] = 4;
    copy_lists(memory);
    expect_refused("call.prefix_lengths[1] is 4", "kv.lengths[1], 3");
    lists.starts[1] = 0;
    copy_lists(memory);
    expect_refused("call.prefix_starts[1] is 0 after 0", "at least one");
    device->ops->free(device, memory);
}

static void test_no_memory_for_copies(void)
{
    (void)give_pages();
    small_step_ragged(&step, SMALL_BATCH * SMALL_QUERY_TOKENS);
    make_plan();
    expect_right();
    expect_no_memory(10); /* lengths, bounds, pages, starts, two of heads, four of lists */
    expect_losses(9); /* lengths, two of pages, starts; they are waited for, with heads and lists */
}

static void test_calls(void)
{
    EXPECT_OK(small_step_to_device(&step, device));
    ptrdiff_t moved = (const char *)step.kv.lengths - (const char *)step.lengths;
    small_step_ragged(&step, SMALL_BATCH * SMALL_QUERY_TOKENS);
    make_plan();
    expect_right();
    step.starts[1] = 3;
    expect_refused("call.starts[1] is 3", NULL);
    step.starts[1] = SMALL_QUERY_TOKENS;
    step.call.alibi_slopes = (const float *)((const char *)step.slopes + moved);
    expect_right(); /* slopes of 0 change nothing */
    step.call.sinks = (const float *)((const char *)step.sinks + moved);
    step.sinks[SMALL_HEADS - 1] = HUGE_VALF;
    expect_refused("call.sinks[3] is inf", NULL);
    step.call.sinks = NULL;
    step.slopes[SMALL_HEADS - 1] = -HUGE_VALF;
    expect_refused("call.alibi_slopes[3] is -inf", NULL);
}

/* Without checks nobody sees wrong starts before the kernels do: they touch no other memory, and
 * the next step is right. The first row is of no sequence here, and some sequences have no rows. */
static void test_wrong_starts_without_checks(void)
{
    static const int32_t wrong[][SMALL_BATCH + 1] = {
        {3, 3, 4}, {3, 4, 4}, {4, 4, 4}, {2, 1, 4}, {-5, 9, 2}, {1, INT32_MAX, INT32_MIN}};
    static const int tiles[] = {0, 16};
    EXPECT_OK(small_step_to_device(&step, device));
    small_step_ragged(&step, SMALL_BATCH * SMALL_QUERY_TOKENS);
    step.config.check = 0;
    for (int t = 0; t < 2; ++t) {
        step.config.reproducible_tile = tiles[t];
        make_plan();
        for (int i = 0; i < (int)(sizeof wrong / sizeof *wrong); ++i) {
            int32_t right[SMALL_BATCH + 1];
            memcpy(right, step.starts, sizeof right);
            memcpy(step.starts, wrong[i], sizeof right);
            EXPECT_OK(small_step_decode(&step, plan));
            memcpy(step.starts, right, sizeof right);
            expect_right();
        }
        simt_set_guard(0);
        ta_plan_destroy(plan);
        plan = NULL;
    }
}

/* Ranks compare what is in sinks and slopes, also if one has them from its call and the other from
 * its plan. */
static ta_status compare_heads(ta_group *group, void *context)
{
    static const float values[SMALL_HEADS] = {1.0f, 2.0f, 3.0f, 4.0f};
    const int slopes = *(const int *)context;
    ta_device *own;
    ta_plan *with = NULL;
    small_step s;
    TA_TRY(ta_device_open("simt", NULL, &own));
    small_step_init(&s, ta_group_rank(group), ta_group_size(group));
    s.config.check = 1;
    *(slopes ? &s.config.alibi_slopes : &s.config.sinks) = values;
    memcpy(slopes ? s.slopes : s.sinks, values, sizeof values);
    TA_TRY(small_step_to_device(&s, own));
    ptrdiff_t moved = (const char *)s.kv.lengths - (const char *)s.lengths;
    if (s.rank == 1)
        *(slopes ? &s.call.alibi_slopes : &s.call.sinks) =
            (const float *)((const char *)(slopes ? s.slopes : s.sinks) + moved);
    TA_TRY(ta_plan_create(group, own, &s.config, &with));
    TA_TRY(small_step_decode(&s, with));
    RANK_EXPECT(!small_step_untouched(&s));
    (slopes ? s.slopes : s.sinks)[SMALL_HEADS - 1] = 5.0f;
    TA_TRY(rank_expect_error(TA_ERR_MISMATCH, small_step_decode(&s, with),
                             "ranks 0 and 1 differ in this step, in the query, the sinks or the "
                             "slopes",
                             "nothing was written"));
    ta_plan_destroy(with);
    small_step_release(&s);
    ta_device_close(own);
    return TA_OK;
}

static void test_heads_of_ranks(void)
{
    for (int slopes = 0; slopes < 2; ++slopes)
        EXPECT_OK(ta_group_run_threads(2, NULL, compare_heads, &slopes));
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(test_lengths);
    RUN_TEST(test_bounds);
    RUN_TEST(test_bounds_of_ranks);
    RUN_TEST(test_pages);
    RUN_TEST(test_the_end_of_the_pages);
    RUN_TEST(test_scales);
    RUN_TEST(test_scales_of_pages);
    RUN_TEST(test_calls);
    RUN_TEST(test_wrong_starts_without_checks);
    RUN_TEST(test_no_memory_for_copies);
    RUN_TEST(test_heads_of_ranks);
    RUN_TEST(test_lists);
    return UNITY_END() != 0;
}
