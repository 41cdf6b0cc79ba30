/* A library that has the products of oneDNN, in plain loops: test_llama_ops.c opens it. */
#include <stdint.h>
#include <string.h>

int dnnl_sgemm(char transpose_a, char transpose_b, int64_t m, int64_t n, int64_t k, float alpha,
               const float *a, int64_t lda, const float *b, int64_t ldb, float beta, float *c,
               int64_t ldc);
int dnnl_gemm_bf16bf16f32(char transpose_a, char transpose_b, int64_t m, int64_t n, int64_t k,
                          float alpha, const uint16_t *a, int64_t lda, const uint16_t *b,
                          int64_t ldb, float beta, float *c, int64_t ldc);

int onednn_fails;              /* as it does without memory */
_Atomic int onednn_bf16_calls; /* so far */

static double element(const void *array, int64_t i, int is_bf16)
{
    float value;
    if (!is_bf16)
        return ((const float *)array)[i];
    uint32_t bits = (uint32_t)((const uint16_t *)array)[i] << 16;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* One output. */
static float sum_of(const void *a, const void *b, int64_t a_first, int64_t b_first, int64_t count,
                    int is_bf16)
{
    double sum = 0;
    for (int64_t i = 0; i < count; i++)
        sum += element(a, a_first + i, is_bf16) * element(b, b_first + i, is_bf16);
    return (float)sum;
}

/* 1 is oneDNN's word for no memory, 2 for arguments that are wrong. */
static int status_of(char transpose_a, char transpose_b, float alpha, float beta)
{
    if (onednn_fails)
        return 1;
    return transpose_a == 'N' && transpose_b == 'T' && alpha == 1 && beta == 0 ? 0 : 2;
}

int dnnl_sgemm(char transpose_a, char transpose_b, int64_t m, int64_t n, int64_t k, float alpha,
               const float *a, int64_t lda, const float *b, int64_t ldb, float beta, float *c,
               int64_t ldc)
{
    int status = status_of(transpose_a, transpose_b, alpha, beta);
    for (int64_t i = 0; status == 0 && i < m * n; i++)
        c[i / n * ldc + i % n] = sum_of(a, b, i / n * lda, i % n * ldb, k, 0);
    return status;
}

int dnnl_gemm_bf16bf16f32(char transpose_a, char transpose_b, int64_t m, int64_t n, int64_t k,
                          float alpha, const uint16_t *a, int64_t lda, const uint16_t *b,
                          int64_t ldb, float beta, float *c, int64_t ldc)
{
    int status = status_of(transpose_a, transpose_b, alpha, beta);
    onednn_bf16_calls++;
    for (int64_t i = 0; status == 0 && i < m * n; i++)
        c[i / n * ldc + i % n] = sum_of(a, b, i / n * lda, i % n * ldb, k, 1);
    return status;
}
