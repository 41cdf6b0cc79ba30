/* Shard maps and the division of heads (src/base/shard.c, src/base/shard.h): against the definition
 * in the public header, exhaustively for small maps, and at the edges of 32-bit positions. */
#include "base/shard_map.h"

#include <stdint.h>

#include "lib/expect.h"
#include "lib/random.h"

void setUp(void)
{
}

void tearDown(void)
{
}

static ta_shard_map make_map(ta_shard_kind kind, int ranks, int32_t block, const int32_t *bounds)
{
    ta_shard_map map = TA_SHARD_MAP_INIT;
    map.kind = kind;
    map.ranks = ranks;
    map.block = block;
    map.bounds = bounds;
    return map;
}

static int owner_by_definition(const ta_shard_map *map, int32_t position)
{
    int32_t block = map->block ? map->block : 64;
    if (map->kind == TA_SHARD_BLOCK_CYCLIC)
        return position / block % map->ranks;
    for (int32_t number = position / block; map->kind == TA_SHARD_WEIGHTED;)
        for (int rank = 0; rank < map->ranks; ++rank)
            for (int32_t i = 0; i < map->bounds[rank]; ++i)
                if (number-- == 0)
                    return rank;
    if (map->kind == TA_SHARD_ZIGZAG) {
        int number = position / block;
        if (number >= 2 * map->ranks)
            return 0;
        return number < map->ranks ? number : 2 * map->ranks - 1 - number;
    }
    for (int rank = 0; map->bounds; ++rank)
        if (position < map->bounds[rank + 1])
            return rank;
    return position / block < map->ranks - 1 ? position / block : map->ranks - 1;
}

/* Give positions to ranks one by one and check every function at every length. */
static void check_map(const ta_shard_map *map, int32_t length)
{
    int32_t held[16] = {0}, local, position, count;
    int rank;
    for (int32_t p = 0; p <= length; ++p) {
        for (int r = 0; r < map->ranks; ++r) {
            EXPECT_OK(ta_shard_count(map, r, p, &count));
            TEST_ASSERT_EQUAL_INT32(held[r], count);
        }
        if (p == length)
            break;
        int owner = owner_by_definition(map, p);
        EXPECT_OK(ta_shard_next(map, p, &rank, &local));
        TEST_ASSERT_EQUAL_INT(owner, rank);
        TEST_ASSERT_EQUAL_INT32(held[owner], local);
        EXPECT_OK(ta_shard_locate(map, p, &rank, &local));
        TEST_ASSERT_EQUAL_INT(owner, rank);
        TEST_ASSERT_EQUAL_INT32(held[owner], local);
        EXPECT_OK(ta_shard_position(map, rank, local, &position));
        TEST_ASSERT_EQUAL_INT32(p, position);
        ++held[owner];
    }
}

static void test_block_cyclic(void)
{
    for (int ranks = 1; ranks <= 9; ++ranks)
        for (int32_t block = 1; block <= 7; ++block) {
            ta_shard_map map = make_map(TA_SHARD_BLOCK_CYCLIC, ranks, block, NULL);
            check_map(&map, 3 * ranks * block + 2);
        }
    ta_shard_map map = make_map(TA_SHARD_BLOCK_CYCLIC, 3, 0, NULL);
    check_map(&map, 500);
}

/* Weights that are all the same are turns of several blocks; others are dealt one by one. */
static void test_weighted(void)
{
    random_source source = random_from(11);
    for (int trial = 0; trial < 300; ++trial) {
        int32_t weights[9] = {0}, sum = 0;
        int ranks = random_int(&source, 1, 9);
        for (int r = 0; r < ranks; ++r)
            weights[r] = random_one_in(&source, 3) ? 0 : random_int(&source, 1, 5);
        weights[random_int(&source, 0, ranks - 1)] = random_int(&source, 1, 5);
        for (int r = 0; r < ranks; ++r)
            sum += weights[r];
        ta_shard_map map = make_map(TA_SHARD_WEIGHTED, ranks, random_int(&source, 1, 7), weights);
        check_map(&map, 3 * sum * map.block + 2);
    }
    int32_t ones[] = {1, 1, 1};
    ta_shard_map map = make_map(TA_SHARD_WEIGHTED, 3, 0, ones);
    check_map(&map, 500);
}

