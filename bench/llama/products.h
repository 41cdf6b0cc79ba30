/* Matrix products on the host: rows of inputs times weights in the type that they are stored in.
 * host_ops.c computes all linear layers with it. */
#ifndef BENCH_LLAMA_PRODUCTS_H
#define BENCH_LLAMA_PRODUCTS_H

#include "model_weights.h"
#include "team.h"

/* to[row][output] = bias[output] + Σ w[output][i] · from[row][i]; both dense. */
typedef struct product_job {
    llama_matrix w;
    const float *bias; /* [w.rows], or NULL */
    const float *from; /* [rows][w.columns] */
    int64_t rows;
    float *to;                 /* [rows][w.rows] */
    const uint16_t *from_bf16; /* what products_type() says, if it is bf16; NULL: made of `from` */
} product_job;

/* Outputs [first, last) of all rows. */
void product_plain(const product_job *job, int64_t first, int64_t last);
void product_avx2(const product_job *job, int64_t first, int64_t last);
void product_avx512(const product_job *job, int64_t first, int64_t last);

/* Loops of this file's own for all products ("own"), or a BLAS for those of many rows: a library's
 * file name, or NULL for the first one of those that are known. If none of them is there,
 * libblas.so.3, behind which there may be any, is taken if a product by it is faster than by the
 * own loops. A name that cannot be opened, or has no product of floats, is an error: -1 with a
 * sentence. For the whole process, before the first product. */
int products_use(const char *library, char *error, size_t capacity);

/* The type that products of so many rows with such weights have: bf16 with bf16 where the library
 * has it and the CPU too, or floats, which the weights are turned into. */
ta_dtype products_type(ta_dtype weights, int64_t rows);

/* What computes products of many rows: "OpenBLAS" and the like, or the SIMD level. And of one
 * row. */
const char *products_many_name(void);
const char *products_one_name(void);

/* The best of the levels that this CPU has, with NULL; or one by its name, "plain", "avx2" or
 * "avx512", for tests: -1 if the CPU does not have it. */
int products_level(const char *name);

/* TA_ERR_NO_MEMORY, or TA_ERR_UNSUPPORTED for weights that are not f32, f16 or bf16. */
ta_status product_run(const product_job *job, team *workers);

#endif
