/* A loop of 12 independent multiply-adds of 8 or 16 floats; see fma_loop.h. On x86 with AVX2 and
 * FMA, or AVX-512, these are single instructions; elsewhere a product and a sum of the compiler's
 * own vectors. With 8 floats a round is two of them each. */
#include "fma_loop.h"

typedef float vec __attribute__((vector_size(32)));

#define INLINE static inline __attribute__((always_inline))

#define SUMS 12

INLINE float add_up(const vec *sums)
{
    vec total = sums[0];
    for (int i = 1; i < SUMS; i++)
        total += sums[i];
    return total[0] + total[7];
}

static float loop_plain(int64_t rounds)
{
    vec sums[SUMS] = {{0}}, a = {0}, b = {0};
    a += 0.999f;
    b += 0.001f;
    for (int64_t n = 0; n < 2 * rounds; n++)
        for (int i = 0; i < SUMS; i++)
            sums[i] = sums[i] * a + b;
    return add_up(sums);
}

#if defined(__x86_64__)
#include <immintrin.h>

__attribute__((target("avx2,fma"))) static float loop_fma(int64_t rounds)
{
    __m256 sums[SUMS], a = _mm256_set1_ps(0.999f), b = _mm256_set1_ps(0.001f);
    for (int i = 0; i < SUMS; i++)
        sums[i] = _mm256_setzero_ps();
    for (int64_t n = 0; n < 2 * rounds; n++) {
#pragma GCC unroll 12
        for (int i = 0; i < SUMS; i++)
            sums[i] = _mm256_fmadd_ps(sums[i], a, b);
    }
    float lanes[8], total = 0;
    for (int i = 0; i < SUMS; i++) {
        _mm256_storeu_ps(lanes, sums[i]);
        total += lanes[i % 8];
    }
    return total;
}

__attribute__((target("avx512f"))) static float loop_wide(int64_t rounds)
{
    __m512 sums[SUMS], a = _mm512_set1_ps(0.999f), b = _mm512_set1_ps(0.001f);
    for (int i = 0; i < SUMS; i++)
        sums[i] = _mm512_setzero_ps();
    for (int64_t n = 0; n < rounds; n++) {
#pragma GCC unroll 12
        for (int i = 0; i < SUMS; i++)
            sums[i] = _mm512_fmadd_ps(sums[i], a, b);
    }
    float total = 0;
    for (int i = 0; i < SUMS; i++)
        total += _mm512_reduce_add_ps(sums[i]);
    return total;
}

static int has_fma(void)
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}

static int has_wide(void)
{
    return __builtin_cpu_supports("avx512f");
}
#else
static float loop_fma(int64_t rounds)
{
    return loop_plain(rounds);
}

static float loop_wide(int64_t rounds)
{
    return loop_plain(rounds);
}

static int has_fma(void)
{
    return 0;
}

static int has_wide(void)
{
    return 0;
}
#endif

float fma_loop(int64_t rounds)
{
    return has_wide() ? loop_wide(rounds) : has_fma() ? loop_fma(rounds) : loop_plain(rounds);
}

void fma_loop_on_thread(int thread, int threads, void *rounds)
{
    volatile float result = fma_loop(*(int64_t *)rounds);
    (void)result;
    (void)thread;
    (void)threads;
}

const char *fma_loop_name(void)
{
    return has_wide()  ? "12 x 16 lanes, FMA instructions"
           : has_fma() ? "12 x 8 lanes, FMA instructions"
                       : "12 x 8 lanes, multiply and add";
}
