/* Vectors of 8 floats on ARM CPUs of 64 bits, as two registers of NEON each: the operations that
 * attend_simd.h and panel_simd.h are written in. simd_avx2.h has the same in the same order.
 * words_neon.h has vectors of words; kernels_neon.c includes both. */
#ifndef TA_HOST_SIMD_NEON_H
#define TA_HOST_SIMD_NEON_H

#include <arm_neon.h>
#include <stdint.h>

/* 8 floats: the first 4 and the last 4. */
typedef struct vf {
    float32x4_t a, b;
} vf;

#define VF static inline __attribute__((always_inline))

/* Both halves by the same operation. */
#define VF_EACH(expression_a, expression_b)                                                        \
    (vf)                                                                                           \
    {                                                                                              \
        .a = (expression_a), .b = (expression_b)                                                   \
    }

VF uint32x4_t as_bits(float32x4_t x)
{
    return vreinterpretq_u32_f32(x);
}

VF float32x4_t as_floats(uint32x4_t bits)
{
    return vreinterpretq_f32_u32(bits);
}

/* All 8 the same. */
VF vf vf_set(float x)
{
    return VF_EACH(vdupq_n_f32(x), vdupq_n_f32(x));
}

VF vf vf_zero(void)
{
    return vf_set(0.0f);
}

/* All 8 the same, from memory. */
VF vf vf_load_all(const float *from)
{
    float32x4_t all = vld1q_dup_f32(from);
    return VF_EACH(all, all);
}

/* Loads and stores need the alignment of an element only. */
VF vf vf_load(const float *from)
{
    return VF_EACH(vld1q_f32(from), vld1q_f32(from + 4));
}

VF vf vf_load_f16(const uint16_t *from)
{
    uint16x8_t halves = vld1q_u16(from);
    return VF_EACH(vcvt_f32_f16(vreinterpret_f16_u16(vget_low_u16(halves))),
                   vcvt_f32_f16(vreinterpret_f16_u16(vget_high_u16(halves))));
}

VF vf vf_load_bf16(const uint16_t *from)
{
    uint16x8_t halves = vld1q_u16(from);
    return VF_EACH(as_floats(vshll_n_u16(vget_low_u16(halves), 16)),
                   as_floats(vshll_n_u16(vget_high_u16(halves), 16)));
}

/* 16 elements of 16 bits as 4 words, the first or the last. */
VF uint32x4_t load_words(const uint16_t *from)
{
    return vreinterpretq_u32_u16(vld1q_u16(from));
}

/* The elements with an even index of 16, then those with an odd one: half the operations of twice
 * the above. */
VF vf vf_load_bf16_even(const uint16_t *from)
{
    return VF_EACH(as_floats(vshlq_n_u32(load_words(from), 16)),
                   as_floats(vshlq_n_u32(load_words(from + 8), 16)));
}

VF vf vf_load_bf16_odd(const uint16_t *from)
{
    uint32x4_t upper = vdupq_n_u32(0xffff0000u);
    return VF_EACH(as_floats(vandq_u32(load_words(from), upper)),
                   as_floats(vandq_u32(load_words(from + 8), upper)));
}

/* The same where no register is left for the mask: two shifts need none. */
VF vf vf_load_bf16_odd_tight(const uint16_t *from)
{
    return VF_EACH(as_floats(vshlq_n_u32(vshrq_n_u32(load_words(from), 16), 16)),
                   as_floats(vshlq_n_u32(vshrq_n_u32(load_words(from + 8), 16), 16)));
}

/* Undo it: from even and odd elements to the first 8 and the last 8. */
VF void vf_interleave(vf *even, vf *odd)
{
    vf first = VF_EACH(vzip1q_f32(even->a, odd->a), vzip2q_f32(even->a, odd->a));
    vf last = VF_EACH(vzip1q_f32(even->b, odd->b), vzip2q_f32(even->b, odd->b));
    *even = first;
    *odd = last;
}

VF void vf_store(float *to, vf x)
{
    vst1q_f32(to, x.a);
    vst1q_f32(to + 4, x.b);
}

