/* The kernels for x86 CPUs that also multiply bf16 (AVX512_BF16): those of AVX-512, and scores of
 * queries and keys that are both in bf16. One instruction takes 16 elements of each, multiplies
 * them exactly and adds the products to 8 sums, two to each: as much as two instructions do with
 * floats, and nothing is widened.
 *
 * It takes elements and sums below 2^-126 for 0: see can_pack() in item.c, and for attention over
 * full sequences ta_bf16_packs() in job.h. */
#include "simd_avx2.h"

#define SIMD_DOTS
#define PACK_SLOT(suffix, number, ...) [number] = pack_narrow,
#define SIMD_PACK [TA_BF16] = pack, TA_DTYPE_NARROW_LIST(PACK_SLOT, )
#define SIMD_SCORE_PACKED                                                                          \
    [TA_BF16] = score_packed, TA_DTYPE_NARROW_LIST(TA_DTYPE_SLOT, score_packed_)

/* 16 elements of bf16. */
typedef __m256bh vd;

/* `count` elements, 16 or 8 and zeros. */
VF vd vd_load(const void *data, int32_t index, int count)
{
    const void *from = (const uint16_t *)data + index;
    __m256i elements =
        count == 16 ? _mm256_loadu_si256(from) : _mm256_zextsi128_si256(_mm_loadu_si128(from));
    return (vd)elements;
}

VF vf vf_add_dots(vf sums, vd a, vd b)
{
    return _mm256_dpbf16_ps(sums, a, b);
}

#include "host/attend/attend_wide.h"

static void pack(float *q, int32_t k_dim)
{
    uint16_t *to = (uint16_t *)q;
    for (int32_t i = 0; i < k_dim; i++) {
        uint32_t bits;
        memcpy(&bits, q + i, sizeof bits);
        memcpy(to + i, (const char *)&bits + 2, sizeof *to);
    }
}

static void pack_narrow(float *q, int32_t k_dim)
{
    for (int32_t i = 0; i < k_dim; i += NARROW)
        narrow_order(q + i, k_dim - i < NARROW ? k_dim - i : NARROW);
    pack(q, k_dim);
}

static void multiply_scores(const ta_block *block)
{
    vf factor = vf_set(block->factor);
    for (int h = 0; h < block->heads; h++) {
        float *scores = block->scores + h * TA_BLOCK_SCORES;
        for (int i = 0; i < block->tokens.n * block->rows; i += LANES)
            vf_store(scores + i, vf_mul(vf_load(scores + i), factor));
    }
}

static void score_packed(const ta_block *block, const float *q)
{
    SIMD_SCORE(PACKED, block, q);
    multiply_scores(block);
}

#define FOR_NARROW_PACKED(suffix, dtype, ...)                                                      \
    VBMI static void score_packed_##suffix(const ta_block *block, const float *q)                  \
    {                                                                                              \
        narrow_score(dtype, 1, block, q);                                                          \
        multiply_scores(block);                                                                    \
    }
TA_DTYPE_NARROW_LIST(FOR_NARROW_PACKED, )

TA_DTYPE_WIDE_LIST(FOR_DTYPE, )
TA_DTYPE_NARROW_LIST(FOR_NARROW, )

const ta_host_kernels ta_kernels_avx512bf16 = TA_SIMD_TABLE("avx512bf16");
