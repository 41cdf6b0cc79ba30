/* Each kernel here has one mistake that is easy to make and that a GPU may forgive: a missing
 * barrier, an assumed order, memory that was never written. The executor makes it a result that
 * is wrong in some order of the threads. */
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
    return UNITY_END() != 0;
}
