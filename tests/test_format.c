/* Numbers do not follow the locale (src/base/format.c, and all that write or read text): in a
 * program that has called setlocale() for German, whose decimal point is a comma, every text is the
 * same as before, and clusters are read and written as ever. The locale is compiled here, into a
 * scratch directory, so that no machine needs to have it. */
#include "base/format.h"

#include <locale.h>
#include <stdlib.h>
#include <unistd.h>

#include <treeattn/cluster.h>

#include "lib/expect.h"
#include "lib/plan_config.h"

static char scratch[] = "/tmp/test_format_XXXXXX";
static char german[64];

static const char cluster_text[] = "h100:2x2 network.latency_seconds=4.5e-6";

void setUp(void)
{
}

void tearDown(void)
{
    setlocale(LC_ALL, "C");
}

static void speak_german(void)
{
    TEST_ASSERT_NOT_NULL(setlocale(LC_ALL, german));
    TEST_ASSERT_EQUAL_STRING(",", localeconv()->decimal_point);
}

/* A locale with a comma, or 0 where it cannot be made. */
static int make_german(void)
{
    char command[160];
    snprintf(german, sizeof german, "de_DE.UTF-8");
    if (setlocale(LC_ALL, german))
        return 1;
    snprintf(command, sizeof command, "localedef -i de_DE -f UTF-8 %s/%s >%s/log 2>&1", scratch,
             german, scratch);
    (void)!system(command); /* its warnings count as failures: what was made is what matters */
    setenv("LOCPATH", scratch, 1);
    return setlocale(LC_ALL, german) && strcmp(localeconv()->decimal_point, ",") == 0;
}

static ta_cluster *make_cluster(void)
{
    ta_cluster *cluster = NULL;
    EXPECT_OK(ta_cluster_create(cluster_text, &cluster));
    return cluster;
}

static void test_numbers_there_and_back(void)
{
    char text[32], *end;
    speak_german();
    TEST_ASSERT_EQUAL_INT(10, ta_format(text, sizeof text, "%.1f %.2g", 1234.5, 0.5));
    TEST_ASSERT_EQUAL_STRING("1234.5 0.5", text);
    TEST_ASSERT_TRUE(ta_parse_number("2.5x", &end) == 2.5 && *end == 'x');
    TEST_ASSERT_TRUE(ta_parse_number("2,5", &end) == 2 && *end == ',');
}

/* The program's locale and the thread's own are what they were. */
static void test_the_locale_is_left_alone(void)
{
    char text[32];
    speak_german();
    locale_t own = duplocale(LC_GLOBAL_LOCALE);
    TEST_ASSERT_NOT_NULL(own);
    uselocale(own);
    ta_format(text, sizeof text, "%g", 0.5);
    TEST_ASSERT_EQUAL_STRING("0.5", text);
    TEST_ASSERT_TRUE(ta_parse_number("0.25", NULL) == 0.25);
    TEST_ASSERT_TRUE(uselocale((locale_t)0) == own);
    snprintf(text, sizeof text, "%g", 0.5);
    TEST_ASSERT_EQUAL_STRING("0,5", text);
    uselocale(LC_GLOBAL_LOCALE);
    freelocale(own);
    TEST_ASSERT_EQUAL_STRING(german, setlocale(LC_NUMERIC, NULL));
}

static void test_errors_name_numbers_with_a_point(void)
{
    ta_device *device = NULL;
    ta_plan *plan = NULL;
    ta_plan_config config = TA_PLAN_CONFIG_INIT;
    config.batch = config.query_heads = 1;
    config.k_dim = 8;
    config.kv_dtype = TA_F32;
    config.max_tokens = 1;
    config.softcap = -0.5f;
    EXPECT_OK(ta_device_open("host", NULL, &device));
    speak_german();
    EXPECT_ERROR(TA_ERR_INVALID, ta_plan_create(NULL, device, &config, &plan), "softcap", "-0.5");
    ta_device_close(device);
}

/* What ranks do not agree on is named in the same way. */
static ta_status differing_rank(ta_group *group, void *context)
{
    ta_device *device = NULL;
    ta_plan *plan = NULL;
    ta_plan_config config = TA_PLAN_CONFIG_INIT;
    (void)context;
    config.batch = config.query_heads = 1;
    config.k_dim = 8;
    config.kv_dtype = TA_F32;
    config.max_tokens = 1;
    config.map.block = 1;
    config.scale = ta_group_rank(group) ? 0.75f : 0.5f;
    TA_TRY(ta_device_open("host", NULL, &device));
    ta_status status = ta_plan_create(group, device, &config, &plan);
    ta_device_close(device);
    RANK_EXPECT(status == TA_ERR_MISMATCH);
    RANK_EXPECT(strstr(ta_last_error(), "config.scale is 0.75 on rank 1 and 0.5 on rank 0"));
    return TA_OK;
}

static void test_differences_name_numbers_with_a_point(void)
{
    speak_german();
    EXPECT_OK(ta_group_run_threads(2, NULL, differing_rank, NULL));
}

