/* What a caller gives, checked: structs that can grow, tensors, fields of configs. See arguments.h.
 * Entry points call this before they look at anything else. */
#include "arguments.h"

#include <math.h>
#include <string.h>

#include "status.h"
#include "text.h"

/* ---- Structs that start with their size ---- */

const ta_struct_size ta_struct_sizes[TA_STRUCTS] = {
#define STRUCT_SIZES(name, init, last)                                                             \
    {#name, #init, offsetof(name, last) + sizeof((const name *)0)->last, sizeof(name)},
    TA_STRUCT_LIST(STRUCT_SIZES)
#undef STRUCT_SIZES
};

ta_status ta_struct_size_of(const ta_struct_size *type, const char *argument, const void *given,
                            size_t *size)
{
    if (!given)
        return ta_fail(TA_ERR_INVALID, "%s is NULL: must point to a %s", argument, type->name);
    memcpy(size, given, sizeof *size);
    if (*size < type->first_bytes || *size > TA_STRUCT_MOST_BYTES)
        return ta_fail(TA_ERR_INVALID,
                       "%s.size is %zu: must be %zu, or %zu to %d with another version's %s; "
                       "initialise it with %s",
                       argument, *size, type->bytes, type->first_bytes, TA_STRUCT_MOST_BYTES,
                       type->name, type->init);
    return TA_OK;
}

ta_status ta_struct_read(const ta_struct_size *type, const char *argument, const void *given,
                         void *copy)
{
    const unsigned char *bytes = given;
    size_t size = 0;
    TA_TRY(ta_struct_size_of(type, argument, given, &size));
    for (size_t at = type->bytes; at < size; ++at)
        if (bytes[at])
            return ta_fail(TA_ERR_INVALID,
                           "%s.size is %zu, a %s of a later version, and its byte %zu is %d: must "
                           "be 0, as version %d.%d.%d knows the first %zu alone",
                           argument, size, type->name, at, bytes[at], TA_VERSION_MAJOR,
                           TA_VERSION_MINOR, TA_VERSION_PATCH, type->bytes);
    size_t known = size < type->bytes ? size : type->bytes;
    memcpy(copy, given, known);
    memset((char *)copy + known, 0, type->bytes - known);
    memcpy(copy, &type->bytes, sizeof type->bytes);
    return TA_OK;
}

ta_status ta_struct_write(const ta_struct_size *type, const char *argument, const void *result,
                          void *given)
{
    size_t size = 0;
    TA_TRY(ta_struct_size_of(type, argument, given, &size));
    size_t known = size < type->bytes ? size : type->bytes;
    memcpy((char *)given + sizeof size, (const char *)result + sizeof size, known - sizeof size);
    memset((char *)given + known, 0, size - known);
    return TA_OK;
}

/* ---- Tensors ---- */

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

/* ---- Scales ---- */

/* Without scales all are 1, which nobody means who says where they are; but a pool of no pages may
 * have none. */
static ta_status check_no_scales(const ta_scales *scales, const ta_tensor_shape *shape)
{
    if (shape->batch < 1 ||
        (!scales->batch_stride && !scales->token_stride && !scales->head_stride))
        return TA_OK;
    return ta_fail(
        TA_ERR_INVALID,
        "%s.data is NULL with batch_stride %lld, token_stride %lld and head_stride %lld: "
        "must be the scales, or the strides 0, for scales of 1",
        shape->name, (long long)scales->batch_stride, (long long)scales->token_stride,
        (long long)scales->head_stride);
}

ta_status ta_scales_check(const ta_scales *scales, const ta_tensor_shape *shape)
{
    int64_t elements = 1;
    if (!scales->data)
        return check_no_scales(scales, shape);
    if (!ta_dtype_is_narrow(shape->dtype))
        return ta_fail(TA_ERR_INVALID,
                       "%s.data is %p: must be NULL, config.kv_dtype is %s and only types of 8 "
                       "bits have scales",
                       shape->name, (void *)scales->data, ta_dtype_name(shape->dtype));
    if ((uintptr_t)scales->data % sizeof(float))
        return ta_fail(TA_ERR_INVALID, "%s.data is %p: must be aligned to 4 bytes", shape->name,
                       (void *)scales->data);
    TA_TRY(check_stride(shape, "batch_stride", scales->batch_stride));
    TA_TRY(check_stride(shape, "token_stride", scales->token_stride));
    TA_TRY(check_stride(shape, "head_stride", scales->head_stride));
    TA_TRY(add_reach(shape, "head_stride", shape->heads, scales->head_stride, &elements));
    TA_TRY(add_reach(shape, "token_stride", shape->tokens, scales->token_stride, &elements));
    return add_reach(shape, "batch_stride", shape->batch, scales->batch_stride, &elements);
}

ta_status ta_scales_check_distinct(const ta_scales *scales, const ta_tensor_shape *shape)
{
    ta_tensor tensor = {scales->data, scales->batch_stride, scales->token_stride,
                        scales->head_stride};
    ta_tensor_shape single = *shape;
    single.dim = 1;
    return ta_tensor_check_distinct(&tensor, &single);
}

/* ---- Tables ---- */

ta_status ta_check_table_stride(const char *name, int64_t stride, int32_t sequences)
{
    int64_t most = PTRDIFF_MAX / (int64_t)sizeof(int32_t) / (sequences > 0 ? sequences : 1);
    if (stride < 0 || stride > most)
        return ta_fail(TA_ERR_INVALID,
                       "%s is %lld: must be from 0 to %lld, the table of %d sequences would exceed "
                       "the address space",
                       name, (long long)stride, (long long)most, (int)sequences);
    return TA_OK;
}

/* ---- Fields of a config ---- */

ta_status ta_check_int(const char *name, int64_t value, int64_t low, int64_t high)
{
    if (value < low || value > high)
        return ta_fail(TA_ERR_INVALID, "config.%s is %lld: must be from %lld to %lld", name,
                       (long long)value, (long long)low, (long long)high);
    return TA_OK;
}

ta_status ta_check_dim(const char *name, int32_t value, int32_t most)
{
    if (value < 8 || value > most || value % 8)
        return ta_fail(TA_ERR_INVALID, "config.%s is %d: must be a multiple of 8 from 8 to %d",
                       name, (int)value, (int)most);
    return TA_OK;
}

ta_status ta_check_head_shape(int32_t query_heads, int32_t kv_heads, int32_t k_dim, int32_t v_dim,
                              int32_t most_dim)
{
    TA_TRY(ta_check_int("query_heads", query_heads, 1, 1 << 16));
    TA_TRY(ta_check_int("kv_heads", kv_heads, 1, query_heads));
    if (query_heads % kv_heads)
        return ta_fail(TA_ERR_INVALID,
                       "config.query_heads is %d: must be a multiple of config.kv_heads, %d",
                       (int)query_heads, (int)kv_heads);
    TA_TRY(ta_check_dim("k_dim", k_dim, most_dim));
    return ta_check_dim("v_dim", v_dim, most_dim);
}

/* "TA_F32, TA_F16 or TA_BF16": the types that have a role. */
static void list_dtypes(ta_dtype_role role, ta_text *out)
{
    const ta_dtype_traits *last = NULL; /* comes after the next one is known */
    const char *between = "";
    for (int number = TA_DTYPE_NONE + 1; number < TA_DTYPE_END; ++number) {
        const ta_dtype_traits *traits = ta_dtype_find((ta_dtype)number);
        if (!(traits->roles & (unsigned)role))
            continue;
        if (last) {
            ta_text_add(out, "%s%s", between, last->constant);
            between = ", ";
        }
        last = traits;
    }
    if (last)
        ta_text_add(out, "%s%s", *between ? " or " : "", last->constant);
}

ta_status ta_check_dtype(const char *name, ta_dtype dtype, ta_dtype_role role)
{
    char data[256];
    ta_text right;
    const ta_dtype_traits *traits = ta_dtype_find(dtype);
    if (traits && traits->roles & (unsigned)role)
        return TA_OK;
    ta_text_init(&right, data, sizeof data);
    list_dtypes(role, &right);
    if (traits)
        return ta_fail(TA_ERR_UNSUPPORTED, "config.%s is %s: must be %s", name, traits->constant,
                       data);
    return ta_fail(TA_ERR_INVALID, "config.%s is %d: must be %s", name, (int)dtype, data);
}

ta_status ta_check_finite(const char *name, float value, float low)
{
    if (!isfinite(value) || value < low)
        return ta_fail(TA_ERR_INVALID, "config.%s is %g: must be finite%s", name, (double)value,
                       low == 0.0f ? " and 0 or more" : "");
    return TA_OK;
}

ta_status ta_check_workspace(const void *workspace, size_t bytes, size_t needed)
{
    if (bytes < needed)
        return ta_fail(TA_ERR_INVALID, "config.workspace_bytes is %zu: must be %zu or more", bytes,
                       needed);
    if ((uintptr_t)workspace % TA_WORKSPACE_ALIGNMENT)
        return ta_fail(TA_ERR_INVALID, "config.workspace is %p: must be aligned to %d bytes",
                       workspace, TA_WORKSPACE_ALIGNMENT);
    return TA_OK;
}
