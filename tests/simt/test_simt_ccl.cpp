/* The executor's collectives: what they compute, when they run, how they fail. Ranks are threads,
 * each on a device of its own; a rank that finds something wrong returns it in words. */
#include <math.h>

#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "simt_ccl.h"
#include "simt_test.h"

void setUp(void)
{
    simt_reset();
    simt_set_ccl_version(NCCL_VERSION_CODE);
    simt_fail_ccl(-1, 0);
}

void tearDown(void)
{
}

#define NEED(condition)                                                                            \
    do {                                                                                           \
        if (!(condition))                                                                          \
            return std::string("line ") + std::to_string(__LINE__) + ": " #condition;              \
    } while (0)

/* Run `rank_fn(rank)` for every rank on a thread of its own. */
static void on_ranks(int ranks, const std::function<std::string(int)> &rank_fn)
{
    std::vector<std::thread> threads;
    std::vector<std::string> said(static_cast<size_t>(ranks));
    for (int r = 0; r < ranks; r++)
        threads.emplace_back([&, r] {
            (void)hipSetDevice(r);
            said[static_cast<size_t>(r)] = rank_fn(r);
        });
    for (std::thread &t : threads)
        t.join();
    for (int r = 0; r < ranks; r++)
        if (!said[static_cast<size_t>(r)].empty()) {
            std::string text = "rank " + std::to_string(r) + " of " + std::to_string(ranks) + ": " +
                               said[static_cast<size_t>(r)] + " [" + simt_settings() + "]";
            TEST_FAIL_MESSAGE(text.c_str());
        }
}

static ncclResult_t settle(ncclComm_t comm, ncclResult_t result)
{
    while (result == ncclInProgress) {
        if (ncclCommGetAsyncError(comm, &result) != ncclSuccess)
            return ncclInternalError;
        std::this_thread::yield();
    }
    return result;
}

/* A rank's communicator, stream, and device memory of `count` floats for input and output. */
struct endpoint {
    ncclComm_t comm = nullptr;
    hipStream_t stream = nullptr;
    float *in = nullptr, *out = nullptr;
    size_t count;
    bool ok;

    endpoint(const ncclUniqueId &id, int ranks, int rank, size_t count_, bool blocking)
        : count(count_)
    {
        ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
        config.blocking = blocking;
        ok = hipStreamCreateWithFlags(&stream, hipStreamNonBlocking) == hipSuccess &&
             hipMalloc(&in, count * sizeof(float)) == hipSuccess &&
             hipMalloc(&out, count * sizeof(float)) == hipSuccess;
        ncclResult_t result = ncclCommInitRankConfig(&comm, ranks, id, rank, &config);
        ok = ok && settle(comm, result) == ncclSuccess;
    }
    ~endpoint()
    {
        if (comm)
            (void)ncclCommAbort(comm);
        (void)hipStreamDestroy(stream);
        (void)hipFree(in);
        (void)hipFree(out);
    }
    endpoint(const endpoint &) = delete;
    endpoint &operator=(const endpoint &) = delete;

    void fill(const std::function<float(size_t)> &value)
    {
        std::vector<float> values(count);
        for (size_t i = 0; i < count; i++)
            values[i] = value(i);
        (void)hipMemcpy(in, values.data(), count * sizeof(float), hipMemcpyHostToDevice);
        (void)hipMemset(out, 0xff, count * sizeof(float));
        (void)hipStreamSynchronize(nullptr);
    }
    std::vector<float> read()
    {
        std::vector<float> values(count);
        (void)hipMemcpy(values.data(), out, count * sizeof(float), hipMemcpyDeviceToHost);
        return values;
    }
    /* Leave in the way that a healthy program does. */
    bool finish()
    {
        bool done = settle(comm, ncclCommFinalize(comm)) == ncclSuccess &&
                    ncclCommDestroy(comm) == ncclSuccess;
        comm = nullptr;
        return done;
    }
};

static ncclUniqueId new_id()
{
    ncclUniqueId id;
    (void)ncclGetUniqueId(&id);
    return id;
}

/* ---- What they compute --------------------------------------------------------------------- */

