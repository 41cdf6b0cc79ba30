/* Bad input of a decode step, for every argument (src/decode/api.c): the error names it, nothing is
 * written, and the plan still works. In a group, one rank's bad argument is an error on the others
 * too, nobody waits for long, and the next step is right. */
#include <math.h>

#include "decode/plan.h"
#include "group/group.h"
#include "lib/expect.h"
#include "lib/number.h"
#include "lib/options.h"
#include "lib/run_and_meet.h"
#include "lib/small_step.h"
#include "lib/spoil.h"

/* One way to spoil a step, and what the error must name. */
typedef struct mistake {
    const char *named, *value;
    void (*spoil)(small_step *step);
} mistake;

void setUp(void)
{
}

void tearDown(void)
{
}

static const int32_t bounds[] = {0, 3, 7, 7}, pages[] = {0, 1, 9, 0},
                     negative_page[] = {0, -1, 0, 0}, page_beyond[] = {0, 1, 3, 0};

static void use_pages(small_step *s, const int32_t *table)
{
    s->kv.page_table = table;
    s->kv.page_table_stride = 0;
    s->kv.page_tokens = 4;
    s->kv.page_count = 3;
    s->lengths[0] = s->lengths[1] = 4 * s->ranks;
    s->kv.page_table_stride = 2;
}

#define SPOIL(name, change) SPOIL_FUNCTION(spoil_##name, small_step *s, change)
SPOIL(q_data, s->q.data = NULL)
SPOIL(q_aligned, s->q.data = (char *)s->query + 1)
SPOIL(q_batch, s->q.batch_stride = -1)
SPOIL(q_token, s->q.token_stride = -1)
SPOIL(q_head, s->q.head_stride = INT64_MAX)
SPOIL(out_data, s->out.data = NULL)
SPOIL(out_aligned, s->out.data = (char *)s->results + 2)
SPOIL(out_overlap, s->out.head_stride = 4)
SPOIL(out_tokens, s->out.token_stride = 8)
SPOIL(out_batch, s->out.batch_stride = INT64_MAX / 2)
SPOIL(kv_size, s->kv.size = 0)
SPOIL(k_data, s->kv.k.data = NULL)
SPOIL(v_data, s->kv.v.data = NULL)
SPOIL(k_aligned, s->kv.k.data = (char *)s->keys + 2)
SPOIL(v_aligned, s->kv.v.data = (char *)s->values + 1)
SPOIL(k_batch, s->kv.k.batch_stride = -2)
SPOIL(k_token, s->kv.k.token_stride = INT64_MAX)
SPOIL(k_head, s->kv.k.head_stride = -1)
SPOIL(v_batch, s->kv.v.batch_stride = -2)
SPOIL(v_token, s->kv.v.token_stride = -3)
SPOIL(v_head, s->kv.v.head_stride = INT64_MAX / 4)
SPOIL(lengths, s->kv.lengths = NULL)
SPOIL(negative_length, s->lengths[1] = -1)
SPOIL(long_length, s->lengths[0] = SMALL_TOKENS * s->ranks + 1 + s->rank)
SPOIL(longest, s->lengths[1] = INT32_MAX)
SPOIL(bounds, s->kv.bounds = bounds)
SPOIL(page_tokens, use_pages(s, pages); s->kv.page_tokens = 0)
SPOIL(page_tokens_negative, use_pages(s, pages); s->kv.page_tokens = -5)
SPOIL(page_count, use_pages(s, pages); s->kv.page_count = -1)
SPOIL(no_pages, use_pages(s, pages); s->kv.page_count = 0)
SPOIL(page_stride, use_pages(s, pages); s->kv.page_table_stride = 0)
SPOIL(page_stride_wraps, use_pages(s, pages); s->kv.page_table_stride = INT64_C(1) << 62)
SPOIL(page_index, use_pages(s, pages))
SPOIL(page_beyond, use_pages(s, page_beyond))
SPOIL(page_negative, use_pages(s, negative_page); s->lengths[0] = 5 * s->ranks)

