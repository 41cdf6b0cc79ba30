/* The executor's collectives: how they fail, and what older versions of the library lack. */
#include "ccl_test.h"

void setUp(void)
{
    simt_reset();
    simt_set_ccl_version(NCCL_VERSION_CODE);
    simt_fail_ccl(-1, 0);
}

void tearDown(void)
{
}

/* ---- How they fail ------------------------------------------------------------------------- */

static void test_injected_error(void)
{
    ncclUniqueId id = new_id();
    simt_fail_ccl(1, 2);
    on_ranks(3, [&](int rank) -> std::string {
        endpoint e(id, 3, rank, 4, true);
        ncclResult_t state;
        for (int call = 0; call < 2; call++)
            NEED(ncclAllReduce(e.in, e.out, 4, ncclFloat, ncclSum, e.comm, e.stream) ==
                 ncclSuccess);
        NEED(!ends_soon(e.stream));
        NEED(ncclCommGetAsyncError(e.comm, &state) == ncclSuccess);
        NEED(state == (rank == 1 ? ncclSystemError : ncclSuccess));
        NEED(rank != 1 || ncclAllGather(e.in, e.out, 1, ncclFloat, e.comm, e.stream) == state);
        NEED(ncclCommAbort(e.comm) == ncclSuccess);
        e.comm = nullptr;
        NEED(hipStreamSynchronize(e.stream) == hipSuccess);
        return "";
    });
}

static void test_mismatch(void)
{
    for (int collective = 0; collective < 2; collective++) {
        ncclUniqueId id = new_id();
        on_ranks(2, [&](int rank) -> std::string {
            endpoint e(id, 2, rank, 8, true);
            ncclResult_t state;
            size_t count = rank == 0 ? 8 : 4;
            if (collective)
                (void)ncclAllReduce(e.in, e.out, count, ncclFloat, ncclSum, e.comm, e.stream);
            else if (rank == 0)
                (void)ncclSend(e.in, count, ncclFloat, 1, e.comm, e.stream);
            else
                (void)ncclRecv(e.out, count, ncclFloat, 0, e.comm, e.stream);
            NEED(!ends_soon(e.stream));
            NEED(ncclCommGetAsyncError(e.comm, &state) == ncclSuccess);
            NEED(state == ncclInvalidUsage);
            NEED(std::string(ncclGetLastError(e.comm)).find("of 4 elements") != std::string::npos);
            return "";
        });
    }
}

/* A communicator that is not blocking must be asked before it is used. */
static void test_not_blocking(void)
{
    ncclUniqueId id = new_id();
    ncclComm_t comm;
    ncclResult_t state;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    TEST_ASSERT_EQUAL_INT(ncclInProgress, ncclCommInitRankConfig(&comm, 2, id, 0, &config));
    device_array<float> data(4);
    for (int i = 0; i < 20; i++) {
        TEST_ASSERT_EQUAL_INT(ncclSuccess, ncclCommGetAsyncError(comm, &state));
        TEST_ASSERT_EQUAL_INT(ncclInProgress, state);
    }
    TEST_ASSERT_EQUAL_INT(ncclInvalidUsage, ncclSend(data.data, 4, ncclFloat, 1, comm, nullptr));
    TEST_ASSERT_EQUAL_INT(ncclSuccess, ncclCommAbort(comm));
    TEST_ASSERT_EQUAL_INT(ncclInvalidArgument, ncclCommGetAsyncError(comm, &state));

    TEST_ASSERT_EQUAL_INT(ncclInProgress, ncclCommInitRankConfig(&comm, 1, new_id(), 0, &config));
    TEST_ASSERT_EQUAL_INT(ncclSuccess, settle(comm, ncclInProgress));
    for (int i = 0; i < 2; i++) {
        ncclResult_t result = ncclBroadcast(data.data, data.data, 4, ncclFloat, 0, comm, nullptr);
        TEST_ASSERT_EQUAL_INT(i == 0 ? ncclInProgress : ncclInvalidUsage, result);
    }
    TEST_ASSERT_EQUAL_INT(ncclInvalidUsage, ncclCommDestroy(comm));
    TEST_ASSERT_EQUAL_INT(ncclSuccess, settle(comm, ncclInProgress));
    TEST_ASSERT_EQUAL_INT(ncclSuccess, settle(comm, ncclCommFinalize(comm)));
    TEST_ASSERT_EQUAL_INT(ncclSuccess, ncclCommDestroy(comm));
}

