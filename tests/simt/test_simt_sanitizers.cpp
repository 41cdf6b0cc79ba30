/* Mistakes that end the process, most of them seen by a sanitizer: overruns, use after free, races.
 * Each case runs this program again as a child, which must die with the right words, or, if it is
 * right, live. What is checked depends on the build: plain, ASan or TSan. */
#include "simt_test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

void setUp(void)
{
}

void tearDown(void)
{
}

/* ---- Memory --------------------------------------------------------------------------------- */

__global__ void write_at(float *out, int index)
{
    if (threadIdx.x == 5)
        out[index] = 1;
}

static void launch_write(float *out, int index)
{
    CHECK_HIP(TA_LAUNCH(write_at, 1, 32, 0, nullptr, out, index).error);
    CHECK_HIP(hipDeviceSynchronize());
}

static void overrun(void)
{
    device_array<float> x(100);
    launch_write(x.data, 100);
}

/* Beyond the rounding of the size, where without ASan the next page begins. */
static void overrun_page(void)
{
    device_array<float> x(64);
    launch_write(x.data, 64);
}

static void write_in_bounds(void)
{
    device_array<float> x(100);
    launch_write(x.data, 99);
}

static void use_after_free(void)
{
    float *x;
    CHECK_HIP(hipMalloc(&x, 4096));
    CHECK_HIP(hipFree(x));
    launch_write(x, 0);
}

__global__ void write_shared(float *out, int fixed_index, int dynamic_index)
{
    TA_SHARED(float, before, [8]);
    TA_SHARED(float, fixed, [8]);
    TA_SHARED_DYNAMIC(float, dynamic);
    float *p = fixed; /* hides the bounds from UBSan: ASan must see it */
    asm volatile("" : "+r"(p));
    before[0] = 1;
    p[fixed_index] = 1;
    dynamic[dynamic_index] = 1;
    out[0] = before[0];
}

static void launch_write_shared(int fixed_index, int dynamic_index)
{
    device_array<float> x(1);
    CHECK_HIP(TA_LAUNCH(write_shared, 1, 1, 40, nullptr, x.data, fixed_index, dynamic_index).error);
    CHECK_HIP(hipDeviceSynchronize());
}

static void shared_overrun(void)
{
    launch_write_shared(8, 0);
}

static void dynamic_shared_overrun(void)
{
    launch_write_shared(0, 10);
}

static void shared_in_bounds(void)
{
    launch_write_shared(7, 9);
}

__global__ void overrun_own_stack(float *out, int index)
{
    float values[4] = {1, 2, 3, 4};
    float *p = values;
    asm volatile("" : "+r"(p) : : "memory");
    ta_syncthreads();
    out[threadIdx.x] = p[index];
}

static void stack_overrun(void)
{
    device_array<float> x(64);
    CHECK_HIP(TA_LAUNCH(overrun_own_stack, 1, 64, 0, nullptr, x.data, 4).error);
    CHECK_HIP(hipDeviceSynchronize());
}

static __attribute__((noinline)) int recurse(volatile int *depth)
{
    volatile int frame[256];
    frame[0] = ++*depth;
    return frame[0] < 1000000 ? recurse(depth) + frame[0] : 0;
}

__global__ void deep_recursion(float *out)
{
    volatile int depth = 0;
    out[0] = static_cast<float>(recurse(&depth));
}

static void stack_overflow(void)
{
    device_array<float> x(1);
    CHECK_HIP(TA_LAUNCH(deep_recursion, 1, 32, 0, nullptr, x.data).error);
    CHECK_HIP(hipDeviceSynchronize());
}

static void host_touches_device_memory(void)
{
    simt_set_guard(1);
    device_array<float> x(std::vector<float>(4, 1));
    launch_write(x.data, 0);
    printf("%f\n", static_cast<double>(*static_cast<volatile float *>(x.data)));
}

/* ---- Races ---------------------------------------------------------------------------------- */

template <int Wave> __global__ void neighbour(float *out, int kind)
{
    TA_ONLY_WAVE(Wave);
    TA_SHARED(float, line, [128]);
    line[threadIdx.x] = 1;
    if (kind == 0)
        ta_syncthreads();
    else if (kind == 1)
        ta_syncwave();
    else if (kind == 2)
        (void)ta_shfl_xor(1.0f, 1); /* not a barrier */
    out[threadIdx.x] = line[kind == 0 ? 127 - threadIdx.x : threadIdx.x ^ 1];
}

