/* The public calls of a group and the collectives over its messages (src/group/group.c), on ranks
 * that are threads. */
#include "group/group.h"

#include <math.h>
#include <stdlib.h>

#include "lib/ceil_log2.h"
#include "lib/expect.h"
#include "lib/run_and_meet.h"

static const int rank_counts[] = {1, 2, 3, 4, 5, 6, 7, 8};
#define RANK_COUNTS ((int)(sizeof rank_counts / sizeof *rank_counts))

static const size_t sizes[] = {0, 1, 7, 64, 1000, 1 << 20};
#define SIZES ((int)(sizeof sizes / sizeof *sizes))

void setUp(void)
{
}

void tearDown(void)
{
}

/* What rank `rank` writes at byte `i` in round `round`. */
static unsigned char pattern(int rank, size_t i, int round)
{
    return (unsigned char)((unsigned)rank * 37u + i * 11u + (i >> 8) + (unsigned)round * 101u);
}

static void fill(unsigned char *data, size_t bytes, int rank, int round)
{
    for (size_t i = 0; i < bytes; ++i)
        data[i] = pattern(rank, i, round);
}

static int is_filled(const unsigned char *data, size_t bytes, int rank, int round)
{
    for (size_t i = 0; i < bytes; ++i)
        if (data[i] != pattern(rank, i, round))
            return 0;
    return 1;
}

static void run_everywhere(ta_rank_fn fn, void *context)
{
    for (int i = 0; i < RANK_COUNTS; ++i)
        EXPECT_OK(ta_group_run_threads(rank_counts[i], NULL, fn, context));
}

static ta_status broadcast_rank(ta_group *group, void *context)
{
    unsigned char *data = malloc(sizes[SIZES - 1]);
    (void)context;
    for (int s = 0; s < SIZES; ++s)
        for (int root = 0; root < ta_group_size(group); ++root) {
            memset(data, 0xee, sizes[s]);
            if (root == ta_group_rank(group))
                fill(data, sizes[s], root, s);
            TA_TRY(ta_group_broadcast(group, data, sizes[s], root, NULL));
            RANK_EXPECT(is_filled(data, sizes[s], root, s));
        }
    free(data);
    return TA_OK;
}

static void test_broadcast(void)
{
    run_everywhere(broadcast_rank, NULL);
}

/* Uneven parts, some of them empty: rank r gives (r · 7 + round · 3) % 5 · `unit` bytes. */
static ta_status all_gather_rank(ta_group *group, void *context)
{
    size_t unit = *(size_t *)context, offsets[9] = {0};
    int size = ta_group_size(group), rank = ta_group_rank(group);
    for (int round = 0; round < 5; ++round) {
        for (int r = 0; r < size; ++r)
            offsets[r + 1] = offsets[r] + (size_t)((r * 7 + round * 3) % 5) * unit;
        unsigned char *data = malloc(offsets[size] + 1);
        memset(data, 0xee, offsets[size] + 1);
        fill(data + offsets[rank], offsets[rank + 1] - offsets[rank], rank, round);
        TA_TRY(ta_group_all_gather(group, data, offsets, NULL));
        for (int r = 0; r < size; ++r)
            RANK_EXPECT(is_filled(data + offsets[r], offsets[r + 1] - offsets[r], r, round));
        RANK_EXPECT(data[offsets[size]] == 0xee);
        free(data);
    }
    return TA_OK;
}

static void test_all_gather_of_uneven_parts(void)
{
    size_t units[] = {1, 100, 50000};
    for (int i = 0; i < 3; ++i)
        run_everywhere(all_gather_rank, &units[i]);
}

/* No rank may leave a barrier before the last has come. */
static ta_status barrier_rank(ta_group *group, void *context)
{
    int *arrived = context, size = ta_group_size(group);
    for (int round = 1; round <= 200; ++round) {
        __atomic_add_fetch(arrived, 1, __ATOMIC_SEQ_CST);
        TA_TRY(ta_group_barrier(group, NULL));
        RANK_EXPECT(__atomic_load_n(arrived, __ATOMIC_SEQ_CST) >= round * size);
    }
    return TA_OK;
}

static void test_barrier(void)
{
    for (int i = 0; i < RANK_COUNTS; ++i) {
        int arrived = 0;
        EXPECT_OK(ta_group_run_threads(rank_counts[i], NULL, barrier_rank, &arrived));
        TEST_ASSERT_EQUAL_INT(200 * rank_counts[i], arrived);
    }
}

