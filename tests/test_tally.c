/* The laws of tallies (src/base/tally.h, src/host/attend/tally.c): whatever the order and the
 * grouping, the same words come out; sums are exact but for digits that are dropped; infinities and
 * NaN reach the result, and stay in their sum. */
#include "host/attend/tally.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/random.h"
#include "unity.h"

#define DIM 6
#define FLOATS (4 * (DIM + 1) + 2)
#define TILES 40

typedef struct tile {
    float m, l, o[DIM];
} tile;

typedef union tally {
    float floats[FLOATS];
    int64_t words[FLOATS / 2];
} tally;

void setUp(void)
{
}

void tearDown(void)
{
}

/* Scores and values of all magnitudes, in every element another range. */
static tile random_tile(random_source *r, double score_spread)
{
    static const int binades[DIM] = {1, 3, 30, 100, 120, 126};
    tile t = {.m = (float)(random_normal(r) * score_spread), .l = 1 + (float)random_unit(r) * 63};
    for (int d = 0; d < DIM; ++d)
        t.o[d] = random_one_in(r, 6)
                     ? 0.0f
                     : (float)ldexp(random_normal(r), random_int(r, -binades[d], binades[d] - 2));
    if (random_one_in(r, 10)) {
        t.m = -INFINITY;
        t.l = 0;
        memset(t.o, 0, sizeof t.o);
    }
    return t;
}

static void add(tally *to, const tile *t)
{
    ta_tally_add_partial(to->floats, t->m, t->l, t->o, DIM);
}

static tally empty(void)
{
    tally t;
    ta_tally_clear(t.floats, DIM);
    return t;
}

static void shuffle(random_source *r, tile *tiles, int count)
{
    for (int i = count - 1; i > 0; --i) {
        int j = random_int(r, 0, i);
        tile t = tiles[i];
        tiles[i] = tiles[j];
        tiles[j] = t;
    }
}

/* Divided over some tallies at random, which are then merged, two at a time, at random. */
static tally grouped(random_source *r, const tile *tiles, int count)
{
    tally parts[8];
    int left = random_int(r, 1, 8);
    for (int i = 0; i < left; ++i)
        parts[i] = empty();
    for (int i = 0; i < count; ++i)
        add(&parts[random_int(r, 0, left - 1)], &tiles[i]);
    for (; left > 1; --left) {
        int into = random_int(r, 0, left - 2);
        if (random_one_in(r, 2)) {
            tally swapped = parts[into];
            parts[into] = parts[left - 1];
            parts[left - 1] = swapped;
        }
        ta_tally_merge(parts[into].floats, parts[left - 1].floats, DIM);
    }
    return parts[0];
}

static void test_order_and_grouping_do_not_matter(void)
{
    static const double spreads[] = {0, 1, 10, 40, 300, 2000, 1e9, 1e30};
    for (int trial = 0; trial < 4000; ++trial) {
        random_source source = random_from((uint64_t)trial), *r = &source;
        tile tiles[TILES];
        int count = random_int(r, 1, TILES);
        for (int i = 0; i < count; ++i)
            tiles[i] = random_tile(r, spreads[trial % 8]);
        if (trial % 5 == 0)
            tiles[random_int(r, 0, count - 1)].o[1] = INFINITY;
        if (trial % 7 == 0)
            tiles[random_int(r, 0, count - 1)].o[1] = -INFINITY;
        if (trial % 11 == 0)
            tiles[random_int(r, 0, count - 1)].o[2] = NAN;
        tally first = grouped(r, tiles, count);
        for (int again = 0; again < 5; ++again) {
            char text[40];
            snprintf(text, sizeof text, "trial %d", trial);
            shuffle(r, tiles, count);
            tally other = grouped(r, tiles, count);
            TEST_ASSERT_EQUAL_MEMORY_MESSAGE(&first, &other, sizeof first, text);
        }
    }
}

/* The sums in long double, of the factors that a tally uses: of each tile the tally may drop half a
 * digit, 2^-32 of the largest. */
