/* The kernel of a direct exchange between GPUs (hip/exchange/peers.hip) on one rank alone: the
 * others are this test, which writes what they would into the rank's slab, at a moment and to the
 * blocks of its choice. So it is seen what a block does with a flag that comes when the time is
 * over, and what becomes of a step in which blocks find different things. test_rules.cpp has ranks
 * that run. */
#include <atomic>
#include <sched.h>
#include <string.h>
#include <time.h>
#include <vector>

#include <unity.h>

#include "vendor.h"

#include "shape.h"
#include "simt_control.h"

static device_side self;
static char *slabs[ranks]; /* the first is its own */

/* What happens between two looks at a flag, in place of the executor's own. */
static void (*between_looks)();

namespace simt
{
void wait_for_peers(call)
{
    if (between_looks)
        between_looks();
    sched_yield();
}
} // namespace simt

static ta_peers_params in_slab; /* where things are in it */

/* Every rank's partial is 1 + its number, with the same weight. */
static void fill(float *to, int rank)
{
    for (int record = 0; record < records; record++)
        for (int c = 0; c < record_floats; c++)
            to[record * record_floats + c] =
                c < v_dim ? static_cast<float>(1 + rank) : static_cast<float>(c - v_dim);
}

static void right(hipError_t error)
{
    TEST_ASSERT_EQUAL_STRING("no error",
                             error == hipSuccess ? "no error" : hipGetErrorString(error));
}

void setUp(void)
{
    between_looks = nullptr;
    for (char *&slab : slabs) {
        right(hipMalloc(&slab, slab_bytes()));
        right(hipMemset(slab, 0, slab_bytes()));
    }
    self.slab = slabs[0];
    right(hipMalloc(&self.control, sizeof *self.control));
    right(hipMemset(self.control, 0, sizeof *self.control));
    right(hipMalloc(&self.records, partial_bytes));
    right(hipMalloc(&self.out, records * v_dim * sizeof(float)));
    right(hipHostMalloc(&self.report, sizeof *self.report, hipHostMallocDefault));
    memset(self.report, 0, sizeof *self.report);
    right(hipDeviceSynchronize());
    in_slab = params_of(self, 0);
    memcpy(self.control->slabs, slabs, sizeof slabs);
    for (int rank = 0; rank < ranks; rank++)
        self.control->names[rank] = rank;
    fill(self.records, 0);
    ta_fault none = ta_fault_of(TA_OK, 0);
    memcpy(self.records + records * record_floats, &none, sizeof none);
    for (int rank = 1; rank < ranks; rank++)
        for (uint32_t epoch = 1; epoch <= 2; epoch++)
            fill(ta_peer_partial(self.slab, &in_slab, epoch, rank), rank);
}

void tearDown(void)
{
    for (char *slab : slabs)
        (void)hipFree(slab);
    (void)hipFree(self.control), (void)hipFree(self.records);
    (void)hipFree(self.out), (void)hipHostFree(self.report);
}

/* Rank `from` has come to this exchange, as far as block `block` sees. */
static void come(int from, int block, uint32_t epoch, const ta_fault &fault)
{
    ta_peer_line *line = ta_peer_line_of(self.slab, &in_slab, 0, epoch, block, from);
    line->fault = fault;
    __atomic_store_n(&line->epoch, epoch, __ATOMIC_RELEASE);
}

static void all_come(int end, uint32_t epoch)
{
    for (int rank = 1; rank < end; rank++)
        for (int block = 0; block < blocks; block++)
            come(rank, block, epoch, ta_fault_of(TA_OK, rank));
}

static void exchange(uint64_t patience)
{
    ta_peers_params p = params_of(self, patience);
    right(static_cast<hipError_t>(ta_launch_peers_finish(&p, nullptr).error));
    right(hipDeviceSynchronize());
}

/* What was heard, by all that look for it; and it is taken. */
static void expect_heard(const ta_fault &expected)
{
    const ta_fault *heard = &self.control->heard, *told = self.report;
    TEST_ASSERT_EQUAL_INT(expected.status, heard->status);
    TEST_ASSERT_EQUAL_INT(expected.rank, heard->rank);
    TEST_ASSERT_EQUAL_INT(expected.other, heard->other);
    TEST_ASSERT_EQUAL_INT(expected.status, told->status);
    if (expected.status != TA_OK)
        TEST_ASSERT_EQUAL_MEMORY(heard, told, sizeof *told);
    memset(self.report, 0, sizeof *self.report);
}

/* As if the device had been taken away between two looks: when it comes back all flags are there,
 * and no time is left. */
static void test_flag_after_the_time(void)
{
    between_looks = [] { all_come(ranks, 1); };
    exchange(0);
    expect_heard(ta_fault_of(TA_OK, 0));
    for (int i = 0; i < records * v_dim; i++)
        TEST_ASSERT_EQUAL_FLOAT(2.5f, self.out[i]);
}

