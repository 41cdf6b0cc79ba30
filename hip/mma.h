/* Products of 16 × 16 tiles by the matrix cores: C += A · B, one wave together. Operands are 16-bit
 * elements in shared memory, the product is fp32. Which lane has which element differs between
 * vendors; a kernel asks ta_product_row() and ta_product_column(). Kernels named _mma use it.
 *
 *     waves of 32   NVIDIA: two mma.sync m16n8k16, operands by ldmatrix
 *     waves of 64   AMD CDNA: one MFMA 16x16x16
 *     both          the SIMT executor (mma_simt.h): the same layouts, multiplied by exchange
 *                   between the lanes
 *
 * Where a wave of 32 has its operands in registers already, ta_mma_columns8() multiplies 8 columns
 * of B at a time.
 *
 * This file, with its part mma_simt.h, and vendor.h are the only ones that know the vendor. */
#ifndef TA_HIP_MMA_H
#define TA_HIP_MMA_H

#include "number.h"

/* A lane's part of A or B: 256 / Wave elements. */
template <int Wave> struct ta_operand {
    uint32_t word[128 / Wave];
};

/* A lane's part of C. */
template <int Wave> struct ta_product {
    float x[256 / Wave];
};

template <int Wave> TA_DEVICE void ta_product_clear(ta_product<Wave> &c)
{
#pragma unroll
    for (int i = 0; i < 256 / Wave; i++)
        c.x[i] = 0.0f;
}

/* The place of element i of this lane's part of C. */
template <int Wave> TA_DEVICE int32_t ta_product_row(int i)
{
    if (Wave == 32)
        return ta_lane() / 4 + i / 2 % 2 * 8;
    return ta_lane() / 16 * 4 + i;
}

template <int Wave> TA_DEVICE int32_t ta_product_column(int i)
{
    if (Wave == 32)
        return ta_lane() % 4 * 2 + i % 2 + i / 4 * 8;
    return ta_lane() % 16;
}

/* Are f16 elements converted to fp32 one by one before they are multiplied? See ta_mma_cdna(). */
#if defined(__gfx90a__)
#define TA_MMA_CONVERTS_F16 1
#else
#define TA_MMA_CONVERTS_F16 0
#endif

/* ---- Which widths have matrix cores, and which device code ---------------------------------- */

/* An architecture that has waves of the right width but not the instruction would multiply nothing
 * and say nothing (archs.h). */
#if defined(TA_CUDA) && defined(__CUDA_ARCH__)
#if __CUDA_ARCH__ < 800
#error "the kernels are written for sm_80 and later"
#endif
#elif defined(TA_ROCM) && defined(TA_DEVICE_PASS)
#if defined(__gfx90a__) || defined(__gfx940__) || defined(__gfx941__) || defined(__gfx942__) ||    \
    defined(__gfx950__)
#define TA_MFMA 1
#elif !defined(__GFX11__) && !defined(__GFX12__)
#error "the kernels are written for gfx90a, gfx940, gfx941, gfx942, gfx950, RDNA 3 and 4"
#endif
#endif

#if defined(TA_CUDA)
TA_INLINE constexpr bool ta_mma_has(int wave)
{
    return wave == 32;
}
#elif defined(TA_ROCM)
TA_INLINE constexpr bool ta_mma_has(int wave)
{
    return wave == 64;
}
#else
TA_INLINE constexpr bool ta_mma_has(int wave)
{
    return wave == 32 || wave == 64;
}
#endif

#if defined(TA_CUDA)

/* ---- NVIDIA --------------------------------------------------------------------------------- */

/* Four 8 × 8 matrices; each lane gives the address of one of their 32 rows. */
#define TA_LDMATRIX(form)                                                                          \
    ta_operand<32> m;                                                                              \
    uint32_t address = static_cast<uint32_t>(__cvta_generic_to_shared(row));                       \
    asm volatile("ldmatrix.sync.aligned.m8n8.x4" form ".shared.b16 {%0, %1, %2, %3}, [%4];"        \
                 : "=r"(m.word[0]), "=r"(m.word[1]), "=r"(m.word[2]), "=r"(m.word[3])              \
                 : "r"(address));                                                                  \
    return m

TA_DEVICE ta_operand<32> ta_load_matrices(const char *row)
{
    TA_LDMATRIX("");
}

TA_DEVICE ta_operand<32> ta_load_matrices_transposed(const char *row)
{
    TA_LDMATRIX(".trans");
}

template <int Wave> TA_DEVICE ta_operand<Wave> ta_load_a(const char *tile, int32_t stride)
{
    int32_t lane = ta_lane();
    return ta_load_matrices(tile + (lane % 16) * stride + lane / 16 * 16);
}

template <int Wave> TA_DEVICE ta_operand<Wave> ta_load_b_rows(const char *tile, int32_t stride)
{
    int32_t lane = ta_lane();
    return ta_load_matrices(tile + (lane % 8 + lane / 16 * 8) * stride + lane / 8 % 2 * 16);
}

template <int Wave> TA_DEVICE ta_operand<Wave> ta_load_b(const char *tile, int32_t stride)
{
    int32_t lane = ta_lane();
    return ta_load_matrices_transposed(tile + (lane % 16) * stride + lane / 16 * 16);
}

/* Not volatile: products that nobody reads may go, and the compiler may mix them with other
 * work. */
