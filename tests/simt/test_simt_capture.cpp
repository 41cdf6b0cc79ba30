/* Capture and graphs: what is recorded, what it repeats, and everything that must not happen
 * meanwhile: allocating, waiting on the host, memory that moves. */
#include "simt_test.h"

#include <thread>

static hipStream_t stream, other;

void setUp(void)
{
    simt_reset();
    CHECK_HIP(hipStreamCreateWithFlags(&stream, hipStreamNonBlocking));
    CHECK_HIP(hipStreamCreateWithFlags(&other, hipStreamNonBlocking));
}

void tearDown(void)
{
    CHECK_HIP(hipStreamDestroy(stream));
    CHECK_HIP(hipStreamDestroy(other));
    simt_reset();
}

__global__ void add_value(float *out, const float *in, float value)
{
    out[threadIdx.x] = in[threadIdx.x] + value;
}

static void launch_add(float *out, const float *in, float value, hipStream_t on)
{
    CHECK_HIP(TA_LAUNCH(add_value, 1, 4, 0, on, out, in, value).error);
}

static void begin(void)
{
    CHECK_HIP(hipStreamBeginCapture(stream, hipStreamCaptureModeGlobal));
}

static hipGraph_t end(void)
{
    hipGraph_t graph = nullptr;
    CHECK_HIP(hipStreamEndCapture(stream, &graph));
    return graph;
}

static hipGraphExec_t instantiate(hipGraph_t graph)
{
    hipGraphExec_t exec = nullptr;
    CHECK_HIP(hipGraphInstantiateWithFlags(&exec, graph, 0));
    CHECK_HIP(hipGraphDestroy(graph));
    return exec;
}

static void test_captured_work_runs_with_the_graph(void)
{
    device_array<float> x(std::vector<float>(4, 1)), y(4);
    begin();
    hipStreamCaptureStatus status;
    CHECK_HIP(hipStreamIsCapturing(stream, &status));
    TEST_ASSERT_EQUAL_INT(hipStreamCaptureStatusActive, status);
    launch_add(y.data, x.data, 1, stream);
    CHECK_HIP(hipMemcpyAsync(x.data, y.data, 16, hipMemcpyDeviceToDevice, stream));
    hipGraphExec_t exec = instantiate(end());
    CHECK_HIP(hipStreamIsCapturing(stream, &status));
    TEST_ASSERT_EQUAL_INT(hipStreamCaptureStatusNone, status);
    CHECK_HIP(hipDeviceSynchronize());
    TEST_ASSERT_EQUAL_UINT64(0, simt_get_counters().kernels);
    for (int i = 0; i < 3; i++)
        CHECK_HIP(hipGraphLaunch(exec, other)); /* any stream may run it */
    TEST_ASSERT_EQUAL_UINT64_MESSAGE(0, simt_get_counters().kernels, "graphs run late too");
    CHECK_HIP(hipStreamSynchronize(other));
    TEST_ASSERT_EQUAL_FLOAT(4, x.read()[0]);
    CHECK_HIP(hipGraphExecDestroy(exec));
}

/* ---- What spoils a capture ------------------------------------------------------------------ */

template <class Call> static void expect_spoilt(const char *name, Call call)
{
    device_array<float> x(std::vector<float>(4, 1));
    hipGraph_t graph = nullptr;
    begin();
    launch_add(x.data, x.data, 1, stream);
    CHECK_ERROR(hipErrorStreamCaptureUnsupported, call(), name);
    hipStreamCaptureStatus status;
    CHECK_HIP(hipStreamIsCapturing(stream, &status));
    TEST_ASSERT_EQUAL_INT(hipStreamCaptureStatusInvalidated, status);
    CHECK_ERROR(hipErrorStreamCaptureInvalidated,
                TA_LAUNCH(add_value, 1, 4, 0, stream, x.data, x.data, 1.0f).error, name);
    CHECK_ERROR(hipErrorStreamCaptureInvalidated, hipStreamEndCapture(stream, &graph), name);
    TEST_ASSERT_NULL(graph);
    CHECK_HIP(hipStreamSynchronize(stream)); /* an ordinary stream again */
}

