/* Vectors of 8 floats on x86 CPUs with AVX2, FMA and F16C: the operations that attend_simd.h and
 * panel_simd.h are written in. kernels_avx2.c includes it, and kernels_avx512.c for what it does
 * not do with wider vectors; words_avx2.h has vectors of words. */
#ifndef TA_HOST_SIMD_AVX2_H
#define TA_HOST_SIMD_AVX2_H

#include <immintrin.h>
#include <stdint.h>

/* 8 floats. */
typedef __m256 vf;

#define VF static inline __attribute__((always_inline))

VF vf vf_zero(void)
{
    return _mm256_setzero_ps();
}

/* All 8 the same. */
VF vf vf_set(float x)
{
    return _mm256_set1_ps(x);
}

/* All 8 the same, from memory. Only the instruction of AVX2, with one of the first 16 registers, is
 * a mere load: that of AVX-512 takes a place in the pipes that multiply, which costs a seventh of
 * their rate on Zen 4. Compilers see no difference and choose either. */
VF vf vf_load_all(const float *from)
{
    vf all;
    __asm__("vbroadcastss %1, %0" : "=x"(all) : "m"(*from));
    return all;
}

/* Loads and stores need the alignment of an element only. */
VF vf vf_load(const float *from)
{
    return _mm256_loadu_ps(from);
}

VF vf vf_load_f16(const uint16_t *from)
{
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)from));
}

VF vf vf_load_bf16(const uint16_t *from)
{
    __m256i wide = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)from));
    return _mm256_castsi256_ps(_mm256_slli_epi32(wide, 16));
}

/* The elements with an even index of 16, then those with an odd one: half the operations of twice
 * the above. */
VF vf vf_load_bf16_even(const uint16_t *from)
{
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_loadu_si256((const __m256i *)from), 16));
}

VF vf vf_load_bf16_odd(const uint16_t *from)
{
    __m256i upper = _mm256_set1_epi32((int)0xffff0000u);
    return _mm256_castsi256_ps(_mm256_and_si256(_mm256_loadu_si256((const __m256i *)from), upper));
}

/* The same where no register is left for the mask: it is loaded each time. */
VF vf vf_load_bf16_odd_tight(const uint16_t *from)
{
    static const _Alignas(32)
        uint32_t mask[8] = {0xffff0000u, 0xffff0000u, 0xffff0000u, 0xffff0000u,
                            0xffff0000u, 0xffff0000u, 0xffff0000u, 0xffff0000u};
    __m256i upper = *(const volatile __m256i *)mask;
    return _mm256_castsi256_ps(_mm256_and_si256(_mm256_loadu_si256((const __m256i *)from), upper));
}

/* Undo it: from even and odd elements to the first 8 and the last 8. */
VF void vf_interleave(vf *even, vf *odd)
{
    vf low = _mm256_unpacklo_ps(*even, *odd), high = _mm256_unpackhi_ps(*even, *odd);
    *even = _mm256_permute2f128_ps(low, high, 0x20);
    *odd = _mm256_permute2f128_ps(low, high, 0x31);
}

VF void vf_store(float *to, vf x)
{
    _mm256_storeu_ps(to, x);
}

/* Round to nearest, ties to even. */
VF void vf_store_f16(uint16_t *to, vf x)
{
    _mm_storeu_si128((__m128i *)to,
                     _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}

VF void vf_store_bf16(uint16_t *to, vf x)
{
    __m256i bits = _mm256_castps_si256(x);
    __m256i upper = _mm256_srli_epi32(bits, 16);
    __m256i odd = _mm256_and_si256(upper, _mm256_set1_epi32(1));
    __m256i rounded = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
    rounded = _mm256_srli_epi32(rounded, 16);
    __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
    __m256i quiet = _mm256_or_si256(upper, _mm256_set1_epi32(0x40));
    __m256i words = _mm256_blendv_epi8(rounded, quiet, nan);
    words = _mm256_permute4x64_epi64(_mm256_packus_epi32(words, words), 0x08);
    _mm_storeu_si128((__m128i *)to, _mm256_castsi256_si128(words));
}

VF vf vf_add(vf a, vf b)
{
    return _mm256_add_ps(a, b);
}

VF vf vf_sub(vf a, vf b)
{
    return _mm256_sub_ps(a, b);
}

VF vf vf_mul(vf a, vf b)
{
    return _mm256_mul_ps(a, b);
}

VF vf vf_div(vf a, vf b)
{
    return _mm256_div_ps(a, b);
}

/* a · b + c, rounded once. */
VF vf vf_fma(vf a, vf b, vf c)
{
    return _mm256_fmadd_ps(a, b, c);
}

/* The larger; b where either is NaN. */
VF vf vf_max(vf a, vf b)
{
    return _mm256_max_ps(a, b);
}

VF vf vf_abs(vf x)
{
    return _mm256_andnot_ps(vf_set(-0.0f), x);
}

/* The magnitude of x, which is not negative, with the sign of `sign`. */
VF vf vf_copysign(vf x, vf sign)
{
    return _mm256_or_ps(x, _mm256_and_ps(vf_set(-0.0f), sign));
}

/* a < b ? x : y. */
VF vf vf_if_less(vf a, vf b, vf x, vf y)
{
    return _mm256_blendv_ps(y, x, _mm256_cmp_ps(a, b, _CMP_LT_OQ));
}

/* 2^(n - 127) for the lowest 8 bits n of a float's bits, and 0 for n = 0. Anything for a NaN. */
VF vf vf_low_bits_as_exponent(vf x)
{
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_castps_si256(x), 23));
}

