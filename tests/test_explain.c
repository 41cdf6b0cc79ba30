/* A plan in words (src/decode/explain.c): every fact of the config appears, and the text rules
 * hold. */
#include <treeattn/cluster.h>

#include "group/group.h"
#include "lib/expect.h"
#include "lib/small_step.h"

static char text[4000];

void setUp(void)
{
    text[0] = '\0';
}

void tearDown(void)
{
}

static void expect_says(const char *words)
{
    if (!strstr(text, words)) {
        char message[4200];
        snprintf(message, sizeof message, "\"%s\" is not in: %s", words, text);
        TEST_FAIL_MESSAGE(message);
    }
}

static void explain(const ta_plan_config *config)
{
    ta_device *device;
    ta_plan *plan;
    EXPECT_OK(ta_device_open("host", NULL, &device));
    EXPECT_OK(ta_plan_create(NULL, device, config, &plan));
    EXPECT_OK(ta_explain(plan, text, sizeof text, NULL));
    ta_plan_destroy(plan);
    ta_device_close(device);
}

static void test_every_fact_is_there(void)
{
    static const float numbers[] = {1, 2, 3, 4};
    small_step step;
    small_step_init(&step, 0, 1);
    step.config.query_dtype = TA_BF16;
    step.config.out_dtype = TA_F16;
    step.config.mask = TA_MASK_FULL;
    step.config.window = 77;
    step.config.scale = 0.375f;
    step.config.softcap = 30;
    step.config.alibi_slopes = step.config.sinks = numbers;
    step.config.map.block = 19;
    step.config.max_tokens = 123;
    explain(&step.config);
    static const char *const facts[] = {"host", "batch: 2", "4 query", "2 kv",      "16 k",
                                        "8 v",  "bf16",     "f32 kv",  "f16 out",   "full",
                                        "77",   "0.375",    "30",      "ALiBi",     "sink",
                                        "19",   "123",      "tree",    "workspace", "block-cyclic"};
    for (size_t i = 0; i < sizeof facts / sizeof *facts; ++i)
        expect_says(facts[i]);
}

static void test_what_is_not_asked_is_not_said(void)
{
    small_step step;
    small_step_init(&step, 0, 1);
    explain(&step.config);
    expect_says("causal");
    TEST_ASSERT_NULL(strstr(text, "ALiBi"));
    TEST_ASSERT_NULL(strstr(text, "softcap"));
    TEST_ASSERT_NULL(strstr(text, "sinks"));
    TEST_ASSERT_NULL(strstr(text, "window"));
}

static void test_lines_have_keys(void)
{
    small_step step;
    small_step_init(&step, 0, 1);
    explain(&step.config);
    for (const char *line = text; *line; line = strchr(line, '\n') + 1) {
        const char *colon = strstr(line, ": "), *end = strchr(line, '\n');
        TEST_ASSERT_TRUE_MESSAGE(end && colon && colon < end, line);
    }
}

static void test_text_rules(void)
{
    small_step step;
    ta_device *device;
    ta_plan *plan;
    char whole[4000];
    size_t needed = 0;
    small_step_init(&step, 0, 1);
    EXPECT_OK(ta_device_open("host", NULL, &device));
    EXPECT_OK(ta_plan_create(NULL, device, &step.config, &plan));
    EXPECT_OK(ta_explain(plan, NULL, 0, &needed));
    EXPECT_OK(ta_explain(plan, whole, sizeof whole, NULL));
    TEST_ASSERT_EQUAL_size_t(needed, strlen(whole) + 1);
    for (size_t capacity = 1; capacity <= needed + 1; ++capacity) {
        memset(text, '#', needed + 2);
        EXPECT_OK(ta_explain(plan, text, capacity, NULL));
        size_t kept = capacity < needed ? capacity - 1 : needed - 1;
        TEST_ASSERT_EQUAL_size_t(kept, strlen(text));
        TEST_ASSERT_EQUAL_STRING_LEN(whole, text, kept);
        TEST_ASSERT_EQUAL_INT('#', text[capacity > needed ? needed : capacity]);
    }
    needed = 5;
    EXPECT_ERROR(TA_ERR_INVALID, ta_explain(NULL, text, 10, &needed), "plan is NULL", NULL);
    EXPECT_ERROR(TA_ERR_INVALID, ta_explain(plan, NULL, 10, &needed), "text is NULL", "10");
    TEST_ASSERT_EQUAL_size_t(5, needed);
    ta_plan_destroy(plan);
    ta_device_close(device);
}

/* What the last step did is counted. On the host nothing is launched or copied. */
static void test_the_last_step(void)
{
    small_step step;
    ta_device *device;
    ta_plan *plan;
    small_step_init(&step, 0, 1);
    EXPECT_OK(ta_device_open("host", NULL, &device));
    EXPECT_OK(ta_plan_create(NULL, device, &step.config, &plan));
    EXPECT_OK(ta_explain(plan, text, sizeof text, NULL));
    expect_says("steps: 0\n");
    TEST_ASSERT_NULL(strstr(text, "last step"));
    for (int i = 0; i < 3; ++i)
        EXPECT_OK(small_step_decode(&step, plan));
    EXPECT_OK(ta_explain(plan, text, sizeof text, NULL));
    expect_says("steps: 3\n");
    expect_says("last step launches: 0\n");
    expect_says("last step waits: 0\n");
    expect_says("last step copies: 0 bytes to the device, 0 bytes from it\n");
    expect_says("last step exchange: 0 messages and 0 bytes sent, 0 messages and 0 bytes received");
    ta_plan_destroy(plan);
    ta_device_close(device);
}

static ta_status explain_rank(ta_group *group, void *context)
{
    small_rank r;
    char own[4000], expected[100];
    (void)context;
    small_step_init(&r.step, ta_group_rank(group), ta_group_size(group));
    r.step.config.query_placement = TA_PLACE_HEADS;
    r.step.config.out_placement = TA_PLACE_ROOT;
    r.step.config.out_root = 2;
    TA_TRY(ta_device_open("host", NULL, &r.device));
    TA_TRY(ta_plan_create(group, r.device, &r.step.config, &r.plan));
    TA_TRY(ta_explain(r.plan, own, sizeof own, NULL));
    snprintf(expected, sizeof expected, "%d ranks, this is rank %d", ta_group_size(group),
             ta_group_rank(group));
    RANK_EXPECT(strstr(own, expected));
    RANK_EXPECT(strstr(own, "heads"));
    RANK_EXPECT(strstr(own, "root"));
    RANK_EXPECT(strstr(own, "3 rounds"));
    ta_group_stats before = group->stats, after;
    TA_TRY(small_step_decode(&r.step, r.plan));
    TA_TRY(ta_explain(r.plan, own, sizeof own, NULL));
    after = group->stats;
    snprintf(expected, sizeof expected, "last step exchange: %d messages and %d bytes sent, ",
             (int)(after.messages_sent - before.messages_sent),
             (int)(after.bytes_sent - before.bytes_sent));
    RANK_EXPECT(after.messages_sent + after.messages_received >
                before.messages_sent + before.messages_received);
    RANK_EXPECT(strstr(own, expected));
    return small_rank_close(&r);
}

static void test_ranks_and_rounds(void)
{
    EXPECT_OK(ta_group_run_threads(5, NULL, explain_rank, NULL));
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(test_every_fact_is_there);
    RUN_TEST(test_what_is_not_asked_is_not_said);
    RUN_TEST(test_lines_have_keys);
    RUN_TEST(test_text_rules);
    RUN_TEST(test_the_last_step);
    RUN_TEST(test_ranks_and_rounds);
    return UNITY_END() != 0;
}
