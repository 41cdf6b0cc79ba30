/* Right kernels give right results at both wave widths and in every order of threads: reductions,
 * scans, transposes, shared memory, atomics, several blocks, fences between blocks. */
#include "simt_test.h"

#include <numeric>

void setUp(void)
{
    simt_reset();
}

void tearDown(void)
{
    simt_reset();
}

static std::vector<float> small_numbers(size_t count)
{
    std::vector<float> values(count);
    for (size_t i = 0; i < count; i++)
        values[i] = static_cast<float>(i * 7 % 23) - 9;
    return values;
}

/* ---- Sum of each block: shuffles in the wave, shared memory between waves ------------------- */

template <int Wave> TA_DEVICE float wave_sum(float v)
{
    for (int mask = Wave / 2; mask > 0; mask /= 2)
        v += ta_shfl_xor(v, mask);
    return v;
}

template <int Wave> __global__ void block_sum(const float *in, float *out, int count)
{
    TA_ONLY_WAVE(Wave);
    TA_SHARED(float, sums, [1024 / 32]);
    int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
    float v = wave_sum<Wave>(i < count ? in[i] : 0.0f);
    if (ta_lane() == 0)
        sums[ta_wave_id()] = v;
    ta_syncthreads();
    if (threadIdx.x == 0) {
        float total = 0;
        for (unsigned w = 0; w < blockDim.x / Wave; w++)
            total += sums[w];
        out[blockIdx.x] = total;
    }
}

static void test_block_sums(void)
{
    in_all_orders([] {
        std::vector<float> values = small_numbers(5000);
        for (unsigned threads = 64; threads <= 1024; threads *= 4) {
            unsigned blocks = (5000 + threads - 1) / threads;
            device_array<float> in(values), out(blocks);
            LAUNCH_WAVE(block_sum, blocks, threads, 0, nullptr, in.data, out.data, 5000);
            std::vector<float> expected(blocks, 0.0f);
            for (size_t i = 0; i < values.size(); i++)
                expected[i / threads] += values[i];
            CHECK_VALUES(expected, out.read());
        }
    });
}

/* ---- Larger and smaller values through a shuffle -------------------------------------------- */

struct triple {
    double a;
    int b;
    char c;
};

template <int Wave> __global__ void reverse_wave(double *a, int *b)
{
    TA_ONLY_WAVE(Wave);
    int i = static_cast<int>(threadIdx.x);
    triple t = {i * 0.5, -i, static_cast<char>(i % 100)};
    triple r = ta_shfl_xor(t, Wave - 1);
    a[i] = r.a;
    b[i] = r.b + r.c;
}

static void test_shuffle_of_a_struct(void)
{
    in_all_orders([] {
        device_array<double> a(64);
        device_array<int> b(64);
        LAUNCH_WAVE(reverse_wave, 1, 64, 0, nullptr, a.data, b.data);
        std::vector<double> got_a = a.read();
        std::vector<int> got_b = b.read();
        int wave = device_wave();
        for (int i = 0; i < 64; i++) {
            int from = i / wave * wave + wave - 1 - i % wave;
            TEST_ASSERT_EQUAL_INT_MESSAGE(from, static_cast<int>(got_a[static_cast<size_t>(i)] * 2),
                                          simt_settings());
            TEST_ASSERT_EQUAL_INT_MESSAGE(0, got_b[static_cast<size_t>(i)], simt_settings());
        }
    });
}

/* ---- Transposes: static and dynamic shared memory, barriers --------------------------------- */

template <int Wave> __global__ void transpose_static(const float *in, float *out, int n)
{
    TA_ONLY_WAVE(Wave);
    TA_SHARED(float, tile, [16][17]);
    int x = static_cast<int>(threadIdx.x % 16), y = static_cast<int>(threadIdx.x / 16);
    int column = static_cast<int>(blockIdx.x) * 16, row = static_cast<int>(blockIdx.y) * 16;
    tile[y][x] = in[(row + y) * n + column + x];
    ta_syncthreads();
    out[(column + y) * n + row + x] = tile[x][y];
}