/* Turns and rounds that do not fit in 32 bits. */
static void test_the_largest_weights(void)
{
    int32_t weights[] = {0, 1, INT32_MAX - 2, 1}, local, count, back;
    ta_shard_map map = make_map(TA_SHARD_WEIGHTED, 4, INT32_MAX, weights);
    int rank;
    EXPECT_OK(ta_shard_locate(&map, INT32_MAX, &rank, &local));
    TEST_ASSERT_EQUAL_INT(2, rank);
    TEST_ASSERT_EQUAL_INT32(0, local);
    int32_t two[] = {2, 1};
    map =
        make_map(TA_SHARD_WEIGHTED, 2, INT32_MAX, two); /* the last position is in the first turn */
    EXPECT_OK(ta_shard_locate(&map, INT32_MAX, &rank, &local));
    TEST_ASSERT_TRUE(rank == 0 && local == INT32_MAX);
    EXPECT_OK(ta_shard_position(&map, 0, INT32_MAX, &back));
    TEST_ASSERT_EQUAL_INT32(INT32_MAX, back);
    map = make_map(TA_SHARD_WEIGHTED, 4, 7, weights);
    for (int32_t p = INT32_MAX - 40; p > 0; p = p == INT32_MAX ? 0 : p + 1) {
        EXPECT_OK(ta_shard_locate(&map, p, &rank, &local));
        EXPECT_OK(ta_shard_position(&map, rank, local, &back));
        TEST_ASSERT_EQUAL_INT32(p, back);
        EXPECT_OK(ta_shard_count(&map, rank, p, &count));
        TEST_ASSERT_EQUAL_INT32(local, count);
    }
    EXPECT_ERROR(TA_ERR_INVALID, ta_shard_position(&map, 0, 0, &back), "local is 0", "rank 0");
    EXPECT_OK(ta_shard_count(&map, 0, INT32_MAX, &count));
    TEST_ASSERT_EQUAL_INT32(0, count);
}

static void test_contiguous_blocks(void)
{
    for (int ranks = 1; ranks <= 9; ++ranks)
        for (int32_t block = 1; block <= 7; ++block) {
            ta_shard_map map = make_map(TA_SHARD_CONTIGUOUS, ranks, block, NULL);
            check_map(&map, ranks * block + 5);
        }
    /* One rank needs no block. */
    ta_shard_map map = make_map(TA_SHARD_CONTIGUOUS, 1, 0, NULL);
    int rank;
    int32_t local;
    EXPECT_OK(ta_shard_locate(&map, 41, &rank, &local));
    TEST_ASSERT_EQUAL_INT(0, rank);
    TEST_ASSERT_EQUAL_INT32(41, local);
}

static void test_zigzag(void)
{
    for (int ranks = 1; ranks <= 9; ++ranks)
        for (int32_t block = 1; block <= 7; ++block) {
            ta_shard_map map = make_map(TA_SHARD_ZIGZAG, ranks, block, NULL);
            check_map(&map, 2 * ranks * block + 5);
        }
    ta_shard_map map = make_map(TA_SHARD_ZIGZAG, 3, 0, NULL);
    int rank;
    int32_t local;
    EXPECT_ERROR(TA_ERR_INVALID, ta_shard_locate(&map, 0, &rank, &local), "zigzag", "map.block");
    map.block = 4;
    EXPECT_OK(ta_shard_position(&map, 1, 7, &local));
    EXPECT_ERROR(TA_ERR_INVALID, ta_shard_position(&map, 1, 8, &local), "local is 8", "rank 1");
}

static void test_bounds(void)
{
    random_source source = random_from(4);
    for (int trial = 0; trial < 200; ++trial) {
        int32_t bounds[10] = {0};
        int ranks = random_int(&source, 1, 9);
        for (int r = 0; r < ranks; ++r)
            bounds[r + 1] = bounds[r] + (random_one_in(&source, 3) ? 0 : random_int(&source, 1, 9));
        ta_shard_map map = make_map(TA_SHARD_CONTIGUOUS, ranks, 0, bounds);
        check_map(&map, bounds[ranks]);
    }
}