/* A ragged call of all rows, with one thing wrong. */
static void spoil_start(small_step *s, int at, int32_t start)
{
    small_step_ragged(s, SMALL_BATCH * SMALL_QUERY_TOKENS);
    s->starts[at] = start;
}

SPOIL(call_size, s->call.size = 1)
SPOIL(call_batch, s->call.batch = SMALL_BATCH + 1)
SPOIL(call_no_batch, s->call.batch = -1)
SPOIL(call_tokens, small_step_ragged(s, 5))
SPOIL(call_no_tokens, small_step_ragged(s, -1))
SPOIL(no_starts, s->call.tokens = 4)
SPOIL(starts_alone, s->call.starts = s->starts)
SPOIL(starts_odd, s->call.tokens = 4; s->call.starts = (int32_t *)((char *)s->starts + 1))
SPOIL(first_start, spoil_start(s, 0, 1))
SPOIL(starts_fall, spoil_start(s, 1, -1))
SPOIL(starts_far, spoil_start(s, 1, 3))
SPOIL(starts_overflow, spoil_start(s, 1, INT32_MIN))
SPOIL(last_start, spoil_start(s, 2, 3))
SPOIL(call_window, s->call.window = -2)
SPOIL(call_softcap, s->call.softcap = NAN)
SPOIL(call_softcap_infinite, s->call.softcap = -INFINITY)
SPOIL(call_sinks, s->sinks[3] = INFINITY; s->call.sinks = s->sinks)
SPOIL(call_sinks_odd, s->call.sinks = (float *)((char *)s->sinks + 2))
SPOIL(call_slopes, s->slopes[0] = NAN; s->call.alibi_slopes = s->slopes)
SPOIL(call_slopes_odd, s->call.alibi_slopes = (float *)((char *)s->slopes + 1))

static const mistake mistakes[] = {
    {"call.size", "is 1", spoil_call_size},
    {"call.batch", "is 3", spoil_call_batch},
    {"call.batch", "is -1", spoil_call_no_batch},
    {"call.tokens", "is 5", spoil_call_tokens},
    {"call.tokens", "is -1", spoil_call_no_tokens},
    {"call.starts", "is NULL with call.tokens 4", spoil_no_starts},
    {"call.starts", "must be NULL in a uniform call", spoil_starts_alone},
    {"call.starts", "aligned", spoil_starts_odd},
    {"call.starts[0]", "is 1", spoil_first_start},
    {"call.starts[1]", "is -1 after 0", spoil_starts_fall},
    {"call.starts[1]", "is 3 after 0", spoil_starts_far},
    {"call.starts[1]", "is -2147483648 after 0", spoil_starts_overflow},
    {"call.starts[2]", "must be call.tokens, 4", spoil_last_start},
    {"call.window", "is -2", spoil_call_window},
    {"call.softcap", "nan", spoil_call_softcap},
    {"call.softcap", "-inf", spoil_call_softcap_infinite},
    {"call.sinks[3]", "inf", spoil_call_sinks},
    {"call.sinks", "aligned", spoil_call_sinks_odd},
    {"call.alibi_slopes[0]", "nan", spoil_call_slopes},
    {"call.alibi_slopes", "aligned", spoil_call_slopes_odd},
    {"q", "NULL", spoil_q_data},
    {"q.data", "aligned", spoil_q_aligned},
    {"q.batch_stride", "-1", spoil_q_batch},
    {"q.token_stride", "-1", spoil_q_token},
    {"q.head_stride", "9223372036854775807", spoil_q_head},
    {"out", "NULL", spoil_out_data},
    {"out.data", "aligned", spoil_out_aligned},
    {"out.head_stride", "4", spoil_out_overlap},
    {"out.", "stride is 8", spoil_out_tokens},
    {"out.batch_stride", "address space", spoil_out_batch},
    {"kv.size", "0", spoil_kv_size},
    {"kv.k.data", "NULL", spoil_k_data},
    {"kv.v.data", "NULL", spoil_v_data},
    {"kv.k.data", "aligned", spoil_k_aligned},
    {"kv.v.data", "aligned", spoil_v_aligned},
    {"kv.k.batch_stride", "-2", spoil_k_batch},
    {"kv.k.token_stride", "9223372036854775807", spoil_k_token},
    {"kv.k.head_stride", "-1", spoil_k_head},
    {"kv.v.batch_stride", "-2", spoil_v_batch},
    {"kv.v.token_stride", "-3", spoil_v_token},
    {"kv.v.head_stride", "address space", spoil_v_head},
    {"kv.lengths", "NULL", spoil_lengths},
    {"kv.lengths[1]", "-1", spoil_negative_length},
    {"kv.lengths[0]", "max_tokens", spoil_long_length},
    {"kv.lengths[1]", "2147483647", spoil_longest},
    {"kv.bounds", "block-cyclic", spoil_bounds},
    {"kv.page_tokens", "is 0", spoil_page_tokens},
    {"kv.page_tokens", "is -5", spoil_page_tokens_negative},
    {"kv.page_count", "is -1", spoil_page_count},
    {"kv.page_count", NULL, spoil_no_pages},
    {"kv.page_table_stride", "is 0", spoil_page_stride},
    {"kv.page_table_stride", "must be from 0 to 1152921504606846975", spoil_page_stride_wraps},
    {"kv.page_table", "9", spoil_page_index},
    {"kv.page_table", "is 3", spoil_page_beyond},
    {"kv.page_table", "-1", spoil_page_negative},
};
#define MISTAKES ((int)(sizeof mistakes / sizeof *mistakes))

