/* Streams, events, copies, the null stream: work runs late, in order, and a missing dependency
 * shows in the result. */
#include <string.h>
#include <thread>

#include "stream_test.h"

void setUp(void)
{
    simt_reset();
}

void tearDown(void)
{
    simt_reset();
}

/* ---- Work runs when somebody waits ---------------------------------------------------------- */

static void test_result_is_not_there_before_a_wait(void)
{
    hipStream_t stream = new_stream();
    device_array<float> x(4);
    float *host;
    CHECK_HIP(hipHostMalloc(&host, 4 * sizeof *host, hipHostMallocDefault));
    launch_set(x.data, 3, stream);
    read_async(host, x.data, stream);
    TEST_ASSERT_TRUE_MESSAGE(host[0] != host[0], "NaN as long as nobody waited");
    TEST_ASSERT_EQUAL_UINT64(0, simt_get_counters().kernels);
    CHECK_HIP(hipStreamSynchronize(stream));
    TEST_ASSERT_EQUAL_FLOAT(3, host[3]);
    CHECK_HIP(hipHostFree(host));
    CHECK_HIP(hipStreamDestroy(stream));
}

static void test_query_ends(void)
{
    hipStream_t stream = new_stream();
    device_array<float> x(4);
    launch_set(x.data, 1, stream);
    TEST_ASSERT_EQUAL_INT(hipErrorNotReady, hipStreamQuery(stream));
    while (hipStreamQuery(stream) == hipErrorNotReady)
        std::this_thread::yield();
    CHECK_HIP(hipStreamQuery(stream));
    TEST_ASSERT_EQUAL_UINT64(1, simt_get_counters().kernels);
    CHECK_HIP(hipStreamDestroy(stream));
}

static void test_background_streams_run_by_themselves(void)
{
    simt_set_streams(SIMT_IN_BACKGROUND);
    hipStream_t stream = new_stream();
    device_array<float> x(4);
    launch_set(x.data, 1, stream);
    while (simt_get_counters().kernels == 0)
        std::this_thread::yield();
    CHECK_HIP(hipStreamDestroy(stream));
}

/* Host memory is read when the copy runs. */
static void test_copy_reads_late(void)
{
    hipStream_t stream = new_stream();
    device_array<float> x(4);
    float values[4] = {1, 1, 1, 1};
    CHECK_HIP(hipMemcpyAsync(x.data, values, sizeof values, hipMemcpyHostToDevice, stream));
    values[2] = 7;
    CHECK_HIP(hipStreamSynchronize(stream));
    TEST_ASSERT_EQUAL_FLOAT(7, x.read()[2]);
    CHECK_HIP(hipStreamDestroy(stream));
}

/* ---- Dependencies --------------------------------------------------------------------------- */

/* A second stream uses what the first makes, with or without waiting for it. */
static float two_streams(bool wait)
{
    hipStream_t a = new_stream(), b = new_stream();
    hipEvent_t made = new_event();
    device_array<float> x(4), y(4);
    launch_set(x.data, 5, a);
    CHECK_HIP(hipEventRecord(made, a));
    if (wait)
        CHECK_HIP(hipStreamWaitEvent(b, made, 0));
    launch_add(y.data, x.data, 1, b);
    CHECK_HIP(hipStreamSynchronize(b));
    float got[4];
    read_async(got, y.data, b);
    CHECK_HIP(hipStreamSynchronize(b));
    CHECK_HIP(hipEventDestroy(made));
    CHECK_HIP(hipStreamDestroy(a));
    CHECK_HIP(hipStreamDestroy(b));
    return got[0];
}

static void test_missing_dependency_between_streams(void)
{
    float without = two_streams(false);
    TEST_ASSERT_TRUE_MESSAGE(without != without, "the first stream has not run");
    TEST_ASSERT_EQUAL_FLOAT(6, two_streams(true));
}

/* Memory is overwritten while another stream may still have to read it: seen in one of the orders
 * in which a device waits for its streams. */
static float overwrite(bool wait)
{
    hipStream_t a = new_stream(), b = new_stream();
    hipEvent_t used = new_event();
    device_array<float> x(std::vector<float>(4, 1)), y(4);
    launch_add(y.data, x.data, 1, a);
    CHECK_HIP(hipEventRecord(used, a));
    if (wait)
        CHECK_HIP(hipStreamWaitEvent(b, used, 0));
    launch_set(x.data, 100, b);
    CHECK_HIP(hipDeviceSynchronize());
    CHECK_HIP(hipEventDestroy(used));
    CHECK_HIP(hipStreamDestroy(a));
    CHECK_HIP(hipStreamDestroy(b));
    return y.read()[0];
}

static void test_overwriting_too_early(void)
{
    int wrong = 0;
    for (const test_order &o : test_orders) {
        simt_set_order(o.order, o.seed);
        TEST_ASSERT_EQUAL_FLOAT(2, overwrite(true));
        wrong += overwrite(false) != 2.0f;
    }
    TEST_ASSERT_GREATER_THAN_INT(0, wrong);
}

