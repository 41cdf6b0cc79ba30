/* The shape of a block of attention_forward_mma: how many queries, keys at a time and threads, and
 * where everything lies in its shared memory. Plain arithmetic in C; attention.c asks whether a
 * block fits, the kernel is made of the same numbers. */
#ifndef TA_HIP_ATTENTION_SHAPE_H
#define TA_HIP_ATTENTION_SHAPE_H

#include "attend/shape.h"
#include "device/attention.h"

/* Keys of a tile of attention_forward. Sums over tokens are made in runs of at most 64, see
 * docs/numerics.md. */
#define TA_ATTENTION_KEYS 32

/* Of attention_forward_mma, for heads of up to `dim` dimensions, 64, 128 or 256: waves of a block,
 * queries of a block, and keys of a tile. The widest heads leave registers for fewer. */
#define TA_FORWARD_WAVES 4
#define TA_FORWARD_ROWS (TA_FORWARD_WAVES * TA_MMA_EDGE)
#define TA_FORWARD_KEYS(dim) ((dim) == 256 ? 32 : 64)

/* Are the queries kept in registers? A wave of 32 has too few for more than 64 dimensions. */
#define TA_FORWARD_KEEPS_QUERIES(dim, wave) ((dim) == 64 || (wave) != 32)

/* Bytes of shared memory: a stage of K, one of V, and the queries, which only pass through the
 * place of K and V if they are kept in registers. */
#define TA_FORWARD_STAGE_BYTES(dim) (TA_FORWARD_KEYS(dim) * (dim)*2)
#define TA_FORWARD_QUERIES_AT(dim, wave)                                                           \
    (TA_FORWARD_KEEPS_QUERIES(dim, wave) ? 0 : 2 * TA_FORWARD_STAGE_BYTES(dim))
#define TA_FORWARD_BYTES(dim, wave)                                                                \
    (2 * TA_FORWARD_STAGE_BYTES(dim) +                                                             \
     (TA_FORWARD_KEEPS_QUERIES(dim, wave) ? 0 : TA_FORWARD_ROWS * (dim)*2))

/* Are rows found by 32-bit strides in bytes? */
static inline int ta_forward_near(const ta_tensor *t)
{
    return t->token_stride >= 0 && t->token_stride < 1 << 30;
}

/* The dimensions of the kernel for this work; 0 if the matrix cores can't do it here: the type,
 * rows that are too far from each other, or too little shared memory. */
static inline int32_t ta_forward_mma_dim(const ta_gpu_limits *limits, const ta_attention_work *work)
{
    int32_t widest = work->k_dim > work->v_dim ? work->k_dim : work->v_dim;
    int32_t dim = widest <= 64 ? 64 : widest <= 128 ? 128 : 256;
    if (!limits->matrix || !ta_type_in_matrices(work->dtype) || !ta_forward_near(&work->q) ||
        !ta_forward_near(&work->k) || !ta_forward_near(&work->v))
        return 0;
    return TA_FORWARD_BYTES(dim, limits->wave) + TA_BLOCK_BYTES <= limits->shared_bytes ? dim : 0;
}

#endif
