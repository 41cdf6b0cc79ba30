/* Attention plans (src/attention/) and the attention of one rank below them
 * (src/host/attention/): results and gradients of random cases against the exact ones, on all grids
 * and layouts; the gradients themselves against finite differences; bits, balance and traffic. */
#include "attention/plan.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <treeattn/attention.h>

#include "lib/attention_check.h"
#include "lib/attention_plan.h"
#include "lib/expect.h"
#include "lib/options.h"

void setUp(void)
{
}

void tearDown(void)
{
}

/* ---- Random cases -------------------------------------------------------------------------- */

static void test_random_cases(void)
{
    uint64_t first = options.one_seed ? options.seed : 1;
    int cases = options.cases ? options.cases : options.one_seed ? 1 : 60;
    for (uint64_t seed = first; seed < first + (uint64_t)cases; ++seed) {
        attention_case c = attention_random_case(seed);
        attention_run run = attention_random_run(seed);
        attention_case_make(&c, run.ranks);
        attention_check(&c, &run);
        attention_case_free(&c);
    }
}

/* ---- All grids, all layouts ---------------------------------------------------------------- */

static attention_case small_case(int length, int query_heads, int kv_heads, int dim)
{
    return attention_small_case(7, TA_F32, length, query_heads, kv_heads, dim);
}

static void test_every_grid_and_layout(void)
{
    static const int ranks[] = {1, 2, 3, 4, 6, 8};
    attention_case c = small_case(101, 4, 2, 24);
    attention_case_make(&c, 8);
    for (size_t i = 0; i < sizeof ranks / sizeof *ranks; ++i)
        for (int rows = 1; rows <= ranks[i]; ++rows)
            for (int kind = TA_SHARD_CONTIGUOUS; kind <= TA_SHARD_WEIGHTED; ++kind) {
                attention_run run = {.ranks = ranks[i],
                                     .grid_rows = rows,
                                     .grid_columns = ranks[i] / rows,
                                     .kind = (ta_shard_kind)kind,
                                     .block = kind % 2}; /* of those that are dealt */
                if (ranks[i] % rows == 0) {
                    attention_check(&c, &run);
                    run.algorithm = TA_ATTENTION_GRID_OVERLAP;
                    attention_check(&c, &run);
                }
                if (rows > 1)
                    continue;
                run.algorithm = TA_ATTENTION_RING;
                run.grid_rows = run.grid_columns = 0;
                attention_check(&c, &run);
            }
    attention_case_free(&c);
}

/* Enough keys that backward divides them, for each thread count; and again. */
static void test_bits_do_not_depend_on_threads_or_runs(void)
{
    attention_case c = small_case(1300, 1, 1, 16);
    attention_run one = {.ranks = 1, .threads = 1}, four = {.ranks = 4, .kind = TA_SHARD_ZIGZAG};
    attention_case_make(&c, 4);
    uint64_t bits = attention_check(&c, &one).bits;
    for (int threads = 1; threads <= 3; ++threads) {
        attention_run again = {.ranks = 1, .threads = threads};
        TEST_ASSERT_EQUAL_HEX64(bits, attention_run_case(&c, &again).bits);
    }
    for (int algorithm = TA_ATTENTION_GRID; algorithm <= TA_ATTENTION_GRID_OVERLAP; ++algorithm) {
        four.algorithm = (ta_attention_algorithm)algorithm;
        bits = attention_check(&c, &four).bits;
        for (int threads = 1; threads <= 3; ++threads) {
            four.threads = threads;
            TEST_ASSERT_EQUAL_HEX64(bits, attention_run_case(&c, &four).bits);
        }
    }
    attention_case_free(&c);
}

/* ---- The exact gradients ------------------------------------------------------------------- */

/* The loss whose gradient by the output is dout. */
static double loss(const attention_case *c)
{
    oracle_problem problem = c->problem;
    oracle_sequence sequence = {c->lengths[0], c->q[0], c->k[0], c->v[0]};
    oracle_row row = {0};
    double sum = 0;
    problem.query_tokens = c->lengths[0];
    for (int token = 0; token < c->lengths[0]; ++token)
        for (int head = 0; head < problem.query_heads; ++head) {
            oracle_attend(&problem, &sequence, token, head, &row);
            for (int d = 0; d < problem.v_dim; ++d)
                sum += row.out[d] *
                       c->dout[0][(token * problem.query_heads + head) * problem.v_dim + d];
        }
    oracle_row_free(&row);
    return sum;
}