/* The collectives take a logarithmic number of messages. */
static ta_status count_rank(ta_group *group, void *context)
{
    int size = ta_group_size(group), depth = ceil_log2(size);
    ta_group_stats before = TA_GROUP_STATS_INIT, after = TA_GROUP_STATS_INIT;
    unsigned char data[64] = {0};
    size_t offsets[9];
    (void)context;
    for (int r = 0; r < 9; ++r)
        offsets[r] = (size_t)r * 8;
    TA_TRY(ta_group_get_stats(group, &before));
    RANK_EXPECT(before.messages_sent == 0 && before.bytes_sent == 0);
    TA_TRY(ta_group_barrier(group, NULL));
    TA_TRY(ta_group_get_stats(group, &after));
    RANK_EXPECT(after.messages_sent == (uint64_t)depth && after.bytes_sent == 0);
    TA_TRY(ta_group_broadcast(group, data, 64, 0, NULL));
    TA_TRY(ta_group_get_stats(group, &after));
    RANK_EXPECT(after.messages_sent + after.messages_received <= 3u * (unsigned)depth);
    RANK_EXPECT(after.bytes_received == (ta_group_rank(group) ? 64u : 0u));
    before = after;
    TA_TRY(ta_group_all_gather(group, data, offsets, NULL));
    TA_TRY(ta_group_get_stats(group, &after));
    RANK_EXPECT(after.messages_sent - before.messages_sent <= 2u * (unsigned)depth);
    RANK_EXPECT(after.bytes_received - before.bytes_received == 8u * (unsigned)(size - 1));
    RANK_EXPECT(after.bytes_sent - before.bytes_sent == 8u * (unsigned)(size - 1));
    return TA_OK;
}

static void test_counts(void)
{
    run_everywhere(count_rank, NULL);
}

static void test_rank_and_size(void)
{
    ta_group *groups[3];
    EXPECT_OK(ta_group_create_threads(3, NULL, groups));
    for (int rank = 0; rank < 3; ++rank) {
        TEST_ASSERT_EQUAL_INT(rank, ta_group_rank(groups[rank]));
        TEST_ASSERT_EQUAL_INT(3, ta_group_size(groups[rank]));
    }
    for (int rank = 0; rank < 3; ++rank)
        ta_group_destroy(groups[rank]);
    /* No group is a group of one rank. */
    TEST_ASSERT_EQUAL_INT(0, ta_group_rank(NULL));
    TEST_ASSERT_EQUAL_INT(1, ta_group_size(NULL));
    ta_group_destroy(NULL);
    ta_group_abort(NULL, "nobody");
}

static void test_bad_arguments_of_count(void)
{
    ta_group *group;
    ta_group_stats stats = TA_GROUP_STATS_INIT;
    EXPECT_OK(ta_group_create_threads(1, NULL, &group));
    EXPECT_ERROR(TA_ERR_INVALID, ta_group_get_stats(NULL, &stats), "group is NULL", NULL);
    EXPECT_ERROR(TA_ERR_INVALID, ta_group_get_stats(group, NULL), "stats", NULL);
    stats.size = 3;
    stats.messages_sent = 99;
    EXPECT_ERROR(TA_ERR_INVALID, ta_group_get_stats(group, &stats), "stats", "TA_GROUP_STATS_INIT");
    TEST_ASSERT_TRUE(stats.messages_sent == 99 && stats.size == 3);
    ta_group_destroy(group);
}

/* Sums whose value depends on the order: all ranks must have the same bits, in every run. */
static ta_status reduce_order_rank(ta_group *group, void *context)
{
    enum { COUNT = 10000 };
    int rank = ta_group_rank(group), size = ta_group_size(group);
    float *own = malloc(COUNT * sizeof *own), *sum = malloc(COUNT * sizeof *sum);
    float *first = malloc(COUNT * sizeof *first);
    (void)context;
    for (int i = 0; i < COUNT; ++i)
        own[i] = sinf((float)(i * 13 + rank * 7)) * powf(10, (float)((i + rank) % 9));
    for (int round = 0; round < 3; ++round) {
        TA_TRY(ta_group_all_reduce(group, own, sum, COUNT, TA_ELEMENT_F32, TA_REDUCE_SUM, NULL));
        if (round == 0)
            memcpy(first, sum, COUNT * sizeof *sum);
        RANK_EXPECT(memcmp(first, sum, COUNT * sizeof *sum) == 0);
    }
    TA_TRY(ta_group_broadcast(group, first, COUNT * sizeof *first, size - 1, NULL));
    RANK_EXPECT(memcmp(first, sum, COUNT * sizeof *sum) == 0);
    free(first);
    free(sum);
    free(own);
    return TA_OK;
}

static void test_a_sum_has_the_same_bits_everywhere(void)
{
    run_everywhere(reduce_order_rank, NULL);
}

