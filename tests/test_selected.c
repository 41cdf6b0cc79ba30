/* Selected positions and shared prefixes (src/decode/call_lists.c, src/host/attend/item_selected.c
 * and division.c, hip/attend/picks.h and items.h): random cases with either and with both, against
 * the oracle; the bits; and what is refused. Random cases of other programs have them too, now and
 * then. `--seed N` runs that random case alone. */
#include <stddef.h>

#include "base/status.h"
#include "device/device.h"
#include "lib/case.h"
#include "lib/expect.h"
#include "lib/expect_case.h"
#include "lib/options.h"
#include "lib/seed_main.h"
#include "lib/small_step.h"
#include "lib/spoil.h"

enum { SMALL_CASES = 400, LARGE_CASES = 40 };

static bound_worst worst;

void setUp(void)
{
}

void tearDown(void)
{
}

/* ---- Results ---- */

/* Of three seeds in a row one has lists, one prefixes, one both. */
static decode_case listed_case(uint64_t seed, int ranks)
{
    decode_case c = case_random_on(seed, ranks);
    c.selected = 0;
    c.prefixes = false;
    if (c.plan.algorithm == TA_ALGORITHM_RING_KV)
        c.plan.algorithm = TA_ALGORITHM_RING_Q;
    if (seed % 3 != 1)
        case_select(&c);
    if (seed % 3 != 0)
        case_share_prefixes(&c);
    return c;
}

static void run_seed(uint64_t seed)
{
    decode_case c = listed_case(seed, 0);
    expect_case(&c, &worst);
}

static void test_small_cases(void)
{
    uint64_t count = options.cases ? (uint64_t)options.cases : SMALL_CASES;
    for (uint64_t seed = 0; seed < count; ++seed)
        if (options_chosen(seed))
            run_seed(70000 + seed);
}

static void test_large_cases(void)
{
    uint64_t count = options_host() ? LARGE_CASES : 3;
    for (uint64_t seed = 0; seed < count; ++seed)
        if (options_chosen(seed))
            run_seed(CASE_LARGE_SEEDS + 70000 + seed);
}

/* The order of a list makes no difference. */
static void test_order(void)
{
    for (uint64_t seed = 0; seed < (options_host() ? 30 : 4); ++seed) {
        decode_case c = listed_case(3 * (30000 + seed) + seed % 2 * 2, 0);
        case_kept first = keep_case(&c, &worst);
        c.selected_reversed = true;
        expect_bits(&first, &c, &worst, "with the lists in their order");
        case_kept_free(&first);
    }
}

/* In reproducible mode the number of ranks, and where tokens are, make none either. */
static void test_reproducible(void)
{
    static const int rank_counts[] = {2, 3, 5, 8};
    for (uint64_t seed = 0; seed < (options_host() ? 24 : 4); ++seed) {
        decode_case c = listed_case(40000 + seed, 1);
        int32_t tile = seed % 2 ? 16 : 48;
        c.plan.algorithm = TA_ALGORITHM_TREE;
        c.plan.exchange = TA_EXCHANGE_AUTO;
        c.plan.query_placement = c.plan.out_placement = TA_PLACE_ALL;
        c.plan.query_root = c.plan.out_root = 0;
        c.plan.map.kind = TA_SHARD_BLOCK_CYCLIC;
        c.plan.map.ranks = 0;
        c.bounds = CASE_BOUNDS_NONE;
        if (seed % 4 < 2)
            for (int b = 0; b < c.plan.batch; ++b)
                c.lengths[b] += 150;
        case_reproducible(&c, tile);
        case_kept first = keep_case(&c, &worst);
        for (int i = 0; i < 4; ++i) {
            c.ranks = rank_counts[i];
            c.threads = options_host() ? 1 + i % 2 : 1;
            expect_bits(&first, &c, &worst, "on one rank");
        }
        case_kept_free(&first);
    }
}

/* ---- What is refused ---- */

/* A step whose lists have every position, and whose sequences share nothing. */
typedef struct listed_step {
    small_step step;
    int32_t selected[SMALL_BATCH * SMALL_QUERY_TOKENS * SMALL_KV_HEADS][SMALL_TOKENS + 1];
    int32_t starts[SMALL_BATCH + 1], lengths[SMALL_BATCH];
    int32_t pages[SMALL_BATCH * SMALL_TOKENS];
} listed_step;