/* The tile is used twice, so that a barrier after reading it matters too. */
template <int Wave> __global__ void transpose_dynamic(const float *in, float *out, int n)
{
    TA_ONLY_WAVE(Wave);
    TA_SHARED_DYNAMIC(float, tile);
    int x = static_cast<int>(threadIdx.x % 16), y = static_cast<int>(threadIdx.x / 16);
    int column = static_cast<int>(blockIdx.x) * 16;
    for (int row = 0; row < n; row += 16) {
        tile[y * 16 + x] = in[(row + y) * n + column + x];
        ta_syncthreads();
        out[(column + y) * n + row + x] = tile[x * 16 + y];
        ta_syncthreads();
    }
}

static void test_transposes(void)
{
    in_all_orders([] {
        std::vector<float> values = small_numbers(64 * 64), expected(64 * 64);
        for (size_t i = 0; i < 64; i++)
            for (size_t j = 0; j < 64; j++)
                expected[j * 64 + i] = values[i * 64 + j];
        device_array<float> in(values), a(64 * 64), b(64 * 64);
        LAUNCH_WAVE(transpose_static, dim3(4, 4), 256, 0, nullptr, in.data, a.data, 64);
        LAUNCH_WAVE(transpose_dynamic, 4, 256, 1024, nullptr, in.data, b.data, 64);
        CHECK_VALUES(expected, a.read());
        CHECK_VALUES(expected, b.read());
    });
}

/* ---- Waves that pass data through shared memory with a wave barrier only --------------------- */

template <int Wave> __global__ void neighbours(const float *in, float *out)
{
    TA_ONLY_WAVE(Wave);
    TA_SHARED(float, line, [256]);
    int base = ta_wave_id() * Wave;
    line[base + ta_lane()] = in[threadIdx.x];
    ta_syncwave();
    out[threadIdx.x] = line[base + (ta_lane() + 1) % Wave];
}

static void test_wave_barrier(void)
{
    in_all_orders([] {
        size_t wave = static_cast<size_t>(device_wave());
        std::vector<float> values = small_numbers(256), expected(256);
        for (size_t i = 0; i < 256; i++)
            expected[i] = values[i / wave * wave + (i + 1) % wave];
        device_array<float> in(values), out(256);
        LAUNCH_WAVE(neighbours, 1, 256, 0, nullptr, in.data, out.data);
        CHECK_VALUES(expected, out.read());
    });
}

/* ---- Atomics, and the last block of a grid -------------------------------------------------- */

__global__ void histogram(const float *in, unsigned *bins, float *sum, int *most, int count)
{
    int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
    if (i >= count)
        return;
    atomicAdd(&bins[(i * 7) % 5], 1);
    atomicAdd(sum, in[i]);
    atomicMax(most, i);
}

static void test_atomics(void)
{
    simt_set_workers(2);
    in_all_orders([] {
        std::vector<float> values = small_numbers(1000);
        device_array<float> in(values), sum(std::vector<float>(1, 0));
        device_array<unsigned> bins(std::vector<unsigned>(5, 0));
        device_array<int> most(std::vector<int>(1, -1));
        CHECK_HIP(
            TA_LAUNCH(histogram, 16, 64, 0, nullptr, in.data, bins.data, sum.data, most.data, 1000)
                .error);
        for (unsigned bin : bins.read())
            TEST_ASSERT_EQUAL_UINT_MESSAGE(200, bin, simt_settings());
        CHECK_VALUES(std::vector<float>(1, std::accumulate(values.begin(), values.end(), 0.0f)),
                     sum.read());
        TEST_ASSERT_EQUAL_INT(999, most.read()[0]);
    });
}

/* The block that finishes last adds up what all blocks left, in a fixed order. */
template <int Wave>
__global__ void sum_by_last_block(const float *in, float *parts, unsigned *finished, float *out)
{
    TA_ONLY_WAVE(Wave);
    TA_SHARED(bool, last);
    float v = wave_sum<Wave>(threadIdx.x < Wave ? in[blockIdx.x * Wave + threadIdx.x] : 0.0f);
    if (threadIdx.x == 0) {
        parts[blockIdx.x] = v;
        __threadfence();
        last = atomicAdd(finished, 1) == gridDim.x - 1;
        __threadfence();
    }
    ta_syncthreads();
    if (last && threadIdx.x == 0) {
        float total = 0;
        for (unsigned i = 0; i < gridDim.x; i++)
            total += parts[i];
        *out = total;
        *finished = 0;
    }
}

