/* The fault record (src/base/fault.h): which fault comes out of a merge, whatever the order; when
 * records without one become a difference; and the same through integers. */
#include "base/fault.h"

#include <string.h>

#include "lib/expect.h"
#include "lib/random.h"

#define MAX_RANKS 9

void setUp(void)
{
}

void tearDown(void)
{
}

static bool same(ta_fault a, ta_fault b)
{
    return memcmp(&a, &b, sizeof a) == 0;
}

static ta_fault step(int rank, int what, uint64_t hash, uint64_t tag)
{
    ta_fault fault = ta_fault_of(TA_OK, rank);
    fault.what = what;
    fault.hash = hash;
    fault.tag = tag;
    return fault;
}

static void expect_difference(ta_fault fault, int rank, int other, int differs)
{
    TEST_ASSERT_EQUAL_INT(TA_ERR_MISMATCH, fault.status);
    TEST_ASSERT_EQUAL_INT(rank, fault.rank);
    TEST_ASSERT_EQUAL_INT(other, fault.other);
    TEST_ASSERT_EQUAL_INT(differs, fault.what);
}

static void test_size(void)
{
    TEST_ASSERT_EQUAL_UINT(32, sizeof(ta_fault));
    TEST_ASSERT_EQUAL_UINT(32, TA_FAULT_BYTES);
    TEST_ASSERT_EQUAL_UINT(32, TA_FAULT_FLOATS * sizeof(float));
}

static void test_a_fault_counts_and_the_lowest_rank_wins(void)
{
    ta_fault fine = step(0, 1, 2, 3), two = ta_fault_of(TA_ERR_INVALID, 2),
             five = ta_fault_of(TA_ERR_DEVICE, 5);
    TEST_ASSERT_TRUE(same(ta_fault_merge(fine, two), two));
    TEST_ASSERT_TRUE(same(ta_fault_merge(two, fine), two));
    TEST_ASSERT_TRUE(same(ta_fault_merge(two, five), two));
    TEST_ASSERT_TRUE(same(ta_fault_merge(five, two), two));
}

static void test_records_of_the_same_step(void)
{
    ta_fault merged = ta_fault_merge(step(4, 1, 2, 3), step(3, 1, 2, 3));
    TEST_ASSERT_TRUE(same(merged, step(3, 1, 2, 3)));
    merged = ta_fault_merge(step(3, 1, 2, 3), step(4, 1, 2, 3));
    TEST_ASSERT_TRUE(same(merged, step(3, 1, 2, 3)));
}

static void test_differences(void)
{
    ta_fault a = step(6, 1, 2, 3);
    expect_difference(ta_fault_merge(a, step(1, 9, 2, 3)), 1, 6, TA_DIFFERS_PLAN);
    expect_difference(ta_fault_merge(step(1, 1, 9, 3), a), 1, 6, TA_DIFFERS_HASH);
    expect_difference(ta_fault_merge(a, step(7, 1, 2, 9)), 6, 7, TA_DIFFERS_TAG);
    expect_difference(ta_fault_merge(a, step(7, 0, 0, 0)), 6, 7,
                      TA_DIFFERS_PLAN | TA_DIFFERS_HASH | TA_DIFFERS_TAG);
}

/* A rank's own fault before a difference, even one of lower ranks; of differences the lower rank's,
 * then that with the lower other rank. */