/* What a mask lets a query see is one range of local positions: by counting, for every map and
 * mask. */
static void check_visible(const ta_shard *shard, int32_t length, int32_t x, int causal,
                          int32_t window)
{
    ta_visible v = ta_shard_visible(shard, NULL, length, x, causal, window);
    int32_t held = ta_shard_held(shard, NULL, length);
    TEST_ASSERT_TRUE(0 <= v.first && v.first <= v.end && v.end <= held);
    for (int32_t local = 0; local < held; ++local) {
        int64_t y = ta_shard_global(shard, NULL, local);
        int seen = (!causal || y <= x) && (window == 0 || x - y < window);
        TEST_ASSERT_EQUAL_INT(seen, local >= v.first && local < v.end);
    }
}

static void test_visible_ranges(void)
{
    for (int cyclic = 0; cyclic < 2; ++cyclic)
        for (int ranks = 1; ranks <= 4; ++ranks)
            for (int rank = 0; rank < ranks; ++rank)
                for (int32_t block = 1; block <= 3; ++block)
                    for (int32_t length = 0; length <= 13; ++length)
                        for (int32_t x = -3; x < length; ++x)
                            for (int32_t window = 0; window <= 8; ++window) {
                                ta_shard shard = {cyclic, ranks, rank, block, 0, 0, 0, 0, 0};
                                ta_shard_set_rank(&shard, NULL, rank);
                                check_visible(&shard, length, x, 0, window);
                                check_visible(&shard, length, x, 1, window);
                                shard.slice_first = 1 + length % 3;
                                shard.slice_tokens = length % 4;
                                check_visible(&shard, length, x, 0, window);
                                check_visible(&shard, length, x, 1, window);
                            }
}

/* The slices of a shard are its tokens, each once and in order. */
static void test_slices_make_up_the_shard(void)
{
    for (int cyclic = 0; cyclic < 2; ++cyclic)
        for (int rank = 0; rank < 3; ++rank)
            for (int32_t tokens = 1; tokens <= 6; ++tokens)
                for (int32_t length = 0; length <= 20; ++length) {
                    ta_shard whole = {cyclic, 3, rank, 2, 0, 0, 0, 0, 0}, slice;
                    ta_shard_set_rank(&whole, NULL, rank);
                    slice = whole;
                    int32_t held = ta_shard_held(&whole, NULL, length), found = 0;
                    slice.slice_tokens = tokens;
                    for (; slice.slice_first < held + 7; slice.slice_first += tokens)
                        for (int32_t i = 0; i < ta_shard_held(&slice, NULL, length); ++i, ++found)
                            TEST_ASSERT_TRUE(ta_shard_global(&slice, NULL, i) ==
                                             ta_shard_global(&whole, NULL, found));
                    TEST_ASSERT_EQUAL_INT32(held, found);
                }
}

static void test_a_growing_cache_stays_balanced(void)
{
    for (int ranks = 1; ranks <= 8; ++ranks)
        for (int32_t block = 1; block <= 16; block *= 4) {
            ta_shard_map map = make_map(TA_SHARD_BLOCK_CYCLIC, ranks, block, NULL);
            for (int32_t length = 0; length < 300; ++length) {
                int32_t least = INT32_MAX, most = 0, count;
                for (int r = 0; r < ranks; ++r) {
                    EXPECT_OK(ta_shard_count(&map, r, length, &count));
                    least = count < least ? count : least;
                    most = count > most ? count : most;
                }
                TEST_ASSERT_TRUE(most - least <= block);
            }
        }
}

static void test_largest_positions(void)
{
    static const int32_t blocks[] = {1, 64, 1 << 20, INT32_MAX};
    static const int ranks[] = {1, 2, 7, 1000, INT32_MAX};
    for (int b = 0; b < 4; ++b)
        for (int r = 0; r < 5; ++r)
            for (int kind = 0; kind < 2; ++kind) {
                ta_shard_map map = make_map((ta_shard_kind)kind, ranks[r], blocks[b], NULL);
                for (int32_t p = INT32_MAX - 3; p > 0 && p >= INT32_MAX - 3; ++p) {
                    int rank;
                    int32_t local, back, count;
                    EXPECT_OK(ta_shard_locate(&map, p, &rank, &local));
                    EXPECT_OK(ta_shard_position(&map, rank, local, &back));
                    TEST_ASSERT_EQUAL_INT32(p, back);
                    EXPECT_OK(ta_shard_count(&map, rank, p, &count));
                    TEST_ASSERT_EQUAL_INT32(local, count);
                    if (p == INT32_MAX)
                        break;
                }
            }
}

