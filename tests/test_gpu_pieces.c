/* The attend kernels with shared memory in equal shares (hip/attend/piece.h, block_piece.h) on the
 * executor: random cases that they are for, with several row groups and long sequences, compared
 * with the oracle; that shares are what they take, and tiles in reproducible mode; lengths
 * around the cuts; and that results have the same bits in every run. `--seed N` runs that case
 * alone. */
#include <stdio.h>
#include <string.h>

#include "lib/case.h"
#include "lib/direct_case.h"
#include "lib/expect_case.h"
#include "lib/options.h"
#include "simt/simt_control.h"
#include "unity.h"

static char failure[2048];

void setUp(void)
{
}

void tearDown(void)
{
}

/* What the direct kernels do not take: more dimensions, of f32 too; or many rows of odd ones. */
static void choose_dims(random_source *r, decode_case *c)
{
    static const int dims[] = {8, 24, 40, 96, 120}, wide[] = {264, 280, 320};
    c->plan.k_dim = RANDOM_PICK(r, dims);
    c->plan.v_dim = random_one_in(r, 2) ? c->plan.k_dim : RANDOM_PICK(r, dims);
    c->v_in_k = false;
    if (random_one_in(r, 2))
        return;
    c->plan.k_dim = RANDOM_PICK(r, wide);
    if (random_one_in(r, 2))
        c->plan.kv_dtype = c->plan.query_dtype = TA_F32;
}

/* More rows than a block has, of one KV head or of several. */
static void choose_rows(random_source *r, decode_case *c)
{
    static const int most_rows[] = {1, 7, 16, 70}, longest[] = {5, 130, 200, 700, 3000};
    int rows = RANDOM_PICK(r, most_rows);
    c->plan.query_tokens = random_int(r, 1, rows < 6 ? rows : 6);
    c->plan.kv_heads = random_int(r, 1, 3);
    c->plan.query_heads = c->plan.kv_heads * random_int(r, 1, rows / c->plan.query_tokens);
    int most = RANDOM_PICK(r, longest);
    direct_choose_lengths(r, c, most, most > 200 ? 2 : 6);
}

static const direct_kernel taken = {9191, 60, DIRECT_16_BITS, choose_dims, choose_rows};

#define KINDS 5

/* The plain case of a kernel: FMA of f32, of one row, and of K that is not aligned; matrix cores
 * with few rows and with many. */
static decode_case plain(int kind, int32_t length)
{
    static const struct {
        int dim, heads, tokens;
    } shapes[KINDS] = {{320, 3, 2}, {264, 1, 1}, {40, 3, 2}, {96, 9, 1}, {24, 12, 6}};
    decode_case c = direct_plain(shapes[kind].dim, shapes[kind].heads, shapes[kind].tokens, length);
    if (kind == 0)
        c.plan.kv_dtype = c.plan.query_dtype = TA_F32;
    if (kind == 2) {
        c.k.strides_given = true;
        c.k.pad_token = 1;
    }
    return c;
}

/* Launch number `nth` of a case, which is refused, is this kernel. */
static void expect_launch(decode_case c, int nth, const char *kernel)
{
    char wanted[64];
    snprintf(wanted, sizeof wanted, "launching kernel %s", kernel);
    simt_fail_launch(nth);
    TEST_ASSERT_FALSE(case_run(&c, &direct_worst, failure, sizeof failure));
    simt_fail_launch(0);
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(failure, wanted), failure);
}

static void test_they_run(void)
{
    for (int kind = 0; kind < KINDS; ++kind) {
        decode_case c = plain(kind, 200);
        expect_launch(c, 1, kind < 3 ? "attend_fma" : "attend_mma");
        expect_launch(c, 2, "merge_pieces");
        c.spare_tokens = 0;
        c.lengths[0] = 128; /* never cut: nothing is to be merged */
        expect_launch(c, 1, kind < 3 ? "attend_fma" : "attend_mma");
        expect_launch(c, 2, "finish");
        c = plain(kind, 200);
        case_reproducible(&c, 32);
        expect_launch(c, 2, "tally_splits");
    }
}

/* Just below, at and above tiles of 16, units of 64, and shares of several pieces. */
static void test_lengths_around_tiles_and_shares(void)
{
    static const int edges[] = {16, 64, 128, 192, 1024, 4096};
    for (int i = 0; i < 6; ++i)
        for (int off = -1; off <= 1; ++off)
            direct_around_edge(plain((i + off + 1) % KINDS, edges[i] + off), edges[i], off);
}

/* One long sequence among short ones and empty ones: most blocks have a part of it. */
static void test_unequal_lengths(void)
{
    static const int32_t lengths[] = {3, 5000, 0, 17, 64, 0, 130, 1};
    for (int kind = 0; kind < KINDS; ++kind) {
        decode_case c = plain(kind, 0);
        c.plan.kv_heads = 1 + kind % 2;
        c.plan.query_heads *= c.plan.kv_heads;
        direct_unequal_lengths(c, lengths);
    }
}

/* In pieces of which rows see parts. */
static void test_values_that_are_not_finite(void)
{
    for (int variant = 0; variant < 24; ++variant) {
        decode_case c = plain(variant % KINDS, 150 + variant);
        c.plan.query_tokens = 4;
        direct_not_finite(c, variant);
    }
}

/* Again, and with the threads of the blocks in another order. */
static void test_bits_of_every_run(void)
{
    for (int kind = 0; kind < KINDS; ++kind) {
        decode_case c = plain(kind, 1500);
        c.plan.batch = 2;
        c.lengths[1] = 77;
        c.want_lse = true;
        case_kept first = keep_case(&c, &direct_worst);
        expect_bits(&first, &c, &direct_worst, "the first time");
        case_kept_free(&first);
    }
}

static void test_all(void)
{
    RUN_DIRECT_TESTS();
    RUN_TEST(test_they_run);
    RUN_TEST(test_bits_of_every_run);
}

int main(int argc, char **argv)
{
    return direct_main(argc, argv, &taken, test_all);
}