/* Round to nearest, ties to even. */
VF void vf_store_f16(uint16_t *to, vf x)
{
    vst1_u16(to, vreinterpret_u16_f16(vcvt_f16_f32(x.a)));
    vst1_u16(to + 4, vreinterpret_u16_f16(vcvt_f16_f32(x.b)));
}

VF uint16x4_t round_to_bf16(float32x4_t x)
{
    uint32x4_t bits = as_bits(x), upper = vshrq_n_u32(bits, 16);
    uint32x4_t odd = vandq_u32(upper, vdupq_n_u32(1));
    uint32x4_t rounded = vaddq_u32(bits, vaddq_u32(odd, vdupq_n_u32(0x7fff)));
    uint32x4_t quiet = vorrq_u32(upper, vdupq_n_u32(0x40)); /* of a NaN */
    return vmovn_u32(vbslq_u32(vceqq_f32(x, x), vshrq_n_u32(rounded, 16), quiet));
}

VF void vf_store_bf16(uint16_t *to, vf x)
{
    vst1_u16(to, round_to_bf16(x.a));
    vst1_u16(to + 4, round_to_bf16(x.b));
}

VF vf vf_add(vf a, vf b)
{
    return VF_EACH(vaddq_f32(a.a, b.a), vaddq_f32(a.b, b.b));
}

VF vf vf_sub(vf a, vf b)
{
    return VF_EACH(vsubq_f32(a.a, b.a), vsubq_f32(a.b, b.b));
}

VF vf vf_mul(vf a, vf b)
{
    return VF_EACH(vmulq_f32(a.a, b.a), vmulq_f32(a.b, b.b));
}

VF vf vf_div(vf a, vf b)
{
    return VF_EACH(vdivq_f32(a.a, b.a), vdivq_f32(a.b, b.b));
}

/* a · b + c, rounded once. */
VF vf vf_fma(vf a, vf b, vf c)
{
    return VF_EACH(vfmaq_f32(c.a, a.a, b.a), vfmaq_f32(c.b, a.b, b.b));
}

/* a < b ? x : y. */
VF vf vf_if_less(vf a, vf b, vf x, vf y)
{
    return VF_EACH(vbslq_f32(vcltq_f32(a.a, b.a), x.a, y.a),
                   vbslq_f32(vcltq_f32(a.b, b.b), x.b, y.b));
}

/* The larger; b where either is NaN, unlike the instruction of that name. */
VF vf vf_max(vf a, vf b)
{
    return vf_if_less(b, a, a, b);
}

VF vf vf_abs(vf x)
{
    return VF_EACH(vabsq_f32(x.a), vabsq_f32(x.b));
}

/* The magnitude of x, which is not negative, with the sign of `sign`. */
VF vf vf_copysign(vf x, vf sign)
{
    uint32x4_t bit = vdupq_n_u32(0x80000000u);
    return VF_EACH(vbslq_f32(bit, sign.a, x.a), vbslq_f32(bit, sign.b, x.b));
}

/* 2^(n - 127) for the lowest 8 bits n of a float's bits, and 0 for n = 0. Anything for a NaN. */
VF vf vf_low_bits_as_exponent(vf x)
{
    return VF_EACH(as_floats(vshlq_n_u32(as_bits(x.a), 23)),
                   as_floats(vshlq_n_u32(as_bits(x.b), 23)));
}

/* All bits of x[i] are set if it is -inf or NaN, none otherwise. */
VF vf vf_low(vf x)
{
    float32x4_t low = vdupq_n_f32(-__builtin_inff());
    return VF_EACH(as_floats(vmvnq_u32(vcgtq_f32(x.a, low))),
                   as_floats(vmvnq_u32(vcgtq_f32(x.b, low))));
}

VF vf vf_or(vf a, vf b)
{
    return VF_EACH(as_floats(vorrq_u32(as_bits(a.a), as_bits(b.a))),
                   as_floats(vorrq_u32(as_bits(a.b), as_bits(b.b))));
}

/* Bit i is the highest bit of x[i]. */
VF unsigned vf_bits(vf x)
{
    static const int32_t places[8] = {0, 1, 2, 3, 4, 5, 6, 7};
    uint32x4_t a = vshlq_u32(vshrq_n_u32(as_bits(x.a), 31), vld1q_s32(places));
    uint32x4_t b = vshlq_u32(vshrq_n_u32(as_bits(x.b), 31), vld1q_s32(places + 4));
    return vaddvq_u32(vorrq_u32(a, b));
}

