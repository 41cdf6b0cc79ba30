/* What a caller gives to a public function, checked before it is used: structs, tensors, fields of
 * configs. Each message names the argument, its value and what would be right. Implemented in
 * arguments.c. */
#ifndef TA_ARGUMENTS_H
#define TA_ARGUMENTS_H

#include <treeattn/cluster.h>
#include <treeattn/collectives.h>

#include "dtype.h"

/* ---- Structs that start with their size ----
 *
 * They can grow: fields are added at the end, and a program that was compiled with the header of
 * another version still works. Every public function that takes such a struct works on a copy that
 * ta_struct_read() makes, or hands its result out with ta_struct_write(). tests/test_sizes.c keeps
 * what the versions promised; CONTRIBUTING.md says how to add a field or a struct. */

/* Every such struct: X(name, its INIT macro, the last field it had in the first version that had
 * the struct). What stands up to that field is what every program has. */
#define TA_STRUCT_LIST(X)                                                                          \
    X(ta_device_config, TA_DEVICE_CONFIG_INIT, simd)                                               \
    X(ta_group_config, TA_GROUP_CONFIG_INIT, reserved)                                             \
    X(ta_transport, TA_TRANSPORT_INIT, cancel)                                                     \
    X(ta_ccl_config, TA_CCL_CONFIG_INIT, bootstrap)                                                \
    X(ta_group_stats, TA_GROUP_STATS_INIT, bytes_received)                                         \
    X(ta_plan_config, TA_PLAN_CONFIG_INIT, reproducible_tile)                                      \
    X(ta_plan_stats, TA_PLAN_STATS_INIT, device_attend_ns)                                         \
    X(ta_kv, TA_KV_INIT, page_count)                                                               \
    X(ta_reshard_config, TA_RESHARD_CONFIG_INIT, lengths)                                          \
    X(ta_call, TA_CALL_INIT, tag)                                                                  \
    X(ta_append_input, TA_APPEND_INPUT_INIT, source)                                               \
    X(ta_attention_config, TA_ATTENTION_CONFIG_INIT, workspace_bytes)                              \
    X(ta_attention_input, TA_ATTENTION_INPUT_INIT, v)                                              \
    X(ta_attention_gradient, TA_ATTENTION_GRADIENT_INIT, dv)                                       \
    X(ta_attention_stats, TA_ATTENTION_STATS_INIT, device_bytes_most)                              \
    X(ta_prediction, TA_PREDICTION_INIT, memory_bytes)                                             \
    X(ta_attention_prediction, TA_ATTENTION_PREDICTION_INIT, memory_bytes)

typedef struct ta_struct_size {
    const char *name, *init;
    size_t first_bytes; /* in the first version that had it */
    size_t bytes;       /* in this one */
} ta_struct_size;

/* Those of ta_kv are TA_STRUCT(ta_kv), and so on. */
enum {
#define TA_STRUCT_NUMBER(name, init, last) TA_STRUCT_##name,
    TA_STRUCT_LIST(TA_STRUCT_NUMBER)
#undef TA_STRUCT_NUMBER
        TA_STRUCTS
};
extern const ta_struct_size ta_struct_sizes[TA_STRUCTS];
#define TA_STRUCT(name) (&ta_struct_sizes[TA_STRUCT_##name])

/* No struct will ever be this large: a size above it was never set. It bounds what is read. */
#define TA_STRUCT_MOST_BYTES 4096

/* The size that the caller gave, if it is one that such a struct can have: also the step from one
 * to the next in an array of the caller's. */
ta_status ta_struct_size_of(const ta_struct_size *type, const char *argument, const void *given,
                            size_t *size);

/* Copy a struct that the caller gave as `argument` to `copy`, which is of the library's own size. A
 * smaller one is an older program's, and the fields it lacks are 0; a larger one is a newer
 * program's, and what this library does not know must be 0. Reads `given->size` bytes at most. */
ta_status ta_struct_read(const ta_struct_size *type, const char *argument, const void *given,
                         void *copy);

/* Copy `result` to the caller's struct: what fits into its size, which stays as it is. What is
 * beyond the library's own is set to 0. Nothing is written if it fails. */
ta_status ta_struct_write(const ta_struct_size *type, const char *argument, const void *result,
                          void *given);

/* ---- Tensors: strides that were left at 0 are filled in, what cannot be right is refused ---- */

typedef struct ta_tensor_shape {
    const char *name; /* what error messages call the tensor */
    int64_t batch, tokens, heads, dim;
    ta_dtype dtype;
} ta_tensor_shape;

/* A copy of `tensor` with every stride filled in; fails on a misaligned address, a negative stride
 * or one that leads beyond the address space. */
ta_status ta_tensor_fill(const ta_tensor *tensor, const ta_tensor_shape *shape, ta_tensor *filled);

/* Bytes from the first element of a filled tensor to the end of its last. */
size_t ta_tensor_reach(const ta_tensor *filled, const ta_tensor_shape *shape);

/* Fails if two elements of a filled tensor share an address: for tensors that are written. */
ta_status ta_tensor_check_distinct(const ta_tensor *filled, const ta_tensor_shape *shape);

/* Scales of the tensor with this shape, whose dim does not count: fails on a misaligned address, a
 * negative stride or one that leads beyond the address space, and if there are any where elements
 * have more than 8 bits, or none but strides. */
ta_status ta_scales_check(const ta_scales *scales, const ta_tensor_shape *shape);

/* Fails if two tokens, or heads, of the shape share a scale: for scales that are written. */
ta_status ta_scales_check_distinct(const ta_scales *scales, const ta_tensor_shape *shape);

/* The stride of a table of 4-byte numbers from one sequence to the next: 0 or more, and so that the
 * table of so many sequences is within the address space. */
ta_status ta_check_table_stride(const char *name, int64_t stride, int32_t sequences);

/* ---- Fields that the configs of all plans share ---- */

ta_status ta_check_int(const char *name, int64_t value, int64_t low, int64_t high);

/* A head dimension: a multiple of 8 up to `most`. */
ta_status ta_check_dim(const char *name, int32_t value, int32_t most);

/* Heads, of which the query's are a multiple of the cache's, and both head dimensions. */
ta_status ta_check_head_shape(int32_t query_heads, int32_t kv_heads, int32_t k_dim, int32_t v_dim,
                              int32_t most_dim);

/* A type that there is, and that may be what `role` says. */
ta_status ta_check_dtype(const char *name, ta_dtype dtype, ta_dtype_role role);

/* A workspace that the caller brings: large enough, and aligned. */
#define TA_WORKSPACE_ALIGNMENT 64
ta_status ta_check_workspace(const void *workspace, size_t bytes, size_t needed);

/* Finite, and at least `low`: 0 or -INFINITY. */
ta_status ta_check_finite(const char *name, float value, float low);

#endif