/* The blocks of a zigzag map are twice its ranks, and both must be numbers of 32 bits. */
static void test_the_largest_zigzag(void)
{
    ta_shard_map map = make_map(TA_SHARD_ZIGZAG, (1 << 30) - 1, 1, NULL);
    static const int32_t positions[] = {0, 1, (1 << 30) - 2, (1 << 30) - 1, INT32_MAX - 2};
    for (int i = 0; i < 5; ++i) {
        int rank;
        int32_t local, back;
        EXPECT_OK(ta_shard_locate(&map, positions[i], &rank, &local));
        TEST_ASSERT_EQUAL_INT(owner_by_definition(&map, positions[i]), rank);
        EXPECT_OK(ta_shard_position(&map, rank, local, &back));
        TEST_ASSERT_EQUAL_INT32(positions[i], back);
    }
}

static void test_counts_of_the_longest_sequence_add_up(void)
{
    for (int kind = 0; kind < 2; ++kind) {
        ta_shard_map map = make_map((ta_shard_kind)kind, 1000, 1 << 21, NULL);
        int64_t total = 0;
        for (int rank = 0; rank < 1000; ++rank) {
            int32_t count;
            EXPECT_OK(ta_shard_count(&map, rank, INT32_MAX, &count));
            total += count;
        }
        TEST_ASSERT_TRUE(total == INT32_MAX);
    }
}

static void test_local_positions_out_of_range(void)
{
    int32_t position = -7, bounds[] = {0, 4, 4, 9};
    ta_shard_map cyclic = make_map(TA_SHARD_BLOCK_CYCLIC, 4, 64, NULL);
    EXPECT_ERROR(TA_ERR_INVALID, ta_shard_position(&cyclic, 0, INT32_MAX, &position), "local",
                 "2147483647");
    ta_shard_map block = make_map(TA_SHARD_CONTIGUOUS, 3, 5, NULL);
    EXPECT_ERROR(TA_ERR_INVALID, ta_shard_position(&block, 1, 5, &position), "local is 5",
                 "rank 1");
    EXPECT_ERROR(TA_ERR_INVALID, ta_shard_position(&block, 2, INT32_MAX, &position), "local", NULL);
    ta_shard_map bounded = make_map(TA_SHARD_CONTIGUOUS, 3, 0, bounds);
    EXPECT_ERROR(TA_ERR_INVALID, ta_shard_position(&bounded, 1, 0, &position), "local is 0", NULL);
    TEST_ASSERT_EQUAL_INT32(-7, position);
    int rank = -7;
    int32_t local = -7;
    EXPECT_ERROR(TA_ERR_INVALID, ta_shard_locate(&bounded, 9, &rank, &local), "position is 9", "9");
    EXPECT_ERROR(TA_ERR_INVALID, ta_shard_next(&bounded, 9, &rank, &local), "length is 9", NULL);
    TEST_ASSERT_EQUAL_INT(-7, rank);
    TEST_ASSERT_EQUAL_INT32(-7, local);
}

static void expect_bad_map(ta_shard_map map, const char *first, const char *second)
{
    int rank = -7;
    int32_t local = -7;
    EXPECT_ERROR(TA_ERR_INVALID, ta_shard_locate(&map, 0, &rank, &local), first, second);
    EXPECT_ERROR(TA_ERR_INVALID, ta_shard_next(&map, 0, &rank, &local), first, second);
    EXPECT_ERROR(TA_ERR_INVALID, ta_shard_position(&map, 0, 0, &local), first, second);
    EXPECT_ERROR(TA_ERR_INVALID, ta_shard_count(&map, 0, 0, &local), first, second);
    TEST_ASSERT_EQUAL_INT(-7, rank);
    TEST_ASSERT_EQUAL_INT32(-7, local);
}