/* All bits of x[i] are set if it is -inf or NaN, none otherwise. */
VF vf vf_low(vf x)
{
    return _mm256_cmp_ps(x, vf_set(-__builtin_inff()), _CMP_NGT_UQ);
}

VF vf vf_or(vf a, vf b)
{
    return _mm256_or_ps(a, b);
}

/* Bit i is the highest bit of x[i]. */
VF unsigned vf_bits(vf x)
{
    return (unsigned)_mm256_movemask_ps(x);
}

/* In each half: lanes 0 + 2, 1 + 3 of a, then of b. */
VF vf fold_by_2(vf a, vf b)
{
    return _mm256_add_ps(_mm256_blend_ps(a, b, 0xcc), _mm256_shuffle_ps(a, b, 0x4e));
}

/* Lanes 0 + 1 of a, of b, lanes 2 + 3 of a, of b, in each half. */
VF vf fold_by_1(vf a, vf b)
{
    vf crossed = _mm256_permute_ps(_mm256_blend_ps(b, a, 0xaa), 0xb1);
    return _mm256_add_ps(_mm256_blend_ps(a, b, 0xaa), crossed);
}

/* The sums of the lanes of 4 vectors. */
VF void vf_store_sum4(float *to, const vf *x)
{
    vf a = fold_by_1(fold_by_2(x[0], x[2]), fold_by_2(x[1], x[3]));
    _mm_storeu_ps(to, _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1)));
}

/* The sums of the lanes of 8 vectors. */
VF void vf_store_sum8(float *to, const vf *x)
{
    vf a[4];
    for (int i = 0; i < 4; i++)
        a[i] = _mm256_add_ps(_mm256_blend_ps(x[i], x[i + 4], 0xf0),
                             _mm256_permute2f128_ps(x[i], x[i + 4], 0x21));
    vf_store(to, _mm256_hadd_ps(_mm256_hadd_ps(a[0], a[1]), _mm256_hadd_ps(a[2], a[3])));
}

/* Numbers of `rows` rows, 1, 4 or 8, one after the other in memory, repeated to fill a vector. */
VF vf vf_load_rows(const float *from, int rows)
{
    return rows == 1   ? _mm256_broadcast_ss(from)
           : rows == 4 ? _mm256_broadcast_ps((const __m128 *)from)
                       : _mm256_loadu_ps(from);
}

VF void vf_store_rows(float *to, int rows, vf x)
{
    if (rows == 1)
        _mm_store_ss(to, _mm256_castps256_ps128(x));
    else if (rows == 4)
        _mm_storeu_ps(to, _mm256_castps256_ps128(x));
    else
        _mm256_storeu_ps(to, x);
}

/* All lanes of a row become the largest of them; a NaN in the first lanes stays. */
VF vf vf_max_rows(vf x, int rows)
{
    if (rows == 8)
        return x;
    x = _mm256_max_ps(_mm256_permute2f128_ps(x, x, 0x01), x);
    if (rows == 1) {
        x = _mm256_max_ps(_mm256_permute_ps(x, 0x4e), x);
        x = _mm256_max_ps(_mm256_permute_ps(x, 0xb1), x);
    }
    return x;
}

/* All lanes of a row become their sum. */
VF vf vf_sum_rows(vf x, int rows)
{
    if (rows == 8)
        return x;
    x = _mm256_add_ps(x, _mm256_permute2f128_ps(x, x, 0x01));
    if (rows == 1) {
        x = _mm256_hadd_ps(x, x);
        x = _mm256_hadd_ps(x, x);
    }
    return x;
}

/* Element j of vector i becomes element i of vector j. */
VF void vf_transpose8(vf *x)
{
    vf pairs[8], fours[8];
    for (int i = 0; i < 8; i += 2) {
        pairs[i] = _mm256_unpacklo_ps(x[i], x[i + 1]);
        pairs[i + 1] = _mm256_unpackhi_ps(x[i], x[i + 1]);
    }
    for (int i = 0; i < 8; i += 4) {
        fours[i] = _mm256_shuffle_ps(pairs[i], pairs[i + 2], 0x44);
        fours[i + 1] = _mm256_shuffle_ps(pairs[i], pairs[i + 2], 0xee);
        fours[i + 2] = _mm256_shuffle_ps(pairs[i + 1], pairs[i + 3], 0x44);
        fours[i + 3] = _mm256_shuffle_ps(pairs[i + 1], pairs[i + 3], 0xee);
    }
    for (int i = 0; i < 4; i++) {
        x[i] = _mm256_permute2f128_ps(fours[i], fours[i + 4], 0x20);
        x[i + 4] = _mm256_permute2f128_ps(fours[i], fours[i + 4], 0x31);
    }
}

#endif
