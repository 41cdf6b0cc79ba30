/* Helpers of the executor's own tests: device arrays, and a loop over wave widths and thread
 * orders. */
#ifndef SIMT_TEST_H
#define SIMT_TEST_H

#include <unity.h>
#include <vector>

#include "simt_control.h"
#include "vendor.h"

/* Fails the test with what the runtime said, and the settings that repeat it. */
static inline void check_hip(hipError_t error, const char *what, int line)
{
    if (error == hipSuccess)
        return;
    std::string text =
        std::string(what) + ": " + hipGetErrorString(error) + " [" + simt_settings() + "]";
    UNITY_TEST_FAIL(static_cast<UNITY_UINT>(line), text.c_str());
}
#define CHECK_HIP(expr) check_hip(expr, #expr, __LINE__)

/* The call must fail with this error, and its sentence must contain these words. */
static inline void check_error(hipError_t expected, hipError_t error, const char *words, int line)
{
    std::string text = hipGetErrorString(error);
    if (error == expected && text.find(words) != std::string::npos)
        return;
    text = std::string(hipGetErrorName(error)) + " \"" + text + "\", expected " +
           hipGetErrorName(expected) + " \"…" + words + "…\" [" + simt_settings() + "]";
    UNITY_TEST_FAIL(static_cast<UNITY_UINT>(line), text.c_str());
}
#define CHECK_ERROR(expected, expr, words) check_error(expected, expr, words, __LINE__)

/* An array in device memory. */
template <class T> struct device_array {
    T *data = nullptr;
    size_t count;

    explicit device_array(size_t count_) : count(count_)
    {
        CHECK_HIP(hipMalloc(&data, count * sizeof(T)));
    }
    explicit device_array(const std::vector<T> &values) : device_array(values.size())
    {
        CHECK_HIP(hipMemcpy(data, values.data(), count * sizeof(T), hipMemcpyHostToDevice));
    }
    ~device_array()
    {
        (void)hipFree(data);
    }
    device_array(const device_array &) = delete;
    device_array &operator=(const device_array &) = delete;

    std::vector<T> read() const
    {
        std::vector<T> values(count);
        CHECK_HIP(hipMemcpy(values.data(), data, count * sizeof(T), hipMemcpyDeviceToHost));
        return values;
    }
};

static inline int device_wave()
{
    int wave = 0;
    CHECK_HIP(hipDeviceGetAttribute(&wave, hipDeviceAttributeWarpSize, 0));
    return wave;
}

struct test_order {
    simt_order order;
    uint64_t seed;
};
static const test_order test_orders[] = {
    {SIMT_FORWARD, 0}, {SIMT_REVERSE, 0}, {SIMT_RANDOM, 1}, {SIMT_RANDOM, 2}, {SIMT_RANDOM, 3}};

/* Call `test` at both widths and in all orders. */
template <class Test> static void in_all_orders(Test test)
{
    for (int wave = 32; wave <= 64; wave *= 2)
        for (const test_order &o : test_orders) {
            simt_set_wave(wave);
            simt_set_order(o.order, o.seed);
            test();
        }
    simt_reset();
}

/* Kernels of tests are instantiated at both widths. */
#define LAUNCH_WAVE(kernel, ...)                                                                   \
    TA_WAVE_SWITCH(device_wave(), Wave, CHECK_HIP(TA_LAUNCH(kernel<Wave>, __VA_ARGS__).error))

static inline void check_values(const char *what, const std::vector<float> &expected,
                                const std::vector<float> &got, int line)
{
    for (size_t i = 0; i < expected.size(); i++)
        if (!(expected[i] == got[i])) {
            std::string text = std::string(what) + "[" + std::to_string(i) + "] is " +
                               std::to_string(got[i]) + ", expected " +
                               std::to_string(expected[i]) + " [" + simt_settings() + "]";
            UNITY_TEST_FAIL(static_cast<UNITY_UINT>(line), text.c_str());
        }
}
#define CHECK_VALUES(expected, got) check_values(#got, expected, got, __LINE__)

#endif