#define TA_MMA_SYNC(type)                                                                          \
    asm("mma.sync.aligned.m16n8k16.row.col.f32." type "." type ".f32 "                             \
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"                          \
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])                                           \
        : "r"(a.word[0]), "r"(a.word[1]), "r"(a.word[2]), "r"(a.word[3]), "r"(b[0]), "r"(b[1]))

TA_DEVICE void ta_mma_half(ta_type_f16, float *c, const ta_operand<32> &a, const uint32_t *b)
{
    TA_MMA_SYNC("f16");
}

TA_DEVICE void ta_mma_half(ta_type_bf16, float *c, const ta_operand<32> &a, const uint32_t *b)
{
    TA_MMA_SYNC("bf16");
}

template <class Type, int Wave>
TA_DEVICE void ta_mma(ta_product<Wave> &c, const ta_operand<Wave> &a, const ta_operand<Wave> &b)
{
    ta_mma_half(Type(), c.x, a, b.word);
    ta_mma_half(Type(), c.x + 4, a, b.word + 2);
}

/* Half of a product: 8 columns of B. */
template <class Type>
TA_DEVICE void ta_mma_columns8(float (&c)[4], const ta_operand<32> &a, const uint32_t (&b)[2])
{
    ta_mma_half(Type(), c, a, b);
}

#elif defined(TA_ROCM)

/* ---- AMD CDNA ------------------------------------------------------------------------------- */

struct alignas(8) ta_words2 {
    uint32_t word[2];
};

/* Lane 16·q + i has elements 4·q … 4·q + 3 of row i: of A, and of B with its columns as rows. */
template <int Wave> TA_DEVICE ta_operand<Wave> ta_load_a(const char *tile, int32_t stride)
{
    int32_t lane = ta_lane();
    const char *from = tile + lane % 16 * stride + lane / 16 * 8;
    ta_words2 words = *reinterpret_cast<const ta_words2 *>(from);
    return ta_operand<Wave>{{words.word[0], words.word[1]}};
}

template <int Wave> TA_DEVICE ta_operand<Wave> ta_load_b_rows(const char *tile, int32_t stride)
{
    return ta_load_a<Wave>(tile, stride);
}

template <int Wave> TA_DEVICE ta_operand<Wave> ta_load_b(const char *tile, int32_t stride)
{
    int32_t lane = ta_lane();
    const char *from = tile + lane / 16 * 4 * stride + lane % 16 * 2;
    uint32_t x[4];
#pragma unroll
    for (int i = 0; i < 4; i++)
        x[i] = *reinterpret_cast<const uint16_t *>(from + i * stride);
    return ta_operand<Wave>{{x[0] | x[1] << 16, x[2] | x[3] << 16}};
}

typedef float ta_float4 __attribute__((ext_vector_type(4)));
typedef _Float16 ta_half4 __attribute__((ext_vector_type(4)));
typedef short ta_short4 __attribute__((ext_vector_type(4)));

TA_DEVICE ta_float4 ta_mma_cdna(ta_type_f16, ta_float4 c, ta_operand<64> a, ta_operand<64> b)
{
#if defined(__gfx90a__)
    /* Its f16 form takes subnormal elements for 0, which are all elements below 6.1e-5. The fp32
     * form takes a quarter of the elements at a time. */
    ta_half4 x = __builtin_bit_cast(ta_half4, a), y = __builtin_bit_cast(ta_half4, b);
    for (int i = 0; i < 4; i++)
        c = __builtin_amdgcn_mfma_f32_16x16x4f32(static_cast<float>(x[i]), static_cast<float>(y[i]),
                                                 c, 0, 0, 0);
#elif defined(TA_MFMA)
    c = __builtin_amdgcn_mfma_f32_16x16x16f16(__builtin_bit_cast(ta_half4, a),
                                              __builtin_bit_cast(ta_half4, b), c, 0, 0, 0);
#else /* never runs: attend/attend.c asks ta_mma_runs() */
    (void)a, (void)b;
#endif
    return c;
}

TA_DEVICE ta_float4 ta_mma_cdna(ta_type_bf16, ta_float4 c, ta_operand<64> a, ta_operand<64> b)
{
#if defined(TA_MFMA)
    c = __builtin_amdgcn_mfma_f32_16x16x16bf16_1k(__builtin_bit_cast(ta_short4, a),
                                                  __builtin_bit_cast(ta_short4, b), c, 0, 0, 0);
#else
    (void)a, (void)b;
#endif
    return c;
}

template <class Type, int Wave>
TA_DEVICE void ta_mma(ta_product<Wave> &c, const ta_operand<Wave> &a, const ta_operand<Wave> &b)
{
    ta_float4 x = {c.x[0], c.x[1], c.x[2], c.x[3]};
    x = ta_mma_cdna(Type(), x, a, b);
    for (int i = 0; i < 4; i++)
        c.x[i] = x[i];
}

/* NVIDIA's alone: kernels for waves of 32 that use these are not run here. */
TA_DEVICE ta_operand<32> ta_load_matrices(const char *)
{
    return ta_operand<32>{};
}

TA_DEVICE ta_operand<32> ta_load_matrices_transposed(const char *)
{
    return ta_operand<32>{};
}

template <class Type>
TA_DEVICE void ta_mma_columns8(float (&)[4], const ta_operand<32> &, const uint32_t (&)[2])
{
}

#else

#include "mma_simt.h"

#endif

#endif
