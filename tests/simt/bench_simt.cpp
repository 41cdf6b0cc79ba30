/* How fast the executor runs: a plain flash-decode kernel (f16, head dimension 128, a group of 16
 * lanes for each key), in bytes of K and V per second of CPU time. Not a test. Usage: bench_simt
 * [tokens]. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "simt_control.h"
#include "vendor.h"

static const int dim = 128, lanes_per_key = 16;

/* Grid: one block for each split of the keys. Each wave takes every n-th pair (or four) of keys. */
template <int Wave, int Heads>
__global__ void decode(const float *q, const uint16_t *k, const uint16_t *v, float *out, int tokens)
{
    TA_ONLY_WAVE(Wave);
    int group = ta_lane() / lanes_per_key, part = ta_lane() % lanes_per_key;
    int groups = static_cast<int>(blockDim.x) / lanes_per_key;
    float query[Heads][8], sum[Heads][8] = {}, l[Heads] = {}, m[Heads];
    for (int h = 0; h < Heads; h++) {
        m[h] = -INFINITY;
        for (int i = 0; i < 8; i++)
            query[h][i] = q[h * dim + part * 8 + i];
    }
    int begin = static_cast<int>(blockIdx.x) * tokens;
    for (int t = ta_wave_id() * (Wave / lanes_per_key) + group; t < tokens; t += groups) {
        ta_vec16 key = ta_load16_stream(k + static_cast<size_t>(begin + t) * dim + part * 8);
        ta_vec16 value = ta_load16_stream(v + static_cast<size_t>(begin + t) * dim + part * 8);
        for (int h = 0; h < Heads; h++) {
            float s = 0;
            for (int i = 0; i < 4; i++) {
                s = fmaf(query[h][2 * i], ta_from_f16(key.word[i] & 0xffff), s);
                s = fmaf(query[h][2 * i + 1], ta_from_f16(key.word[i] >> 16), s);
            }
            for (int mask = lanes_per_key / 2; mask > 0; mask /= 2)
                s += ta_shfl_xor(s, mask);
            float largest = fmaxf(m[h], s);
            float old = ta_exp2(m[h] - largest), p = ta_exp2(s - largest);
            m[h] = largest;
            l[h] = l[h] * old + p;
            for (int i = 0; i < 4; i++) {
                sum[h][2 * i] = sum[h][2 * i] * old + p * ta_from_f16(value.word[i] & 0xffff);
                sum[h][2 * i + 1] = sum[h][2 * i + 1] * old + p * ta_from_f16(value.word[i] >> 16);
            }
        }
    }
    for (int h = 0; h < Heads; h++)
        for (int i = 0; i < 8; i++)
            atomicAdd(&out[h * dim + part * 8 + i], sum[h][i] / l[h]);
}

static void must(hipError_t error)
{
    if (error == hipSuccess)
        return;
    fprintf(stderr, "bench_simt: %s\n", hipGetErrorString(error));
    exit(1);
}

template <int Wave, int Heads> static void measure(int tokens, simt_order order, const char *name)
{
    const int blocks = 4;
    size_t bytes = static_cast<size_t>(blocks) * static_cast<size_t>(tokens) * dim * 2;
    float *q, *out;
    uint16_t *k, *v;
    simt_set_wave(Wave);
    simt_set_order(order, 1);
    must(hipMalloc(&q, Heads * dim * sizeof *q));
    must(hipMalloc(&out, Heads * dim * sizeof *out));
    must(hipMalloc(&k, bytes));
    must(hipMalloc(&v, bytes));
    must(hipMemset(k, 0x3c, bytes));
    must(hipMemset(v, 0x3c, bytes));
    must(hipMemset(q, 0, Heads * dim * sizeof *q));
    must(hipDeviceSynchronize());
    clock_t start = clock();
    must(TA_LAUNCH((decode<Wave, Heads>), blocks, 128, 0, nullptr, q, k, v, out, tokens).error);
    must(hipDeviceSynchronize());
    double seconds = static_cast<double>(clock() - start) / CLOCKS_PER_SEC;
    printf("%6d %6d %9s %10.1f %10.3f\n", Wave, Heads, name, seconds * 1e3,
           static_cast<double>(2 * bytes) / seconds * 1e-9);
    (void)hipFree(q);
    (void)hipFree(out);
    (void)hipFree(k);
    (void)hipFree(v);
}

template <int Wave, int Heads> static void measure_orders(int tokens)
{
    measure<Wave, Heads>(tokens, SIMT_FORWARD, "forward");
    measure<Wave, Heads>(tokens, SIMT_REVERSE, "reverse");
    measure<Wave, Heads>(tokens, SIMT_RANDOM, "random");
}

int main(int argc, char **argv)
{
    int tokens = argc > 1 ? atoi(argv[1]) : 16384;
    printf("#%5s %6s %9s %10s %10s\n", "wave", "heads", "order", "time", "KV");
    printf("#%5s %6s %9s %10s %10s\n", "lanes", "count", "", "ms", "GB/s");
    measure_orders<32, 1>(tokens);
    measure_orders<64, 1>(tokens);
    measure_orders<32, 4>(tokens);
    measure_orders<64, 4>(tokens);
    return 0;
}