static void test_last_block_sums(void)
{
    in_all_orders([] {
        for (int workers = 1; workers <= 3; workers++) {
            simt_set_workers(workers);
            size_t count = 12 * static_cast<size_t>(device_wave());
            std::vector<float> values = small_numbers(count);
            device_array<float> in(values), parts(12), out(1);
            device_array<unsigned> finished(std::vector<unsigned>(1, 0));
            for (int round = 0; round < 2; round++)
                LAUNCH_WAVE(sum_by_last_block, 12, 128, 0, nullptr, in.data, parts.data,
                            finished.data, out.data);
            CHECK_VALUES(std::vector<float>(1, std::accumulate(values.begin(), values.end(), 0.0f)),
                         out.read());
        }
    });
}

/* ---- Conditions around a shuffle, which a compiler likes to split by
 * -------------------------- */

template <int Wave> __global__ void odd_and_even(const float *in, float *out, int rounds)
{
    TA_ONLY_WAVE(Wave);
    bool odd = ta_lane() % 2;
    float v = in[threadIdx.x], sum = 0;
    for (int i = 0; i < rounds; i++) {
        if (odd)
            sum += 1;
        float other = ta_shfl_xor(v, 1);
        if (odd)
            v = other + 1;
        else
            sum += other;
        for (int mask = 1; mask < Wave; mask *= 2) {
            float w = ta_shfl_xor(sum, mask);
            if (odd || mask == 2)
                sum = fmaxf(sum, w);
        }
    }
    out[threadIdx.x] = sum;
}

static void odd_and_even_on_host(int wave, std::vector<float> v, std::vector<float> *sum,
                                 int rounds)
{
    size_t count = v.size();
    sum->assign(count, 0);
    for (int r = 0; r < rounds; r++) {
        std::vector<float> before = v;
        for (size_t i = 0; i < count; i++) {
            (*sum)[i] += i % 2 ? 1 : before[i ^ 1];
            v[i] = i % 2 ? before[i ^ 1] + 1 : v[i];
        }
        for (size_t mask = 1; mask < static_cast<size_t>(wave); mask *= 2) {
            std::vector<float> last = *sum;
            for (size_t i = 0; i < count; i++)
                if (i % 2 || mask == 2)
                    (*sum)[i] = fmaxf(last[i], last[i ^ mask]);
        }
    }
}

static void test_conditions_around_shuffles(void)
{
    in_all_orders([] {
        std::vector<float> values = small_numbers(128), expected;
        device_array<float> in(values), out(128);
        LAUNCH_WAVE(odd_and_even, 1, 128, 0, nullptr, in.data, out.data, 7);
        odd_and_even_on_host(device_wave(), values, &expected, 7);
        CHECK_VALUES(expected, out.read());
    });
}

/* ---- Conversions and loads ------------------------------------------------------------------ */

__global__ void convert(const uint16_t *halves, float *f16, float *bf16, uint16_t *back)
{
    ta_vec16 v = ta_load16_stream(halves + 8 * threadIdx.x);
    ta_store16(back + 8 * threadIdx.x, v);
    for (unsigned i = 0; i < 8; i++) {
        uint16_t bits = static_cast<uint16_t>(v.word[i / 2] >> i % 2 * 16);
        f16[8 * threadIdx.x + i] = ta_from_f16(bits);
        bf16[8 * threadIdx.x + i] = ta_from_bf16(bits);
    }
}