static void launch_neighbour(int kind)
{
    device_array<float> x(128);
    for (int wave = 32; wave <= 64; wave *= 2) {
        simt_set_wave(wave);
        LAUNCH_WAVE(neighbour, 2, 128, 0, nullptr, x.data + 0, kind);
        CHECK_HIP(hipDeviceSynchronize());
    }
}

/* Each thread reads what another one wrote, between two barriers of the block or of the wave. Those
 * that run first are at the second one before the others go on from the first. */
template <int Wave> __global__ void between_barriers(float *out, int of_block, int right)
{
    TA_ONLY_WAVE(Wave);
    TA_SHARED(float, line, [1024]);
    unsigned last = blockDim.x - 1;
    for (int i = 0; i < 3; i++) {
        of_block ? ta_syncthreads() : ta_syncwave();
        line[threadIdx.x] = 1;
        if (right)
            of_block ? ta_syncthreads() : ta_syncwave();
        out[threadIdx.x] = line[of_block ? last - threadIdx.x : threadIdx.x ^ 1];
        of_block ? ta_syncthreads() : ta_syncwave();
    }
}

static void launch_between(int of_block, int right, unsigned threads = 128)
{
    device_array<float> x(threads);
    for (int wave = 32; wave <= 64; wave *= 2) {
        simt_set_wave(wave);
        LAUNCH_WAVE(between_barriers, 1, threads, 0, nullptr, x.data + 0, of_block, right);
        CHECK_HIP(hipDeviceSynchronize());
    }
}

/* Waves add to the same sums in turn, as in the end of a direct kernel. */
template <int Wave> __global__ void waves_in_turn(float *out, int right)
{
    TA_ONLY_WAVE(Wave);
    TA_SHARED(float, sums, [64]);
    unsigned wave = threadIdx.x / Wave, lane = threadIdx.x % Wave;
    ta_syncthreads();
    for (unsigned i = 0; i < blockDim.x / Wave; i++) {
        if (wave == i)
            sums[lane] = wave == 0 ? 1 : sums[lane] + 1;
        if (right)
            ta_syncthreads();
    }
    ta_syncthreads();
    out[threadIdx.x] = sums[lane];
}

static void launch_in_turn(int right)
{
    device_array<float> x(256);
    for (int wave = 32; wave <= 64; wave *= 2) {
        simt_set_wave(wave);
        LAUNCH_WAVE(waves_in_turn, 1, 256, 0, nullptr, x.data + 0, right);
        CHECK_HIP(hipDeviceSynchronize());
    }
}

__global__ void one_counter(float *out, unsigned *counter, int kind)
{
    if (kind == 0)
        atomicAdd(counter, 1u);
    else
        ++*counter;
    if (blockIdx.x == 0)
        out[threadIdx.x] = 1;
}

static void launch_counter(int kind)
{
    device_array<float> x(32);
    device_array<unsigned> counter(std::vector<unsigned>(1, 0));
    simt_set_workers(2);
    CHECK_HIP(TA_LAUNCH(one_counter, 2, 1, 0, nullptr, x.data, counter.data, kind).error);
    CHECK_HIP(hipDeviceSynchronize());
}

/* The last block reads what the others wrote. */
__global__ void last_block(float *parts, unsigned *finished, float *out, int fence)
{
    TA_SHARED(bool, last);
    if (threadIdx.x == 0) {
        parts[blockIdx.x] = 1;
        if (fence)
            __threadfence();
        last = atomicAdd(finished, 1) == gridDim.x - 1;
        if (fence)
            __threadfence();
    }
    ta_syncthreads();
    if (last && threadIdx.x == 1)
        for (unsigned i = 0; i < gridDim.x; i++)
            *out += parts[i];
}

static void launch_last_block(int fence)
{
    device_array<float> parts(8), out(std::vector<float>(1, 0));
    device_array<unsigned> finished(std::vector<unsigned>(1, 0));
    simt_set_workers(2);
    CHECK_HIP(
        TA_LAUNCH(last_block, 8, 64, 0, nullptr, parts.data, finished.data, out.data, fence).error);
    TEST_ASSERT_EQUAL_FLOAT(8, out.read()[0]);
}

/* ---- Settings ------------------------------------------------------------------------------- */

static void mistyped_order(void)
{
    setenv("TA_SIMT_ORDER", "backward", 1);
    simt_reset();
}

/* ---- The table ------------------------------------------------------------------------------ */

enum { PLAIN = 1, ASAN = 2, TSAN = 4, ANY = 7 };
static const int build = SIMT_ASAN ? ASAN : SIMT_TSAN ? TSAN : PLAIN;