/* Five points: the error is of the order of step to the fourth, 1e-12. */
static double difference(const attention_case *c, double *number)
{
    const double h = 1e-3, at = *number;
    double f[5];
    for (int i = -2; i <= 2; ++i) {
        *number = at + i * h;
        f[i + 2] = loss(c);
    }
    *number = at;
    return (f[0] - 8 * f[1] + 8 * f[3] - f[4]) / (12 * h);
}

static void test_exact_gradients_are_finite_differences(void)
{
    for (int softcap = 0; softcap < 2; ++softcap)
        for (int window = 0; window < 6; window += 5) {
            attention_case c = small_case(11, 4, 2, 8);
            c.sequences = 1;
            c.problem.softcap = softcap * 1.5;
            c.problem.window = window;
            attention_case_make(&c, 1);
            int q = 11 * 4 * 8, kv = 11 * 2 * 8;
            for (int i = 0; i < q; i += 5)
                TEST_ASSERT_DOUBLE_WITHIN(1e-9, c.exact[0].dq.value[i], difference(&c, &c.q[0][i]));
            for (int i = 0; i < kv; i += 3)
                TEST_ASSERT_DOUBLE_WITHIN(1e-9, c.exact[0].dk.value[i], difference(&c, &c.k[0][i]));
            for (int i = 0; i < kv; i += 3)
                TEST_ASSERT_DOUBLE_WITHIN(1e-9, c.exact[0].dv.value[i], difference(&c, &c.v[0][i]));
            attention_case_free(&c);
        }
}

/* The bounds are worth something: over all cases above the worst error comes near them. */
static void test_bounds_are_tight(void)
{
    double least = attention_print_worst();
    if (!options.one_seed && !options.cases)
        TEST_ASSERT_TRUE(least >= 0.125);
}

/* ---- Balance and traffic ------------------------------------------------------------------- */

typedef struct balance {
    ta_attention_config config;
    int32_t length;
    int64_t pairs[16];
} balance;

static ta_status count_pairs(ta_group *group, void *context)
{
    balance *b = context;
    attention_rank r;
    TA_TRY(attention_rank_open(&r, group, &b->config));
    ta_attention_input input = TA_ATTENTION_INPUT_INIT;
    ta_attention_work work;
    input.sequences = 1;
    input.lengths = &b->length;
    TA_TRY(ta_attention_count_tokens(r.plan, 1, &b->length));
    ta_attention_find_order(r.plan, &input, -1, -1, &work);
    int64_t pairs = 0;
    for (int32_t i = 0; i < r.plan->order.query_run_count; ++i) {
        const ta_query_run *run = &r.plan->order.query_runs[i];
        int64_t count = ta_query_run_end(&r.plan->order, i) - run->first;
        pairs += count * (run->visible.end - run->visible.first) +
                 (run->moves_end - run->moves_first) * (count * (count - 1) / 2);
    }
    b->pairs[ta_group_rank(group)] = pairs;
    attention_rank_close(&r);
    return TA_OK;
}

static balance count_balance(int rows, int columns, ta_shard_kind kind, int32_t block)
{
    balance b = {.length = 16384, .config = attention_small_config(TA_F32, 8, 16384)};
    b.config.forward_only = 1;
    b.config.map.kind = kind;
    b.config.map.block = block;
    b.config.grid_rows = rows;
    b.config.grid_columns = columns;
    EXPECT_OK(ta_group_run_threads(rows * columns, NULL, count_pairs, &b));
    int64_t sum = 0;
    for (int i = 0; i < rows * columns; ++i)
        sum += b.pairs[i];
    TEST_ASSERT_EQUAL_INT64((int64_t)b.length * (b.length + 1) / 2, sum);
    return b;
}