static void test_allocating_spoils(void)
{
    void *memory = nullptr;
    CHECK_HIP(hipMalloc(&memory, 16));
    expect_spoilt("hipMalloc", [&] {
        void *more;
        return hipMalloc(&more, 16);
    });
    expect_spoilt("hipHostMalloc", [&] {
        void *more;
        return hipHostMalloc(&more, 16, hipHostMallocDefault);
    });
    expect_spoilt("hipFree", [&] { return hipFree(memory); });
    CHECK_HIP(hipFree(memory));
}

static void test_waiting_spoils(void)
{
    hipEvent_t event;
    CHECK_HIP(hipEventCreateWithFlags(&event, hipEventDisableTiming));
    CHECK_HIP(hipEventRecord(event, stream));
    float host[4];
    device_array<float> x(4);
    expect_spoilt("hipStreamSynchronize", [] { return hipStreamSynchronize(stream); });
    expect_spoilt("hipStreamSynchronize", [] { return hipStreamSynchronize(other); });
    expect_spoilt("hipStreamQuery", [] { return hipStreamQuery(stream); });
    expect_spoilt("hipDeviceSynchronize", [] { return hipDeviceSynchronize(); });
    expect_spoilt("hipEventSynchronize", [&] { return hipEventSynchronize(event); });
    expect_spoilt("hipMemcpy",
                  [&] { return hipMemcpy(host, x.data, sizeof host, hipMemcpyDeviceToHost); });
    CHECK_HIP(hipEventDestroy(event));
}

static void test_captured_events_are_not_for_the_host(void)
{
    hipEvent_t event;
    CHECK_HIP(hipEventCreateWithFlags(&event, hipEventDisableTiming));
    begin();
    CHECK_HIP(hipEventRecord(event, stream));
    CHECK_ERROR(hipErrorStreamCaptureUnsupported, hipEventSynchronize(event), "in a capture");
    CHECK_HIP(hipGraphDestroy(end()));
    CHECK_ERROR(hipErrorStreamCaptureIsolation, hipStreamWaitEvent(other, event, 0), "that ended");
    CHECK_HIP(hipEventRecord(event, stream));
    CHECK_HIP(hipEventSynchronize(event));
    CHECK_HIP(hipEventDestroy(event));
}

/* Modes: a global capture forbids allocation to all threads, a thread's own capture only to it. */
static void test_capture_modes(void)
{
    const hipStreamCaptureMode modes[] = {
        hipStreamCaptureModeGlobal, hipStreamCaptureModeThreadLocal, hipStreamCaptureModeRelaxed};
    for (hipStreamCaptureMode mode : modes) {
        hipError_t here = hipSuccess, elsewhere = hipSuccess;
        void *a = nullptr, *b = nullptr;
        hipGraph_t graph = nullptr;
        CHECK_HIP(hipStreamBeginCapture(stream, mode));
        std::thread([&] { elsewhere = hipMalloc(&b, 16); }).join();
        here = hipMalloc(&a, 16);
        hipError_t ended = hipStreamEndCapture(stream, &graph);
        TEST_ASSERT_EQUAL_INT(mode == hipStreamCaptureModeGlobal, elsewhere != hipSuccess);
        TEST_ASSERT_EQUAL_INT(mode != hipStreamCaptureModeRelaxed, here != hipSuccess);
        TEST_ASSERT_EQUAL_INT(mode != hipStreamCaptureModeRelaxed, ended != hipSuccess);
        CHECK_HIP(hipGraphDestroy(graph));
        if (here == hipSuccess)
            CHECK_HIP(hipFree(a));
        if (elsewhere == hipSuccess)
            CHECK_HIP(hipFree(b));
    }
}

