/* Vectors of 16 words of 16 bits on x86 CPUs with AVX2: the operations that attend/widen_simd.h is
 * written in, for elements of 8 bits. words_neon.h has the same in the same order. kernels_avx2.c
 * and attend/attend_wide.h include it. */
#ifndef TA_HOST_WORDS_AVX2_H
#define TA_HOST_WORDS_AVX2_H

#include "simd_avx2.h"

typedef __m256i vw;

VF vw vw_set(uint16_t x)
{
    return _mm256_set1_epi16((short)x);
}

/* 16 bytes, or 8 and zeros, each twice in its word. */
VF vw vw_twice(__m128i bytes)
{
    return _mm256_mullo_epi16(_mm256_cvtepu8_epi16(bytes), _mm256_set1_epi16(0x0101));
}

VF vw vw_load_twice(const uint8_t *from)
{
    return vw_twice(_mm_loadu_si128((const __m128i *)(const void *)from));
}

VF vw vw_load_half_twice(const uint8_t *from)
{
    return vw_twice(_mm_loadl_epi64((const __m128i *)(const void *)from));
}

VF void vw_store(uint16_t *to, vw x)
{
    _mm256_storeu_si256((__m256i *)(void *)to, x);
}

/* The first 8. */
VF void vw_store_half(uint16_t *to, vw x)
{
    _mm_storeu_si128((__m128i *)(void *)to, _mm256_castsi256_si128(x));
}

VF vw vw_and(vw a, vw b)
{
    return _mm256_and_si256(a, b);
}

VF vw vw_or(vw a, vw b)
{
    return _mm256_or_si256(a, b);
}

VF vw vw_add(vw a, vw b)
{
    return _mm256_add_epi16(a, b);
}

/* As signed numbers. */
VF vw vw_shift_right_3(vw x)
{
    return _mm256_srai_epi16(x, 3);
}

VF vw vw_shift_right_4(vw x)
{
    return _mm256_srai_epi16(x, 4);
}

/* All bits set where they are equal. */
VF vw vw_equal(vw a, vw b)
{
    return _mm256_cmpeq_epi16(a, b);
}

/* `then` where all bits of `mask` are set, `otherwise` where none is. */
VF vw vw_if(vw mask, vw then, vw otherwise)
{
    return _mm256_blendv_epi8(otherwise, then, mask);
}

/* Each byte of `index`, up to 15, replaced by that byte of the table. */
VF vw vw_lookup(const uint8_t *table, vw index)
{
    __m128i bytes = _mm_load_si128((const __m128i *)(const void *)table);
    return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(bytes), index);
}

#endif