/* The most score elements of a rank, over the least. */
static double spread(const balance *b)
{
    int64_t most = b->pairs[0], least = b->pairs[0];
    for (int i = 1; i < b->config.grid_rows * b->config.grid_columns; ++i) {
        most = b->pairs[i] > most ? b->pairs[i] : most;
        least = b->pairs[i] < least ? b->pairs[i] : least;
    }
    return (double)most / (double)least;
}

static void test_causal_work_is_balanced(void)
{
    static const int grids[][2] = {{1, 2}, {2, 1}, {2, 2}, {4, 1}, {1, 4}, {2, 3},
                                   {3, 2}, {2, 4}, {4, 2}, {1, 8}, {8, 1}, {4, 4}};
    for (size_t i = 0; i < sizeof grids / sizeof *grids; ++i) {
        balance striped = count_balance(grids[i][0], grids[i][1], TA_SHARD_BLOCK_CYCLIC, 1);
        TEST_ASSERT_TRUE(spread(&striped) < 1.05);
        balance blocks = count_balance(grids[i][0], grids[i][1], TA_SHARD_BLOCK_CYCLIC, 16);
        TEST_ASSERT_TRUE(spread(&blocks) < 1.05);
        balance zigzag = count_balance(grids[i][0], grids[i][1], TA_SHARD_ZIGZAG, 0);
        TEST_ASSERT_TRUE(spread(&zigzag) < 1.05);
    }
    balance contiguous = count_balance(4, 1, TA_SHARD_CONTIGUOUS, 0);
    TEST_ASSERT_TRUE(spread(&contiguous) > 2); /* and the count can tell */
}

static void test_traffic_is_what_the_choice_assumes(void)
{
    attention_case c = small_case(96, 2, 2, 32);
    c.sequences = 1;
    attention_case_make(&c, 8);
    ta_attention_work shape = {
        .query_heads = 2, .kv_heads = 2, .k_dim = 32, .v_dim = 32, .dtype = TA_F32};
    for (int rows = 1; rows <= 8; rows *= 2) {
        attention_run run = {.ranks = 8,
                             .grid_rows = rows,
                             .grid_columns = 8 / rows,
                             .kind = TA_SHARD_BLOCK_CYCLIC,
                             .block = 1};
        attention_result result = attention_check(&c, &run);
        int64_t forward = 12 * ta_attention_traffic(&shape, rows, 8 / rows, 0);
        int64_t backward = 12 * ta_attention_traffic(&shape, rows, 8 / rows, 1);
        /* Beside it only the agreement, in some hundred bytes. */
        TEST_ASSERT_INT64_WITHIN(300, forward, (int64_t)result.traffic.bytes_received);
        TEST_ASSERT_INT64_WITHIN(300, backward, (int64_t)result.traffic_backward.bytes_received);
        run.algorithm = TA_ATTENTION_GRID_OVERLAP;
        result = attention_check(&c, &run);
        TEST_ASSERT_INT64_WITHIN(300, forward, (int64_t)result.traffic.bytes_received);
        TEST_ASSERT_INT64_WITHIN(300, backward, (int64_t)result.traffic_backward.bytes_received);
    }
    attention_run ring = {.ranks = 8, .algorithm = TA_ATTENTION_RING, .kind = TA_SHARD_ZIGZAG};
    attention_result result = attention_check(&c, &ring);
    int64_t block = 12 * 2 * 2 * 32 * 4; /* K and V of the 12 tokens of a rank */
    TEST_ASSERT_INT64_WITHIN(300, 7 * block, (int64_t)result.traffic.bytes_received);
    TEST_ASSERT_INT64_WITHIN(300, 15 * block, (int64_t)result.traffic_backward.bytes_received);
    attention_case_free(&c);
}

int main(int argc, char **argv)
{
    if (!options_read(argc, argv))
        return 2;
    UNITY_BEGIN();
    RUN_TEST(test_exact_gradients_are_finite_differences);
    RUN_TEST(test_random_cases);
    RUN_TEST(test_every_grid_and_layout);
    RUN_TEST(test_bits_do_not_depend_on_threads_or_runs);
    RUN_TEST(test_bounds_are_tight);
    RUN_TEST(test_causal_work_is_balanced);
    RUN_TEST(test_traffic_is_what_the_choice_assumes);
    return UNITY_END() != 0;
}
