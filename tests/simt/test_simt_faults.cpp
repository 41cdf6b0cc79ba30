/* Several devices, bad input, and faults on demand: each error is where it belongs, and nowhere
 * else. */
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
