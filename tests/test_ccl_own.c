/* NCCL's own calls (hip/ccl/own.c) on groups of GPUs over the executor's NCCL, as a program gets
 * them: from the device, by name and version. */
#include <stdlib.h>
#include <string.h>

#include <treeattn/collectives.h>
#include <treeattn/extension.h>

#include "base/status.h"
#include "device/ccl_own.h"
#include "device/device.h"
#include "lib/ccl_around.h"
#include "lib/ccl_ranks.h"
#include "lib/device_array.h"
#include "lib/expect.h"
#include "simt/simt_ccl.h"
#include "simt/simt_control.h"

#define MOST 5000

static ta_status find(ta_device *device, const ta_ccl_own_ops **own)
{
    const void *table = NULL;
    TA_TRY(ta_device_extension(device, TA_CCL_OWN_NAME, TA_CCL_OWN_VERSION, &table));
    *own = table;
    return TA_OK;
}

/* Small whole numbers, whose sums are exact in any order; another one in each place. */
static float value(size_t i, int rank)
{
    return (float)((i * 7 + (size_t)rank * 5) % 64 + 1);
}

/* What a rank needs: the calls, and memory for MOST floats on its device. */
static ta_status begin(ccl_rank *r, const ta_ccl_own_ops **own, void **data)
{
    TA_TRY(find(r->device, own));
    return ta_device_alloc(r->device, MOST * sizeof(float), data);
}

/* The sum of `count` numbers, and none behind them. */
static ta_status sum(ccl_rank *r, const ta_ccl_own_ops *own, float *data, size_t count)
{
    float *host = malloc(MOST * sizeof *host);
    RANK_EXPECT(host);
    for (size_t i = 0; i < MOST; ++i)
        host[i] = value(i, r->rank);
    TA_TRY(ta_device_copy(r->device, data, host, MOST * sizeof *host, r->streams[0]));
    TA_TRY(own->all_reduce_sum(r->group, data, count, r->streams[0]));
    TA_TRY(ta_device_copy(r->device, host, data, MOST * sizeof *host, r->streams[0]));
    TA_TRY(ta_device_synchronize(r->device, r->streams[0]));
    for (size_t i = 0; i < MOST; ++i) {
        float right = 0;
        for (int rank = 0; rank < r->ranks; ++rank)
            right += i < count ? value(i, rank) : 0;
        RANK_EXPECT(host[i] == (i < count ? right : value(i, r->rank)));
    }
    free(host);
    return TA_OK;
}

static ta_status summing_rank(ccl_rank *r)
{
    static const size_t counts[] = {1, 3, 130, MOST - 1, 0};
    const ta_ccl_own_ops *own;
    ta_group_stats before = r->group->stats;
    void *data;
    size_t bytes = 0, calls = 0;
    TA_TRY(begin(r, &own, &data));
    for (size_t i = 0; i < sizeof counts / sizeof *counts; ++i) {
        TA_TRY(sum(r, own, data, counts[i]));
        bytes += counts[i] * sizeof(float);
        calls += counts[i] > 0;
    }
    const ta_group_stats *after = &r->group->stats;
    RANK_EXPECT(after->messages_sent == before.messages_sent + calls);
    RANK_EXPECT(after->messages_received == before.messages_received + calls);
    RANK_EXPECT(after->bytes_sent == before.bytes_sent + bytes);
    RANK_EXPECT(after->bytes_received == before.bytes_received + bytes);
    ta_device_free(r->device, data);
    return TA_OK;
}

static void test_sums(void)
{
    for (int ranks = 1; ranks <= 5; ranks += 2)
        EXPECT_OK(ccl_run(ranks, LONG_WAIT_MS, summing_rank, NULL));
}

/* What is lost depends on the order, which is the executor's from place to place, and not that of
 * the ranks, as ta_all_reduce() has it; and no kernel of the library's adds anything. */