static void test_ties(void)
{
    ta_fault own = ta_fault_of(TA_ERR_NO_MEMORY, 8);
    ta_fault low = ta_fault_difference(2, 0, TA_DIFFERS_TAG);
    ta_fault near = ta_fault_difference(1, 3, TA_DIFFERS_HASH);
    ta_fault far = ta_fault_difference(1, 7, TA_DIFFERS_HASH);
    TEST_ASSERT_TRUE(same(ta_fault_merge(own, low), own));
    TEST_ASSERT_TRUE(same(ta_fault_merge(low, own), own));
    TEST_ASSERT_TRUE(same(ta_fault_merge(low, near), low));
    TEST_ASSERT_TRUE(same(ta_fault_merge(near, low), low));
    TEST_ASSERT_TRUE(same(ta_fault_merge(far, near), near));
    TEST_ASSERT_TRUE(same(ta_fault_merge(near, far), near));
    ta_fault both = ta_fault_difference(1, 3, TA_DIFFERS_HASH | TA_DIFFERS_TAG);
    TEST_ASSERT_TRUE(same(ta_fault_merge(both, near), ta_fault_merge(near, both)));
    ta_fault invalid = ta_fault_of(TA_ERR_INVALID, 8);
    TEST_ASSERT_TRUE(same(ta_fault_merge(own, invalid), ta_fault_merge(invalid, own)));
}

/* A random rank: fine and in step 0 mostly, sometimes in another one or with a fault. */
static ta_fault random_record(random_source *source, int rank)
{
    ta_fault fault = step(rank, 1, 77, 5);
    switch (random_int(source, 0, 9)) {
    case 0:
        return ta_fault_of(TA_ERR_INVALID, rank);
    case 1:
        return ta_fault_of(TA_ERR_DEVICE, rank);
    case 2:
        fault.hash += (uint64_t)random_int(source, 0, 2);
        return fault;
    case 3:
        fault.tag ^= 1;
        return fault;
    default:
        return fault;
    }
}

/* Merge records in a random tree, some of them twice. */
static ta_fault merge_any_way(random_source *source, const ta_fault *records, int ranks)
{
    ta_fault left[2 * MAX_RANKS];
    int count = 0;
    for (int rank = 0; rank < ranks; ++rank) {
        left[count++] = records[rank];
        if (random_int(source, 0, 3) == 0)
            left[count++] = records[rank];
    }
    while (count > 1) {
        int a = random_int(source, 0, count - 1), b = random_int(source, 0, count - 1);
        if (a == b)
            continue;
        TEST_ASSERT_TRUE(same(ta_fault_merge(left[a], left[b]), ta_fault_merge(left[b], left[a])));
        left[a] = ta_fault_merge(left[a], left[b]);
        left[b] = left[--count];
    }
    return left[0];
}

/* What must come out: the lowest rank's own fault; otherwise any two ranks that differ. */
static void check_verdict(const ta_fault *records, int ranks, ta_fault verdict)
{
    int lowest = -1, differ = 0;
    for (int rank = ranks - 1; rank >= 0; --rank) {
        if (records[rank].status != TA_OK)
            lowest = rank;
        differ |= records[rank].hash != records[0].hash || records[rank].tag != records[0].tag;
    }
    if (lowest >= 0) {
        TEST_ASSERT_TRUE(same(verdict, records[lowest]));
    } else if (differ) {
        TEST_ASSERT_EQUAL_INT(TA_ERR_MISMATCH, verdict.status);
        TEST_ASSERT_TRUE(verdict.rank >= 0 && verdict.rank < verdict.other);
        TEST_ASSERT_TRUE(verdict.other < ranks);
        const ta_fault *a = &records[verdict.rank], *b = &records[verdict.other];
        TEST_ASSERT_TRUE(!(verdict.what & TA_DIFFERS_HASH) || a->hash != b->hash);
        TEST_ASSERT_TRUE(!(verdict.what & TA_DIFFERS_TAG) || a->tag != b->tag);
        TEST_ASSERT_TRUE(verdict.what != 0);
    } else {
        TEST_ASSERT_EQUAL_INT(TA_OK, verdict.status);
        TEST_ASSERT_EQUAL_UINT64(records[0].hash, verdict.hash);
    }
}

static ta_fault merge_integers(const ta_fault *records, int ranks, int own)
{
    int64_t largest[TA_FAULT_INTEGERS], integers[TA_FAULT_INTEGERS];
    ta_fault_to_integers(records[0], largest);
    for (int rank = 1; rank < ranks; ++rank) {
        ta_fault_to_integers(records[rank], integers);
        for (int i = 0; i < TA_FAULT_INTEGERS; ++i)
            largest[i] = integers[i] > largest[i] ? integers[i] : largest[i];
    }
    return ta_fault_from_integers(largest, records[own]);
}

