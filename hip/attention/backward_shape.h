/* The shapes of blocks of the backward kernels: how many rows they own and meet, how many threads
 * they have, and where everything lies in their shared memory. backward.hip and backward_mma.hip
 * choose with this on the host; the kernels read what was chosen (backward.h). */
#ifndef TA_HIP_ATTENTION_BACKWARD_SHAPE_H
#define TA_HIP_ATTENTION_BACKWARD_SHAPE_H

#include "backward.h"

/* attention_backward_fma: rows and columns of the sums that a thread has. */
static const int sum_rows = 8;
static const int sum_columns = 4;

static inline int32_t ta_backward_cut(ta_backward_shape &s, int64_t bytes)
{
    int32_t at = s.shared_bytes;
    s.shared_bytes += static_cast<int32_t>(bytes);
    return at;
}

/* The sizes of a block; s.own is 0 if its sums need too many threads. */
static inline ta_backward_shape ta_lay_out_fma(const ta_attention_work &w, bool keys, int32_t own,
                                               int32_t others)
{
    ta_backward_shape s = {};
    int32_t threads = own / sum_rows * ((w.k_dim + (keys ? w.v_dim : 0)) / sum_columns);
    if (threads > TA_BACKWARD_THREADS)
        return s;
    s.threads = threads > TA_BACKWARD_THREADS / 2 ? TA_BACKWARD_THREADS : TA_BACKWARD_THREADS / 2;
    s.own = own;
    s.others = others;
    s.blocks = ta_backward_blocks(w, keys, own);
    s.k_stride = w.k_dim * 4 + 16; /* neighbours lie in other banks */
    s.v_stride = w.v_dim * 4 + 16;
    ta_backward_cut(s, sizeof(ta_backward_tables));
    s.own_k_at = ta_backward_cut(s, static_cast<int64_t>(own) * s.k_stride);
    s.own_v_at = ta_backward_cut(s, static_cast<int64_t>(own) * s.v_stride);
    s.other_k_at = ta_backward_cut(s, static_cast<int64_t>(others) * s.k_stride);
    s.other_v_at = ta_backward_cut(s, static_cast<int64_t>(others) * s.v_stride);
    s.weights_at = ta_backward_cut(s, static_cast<int64_t>(own) * others * 4 * (keys ? 2 : 1));
    return s;
}

/* The most rows whose sums fit the registers, and whose tiles fit shared memory: of the largest
 * heads 8 do with 64 KB. */
static inline ta_backward_shape ta_backward_fma_shape(const ta_gpu_limits *limits,
                                                      const ta_attention_work &w, bool keys)
{
    ta_backward_shape s = {};
    for (int32_t own = TA_BACKWARD_OWN; own >= sum_rows; own /= 2)
        for (int32_t others = TA_BACKWARD_OTHERS; others >= TA_BACKWARD_OTHERS / 2; others /= 2) {
            s = ta_lay_out_fma(w, keys, own, others);
            if (s.own > 0 && s.shared_bytes <= limits->shared_bytes)
                return s;
        }
    s.blocks = 0;
    return s;
}

/* Of attention_backward_mma, for heads of up to `dim` dimensions, 64, 128 or 256: rows of its own,
 * others at a time, and waves. Each wave has 16 rows of its own, and makes one gradient of them: of
 * keys, two waves share the rows, one makes dV and one dK. */
#define TA_BACKWARD_MMA_OWN(dim) ((dim) == 256 ? 32 : 64)
#define TA_BACKWARD_MMA_OTHERS(dim) ((dim) == 256 ? 16 : 32)
#define TA_BACKWARD_MMA_WAVES(dim, keys) (TA_BACKWARD_MMA_OWN(dim) / TA_MMA_EDGE * ((keys) ? 2 : 1))

/* Places for tiles of others. Waves of 32 bring the next while they have one; those of 64 have the
 * next in registers, and half as much shared memory. */
#define TA_BACKWARD_MMA_STAGES(wave) ((wave) == 32 ? 2 : 1)

/* One row of a tile, in shared memory, is what backward.h says; tiles of others come in turns of 3:
 * one is used, one is brought, and of one the lines are made. */
struct alignas(128) ta_backward_mma_tables {
    ta_line own[TA_BACKWARD_OWN];
    struct {
        ta_line lines[TA_BACKWARD_OTHERS];
        int32_t partly;     /* 1: some pair of a row of the block and one of these is not seen */
        int32_t not_finite; /* 1: one of their elements is, if it is partly seen */
    } others[3];
};

/* Bytes of own rows, and of a tile of others: what has k_dim, then what has v_dim. */
#define TA_BACKWARD_MMA_OWN_BYTES(dim) (TA_BACKWARD_MMA_OWN(dim) * (dim)*4)
#define TA_BACKWARD_MMA_STAGE_BYTES(dim) (TA_BACKWARD_MMA_OTHERS(dim) * (dim)*4)

static inline int32_t ta_backward_mma_dim(const ta_attention_work &w)
{
    int32_t widest = w.k_dim > w.v_dim ? w.k_dim : w.v_dim;
    return widest <= 64 ? 64 : widest <= 128 ? 128 : 256;
}

/* s.blocks is 0 if the matrix cores can't do it here: too little shared memory. */
static inline ta_backward_shape ta_backward_mma_shape(const ta_gpu_limits *limits,
                                                      const ta_attention_work &w, bool keys)
{
    ta_backward_shape s = {};
    int32_t dim = ta_backward_mma_dim(w);
    s.threads = TA_BACKWARD_MMA_WAVES(dim, keys) * limits->wave;
    s.own = TA_BACKWARD_MMA_OWN(dim);
    s.others = TA_BACKWARD_MMA_OTHERS(dim);
    s.own_k_at = sizeof(ta_backward_mma_tables);
    s.other_k_at = s.own_k_at + TA_BACKWARD_MMA_OWN_BYTES(dim);
    s.shared_bytes =
        s.other_k_at + TA_BACKWARD_MMA_STAGES(limits->wave) * TA_BACKWARD_MMA_STAGE_BYTES(dim);
    if (s.shared_bytes <= limits->shared_bytes)
        s.blocks = ta_backward_blocks(w, keys, s.own);
    return s;
}

#endif