static void test_wait_without_more_work(void)
{
    hipStream_t a = new_stream(), b = new_stream();
    hipEvent_t event = new_event();
    device_array<float> x(4);
    launch_set(x.data, 5, a);
    CHECK_HIP(hipEventRecord(event, a));
    CHECK_HIP(hipStreamWaitEvent(b, event, 0));
    CHECK_HIP(hipStreamSynchronize(b));
    TEST_ASSERT_EQUAL_UINT64(1, simt_get_counters().kernels);
    CHECK_HIP(hipEventQuery(event));
    CHECK_HIP(hipEventDestroy(event));
    CHECK_HIP(hipStreamDestroy(a));
    CHECK_HIP(hipStreamDestroy(b));
}

static void test_event_synchronize_stops_at_the_event(void)
{
    hipStream_t stream = new_stream();
    hipEvent_t event = new_event();
    device_array<float> x(4);
    CHECK_HIP(hipEventSynchronize(event)); /* never recorded: nothing to wait for */
    launch_set(x.data, 1, stream);
    CHECK_HIP(hipEventRecord(event, stream));
    launch_set(x.data, 2, stream);
    TEST_ASSERT_EQUAL_INT(hipErrorNotReady, hipEventQuery(event));
    CHECK_HIP(hipEventSynchronize(event));
    CHECK_HIP(hipEventQuery(event));
    TEST_ASSERT_EQUAL_UINT64(1, simt_get_counters().kernels);
    CHECK_HIP(hipStreamSynchronize(stream));
    TEST_ASSERT_EQUAL_UINT64(2, simt_get_counters().kernels);
    CHECK_HIP(hipEventDestroy(event));
    CHECK_HIP(hipStreamDestroy(stream));
}

static void test_elapsed_time(void)
{
    hipEvent_t first, second;
    float milliseconds = -1;
    device_array<float> x(4);
    CHECK_HIP(hipEventCreate(&first));
    CHECK_HIP(hipEventCreate(&second));
    CHECK_HIP(hipEventRecord(first, nullptr));
    launch_set(x.data, 1, nullptr);
    CHECK_HIP(hipEventRecord(second, nullptr));
    TEST_ASSERT_EQUAL_INT(hipErrorNotReady, hipEventElapsedTime(&milliseconds, first, second));
    CHECK_HIP(hipEventSynchronize(second));
    CHECK_HIP(hipEventElapsedTime(&milliseconds, first, second));
    TEST_ASSERT_TRUE(milliseconds > 0);
    CHECK_HIP(hipEventDestroy(first));
    CHECK_HIP(hipEventDestroy(second));
}

/* The null stream comes after what other streams have, and before what they get later. */
static void test_null_stream_takes_turns(void)
{
    hipStream_t blocking, free_running = new_stream();
    CHECK_HIP(hipStreamCreateWithFlags(&blocking, hipStreamDefault));
    device_array<float> x(4), y(4), z(4);
    launch_set(x.data, 1, blocking);
    launch_set(z.data, 1, free_running);
    launch_add(y.data, x.data, 1, nullptr);
    launch_add(y.data, y.data, 1, blocking);
    CHECK_HIP(hipStreamSynchronize(blocking));
    TEST_ASSERT_EQUAL_UINT64_MESSAGE(3, simt_get_counters().kernels, "not the free running one");
    TEST_ASSERT_EQUAL_FLOAT(3, y.read()[0]);
    CHECK_HIP(hipStreamDestroy(blocking));
    CHECK_HIP(hipStreamDestroy(free_running));
}

static void count_call(void *data)
{
    ++*static_cast<int *>(data);
}

static void test_host_function(void)
{
    hipStream_t stream = new_stream();
    int calls = 0;
    CHECK_HIP(hipLaunchHostFunc(stream, count_call, &calls));
    TEST_ASSERT_EQUAL_INT(0, calls);
    CHECK_HIP(hipStreamSynchronize(stream));
    TEST_ASSERT_EQUAL_INT(1, calls);
    CHECK_HIP(hipStreamDestroy(stream));
}

/* Any callable is work: this is how collectives join. */
static void test_other_work(void)
{
    hipStream_t stream = new_stream();
    simt::work work;
    int ran = 0;
    work.name = "collective";
    work.run = [&ran](simt::run_context &context) {
        ran++;
        context.why = "rank 3 is gone";
        return hipErrorUnknown;
    };
    CHECK_HIP(simt::submit(stream, std::move(work)));
    CHECK_ERROR(hipErrorUnknown, hipStreamSynchronize(stream), "collective: rank 3 is gone");
    TEST_ASSERT_EQUAL_INT(1, ran);
    CHECK_HIP(hipDeviceReset());
    CHECK_HIP(hipStreamDestroy(stream));
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(test_result_is_not_there_before_a_wait);
    RUN_TEST(test_query_ends);
    RUN_TEST(test_background_streams_run_by_themselves);
    RUN_TEST(test_copy_reads_late);
    RUN_TEST(test_missing_dependency_between_streams);
    RUN_TEST(test_overwriting_too_early);
    RUN_TEST(test_wait_without_more_work);
    RUN_TEST(test_event_synchronize_stops_at_the_event);
    RUN_TEST(test_elapsed_time);
    RUN_TEST(test_null_stream_takes_turns);
    RUN_TEST(test_host_function);
    RUN_TEST(test_other_work);
    return UNITY_END() != 0;
}
