/* A BLAS of the host, opened at run time: its product of floats, by the interface of C or of
 * Fortran, with integers of 32 or 64 bits; or oneDNN, which has one of bf16 too. products.c has one
 * for the process. */
#ifndef BENCH_LLAMA_BLAS_LIBRARY_H
#define BENCH_LLAMA_BLAS_LIBRARY_H

#include <stddef.h>
#include <stdint.h>

/* How its product is called: cblas_sgemm(), the same with integers of 64 bits, sgemm_(), or
 * dnnl_sgemm(). */
typedef enum blas_call { BLAS_NONE, BLAS_C, BLAS_C_64, BLAS_FORTRAN, BLAS_ONEDNN } blas_call;

typedef struct blas_library {
    const char *name; /* for people */
    blas_call call;
    void (*address)(void);
    void (*bf16)(void); /* its product of bf16; NULL: none, or this CPU has no such products */
    void (*set_threads)(int); /* for the calling thread, before each product; NULL: not needed */
} blas_library;

/* A file, which stays open until the program ends, and computes with one thread from now on: its
 * callers have the threads. -1 with a sentence. `file` outlives the library. */
int blas_open(const char *file, blas_library *library, char *error, size_t capacity);

/* The first of those whose products are fast that is here; -1: none is. */
int blas_open_known(blas_library *library);

/* to[row][output] = Σ w[output][i] · from[row][i], i < columns: `from` is dense, rows of `w` and of
 * `to` are so many elements apart. -1: the library could not, for want of memory. */
int blas_multiply(const blas_library *library, int64_t rows, int64_t outputs, int64_t columns,
                  const float *from, const float *w, int64_t w_stride, float *to,
                  int64_t to_stride);
/* The same of bf16, added up as floats, if library->bf16 is not NULL. */
int blas_multiply_bf16(const blas_library *library, int64_t rows, int64_t outputs, int64_t columns,
                       const uint16_t *from, const uint16_t *w, int64_t w_stride, float *to,
                       int64_t to_stride);

#endif