static void test_null_stream_spoils_blocking_captures(void)
{
    hipStream_t blocking;
    hipGraph_t graph;
    device_array<float> x(std::vector<float>(4, 1));
    CHECK_ERROR(hipErrorStreamCaptureUnsupported,
                hipStreamBeginCapture(nullptr, hipStreamCaptureModeGlobal), "null stream");
    CHECK_HIP(hipStreamCreateWithFlags(&blocking, hipStreamDefault));
    CHECK_HIP(hipStreamBeginCapture(blocking, hipStreamCaptureModeRelaxed));
    CHECK_ERROR(hipErrorStreamCaptureImplicit,
                TA_LAUNCH(add_value, 1, 4, 0, nullptr, x.data, x.data, 1.0f).error, "null stream");
    CHECK_ERROR(hipErrorStreamCaptureInvalidated, hipStreamEndCapture(blocking, &graph),
                "null stream");
    CHECK_HIP(hipStreamDestroy(blocking));
}

/* ---- Addresses ------------------------------------------------------------------------------ */

struct params {
    int count;
    const float *in;
    float *out;
};

__global__ void copy_by_params(params p)
{
    if (static_cast<int>(threadIdx.x) < p.count)
        p.out[threadIdx.x] = p.in[threadIdx.x];
}

/* A workspace is freed (and perhaps another is got) after the capture. */
static void test_memory_that_is_gone(void)
{
    device_array<float> x(std::vector<float>(4, 1));
    for (int through_struct = 0; through_struct < 2; through_struct++) {
        float *workspace;
        CHECK_HIP(hipMalloc(&workspace, 16));
        begin();
        if (through_struct) {
            params p = {4, x.data, workspace};
            CHECK_HIP(TA_LAUNCH(copy_by_params, 1, 32, 0, stream, p).error);
        } else {
            launch_add(workspace, x.data, 1, stream);
        }
        hipGraphExec_t exec = instantiate(end());
        CHECK_HIP(hipGraphLaunch(exec, stream));
        CHECK_HIP(hipFree(workspace));
        CHECK_ERROR(hipErrorInvalidValue, hipGraphLaunch(exec, stream),
                    "which was freed after the capture");
        CHECK_HIP(hipMalloc(&workspace, 16)); /* at the same address or not */
        CHECK_ERROR(hipErrorInvalidValue, hipGraphLaunch(exec, stream),
                    through_struct ? "copy_by_params" : "add_value");
        CHECK_HIP(hipFree(workspace));
        CHECK_HIP(hipGraphExecDestroy(exec));
    }
}

static hipGraph_t capture_two(float *a, float *b, float value)
{
    begin();
    launch_add(a, b, value, stream);
    CHECK_HIP(hipMemsetAsync(b, 0, 16, stream));
    return end();
}

static void test_comparing_graphs(void)
{
    char why[256] = "";
    device_array<float> x(4), y(4), z(4);
    hipGraph_t first = capture_two(x.data, y.data, 1);
    hipGraph_t same = capture_two(x.data, y.data, 1);
    hipGraph_t address = capture_two(x.data, z.data, 1);
    hipGraph_t value = capture_two(x.data, y.data, 2);
    begin();
    launch_add(x.data, y.data, 1, stream);
    hipGraph_t shorter = end();
    TEST_ASSERT_EQUAL_INT(1, simt_graphs_equal(first, same, why, sizeof why));
    TEST_ASSERT_EQUAL_INT(0, simt_graphs_equal(first, address, why, sizeof why));
    TEST_ASSERT_EQUAL_STRING_LEN("node 0, add_value, differs", why, 26);
    TEST_ASSERT_EQUAL_INT(0, simt_graphs_equal(first, value, why, sizeof why));
    TEST_ASSERT_EQUAL_INT(0, simt_graphs_equal(first, shorter, why, sizeof why));
    TEST_ASSERT_EQUAL_STRING("2 nodes and 1 nodes", why);
    const hipGraph_t all[] = {first, same, address, value, shorter};
    for (hipGraph_t graph : all)
        CHECK_HIP(hipGraphDestroy(graph));
}

/* ---- Several streams ------------------------------------------------------------------------ */

/* x → y on one stream, x → z on another, both → y. `fork` and `join` say whether the events are
 * used. */
