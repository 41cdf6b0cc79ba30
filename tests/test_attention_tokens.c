/* Orders of queries and keys (src/attention/tokens.c, src/device/attention.h): written out, they
 * say what going through all positions one by one says; and finding them takes as many steps as
 * there are blocks, whatever the number of tokens. */
#include <stdlib.h>
#include <string.h>

#include "attention/plan.h"
#include "base/shard_map.h"
#include "lib/expect.h"

#define MOST_RANKS 64

void setUp(void)
{
}

void tearDown(void)
{
}

/* As much of a plan as tokens.c looks at. */
typedef struct half_plan {
    ta_attention a;
    int32_t counts[MOST_RANKS];
    int32_t starts[2][MOST_RANKS + 1], taken[2][MOST_RANKS], turn_starts[MOST_RANKS + 1];
} half_plan;

static const int32_t weights[MOST_RANKS] = {2, 1, 0, 3, 1, 1};

typedef struct layout {
    ta_shard_kind kind;
    int32_t block;
    int grid_rows, grid_columns;
    int32_t causal, window;
} layout;

static half_plan *make_plan(const layout *l, int rank, int32_t max_tokens, size_t runs)
{
    half_plan *p = calloc(1, sizeof *p);
    ta_attention *a = &p->a;
    TEST_ASSERT_NOT_NULL(p);
    a->rank = rank;
    a->ranks = l->grid_rows * l->grid_columns;
    a->grid_rows = l->grid_rows;
    a->grid_columns = l->grid_columns;
    a->map = (ta_shard_map)TA_SHARD_MAP_INIT;
    a->map.kind = l->kind;
    a->map.block = l->block;
    a->map.ranks = a->ranks;
    if (l->kind == TA_SHARD_WEIGHTED) {
        ta_shard_find_turns(weights, a->ranks, p->turn_starts);
        a->map.bounds = p->turn_starts;
    }
    a->causal = l->causal;
    a->window = l->window;
    a->max_tokens = max_tokens;
    a->counts = p->counts;
    a->row = (ta_line){.ranks = l->grid_columns, .starts = p->starts[0], .taken = p->taken[0]};
    a->column = (ta_line){.ranks = l->grid_rows, .starts = p->starts[1], .taken = p->taken[1]};
    a->order.query_runs = calloc(runs, sizeof *a->order.query_runs);
    a->order.key_runs = calloc(runs, sizeof *a->order.key_runs);
    TEST_ASSERT_TRUE(a->order.query_runs && a->order.key_runs);
    return p;
}

static void free_plan(half_plan *p)
{
    free(p->a.order.query_runs);
    free(p->a.order.key_runs);
    free(p);
}

/* ---- One position after the other ------------------------------------------------------------ */

#define MOST_TOKENS 512

typedef struct slow_order {
    int32_t queries, keys;
    int32_t query_rows[MOST_TOKENS], key_rows[MOST_TOKENS];
    ta_visible visible[MOST_TOKENS];
} slow_order;

/* The keys of this sequence are numbered from `first_key` on and have these positions. */
static ta_visible see(const layout *l, const int32_t *positions, int32_t first_key, int32_t keys,
                      int32_t x)
{
    ta_visible seen = {first_key, first_key};
    for (int32_t i = 0; i < keys; ++i) {
        seen.first += l->window > 0 && positions[i] <= x - l->window;
        seen.end += !l->causal || positions[i] <= x;
    }
    return seen;
}

