/* Each kernel here has one mistake that is easy to make and that a GPU may forgive. The executor
 * must see it: as an error with the place and the kernel's name, or as a result that is wrong in
 * some order of the threads. */
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

/* ---- Mistakes that make results depend on the order ----------------------------------------- */

/* Runs a kernel(in, out) on 256 threads in all orders and counts those in which it is right. */
struct outcome {
    int right, wrong, nan;
};

template <class Launch>
static outcome try_orders(const std::vector<float> &in, size_t out_count,
                          const std::vector<float> &expected, Launch launch)
{
    outcome o = {0, 0, 0};
    in_all_orders([&] {
        device_array<float> from(in), to(out_count);
        launch(from.data, to.data);
        std::vector<float> got = to.read();
        bool nan = false;
        for (float value : got)
            nan = nan || value != value;
        o.nan += nan;
        (got == expected ? o.right : o.wrong)++;
    });
    return o;
}

static std::vector<float> counting(size_t count)
{
    std::vector<float> values(count);
    for (size_t i = 0; i < count; i++)
        values[i] = static_cast<float>(i + 1);
    return values;
}

/* Thread 0 adds up what the waves left, without waiting for them (unless told to). */
template <int Wave> __global__ void sum_of_waves(const float *in, float *out, bool wait)
{
    TA_ONLY_WAVE(Wave);
    TA_SHARED(float, sums, [256 / 32]);
    float v = in[threadIdx.x];
    for (int mask = Wave / 2; mask > 0; mask /= 2)
        v += ta_shfl_xor(v, mask);
    if (ta_lane() == 0)
        sums[ta_wave_id()] = v;
    if (wait)
        ta_syncthreads();
    if (threadIdx.x == 0) {
        float total = 0;
        for (int w = 0; w < 256 / Wave; w++)
            total += sums[w];
        out[0] = total;
    }
}

static void test_missing_barrier_before_a_read(void)
{
    std::vector<float> in = counting(256), expected(1, 256 * 257 / 2);
    outcome bad = try_orders(in, 1, expected, [](const float *from, float *to) {
        LAUNCH_WAVE(sum_of_waves, 1, 256, 0, nullptr, from, to, false);
    });
    outcome good = try_orders(in, 1, expected, [](const float *from, float *to) {
        LAUNCH_WAVE(sum_of_waves, 1, 256, 0, nullptr, from, to, true);
    });
    TEST_ASSERT_GREATER_THAN_INT(0, bad.wrong);
    TEST_ASSERT_GREATER_THAN_INT(0, bad.nan);
    TEST_ASSERT_GREATER_THAN_INT_MESSAGE(0, bad.right, "some order hides it: that is the point");
    TEST_ASSERT_EQUAL_INT(0, good.wrong);
}

/* Reverses tiles of 256 numbers through one buffer, without waiting until it has been read. */
__global__ void reverse_tiles(const float *in, float *out, bool wait)
{
    TA_SHARED(float, tile, [256]);
    for (unsigned base = 0; base < 1024; base += 256) {
        tile[threadIdx.x] = in[base + threadIdx.x];
        ta_syncthreads();
        out[base + threadIdx.x] = tile[255 - threadIdx.x];
        if (wait)
            ta_syncthreads();
    }
}

static void test_missing_barrier_before_a_write(void)
{
    std::vector<float> in = counting(1024), expected(1024);
    for (size_t i = 0; i < 1024; i++)
        expected[i] = in[i / 256 * 256 + 255 - i % 256];
    outcome bad = try_orders(in, 1024, expected, [](const float *from, float *to) {
        CHECK_HIP(TA_LAUNCH(reverse_tiles, 1, 256, 0, nullptr, from, to, false).error);
    });
    outcome good = try_orders(in, 1024, expected, [](const float *from, float *to) {
        CHECK_HIP(TA_LAUNCH(reverse_tiles, 1, 256, 0, nullptr, from, to, true).error);
    });
    TEST_ASSERT_GREATER_THAN_INT(0, bad.wrong);
    TEST_ASSERT_EQUAL_INT(0, good.wrong);
}

/* Lanes of a wave exchange values through memory as if they ran in step. */
template <int Wave> __global__ void lockstep(const float *in, float *out, bool wait)
{
    TA_ONLY_WAVE(Wave);
    TA_SHARED(float, line, [256]);
    line[threadIdx.x] = in[threadIdx.x];
    if (wait)
        ta_syncwave();
    out[threadIdx.x] = line[threadIdx.x ^ 1];
}

static void test_assumed_lockstep(void)
{
    std::vector<float> in = counting(256), expected(256);
    for (size_t i = 0; i < 256; i++)
        expected[i] = in[i ^ 1];
    outcome bad = try_orders(in, 256, expected, [](const float *from, float *to) {
        LAUNCH_WAVE(lockstep, 1, 256, 0, nullptr, from, to, false);
    });
    outcome good = try_orders(in, 256, expected, [](const float *from, float *to) {
        LAUNCH_WAVE(lockstep, 1, 256, 0, nullptr, from, to, true);
    });
    TEST_ASSERT_EQUAL_INT_MESSAGE(0, bad.right, "no order hides it");
    TEST_ASSERT_EQUAL_INT(0, good.wrong);
}

/* A later block reads what an earlier one wrote, with nothing between them. */
__global__ void chain_of_blocks(const float *in, float *out)
{
    if (threadIdx.x == 0)
        out[blockIdx.x] = in[blockIdx.x] + (blockIdx.x > 0 ? out[blockIdx.x - 1] : 0.0f);
}

static void test_blocks_that_need_an_order(void)
{
    std::vector<float> in(8, 1.0f), expected = counting(8);
    outcome bad = try_orders(in, 8, expected, [](const float *from, float *to) {
        CHECK_HIP(TA_LAUNCH(chain_of_blocks, 8, 32, 0, nullptr, from, to).error);
    });
    TEST_ASSERT_GREATER_THAN_INT(0, bad.wrong);
    TEST_ASSERT_GREATER_THAN_INT(0, bad.right);
}

/* ---- Memory that was never written ---------------------------------------------------------- */

__global__ void unset_shared(float *out)
{
    TA_SHARED(float, fixed, [64]);
    TA_SHARED_DYNAMIC(float, dynamic);
    out[threadIdx.x] = fixed[threadIdx.x];
    out[64 + threadIdx.x] = dynamic[threadIdx.x];
    fixed[threadIdx.x] = 1; /* the next block must not find it */
    dynamic[threadIdx.x] = 1;
}

static void test_unset_memory_is_nan(void)
{
    device_array<float> out(128), fresh(100);
    for (float value : fresh.read())
        TEST_ASSERT_TRUE(value != value);
    CHECK_HIP(TA_LAUNCH(unset_shared, 3, 64, 256, nullptr, out.data).error);
    for (float value : out.read())
        TEST_ASSERT_TRUE(value != value);
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
    RUN_TEST(test_missing_barrier_before_a_read);
    RUN_TEST(test_missing_barrier_before_a_write);
    RUN_TEST(test_assumed_lockstep);
    RUN_TEST(test_blocks_that_need_an_order);
    RUN_TEST(test_unset_memory_is_nan);
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
