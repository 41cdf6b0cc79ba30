/* A part of vendor.h, which alone includes it: the vendor's BLAS, for model/blas.c. No header of it
 * is needed and nothing is linked: these are the few calls and numbers of its interface, which are
 * the same in all its versions that the files below belong to. The executor has cuBLAS's
 * (tests/simt/blas.cpp). Matrices are by columns, as in every BLAS. */
#ifndef TA_VENDOR_BLAS_H
#define TA_VENDOR_BLAS_H

typedef int (*ta_blas_create_fn)(void **handle);
typedef int (*ta_blas_destroy_fn)(void *handle);
typedef int (*ta_blas_stream_fn)(void *handle, hipStream_t stream);

#if defined(TA_ROCM)
#define TA_BLAS_NAME "rocBLAS"
#define TA_BLAS_FILES "librocblas.so.5", "librocblas.so.4", "librocblas.so.3", "librocblas.so.0"
#define TA_BLAS_CREATE "rocblas_create_handle"
#define TA_BLAS_DESTROY "rocblas_destroy_handle"
#define TA_BLAS_STREAM "rocblas_set_stream"
#define TA_BLAS_GEMM "rocblas_gemm_ex"
enum { TA_BLAS_AS_IT_IS = 111, TA_BLAS_TRANSPOSED = 112 };
enum { TA_BLAS_F16 = 150, TA_BLAS_F32 = 151, TA_BLAS_BF16 = 168 };
/* D = alpha A B + beta C, with another matrix for the result. */
typedef int (*ta_blas_gemm_fn)(void *handle, int turn_a, int turn_b, int m, int n, int k,
                               const void *alpha, const void *a, int a_type, int lda, const void *b,
                               int b_type, int ldb, const void *beta, const void *c, int c_type,
                               int ldc, void *d, int d_type, int ldd, int sum_type, int algorithm,
                               int32_t solution, uint32_t flags);

#else
#if defined(TA_SIMT)
#define TA_BLAS_NAME "the executor's BLAS"
#define TA_BLAS_FILES "libsimt.so"
#else
#define TA_BLAS_NAME "cuBLAS"
#define TA_BLAS_FILES "libcublas.so.13", "libcublas.so.12", "libcublas.so.11"
#endif
#define TA_BLAS_CREATE "cublasCreate_v2"
#define TA_BLAS_DESTROY "cublasDestroy_v2"
#define TA_BLAS_STREAM "cublasSetStream_v2"
#define TA_BLAS_GEMM "cublasGemmEx"
enum { TA_BLAS_AS_IT_IS = 0, TA_BLAS_TRANSPOSED = 1 };
enum { TA_BLAS_F32 = 0, TA_BLAS_F16 = 2, TA_BLAS_BF16 = 14 };
enum { TA_BLAS_SUM_F32 = 68, TA_BLAS_USUAL_ALGORITHM = -1 };
typedef int (*ta_blas_gemm_fn)(void *handle, int turn_a, int turn_b, int m, int n, int k,
                               const void *alpha, const void *a, int a_type, int lda, const void *b,
                               int b_type, int ldb, const void *beta, void *c, int c_type, int ldc,
                               int sum_type, int algorithm);
#endif

/* C[m, n] = Aᵀ B in floats: A [k, m] and B [k, n] of one type. */
static inline int ta_blas_multiply(ta_blas_gemm_fn gemm, void *handle, int m, int n, int k,
                                   const void *a, int lda, const void *b, int ldb, int type,
                                   float *c, int ldc)
{
    const float one = 1.0f, zero = 0.0f;
#if defined(TA_ROCM)
    return gemm(handle, TA_BLAS_TRANSPOSED, TA_BLAS_AS_IT_IS, m, n, k, &one, a, type, lda, b, type,
                ldb, &zero, c, TA_BLAS_F32, ldc, c, TA_BLAS_F32, ldc, TA_BLAS_F32, 0, 0, 0);
#else
    return gemm(handle, TA_BLAS_TRANSPOSED, TA_BLAS_AS_IT_IS, m, n, k, &one, a, type, lda, b, type,
                ldb, &zero, c, TA_BLAS_F32, ldc, TA_BLAS_SUM_F32, TA_BLAS_USUAL_ALGORITHM);
#endif
}

#endif
