/* Attention plans on the GPU kernels (hip/attention/), on the executor or, built without it, on the
 * GPU that `--device` names, where `--ranks` says how many there are: results and gradients of
 * random cases against the exact ones, on one GPU, and with a GPU for each rank on grids and rings.
 * `--seed N` runs that random case alone. test_gpu_attention_plan.c has the slots below. */
#include <math.h>
#include <stdio.h>

#include <treeattn/attention.h>

#include "lib/attention_check.h"
#include "lib/expect.h"
#include "lib/options.h"
#ifdef TA_SIMT
#include "simt/simt_control.h"
#endif

static bool own_devices = true; /* of the ranks, which a group joins; otherwise they share one */

void setUp(void)
{
    options.ccl = false;
#ifdef TA_SIMT
    options.device = "simt";
    attention_settings = simt_settings;
#endif
}

void tearDown(void)
{
}

/* Small: the executor multiplies some thousand times slower than a GPU. */
static attention_case random_case(uint64_t seed)
{
    static const int dims[] = {8, 24, 64, 64, 80, 96, 128, 128, 192, 256};
    attention_sizes sizes = {.dims = dims,
                             .dim_count = sizeof dims / sizeof *dims,
                             .kv_heads = 2,
                             .heads_per_kv_head = 3,
                             .window = 50,
                             .least_sequences = 1,
                             .work = 30000,
                             .longest = 110};
    return attention_random_sized(seed, &sizes);
}

static void test_random_cases(void)
{
    uint64_t first = options.one_seed ? options.seed : 1;
    int cases = options.cases ? options.cases : options.one_seed ? 1 : 24;
    for (uint64_t seed = first; seed < first + (uint64_t)cases; ++seed) {
        attention_case c = random_case(seed);
        attention_run run = {.ranks = 1, .kind = TA_SHARD_CONTIGUOUS};
        attention_case_make(&c, 1);
        attention_check(&c, &run);
        attention_case_free(&c);
    }
}

static void test_every_type_and_dimension(void)
{
    static const int dims[] = {64, 80, 96, 128, 192, 256};
    uint64_t number = 0;
    for (int dtype = TA_F32; dtype < NUMBER_DTYPE_END; ++dtype)
        for (size_t i = 0; i < sizeof dims / sizeof *dims; ++i) {
            attention_case c = attention_small_case(8, (ta_dtype)dtype, 37, 1, 1, dims[i]);
            attention_run run = {.ranks = 1, .kind = TA_SHARD_CONTIGUOUS};
            if (!options_chosen(number++))
                continue;
            attention_case_make(&c, 1);
            attention_check(&c, &run);
            attention_case_free(&c);
        }
}

/* The same bits in every run, and a GPU for each rank where there are so many. */
static void test_groups(void)
{
    static const struct {
        ta_attention_algorithm algorithm;
        int rows, columns, ranks;
        ta_shard_kind kind;
    } groups[] = {{TA_ATTENTION_GRID, 1, 2, 2, TA_SHARD_ZIGZAG},
                  {TA_ATTENTION_GRID, 2, 1, 2, TA_SHARD_CONTIGUOUS},
                  {TA_ATTENTION_GRID, 2, 2, 4, TA_SHARD_BLOCK_CYCLIC},
                  {TA_ATTENTION_GRID, 3, 1, 3, TA_SHARD_ZIGZAG},
                  {TA_ATTENTION_GRID, 2, 3, 6, TA_SHARD_ZIGZAG},
                  {TA_ATTENTION_RING, 0, 0, 3, TA_SHARD_ZIGZAG},
                  {TA_ATTENTION_RING, 0, 0, 4, TA_SHARD_BLOCK_CYCLIC},
                  {TA_ATTENTION_GRID_OVERLAP, 2, 2, 4, TA_SHARD_ZIGZAG},
                  {TA_ATTENTION_GRID_OVERLAP, 3, 2, 6, TA_SHARD_BLOCK_CYCLIC}};
    enum { COUNT = sizeof groups / sizeof *groups };
    options.ccl = own_devices;
    for (int dtype = TA_F32; dtype < NUMBER_DTYPE_END; ++dtype) {
        attention_case c = attention_small_case(8, (ta_dtype)dtype, 53, 4, 2, 24);
        c.seed += (uint64_t)dtype; /* bf16: rows that are not aligned */
        attention_case_make(&c, 6);
        for (int i = 0; i < COUNT; ++i) {
            attention_run run = {.algorithm = groups[i].algorithm,
                                 .ranks = groups[i].ranks,
                                 .grid_rows = groups[i].rows,
                                 .grid_columns = groups[i].columns,
                                 .kind = groups[i].kind};
            if (!options_chosen((uint64_t)(dtype * COUNT + i)) || !options_ranks(run.ranks))
                continue;
            run.block = run.kind == TA_SHARD_BLOCK_CYCLIC ? 1 : 0;
            uint64_t bits = attention_check(&c, &run).bits;
            TEST_ASSERT_EQUAL_HEX64(bits, attention_run_case(&c, &run).bits);
        }
        attention_case_free(&c);
    }
}

/* The same over groups of host memory: through pinned memory, and the same bits. */
static void test_groups_of_host_memory(void)
{
    attention_case c = attention_small_case(8, TA_BF16, 41, 2, 1, 32);
    attention_run runs[] = {{.ranks = 3, .algorithm = TA_ATTENTION_RING, .kind = TA_SHARD_ZIGZAG},
                            {.ranks = 4, .grid_rows = 2, .grid_columns = 2},
                            {.ranks = 4,
                             .algorithm = TA_ATTENTION_GRID_OVERLAP,
                             .grid_rows = 2,
                             .grid_columns = 2,
                             .kind = TA_SHARD_ZIGZAG}};
    attention_case_make(&c, 4);
    for (size_t i = 0; i < sizeof runs / sizeof *runs; ++i) {
        options.ccl = false;
        uint64_t bits = attention_check(&c, &runs[i]).bits;
        options.ccl = own_devices;
        if (options_ranks(runs[i].ranks))
            TEST_ASSERT_EQUAL_HEX64(bits, attention_check(&c, &runs[i]).bits);
    }
    attention_case_free(&c);
}

int main(int argc, char **argv)
{
    if (!options_read(argc, argv))
        return 2;
#ifndef TA_SIMT
    own_devices = options.ccl;
#endif
    UNITY_BEGIN();
    RUN_TEST(test_random_cases);
    if (!options.one_seed) {
        RUN_TEST(test_every_type_and_dimension);
        RUN_TEST(test_groups);
        RUN_TEST(test_groups_of_host_memory);
    }
    (void)attention_print_worst();
    options_left_out();
    return UNITY_END() != 0;
}
