/* Streams, events, copies, the null stream, faults on demand: work runs late, in order, and a
 * missing dependency shows in the result. */
#include "simt_test.h"

#include <string.h>
#include <thread>

void setUp(void)
{
    simt_reset();
}

void tearDown(void)
{
    simt_reset();
}

__global__ void set_value(float *out, float value)
{
    out[threadIdx.x] = value;
}

__global__ void add_value(float *out, const float *in, float value)
{
    out[threadIdx.x] = in[threadIdx.x] + value;
}

static void launch_set(float *out, float value, hipStream_t stream)
{
    CHECK_HIP(TA_LAUNCH(set_value, 1, 4, 0, stream, out, value).error);
}

static void launch_add(float *out, const float *in, float value, hipStream_t stream)
{
    CHECK_HIP(TA_LAUNCH(add_value, 1, 4, 0, stream, out, in, value).error);
}

static void read_async(float *to, const float *from, hipStream_t stream)
{
    CHECK_HIP(hipMemcpyAsync(to, from, 4 * sizeof *to, hipMemcpyDeviceToHost, stream));
}

static hipStream_t new_stream()
{
    hipStream_t stream = nullptr;
    CHECK_HIP(hipStreamCreateWithFlags(&stream, hipStreamNonBlocking));
    return stream;
}