static void expect_refused(small_step *step, ta_plan *plan, const char *named, const char *value)
{
    EXPECT_ERROR(TA_ERR_INVALID, small_step_decode(step, plan), named, value);
    TEST_ASSERT_TRUE_MESSAGE(small_step_untouched(step), named);
}

/* The plan of a step of one rank. */
static ta_plan *make_plan(const small_step *step, ta_device **device)
{
    ta_plan *plan = NULL;
    EXPECT_OK(ta_device_open("host", NULL, device));
    EXPECT_OK(ta_plan_create(NULL, *device, &step->config, &plan));
    return plan;
}

static void test_each_mistake_on_one_rank(void)
{
    ta_device *device;
    small_step step;
    small_step_init(&step, 0, 1);
    ta_plan *plan = make_plan(&step, &device);
    for (int i = 0; i < MISTAKES; ++i) {
        small_step_init(&step, 0, 1);
        mistakes[i].spoil(&step);
        expect_refused(&step, plan, mistakes[i].named, mistakes[i].value);
        small_step_init(&step, 0, 1);
        EXPECT_OK(small_step_decode(&step, plan));
        TEST_ASSERT_TRUE(small_step_right(&step));
    }
    ta_plan_destroy(plan);
    ta_device_close(device);
}

static void test_pointers(void)
{
    ta_device *device;
    small_step s;
    small_step_init(&s, 0, 1);
    ta_plan *plan = make_plan(&s, &device);
    number_poison(TA_F32, s.results, SMALL_ROWS * SMALL_V_DIM);
    number_poison(TA_F32, s.lse, SMALL_ROWS);
    EXPECT_ERROR(TA_ERR_INVALID, ta_decode(NULL, &s.q, &s.kv, &s.out, s.lse, NULL, NULL),
                 "plan is NULL", NULL);
    EXPECT_ERROR(TA_ERR_INVALID, ta_decode(plan, NULL, &s.kv, &s.out, s.lse, NULL, NULL),
                 "q is NULL", NULL);
    EXPECT_ERROR(TA_ERR_INVALID, ta_decode(plan, &s.q, NULL, &s.out, s.lse, NULL, NULL),
                 "kv is NULL", NULL);
    EXPECT_ERROR(TA_ERR_INVALID, ta_decode(plan, &s.q, &s.kv, NULL, s.lse, NULL, NULL),
                 "out is NULL", NULL);
    EXPECT_ERROR(
        TA_ERR_INVALID,
        ta_decode(plan, &s.q, &s.kv, &s.out, (float *)(void *)((char *)s.lse + 2), NULL, NULL),
        "lse", "aligned");
    EXPECT_ERROR(TA_ERR_INVALID, ta_decode(plan, &s.q, &s.kv, &s.out, s.lse, NULL, &s), "stream",
                 "NULL");
    TEST_ASSERT_TRUE(small_step_untouched(&s));
    EXPECT_OK(small_step_decode(&s, plan));
    TEST_ASSERT_TRUE(small_step_right(&s));
    ta_plan_destroy(plan);
    ta_device_close(device);
}

