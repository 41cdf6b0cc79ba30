/* A matrix product as the SIMT executor offers it, with the names, numbers and meaning of cuBLAS's
 * calls, so that what hip/model/ asks a BLAS for is checked on a CPU. For C and C++. Implemented in
 * blas.cpp. Columns come one after the other, as in every BLAS. */
#ifndef SIMT_BLAS_H
#define SIMT_BLAS_H

#include "simt_runtime.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct simt_blas *cublasHandle_t;

/* Statuses: 0 success, 1 no handle, 7 an argument is not valid, 15 not supported. */
int cublasCreate_v2(cublasHandle_t *handle);
int cublasDestroy_v2(cublasHandle_t handle);
int cublasSetStream_v2(cublasHandle_t handle, hipStream_t stream);

/* C = alpha op(A) op(B) + beta C, where op(A) is m × k, op(B) k × n and C m × n; op is nothing (0)
 * or to transpose (1). Types: 0 float, 2 half, 14 bfloat; sums are floats (68). */
int cublasGemmEx(cublasHandle_t handle, int turn_a, int turn_b, int m, int n, int k,
                 const void *alpha, const void *a, int a_type, int lda, const void *b, int b_type,
                 int ldb, const void *beta, void *c, int c_type, int ldc, int sum_type,
                 int algorithm);

#ifdef __cplusplus
}
#endif

#endif
