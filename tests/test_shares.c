/* Equal shares: hip/attend/shares.h. Every tile of every item belongs to one piece, in the order of
 * the blocks, whatever the lengths. And a model of how a device runs blocks says how long the
 * longest waits: blocks are started in order, each where one ended first, and take 64 tokens' time
 * for each piece besides its tokens; as many run at a time as a device holds of the direct kernels,
 * or of a shape of those with shared memory (hip/attend/shape.h). What it is compared with are the
 * splits that come from the batch and the largest length (hip/attend/splits.h). */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../hip/attend/shares.h"
#include "../hip/kernels.h"
#include "lib/random.h"
#include "unity.h"

#define MOST_SEQUENCES 512
#define PIECE_TOKENS 64

typedef struct batch {
    int sequences, items; /* items of each */
    int32_t max_tokens;
    int32_t first[MOST_SEQUENCES], end[MOST_SEQUENCES]; /* what is seen of each */
} batch;

static char text[240];

void setUp(void)
{
}

void tearDown(void)
{
}

/* ---- The model ---- */

static double *free_at;
static int slots;

static void start_model(int count)
{
    slots = count;
    free_at = calloc((size_t)count, sizeof *free_at);
    TEST_ASSERT_NOT_NULL(free_at);
}

/* The slots are a heap; the first is free first. */
static void run_block(double cost)
{
    double at = free_at[0] + cost;
    int i = 0;
    for (int child = 1; child < slots; child = 2 * i + 1) {
        if (child + 1 < slots && free_at[child + 1] < free_at[child])
            child++;
        if (free_at[child] >= at)
            break;
        free_at[i] = free_at[child];
        i = child;
    }
    free_at[i] = at;
}

static double end_model(void)
{
    double last = 0;
    for (int i = 0; i < slots; i++)
        last = free_at[i] > last ? free_at[i] : last;
    free(free_at);
    free_at = NULL;
    return last;
}

/* ---- What the blocks do ---- */

static int32_t tiles_of(const batch *b, int s)
{
    return ta_share_tiles(b->first[s], b->end[s]);
}

static int64_t items_of(const batch *b)
{
    return (int64_t)b->sequences * b->items;
}

static ta_shares shares_of(const batch *b, int blocks)
{
    ta_share_sum sum = ta_share_sum_none();
    for (int s = 0; s < b->sequences; s++)
        sum = ta_share_sum_add(sum, ta_share_sum_of(tiles_of(b, s), b->items));
    return ta_shares_of(sum, items_of(b), blocks);
}

static int64_t tokens_of(const batch *b, int s, ta_piece piece)
{
    int64_t begin = ta_share_begin(b->first[s]);
    int64_t first = begin + (int64_t)piece.first * TA_SHARE_TILE;
    int64_t end = begin + (int64_t)piece.end * TA_SHARE_TILE;
    first = first < b->first[s] ? b->first[s] : first;
    end = end > b->end[s] ? b->end[s] : end;
    return end > first ? end - first : 0;
}

/* What was covered so far: the next tile of each item must come next. */
typedef struct cover {
    int64_t item;
    int32_t tile;
    int64_t block;
    int records; /* partial, of the block */
} cover;

static void check_piece(const batch *b, cover *c, int64_t block, int s, ta_piece piece)
{
    if (block != c->block)
        c->records = 0;
    /* The pieces of an item are in neighbouring blocks. */
    TEST_ASSERT_TRUE_MESSAGE(piece.first ? block == c->block + 1 : block >= c->block, text);
    c->block = block;
    TEST_ASSERT_TRUE_MESSAGE(piece.item == c->item && piece.first == c->tile, text);
    TEST_ASSERT_TRUE_MESSAGE(piece.end > piece.first || tiles_of(b, s) == 0, text);
    c->tile = piece.end;
    int whole = piece.first == 0 && piece.end == tiles_of(b, s);
    c->records += !whole;
    TEST_ASSERT_TRUE_MESSAGE(c->records <= 2, text);
    if (piece.end == tiles_of(b, s)) {
        c->item++;
        c->tile = 0;
    }
}