static ta_status ordering_rank(ccl_rank *r)
{
    static const float parts[] = {0x1p24F, 1, -0x1p24F};
    const ta_ccl_own_ops *own;
    uint64_t launches = r->device->stats.launches;
    float host[2][130];
    void *data;
    TA_TRY(find(r->device, &own));
    TA_TRY(ta_device_alloc(r->device, sizeof host, &data));
    for (size_t i = 0; i < 130; ++i)
        host[0][i] = host[1][i] = parts[r->rank];
    TA_TRY(ta_device_copy(r->device, data, host, sizeof host, r->streams[0]));
    TA_TRY(own->all_reduce_sum(r->group, data, 130, r->streams[0]));
    RANK_EXPECT(r->device->stats.launches == launches);
    float *second = (float *)data + 130;
    TA_TRY(ta_all_reduce(r->group, r->device, second, second, 130, TA_ELEMENT_F32, TA_REDUCE_SUM,
                         r->streams[0]));
    TA_TRY(ta_device_copy(r->device, host, data, sizeof host, r->streams[0]));
    TA_TRY(ta_device_synchronize(r->device, r->streams[0]));
    RANK_EXPECT(host[0][0] == 0 && host[0][64] == 1);
    RANK_EXPECT(host[1][0] == 0 && host[1][64] == 0);
    ta_device_free(r->device, data);
    return TA_OK;
}

static void test_the_order_is_theirs(void)
{
    EXPECT_OK(ccl_run(3, LONG_WAIT_MS, ordering_rank, NULL));
}

/* Groups that NCCL does not connect, and arguments; the groups go on to work. */
static ta_status refused_rank(ccl_rank *r)
{
    const ta_ccl_own_ops *own;
    void *data;
    TA_TRY(begin(r, &own, &data));
    TA_TRY(rank_expect_error(TA_ERR_UNSUPPORTED, own->all_reduce_sum(r->threads, data, 4, NULL),
                             "group is one of threads", "must be one of"));
    TA_TRY(rank_expect_error(TA_ERR_INVALID, own->all_reduce_sum(NULL, data, 4, NULL),
                             "group is NULL", "NCCL"));
    TA_TRY(rank_expect_error(TA_ERR_INVALID, own->all_reduce_sum(r->group, NULL, 4, NULL),
                             "data is NULL", "4 floats"));
    TA_TRY(rank_expect_error(TA_ERR_INVALID, own->all_reduce_sum(r->group, data, SIZE_MAX, NULL),
                             "count is", "exceed the address space"));
    TA_TRY(ta_group_barrier(r->threads, NULL));
    TA_TRY(sum(r, own, data, 100));
    ta_device_free(r->device, data);
    return TA_OK;
}

static void test_what_is_refused(void)
{
    EXPECT_OK(ccl_run(2, LONG_WAIT_MS, refused_rank, NULL));
}

/* A group that is broken says so, as with any of its calls. */
static ta_status broken_rank(ccl_rank *r)
{
    const ta_ccl_own_ops *own;
    void *data;
    TA_TRY(begin(r, &own, &data));
    TA_TRY(ta_group_barrier(r->threads, NULL));
    if (r->rank == 0)
        ta_group_abort(r->group, "somebody pulled the plug");
    TA_TRY(ta_group_barrier(r->threads, NULL));
    for (size_t count = 0; count < 5; count += 4)
        TA_TRY(rank_expect_error(TA_ERR_ABORTED, own->all_reduce_sum(r->group, data, count, NULL),
                                 "rank 0 aborted the group", "pulled the plug"));
    ta_device_free(r->device, data);
    return TA_OK;
}

static void test_broken(void)
{
    EXPECT_OK(ccl_run(3, LONG_WAIT_MS, broken_rank, NULL));
}

/* Work of theirs that fails breaks the group on all ranks. */
static ta_status failing_rank(ccl_rank *r)
{
    const ta_ccl_own_ops *own;
    void *data;
    TA_TRY(begin(r, &own, &data));
    TA_TRY(ta_group_barrier(r->threads, NULL));
    if (r->rank == 0)
        simt_fail_ccl(1, 1);
    TA_TRY(ta_group_barrier(r->threads, NULL));
    (void)own->all_reduce_sum(r->group, data, 4, r->streams[0]);
    RANK_EXPECT(hipStreamSynchronize((hipStream_t)r->streams[0]) == hipSuccess);
    TA_TRY(ta_group_barrier(r->threads, NULL));
    TA_TRY(rank_expect_error(TA_ERR_DEVICE, own->all_reduce_sum(r->group, data, 4, r->streams[0]),
                             "rank 1", "a failure that was asked for"));
    ta_device_free(r->device, data);
    return TA_OK;
}

static void test_failure(void)
{
    EXPECT_OK(ccl_run(3, LONG_WAIT_MS, failing_rank, NULL));
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(test_sums);
    RUN_TEST(test_the_order_is_theirs);
    RUN_TEST(test_what_is_refused);
    RUN_TEST(test_broken);
    RUN_TEST(test_failure);
    return UNITY_END() != 0;
}
