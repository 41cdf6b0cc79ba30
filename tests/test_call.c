/* A call's own window, soft-cap, sinks and slopes (src/decode/call.c): those that it gives take the
 * place of the plan's, the others stay. A step with a call's options has the bits of one whose plan
 * has them. And what else it points to (call_lists.c). */
#include <math.h>

#include "decode/call.h"
#include "lib/expect.h"
#include "lib/small_step.h"

static ta_device *device;
static const float plan_values[SMALL_HEADS] = {0.5f, -1.0f, 2.0f, 0.25f};
static const float call_values[SMALL_HEADS] = {1.5f, 0.75f, -0.5f, 3.0f};

typedef enum option { WINDOW, SOFTCAP, SINKS, SLOPES, OPTIONS } option;

void setUp(void)
{
    ta_device_config one_thread = TA_DEVICE_CONFIG_INIT;
    one_thread.threads = 1;
    EXPECT_OK(ta_device_open("host", &one_thread, &device));
}

void tearDown(void)
{
    ta_device_close(device);
    device = NULL;
}

/* Give the plan one of its options: none, the first or the second value. */
static void set_plan(ta_plan_config *config, option which, int value)
{
    const float *values = value == 0 ? NULL : value == 1 ? plan_values : call_values;
    if (which == WINDOW)
        config->window = value ? 1 + value : 0;
    if (which == SOFTCAP)
        config->softcap = 0.5f * (float)value;
    if (which == SINKS)
        config->sinks = values;
    if (which == SLOPES)
        config->alibi_slopes = values;
}

static void set_call(ta_call *call, option which)
{
    if (which == WINDOW)
        call->window = 3;
    if (which == SOFTCAP)
        call->softcap = 1.0f;
    if (which == SINKS)
        call->sinks = call_values;
    if (which == SLOPES)
        call->alibi_slopes = call_values;
}

/* Decode with a plan that has `value` of all options but `which`, of which it has `own`. */
static void decode(small_step *step, option which, int value, int own)
{
    ta_plan *plan = NULL;
    for (int i = 0; i < OPTIONS; ++i)
        set_plan(&step->config, (option)i, i == (int)which ? own : value);
    EXPECT_OK(ta_plan_create(NULL, device, &step->config, &plan));
    EXPECT_OK(small_step_decode(step, plan));
    ta_plan_destroy(plan);
}

static void expect_same(const small_step *a, const small_step *b, int same, const char *what)
{
    int equal = memcmp(a->results, b->results, sizeof a->results) == 0 &&
                memcmp(a->lse, b->lse, sizeof a->lse) == 0;
    TEST_ASSERT_EQUAL_INT_MESSAGE(same, equal, what);
}

static void test_a_call_s_options(void)
{
    static const char *const names[OPTIONS] = {"window", "softcap", "sinks", "slopes"};
    for (int i = 0; i < OPTIONS; ++i) {
        option which = (option)i;
        small_step of_plan, of_call, of_both, without, tagged;
        small_step *all[] = {&of_plan, &of_call, &of_both, &without, &tagged};
        for (size_t s = 0; s < sizeof all / sizeof *all; ++s)
            small_step_init(all[s], 0, 1);
        decode(&of_plan, which, 1, 2);
        decode(&without, which, 1, 0);
        set_call(&of_call.call, which);
        decode(&of_call, which, 1, 0);
        set_call(&of_both.call, which);
        decode(&of_both, which, 1, 1);
        tagged.call.tag = 7; /* a call that gives none of them */
        decode(&tagged, which, 1, 2);
        expect_same(&of_call, &of_plan, 1, names[i]);
        expect_same(&of_both, &of_plan, 1, names[i]);
        expect_same(&tagged, &of_plan, 1, names[i]);
        expect_same(&without, &of_plan, 0, names[i]);
    }
}

/* Below 0: none, whatever the plan has. */
static void test_no_window_and_no_softcap(void)
{
    small_step none, step;
    ta_plan *plan = NULL;
    small_step_init(&none, 0, 1);
    small_step_init(&step, 0, 1);
    decode(&none, WINDOW, 0, 0);
    step.config.window = 2;
    step.config.softcap = 0.5f;
    EXPECT_OK(ta_plan_create(NULL, device, &step.config, &plan));
    EXPECT_OK(small_step_decode(&step, plan));
    expect_same(&step, &none, 0, "the plan's");
    step.call.window = -1;
    EXPECT_OK(small_step_decode(&step, plan));
    expect_same(&step, &none, 0, "the plan's soft-cap");
    step.call.softcap = -1.0f;
    EXPECT_OK(small_step_decode(&step, plan));
    expect_same(&step, &none, 1, "none");
    ta_plan_destroy(plan);
}