static void test_bad_maps(void)
{
    int32_t first[] = {1, 2, 3}, falling[] = {0, 5, 4};
    expect_bad_map(make_map(TA_SHARD_BLOCK_CYCLIC, 0, 1, NULL), "map.ranks is 0", NULL);
    expect_bad_map(make_map(TA_SHARD_BLOCK_CYCLIC, -3, 1, NULL), "map.ranks is -3", NULL);
    expect_bad_map(make_map((ta_shard_kind)4, 1, 1, NULL), "map.kind is 4", NULL);
    expect_bad_map(make_map((ta_shard_kind)-1, 1, 1, NULL), "map.kind is -1", NULL);
    expect_bad_map(make_map(TA_SHARD_BLOCK_CYCLIC, 2, -1, NULL), "map.block is -1", NULL);
    expect_bad_map(make_map(TA_SHARD_CONTIGUOUS, 2, 0, NULL), "map.block is 0", "map.bounds");
    expect_bad_map(make_map(TA_SHARD_BLOCK_CYCLIC, 2, 1, falling), "map.bounds", NULL);
    expect_bad_map(make_map(TA_SHARD_CONTIGUOUS, 2, 0, first), "map.bounds[0] is 1", NULL);
    expect_bad_map(make_map(TA_SHARD_CONTIGUOUS, 2, 0, falling), "map.bounds[2] is 4", NULL);
    int32_t below[] = {3, -1}, none[] = {0, 0}, much[] = {INT32_MAX, 1};
    expect_bad_map(make_map(TA_SHARD_WEIGHTED, 2, 1, NULL), "map.bounds is NULL", "2 ranks");
    expect_bad_map(make_map(TA_SHARD_WEIGHTED, 2, 1, below), "map.bounds[1] is -1", NULL);
    expect_bad_map(make_map(TA_SHARD_WEIGHTED, 2, 1, none), "no weight", NULL);
    expect_bad_map(make_map(TA_SHARD_WEIGHTED, 2, 1, much), "map.bounds[1] is 1", "2147483647");
    expect_bad_map(make_map(TA_SHARD_WEIGHTED, 2, -1, below), "map.block is -1", NULL);
    expect_bad_map(make_map(TA_SHARD_ZIGZAG, 1 << 30, 1, NULL), "map.ranks is 1073741824",
                   "at most 1073741823");
    expect_bad_map(make_map(TA_SHARD_ZIGZAG, INT32_MAX, 1, NULL), "map.ranks is 2147483647",
                   "zigzag");
    ta_shard_map map = make_map(TA_SHARD_BLOCK_CYCLIC, 2, 1, NULL);
    map.size = 0;
    expect_bad_map(map, "map.size is 0", NULL);
    map.size = sizeof map + 8;
    expect_bad_map(map, "map.size", "TA_SHARD_MAP_INIT");
}

static void test_bad_arguments(void)
{
    ta_shard_map map = make_map(TA_SHARD_BLOCK_CYCLIC, 2, 1, NULL);
    int rank;
    int32_t local;
    EXPECT_ERROR(TA_ERR_INVALID, ta_shard_locate(NULL, 0, &rank, &local), "map is NULL", NULL);
    EXPECT_ERROR(TA_ERR_INVALID, ta_shard_locate(&map, -1, &rank, &local), "position is -1", NULL);
    EXPECT_ERROR(TA_ERR_INVALID, ta_shard_locate(&map, 0, NULL, &local), "rank is NULL", NULL);
    EXPECT_ERROR(TA_ERR_INVALID, ta_shard_locate(&map, 0, &rank, NULL), "local is NULL", NULL);
    EXPECT_ERROR(TA_ERR_INVALID, ta_shard_next(NULL, 0, &rank, &local), "map is NULL", NULL);
    EXPECT_ERROR(TA_ERR_INVALID, ta_shard_next(&map, -1, &rank, &local), "length is -1", NULL);
    EXPECT_ERROR(TA_ERR_INVALID, ta_shard_next(&map, 0, NULL, &local), "rank is NULL", NULL);
    EXPECT_ERROR(TA_ERR_INVALID, ta_shard_next(&map, 0, &rank, NULL), "local is NULL", NULL);
    EXPECT_ERROR(TA_ERR_INVALID, ta_shard_position(NULL, 0, 0, &local), "map is NULL", NULL);
    EXPECT_ERROR(TA_ERR_INVALID, ta_shard_position(&map, 2, 0, &local), "rank is 2", NULL);
    EXPECT_ERROR(TA_ERR_INVALID, ta_shard_position(&map, -1, 0, &local), "rank is -1", NULL);
    EXPECT_ERROR(TA_ERR_INVALID, ta_shard_position(&map, 0, -1, &local), "local is -1", NULL);
    EXPECT_ERROR(TA_ERR_INVALID, ta_shard_position(&map, 0, 0, NULL), "position is NULL", NULL);
    EXPECT_ERROR(TA_ERR_INVALID, ta_shard_count(NULL, 0, 0, &local), "map is NULL", NULL);
    EXPECT_ERROR(TA_ERR_INVALID, ta_shard_count(&map, 2, 0, &local), "rank is 2", NULL);
    EXPECT_ERROR(TA_ERR_INVALID, ta_shard_count(&map, 0, -1, &local), "length is -1", NULL);
    EXPECT_ERROR(TA_ERR_INVALID, ta_shard_count(&map, 0, 0, NULL), "count is NULL", NULL);
}