static void test_loads_and_conversions(void)
{
    std::vector<uint16_t> halves(256);
    for (size_t i = 0; i < 256; i++)
        halves[i] = ta_f32_to_f16(static_cast<float>(i) * 0.25f);
    device_array<uint16_t> in(halves), back(256);
    device_array<float> f16(256), bf16(256);
    CHECK_HIP(TA_LAUNCH(convert, 1, 32, 0, nullptr, in.data, f16.data, bf16.data, back.data).error);
    std::vector<float> got_f16 = f16.read(), got_bf16 = bf16.read();
    for (size_t i = 0; i < 256; i++) {
        TEST_ASSERT_EQUAL_FLOAT(static_cast<float>(i) * 0.25f, got_f16[i]);
        TEST_ASSERT_EQUAL_FLOAT(ta_bf16_to_f32(halves[i]), got_bf16[i]);
    }
    TEST_ASSERT_TRUE(back.read() == halves);
    TEST_ASSERT_EQUAL_HEX16(0x3f80, ta_to_bf16(1.0f));
    TEST_ASSERT_EQUAL_HEX16(0x3f80, ta_to_bf16(1.00390625f)); /* a tie goes to even */
    TEST_ASSERT_EQUAL_HEX16(0x3f82, ta_to_bf16(1.01171875f));
    TEST_ASSERT_EQUAL_HEX16(0x7fc0, ta_to_bf16(NAN) & 0x7fff);
    TEST_ASSERT_EQUAL_HEX16(0x7f80, ta_to_bf16(3.4e38f));
}

/* ---- Indices -------------------------------------------------------------------------------- */

__global__ void indices(unsigned *out)
{
    unsigned block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
    out[block * blockDim.x + threadIdx.x] = block * 1000 + threadIdx.x;
}

static void test_every_thread_of_every_block_runs_once(void)
{
    in_all_orders([] {
        device_array<unsigned> out(3 * 4 * 5 * 70);
        CHECK_HIP(TA_LAUNCH(indices, dim3(3, 4, 5), 70, 0, nullptr, out.data).error);
        std::vector<unsigned> got = out.read();
        for (unsigned i = 0; i < got.size(); i++)
            TEST_ASSERT_EQUAL_UINT_MESSAGE(i / 70 * 1000 + i % 70, got[i], simt_settings());
    });
    TEST_ASSERT_EQUAL_UINT64(0, simt_get_counters().blocks); /* reset */
}

/* ---- Repeating a run ------------------------------------------------------------------------ */

template <int Wave> __global__ void note_order(unsigned *counter, unsigned *order)
{
    TA_ONLY_WAVE(Wave);
    unsigned thread = blockIdx.x * blockDim.x + threadIdx.x;
    for (unsigned i = 0; i < 8; i++) {
        order[thread * 8 + i] = atomicAdd(counter, 1);
        if (i % 2)
            (void)ta_shfl_xor(thread, 1);
        else
            ta_syncthreads();
    }
}

static std::vector<unsigned> order_of_threads(simt_order order, uint64_t seed)
{
    hipStream_t stream;
    CHECK_HIP(hipStreamCreateWithFlags(&stream, hipStreamNonBlocking));
    simt_set_order(order, seed);
    device_array<unsigned> counter(std::vector<unsigned>(1, 0)), seen(3 * 256 * 8);
    LAUNCH_WAVE(note_order, 3, 256, 0, stream, counter.data, seen.data);
    CHECK_HIP(hipStreamDestroy(stream));
    return seen.read();
}

static void test_the_seed_decides_the_order(void)
{
    for (int wave = 32; wave <= 64; wave *= 2) {
        simt_set_wave(wave);
        std::vector<unsigned> five = order_of_threads(SIMT_RANDOM, 5);
        TEST_ASSERT_TRUE(five == order_of_threads(SIMT_RANDOM, 5));
        TEST_ASSERT_FALSE(five == order_of_threads(SIMT_RANDOM, 6));
        std::vector<unsigned> forward = order_of_threads(SIMT_FORWARD, 5);
        TEST_ASSERT_TRUE(forward == order_of_threads(SIMT_FORWARD, 6));
        TEST_ASSERT_EQUAL_UINT(0, forward[0]);
        TEST_ASSERT_EQUAL_UINT(0, order_of_threads(SIMT_REVERSE, 5)[(3 * 256 - 1) * 8]);
    }
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(test_block_sums);
    RUN_TEST(test_shuffle_of_a_struct);
    RUN_TEST(test_transposes);
    RUN_TEST(test_wave_barrier);
    RUN_TEST(test_atomics);
    RUN_TEST(test_last_block_sums);
    RUN_TEST(test_conditions_around_shuffles);
    RUN_TEST(test_loads_and_conversions);
    RUN_TEST(test_every_thread_of_every_block_runs_once);
    RUN_TEST(test_the_seed_decides_the_order);
    return UNITY_END() != 0;
}
