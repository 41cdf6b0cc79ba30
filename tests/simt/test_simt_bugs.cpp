/* Each kernel here has one mistake that is easy to make and that a GPU may forgive. The executor
 * must see it, as an error with the place and the kernel's name. test_simt_order.cpp has those that
 * it can only show as wrong results. */
#include "simt_test.h"

#include <string.h>

void setUp(void)
{
    simt_reset();
}

void tearDown(void)
{
    simt_reset();
}

/* The line of the call that the error must name: kernels set it on that line. */
static int marked_line;

static void mark(int line)
{
    __atomic_store_n(&marked_line, line, __ATOMIC_RELAXED);
}

/* ---- Mistakes that are errors --------------------------------------------------------------- */

/* Launch a kernel(out) and see its error, which names the kernel and the marked line. */
template <class Kernel>
static void expect_failure(Kernel kernel, unsigned threads, const char *words)
{
    for (const test_order &o : test_orders) {
        simt_set_order(o.order, o.seed);
        float *out = nullptr;
        CHECK_HIP(hipMalloc(&out, 1024 * sizeof *out));
        CHECK_HIP(TA_LAUNCH(kernel, 2, threads, 0, nullptr, out).error);
        hipError_t error = hipStreamSynchronize(nullptr);
        CHECK_ERROR(hipErrorLaunchFailure, error, words);
        CHECK_ERROR(hipErrorLaunchFailure, error, simt_settings());
        std::string place = std::string("test_simt_bugs.cpp:") + std::to_string(marked_line) + ":";
        CHECK_ERROR(hipErrorLaunchFailure, error, place.c_str());
        CHECK_ERROR(hipErrorLaunchFailure, error, "kernel: ");
        /* The device stays broken, as a real one. */
        CHECK_ERROR(hipErrorLaunchFailure, hipGetLastError(), words);
        CHECK_ERROR(hipErrorLaunchFailure,
                    hipFree(nullptr) == hipSuccess ? hipDeviceSynchronize() : hipSuccess, words);
        CHECK_ERROR(hipErrorLaunchFailure, TA_LAUNCH(kernel, 1, threads, 0, nullptr, out).error,
                    words);
        CHECK_HIP(hipDeviceReset());
        CHECK_HIP(hipGetLastError());
        CHECK_HIP(hipFree(out));
    }
}

__global__ void shuffle_from_a_lane_that_left(float *out)
{
    float v = static_cast<float>(threadIdx.x);
    if (threadIdx.x == 7)
        return;
    out[threadIdx.x] = (mark(__LINE__), ta_shfl_xor(v, 7));
}

static void test_shuffle_from_a_lane_that_left(void)
{
    expect_failure(shuffle_from_a_lane_that_left, 64, "reads lane 7, which has left the kernel");
}

__global__ void shuffle_beyond_the_block(float *out)
{
    out[threadIdx.x] = (mark(__LINE__), ta_shfl_xor(1.0f, 16));
}

static void test_shuffle_beyond_the_block(void)
{
    expect_failure(shuffle_beyond_the_block, 40, "but the block ends at lane 7 of this wave");
}

__global__ void shuffle_beyond_the_wave(float *out)
{
    out[threadIdx.x] = (mark(__LINE__), ta_shfl_xor(1.0f, 32));
}

static void test_shuffle_beyond_the_wave(void)
{
    expect_failure(shuffle_beyond_the_wave, 64, "of a wave of 32");
    /* It is right on a device with waves of 64. */
    simt_set_wave(64);
    device_array<float> out(128);
    CHECK_HIP(TA_LAUNCH(shuffle_beyond_the_wave, 1, 64, 0, nullptr, out.data).error);
    CHECK_HIP(hipDeviceSynchronize());
}

__global__ void shuffle_in_half_a_wave(float *out)
{
    float v = static_cast<float>(threadIdx.x);
    if (ta_lane() < 16)
        v = ta_shfl_xor(v, 1);
    ta_syncthreads();
    out[threadIdx.x] = v;
}

static void test_shuffle_in_half_a_wave(void)
{
    device_array<float> out(64);
    CHECK_HIP(TA_LAUNCH(shuffle_in_half_a_wave, 1, 64, 0, nullptr, out.data).error);
    hipError_t error = hipDeviceSynchronize();
    CHECK_ERROR(hipErrorLaunchFailure, error, "shuffle_in_half_a_wave: ");
    CHECK_ERROR(hipErrorLaunchFailure, error, "waits at this barrier");
    CHECK_ERROR(hipErrorLaunchFailure, error, "waits at the wave collective at");
    CHECK_HIP(hipDeviceReset());
}

