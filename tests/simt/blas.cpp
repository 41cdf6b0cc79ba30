/* See simt_blas.h. One element after the other, in double, so that it shares nothing with the
 * kernel that it stands beside; strict about everything that a real library checks. */
#include "simt_blas.h"

#include <math.h>
#include <string.h>

#include "runtime.h"
#include "stream.h"

struct simt_blas {
    hipStream_t stream;
};

namespace simt
{

enum { no_handle = 1, invalid = 7, unsupported = 15 };
enum { type_f32 = 0, type_f16 = 2, type_bf16 = 14, sum_f32 = 68 };

struct operand {
    const void *data;
    int type, stride;
    bool turned;

    /* Element (row, column) of op(X). */
    double at(int row, int column) const
    {
        int64_t index = turned ? column + static_cast<int64_t>(row) * stride
                               : row + static_cast<int64_t>(column) * stride;
        if (type == type_f32)
            return static_cast<const float *>(data)[index];
        uint16_t bits = static_cast<const uint16_t *>(data)[index];
        if (type == type_bf16) {
            uint32_t wide = static_cast<uint32_t>(bits) << 16;
            float value;
            memcpy(&value, &wide, sizeof value);
            return value;
        }
        int exponent = bits >> 10 & 31, fraction = bits & 1023;
        double size = exponent == 0 ? ldexp(fraction, -24) : ldexp(1024 + fraction, exponent - 25);
        if (exponent == 31)
            size = fraction ? static_cast<double>(NAN) : static_cast<double>(INFINITY);
        return bits >> 15 ? -size : size;
    }

    /* Is all of it, rows × columns as it is in memory, of the device? */
    bool fits(int rows, int columns) const
    {
        int64_t elements = static_cast<int64_t>(columns - 1) * stride + rows;
        size_t each = type == type_f32 ? 4 : 2;
        return stride >= rows && memory_fits(data, static_cast<size_t>(elements) * each, true);
    }
};

static bool known(int type)
{
    return type == type_f32 || type == type_f16 || type == type_bf16;
}

} // namespace simt

using namespace simt;

int cublasCreate_v2(cublasHandle_t *handle)
{
    *handle = new simt_blas{nullptr};
    return 0;
}

int cublasDestroy_v2(cublasHandle_t handle)
{
    delete handle;
    return handle ? 0 : no_handle;
}

int cublasSetStream_v2(cublasHandle_t handle, hipStream_t stream)
{
    if (!handle)
        return no_handle;
    handle->stream = stream;
    return 0;
}

int cublasGemmEx(cublasHandle_t handle, int turn_a, int turn_b, int m, int n, int k,
                 const void *alpha, const void *a, int a_type, int lda, const void *b, int b_type,
                 int ldb, const void *beta, void *c, int c_type, int ldc, int sum_type, int)
{
    if (!handle)
        return no_handle;
    if (!known(a_type) || a_type != b_type || c_type != type_f32 || sum_type != sum_f32)
        return unsupported;
    if (m < 1 || n < 1 || k < 1 || (turn_a | turn_b) >> 1)
        return invalid;
    operand left = {a, a_type, lda, turn_a == 1}, right = {b, b_type, ldb, turn_b == 1};
    operand result = {c, c_type, ldc, false};
    if (!left.fits(turn_a ? k : m, turn_a ? m : k) || !right.fits(turn_b ? n : k, turn_b ? k : n) ||
        !result.fits(m, n))
        return invalid;
    float factor, kept;
    memcpy(&factor, alpha, sizeof factor);
    memcpy(&kept, beta, sizeof kept);
    work product;
    product.name = "gemm";
    product.addresses = {a, b, c};
    product.run = [=](run_context &) {
        for (int column = 0; column < n; column++) {
            for (int row = 0; row < m; row++) {
                double sum = 0;
                for (int i = 0; i < k; i++)
                    sum += left.at(row, i) * right.at(i, column);
                float &to = static_cast<float *>(c)[row + static_cast<int64_t>(column) * ldc];
                to = static_cast<float>(factor * sum + (kept != 0 ? kept * to : 0.0));
            }
        }
        return hipSuccess;
    };
    return submit(handle->stream, std::move(product)) == hipSuccess ? 0 : invalid;
}