/* The pieces of one part, as a block walks them. Returns their cost. */
static double walk_part(const batch *b, const ta_shares *shares, int64_t block, cover *c)
{
    int64_t from = ta_share_first(shares, block), to = ta_share_first(shares, block + 1), at = 0;
    double cost = 0;
    for (int s = 0; s < b->sequences; s++) {
        int64_t weight = ta_share_weight(tiles_of(b, s));
        for (int i = 0; i < b->items; i++, at += weight) {
            if (at + weight <= from || at >= to)
                continue;
            ta_piece piece =
                ta_share_piece((int64_t)s * b->items + i, at, tiles_of(b, s), from, to);
            if (!ta_share_has(piece, at, tiles_of(b, s), from))
                continue;
            if (c)
                check_piece(b, c, block, s, piece);
            cost += (double)(tokens_of(b, s, piece) + PIECE_TOKENS);
            if (piece.end == tiles_of(b, s) && tiles_of(b, s) > 0)
                TEST_ASSERT_TRUE_MESSAGE(ta_share_last_block(shares, at, tiles_of(b, s)) == block,
                                         text);
        }
    }
    return cost;
}

static double run_even(const batch *b, const ta_shares *shares, cover *c)
{
    int64_t block = 0;
    for (int s = 0; s < b->sequences; s++)
        for (int i = 0; i < b->items; i++)
            for (int n = 0; n < shares->pieces; n++, block++) {
                ta_piece piece =
                    ta_share_even((int64_t)s * b->items + i, tiles_of(b, s), shares->pieces, n);
                if (n > 0 && piece.first == piece.end)
                    continue;
                if (c)
                    check_piece(b, c, block, s, piece);
                run_block((double)(tokens_of(b, s, piece) + PIECE_TOKENS));
            }
    return end_model();
}

static double time_of_shares(const batch *b, int blocks, cover *c)
{
    ta_shares shares = shares_of(b, blocks);
    start_model(blocks);
    if (shares.pieces)
        return run_even(b, &shares, c);
    TEST_ASSERT_TRUE_MESSAGE(shares.blocks <= blocks, text);
    for (int64_t block = 0; block < shares.blocks; block++)
        run_block(walk_part(b, &shares, block, c));
    return end_model();
}

static double time_of_splits(const batch *b, int blocks)
{
    ta_split_question question = {items_of(b), blocks, b->max_tokens, 130 * 4 * 8, 0};
    int32_t splits = ta_splits_choose(&question);
    start_model(blocks);
    for (int s = 0; s < b->sequences; s++)
        for (int i = 0; i < b->items; i++) {
            int32_t tokens = b->end[s] - b->first[s], each = ta_split_tokens(tokens, splits);
            for (int n = 0; n < splits; n++) {
                int64_t left = tokens - (int64_t)n * each;
                run_block((double)(left < 0 ? 0 : left < each ? left : each) + PIECE_TOKENS);
            }
        }
    return end_model();
}

static double ideal(const batch *b, int blocks)
{
    double tokens = 0;
    for (int s = 0; s < b->sequences; s++)
        tokens += (double)(b->end[s] - b->first[s]) * b->items;
    return tokens / blocks;
}

/* ---- Tests ---- */

static batch batch_of(int sequences, int heads)
{
    batch b;
    memset(&b, 0, sizeof b);
    b.sequences = sequences;
    b.items = heads;
    b.max_tokens = 1 << 20;
    return b;
}

static const struct {
    const char *name;
    ta_gpu_limits limits;
} devices[] = {{"H100", {132, 32, 1, 232448, 233472, 0}},
               {"MI300X", {304, 64, 1, 65536, 65536, 0}},
               {"RTX 4090", {128, 32, 1, 101376, 102400, 0}}};

/* As hip/attend/pieces.c counts them. */
static int blocks_on(int device, int per_unit)
{
    int blocks = devices[device].limits.units * per_unit;
    return blocks < TA_SHARE_BLOCKS_MAX ? blocks : TA_SHARE_BLOCKS_MAX;
}

/* Units may hold one block of the kernels with shared memory, and four; TA_SHARE_BLOCKS_MAX leaves
 * out no unit. */