/* Each rank in turn has a NaN; all have zeros of either sign. */
static ta_status reduce_nan_rank(ta_group *group, void *context)
{
    int rank = ta_group_rank(group), size = ta_group_size(group);
    float values[16], most[16];
    uint32_t bits[16], first[16];
    (void)context;
    for (int reduction = TA_REDUCE_SUM; reduction <= TA_REDUCE_MAX; ++reduction) {
        for (int i = 0; i < 16; ++i)
            values[i] = i == rank ? NAN : (i + rank) % 2 ? -0.0f : 0.0f;
        TA_TRY(ta_group_all_reduce(group, values, most, 16, TA_ELEMENT_F32, (ta_reduction)reduction,
                                   NULL));
        for (int i = 0; i < 16; ++i)
            RANK_EXPECT(i < size ? isnan(most[i]) : most[i] == 0);
        memcpy(bits, most, sizeof bits);
        memcpy(first, most, sizeof first);
        TA_TRY(ta_group_broadcast(group, first, sizeof first, 0, NULL));
        RANK_EXPECT(memcmp(first, bits, sizeof bits) == 0);
    }
    return TA_OK;
}

static void test_a_nan_is_never_hidden(void)
{
    run_everywhere(reduce_nan_rank, NULL);
}

/* Parts are what ta_group_split() says, and live on when the group is gone or broken. */
static ta_status split_rank(ta_group *group, void *context)
{
    int rank = ta_group_rank(group), size = ta_group_size(group);
    ta_group *part = group, *none = group;
    (void)context;
    TA_TRY(ta_group_split(group, -1 - rank, 0, &none));
    RANK_EXPECT(none == NULL);
    TA_TRY(ta_group_split(group, rank % 3, -rank, &part));
    int members = (size - 1 - rank % 3) / 3 + 1;
    RANK_EXPECT(ta_group_size(part) == members);
    RANK_EXPECT(ta_group_rank(part) == members - 1 - rank / 3);
    (void)ta_group_barrier(group, NULL); /* all have their part, or somebody has gone on already */
    ta_group_abort(group, "the whole is not needed any more");
    int64_t sum = rank;
    TA_TRY(ta_group_all_reduce(part, &sum, &sum, 1, TA_ELEMENT_I64, TA_REDUCE_SUM, NULL));
    RANK_EXPECT(sum == members * (rank % 3) + 3 * members * (members - 1) / 2);
    ta_group_destroy(part);
    return TA_OK;
}

static void test_split(void)
{
    run_everywhere(split_rank, NULL);
}

static ta_status split_without_rank(ta_group *group, void *barrier)
{
    ta_group *part = NULL;
    if (ta_group_rank(group) == 1)
        return TA_OK;
    pthread_barrier_wait(barrier); /* the others come together */
    return ta_group_split(group, 0, 0, &part);
}

static void test_split_that_fails(void)
{
    ta_group *group, *part = (ta_group *)&group;
    EXPECT_ERROR(TA_ERR_TIMEOUT, run_and_meet(4, 3, 1000, split_without_rank),
                 "rank 1 did not arrive", NULL);
    EXPECT_OK(ta_group_create_threads(1, NULL, &group));
    EXPECT_ERROR(TA_ERR_INVALID, ta_group_split(NULL, 0, 0, &part), "group is NULL", NULL);
    EXPECT_ERROR(TA_ERR_INVALID, ta_group_split(group, 0, 0, NULL), "part is NULL", NULL);
    ta_group_abort(group, "enough");
    EXPECT_ERROR(TA_ERR_ABORTED, ta_group_exchange(group, NULL, 0, 0, NULL, 0, -1, NULL), "enough",
                 NULL);
    TEST_ASSERT_EQUAL_PTR(&group, part);
    ta_group_destroy(group);
}

/* `meson test` lets no module be found. */
static void test_mpi_without_its_module(void)
{
    ta_group *group = (ta_group *)&group, *untouched = group;
    ta_group_config config = TA_GROUP_CONFIG_INIT;
    int comm = 0;
    EXPECT_ERROR(TA_ERR_INVALID, ta_group_create_mpi(NULL, NULL, &group), "comm is NULL", NULL);
    EXPECT_ERROR(TA_ERR_INVALID, ta_group_create_mpi(&comm, NULL, NULL), "group is NULL", NULL);
    config.timeout_ms = -5;
    EXPECT_ERROR(TA_ERR_INVALID, ta_group_create_mpi(&comm, &config, &group), "timeout_ms is -5",
                 NULL);
    if (getenv("TREEATTN_MODULE_PATH"))
        EXPECT_ERROR(TA_ERR_NOT_FOUND, ta_group_create_mpi(&comm, NULL, &group), "module mpi",
                     "treeattn-mpi.so");
    TEST_ASSERT_EQUAL_PTR(untouched, group);
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(test_broadcast);
    RUN_TEST(test_all_gather_of_uneven_parts);
    RUN_TEST(test_barrier);
    RUN_TEST(test_counts);
    RUN_TEST(test_a_sum_has_the_same_bits_everywhere);
    RUN_TEST(test_a_nan_is_never_hidden);
    RUN_TEST(test_split);
    RUN_TEST(test_split_that_fails);
    RUN_TEST(test_rank_and_size);
    RUN_TEST(test_bad_arguments_of_count);
    RUN_TEST(test_mpi_without_its_module);
    return UNITY_END() != 0;
}
