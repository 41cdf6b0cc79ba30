/* The operations of a decoder layer beside attention, as a table of functions, so that a device
 * other than the host can have its own: all memory in it is the device's, activations are floats,
 * dense. host_ops.c is the host's. */
#ifndef BENCH_LLAMA_OPS_H
#define BENCH_LLAMA_OPS_H

#include "model_weights.h"

typedef struct llama_ops llama_ops;

typedef struct llama_ops_table {
    /* to[token] = the row of each word. */
    void (*embed)(llama_ops *ops, const llama_matrix *table, const int32_t *words, int64_t tokens,
                  float *to);
    /* RMSNorm of each row: to = from · weight / sqrt(mean(from²) + epsilon). In place if they are
     * the same. */
    void (*norm)(llama_ops *ops, const float *from, const float *weight, float epsilon,
                 int64_t rows, int64_t width, float *to);
    /* As product_job. Returns -1 without memory. */
    int (*linear)(llama_ops *ops, const llama_matrix *w, const float *bias, const float *from,
                  int64_t rows, float *to);
    /* Turn the pairs (i, i + dim / 2) of each head of each token by its position's angles, from
     * llama_rope_angles(): cosines and sines [token][dim / 2]. */
    void (*rope)(llama_ops *ops, float *x, int64_t tokens, int64_t heads, int64_t dim,
                 const float *cosines, const float *sines);
    /* gate = gate / (1 + exp(−gate)) · up */
    void (*swiglu)(llama_ops *ops, float *gate, const float *up, int64_t count);
    /* to = to + from */
    void (*add)(llama_ops *ops, float *to, const float *from, int64_t count);
    /* Floats to another type, rounded to nearest, ties to even; and back. */
    void (*narrow)(llama_ops *ops, ta_dtype dtype, const float *from, void *to, int64_t count);
    void (*widen)(llama_ops *ops, ta_dtype dtype, const void *from, float *to, int64_t count);
    void (*destroy)(llama_ops *ops);
} llama_ops_table;

struct llama_ops {
    const llama_ops_table *table;
};

/* Those of the host, with so many threads. NULL if they cannot be made. */
llama_ops *llama_ops_host(int threads);

/* The angles of positions, as cosines and sines in host memory. */
void llama_rope_angles(const llama_rope *rope, int32_t head_dim, const int32_t *positions,
                       int64_t tokens, float *cosines, float *sines);

#endif
