/* The executor's collectives: what they compute, and when they run. test_simt_ccl_errors.cpp has
 * how they fail. */
#include <math.h>

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

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(test_collectives);
    RUN_TEST(test_floats_as_real);
    RUN_TEST(test_deferred_on_one_thread);
    RUN_TEST(test_sends_wait_for_receives);
    RUN_TEST(test_captured);
    return UNITY_END() != 0;
}