/* With a contiguous map the bounds are checked as well. */
static void test_bounds(void)
{
    static const int32_t late[] = {1, 9}, falling[] = {0, -4}, shorter[] = {0, 6};
    ta_device *device;
    small_step step;
    small_step_init(&step, 0, 1);
    step.config.map.kind = TA_SHARD_CONTIGUOUS;
    step.config.map.block = 0;
    ta_plan *plan = make_plan(&step, &device);
    step.kv.bounds = late;
    expect_refused(&step, plan, "kv.bounds", "1");
    step.kv.bounds = falling;
    expect_refused(&step, plan, "kv.bounds", "-4");
    step.kv.bounds = shorter;
    expect_refused(&step, plan, "kv.bounds", "6");
    step.kv.bounds = bounds;
    step.kv.bounds_stride = 1;
    expect_refused(&step, plan, "kv.bounds_stride", "1");
    step.kv.bounds_stride = -2;
    expect_refused(&step, plan, "kv.bounds_stride", "-2");
    step.kv.bounds_stride = INT64_MAX;
    expect_refused(&step, plan, "kv.bounds_stride is 9223372036854775807", "address space");
    step.kv.bounds = NULL;
    step.kv.bounds_stride = 0;
    EXPECT_OK(small_step_decode(&step, plan));
    TEST_ASSERT_TRUE(small_step_right(&step));
    ta_plan_destroy(plan);
    ta_device_close(device);
}

/* The output may take the place of the query: each row of one lies in the same row of the other. */
static ta_status in_place_rank(ta_group *group, void *context)
{
    ta_device *device;
    ta_plan *plan;
    small_step step;
    small_step_init(&step, ta_group_rank(group), ta_group_size(group));
    step.config.query_placement = *(ta_placement *)context;
    step.out.data = step.query;
    step.out.head_stride = SMALL_K_DIM;
    TA_TRY(ta_device_open("host", NULL, &device));
    TA_TRY(ta_plan_create(group, device, &step.config, &plan));
    TA_TRY(small_step_decode(&step, plan));
    RANK_EXPECT(number_is_poison(TA_F32, step.results, 0));
    for (int i = 0; i < SMALL_ROWS * SMALL_V_DIM; ++i)
        step.results[i] = step.query[i / SMALL_V_DIM * SMALL_K_DIM + i % SMALL_V_DIM];
    RANK_EXPECT(small_step_right(&step));
    ta_plan_destroy(plan);
    ta_device_close(device);
    return TA_OK;
}

static void test_output_in_place_of_the_query(void)
{
    for (int ranks = 1; ranks <= 5; ++ranks)
        for (int placement = TA_PLACE_ALL; placement <= TA_PLACE_ROOT; ++placement) {
            ta_placement query = (ta_placement)placement;
            EXPECT_OK(ta_group_run_threads(ranks, NULL, in_place_rank, &query));
        }
}

/* One rank holds everything; of several nobody knows where their parts end. */
static ta_status boundless_rank(ta_group *group, void *context)
{
    static const int32_t ends[] = {0, 4, SMALL_TOKENS};
    ta_device *device;
    ta_plan *plan;
    small_step step;
    (void)context;
    small_step_init(&step, ta_group_rank(group), ta_group_size(group));
    step.config.map.kind = TA_SHARD_CONTIGUOUS;
    step.config.map.block = 0;
    TA_TRY(ta_device_open("host", NULL, &device));
    TA_TRY(ta_plan_create(group, device, &step.config, &plan));
    TA_TRY(rank_expect_error(TA_ERR_INVALID, small_step_decode(&step, plan), "kv.bounds is NULL",
                             "2 ranks"));
    RANK_EXPECT(small_step_untouched(&step));
    step.kv.bounds = ends;
    TA_TRY(small_step_decode(&step, plan));
    ta_plan_destroy(plan);
    ta_device_close(device);
    return TA_OK;
}

