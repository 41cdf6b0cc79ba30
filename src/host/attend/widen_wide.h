/* widen() of kernels.h with AVX512_VBMI, which not every CPU with AVX-512 has: 64 bytes at a time,
 * each of the two bytes of their bf16 looked up in a table of the 128 codes without their sign.
 * Part of attend_wide.h. Other CPUs, and what is left over, take widen_simd.h. */

/* The bf16 of a code, as an expression: f fraction bits, the bias, and as in base/narrow.h the
 * largest number and the limit of what is no NaN. A subnormal code c is c · 2^(1 - bias - f). */
#define LOOKUP_BF16(c, f, bias, largest, limit)                                                    \
    ((c) > (limit)     ? 0x7fc0                                                                    \
     : (c) > (largest) ? 0x7f80                                                                    \
     : (c) >> (f)      ? ((c) << (7 - (f))) + ((127 - (bias)) << 7)                                \
     : (c) >= 4        ? ((127 + 3 - (bias) - (f)) << 7) + (((c)-4) * 32)                          \
     : (c) >= 2        ? ((127 + 2 - (bias) - (f)) << 7) + (((c)-2) * 64)                          \
     : (c)             ? (127 + 1 - (bias) - (f)) << 7                                             \
                       : 0)

#define LOOKUP_2(M, c, ...) M(c, __VA_ARGS__), M((c) + 1, __VA_ARGS__)
#define LOOKUP_8(M, c, ...)                                                                        \
    LOOKUP_2(M, c, __VA_ARGS__), LOOKUP_2(M, (c) + 2, __VA_ARGS__),                                \
        LOOKUP_2(M, (c) + 4, __VA_ARGS__), LOOKUP_2(M, (c) + 6, __VA_ARGS__)
#define LOOKUP_32(M, c, ...)                                                                       \
    LOOKUP_8(M, c, __VA_ARGS__), LOOKUP_8(M, (c) + 8, __VA_ARGS__),                                \
        LOOKUP_8(M, (c) + 16, __VA_ARGS__), LOOKUP_8(M, (c) + 24, __VA_ARGS__)
#define LOOKUP_128(M, ...)                                                                         \
    {                                                                                              \
        LOOKUP_32(M, 0, __VA_ARGS__), LOOKUP_32(M, 32, __VA_ARGS__),                               \
            LOOKUP_32(M, 64, __VA_ARGS__), LOOKUP_32(M, 96, __VA_ARGS__)                           \
    }
#define LOOKUP_LOW(c, ...) (LOOKUP_BF16(c, __VA_ARGS__)) & 0xff
#define LOOKUP_HIGH(c, ...) (LOOKUP_BF16(c, __VA_ARGS__)) >> 8

/* [lower, upper byte][code]. */
#define LOOKUP_TABLE(...)                                                                          \
    {                                                                                              \
        LOOKUP_128(LOOKUP_LOW, __VA_ARGS__), LOOKUP_128(LOOKUP_HIGH, __VA_ARGS__)                  \
    }
static const _Alignas(64) uint8_t lookup_bytes[TA_DTYPE_END][2][128] = {
    [TA_E4M3] = LOOKUP_TABLE(3, 7, 0x7e, 0x7e),
    [TA_E5M2] = LOOKUP_TABLE(2, 15, 0x7b, 0x7c),
    [TA_E4M3_FNUZ] = LOOKUP_TABLE(3, 8, 0x7f, 0x7f),
    [TA_E5M2_FNUZ] = LOOKUP_TABLE(2, 16, 0x7f, 0x7f),
};

/* Returns how many it took. */
__attribute__((target("avx512vbmi"))) static int32_t
widen_by_lookup(ta_dtype dtype, const uint8_t *from, int32_t n, uint16_t *to)
{
    const int is_fnuz = dtype == TA_E4M3_FNUZ || dtype == TA_E5M2_FNUZ;
    const __m512i *low = (const __m512i *)(const void *)lookup_bytes[dtype][0];
    const __m512i *high = (const __m512i *)(const void *)lookup_bytes[dtype][1];
    /* So that what unpacking takes from each quarter is in the order of memory. */
    const __m512i order = _mm512_setr_epi64(0, 4, 1, 5, 2, 6, 3, 7);
    const __m512i sign = _mm512_set1_epi8((char)0x80);
    int32_t i = 0;
    for (; i + 64 <= n; i += 64) {
        __m512i x = _mm512_permutexvar_epi64(order, _mm512_loadu_si512(from + i));
        __m512i lower = _mm512_permutex2var_epi8(low[0], x, low[1]);
        __m512i upper = _mm512_permutex2var_epi8(high[0], x, high[1]);
        upper = _mm512_ternarylogic_epi64(upper, x, sign, 0xf8); /* upper | (x & sign) */
        if (is_fnuz) {                                           /* 0x80 is no number */
            __mmask64 nan = _mm512_cmpeq_epi8_mask(x, sign);
            upper = _mm512_mask_mov_epi8(upper, nan, _mm512_set1_epi8(0x7f));
            lower = _mm512_mask_mov_epi8(lower, nan, _mm512_set1_epi8((char)0xc0));
        }
        _mm512_storeu_si512(to + i, _mm512_unpacklo_epi8(lower, upper));
        _mm512_storeu_si512(to + i + 32, _mm512_unpackhi_epi8(lower, upper));
    }
    return i;
}

INLINE void widen_wide(ta_dtype dtype, const void *from, int32_t n, uint16_t *to)
{
    int32_t done = 0;
    if (__builtin_cpu_supports("avx512vbmi"))
        done = widen_by_lookup(dtype, from, n, to);
    widen_any(dtype, (const uint8_t *)from + done, n - done, to + done);
}