__global__ void shuffles_in_two_branches(float *out)
{
    float v = static_cast<float>(threadIdx.x);
    if (ta_lane() % 2)
        v = ta_shfl_xor(v, 2);
    else
        v = ta_shfl_xor(v, 4);
    out[threadIdx.x] = v;
}

static void test_shuffles_in_two_branches(void)
{
    device_array<float> out(64);
    CHECK_HIP(TA_LAUNCH(shuffles_in_two_branches, 1, 64, 0, nullptr, out.data).error);
    CHECK_ERROR(hipErrorLaunchFailure, hipDeviceSynchronize(),
                "waits at this wave collective while");
    CHECK_HIP(hipDeviceReset());
}

__global__ void barriers_in_two_branches(float *out)
{
    if (threadIdx.x < 64)
        ta_syncthreads();
    else
        ta_syncthreads();
    out[threadIdx.x] = 1;
}

__global__ void barriers_in_two_branches_of_a_wave(float *out)
{
    if (threadIdx.x < 5)
        ta_syncthreads();
    else
        ta_syncthreads();
    out[threadIdx.x] = 1;
}

static void test_barriers_in_two_branches(void)
{
    device_array<float> out(128);
    CHECK_HIP(TA_LAUNCH(barriers_in_two_branches, 1, 128, 0, nullptr, out.data).error);
    hipError_t error = hipDeviceSynchronize();
    CHECK_ERROR(hipErrorLaunchFailure, error, "barriers_in_two_branches: ");
    CHECK_ERROR(hipErrorLaunchFailure, error, "of the block waits at the barrier at");
    CHECK_HIP(hipDeviceReset());
    CHECK_HIP(TA_LAUNCH(barriers_in_two_branches_of_a_wave, 1, 128, 0, nullptr, out.data).error);
    CHECK_ERROR(hipErrorLaunchFailure, hipDeviceSynchronize(), "of the wave waits at the barrier");
    CHECK_HIP(hipDeviceReset());
}

__global__ void leaves_before_the_barrier(float *out)
{
    if (threadIdx.x >= 50)
        return;
    mark(__LINE__), ta_syncthreads();
    out[threadIdx.x] = 1;
}

static void test_leaving_before_a_barrier(void)
{
    expect_failure(leaves_before_the_barrier, 64, "has left the kernel");
    expect_failure(leaves_before_the_barrier, 256, "has left the kernel");
}

__global__ void waits_after_the_others_left(float *out)
{
    out[threadIdx.x] = 1;
    if (threadIdx.x == 3)
        mark(__LINE__), ta_syncthreads();
}

static void test_waiting_alone(void)
{
    expect_failure(waits_after_the_others_left, 64, "has left the kernel");
}

__global__ void misaligned_load(float *out)
{
    out[threadIdx.x] = ta_as_float((mark(__LINE__), ta_load16_stream(out + 1)).word[0]);
}

static void test_misaligned_load(void)
{
    expect_failure(misaligned_load, 64, "is not a multiple of 16");
}

__global__ void too_much_shared_memory(float *out)
{
    TA_SHARED(float, small, [64]);
    mark(__LINE__ + 1);
    TA_SHARED(float, large, [12288]);
    small[threadIdx.x] = large[threadIdx.x] = 1;
    out[threadIdx.x] = small[threadIdx.x];
}

static void test_too_much_shared_memory(void)
{
    expect_failure(too_much_shared_memory, 64, "use 49408 bytes of shared memory");
}

/* All that the device has was asked for, so there is no room for a variable. */
__global__ void no_room_beside(float *out)
{
    mark(__LINE__ + 1);
    TA_SHARED(float, beside, [64]);
    beside[threadIdx.x] = 1;
    out[threadIdx.x] = beside[threadIdx.x];
}

static void test_no_room_beside_dynamic_memory(void)
{
    const void *kernel = reinterpret_cast<const void *>(&no_room_beside);
    CHECK_HIP(hipFuncSetAttribute(kernel, hipFuncAttributeMaxDynamicSharedMemorySize, 65536));
    expect_failure(no_room_beside, 64, "use 256 bytes of shared memory, 0 are allowed");
}

/* ---- The width of a wave -------------------------------------------------------------------- */

template <int Wave> __global__ void for_one_width(float *out)
{
    mark(__LINE__), TA_ONLY_WAVE(Wave);
    out[threadIdx.x] = 1;
}

static void test_kernel_of_another_width(void)
{
    expect_failure(for_one_width<64>, 64, "is compiled for waves of 64");
}

