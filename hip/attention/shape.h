/* The shape of a block of attention_forward_mma: how many queries and threads, and where everything
 * lies in its shared memory. Pure arithmetic in C; attention.c chooses a shape, the kernel reads
 * it. */
#ifndef TA_HIP_ATTENTION_SHAPE_H
#define TA_HIP_ATTENTION_SHAPE_H

#include "attend/shape.h"
#include "device/attention.h"

/* Keys of a tile: sums over tokens are made in runs of at most 64, see docs/numerics.md. */
#define TA_ATTENTION_KEYS 32

/* Waves of a block at most, of 16 queries each; and its threads at least, which is what a tile on
 * its way to shared memory takes the registers of. */
#define TA_ATTENTION_WAVES 4
#define TA_ATTENTION_THREADS_MIN 128

/* Bytes from row to row of the weights; the 16 more put neighbours into other banks. */
#define TA_ATTENTION_WEIGHT_STRIDE (TA_ATTENTION_KEYS * 2 + 16)

typedef struct ta_attention_mma_shape {
    int32_t rows, threads;
    int32_t tiles;              /* 4, 8 or 16: heads of up to 16 times as many dimensions */
    int32_t k_stride, v_stride; /* bytes from row to row; k_stride of the queries too */
    int32_t q_at, k_at, v_at, weights_at, shared_bytes;
} ta_attention_mma_shape;

/* 0 if the matrix cores can't do it here: the type, or too little shared memory. */
static inline int ta_attention_mma_fit(const ta_gpu_limits *limits, const ta_attention_work *work,
                                       ta_attention_mma_shape *s)
{
    int32_t widest = work->k_dim > work->v_dim ? work->k_dim : work->v_dim;
    if (!limits->matrix || !ta_type_in_matrices(work->dtype))
        return 0;
    memset(s, 0, sizeof *s);
    s->tiles = widest <= 64 ? 4 : widest <= 128 ? 8 : 16;
    s->k_stride = (int32_t)ta_round_up(work->k_dim, TA_MMA_EDGE) * 2 + 16;
    s->v_stride = (int32_t)ta_round_up(work->v_dim, TA_MMA_EDGE) * 2 + 16;
    for (int32_t waves = TA_ATTENTION_WAVES; waves * limits->wave >= TA_ATTENTION_THREADS_MIN;
         waves /= 2) {
        s->rows = waves * TA_MMA_EDGE;
        s->threads = waves * limits->wave;
        s->q_at = 0;
        s->k_at = s->q_at + s->rows * s->k_stride;
        s->v_at = s->k_at + TA_ATTENTION_KEYS * s->k_stride;
        s->weights_at = s->v_at + TA_ATTENTION_KEYS * s->v_stride;
        s->shared_bytes =
            s->weights_at + s->rows * TA_MMA_WEIGHT_PARTS * TA_ATTENTION_WEIGHT_STRIDE;
        if (s->shared_bytes + TA_BLOCK_BYTES <= limits->shared_bytes)
            return 1;
    }
    return 0;
}

#endif