static hipError_t capture_fork(float *x, float *y, float *z, bool join, hipGraph_t *graph)
{
    hipEvent_t forked, joined;
    CHECK_HIP(hipEventCreateWithFlags(&forked, hipEventDisableTiming));
    CHECK_HIP(hipEventCreateWithFlags(&joined, hipEventDisableTiming));
    begin();
    launch_add(x, x, 1, stream);
    CHECK_HIP(hipEventRecord(forked, stream));
    CHECK_HIP(hipStreamWaitEvent(other, forked, 0));
    launch_add(z, x, 10, other);
    launch_add(y, x, 100, stream);
    CHECK_HIP(hipEventRecord(joined, other));
    if (join)
        CHECK_HIP(hipStreamWaitEvent(stream, joined, 0));
    launch_add(y, z, 1000, stream);
    hipError_t error = hipStreamEndCapture(stream, graph);
    CHECK_HIP(hipEventDestroy(forked));
    CHECK_HIP(hipEventDestroy(joined));
    return error;
}

static void test_fork_and_join(void)
{
    for (const test_order &o : test_orders) {
        simt_set_order(o.order, o.seed);
        device_array<float> x(std::vector<float>(4, 1)), y(4), z(4);
        hipGraph_t graph;
        CHECK_HIP(capture_fork(x.data, y.data, z.data, true, &graph));
        hipGraphExec_t exec = instantiate(graph);
        CHECK_HIP(hipGraphLaunch(exec, stream));
        CHECK_HIP(hipStreamSynchronize(stream));
        TEST_ASSERT_EQUAL_FLOAT(1012, y.read()[0]);
        CHECK_HIP(hipGraphExecDestroy(exec));
    }
}

static void test_streams_must_be_joined(void)
{
    device_array<float> x(std::vector<float>(4, 1)), y(4), z(4);
    hipGraph_t graph;
    CHECK_ERROR(hipErrorStreamCaptureUnjoined, capture_fork(x.data, y.data, z.data, false, &graph),
                "not joined back");
    CHECK_HIP(hipStreamSynchronize(other));
}

static void test_work_outside_the_capture(void)
{
    hipEvent_t event;
    hipGraph_t graph;
    CHECK_HIP(hipEventCreateWithFlags(&event, hipEventDisableTiming));
    CHECK_HIP(hipEventRecord(event, other));
    begin();
    CHECK_ERROR(hipErrorStreamCaptureIsolation, hipStreamWaitEvent(stream, event, 0),
                "can't wait for work outside");
    (void)hipStreamEndCapture(stream, &graph);
    CHECK_HIP(hipGraphDestroy(graph));
    CHECK_HIP(hipEventDestroy(event));
}

static void test_failure_inside_a_graph(void)
{
    device_array<float> x(std::vector<float>(4, 1));
    begin();
    launch_add(x.data, x.data, 1, stream);
    launch_add(x.data, x.data, 1, stream);
    hipGraphExec_t exec = instantiate(end());
    simt_fail_kernel(2);
    CHECK_HIP(hipGraphLaunch(exec, stream));
    CHECK_ERROR(hipErrorLaunchFailure, hipStreamSynchronize(stream), "graph: node 1, add_value: ");
    CHECK_HIP(hipDeviceReset());
    CHECK_HIP(hipGraphExecDestroy(exec));
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(test_captured_work_runs_with_the_graph);
    RUN_TEST(test_allocating_spoils);
    RUN_TEST(test_waiting_spoils);
    RUN_TEST(test_captured_events_are_not_for_the_host);
    RUN_TEST(test_capture_modes);
    RUN_TEST(test_null_stream_spoils_blocking_captures);
    RUN_TEST(test_memory_that_is_gone);
    RUN_TEST(test_comparing_graphs);
    RUN_TEST(test_fork_and_join);
    RUN_TEST(test_streams_must_be_joined);
    RUN_TEST(test_work_outside_the_capture);
    RUN_TEST(test_failure_inside_a_graph);
    return UNITY_END() != 0;
}