static void check_batch(const batch *b, const char *name, double limit)
{
    for (int d = 0; d < 3; d++)
        for (int per_unit = 1; per_unit <= 4; per_unit++) {
            int blocks = blocks_on(d, per_unit);
            cover c = {0, 0, 0, 0};
            snprintf(text, sizeof text, "%s on %s, %d blocks", name, devices[d].name, blocks);
            TEST_ASSERT_TRUE_MESSAGE(blocks == devices[d].limits.units * per_unit, text);
            double ratio = time_of_shares(b, blocks, &c) / ideal(b, blocks);
            TEST_ASSERT_TRUE_MESSAGE(c.item == items_of(b), text);
            snprintf(text, sizeof text, "%s on %s, %d blocks: %.3f of the ideal", name,
                     devices[d].name, blocks, ratio);
            TEST_ASSERT_TRUE_MESSAGE(ratio <= limit, text);
        }
}

static void test_batches_of_the_design(void)
{
    batch b = batch_of(32, 8);
    for (int s = 0; s < 32; s++)
        b.end[s] = s == 5 ? 1 << 20 : 2048;
    check_batch(&b, "one of 1M and 31 of 2k", 1.05);
    b = batch_of(64, 8);
    for (int s = 0; s < 64; s++)
        b.end[s] = s % 2 ? 65536 : 4096;
    check_batch(&b, "64, mixed 4k and 64k", 1.05);
    b = batch_of(256, 8);
    for (int s = 0; s < 256; s++)
        b.end[s] = 4096;
    check_batch(&b, "256 of 4k", 1.05);
    b = batch_of(1, 8);
    b.end[0] = 1 << 20;
    check_batch(&b, "1M", 1.05);
    b = batch_of(1, 1);
    b.end[0] = 1 << 20;
    check_batch(&b, "1M, 1 KV head", 1.12);
}

/* Calls for the kernels with shared memory: as many blocks as a unit holds of their shapes, and as
 * many items as they have row groups. In splits, one long sequence takes several times as long. */
static void test_shapes_with_shared_memory(void)
{
    static const struct {
        ta_dtype dtype;
        int rows, dim;
    } calls[] = {{TA_F32, 1, 128},  {TA_F32, 4, 128},   {TA_F32, 24, 64}, {TA_BF16, 1, 96},
                 {TA_BF16, 16, 96}, {TA_BF16, 100, 80}, {TA_F16, 64, 512}};
    double least = INFINITY, most = 0;
    for (int i = 0; i < 7; i++)
        for (int d = 0; d < 3; d++) {
            ta_problem p = {.batch = 32, .query_tokens = 1, .rows = 32, .kv_heads = 1};
            p.query_heads = calls[i].rows;
            p.k_dim = p.v_dim = calls[i].dim;
            p.kv_dtype = p.query_dtype = calls[i].dtype;
            ta_attend_shape shape = ta_choose_shape(&devices[d].limits, &p, 1);
            int per_unit = ta_shape_blocks_per_unit(&devices[d].limits, &shape);
            int blocks = blocks_on(d, per_unit);
            TEST_ASSERT_TRUE(per_unit >= 1 && per_unit <= 4 && shape.rows <= TA_PIECE_ROWS);
            batch b = batch_of(32, 2 * shape.groups);
            for (int s = 0; s < 32; s++)
                b.end[s] = s == 5 ? 1 << 20 : 2048;
            double now = time_of_shares(&b, blocks, NULL), before = time_of_splits(&b, blocks);
            snprintf(text, sizeof text, "call %d on %s, %d blocks: %.3f of the ideal, was %.1f", i,
                     devices[d].name, blocks, now / ideal(&b, blocks), before / ideal(&b, blocks));
            TEST_ASSERT_TRUE_MESSAGE(now <= 1.05 * ideal(&b, blocks), text);
            TEST_ASSERT_TRUE_MESSAGE(now <= before, text);
            least = before / now < least ? before / now : least;
            most = before / now > most ? before / now : most;
        }
    printf("one of 1M and 31 of 2k: splits take %.1f to %.1f times as long\n", least, most);
}