static void test_head_ranges(void)
{
    int first, count;
    for (int heads = 1; heads <= 40; ++heads)
        for (int ranks = 1; ranks <= 12; ++ranks) {
            int next = 0;
            for (int rank = 0; rank < ranks; ++rank) {
                EXPECT_OK(ta_head_range(heads, ranks, rank, &first, &count));
                TEST_ASSERT_EQUAL_INT(next, first);
                TEST_ASSERT_TRUE(count == heads / ranks || count == heads / ranks + 1);
                next += count;
            }
            TEST_ASSERT_EQUAL_INT(heads, next);
        }
    EXPECT_OK(ta_head_range(INT32_MAX, INT32_MAX, INT32_MAX - 1, &first, &count));
    TEST_ASSERT_EQUAL_INT(INT32_MAX - 1, first);
    TEST_ASSERT_EQUAL_INT(1, count);
}

static void test_bad_head_ranges(void)
{
    int first = -7, count = -7;
    EXPECT_ERROR(TA_ERR_INVALID, ta_head_range(0, 1, 0, &first, &count), "heads is 0", NULL);
    EXPECT_ERROR(TA_ERR_INVALID, ta_head_range(-1, 1, 0, &first, &count), "heads is -1", NULL);
    EXPECT_ERROR(TA_ERR_INVALID, ta_head_range(8, 0, 0, &first, &count), "ranks is 0", NULL);
    EXPECT_ERROR(TA_ERR_INVALID, ta_head_range(8, 2, 2, &first, &count), "rank is 2", NULL);
    EXPECT_ERROR(TA_ERR_INVALID, ta_head_range(8, 2, -1, &first, &count), "rank is -1", NULL);
    EXPECT_ERROR(TA_ERR_INVALID, ta_head_range(8, 2, 1, NULL, &count), "first is NULL", NULL);
    EXPECT_ERROR(TA_ERR_INVALID, ta_head_range(8, 2, 1, &first, NULL), "count is NULL", NULL);
    TEST_ASSERT_EQUAL_INT(-7, first);
    TEST_ASSERT_EQUAL_INT(-7, count);
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(test_block_cyclic);
    RUN_TEST(test_weighted);
    RUN_TEST(test_the_largest_weights);
    RUN_TEST(test_contiguous_blocks);
    RUN_TEST(test_zigzag);
    RUN_TEST(test_bounds);
    RUN_TEST(test_visible_ranges);
    RUN_TEST(test_slices_make_up_the_shard);
    RUN_TEST(test_a_growing_cache_stays_balanced);
    RUN_TEST(test_largest_positions);
    RUN_TEST(test_the_largest_zigzag);
    RUN_TEST(test_counts_of_the_longest_sequence_add_up);
    RUN_TEST(test_local_positions_out_of_range);
    RUN_TEST(test_bad_maps);
    RUN_TEST(test_bad_arguments);
    RUN_TEST(test_head_ranges);
    RUN_TEST(test_bad_head_ranges);
    return UNITY_END() != 0;
}
