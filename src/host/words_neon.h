/* Vectors of 16 words of 16 bits on ARM CPUs of 64 bits, as two registers of NEON each: the
 * operations that attend/widen_simd.h is written in, for elements of 8 bits. words_avx2.h has the
 * same in the same order. kernels_neon.c includes it. */
#ifndef TA_HOST_WORDS_NEON_H
#define TA_HOST_WORDS_NEON_H

#include "simd_neon.h"

/* The first 8 and the last 8. */
typedef struct vw {
    uint16x8_t a, b;
} vw;

#define VW_EACH(expression_a, expression_b)                                                        \
    (vw)                                                                                           \
    {                                                                                              \
        .a = (expression_a), .b = (expression_b)                                                   \
    }

VF vw vw_set(uint16_t x)
{
    return VW_EACH(vdupq_n_u16(x), vdupq_n_u16(x));
}

/* 16 bytes, or 8 and zeros, each twice in its word. */
VF vw vw_twice(uint8x16_t bytes)
{
    return VW_EACH(vreinterpretq_u16_u8(vzip1q_u8(bytes, bytes)),
                   vreinterpretq_u16_u8(vzip2q_u8(bytes, bytes)));
}

VF vw vw_load_twice(const uint8_t *from)
{
    return vw_twice(vld1q_u8(from));
}

VF vw vw_load_half_twice(const uint8_t *from)
{
    return vw_twice(vcombine_u8(vld1_u8(from), vdup_n_u8(0)));
}

VF void vw_store(uint16_t *to, vw x)
{
    vst1q_u16(to, x.a);
    vst1q_u16(to + 8, x.b);
}

/* The first 8. */
VF void vw_store_half(uint16_t *to, vw x)
{
    vst1q_u16(to, x.a);
}

VF vw vw_and(vw a, vw b)
{
    return VW_EACH(vandq_u16(a.a, b.a), vandq_u16(a.b, b.b));
}

VF vw vw_or(vw a, vw b)
{
    return VW_EACH(vorrq_u16(a.a, b.a), vorrq_u16(a.b, b.b));
}

VF vw vw_add(vw a, vw b)
{
    return VW_EACH(vaddq_u16(a.a, b.a), vaddq_u16(a.b, b.b));
}

/* As signed numbers. */
VF vw vw_shift_right_3(vw x)
{
    return VW_EACH(vreinterpretq_u16_s16(vshrq_n_s16(vreinterpretq_s16_u16(x.a), 3)),
                   vreinterpretq_u16_s16(vshrq_n_s16(vreinterpretq_s16_u16(x.b), 3)));
}

VF vw vw_shift_right_4(vw x)
{
    return VW_EACH(vreinterpretq_u16_s16(vshrq_n_s16(vreinterpretq_s16_u16(x.a), 4)),
                   vreinterpretq_u16_s16(vshrq_n_s16(vreinterpretq_s16_u16(x.b), 4)));
}

/* All bits set where they are equal. */
VF vw vw_equal(vw a, vw b)
{
    return VW_EACH(vceqq_u16(a.a, b.a), vceqq_u16(a.b, b.b));
}

/* `then` where all bits of `mask` are set, `otherwise` where none is. */
VF vw vw_if(vw mask, vw then, vw otherwise)
{
    return VW_EACH(vbslq_u16(mask.a, then.a, otherwise.a), vbslq_u16(mask.b, then.b, otherwise.b));
}

/* Each byte of `index`, up to 15, replaced by that byte of the table. */
VF vw vw_lookup(const uint8_t *table, vw index)
{
    uint8x16_t bytes = vld1q_u8(table);
    return VW_EACH(vreinterpretq_u16_u8(vqtbl1q_u8(bytes, vreinterpretq_u8_u16(index.a))),
                   vreinterpretq_u16_u8(vqtbl1q_u8(bytes, vreinterpretq_u8_u16(index.b))));
}

#endif