static void listed_step_init(listed_step *s, int rank, int ranks)
{
    small_step_init(&s->step, rank, ranks);
    for (int i = 0; i < SMALL_BATCH * SMALL_QUERY_TOKENS * SMALL_KV_HEADS; ++i) {
        int sequence = i / (SMALL_QUERY_TOKENS * SMALL_KV_HEADS);
        for (int y = 0; y <= SMALL_TOKENS; ++y) /* from the last to the first */
            s->selected[i][SMALL_TOKENS - y] = y < s->step.lengths[sequence] ? y : -1;
    }
    for (int i = 0; i < SMALL_BATCH * SMALL_TOKENS; ++i)
        s->pages[i] = i;
    s->step.config.shared_prefixes = 1;
    s->step.call.selected = s->selected[0];
    s->step.call.selected_count = SMALL_TOKENS + 1;
    s->step.call.selected_lists = SMALL_KV_HEADS;
    s->starts[0] = s->lengths[0] = s->lengths[1] = 0;
    s->starts[1] = 1;
    s->starts[2] = 2;
    s->step.call.prefix_groups = 2;
    s->step.call.prefix_starts = s->starts;
    s->step.call.prefix_lengths = s->lengths;
}

#define SPOIL(name, change) SPOIL_FUNCTION(name, listed_step *s, change)
SPOIL(no_lists, s->step.call.selected = NULL)
SPOIL(no_count, s->step.call.selected_count = 0)
SPOIL(negative_count, s->step.call.selected_count = -3)
SPOIL(odd_lists, s->step.call.selected_lists = 3)
SPOIL(negative_lists, s->step.call.selected_lists = -1)
SPOIL(not_aligned, s->step.call.selected = (const int32_t *)(void *)((char *)s->selected + 2))
SPOIL(beyond, s->selected[2][3] = SMALL_TOKENS)
SPOIL(beyond_a_short_one, s->selected[5][0] = 3)
SPOIL(below, s->selected[7][0] = -2)
SPOIL(twice, s->selected[1][0] = s->selected[1][SMALL_TOKENS])
SPOIL(no_starts, s->step.call.prefix_starts = NULL)
SPOIL(no_lengths, s->step.call.prefix_lengths = NULL)
SPOIL(no_groups, s->step.call.prefix_groups = 0)
SPOIL(many_groups, s->step.call.prefix_groups = 3)
SPOIL(late_start, s->starts[0] = 1)
SPOIL(empty_group, s->starts[1] = 0)
SPOIL(early_end, s->starts[2] = 1; s->step.call.prefix_groups = 2)
SPOIL(short_end, s->step.call.prefix_groups = 1)
SPOIL(negative_prefix, s->lengths[1] = -1)
SPOIL(long_prefix, s->lengths[1] = 4)
SPOIL(reserved, s->step.call.reserved = 1)

static void give_pages(listed_step *s)
{
    s->step.kv.page_table = s->pages;
    s->step.kv.page_table_stride = SMALL_TOKENS;
    s->step.kv.page_tokens = 1;
    s->step.kv.page_count = SMALL_BATCH * SMALL_TOKENS;
}

static void no_page(listed_step *s)
{
    give_pages(s);
    s->pages[SMALL_TOKENS + 1] = -1;
}

static const struct {
    const char *named, *value;
    void (*spoil)(listed_step *s);
} mistakes[] = {
    {"call.selected is NULL", "selected_count 8", no_lists},
    {"call.selected_count is 0", "1 or more", no_count},
    {"call.selected_count is -3", "1 or more", negative_count},
    {"call.selected_lists is 3", "kv_heads, 2", odd_lists},
    {"call.selected_lists is -1", "kv_heads, 2", negative_lists},
    {"call.selected is", "aligned", not_aligned},
    {"row 1, list 0, place 3 is 7", "7 tokens", beyond},
    {"row 2, list 1, place 0 is 3", "3 tokens", beyond_a_short_one},
    {"row 3, list 1, place 0 is -2", "-1 or a position", below},
    {"row 0, list 1, place 7 is 0", "twice", twice},
    {"row 2, list 0, place 6 is 1", "page", no_page},
    {"call.prefix_starts is NULL", "prefix_groups 2", no_starts},
    {"call.prefix_lengths is NULL", "prefix_groups 2", no_lengths},
    {"call.prefix_groups is 0", "from 1", no_groups},
    {"call.prefix_groups is 3", "call, 2", many_groups},
    {"call.prefix_starts[0] is 1", "must be 0", late_start},
    {"call.prefix_starts[1] is 0 after 0", "at least one", empty_group},
    {"call.prefix_starts[2] is 1 after 1", "at least one", early_end},
    {"call.prefix_starts[1] is 1", "call, 2", short_end},
    {"call.prefix_lengths[1] is -1", "0 or more", negative_prefix},
    {"call.prefix_lengths[1] is 4", "kv.lengths[1], 3", long_prefix},
    {"call.reserved is 1", "must be 0", reserved},
};