/* A cluster in a file of its own text, as text again. */
static void write_and_read(const ta_cluster *cluster, char *text, size_t capacity)
{
    char path[64];
    ta_cluster *again = NULL;
    snprintf(path, sizeof path, "%s/x.cluster", scratch);
    EXPECT_OK(ta_cluster_text(cluster, text, capacity, NULL));
    FILE *file = fopen(path, "w");
    TEST_ASSERT_NOT_NULL(file);
    fputs(text, file);
    fclose(file);
    EXPECT_OK(ta_cluster_create(path, &again));
    EXPECT_OK(ta_cluster_text(again, text, capacity, NULL));
    ta_cluster_destroy(again);
    unlink(path);
}

static void test_clusters_there_and_back(void)
{
    char plain[4096], text[4096];
    ta_cluster *cluster = make_cluster();
    EXPECT_OK(ta_cluster_text(cluster, plain, sizeof plain, NULL));
    TEST_ASSERT_NOT_NULL(strstr(plain, "network.latency_seconds = 4.5e-06"));
    ta_cluster_destroy(cluster);
    speak_german();
    cluster = make_cluster();
    write_and_read(cluster, text, sizeof text);
    TEST_ASSERT_EQUAL_STRING(plain, text);
    ta_cluster_destroy(cluster);
    EXPECT_ERROR(TA_ERR_INVALID,
                 ta_cluster_create("h100:2x2 network.latency_seconds=4,5e-6", &cluster), "4,5e-6",
                 NULL);
}

typedef struct texts {
    ta_cluster *cluster;
    char decode[8192], decode_json[8192], attention[8192], attention_json[8192];
} texts;

static ta_status explain_decode(ta_group *group, ta_device *device, texts *t)
{
    ta_plan *plan = NULL;
    ta_status status;
    int first = ta_group_rank(group) == 0;
    ta_plan_config config = plan_config(TA_F32, 1, 1, 8, 100);
    config.scale = 0.3f;
    config.map.block = 100;
    config.cluster = t->cluster;
    TA_TRY(ta_plan_create(group, device, &config, &plan));
    status = first ? ta_explain(plan, t->decode, sizeof t->decode, NULL) : TA_OK;
    if (first && status == TA_OK)
        status = ta_explain_json(plan, t->decode_json, sizeof t->decode_json, NULL);
    ta_plan_destroy(plan);
    return status;
}

static ta_status explain_attention(ta_group *group, ta_device *device, texts *t)
{
    ta_attention *plan = NULL;
    ta_status status;
    int first = ta_group_rank(group) == 0;
    ta_attention_config config = TA_ATTENTION_CONFIG_INIT;
    config.query_heads = 1;
    config.k_dim = 8;
    config.dtype = TA_F32;
    config.max_tokens = 100;
    config.cluster = t->cluster;
    TA_TRY(ta_attention_create(group, device, &config, &plan));
    status = first ? ta_attention_explain(plan, t->attention, sizeof t->attention, NULL) : TA_OK;
    if (first && status == TA_OK)
        status = ta_attention_explain_json(plan, t->attention_json, sizeof t->attention_json, NULL);
    ta_attention_destroy(plan);
    return status;
}

static ta_status explain_rank(ta_group *group, void *context)
{
    ta_device *device = NULL;
    ta_device_config config = TA_DEVICE_CONFIG_INIT;
    config.threads = 1;
    TA_TRY(ta_device_open("host", &config, &device));
    ta_status status = explain_decode(group, device, context);
    if (status == TA_OK)
        status = explain_attention(group, device, context);
    ta_device_close(device);
    return status;
}

static void test_explanations_are_the_same(void)
{
    static texts plain, foreign;
    plain.cluster = make_cluster();
    EXPECT_OK(ta_group_run_threads(2, NULL, explain_rank, &plain));
    TEST_ASSERT_NOT_NULL(strstr(plain.decode_json, "."));
    TEST_ASSERT_NOT_NULL(strstr(plain.attention_json, "."));
    speak_german();
    foreign.cluster = plain.cluster;
    EXPECT_OK(ta_group_run_threads(2, NULL, explain_rank, &foreign));
    TEST_ASSERT_EQUAL_STRING(plain.decode, foreign.decode);
    TEST_ASSERT_EQUAL_STRING(plain.decode_json, foreign.decode_json);
    TEST_ASSERT_EQUAL_STRING(plain.attention, foreign.attention);
    TEST_ASSERT_EQUAL_STRING(plain.attention_json, foreign.attention_json);
    ta_cluster_destroy(plain.cluster);
}

static void remove_scratch(void)
{
    char command[64];
    snprintf(command, sizeof command, "rm -rf %s", scratch);
    (void)!system(command);
}

int main(void)
{
    if (!mkdtemp(scratch))
        return 1;
    atexit(remove_scratch);
    if (!make_german()) {
        printf("skipped: no locale %s here, and localedef cannot make one (Debian: package "
               "locales)\n",
               german);
        return 77;
    }
    UNITY_BEGIN();
    RUN_TEST(test_numbers_there_and_back);
    RUN_TEST(test_the_locale_is_left_alone);
    RUN_TEST(test_errors_name_numbers_with_a_point);
    RUN_TEST(test_differences_name_numbers_with_a_point);
    RUN_TEST(test_clusters_there_and_back);
    RUN_TEST(test_explanations_are_the_same);
    return UNITY_END() != 0;
}