struct death {
    const char *name;
    void (*run)(void);
    int builds;        /* in which it is tried */
    const char *words; /* in the child's last words; NULL: it lives */
};

static const death deaths[] = {
    {"write_in_bounds", write_in_bounds, ANY, nullptr},
    {"overrun", overrun, ASAN, "heap-buffer-overflow"},
    {"overrun_page", overrun_page, ASAN, "heap-buffer-overflow"},
    {"overrun_page", overrun_page, PLAIN, ""},
    {"use_after_free", use_after_free, ASAN, "heap-use-after-free"},
    {"use_after_free", use_after_free, PLAIN, ""},
    {"shared_in_bounds", shared_in_bounds, ANY, nullptr},
    {"shared_overrun", shared_overrun, ASAN, "use-after-poison"},
    {"dynamic_shared_overrun", dynamic_shared_overrun, ASAN, "use-after-poison"},
    {"stack_overrun", stack_overrun, ASAN, "stack-buffer-overflow"},
    {"stack_overflow", stack_overflow, PLAIN, ""},
    {"stack_overflow", stack_overflow, ASAN, "stack-overflow"},
    {"host_touches_device_memory", host_touches_device_memory, PLAIN, ""},
    {"mistyped_order", mistyped_order, ANY, "expected forward or reverse or random"},
    {"barrier", [] { launch_neighbour(0); }, TSAN, nullptr},
    {"wave_barrier", [] { launch_neighbour(1); }, TSAN, nullptr},
    {"shuffle_is_no_barrier", [] { launch_neighbour(2); }, TSAN, "data race"},
    {"missing_barrier", [] { launch_neighbour(3); }, TSAN, "data race"},
    {"barriers_between", [] { launch_between(1, 1); }, TSAN, nullptr},
    {"wave_barriers_between", [] { launch_between(0, 1); }, TSAN, nullptr},
    {"missing_between_barriers", [] { launch_between(1, 0); }, TSAN, "data race"},
    {"missing_between_wave_barriers", [] { launch_between(0, 0); }, TSAN, "data race"},
    {"waves_in_turn", [] { launch_in_turn(1); }, TSAN, nullptr},
    {"missing_between_waves", [] { launch_in_turn(0); }, TSAN, "data race"},
    /* More threads than TSan tells apart at a time. */
    {"barriers_of_1024", [] { launch_between(1, 1, 1024); }, TSAN, nullptr},
    {"missing_among_1024", [] { launch_between(1, 0, 1024); }, TSAN, "data race"},
    {"atomic_counter", [] { launch_counter(0); }, TSAN, nullptr},
    {"plain_counter", [] { launch_counter(1); }, TSAN, "data race"},
    {"fences", [] { launch_last_block(1); }, TSAN, nullptr},
    {"missing_fences", [] { launch_last_block(0); }, TSAN, "data race"},
};

static const char *program;

static std::string run_child(const char *name, int *status)
{
    std::string command = std::string("'") + program + "' " + name + " 2>&1", text;
    FILE *pipe = popen(command.c_str(), "r");
    TEST_ASSERT_NOT_NULL(pipe);
    char piece[4096];
    for (size_t got; (got = fread(piece, 1, sizeof piece, pipe)) > 0;)
        text.append(piece, got);
    *status = pclose(pipe);
    return text;
}

static void check_death(const death &d)
{
    int status;
    std::string text = run_child(d.name, &status);
    bool died = !WIFEXITED(status) || WEXITSTATUS(status) != 0;
    bool right =
        died == (d.words != nullptr) && (!d.words || text.find(d.words) != std::string::npos);
    if (!right) {
        std::string message =
            std::string(d.name) + (died ? " died: " : " lived: ") + text.substr(0, 2000);
        TEST_FAIL_MESSAGE(message.c_str());
    }
}

static void test_deaths(void)
{
    int tried = 0;
    for (const death &d : deaths)
        if (d.builds & build) {
            check_death(d);
            tried++;
        }
    TEST_ASSERT_GREATER_THAN_INT(4, tried);
}

int main(int argc, char **argv)
{
    program = argv[0];
    UNITY_BEGIN();
    for (const death &d : deaths)
        if (argc > 1 && strcmp(argv[1], d.name) == 0) {
            UnityDefaultTestRun(d.run, d.name, __LINE__);
            return UNITY_END() != 0;
        }
    RUN_TEST(test_deaths);
    return UNITY_END() != 0;
}