static void test_bad_arguments(void)
{
    static listed_step s;
    ta_device *device;
    ta_plan *plan;
    listed_step_init(&s, 0, 1);
    EXPECT_OK(ta_device_open("host", NULL, &device));
    EXPECT_OK(ta_plan_create(NULL, device, &s.step.config, &plan));
    for (size_t i = 0; i < sizeof mistakes / sizeof *mistakes; ++i) {
        listed_step_init(&s, 0, 1);
        mistakes[i].spoil(&s);
        EXPECT_ERROR(TA_ERR_INVALID, small_step_decode(&s.step, plan), mistakes[i].named,
                     mistakes[i].value);
        TEST_ASSERT_TRUE(small_step_untouched(&s.step));
        listed_step_init(&s, 0, 1); /* nothing is left of it */
        EXPECT_OK(small_step_decode(&s.step, plan));
        TEST_ASSERT_TRUE(small_step_right(&s.step));
    }
    for (int b = 0; b < SMALL_BATCH; ++b) /* a prefix may be all that its sequence has */
        s.lengths[b] = s.step.lengths[b];
    EXPECT_OK(small_step_decode(&s.step, plan));
    TEST_ASSERT_TRUE(small_step_right(&s.step));
    ta_plan_destroy(plan);
    ta_device_close(device);
}

/* Pages that are out of everybody's window may have been given back, also those of a prefix: a
 * sequence of the group that has no queries needs none of them. */
static void test_a_prefix_that_was_given_back(void)
{
    static listed_step s;
    ta_device *device;
    ta_plan *plan;
    listed_step_init(&s, 0, 1);
    give_pages(&s);
    EXPECT_OK(ta_device_open("host", NULL, &device));
    EXPECT_OK(ta_plan_create(NULL, device, &s.step.config, &plan));
    s.step.call.selected = NULL;
    s.step.call.selected_count = s.step.call.selected_lists = 0;
    s.step.call.window = 2;
    small_step_ragged(&s.step, SMALL_QUERY_TOKENS); /* all of the first sequence */
    s.step.starts[2] = SMALL_QUERY_TOKENS;
    s.step.call.prefix_groups = 1;
    s.starts[1] = SMALL_BATCH;
    s.lengths[0] = 3;
    for (int i = 0; i < 4; ++i)
        s.pages[i] = -1;
    EXPECT_OK(small_step_decode(&s.step, plan));
    s.pages[4] = -1;
    EXPECT_ERROR(TA_ERR_INVALID, small_step_decode(&s.step, plan),
                 "page 4 of sequence 0 in kv.page_table is -1", NULL);
    s.pages[4] = 4;
    s.step.starts[1] = 1; /* now the second one has a query, at the end of the prefix */
    EXPECT_ERROR(TA_ERR_INVALID, small_step_decode(&s.step, plan),
                 "page 1 of sequence 0 in kv.page_table is -1", NULL);
    ta_plan_destroy(plan);
    ta_device_close(device);
}

/* Of a list only what the row sees needs a page. */
static void test_selected_pages_that_were_given_back(void)
{
    static listed_step s;
    ta_device *device;
    ta_plan *plan;
    listed_step_init(&s, 0, 1);
    s.step.config.window = 2;
    EXPECT_OK(ta_device_open("host", NULL, &device));
    EXPECT_OK(ta_plan_create(NULL, device, &s.step.config, &plan));
    EXPECT_OK(small_step_decode(&s.step, plan));
    const small_step whole = s.step;
    give_pages(&s);
    for (int i = 0; i < SMALL_BATCH * SMALL_TOKENS; ++i) /* of 4 and 5, 5 and 6; 0 and 1, 1 and 2 */
        if (i < 4 || i >= SMALL_TOKENS + 3)
            s.pages[i] = -1;
    EXPECT_OK(small_step_decode(&s.step, plan));
    TEST_ASSERT_EQUAL_MEMORY(whole.results, s.step.results, sizeof whole.results);
    s.pages[4] = -1;
    EXPECT_ERROR(TA_ERR_INVALID, small_step_decode(&s.step, plan),
                 "call.selected of row 0, list 0, place 3 is 4: must have a page", NULL);
    ta_plan_destroy(plan);
    ta_device_close(device);
}