/* Each is refused by its name, also what is only wrong in one of the heads. */
static void test_wrong_options(void)
{
    small_step step;
    ta_plan *plan = NULL;
    float values[SMALL_HEADS] = {0, 0, 0, NAN};
    small_step_init(&step, 0, 1);
    EXPECT_OK(ta_plan_create(NULL, device, &step.config, &plan));
    step.call.window = -2;
    EXPECT_ERROR(TA_ERR_INVALID, small_step_decode(&step, plan), "call.window is -2",
                 "-1 for none");
    step.call = (ta_call)TA_CALL_INIT;
    step.call.softcap = INFINITY;
    EXPECT_ERROR(TA_ERR_INVALID, small_step_decode(&step, plan), "call.softcap is inf", "finite");
    step.call = (ta_call)TA_CALL_INIT;
    step.call.sinks = values;
    EXPECT_ERROR(TA_ERR_INVALID, small_step_decode(&step, plan), "call.sinks[3] is nan", "finite");
    values[0] = -INFINITY;
    EXPECT_ERROR(TA_ERR_INVALID, small_step_decode(&step, plan), "call.sinks[0] is -inf", "finite");
    step.call = (ta_call)TA_CALL_INIT;
    values[0] = 0;
    step.call.alibi_slopes = values;
    EXPECT_ERROR(TA_ERR_INVALID, small_step_decode(&step, plan), "call.alibi_slopes[3] is nan",
                 "finite");
    step.call.alibi_slopes = (const float *)((const char *)call_values + 1);
    EXPECT_ERROR(TA_ERR_INVALID, small_step_decode(&step, plan), "call.alibi_slopes", "aligned");
    step.call = (ta_call)TA_CALL_INIT;
    step.call.sinks = (const float *)((const char *)call_values + 2);
    EXPECT_ERROR(TA_ERR_INVALID, small_step_decode(&step, plan), "call.sinks", "aligned");
    TEST_ASSERT_TRUE(small_step_untouched(&step));
    ta_plan_destroy(plan);
}

/* Fewer query tokens than a call of all sequences has are the plan's most, however they come. */
static void test_the_most_tokens(void)
{
    small_step step;
    ta_plan *plan = NULL;
    small_step_init(&step, 0, 1);
    step.config.max_call_tokens = SMALL_BATCH * SMALL_QUERY_TOKENS - 1;
    EXPECT_OK(ta_plan_create(NULL, device, &step.config, &plan));
    EXPECT_ERROR(TA_ERR_INVALID, small_step_decode(&step, plan),
                 "call.tokens is 0, so 2 sequences have 2 query tokens each",
                 "config.max_call_tokens 3");
    TEST_ASSERT_TRUE(small_step_untouched(&step));
    step.call.batch = 1;
    EXPECT_OK(small_step_decode(&step, plan));
    step.call.batch = 0;
    small_step_ragged(&step, SMALL_BATCH * SMALL_QUERY_TOKENS);
    EXPECT_ERROR(TA_ERR_INVALID, small_step_decode(&step, plan), "call.tokens is 4",
                 "from 1 to config.max_call_tokens, 3,");
    TEST_ASSERT_TRUE(small_step_untouched(&step));
    step.starts[SMALL_BATCH] = SMALL_BATCH * SMALL_QUERY_TOKENS - 1;
    small_step_ragged(&step, SMALL_BATCH * SMALL_QUERY_TOKENS - 1);
    EXPECT_OK(small_step_decode(&step, plan));
    ta_plan_destroy(plan);
}

/* As many as all sequences of the call have, or as the call says. */
static void test_rows(void)
{
    small_step step;
    ta_step read = {0};
    ta_plan *plan = NULL;
    small_step_init(&step, 0, 1);
    EXPECT_OK(ta_plan_create(NULL, device, &step.config, &plan));
    for (int batch = 0; batch <= SMALL_BATCH; ++batch) {
        int sequences = batch ? batch : SMALL_BATCH;
        step.call.batch = batch;
        EXPECT_OK(ta_call_read(plan, &step.call, &read));
        TEST_ASSERT_EQUAL_INT(sequences, read.problem.batch);
        TEST_ASSERT_EQUAL_INT64(sequences * SMALL_QUERY_TOKENS, read.problem.rows);
        TEST_ASSERT_NULL(read.problem.starts);
    }
    step.starts[1] = step.starts[2] = 1;
    small_step_ragged(&step, 1);
    EXPECT_OK(ta_call_read(plan, &step.call, &read));
    TEST_ASSERT_EQUAL_INT64(1, read.problem.rows);
    TEST_ASSERT_EQUAL_PTR(step.starts, read.problem.starts);
    ta_plan_destroy(plan);
}

/* What a call points to is read as words. */
static void test_odd_addresses(void)
{
    static const int32_t words[16];
    const int32_t *odd = (const int32_t *)((const char *)words + 2);
    small_step step;
    ta_plan *plan = NULL;
    small_step_init(&step, 0, 1);
    step.config.shared_prefixes = 1;
    EXPECT_OK(ta_plan_create(NULL, device, &step.config, &plan));
    step.call.tokens = SMALL_BATCH * SMALL_QUERY_TOKENS;
    step.call.starts = odd;
    EXPECT_ERROR(TA_ERR_INVALID, small_step_decode(&step, plan), "call.starts is", "aligned");
    step.call = (ta_call)TA_CALL_INIT;
    step.call.selected = odd;
    step.call.selected_count = 1;
    EXPECT_ERROR(TA_ERR_INVALID, small_step_decode(&step, plan), "call.selected is", "aligned");
    step.call = (ta_call)TA_CALL_INIT;
    step.call.prefix_groups = SMALL_BATCH;
    step.call.prefix_starts = odd;
    step.call.prefix_lengths = words;
    EXPECT_ERROR(TA_ERR_INVALID, small_step_decode(&step, plan), "call.prefix_starts is",
                 "aligned");
    step.call.prefix_starts = words;
    step.call.prefix_lengths = odd;
    EXPECT_ERROR(TA_ERR_INVALID, small_step_decode(&step, plan), "call.prefix_lengths is",
                 "aligned");
    TEST_ASSERT_TRUE(small_step_untouched(&step));
    ta_plan_destroy(plan);
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(test_a_call_s_options);
    RUN_TEST(test_no_window_and_no_softcap);
    RUN_TEST(test_wrong_options);
    RUN_TEST(test_the_most_tokens);
    RUN_TEST(test_rows);
    RUN_TEST(test_odd_addresses);
    return UNITY_END() != 0;
}