static void test_no_bounds_on_several_ranks(void)
{
    EXPECT_OK(ta_group_run_threads(2, NULL, boundless_rank, NULL));
}

/* A plan on several ranks, and the mistake that one of them makes. */
typedef struct group_mistake {
    const mistake *mistake;
    int rank;
    ta_placement query, out;
    ta_exchange exchange;
} group_mistake;

/* With the output on a root, a rank that only sends does not hear of the others' trouble. */
static bool hears(const group_mistake *g, int rank)
{
    return g->out != TA_PLACE_ROOT || rank == 0 || rank == g->rank;
}

static ta_status spoiled_rank(ta_group *group, void *context)
{
    const group_mistake *g = context;
    int rank = ta_group_rank(group), ranks = ta_group_size(group);
    ta_device *device;
    ta_plan *plan;
    small_step step;
    char named[20];
    small_step_init(&step, rank, ranks);
    step.config.query_placement = g->query;
    step.config.out_placement = g->out;
    step.config.exchange = g->exchange;
    TA_TRY(ta_device_open("host", NULL, &device));
    TA_TRY(ta_plan_create(group, device, &step.config, &plan));
    if (rank == g->rank)
        g->mistake->spoil(&step);
    ta_status status = small_step_decode(&step, plan);
    RANK_EXPECT(small_step_untouched(&step));
    snprintf(named, sizeof named, "rank %d", g->rank);
    if (rank == g->rank)
        RANK_EXPECT(status == TA_ERR_INVALID && strstr(ta_last_error(), g->mistake->named));
    else if (hears(g, rank))
        RANK_EXPECT(status == TA_ERR_INVALID && strstr(ta_last_error(), named));
    else
        RANK_EXPECT(status == TA_OK || strstr(ta_last_error(), named));
    /* The next step finds the plan and the group in order. */
    small_step again;
    small_step_init(&again, rank, ranks);
    TA_TRY(small_step_decode(&again, plan));
    if (g->out == TA_PLACE_ALL && g->query == TA_PLACE_ALL)
        RANK_EXPECT(small_step_right(&again));
    ta_plan_destroy(plan);
    ta_device_close(device);
    return TA_OK;
}

static void test_each_mistake_in_a_group(void)
{
    for (int i = 0; i < MISTAKES; ++i)
        for (int ranks = 2; ranks <= 5; ranks += ranks == 3 ? 2 : 1) {
            group_mistake g = {&mistakes[i], i % ranks, TA_PLACE_ALL, TA_PLACE_ALL,
                               TA_EXCHANGE_AUTO};
            EXPECT_OK(ta_group_run_threads(ranks, NULL, spoiled_rank, &g));
        }
}

static void test_a_mistake_under_every_placement(void)
{
    mistake wrong = {"kv.lengths", "NULL", spoil_lengths};
    for (int query = TA_PLACE_ALL; query <= TA_PLACE_HEADS; ++query)
        for (int out = TA_PLACE_ALL; out <= TA_PLACE_HEADS; ++out)
            for (int ranks = 2; ranks <= 5; ++ranks)
                for (int rank = 0; rank < ranks; ++rank) {
                    group_mistake g = {&wrong, rank, (ta_placement)query, (ta_placement)out,
                                       TA_EXCHANGE_AUTO};
                    EXPECT_OK(ta_group_run_threads(ranks, NULL, spoiled_rank, &g));
                }
}

/* The call says how long messages are, and of one that cannot be read nothing is known: they are as
 * long as those of the others all the same. With the output on a root the ranks don't compare that
 * first. */
static void test_a_call_of_no_size(void)
{
    mistake wrong = {"call.size", "is 1", spoil_call_size};
    static const ta_exchange exchanges[] = {TA_EXCHANGE_BINOMIAL, TA_EXCHANGE_SCATTER,
                                            TA_EXCHANGE_ALL_GATHER};
    for (int exchange = 0; exchange < 3; ++exchange)
        for (int out = TA_PLACE_ALL; out <= TA_PLACE_ROOT; ++out)
            for (int rank = 0; rank < 3; ++rank) {
                group_mistake g = {&wrong, rank, TA_PLACE_ALL, (ta_placement)out,
                                   exchanges[exchange]};
                EXPECT_OK(ta_group_run_threads(3, NULL, spoiled_rank, &g));
            }
}

