/* Decode over every small shape: lengths 0 to 5, every number of ranks, block, query token count,
 * mask and window that could matter at that size, contiguous and cyclic, with and without pages. */
#include <string.h>

#include "lib/case.h"
#include "lib/expect_case.h"
#include "lib/options.h"
#include "unity.h"

static bound_worst worst;
static uint64_t count;

void setUp(void)
{
}

void tearDown(void)
{
}

static void run(decode_case *c)
{
    c->seed = ++count;
    if (!options_chosen(count))
        return;
    expect_case(c, &worst);
}

/* A zero-length sequence in the middle, the length in question, and another one. */
static decode_case shape(int ranks, int length, int query_tokens)
{
    decode_case c = case_plain();
    c.ranks = ranks;
    c.plan.batch = 3;
    c.plan.query_heads = 2;
    c.plan.query_tokens = query_tokens;
    c.lengths[0] = length;
    c.lengths[1] = 0;
    c.lengths[2] = (length + 3) % 6;
    c.absent_null = true;
    return c;
}

static const int rank_counts[] = {1, 2, 3, 5, 8};

static void test_cyclic_maps_and_masks(void)
{
    for (int r = 0; r < 5; ++r)
        for (int length = 0; length <= 5; ++length)
            for (int block = 1; block <= 3; ++block)
                for (int tokens = 1; tokens <= 3; ++tokens)
                    for (int mask = TA_MASK_CAUSAL; mask <= TA_MASK_FULL; ++mask) {
                        decode_case c = shape(rank_counts[r], length, tokens);
                        c.plan.map.block = block;
                        c.plan.mask = (ta_mask)mask;
                        c.alibi = count % 2;
                        c.sinks = count % 3 == 0;
                        run(&c);
                    }
}

static void test_windows(void)
{
    for (int r = 0; r < 5; r += 2)
        for (int length = 1; length <= 5; ++length)
            for (int tokens = 1; tokens <= 3; ++tokens)
                for (int window = 1; window <= 6; ++window) {
                    decode_case c = shape(rank_counts[r], length, tokens);
                    c.plan.window = window;
                    c.plan.mask = count % 3 ? TA_MASK_CAUSAL : TA_MASK_FULL;
                    c.plan.map.block = 1 + (int32_t)(count % 2);
                    run(&c);
                }
}

static void test_contiguous_maps(void)
{
    for (int r = 0; r < 5; ++r)
        for (int length = 0; length <= 5; ++length)
            for (int block = 1; block <= 3; ++block)
                for (int bounds = CASE_BOUNDS_NONE; bounds <= CASE_BOUNDS_EACH; ++bounds) {
                    decode_case c = shape(rank_counts[r], length, 1 + (int)(count % 3));
                    c.plan.map.kind = TA_SHARD_CONTIGUOUS;
                    c.plan.map.block = bounds == CASE_BOUNDS_NONE ? block : 0;
                    c.bounds = (case_bounds)bounds;
                    run(&c);
                }
}

static void test_placements_and_heads(void)
{
    for (int r = 0; r < 5; ++r)
        for (int heads = 1; heads <= 9; heads += heads < 3 ? 1 : 3)
            for (int query = TA_PLACE_ALL; query <= TA_PLACE_HEADS; ++query)
                for (int out = TA_PLACE_ALL; out <= TA_PLACE_HEADS; ++out) {
                    decode_case c = shape(rank_counts[r], 5, 2);
                    c.plan.query_heads = heads;
                    c.plan.query_placement = (ta_placement)query;
                    c.plan.out_placement = (ta_placement)out;
                    c.plan.query_root = query == TA_PLACE_ROOT ? c.ranks - 1 : 0;
                    c.plan.out_root = out == TA_PLACE_ROOT ? c.ranks / 2 : 0;
                    c.absent_null = count % 2;
                    run(&c);
                }
}

static void test_pages(void)
{
    for (int r = 0; r < 5; r += 2)
        for (int length = 0; length <= 5; ++length)
            for (int page = 1; page <= 4; ++page) {
                decode_case c = shape(rank_counts[r], length, 2);
                c.paged = true;
                c.page_tokens = page;
                c.spare_pages = (int32_t)(count % 3);
                c.v_in_k = count % 2;
                run(&c);
            }
}

static void test_types(void)
{
    for (int kv = TA_F32; kv < NUMBER_DTYPE_END; ++kv)
        for (int query = TA_DTYPE_NONE; query < NUMBER_DTYPE_END; ++query)
            for (int out = TA_DTYPE_NONE; out < NUMBER_DTYPE_END; ++out)
                for (int level = 0; level < 2; ++level) {
                    decode_case c = shape(2, 5, 2);
                    c.plan.kv_dtype = (ta_dtype)kv;
                    c.plan.query_dtype = (ta_dtype)query;
                    c.plan.out_dtype = (ta_dtype)out;
                    if (level && options_host())
                        memcpy(c.simd, "scalar", 7);
                    run(&c);
                }
}

/* Every head dimension there is, of K and of V. */
static void test_dimensions(void)
{
    for (int dim = 8; dim <= 576; dim += 8) {
        decode_case c = shape(2, 5, 1);
        c.plan.k_dim = dim;
        c.plan.v_dim = 584 - dim;
        c.plan.kv_dtype = (ta_dtype)(TA_F32 + dim / 8 % (NUMBER_DTYPE_END - TA_F32));
        run(&c);
    }
}

static void test_group_sizes(void)
{
    for (int kv_heads = 1; kv_heads <= 3; ++kv_heads)
        for (int group = 1; group <= 17; ++group) {
            decode_case c = shape(3, 5, 1 + group % 3);
            c.plan.kv_heads = kv_heads;
            c.plan.query_heads = kv_heads * group;
            run(&c);
        }
}

int main(int argc, char **argv)
{
    if (!options_read(argc, argv))
        return 2;
    UNITY_BEGIN();
    RUN_TEST(test_cyclic_maps_and_masks);
    RUN_TEST(test_windows);
    RUN_TEST(test_contiguous_maps);
    RUN_TEST(test_placements_and_heads);
    RUN_TEST(test_pages);
    RUN_TEST(test_types);
    RUN_TEST(test_dimensions);
    RUN_TEST(test_group_sizes);
    return UNITY_END() != 0;
}
