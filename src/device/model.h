/* The operations of a decoder layer beside attention, on a device: what `treeattn-bench llama`
 * needs of a GPU to run a whole model there. hip/model/ implements the table; the host has none,
 * since the benchmark brings its own (bench/llama/host_ops.c, the truth for these).
 *
 * It is no part of the public interface: a program that is built from this tree gets the table with
 * ta_device_extension(device, TA_MODEL_NAME, TA_MODEL_VERSION, …), and the number grows whenever
 * anything here changes. So this header needs the public one alone.
 *
 * Activations are floats, dense; all memory is the device's. Work is queued on the stream and the
 * functions return at once. A slot that fails says why in ta_last_error(). */
#ifndef TA_DEVICE_MODEL_H
#define TA_DEVICE_MODEL_H

#include <treeattn/treeattn.h>

#define TA_MODEL_NAME "model"
#define TA_MODEL_VERSION 1

/* The operations' state on one device, for one thread at a time. The device outlives it. */
typedef struct ta_model ta_model;

/* Weights [outputs][inputs]: rows of `columns` elements, `stride` elements apart. */
typedef struct ta_model_matrix {
    const void *data;
    ta_dtype dtype; /* f32, f16 or bf16 */
    int64_t rows, columns;
    int64_t stride;
} ta_model_matrix;

typedef struct ta_model_config {
    /* What computes products of many rows: NULL for the vendor's BLAS if it is here, else the
     * kernel of this module; "own" for that kernel; or the file name of another copy of the
     * vendor's library, which must then open. */
    const char *products;
    int64_t most_inputs; /* rows · columns of the largest input of a product */
} ta_model_config;

typedef struct ta_model_ops {
    ta_status (*create)(ta_device *device, const ta_model_config *config, ta_model **model);
    void (*destroy)(ta_model *model); /* NULL is allowed */

    /* "cuBLAS" and the like, or "own kernel": of many rows. One row is always the kernel's. */
    const char *(*products)(const ta_model *model);

    /* to[token] = the row of each word; NaN for a word that the table does not have. */
    ta_status (*embed)(ta_model *model, const ta_model_matrix *table, const int32_t *words,
                       int64_t tokens, float *to, void *stream);

    /* RMSNorm of each row: to = from · weight / sqrt(mean(from²) + epsilon). In place if they are
     * the same. */
    ta_status (*norm)(ta_model *model, const float *from, const float *weight, float epsilon,
                      int64_t rows, int64_t width, float *to, void *stream);

    /* to[row][output] = bias[output] + Σ w[output][i] · from[row][i]; bias may be NULL. The kernel
     * adds in an order that depends on the number of inputs alone. A BLAS is given inputs in the
     * type of the weights, as engines do it. */
    ta_status (*linear)(ta_model *model, const ta_model_matrix *w, const float *bias,
                        const float *from, int64_t rows, float *to, void *stream);

    /* Turn the pairs (i, i + dim / 2) of each head of each token by the angles whose cosines and
     * sines are [token][dim / 2]. */
    ta_status (*rope)(ta_model *model, float *x, int64_t tokens, int64_t heads, int64_t dim,
                      const float *cosines, const float *sines, void *stream);

    /* gate = gate / (1 + exp(−gate)) · up */
    ta_status (*swiglu)(ta_model *model, float *gate, const float *up, int64_t count, void *stream);

    /* to = to + from */
    ta_status (*add)(ta_model *model, float *to, const float *from, int64_t count, void *stream);

    /* Floats to another type, rounded to nearest, ties to even; and back. */
    ta_status (*narrow)(ta_model *model, ta_dtype dtype, const float *from, void *to, int64_t count,
                        void *stream);
    ta_status (*widen)(ta_model *model, ta_dtype dtype, const void *from, float *to, int64_t count,
                       void *stream);

    /* Each head of each row `times` times, one after the other: to[row][head · times + i] =
     * from[row][head], of `dim` elements of `element_bytes` bytes, 2 or 4. */
    ta_status (*repeat)(ta_model *model, int element_bytes, const void *from, int64_t rows,
                        int64_t heads, int64_t times, int64_t dim, void *to, void *stream);

    /* *best = the first of the largest numbers, which NaN never is; -1 if there is none. */
    ta_status (*argmax)(ta_model *model, const float *from, int64_t count, int32_t *best,
                        void *stream);
} ta_model_ops;

#endif
