/* Attention over full sequences on the GPU, between attention.c and the kernels: what each kernel
 * is given, as plain C structs, and the functions that launch them. All pointers are to device
 * memory. forward.hip, backward.hip and rows.hip implement the launchers at their ends.
 *
 * What holds for all of them:
 *   - Queries [0, queries) and keys [0, keys) are in an order in which both ends of visible[]
 *     ascend from query to query; query i is row query_rows[i] of q, dout, dq, lse, delta and
 *     records, key j is row key_rows[j] of k, v, dk and dv. A range may be empty, then first = end.
 *   - Head dimensions are multiples of 8 up to TA_ATTENTION_MAX_DIM, of K and V each its own; query
 *     head h reads KV head h / (query_heads / kv_heads).
 *   - A key that a query does not see has no part in its results even if it is NaN or infinite,
 *     and no query has one in the gradients of a key that it does not see.
 *   - There are at least one query and one key; attention.c does the rest. */
#ifndef TA_HIP_ATTENTION_H
#define TA_HIP_ATTENTION_H

#include "device/attention.h"
#include "kernels.h"
#include "shape.h"

#ifdef __cplusplus
extern "C" {
#endif

/* One attention. A score in base 2 is rule.factor · dot, or with a cap rule.cap · tanh(rule.factor
 * · dot); rule.alibi is 0. work.scale and work.softcap are those it was made from. */
typedef struct ta_attention_params {
    ta_attention_work work;
    ta_score_rule rule;
    int32_t aligned; /* 1: q, k, v, and dout, and their strides are multiples of 16 bytes */
} ta_attention_params;

/* Record row · query_heads + head of each query: o, m, l (partial.h); o is not divided by l,
 * m is in base 2. Rows of no query are left alone. */
ta_launched ta_launch_attention_forward(const ta_attention_params *params, float *records,
                                        void *stream);

/* The same by the matrix cores, for heads of up to `dim` dimensions: ta_forward_mma_dim(). */
ta_launched ta_launch_attention_forward_mma(const ta_attention_params *params, int wave,
                                            int32_t dim, float *records, void *stream);

/* Let the kernels use so much shared memory; once for each device, as ta_prepare_attend_mma(). */
ta_launched ta_prepare_attention_forward_mma(int wave, int shared_bytes);

/* dQ, dK and dV. p = exp2(score − lse · log2 e), ds = p · (dp − delta), times 1 − (score / cap)²
 * with a cap; dQ = scale · ds · K, dK = scale · dsᵀ · Q, dV = pᵀ · dout. Sums are f32 and are
 * rounded once, to dq_dtype or kv_dtype. lse is −inf for a query that sees no key at all. */
typedef struct ta_attention_backward_params {
    ta_attention_params common;
    ta_attention_work_gradient gradient;
    void *workspace; /* of ta_gpu_backward_bytes(), 64-byte aligned */
} ta_attention_backward_params;

/* Bytes of workspace for at most so many queries and keys; shape->q, k, v and the arrays are not
 * looked at. */
size_t ta_gpu_backward_bytes(const ta_gpu_limits *limits, const ta_attention_work *shape);

/* The gradients are made by so many kernels, one after the other on the stream: number `step`. */
int ta_attention_backward_steps(const ta_gpu_limits *limits,
                                const ta_attention_backward_params *params);
ta_launched ta_launch_attention_backward(const ta_gpu_limits *limits,
                                         const ta_attention_backward_params *params, int step,
                                         void *stream);
ta_launched ta_prepare_attention_backward(int wave, int shared_bytes);

/* Passes over rows, for the other slots of ta_attention_ops: each has what its slot in
 * device/attention.h has. */
typedef struct ta_attention_rows_params {
    int32_t rows, heads, dim;
    ta_dtype dtype;        /* of the tensors */
    int32_t element_bytes; /* of it */
    const float *from;     /* finish: records; store: dense numbers, or NULL: zeros */
    ta_tensor a, b;        /* finish, store, pack: a is the tensor; delta: dout and out */
    float *numbers;        /* finish: lse, or NULL; delta: delta */
    int32_t aligned;       /* pack: all rows of both are multiples of 16 bytes */
    int64_t packed_stride; /* bytes from row to row there */
    void *packed;          /* pack: where the dense copy of `a` goes */
} ta_attention_rows_params;

ta_launched ta_launch_attention_finish(const ta_attention_rows_params *params, void *stream);
ta_launched ta_launch_attention_delta(const ta_attention_rows_params *params, void *stream);
ta_launched ta_launch_attention_store(const ta_attention_rows_params *params, void *stream);
ta_launched ta_launch_attention_pack(const ta_attention_rows_params *params, void *stream);
ta_launched ta_launch_attention_add(float *into, const float *from, int64_t count, void *stream);

#ifdef __cplusplus
}
#endif

#endif
