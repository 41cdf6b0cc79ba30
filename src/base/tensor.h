/* Strides of the caller's tensors: fill in what was left at 0, and refuse what cannot be right.
 * Implemented in tensor.c. */
#ifndef TA_TENSOR_H
#define TA_TENSOR_H

#include <treeattn/treeattn.h>

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

#endif