static hipEvent_t new_event()
{
    hipEvent_t event = nullptr;
    CHECK_HIP(hipEventCreateWithFlags(&event, hipEventDisableTiming));
    return event;
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

/* ---- Devices and threads -------------------------------------------------------------------- */

__global__ void fails_always(float *)
{
    if (threadIdx.x == 0)
        ta_load16(reinterpret_cast<const void *>(4));
}

static void test_an_error_stays_on_its_device(void)
{
    device_array<float> x(4);
    CHECK_HIP(hipSetDevice(1));
    device_array<float> y(4);
    CHECK_HIP(TA_LAUNCH(fails_always, 1, 32, 0, nullptr, y.data).error);
    launch_set(y.data, 1, nullptr); /* must not run */
    CHECK_ERROR(hipErrorLaunchFailure, hipDeviceSynchronize(), "fails_always: ");
    TEST_ASSERT_EQUAL_UINT64(1, simt_get_counters().kernels);
    CHECK_HIP(hipSetDevice(0));
    launch_set(x.data, 1, nullptr);
    TEST_ASSERT_EQUAL_FLOAT(1, x.read()[0]);
    CHECK_HIP(hipSetDevice(1));
    float *none;
    CHECK_ERROR(hipErrorLaunchFailure, hipMalloc(&none, 16), "fails_always: ");
    CHECK_HIP(hipDeviceReset());
    CHECK_HIP(hipDeviceSynchronize());
    CHECK_HIP(hipSetDevice(0));
}

static void test_threads_with_devices_of_their_own(void)
{
    std::vector<std::thread> threads;
    std::vector<float> results(8, 0);
    for (int i = 0; i < 8; i++)
        threads.emplace_back([i, &results] {
            float *x = nullptr, got[4] = {0, 0, 0, 0};
            hipStream_t stream = nullptr;
            hipError_t error = hipSetDevice(i);
            if (!error)
                error = hipStreamCreateWithFlags(&stream, hipStreamNonBlocking);
            if (!error)
                error = hipMalloc(&x, sizeof got);
            for (int round = 0; round < 20 && !error; round++) {
                error =
                    TA_LAUNCH(set_value, 3, 4, 0, stream, x, static_cast<float>(i + round)).error;
                if (!error)
                    error = hipMemcpyAsync(got, x, sizeof got, hipMemcpyDeviceToHost, stream);
                if (!error)
                    error = hipStreamSynchronize(stream);
            }
            if (!error && hipFree(x) == hipSuccess && hipStreamDestroy(stream) == hipSuccess)
                results[static_cast<size_t>(i)] = got[3];
        });
    for (std::thread &thread : threads)
        thread.join();
    for (int i = 0; i < 8; i++)
        TEST_ASSERT_EQUAL_FLOAT(static_cast<float>(i + 19), results[static_cast<size_t>(i)]);
}

static void test_properties(void)
{
    simt_device_config config = simt_get_device_config();
    config.devices = 2;
    config.compute_units = 132;
    config.shared_bytes = 100000;
    simt_set_device_config(&config);
    simt_set_wave(64);
    ta_gpu gpu;
    CHECK_HIP(ta_gpu_query(1, &gpu));
    TEST_ASSERT_EQUAL_INT(64, gpu.wave);
    TEST_ASSERT_EQUAL_INT(132, gpu.compute_units);
    TEST_ASSERT_EQUAL_INT(100000, gpu.shared_bytes);
    TEST_ASSERT_EQUAL_STRING("simt", gpu.arch);
    CHECK_ERROR(hipErrorInvalidDevice, ta_gpu_query(2, &gpu), "no device 2");
    CHECK_ERROR(hipErrorInvalidDevice, hipSetDevice(2), "no device 2");
}

/* ---- Bad input and faults ------------------------------------------------------------------- */

static void test_copies_that_are_refused(void)
{
    device_array<float> x(4);
    float host[8] = {0};
    CHECK_ERROR(hipErrorInvalidValue,
                hipMemcpyAsync(x.data, host, 5 * sizeof(float), hipMemcpyHostToDevice, nullptr),
                "20 bytes");
    CHECK_ERROR(hipErrorInvalidValue,
                hipMemcpyAsync(host, x.data, 4, hipMemcpyHostToDevice, nullptr), "device memory");
    CHECK_ERROR(hipErrorInvalidValue, hipMemsetAsync(host, 0, 4, nullptr), "device memory");
    CHECK_HIP(hipMemcpyAsync(host, x.data, 16, hipMemcpyDefault, nullptr));
    CHECK_ERROR(hipErrorInvalidValue, hipFree(host), "not the start of such memory");
    CHECK_ERROR(hipErrorInvalidValue, hipFree(x.data + 1), "not the start of such memory");
    TEST_ASSERT_EQUAL_INT(TA_MEMORY_DEVICE, ta_memory_of(x.data + 1));
    TEST_ASSERT_EQUAL_INT(TA_MEMORY_HOST, ta_memory_of(host));
    CHECK_HIP(hipDeviceSynchronize());
}

static void test_handles_that_are_none(void)
{
    hipStream_t stream = new_stream();
    hipEvent_t event = new_event();
    CHECK_HIP(hipStreamDestroy(stream));
    CHECK_HIP(hipEventDestroy(event));
    CHECK_ERROR(hipErrorInvalidHandle, hipStreamSynchronize(stream), "is not a stream");
    CHECK_ERROR(hipErrorInvalidHandle, hipEventRecord(event, nullptr), "is not an event");
}

static void test_malloc_fails_on_demand(void)
{
    simt_fail_malloc(2);
    void *first = nullptr, *second = nullptr;
    CHECK_HIP(hipMalloc(&first, 16));
    CHECK_ERROR(hipErrorOutOfMemory, hipMalloc(&second, 16), "as the test asked");
    CHECK_ERROR(hipErrorOutOfMemory, hipGetLastError(), "as the test asked");
    CHECK_HIP(hipGetLastError()); /* asking takes it away */
    CHECK_HIP(hipMalloc(&second, 16));
    CHECK_HIP(hipFree(first));
    CHECK_HIP(hipFree(second));
    simt_fail_malloc(1);
    CHECK_ERROR(hipErrorOutOfMemory, hipHostMalloc(&first, 16, hipHostMallocDefault), "asked");
    CHECK_ERROR(hipErrorOutOfMemory, hipMalloc(&first, static_cast<size_t>(5) << 30), "left");
}

static void test_launch_fails_on_demand(void)
{
    device_array<float> x(4);
    simt_fail_launch(2);
    launch_set(x.data, 1, nullptr);
    ta_launch_result r = TA_LAUNCH(set_value, 1, 4, 0, nullptr, x.data, 2.0f);
    CHECK_ERROR(hipErrorLaunchOutOfResources, r.error, "set_value: refused");
    TEST_ASSERT_EQUAL_STRING("set_value", r.kernel);
    TEST_ASSERT_EQUAL_FLOAT(1, x.read()[0]);
}

static void test_kernel_fails_on_demand(void)
{
    device_array<float> x(4);
    simt_fail_kernel(2);
    launch_set(x.data, 1, nullptr);
    launch_add(x.data, x.data, 1, nullptr);
    launch_set(x.data, 3, nullptr);
    CHECK_ERROR(hipErrorLaunchFailure, hipDeviceSynchronize(), "add_value: fails, as the test");
    CHECK_HIP(hipDeviceReset());
    TEST_ASSERT_EQUAL_FLOAT(1, x.read()[0]);
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
    RUN_TEST(test_an_error_stays_on_its_device);
    RUN_TEST(test_threads_with_devices_of_their_own);
    RUN_TEST(test_properties);
    RUN_TEST(test_copies_that_are_refused);
    RUN_TEST(test_handles_that_are_none);
    RUN_TEST(test_malloc_fails_on_demand);
    RUN_TEST(test_launch_fails_on_demand);
    RUN_TEST(test_kernel_fails_on_demand);
    return UNITY_END() != 0;
}