/* The machine stands still for longer than the time that a rank has, and then others go on: they
 * come a few looks later. */
static void test_flag_after_a_pause(void)
{
    between_looks = [] {
        static thread_local int looks;
        static std::atomic<bool> came;
        struct timespec pause = {0, 40000000};
        if (++looks == 1)
            nanosleep(&pause, nullptr);
        else if (looks == 3 && !came.exchange(true))
            all_come(ranks, 1);
    };
    exchange(20000000);
    expect_heard(ta_fault_of(TA_OK, 0));
}

static void test_no_flag(void)
{
    exchange(1000);
    expect_heard(ta_fault_missing(1));
    TEST_ASSERT_EQUAL_INT(2, self.control->blocks[0].lost);
}

/* The first block has everybody, the others miss the last rank. */
static void test_missing_in_some_blocks(void)
{
    all_come(last, 1);
    come(last, 0, 1, ta_fault_of(TA_OK, last));
    exchange(1000000);
    expect_heard(ta_fault_missing(last));
    TEST_ASSERT_EQUAL_INT(0, self.control->blocks[0].lost);
    TEST_ASSERT_EQUAL_INT(1 + last, self.control->blocks[1].lost);
    all_come(ranks, 2); /* too late for the others */
    exchange(1000000);
    expect_heard(ta_fault_missing(last));
}

static uint32_t word_for(int rank)
{
    return *ta_peer_lost_word(slabs[rank], &in_slab, rank);
}

/* Another rank says that the last one is lost, while this one waits: it need not wait any longer,
 * and hands on what it heard. */
static void test_told_of_a_lost_rank(void)
{
    ta_fault aborted = ta_fault_lost(TA_ERR_ABORTED, last);
    between_looks = [] {
        int32_t word = ta_fault_lost_word(ta_fault_lost(TA_ERR_ABORTED, last));
        __atomic_store_n(ta_peer_lost_word(self.slab, &in_slab, 0), static_cast<uint32_t>(word),
                         __ATOMIC_RELAXED);
    };
    all_come(last, 1);
    exchange(UINT64_C(1) << 60);
    expect_heard(aborted);
    for (int rank = 0; rank < ranks; rank++)
        TEST_ASSERT_EQUAL_INT32(-1 - last, word_for(rank));
    between_looks = nullptr;
    all_come(ranks, 2);
    exchange(UINT64_C(1) << 60);
    expect_heard(aborted);
}

/* What is there is taken, whoever is lost. */
static void test_flags_count_more(void)
{
    *ta_peer_lost_word(self.slab, &in_slab, 0) = 1 + last;
    all_come(ranks, 1);
    exchange(UINT64_C(1) << 60);
    expect_heard(ta_fault_of(TA_OK, 0));
}

/* Who misses a rank says so to all: those who have not given it up yet, and go on, would miss this
 * one. */
static void test_all_are_told(void)
{
    all_come(last, 1);
    exchange(1000000);
    expect_heard(ta_fault_missing(last));
    for (int rank = 0; rank < ranks; rank++)
        TEST_ASSERT_EQUAL_INT32(1 + last, word_for(rank));
}

/* To the first block the last rank says that it is in another step: that is told, whole, and that
 * it is missing in the next exchange. */
static void test_another_fault_in_some_blocks(void)
{
    ta_fault other = ta_fault_of(TA_OK, last);
    other.hash = 7;
    all_come(last, 1);
    come(last, 0, 1, other);
    exchange(1000000);
    expect_heard(ta_fault_difference(0, last, TA_DIFFERS_HASH));
    all_come(ranks, 2);
    exchange(1000000);
    expect_heard(ta_fault_missing(last));
}

/* Nobody reads the report between two exchanges: the first stays. */
static void test_report_is_not_taken(void)
{
    ta_fault fault = ta_fault_of(TA_ERR_INVALID, 2);
    all_come(ranks, 1);
    for (int block = 0; block < blocks; block++)
        come(2, block, 1, fault);
    exchange(1000000);
    TEST_ASSERT_EQUAL_INT(TA_ERR_INVALID, self.report->status);
    exchange(1000);
    TEST_ASSERT_EQUAL_INT(TA_ERR_INVALID, self.report->status);
    TEST_ASSERT_EQUAL_INT(2, self.report->rank);
    memset(self.report, 0, sizeof *self.report);
    exchange(1000); /* what came after it is told no less */
    expect_heard(ta_fault_missing(1));
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(test_flag_after_the_time);
    RUN_TEST(test_flag_after_a_pause);
    RUN_TEST(test_no_flag);
    RUN_TEST(test_missing_in_some_blocks);
    RUN_TEST(test_told_of_a_lost_rank);
    RUN_TEST(test_flags_count_more);
    RUN_TEST(test_all_are_told);
    RUN_TEST(test_another_fault_in_some_blocks);
    RUN_TEST(test_report_is_not_taken);
    return UNITY_END() != 0;
}
