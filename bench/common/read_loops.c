/* Read loops: 32-byte vectors, added up in independent sums, from 1, 2 or 4 places at a time,
 * with or without prefetching ahead of the hardware. Vectors are the compiler's own, so that the
 * same source serves every architecture; on x86 a second copy is compiled for AVX2 and used
 * where the CPU has it. See read_loops.h. */
#include "read_loops.h"

#include <string.h>

typedef uint64_t vec __attribute__((vector_size(32), may_alias));

#define STEP 256 /* bytes per stream and round: eight vectors */
#define INLINE static inline __attribute__((always_inline))

INLINE uint64_t read_streams(const char *data, size_t bytes, int streams, size_t ahead)
{
    size_t part = bytes / (size_t)streams;
    vec sums[8] = {{0}};
    for (size_t at = 0; at < part; at += STEP) {
        for (int s = 0; s < streams; s++) {
            const char *from = data + (size_t)s * part + at;
            for (int line = 0; ahead && line < STEP; line += 64)
                __builtin_prefetch(from + ahead + line, 0, 0);
            const vec *vectors = (const vec *)(const void *)from;
            for (int i = 0; i < 8; i++)
                sums[i] += vectors[i];
        }
    }
    uint64_t total = 0;
    for (int i = 0; i < 8; i++)
        total += sums[i][0] ^ sums[i][1] ^ sums[i][2] ^ sums[i][3];
    return total;
}

/* Far enough ahead to hide a memory access behind the reads in between. */
#define NEAR 1024
#define FAR 4096

#define DEFINE_LOOPS(suffix, attribute)                                                            \
    attribute static uint64_t one_##suffix(const char *data, size_t bytes)                         \
    {                                                                                              \
        return read_streams(data, bytes, 1, 0);                                                    \
    }                                                                                              \
    attribute static uint64_t two_##suffix(const char *data, size_t bytes)                         \
    {                                                                                              \
        return read_streams(data, bytes, 2, 0);                                                    \
    }                                                                                              \
    attribute static uint64_t four_##suffix(const char *data, size_t bytes)                        \
    {                                                                                              \
        return read_streams(data, bytes, 4, 0);                                                    \
    }                                                                                              \
    attribute static uint64_t one_near_##suffix(const char *data, size_t bytes)                    \
    {                                                                                              \
        return read_streams(data, bytes, 1, NEAR);                                                 \
    }                                                                                              \
    attribute static uint64_t one_far_##suffix(const char *data, size_t bytes)                     \
    {                                                                                              \
        return read_streams(data, bytes, 1, FAR);                                                  \
    }                                                                                              \
    attribute static uint64_t four_near_##suffix(const char *data, size_t bytes)                   \
    {                                                                                              \
        return read_streams(data, bytes, 4, NEAR);                                                 \
    }                                                                                              \
    static const read_loop loops_##suffix[] = {                                                    \
        {"1 stream", one_##suffix},                                                                \
        {"2 streams", two_##suffix},                                                               \
        {"4 streams", four_##suffix},                                                              \
        {"1 stream, prefetch 1 KB", one_near_##suffix},                                            \
        {"1 stream, prefetch 4 KB", one_far_##suffix},                                             \
        {"4 streams, prefetch 1 KB", four_near_##suffix},                                          \
    };

DEFINE_LOOPS(plain, )
#if defined(__x86_64__)
DEFINE_LOOPS(avx2, __attribute__((target("avx2"))))
#endif

const read_loop *read_loops(int *count)
{
    *count = (int)(sizeof loops_plain / sizeof loops_plain[0]);
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2"))
        return loops_avx2;
#endif
    return loops_plain;
}
