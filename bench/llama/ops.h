/* The operations of a decoder layer beside attention, as a table of functions, so that a device
 * other than the host can have its own: all memory in it is the device's, activations are floats,
 * dense. host_ops.c is the host's, gpu_ops.c that of devices which bring operations with them. */
#ifndef BENCH_LLAMA_OPS_H
#define BENCH_LLAMA_OPS_H

#include "model_weights.h"

typedef struct llama_ops llama_ops;

typedef struct llama_ops_table {
    /* to[token] = the row of each word. */
    ta_status (*embed)(llama_ops *ops, const llama_matrix *table, const int32_t *words,
                       int64_t tokens, float *to);
    /* RMSNorm of each row: to = from · weight / sqrt(mean(from²) + epsilon). In place if they are
     * the same. */
    ta_status (*norm)(llama_ops *ops, const float *from, const float *weight, float epsilon,
                      int64_t rows, int64_t width, float *to);
    /* As product_job. */
    ta_status (*linear)(llama_ops *ops, const llama_matrix *w, const float *bias, const float *from,
                        int64_t rows, float *to);
    /* Turn the pairs (i, i + dim / 2) of each head of each token by its position's angles, from
     * llama_rope_angles(): cosines and sines [token][dim / 2]. */
    ta_status (*rope)(llama_ops *ops, float *x, int64_t tokens, int64_t heads, int64_t dim,
                      const float *cosines, const float *sines);
    /* gate = gate / (1 + exp(−gate)) · up */
    ta_status (*swiglu)(llama_ops *ops, float *gate, const float *up, int64_t count);
    /* to = to + from */
    ta_status (*add)(llama_ops *ops, float *to, const float *from, int64_t count);
    /* Floats to another type, rounded to nearest, ties to even; and back. */
    ta_status (*narrow)(llama_ops *ops, ta_dtype dtype, const float *from, void *to, int64_t count);
    ta_status (*widen)(llama_ops *ops, ta_dtype dtype, const void *from, float *to, int64_t count);
    /* Each head of each row `times` times: to[row][head · times + i] = from[row][head], of `dim`
     * elements of this type. */
    ta_status (*repeat)(llama_ops *ops, ta_dtype dtype, const void *from, int64_t rows,
                        int64_t heads, int64_t times, int64_t dim, void *to);
    /* *best, in device memory, = the first of the largest numbers, which NaN never is; -1 if there
     * is none. */
    ta_status (*argmax)(llama_ops *ops, const float *from, int64_t count, int32_t *best);
    /* What computes products of one row, and of many. */
    const char *(*products)(const llama_ops *ops, int many);
    void (*destroy)(llama_ops *ops);
} llama_ops_table;

struct llama_ops {
    const llama_ops_table *table;
};

/* Those of the host, with so many threads. NULL if they cannot be made. */
llama_ops *llama_ops_host(int threads);

/* Those that a device brings: `products` as in --matmul, and the largest rows · columns of a
 * product's input. TA_ERR_UNSUPPORTED if it brings none. */
ta_status llama_ops_gpu(ta_device *device, const char *products, int64_t most_inputs,
                        llama_ops **ops);

/* The angles of positions, as cosines and sines in host memory. */
void llama_rope_angles(const llama_rope *rope, int32_t head_dim, const int32_t *positions,
                       int64_t tokens, float *cosines, float *sines);

#endif