static void test_any_order(void)
{
    random_source source = random_from(20);
    for (int turn = 0; turn < 20000; ++turn) {
        ta_fault records[MAX_RANKS];
        int ranks = random_int(&source, 1, MAX_RANKS);
        for (int rank = 0; rank < ranks; ++rank)
            records[rank] = random_record(&source, rank);
        check_verdict(records, ranks, merge_any_way(&source, records, ranks));
        check_verdict(records, ranks,
                      merge_integers(records, ranks, random_int(&source, 0, ranks - 1)));
    }
}

/* The difference that a bit of `what` makes. */
static int part_of_bit(int bit)
{
    for (int part = 0; part < TA_COMMON_PARTS; ++part) {
        int first, count;
        ta_common_bits(part, &first, &count);
        if (bit >= first && bit < first + count)
            return 1 << part;
    }
    return 0;
}

/* Values at the ends of their ranges, and that differ in one bit. */
static void test_integers_of_extreme_values(void)
{
    static const uint64_t values[] = {0, 1, INT64_MAX, (uint64_t)INT64_MAX + 1, UINT64_MAX};
    for (size_t i = 0; i < sizeof values / sizeof *values; ++i)
        for (int bit = 0; bit < 64; ++bit) {
            uint64_t other = values[i] ^ (uint64_t)1 << bit;
            ta_fault hashes[] = {step(0, -1, values[i], 0), step(1, -1, other, 0)};
            ta_fault tags[] = {step((1 << TA_FAULT_RANK_BITS) - 1, 0, 5, other),
                               step(0, 0, 5, values[i])};
            expect_difference(merge_integers(hashes, 2, 0), 0, 1, TA_DIFFERS_HASH);
            expect_difference(merge_integers(tags, 2, 0), 0, (1 << TA_FAULT_RANK_BITS) - 1,
                              TA_DIFFERS_TAG);
            hashes[1].hash = values[i];
            TEST_ASSERT_TRUE(same(merge_integers(hashes, 2, 1), hashes[1]));
        }
    for (int bit = 0; bit < 32; ++bit) {
        ta_fault what[] = {step(0, INT32_MIN, 0, 0),
                           step(1, (int32_t)((uint32_t)INT32_MIN ^ (uint32_t)1 << bit), 0, 0)};
        expect_difference(merge_integers(what, 2, 0), 0, 1, part_of_bit(bit));
    }
}

/* The last of the most ranks that the integers have room for, and the one before it: neither their
 * numbers nor the values are taken for parts of each other. */
static void test_integers_of_the_last_ranks(void)
{
    const int last = 1048575;
    ta_fault same_step[] = {step(last, 1, 2, 3), step(last - 1, 1, 2, 3)};
    ta_fault tags[] = {step(last, 1, 2, 3), step(last - 1, 1, 2, 4)};
    ta_fault own = ta_fault_of(TA_ERR_INVALID, last);
    TEST_ASSERT_TRUE(same(merge_integers(same_step, 2, 1), same_step[1]));
    expect_difference(merge_integers(tags, 2, 0), last - 1, last, TA_DIFFERS_TAG);
    same_step[0] = own;
    TEST_ASSERT_TRUE(same(merge_integers(same_step, 2, 1), own));
}

/* Every part is told from the others, alone and with others, by merging and through integers; and
 * one that is there from one that is not. */