static batch random_batch(random_source *r)
{
    static const int sizes[] = {1, 2, 4, 8, 16, 32, 64, 128, 256, 512};
    batch b = batch_of(sizes[random_int(r, 0, 9)], 1 << random_int(r, 0, 4));
    int kind = (int)random_int(r, 0, 3), exponent = (int)random_int(r, 4, 17);
    b.max_tokens = 1 << random_int(r, exponent, 20);
    for (int s = 0; s < b.sequences; s++) {
        int32_t length = 1 << exponent;
        if (kind == 1) /* up to it, evenly */
            length = (int32_t)random_int(r, 1, length);
        else if (kind == 2) /* all orders of magnitude alike */
            length = (int32_t)random_int(r, 1, 1 << random_int(r, 0, exponent));
        else if (kind == 3 && random_int(r, 0, 9)) /* a few long ones */
            length = length / 16;
        b.end[s] = length;
    }
    return b;
}

/* Of a random batch, how much of the time of splits shares take. */
static double random_ratio(uint64_t seed, int least, int most)
{
    random_source r = random_from(seed);
    batch b = random_batch(&r);
    int blocks = blocks_on((int)(seed % 3), (int)random_int(&r, least, most));
    snprintf(text, sizeof text, "seed %llu", (unsigned long long)seed);
    double now = time_of_shares(&b, blocks, NULL), before = time_of_splits(&b, blocks);
    snprintf(text, sizeof text, "seed %llu: %.0f in shares, %.0f in splits: %.3f",
             (unsigned long long)seed, now, before, now / before);
    return now / before;
}

static void check_random(int least, int most, double limit)
{
    double worst = 0, sum = 0;
    for (uint64_t seed = 1; seed <= 500; seed++) {
        double ratio = random_ratio(seed, least, most);
        TEST_ASSERT_TRUE_MESSAGE(ratio <= limit, text);
        worst = ratio > worst ? ratio : worst;
        sum += ratio;
    }
    printf("%d to %d blocks a unit: shares take %.2f of the time of splits on average, %.3f at "
           "most\n",
           least, most, sum / 500, worst);
}

static void test_never_longer_than_splits(void)
{
    check_random(2, 4, 1.02);
    check_random(1, 1, 1.10); /* thousands of sequences of a tile or less */
}

static void test_random_windows_are_covered(void)
{
    for (uint64_t seed = 1; seed <= 1000; seed++) {
        random_source r = random_from(seed);
        batch b = batch_of((int)random_int(&r, 1, 20), (int)random_int(&r, 1, 9));
        for (int s = 0; s < b.sequences; s++) {
            b.first[s] = (int32_t)random_int(&r, 0, 1 << random_int(&r, 0, 12));
            b.end[s] = b.first[s];
            if (random_int(&r, 0, 4)) /* else nothing is seen */
                b.end[s] += (int32_t)random_int(&r, 0, 1 << random_int(&r, 0, 14));
        }
        cover c = {0, 0, 0, 0};
        int blocks = (int)random_int(&r, 1, 300);
        snprintf(text, sizeof text, "seed %llu: %d sequences of %d items, %d blocks",
                 (unsigned long long)seed, b.sequences, b.items, blocks);
        time_of_shares(&b, blocks, &c);
        TEST_ASSERT_TRUE_MESSAGE(c.item == items_of(&b), text);
    }
}

static void test_longest_lengths(void)
{
    batch b = batch_of(MOST_SEQUENCES, 1);
    for (int s = 0; s < b.sequences; s++)
        b.end[s] = INT32_MAX;
    cover c = {0, 0, 0, 0};
    snprintf(text, sizeof text, "512 sequences of 2^31 - 1 tokens");
    time_of_shares(&b, 264, &c);
    TEST_ASSERT_TRUE_MESSAGE(c.item == items_of(&b), text);
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(test_batches_of_the_design);
    RUN_TEST(test_shapes_with_shared_memory);
    RUN_TEST(test_never_longer_than_splits);
    RUN_TEST(test_random_windows_are_covered);
    RUN_TEST(test_longest_lengths);
    return UNITY_END() != 0;
}
