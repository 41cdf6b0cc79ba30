/* Which SIMD levels there are, best first, and which of them this CPU has. A new level is a new
 * file with a table, and one line here. */
#include "kernels.h"

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include "device/device.h"

#if defined(__x86_64__)
#include <cpuid.h>

static bool has_avx2(void)
{
    unsigned a, b, c, d;
    bool has_f16c = __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
    return has_f16c && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}

#ifndef TA_NO_AVX512
static bool has_avx512(void)
{
    return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}
#endif

#ifdef TA_HAVE_AVX512BF16
static bool has_avx512bf16(void)
{
    unsigned a, b, c, d;
    return has_avx512() && __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a & 1u << 5);
}
#endif
#endif

static bool always(void)
{
    return true;
}

static const struct level {
    const ta_host_kernels *kernels;
    bool (*available)(void);
    const char *and_below; /* the names of this level and all below it */
} levels[] = {
#if defined(__x86_64__)
#ifdef TA_HAVE_AVX512BF16
    {&ta_kernels_avx512bf16, has_avx512bf16, "avx512bf16 avx512 avx2 scalar"},
#endif
#ifndef TA_NO_AVX512
    {&ta_kernels_avx512, has_avx512, "avx512 avx2 scalar"},
#endif
    {&ta_kernels_avx2, has_avx2, "avx2 scalar"},
#elif defined(__aarch64__)
    {&ta_kernels_neon, always, "neon scalar"},
#endif
    {&ta_kernels_scalar, always, "scalar"},
};

static const struct level *find(const char *name)
{
    for (size_t i = 0; i < sizeof levels / sizeof levels[0]; i++) {
        if (levels[i].available() && (!name || strcmp(levels[i].kernels->name, name) == 0))
            return &levels[i];
    }
    return NULL;
}

const ta_host_kernels *ta_host_kernels_find(const char *name)
{
    const struct level *level = find(name);
    return level ? level->kernels : NULL;
}

#if defined(__x86_64__) && !defined(TA_NO_AVX512)
/* AMD's Zen 5 (family 26) and what comes after it: one core reads more than its prefetchers alone
 * get, and asking ahead is worth a third. Zen 4 is slower with it. docs/performance.md has both. */
#define ROW_AHEAD_BYTES (8 << 10)
static bool asks_ahead(void)
{
    unsigned a, b, c, d;
    if (!__get_cpuid(0, &a, &b, &c, &d) || b != signature_AMD_ebx || c != signature_AMD_ecx ||
        d != signature_AMD_edx || !__get_cpuid(1, &a, &b, &c, &d))
        return false;
    unsigned family = (a >> 8 & 0xf) + (a >> 20 & 0xff);
    return family >= 26;
}
#endif

int64_t ta_host_row_ahead_bytes(const ta_host_kernels *kernels)
{
#if defined(__x86_64__) && !defined(TA_NO_AVX512)
    int can = kernels != &ta_kernels_scalar && kernels != &ta_kernels_avx2;
    return can && asks_ahead() ? ROW_AHEAD_BYTES : 0;
#else
    (void)kernels;
    return 0;
#endif
}

int ta_host_kernels_have(const ta_host_kernels *kernels, ta_dtype dtype, ta_dtype_role role)
{
    if (!ta_dtype_find(dtype))
        return 0;
    int has_load = kernels->load[dtype] != NULL, has_store = kernels->store[dtype] != NULL;
    int narrow = ta_dtype_is_narrow(dtype);
    ta_dtype as = narrow ? TA_BF16 : dtype;
    int attends = kernels->arrange[as] && kernels->score[as] && kernels->weigh[as] &&
                  (!narrow || kernels->widen[dtype]);
    switch (role) {
    case TA_AS_QUERY:
        return has_load;
    case TA_AS_KV:
        return attends;
    case TA_AS_OUT:
        return has_store;
    case TA_AS_ATTENTION:
        return has_load && has_store;
    case TA_AS_ANY:
        return has_load && has_store && attends;
    }
    return 0;
}

const char *ta_host_simd_levels(void)
{
    return find(NULL)->and_below;
}