static void test_parts(void)
{
    int named = 0, tried = 0;
    for (int differ = 1; differ < 1 << TA_COMMON_PARTS; ++differ)
        for (uint64_t value = 0; value < 50; ++value) {
            ta_fault records[2] = {ta_fault_of(TA_OK, 0), ta_fault_of(TA_OK, 1)};
            for (int part = 0; part < TA_COMMON_PARTS; ++part) {
                ta_fault_share(&records[0], part, value);
                if (!(differ >> part & 1))
                    ta_fault_share(&records[1], part, value);
                else if (value % 5)
                    ta_fault_share(&records[1], part, value + 1 + value % 3);
            }
            ta_fault merged = ta_fault_merge(records[0], records[1]);
            TEST_ASSERT_EQUAL_INT(TA_ERR_MISMATCH, merged.status);
            TEST_ASSERT_EQUAL_INT(TA_DIFFERS_HASH, merged.what & ~differ);
            TEST_ASSERT_EQUAL_INT(TA_ERR_MISMATCH, merge_integers(records, 2, 0).status);
            TEST_ASSERT_EQUAL_INT(0, merge_integers(records, 2, 0).what & ~merged.what);
            named += merged.what == (TA_DIFFERS_HASH | differ);
            ++tried;
        }
    TEST_ASSERT_TRUE(named > tried * 9 / 10); /* the few bits of a part are the same by chance */
}

/* How often flipping the bit `in` of random numbers flips each bit of their mix. */
static void count_flips(int in, int turns, int flips[64])
{
    random_source source = random_from(31);
    memset(flips, 0, 64 * sizeof *flips);
    for (int turn = 0; turn < turns; ++turn) {
        uint64_t x = random_bits(&source);
        uint64_t changed = ta_fault_mix(x) ^ ta_fault_mix(x ^ (uint64_t)1 << in);
        for (int out = 0; out < 64; ++out)
            flips[out] += (int)(changed >> out & 1);
    }
}

/* A rank that is lost is no difference of two ranks and no fault of its own; its word says all of
 * it. */
static void test_lost_ranks(void)
{
    static const int ranks[] = {0, 1, 71, (1 << TA_FAULT_RANK_BITS) - 1};
    for (size_t i = 0; i < sizeof ranks / sizeof *ranks; ++i) {
        ta_fault missing = ta_fault_missing(ranks[i]);
        ta_fault aborted = ta_fault_lost(TA_ERR_ABORTED, ranks[i]);
        TEST_ASSERT_TRUE(ta_fault_is_lost(missing) && ta_fault_is_lost(aborted));
        TEST_ASSERT_EQUAL_INT32(1 + ranks[i], ta_fault_lost_word(missing));
        TEST_ASSERT_EQUAL_INT32(-1 - ranks[i], ta_fault_lost_word(aborted));
        TEST_ASSERT_TRUE(same(missing, ta_fault_of_lost_word(ta_fault_lost_word(missing))));
        TEST_ASSERT_TRUE(same(aborted, ta_fault_of_lost_word(ta_fault_lost_word(aborted))));
    }
    TEST_ASSERT_EQUAL_INT32(0, ta_fault_lost_word(ta_fault_of(TA_OK, 0)));
    TEST_ASSERT_EQUAL_INT32(0, ta_fault_lost_word(ta_fault_of(TA_ERR_TIMEOUT, 3)));
    TEST_ASSERT_EQUAL_INT32(0, ta_fault_lost_word(ta_fault_difference(1, 2, TA_DIFFERS_HASH)));
}

/* The integers keep the upper bits of a mix: each must hear of every bit that went in. */
static void test_each_bit_mixes_into_all(void)
{
    enum { TURNS = 1000 };
    for (int in = 0; in < 64; ++in) {
        int flips[64];
        count_flips(in, TURNS, flips);
        for (int out = 0; out < 64; ++out)
            TEST_ASSERT_INT_WITHIN(TURNS / 8, TURNS / 2, flips[out]);
    }
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(test_size);
    RUN_TEST(test_a_fault_counts_and_the_lowest_rank_wins);
    RUN_TEST(test_records_of_the_same_step);
    RUN_TEST(test_differences);
    RUN_TEST(test_ties);
    RUN_TEST(test_any_order);
    RUN_TEST(test_integers_of_extreme_values);
    RUN_TEST(test_integers_of_the_last_ranks);
    RUN_TEST(test_parts);
    RUN_TEST(test_lost_ranks);
    RUN_TEST(test_each_bit_mixes_into_all);
    return UNITY_END() != 0;
}