static void test_split(void)
{
    for (int blocking = 0; blocking < 2; blocking++) {
        ncclUniqueId id = new_id();
        on_ranks(5, [&](int rank) -> std::string {
            endpoint e(id, 5, rank, 1, blocking != 0);
            ncclComm_t part = nullptr;
            int size = 0, own = -1, color = rank == 2 ? NCCL_SPLIT_NOCOLOR : rank % 2;
            NEED(settle(e.comm, ncclCommSplit(e.comm, color, -rank, &part, nullptr)) ==
                 ncclSuccess);
            if (rank == 2) {
                NEED(!part);
                return "";
            }
            NEED(settle(part, ncclInProgress) == ncclSuccess);
            NEED(ncclCommCount(part, &size) == ncclSuccess && size == 2);
            NEED(ncclCommUserRank(part, &own) == ncclSuccess && own == (rank < 2));
            e.fill([&](size_t) { return static_cast<float>(rank); });
            NEED(settle(part, ncclAllReduce(e.in, e.out, 1, ncclFloat, ncclSum, part, e.stream)) ==
                 ncclSuccess);
            NEED(hipStreamSynchronize(e.stream) == hipSuccess);
            NEED(e.read()[0] == 4.0f);
            NEED(ncclCommAbort(part) == ncclSuccess);
            return "";
        });
    }
}

static void test_bad_arguments(void)
{
    ncclUniqueId id = new_id();
    ncclComm_t comm, other;
    float on_host[4];
    device_array<float> data(8);
    TEST_ASSERT_EQUAL_INT(ncclInvalidArgument, ncclCommInitRank(&comm, 2, id, 2));
    TEST_ASSERT_EQUAL_INT(ncclSuccess, ncclCommInitRank(&comm, 1, id, 0));
    TEST_ASSERT_EQUAL_INT(ncclInvalidArgument, ncclSend(on_host, 4, ncclFloat, 0, comm, nullptr));
    TEST_ASSERT_EQUAL_INT(ncclInvalidArgument, ncclSend(data.data, 4, ncclFloat, 1, comm, nullptr));
    TEST_ASSERT_EQUAL_INT(ncclInvalidArgument, ncclSend(data.data, 9, ncclFloat, 0, comm, nullptr));
    TEST_ASSERT_EQUAL_INT(ncclInvalidArgument, ncclAllReduce(data.data, data.data + 1, 4, ncclFloat,
                                                             ncclSum, comm, nullptr));
    TEST_ASSERT_EQUAL_INT(ncclInvalidUsage, ncclGroupEnd());
    CHECK_HIP(hipSetDevice(1));
    TEST_ASSERT_EQUAL_INT(ncclInvalidUsage, ncclSend(data.data, 4, ncclFloat, 0, comm, nullptr));
    CHECK_HIP(hipSetDevice(0));
    TEST_ASSERT_EQUAL_INT(ncclSuccess, ncclCommDestroy(comm));

    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    id = new_id();
    TEST_ASSERT_EQUAL_INT(ncclInProgress, ncclCommInitRankConfig(&comm, 3, id, 0, &config));
    TEST_ASSERT_EQUAL_INT(ncclInvalidUsage, ncclCommInitRankConfig(&other, 3, id, 1, &config));
    TEST_ASSERT_NOT_NULL(strstr(ncclGetLastError(nullptr), "both on device 0"));
    CHECK_HIP(hipSetDevice(1));
    TEST_ASSERT_EQUAL_INT(ncclInvalidUsage, ncclCommInitRankConfig(&other, 3, id, 0, &config));
    TEST_ASSERT_EQUAL_INT(ncclInvalidUsage, ncclCommInitRankConfig(&other, 2, id, 1, &config));
    CHECK_HIP(hipSetDevice(0));
    TEST_ASSERT_EQUAL_INT(ncclSuccess, ncclCommAbort(comm));
}

static void test_older_version(void)
{
    ncclComm_t comm, part;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    int version;
    simt_set_ccl_version(NCCL_VERSION(2, 13, 4));
    TEST_ASSERT_EQUAL_INT(ncclSuccess, ncclGetVersion(&version));
    TEST_ASSERT_EQUAL_INT(21304, version);
    TEST_ASSERT_EQUAL_INT(ncclInvalidUsage, ncclCommInitRankConfig(&comm, 1, new_id(), 0, &config));
    TEST_ASSERT_EQUAL_INT(ncclSuccess, ncclCommInitRank(&comm, 1, new_id(), 0));
    TEST_ASSERT_EQUAL_INT(ncclInvalidUsage, ncclCommSplit(comm, 0, 0, &part, nullptr));
    TEST_ASSERT_EQUAL_INT(ncclSuccess, ncclCommDestroy(comm));
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(test_injected_error);
    RUN_TEST(test_mismatch);
    RUN_TEST(test_not_blocking);
    RUN_TEST(test_split);
    RUN_TEST(test_bad_arguments);
    RUN_TEST(test_older_version);
    return UNITY_END() != 0;
}