static void find_slowly(const ta_attention *a, const layout *l, int32_t sequences,
                        const int32_t *lengths, int query_rank, int key_rank, slow_order *o)
{
    int32_t base[MOST_RANKS] = {0}; /* tokens of each rank in the sequences before */
    memset(o, 0, sizeof *o);
    for (int32_t s = 0; s < sequences; ++s) {
        ta_shard_map map = ta_attention_map(a, lengths[s]);
        if (map.kind == TA_SHARD_WEIGHTED)
            map.bounds = weights;
        int32_t positions[MOST_TOKENS], first_key = o->keys;
        for (int pass = 0; pass < 2; ++pass) /* keys, then queries */
            for (int32_t x = 0; x < lengths[s]; ++x) {
                int owner;
                int32_t local;
                EXPECT_OK(ta_shard_locate(&map, x, &owner, &local));
                local += base[owner];
                int row = owner / a->grid_columns, column = owner % a->grid_columns;
                if (!pass && key_rank < 0 && column == a->rank % a->grid_columns)
                    o->key_rows[o->keys] = a->column.starts[row] + local;
                else if (!pass && owner == key_rank)
                    o->key_rows[o->keys] = local;
                else if (pass && query_rank < 0 && row == a->rank / a->grid_columns)
                    o->query_rows[o->queries] = a->row.starts[column] + local;
                else if (pass && owner == query_rank)
                    o->query_rows[o->queries] = local;
                else
                    continue;
                if (!pass)
                    positions[o->keys++ - first_key] = x;
                else
                    o->visible[o->queries++] = see(l, positions, first_key, o->keys - first_key, x);
            }
        for (int rank = 0; rank < a->ranks; ++rank) {
            int32_t count;
            EXPECT_OK(ta_shard_count(&map, rank, lengths[s], &count));
            base[rank] += count;
        }
    }
}

static void check_order(ta_attention *a, const layout *l, int32_t sequences, const int32_t *lengths,
                        int query_rank, int key_rank)
{
    static slow_order slow;
    int32_t rows[MOST_TOKENS], keys[MOST_TOKENS];
    ta_visible visible[MOST_TOKENS];
    char what[160];
    ta_attention_input input = TA_ATTENTION_INPUT_INIT;
    ta_attention_work work;
    input.sequences = sequences;
    input.lengths = lengths;
    snprintf(what, sizeof what,
             "kind %d, block %d, grid %d x %d, causal %d, window %d, rank %d, queries of %d, keys "
             "of %d",
             (int)l->kind, (int)l->block, l->grid_rows, l->grid_columns, (int)l->causal,
             (int)l->window, a->rank, query_rank, key_rank);
    EXPECT_OK(ta_attention_count_tokens(a, sequences, lengths));
    ta_attention_find_order(a, &input, query_rank, key_rank, &work);
    find_slowly(a, l, sequences, lengths, query_rank, key_rank, &slow);
    TEST_ASSERT_EQUAL_INT32_MESSAGE(slow.queries, work.queries, what);
    TEST_ASSERT_EQUAL_INT32_MESSAGE(slow.keys, work.keys, what);
    int32_t half = work.queries / 2; /* in two parts, as threads do it */
    ta_order_write_queries(&a->order, 0, half, rows, visible);
    ta_order_write_queries(&a->order, half, work.queries, rows, visible);
    ta_order_write_keys(&a->order, 0, work.keys, keys);
    for (int32_t i = 0; i < work.queries; ++i) {
        TEST_ASSERT_EQUAL_INT32_MESSAGE(slow.query_rows[i], rows[i], what);
        TEST_ASSERT_EQUAL_INT32_MESSAGE(slow.visible[i].first, visible[i].first, what);
        TEST_ASSERT_EQUAL_INT32_MESSAGE(slow.visible[i].end, visible[i].end, what);
    }
    for (int32_t i = 0; i < work.keys; ++i)
        TEST_ASSERT_EQUAL_INT32_MESSAGE(slow.key_rows[i], keys[i], what);
}

static void check_layout(const layout *l)
{
    static const int32_t lengths[] = {37, 0, 1, 64, 2, 90};
    int ranks = l->grid_rows * l->grid_columns;
    for (int rank = 0; rank < ranks; ++rank) {
        half_plan *p = make_plan(l, rank, MOST_TOKENS, MOST_TOKENS);
        check_order(&p->a, l, 6, lengths, -1, -1);
        for (int key_rank = 0; key_rank < ranks; ++key_rank) {
            check_order(&p->a, l, 6, lengths, rank, key_rank);
            check_order(&p->a, l, 1, lengths, -1, key_rank);
            check_order(&p->a, l, 6, lengths, key_rank, -1);
        }
        free_plan(p);
    }
}