/* The sums of the lanes of 4 vectors. */
VF void vf_store_sum4(float *to, const vf *x)
{
    float32x4_t pairs[4]; /* of x[0] and x[1], then of x[2] and x[3]: first halves, last halves */
    for (int i = 0; i < 2; i++) {
        pairs[2 * i] = vpaddq_f32(x[2 * i].a, x[2 * i + 1].a);
        pairs[2 * i + 1] = vpaddq_f32(x[2 * i].b, x[2 * i + 1].b);
    }
    vst1q_f32(to, vaddq_f32(vpaddq_f32(pairs[0], pairs[2]), vpaddq_f32(pairs[1], pairs[3])));
}

/* The sums of the lanes of 8 vectors. */
VF void vf_store_sum8(float *to, const vf *x)
{
    vf_store_sum4(to, x);
    vf_store_sum4(to + 4, x + 4);
}

/* Numbers of `rows` rows, 1 or 4, one after the other in memory, repeated to fill a vector. */
VF vf vf_load_rows(const float *from, int rows)
{
    float32x4_t four = rows == 1 ? vld1q_dup_f32(from) : vld1q_f32(from);
    return VF_EACH(four, four);
}

VF void vf_store_rows(float *to, int rows, vf x)
{
    if (rows == 1)
        vst1q_lane_f32(to, x.a, 0);
    else
        vst1q_f32(to, x.a);
}

/* The other two of each four, the neighbour of each. */
VF float32x4_t swap_by_2(float32x4_t x)
{
    return vextq_f32(x, x, 2);
}

VF float32x4_t swap_by_1(float32x4_t x)
{
    return vrev64q_f32(x);
}

/* All lanes of a row become the largest of them; a NaN in the first lanes stays. */
VF vf vf_max_rows(vf x, int rows)
{
    x = vf_max(VF_EACH(x.b, x.a), x);
    if (rows == 1) {
        x = vf_max(VF_EACH(swap_by_2(x.a), swap_by_2(x.b)), x);
        x = vf_max(VF_EACH(swap_by_1(x.a), swap_by_1(x.b)), x);
    }
    return x;
}

/* All lanes of a row become their sum. */
VF vf vf_sum_rows(vf x, int rows)
{
    float32x4_t four = vaddq_f32(x.a, x.b);
    if (rows == 1) {
        four = vaddq_f32(four, swap_by_1(four));
        four = vaddq_f32(four, swap_by_2(four));
    }
    return VF_EACH(four, four);
}

/* Element j of vector i becomes element i of vector j, for 4 vectors of 4. */
VF void transpose4(float32x4_t *x)
{
    float32x4_t even01 = vtrn1q_f32(x[0], x[1]), odd01 = vtrn2q_f32(x[0], x[1]);
    float32x4_t even23 = vtrn1q_f32(x[2], x[3]), odd23 = vtrn2q_f32(x[2], x[3]);
    x[0] = vcombine_f32(vget_low_f32(even01), vget_low_f32(even23));
    x[1] = vcombine_f32(vget_low_f32(odd01), vget_low_f32(odd23));
    x[2] = vcombine_f32(vget_high_f32(even01), vget_high_f32(even23));
    x[3] = vcombine_f32(vget_high_f32(odd01), vget_high_f32(odd23));
}

/* The same for 8 vectors of 8: a block of 4 × 4 at a time, those beside the diagonal exchanged. */
VF void vf_transpose8(vf *x)
{
    float32x4_t block[4][4];
    for (int i = 0; i < 4; i++) {
        block[0][i] = x[i].a;
        block[1][i] = x[i].b;
        block[2][i] = x[i + 4].a;
        block[3][i] = x[i + 4].b;
    }
    for (int i = 0; i < 4; i++)
        transpose4(block[i]);
    for (int i = 0; i < 4; i++) {
        x[i] = VF_EACH(block[0][i], block[2][i]);
        x[i + 4] = VF_EACH(block[1][i], block[3][i]);
    }
}

#endif