static void test_plans_without_room(void)
{
    static listed_step s;
    ta_device *device;
    ta_plan *plan;
    listed_step_init(&s, 0, 1);
    EXPECT_OK(ta_device_open("host", NULL, &device));
    s.step.config.shared_prefixes = 2;
    EXPECT_ERROR(TA_ERR_INVALID, ta_plan_create(NULL, device, &s.step.config, &plan),
                 "config.shared_prefixes is 2", "1");
    s.step.config.shared_prefixes = 0;
    EXPECT_OK(ta_plan_create(NULL, device, &s.step.config, &plan));
    EXPECT_ERROR(TA_ERR_INVALID, small_step_decode(&s.step, plan), "call.prefix_groups is 2",
                 "config.shared_prefixes");
    ta_plan_destroy(plan);
    s.step.config.shared_prefixes = 1;
    s.step.config.reproducible_tile = 16;
    s.step.config.map.block = 16;
    EXPECT_OK(ta_plan_create(NULL, device, &s.step.config, &plan));
    s.lengths[0] = 5;
    EXPECT_ERROR(TA_ERR_INVALID, small_step_decode(&s.step, plan), "call.prefix_lengths[0] is 5",
                 "reproducible_tile, 16");
    ta_plan_destroy(plan);
    ta_device_close(device);
}

/* Where the device reads them. `memory` NULL: where they are. */
static ta_status place_lists(listed_step *s, ta_device *device, char *memory)
{
    if (!memory)
        return TA_OK;
    char *first = (char *)s->selected;
    TA_TRY(device->ops->copy(device, memory, first, sizeof *s - offsetof(listed_step, selected),
                             NULL));
    s->step.call.selected = (const int32_t *)(void *)memory;
    if (s->step.call.prefix_groups) {
        s->step.call.prefix_starts =
            (const int32_t *)(void *)(memory + ((char *)s->starts - first));
        s->step.call.prefix_lengths =
            (const int32_t *)(void *)(memory + ((char *)s->lengths - first));
    }
    return TA_OK;
}

/* On all ranks, and with each of the ways that have them. */
static ta_status run_rank(ta_group *group, void *context)
{
    ta_algorithm algorithm = *(const ta_algorithm *)context;
    int passes_kv = algorithm == TA_ALGORITHM_RING_KV;
    listed_step s;
    ta_device *device = NULL;
    ta_plan *plan = NULL;
    void *memory = NULL;
    listed_step_init(&s, ta_group_rank(group), ta_group_size(group));
    s.step.config.algorithm = algorithm;
    TA_TRY(ta_device_open(options.device, NULL, &device));
    if (!options_host()) {
        TA_TRY(small_step_to_device(&s.step, device));
        TA_TRY(device->ops->alloc(device, sizeof s, &memory));
    }
    if (passes_kv) {
        RANK_EXPECT(ta_plan_create(group, device, &s.step.config, &plan) == TA_ERR_UNSUPPORTED);
        RANK_EXPECT(strstr(ta_last_error(), "shared_prefixes"));
        s.step.config.shared_prefixes = 0;
        s.step.call.prefix_groups = 0;
        s.step.call.prefix_starts = s.step.call.prefix_lengths = NULL;
    }
    TA_TRY(ta_plan_create(group, device, &s.step.config, &plan));
    TA_TRY(place_lists(&s, device, memory));
    ta_status status = small_step_decode(&s.step, plan);
    RANK_EXPECT(status == (passes_kv ? TA_ERR_UNSUPPORTED : TA_OK));
    RANK_EXPECT(passes_kv ? strstr(ta_last_error(), "call.selected is set") != NULL
                          : small_step_right(&s.step));
    if (!passes_kv && s.step.rank == 1) { /* another list, or other groups, than the others */
        s.selected[0][SMALL_TOKENS] = -1;
        s.lengths[0] = 2;
    }
    TA_TRY(place_lists(&s, device, memory));
    RANK_EXPECT(passes_kv || small_step_decode(&s.step, plan) == TA_ERR_MISMATCH);
    RANK_EXPECT(passes_kv || strstr(ta_last_error(), "call.selected or the prefixes"));
    ta_plan_destroy(plan);
    if (memory)
        device->ops->free(device, memory);
    small_step_release(&s.step);
    ta_device_close(device);
    return TA_OK;
}

static void test_algorithms(void)
{
    for (int algorithm = TA_ALGORITHM_AUTO; algorithm <= TA_ALGORITHM_RING_Q; ++algorithm)
        for (int ranks = 2; ranks <= 3; ++ranks) {
            ta_algorithm one = (ta_algorithm)algorithm;
            EXPECT_OK(ta_group_run_threads(ranks, NULL, run_rank, &one));
        }
}

static void all(void)
{
    RUN_TEST(test_small_cases);
    RUN_TEST(test_large_cases);
    RUN_TEST(test_order);
    RUN_TEST(test_reproducible);
    if (options_host()) {
        RUN_TEST(test_bad_arguments);
        RUN_TEST(test_a_prefix_that_was_given_back);
        RUN_TEST(test_selected_pages_that_were_given_back);
        RUN_TEST(test_plans_without_room);
    }
    RUN_TEST(test_algorithms);
    bound_worst_print(&worst);
}

int main(int argc, char **argv)
{
    return seed_main(argc, argv, run_seed, all);
}