/* A rank that never makes the step. All others come together. */
static ta_status absent_rank(ta_group *group, void *barrier)
{
    ta_device *device;
    ta_plan *plan;
    small_step step;
    TA_TRY(small_step_open(&step, group, &device, &plan));
    pthread_barrier_wait(barrier);
    if (ta_group_rank(group) != 2) {
        ta_status status = small_step_decode(&step, plan);
        RANK_EXPECT(status == TA_ERR_TIMEOUT && strstr(ta_last_error(), "rank 2 did not arrive"));
        RANK_EXPECT(small_step_untouched(&step));
        /* The group is broken now: the next step fails at once and says the same. */
        status = small_step_decode(&step, plan);
        RANK_EXPECT(status == TA_ERR_TIMEOUT && strstr(ta_last_error(), "rank 2 did not arrive"));
        RANK_EXPECT(small_step_untouched(&step));
    }
    ta_plan_destroy(plan);
    ta_device_close(device);
    return TA_OK;
}

static void test_a_rank_that_skips_the_step(void)
{
    EXPECT_OK(run_and_meet(5, 5, 1500, absent_rank));
}

/* What the ranks answer to a call of other sizes, on a device whose memory the host does not see;
 * it is lost before they can be copied. */
static _Thread_local ta_fault lost_answers[2];
static const ta_device_ops *ops_of_host;

static ta_status copy_no_answer(ta_device *device, void *to, const void *from, size_t bytes,
                                void *stream)
{
    if (to == &lost_answers[0] || to == &lost_answers[1])
        return ta_fail(TA_ERR_DEVICE, "the answers cannot be copied");
    return ops_of_host->copy(device, to, from, bytes, stream);
}

static ta_status unanswered_rank(ta_group *group, void *context)
{
    ta_device *device;
    ta_plan *plan;
    small_step step;
    ta_device_ops losing;
    (void)context;
    small_step_init(&step, ta_group_rank(group), ta_group_size(group));
    step.config.algorithm = TA_ALGORITHM_TREE;
    TA_TRY(ta_device_open("host", NULL, &device));
    TA_TRY(ta_plan_create(group, device, &step.config, &plan));
    losing = *device->ops;
    losing.copy = copy_no_answer;
    device->ops = &losing;
    plan->answers = lost_answers;
    step.starts[1] = 1;
    step.starts[2] = 2;
    small_step_ragged(&step, 2);
    ta_status status = small_step_decode(&step, plan);
    device->ops = ops_of_host;
    plan->answers = NULL;
    RANK_EXPECT(status != TA_OK && strstr(ta_last_error(), "the answers cannot be copied"));
    RANK_EXPECT(small_step_untouched(&step));
    ta_plan_destroy(plan);
    ta_device_close(device);
    return TA_OK;
}

static void test_answers_that_are_lost(void)
{
    ta_device *device;
    EXPECT_OK(ta_device_open("host", NULL, &device));
    ops_of_host = device->ops;
    ta_device_close(device);
    EXPECT_OK(ta_group_run_threads(2, NULL, unanswered_rank, NULL));
}

int main(int argc, char **argv)
{
    if (!options_read(argc, argv))
        return 2;
    UNITY_BEGIN();
    RUN_TEST(test_each_mistake_on_one_rank);
    RUN_TEST(test_pointers);
    RUN_TEST(test_bounds);
    RUN_TEST(test_no_bounds_on_several_ranks);
    RUN_TEST(test_output_in_place_of_the_query);
    RUN_TEST(test_each_mistake_in_a_group);
    RUN_TEST(test_a_mistake_under_every_placement);
    RUN_TEST(test_a_call_of_no_size);
    RUN_TEST(test_a_rank_that_skips_the_step);
    RUN_TEST(test_answers_that_are_lost);
    return UNITY_END() != 0;
}