/* A sum over 32 lanes, whatever the wave is. */
__global__ void sum_of_32(const float *in, float *out)
{
    float v = in[threadIdx.x];
    for (int mask = 16; mask > 0; mask /= 2)
        v += ta_shfl_xor(v, mask);
    if (ta_lane() == 0)
        out[ta_wave_id()] = v;
}

static void test_assumed_width(void)
{
    for (int wave = 32; wave <= 64; wave *= 2) {
        simt_set_wave(wave);
        device_array<float> in(std::vector<float>(64, 1.0f)), out(2);
        CHECK_HIP(TA_LAUNCH(sum_of_32, 1, 64, 0, nullptr, in.data, out.data).error);
        std::vector<float> got = out.read();
        float total = 0;
        for (int w = 0; w < 64 / wave; w++)
            total += got[static_cast<size_t>(w)];
        TEST_ASSERT_EQUAL_INT(wave == 32, total == 64.0f);
    }
}

/* ---- One helper, called from two branches --------------------------------------------------- */

TA_DEVICE float sum_of_pair(float v)
{
    return v + ta_shfl_xor(v, 1);
}

__global__ void helper_in_two_branches(float *out)
{
    float v = static_cast<float>(threadIdx.x);
    if (ta_lane() % 4 < 2)
        v = sum_of_pair(v);
    else
        v = sum_of_pair(2 * v) - 1;
    out[threadIdx.x] = v;
}

static void test_helper_in_two_branches(void)
{
    if (!SIMT_CALL_EXACT)
        TEST_IGNORE_MESSAGE("this compiler may copy calls, so they are told apart by line only");
    device_array<float> out(64);
    CHECK_HIP(TA_LAUNCH(helper_in_two_branches, 1, 64, 0, nullptr, out.data).error);
    CHECK_ERROR(hipErrorLaunchFailure, hipDeviceSynchronize(),
                "waits at this wave collective while");
    CHECK_HIP(hipDeviceReset());
}

/* ---- Refused at once ------------------------------------------------------------------------ */

__global__ void does_nothing(float *)
{
}

static void test_launches_that_are_refused(void)
{
    CHECK_ERROR(hipErrorInvalidConfiguration,
                TA_LAUNCH(does_nothing, 1, 1025, 0, nullptr, static_cast<float *>(nullptr)).error,
                "does_nothing: a block of 1025,1,1 threads");
    CHECK_ERROR(hipErrorInvalidConfiguration,
                TA_LAUNCH(does_nothing, 0, 32, 0, nullptr, static_cast<float *>(nullptr)).error,
                "a grid of 0,1,1 blocks");
    CHECK_ERROR(hipErrorInvalidValue,
                TA_LAUNCH(does_nothing, 1, 32, 50000, nullptr, static_cast<float *>(nullptr)).error,
                "50000 bytes of shared memory, 49152 are allowed");
    const void *kernel = reinterpret_cast<const void *>(&does_nothing);
    CHECK_HIP(hipFuncSetAttribute(kernel, hipFuncAttributeMaxDynamicSharedMemorySize, 50000));
    CHECK_HIP(TA_LAUNCH(does_nothing, 1, 32, 50000, nullptr, static_cast<float *>(nullptr)).error);
    CHECK_ERROR(hipErrorInvalidValue,
                hipFuncSetAttribute(kernel, hipFuncAttributeMaxDynamicSharedMemorySize, 65537),
                "the device has 65536");
    CHECK_HIP(hipDeviceSynchronize());
}

int main(void)
{
    if (SIMT_TSAN)
        return 77; /* it would report the very races that these kernels have */
    UNITY_BEGIN();
    RUN_TEST(test_shuffle_from_a_lane_that_left);
    RUN_TEST(test_shuffle_beyond_the_block);
    RUN_TEST(test_shuffle_beyond_the_wave);
    RUN_TEST(test_shuffle_in_half_a_wave);
    RUN_TEST(test_shuffles_in_two_branches);
    RUN_TEST(test_barriers_in_two_branches);
    RUN_TEST(test_leaving_before_a_barrier);
    RUN_TEST(test_waiting_alone);
    RUN_TEST(test_misaligned_load);
    RUN_TEST(test_too_much_shared_memory);
    RUN_TEST(test_no_room_beside_dynamic_memory);
    RUN_TEST(test_kernel_of_another_width);
    RUN_TEST(test_assumed_width);
    RUN_TEST(test_helper_in_two_branches);
    RUN_TEST(test_launches_that_are_refused);
    return UNITY_END() != 0;
}
