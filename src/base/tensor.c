/* Checks and defaults of the strides in a ta_tensor. */
#include "tensor.h"

#include "dtype.h"
#include "status.h"

static ta_status check_stride(const ta_tensor_shape *shape, const char *stride_name, int64_t stride)
{
    if (stride < 0)
        return ta_fail(TA_ERR_INVALID, "%s.%s is %lld: must be 0 (dense) or more", shape->name,
                       stride_name, (long long)stride);
    return TA_OK;
}

/* Add the reach of one axis, (count - 1) · stride, to *elements unless the sum overflows. */
static ta_status add_reach(const ta_tensor_shape *shape, const char *stride_name, int64_t count,
                           int64_t stride, int64_t *elements)
{
    int64_t reach;
    if (count > 1 &&
        (__builtin_mul_overflow(count - 1, stride, &reach) ||
         __builtin_add_overflow(*elements, reach, elements) || *elements > PTRDIFF_MAX / 8))
        return ta_fail(TA_ERR_INVALID, "%s.%s is %lld: the tensor would exceed the address space",
                       shape->name, stride_name, (long long)stride);
    return TA_OK;
}

/* Nobody steps along an axis of one element, so its stride may be anything; but kernels multiply
 * all strides by the size of an element. */
static void tame_stride(const ta_tensor_shape *shape, int64_t count, int64_t *stride)
{
    if (count <= 1 && *stride > PTRDIFF_MAX / 8)
        *stride = shape->dim;
}

ta_status ta_tensor_fill(const ta_tensor *tensor, const ta_tensor_shape *shape, ta_tensor *filled)
{
    ta_tensor t = *tensor;
    int64_t elements = shape->dim;
    const ta_dtype_traits *traits = ta_dtype_find(shape->dtype);
    if (!traits)
        return ta_fail(TA_ERR_INVALID, "%s has elements of dtype %d: there is no such type",
                       shape->name, (int)shape->dtype);
    TA_TRY(check_stride(shape, "batch_stride", t.batch_stride));
    TA_TRY(check_stride(shape, "token_stride", t.token_stride));
    TA_TRY(check_stride(shape, "head_stride", t.head_stride));
    if ((uintptr_t)t.data % traits->bytes)
        return ta_fail(TA_ERR_INVALID, "%s.data is %p: must be aligned to its %zu-byte elements",
                       shape->name, t.data, traits->bytes);
    if (!t.head_stride)
        t.head_stride = shape->dim;
    TA_TRY(add_reach(shape, "head_stride", shape->heads, t.head_stride, &elements));
    if (!t.token_stride)
        t.token_stride = shape->heads * t.head_stride;
    TA_TRY(add_reach(shape, "token_stride", shape->tokens, t.token_stride, &elements));
    if (!t.batch_stride && __builtin_mul_overflow(shape->tokens, t.token_stride, &t.batch_stride))
        return ta_fail(TA_ERR_INVALID,
                       "%s.token_stride is %lld: the tensor would exceed the address space",
                       shape->name, (long long)t.token_stride);
    TA_TRY(add_reach(shape, "batch_stride", shape->batch, t.batch_stride, &elements));
    tame_stride(shape, shape->heads, &t.head_stride);
    tame_stride(shape, shape->tokens, &t.token_stride);
    tame_stride(shape, shape->batch, &t.batch_stride);
    *filled = t;
    return TA_OK;
}

size_t ta_tensor_reach(const ta_tensor *filled, const ta_tensor_shape *shape)
{
    if (shape->batch < 1 || shape->tokens < 1 || shape->heads < 1)
        return 0;
    int64_t elements = (shape->batch - 1) * filled->batch_stride +
                       (shape->tokens - 1) * filled->token_stride +
                       (shape->heads - 1) * filled->head_stride + shape->dim;
    return (size_t)elements * ta_dtype_bytes(shape->dtype);
}

typedef struct axis {
    const char *name;
    int64_t count, stride;
} axis;

static void order_axes(axis *first, axis *second)
{
    if (first->stride > second->stride) {
        axis swapped = *first;
        *first = *second;
        *second = swapped;
    }
}

/* Axes from the smallest stride up: each must step over all that the smaller ones cover. */
ta_status ta_tensor_check_distinct(const ta_tensor *filled, const ta_tensor_shape *shape)
{
    axis axes[3] = {{"head_stride", shape->heads, filled->head_stride},
                    {"token_stride", shape->tokens, filled->token_stride},
                    {"batch_stride", shape->batch, filled->batch_stride}};
    order_axes(&axes[0], &axes[1]);
    order_axes(&axes[1], &axes[2]);
    order_axes(&axes[0], &axes[1]);
    int64_t covered = shape->dim;
    for (int i = 0; i < 3; ++i) {
        if (axes[i].count < 2)
            continue;
        if (axes[i].stride < covered)
            return ta_fail(TA_ERR_INVALID,
                           "%s.%s is %lld: must be %lld or more, rows would overlap", shape->name,
                           axes[i].name, (long long)axes[i].stride, (long long)covered);
        covered += (axes[i].count - 1) * axes[i].stride;
    }
    return TA_OK;
}