static void test_sums_are_exact_but_for_dropped_digits(void)
{
    for (int trial = 0; trial < 2000; ++trial) {
        random_source source = random_from((uint64_t)trial), *r = &source;
        long double sums[DIM + 1] = {0}, largest[DIM + 1] = {0};
        float out[DIM];
        tally t = empty();
        for (int i = 0; i < TILES; ++i) {
            tile one = random_tile(r, trial % 2 ? 3 : 100);
            add(&t, &one);
            float anchor = ta_tally_anchor(one.m);
            for (int d = 0; d <= DIM && one.l > 0; ++d) {
                long double y =
                    (long double)exp2f(one.m - anchor) * (long double)(d < DIM ? one.o[d] : one.l);
                y = ldexpl(y, (int)anchor);
                sums[d] += y;
                largest[d] = fabsl(y) > largest[d] ? fabsl(y) : largest[d];
            }
        }
        float lse = ta_tally_finish(t.floats, DIM, -INFINITY, out);
        TEST_ASSERT_TRUE(fabsl(lse - logl(sums[DIM])) <= 0x1p-23L * (1 + fabsl((long double)lse)));
        for (int d = 0; d < DIM; ++d) {
            long double exact = sums[d] / sums[DIM];
            long double most = (largest[d] / sums[DIM] * 0x1p-32L) * TILES +
                               fabsl(exact) * (0x1p-24L + TILES * 0x1p-32L) + 0x1p-149L;
            char text[60];
            snprintf(text, sizeof text, "trial %d, element %d", trial, d);
            TEST_ASSERT_TRUE_MESSAGE(fabsl(out[d] - exact) <= most, text);
        }
    }
}

static void finish(const tally *t, float sink, float *lse, float *out)
{
    *lse = ta_tally_finish(t->floats, DIM, sink, out);
}

static void test_special_numbers(void)
{
    float lse, out[DIM];
    tally t = empty();
    finish(&t, -INFINITY, &lse, out);
    TEST_ASSERT_TRUE(lse == -INFINITY && out[0] == 0);
    finish(&t, 3.0f, &lse, out); /* a sink alone */
    TEST_ASSERT_TRUE(fabsf(lse - 3 * 0.693147181f) < 1e-6f && out[0] == 0);
    tile one = {.m = 5, .l = 2, .o = {2, INFINITY, -INFINITY, INFINITY, NAN, 4}};
    tile two = {.m = 900, .l = 1, .o = {1, 1, 1, -INFINITY, 1, 1}};
    add(&t, &one);
    finish(&t, -INFINITY, &lse, out);
    TEST_ASSERT_EQUAL_FLOAT(6 * 0.693147181f, lse);
    TEST_ASSERT_TRUE(out[0] == 1 && out[5] == 2);
    TEST_ASSERT_TRUE(out[1] == INFINITY && out[2] == -INFINITY && isnan(out[4]));
    add(&t, &two); /* its scores are so far above that the first counts for nothing else */
    finish(&t, -INFINITY, &lse, out);
    TEST_ASSERT_TRUE(out[0] == 1 && out[5] == 1);
    TEST_ASSERT_TRUE(out[1] == INFINITY && out[2] == -INFINITY);
    TEST_ASSERT_TRUE(isnan(out[3]) && isnan(out[4]));
    tile last = {.m = INFINITY, .l = 1};
    add(&t, &last);
    finish(&t, 0, &lse, out);
    TEST_ASSERT_TRUE(isnan(lse) && isnan(out[0]) && isnan(out[5]));
}

/* Every tile adds the largest digit there is, in every sum: none overflows into its code. */
static void test_room_for_all_tiles(void)
{
    ta_tally_sum sum = ta_tally_add((ta_tally_sum){0, 0, 0}, 0x1.ffffffp158, 0);
    int64_t words[2];
    TEST_ASSERT_EQUAL_INT(28, sum.code);
    TEST_ASSERT_TRUE(llabs(sum.high) <= 1ll << 31 && llabs(sum.low) <= 1ll << 31);
    for (int sign = -1; sign <= 1; sign += 2) {
        ta_tally_sum most = {sign * ((1ll << 31) * ((1ll << 27) - 1)), sign * (1ll << 58), 29};
        ta_tally_store(most, words);
        ta_tally_sum back = ta_tally_load(words);
        TEST_ASSERT_TRUE(back.high == most.high && back.low == most.low && back.code == 29);
    }
    TEST_ASSERT_TRUE((int64_t)INT32_MAX / TA_TALLY_TILE_MIN < 1ll << 27);
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(test_order_and_grouping_do_not_matter);
    RUN_TEST(test_sums_are_exact_but_for_dropped_digits);
    RUN_TEST(test_special_numbers);
    RUN_TEST(test_room_for_all_tiles);
    return UNITY_END() != 0;
}
