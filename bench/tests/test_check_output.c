/* Does the benchmark's own check find what is wrong? Runs a small row through the library, sees
 * it pass, then spoils single results and counts what is found. A check that cannot fail proves
 * nothing. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unity.h>

#include "common/elements.h"
#include "decode/check_output.h"
#include "decode/measure.h"

static decode_options options;
static bench_machine machine;
static bench_case shape;
static kv_arena arena;
static kv_layout layout;
static rank_tensors *tensors;
static bench_result result;

static void no_progress(void *context, double done)
{
    (void)context;
    (void)done;
}

/* Run a row described by flags, as the command does. */
static void run_row(int argc, char **argv)
{
    char error[512] = "";
    int count = 0;
    TEST_ASSERT_EQUAL_MESSAGE(0, options_parse(argc, argv, &options, error, sizeof error), error);
    machine_read(&machine);
    bench_case *cases = options_cases(&options, &machine, &count);
    TEST_ASSERT_NOT_NULL(cases);
    TEST_ASSERT_EQUAL(1, count);
    shape = cases[0];
    free(cases);
    TEST_ASSERT_EQUAL(
        0, kv_arena_alloc(&arena, (size_t)kv_layout_bytes(&options, &shape), shape.pages));
    TEST_ASSERT_EQUAL(0, kv_arena_fill(&arena, shape.kv_dtype, machine.cpus));
    TEST_ASSERT_EQUAL(0, kv_layout_make(&layout, &options, &shape, &arena));
    tensors = tensors_make(&options, &shape);
    TEST_ASSERT_NOT_NULL(tensors);
    measurement m = {&options, &machine, &layout, &tensors, no_progress, NULL};
    result = (bench_result){.row = shape};
    TEST_ASSERT_EQUAL_MESSAGE(TA_OK, measure_rows(&m, &result, 1, error, sizeof error), error);
}

static int64_t count_wrong(void)
{
    TEST_ASSERT_EQUAL(0, check_result(&options, &machine, &layout, tensors, &result));
    return result.wrong;
}

void setUp(void)
{
    element_init();
    tensors = NULL;
    result = (bench_result){0};
}

void tearDown(void)
{
    result_free(&result);
    tensors_free(tensors, &shape);
    kv_layout_free(&layout);
    kv_arena_free(&arena);
    layout = (kv_layout){.row = &shape};
}

static void test_small_errors_are_found(void)
{
    char *flags[] = {"-b300",        "-n1",           "--ranks=3",   "--threads=1",     "--heads=4",
                     "--kv-heads=2", "--head-dim=32", "--dtype=f32", "--query-tokens=2"};
    run_row(9, flags);
    TEST_ASSERT_EQUAL(0, count_wrong());
    /* Every output and lse of every rank. */
    TEST_ASSERT_EQUAL(3 * 2 * 4 * (32 + 1), result.checked);
    TEST_ASSERT_TRUE(result.worst > 0 && result.worst <= 1);

    float *out = tensors[1].out.data;
    out[77] += 0x1p-15f;
    TEST_ASSERT_EQUAL(1, count_wrong());
    TEST_ASSERT_TRUE(result.worst > 1);
    tensors[2].lse[3] += 0x1p-13f;
    TEST_ASSERT_EQUAL(2, count_wrong());
    out[5] = NAN;
    TEST_ASSERT_EQUAL(3, count_wrong());
}

static void test_a_missing_key_is_found(void)
{
    char *flags[] = {
        "-b256",        "-n1",           "--ranks=2",    "--threads=1",  "--heads=2",
        "--kv-heads=2", "--head-dim=64", "--dtype=bf16", "--map=cyclic", "--page-tokens=16"};
    run_row(10, flags);
    TEST_ASSERT_EQUAL(0, count_wrong());
    /* Without the last token of rank 0, the exact result is another one. */
    layout.shards[0].tokens--;
    TEST_ASSERT_GREATER_THAN(0, count_wrong());
}

static void test_rows_outside_the_sample_must_be_possible(void)
{
    /* 2^17 tokens of 16 numbers each: 2^27 / 2^21 = 64 of the 96 rows are in the sample. */
    char *flags[] = {"-b128k",       "-w0",          "-n1",         "--ranks=1",        "--heads=1",
                     "--kv-heads=1", "--head-dim=8", "--dtype=f16", "--query-tokens=96"};
    run_row(9, flags);
    TEST_ASSERT_EQUAL(0, count_wrong());
    TEST_ASSERT_EQUAL(64 * (8 + 1), result.checked);
    memset(tensors[0].out.data, 0xff, 96 * 8 * 2);
    TEST_ASSERT_EQUAL(96 * 8, count_wrong());
}

static void test_statistics(void)
{
    double even[] = {4, 1, 3, 2}, many[200];
    bench_stats stats;
    TEST_ASSERT_EQUAL(0, stats_of(even, 4, &stats));
    TEST_ASSERT_TRUE(stats.min == 1 && stats.median == 2.5 && stats.p99 == 4);
    for (int i = 0; i < 200; i++)
        many[i] = 200 - i;
    TEST_ASSERT_EQUAL(0, stats_of(many, 200, &stats));
    TEST_ASSERT_TRUE(stats.min == 1 && stats.median == 100.5 && stats.p99 == 198);
    TEST_ASSERT_EQUAL(0, stats_of(even, 1, &stats));
    TEST_ASSERT_TRUE(stats.min == 4 && stats.median == 4 && stats.p99 == 4);
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(test_small_errors_are_found);
    RUN_TEST(test_a_missing_key_is_found);
    RUN_TEST(test_rows_outside_the_sample_must_be_possible);
    RUN_TEST(test_statistics);
    return UNITY_END() != 0;
}