static std::string all_collectives(int ranks, int rank, const ncclUniqueId &id, bool blocking)
{
    const size_t part = 100, n = part * static_cast<size_t>(ranks);
    endpoint e(id, ranks, rank, n, blocking);
    NEED(e.ok);
    e.fill([&](size_t i) { return static_cast<float>(rank * 1000 + static_cast<int>(i % 7)); });
    float sum = 0;
    for (int r = 0; r < ranks; r++)
        sum += static_cast<float>(r * 1000);

    NEED(settle(e.comm, ncclAllReduce(e.in, e.out, n, ncclFloat, ncclSum, e.comm, e.stream)) ==
         ncclSuccess);
    NEED(hipStreamSynchronize(e.stream) == hipSuccess);
    NEED(e.read()[n - 1] == sum + static_cast<float>(ranks) * static_cast<float>((n - 1) % 7));

    NEED(settle(e.comm, ncclAllReduce(e.in, e.out, n, ncclFloat, ncclMax, e.comm, e.stream)) ==
         ncclSuccess);
    NEED(hipStreamSynchronize(e.stream) == hipSuccess);
    NEED(e.read()[1] == static_cast<float>((ranks - 1) * 1000 + 1));

    NEED(settle(e.comm, ncclReduceScatter(e.in, e.out, part, ncclFloat, ncclSum, e.comm,
                                          e.stream)) == ncclSuccess);
    NEED(hipStreamSynchronize(e.stream) == hipSuccess);
    size_t first = part * static_cast<size_t>(rank);
    NEED(e.read()[3] == sum + static_cast<float>(ranks) * static_cast<float>((first + 3) % 7));

    NEED(settle(e.comm, ncclAllGather(e.in, e.out, part, ncclFloat, e.comm, e.stream)) ==
         ncclSuccess);
    NEED(hipStreamSynchronize(e.stream) == hipSuccess);
    for (size_t r = 0; r < static_cast<size_t>(ranks); r++)
        NEED(e.read()[r * part + 5] == static_cast<float>(r * 1000 + 5));

    int root = ranks / 2;
    NEED(settle(e.comm, ncclBroadcast(e.in, e.out, n, ncclFloat, root, e.comm, e.stream)) ==
         ncclSuccess);
    NEED(hipStreamSynchronize(e.stream) == hipSuccess);
    NEED(e.read()[2] == static_cast<float>(root * 1000 + 2));

    (void)ncclGroupStart();
    (void)ncclSend(e.in, part, ncclFloat, (rank + 1) % ranks, e.comm, e.stream);
    (void)ncclRecv(e.out, part, ncclFloat, (rank + ranks - 1) % ranks, e.comm, e.stream);
    NEED(settle(e.comm, ncclGroupEnd()) == ncclSuccess);
    NEED(hipStreamSynchronize(e.stream) == hipSuccess);
    NEED(e.read()[4] == static_cast<float>((rank + ranks - 1) % ranks * 1000 + 4));
    NEED(e.finish());
    return "";
}

static void test_collectives(void)
{
    const int rank_counts[] = {1, 2, 3, 5, 8};
    for (int background = 0; background < 2; background++)
        for (int ranks : rank_counts)
            for (int blocking = 0; blocking < 2; blocking++) {
                simt_set_streams(background ? SIMT_IN_BACKGROUND : SIMT_ON_SYNC);
                ncclUniqueId id = new_id();
                on_ranks(ranks,
                         [&](int rank) { return all_collectives(ranks, rank, id, blocking != 0); });
            }
    TEST_ASSERT_EQUAL_INT(0, simt_ccl_communicators());
}

/* A maximum is not to be relied on for NaN, a sum not for its order. */
static void test_floats_as_real(void)
{
    ncclUniqueId id = new_id();
    on_ranks(2, [&](int rank) -> std::string {
        endpoint e(id, 2, rank, 1, true);
        e.fill([&](size_t) { return rank == 1 ? NAN : 3.0f; });
        NEED(ncclAllReduce(e.in, e.out, 1, ncclFloat, ncclMax, e.comm, e.stream) == ncclSuccess);
        NEED(hipStreamSynchronize(e.stream) == hipSuccess);
        NEED(e.read()[0] == 3.0f);
        return "";
    });
}

/* ---- When they run ------------------------------------------------------------------------- */

/* One thread for all ranks: waiting for one stream lets the others run, and nothing ran before. */
static void test_deferred_on_one_thread(void)
{
    const int ranks = 3;
    ncclComm_t comms[ranks];
    hipStream_t streams[ranks];
    float *data[ranks];
    ncclUniqueId id = new_id();
    (void)ncclGroupStart();
    for (int r = 0; r < ranks; r++) {
        CHECK_HIP(hipSetDevice(r));
        CHECK_HIP(hipStreamCreateWithFlags(&streams[r], hipStreamNonBlocking));
        CHECK_HIP(hipMalloc(&data[r], sizeof(float)));
        float value = static_cast<float>(r + 1);
        CHECK_HIP(hipMemcpy(data[r], &value, sizeof value, hipMemcpyHostToDevice));
        TEST_ASSERT_EQUAL_INT(ncclSuccess, ncclCommInitRank(&comms[r], ranks, id, r));
    }
    TEST_ASSERT_EQUAL_INT(ncclSuccess, ncclGroupEnd());
    (void)ncclGroupStart();
    for (int r = 0; r < ranks; r++)
        TEST_ASSERT_EQUAL_INT(ncclSuccess, ncclAllReduce(data[r], data[r], 1, ncclFloat, ncclSum,
                                                         comms[r], streams[r]));
    TEST_ASSERT_EQUAL_INT(ncclSuccess, ncclGroupEnd());
    TEST_ASSERT_EQUAL_FLOAT(2.0f, *data[1]); /* device memory is the host's here */
    CHECK_HIP(hipStreamSynchronize(streams[2]));
    TEST_ASSERT_EQUAL_FLOAT(6.0f, *data[2]);
    for (int r = 0; r < ranks; r++) {
        CHECK_HIP(hipStreamDestroy(streams[r]));
        CHECK_HIP(hipFree(data[r]));
        TEST_ASSERT_EQUAL_INT(ncclSuccess, ncclCommAbort(comms[r]));
    }
    CHECK_HIP(hipSetDevice(0));
}