static void test_orders_are_those_of_all_positions(void)
{
    static const int grids[][2] = {{1, 1}, {1, 2}, {3, 1}, {2, 3}};
    static const int32_t blocks[] = {0, 1, 3, 16}, windows[] = {0, 1, 5, 40};
    for (size_t g = 0; g < sizeof grids / sizeof *grids; ++g)
        for (int kind = TA_SHARD_CONTIGUOUS; kind <= TA_SHARD_WEIGHTED; ++kind)
            for (int b = 0; b < 4; ++b)
                for (int w = 0; w < 8; ++w) {
                    layout l = {(ta_shard_kind)kind, blocks[b], grids[g][0],
                                grids[g][1],         w % 2,     windows[w / 2]};
                    check_layout(&l);
                }
}

/* ---- Steps ----------------------------------------------------------------------------------- */

/* Steps of all hops of a ring, on the rank that has the most to see. */
static uint64_t ring_steps(ta_shard_kind kind, int32_t block, int ranks, int32_t tokens)
{
    layout l = {kind, block, ranks, 1, 1, 0};
    half_plan *p = make_plan(&l, ranks - 1, tokens, 1 << 17);
    ta_attention_input input = TA_ATTENTION_INPUT_INIT;
    ta_attention_work work;
    input.sequences = 1;
    input.lengths = &tokens;
    EXPECT_OK(ta_attention_count_tokens(&p->a, 1, &tokens));
    for (int owner = 0; owner < ranks; ++owner)
        ta_attention_find_order(&p->a, &input, ranks - 1, owner, &work);
    uint64_t steps = p->a.steps;
    free_plan(p);
    return steps;
}

static void test_steps_do_not_depend_on_tokens(void)
{
    for (int ranks = 16; ranks <= MOST_RANKS; ranks *= 4) {
        uint64_t contiguous = ring_steps(TA_SHARD_CONTIGUOUS, 0, ranks, 1 << 12);
        uint64_t zigzag = ring_steps(TA_SHARD_ZIGZAG, 0, ranks, 1 << 12);
        TEST_ASSERT_TRUE(contiguous <= 4 * (uint64_t)ranks);
        TEST_ASSERT_TRUE(zigzag <= 12 * (uint64_t)ranks);
        for (int32_t tokens = 1 << 16; tokens <= 1 << 20; tokens *= 4) {
            TEST_ASSERT_EQUAL_UINT64(contiguous, ring_steps(TA_SHARD_CONTIGUOUS, 0, ranks, tokens));
            TEST_ASSERT_EQUAL_UINT64(zigzag, ring_steps(TA_SHARD_ZIGZAG, 0, ranks, tokens));
        }
        /* All hops of a call together: some for each block. */
        TEST_ASSERT_TRUE(ring_steps(TA_SHARD_BLOCK_CYCLIC, 64, ranks, 1 << 20) <= 5 * (1 << 14));
    }
}

/* Neighbours on a stripe of single tokens move evenly: they are one run, as is a whole rank. */
static void test_even_tokens_are_one_run(void)
{
    layout stripe = {TA_SHARD_BLOCK_CYCLIC, 1, 4, 1, 1, 0};
    half_plan *p = make_plan(&stripe, 1, MOST_TOKENS, MOST_TOKENS);
    ta_attention_input input = TA_ATTENTION_INPUT_INIT;
    ta_attention_work work;
    int32_t length = 400;
    input.sequences = 1;
    input.lengths = &length;
    EXPECT_OK(ta_attention_count_tokens(&p->a, 1, &length));
    for (int owner = 0; owner < 4; ++owner) {
        ta_attention_find_order(&p->a, &input, 1, owner, &work);
        TEST_ASSERT_EQUAL_INT32(1, p->a.order.query_run_count);
        TEST_ASSERT_EQUAL_INT32(1, p->a.order.key_run_count);
    }
    free_plan(p);
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(test_orders_are_those_of_all_positions);
    RUN_TEST(test_steps_do_not_depend_on_tokens);
    RUN_TEST(test_even_tokens_are_one_run);
    return UNITY_END() != 0;
}