static bool ends_soon(hipStream_t stream)
{
    for (int i = 0; i < 40; i++) {
        if (hipStreamQuery(stream) == hipSuccess)
            return true;
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return false;
}

/* Two ranks that both send first wait for ever, unless the calls are in a group. */
static void test_sends_wait_for_receives(void)
{
    for (int grouped = 0; grouped < 2; grouped++) {
        ncclUniqueId id = new_id();
        on_ranks(2, [&](int rank) -> std::string {
            endpoint e(id, 2, rank, 8, true);
            NEED(e.ok);
            if (grouped)
                (void)ncclGroupStart();
            (void)ncclSend(e.in, 8, ncclFloat, 1 - rank, e.comm, e.stream);
            (void)ncclRecv(e.out, 8, ncclFloat, 1 - rank, e.comm, e.stream);
            if (grouped)
                (void)ncclGroupEnd();
            NEED(ends_soon(e.stream) == (grouped != 0));
            NEED(ncclCommAbort(e.comm) == ncclSuccess);
            e.comm = nullptr;
            NEED(hipStreamSynchronize(e.stream) == hipSuccess);
            return "";
        });
    }
}

static void test_captured(void)
{
    const int ranks = 3;
    ncclUniqueId id = new_id();
    on_ranks(ranks, [&](int rank) -> std::string {
        endpoint e(id, ranks, rank, 16, false);
        hipGraph_t graph, same;
        hipGraphExec_t exec;
        for (hipGraph_t *g : {&graph, &same}) {
            NEED(hipStreamBeginCapture(e.stream, hipStreamCaptureModeThreadLocal) == hipSuccess);
            NEED(settle(e.comm, ncclAllReduce(e.in, e.out, 16, ncclFloat, ncclSum, e.comm,
                                              e.stream)) == ncclSuccess);
            NEED(hipStreamEndCapture(e.stream, g) == hipSuccess);
        }
        char why[128];
        NEED(simt_graphs_equal(graph, same, why, sizeof why));
        NEED(hipGraphInstantiateWithFlags(&exec, graph, 0) == hipSuccess);
        for (int round = 0; round < 3; round++) {
            e.fill(
                [&](size_t i) { return static_cast<float>(round * 10) + static_cast<float>(i); });
            NEED(hipGraphLaunch(exec, e.stream) == hipSuccess);
            NEED(hipStreamSynchronize(e.stream) == hipSuccess);
            NEED(e.read()[5] == static_cast<float>(ranks * (round * 10 + 5)));
        }
        (void)hipGraphExecDestroy(exec);
        (void)hipGraphDestroy(graph);
        (void)hipGraphDestroy(same);
        NEED(e.finish());
        return "";
    });
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
            int size = 0, place = -1, color = rank == 2 ? NCCL_SPLIT_NOCOLOR : rank % 2;
            NEED(settle(e.comm, ncclCommSplit(e.comm, color, -rank, &part, nullptr)) ==
                 ncclSuccess);
            if (rank == 2) {
                NEED(!part);
                return "";
            }
            NEED(settle(part, ncclInProgress) == ncclSuccess);
            NEED(ncclCommCount(part, &size) == ncclSuccess && size == 2);
            NEED(ncclCommUserRank(part, &place) == ncclSuccess && place == (rank < 2));
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
    RUN_TEST(test_collectives);
    RUN_TEST(test_floats_as_real);
    RUN_TEST(test_deferred_on_one_thread);
    RUN_TEST(test_sends_wait_for_receives);
    RUN_TEST(test_captured);
    RUN_TEST(test_injected_error);
    RUN_TEST(test_mismatch);
    RUN_TEST(test_not_blocking);
    RUN_TEST(test_split);
    RUN_TEST(test_bad_arguments);
    RUN_TEST(test_older_version);
    return UNITY_END() != 0;
}
