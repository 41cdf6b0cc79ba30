/* Attention over full sequences on one device: what it does with the queries and the keys that it
 * holds at one time, forward and backward. An attention plan arranges over the ranks who holds
 * what; a device knows nothing of that. host/ and the GPU modules implement the table; a device
 * without it has no attention plans.
 *
 * Queries and keys come in an order of their own (base/token_order.h), given as rows of the
 * tensors: by sequence, and in it by position. Then the keys that a query sees, whatever the mask,
 * the window, the layout and the packing of the batch, are one range of the keys' order, and both
 * ends of the range ascend from query to query.
 *
 * Tensors, records and workspace are device memory. An order is host memory, and may change when
 * the slot returns, whatever the stream has done by then. */
#ifndef TA_DEVICE_ATTENTION_H
#define TA_DEVICE_ATTENTION_H

#include <treeattn/treeattn.h>

#include "base/token_order.h"

/* The largest head dimension. */
#define TA_ATTENTION_MAX_DIM 256

/* One attention of some queries over some keys. Tensors are [row][head][dim] with filled strides;
 * `batch_stride` means nothing. Query head h reads KV head h / (query_heads / kv_heads). */
typedef struct ta_attention_work {
    int32_t query_heads, kv_heads, k_dim, v_dim;
    ta_dtype dtype; /* of Q, K, V, and in backward of the output and its gradient */
    float scale;    /* natural scores, before the soft-cap */
    float softcap;  /* 0: none */
    int32_t queries, keys;
    ta_tensor q, k, v;
    /* Written out by the device for its kernels, from the order that a slot is given: */
    const int32_t *query_rows; /* [queries]: the row of each query in q */
    const int32_t *key_rows;   /* [keys]: the row of each key in k and v */
    const ta_visible *visible; /* [queries]: the range of key_rows that each query sees */
} ta_attention_work;

/* What backward() also reads and what it writes. All of it is indexed by row, as q and k are. The
 * gradients of rows that are not in query_rows or key_rows are left alone. */
typedef struct ta_attention_work_gradient {
    ta_tensor dout;     /* [row][query head][v_dim] */
    const float *lse;   /* [row][query head], natural, over all keys of the sequence */
    const float *delta; /* [row][query head], of delta() */
    ta_dtype dq_dtype;  /* of dq */
    ta_dtype kv_dtype;  /* of dk and dv */
    ta_tensor dq, dk, dv;
} ta_attention_work_gradient;

/* The slots, all synchronous on a device without streams. Results do not depend on the number of
 * threads, nor on timing. */
typedef struct ta_attention_ops {
    /* Bytes of workspace for forward() or backward() with at most so many queries and keys; the
     * tensors are not looked at. */
    size_t (*bytes)(const ta_device *device, const ta_attention_work *shape, int backward);

    /* Get ready for calls with at most so many queries and keys, so that no call allocates. NULL:
     * nothing to do. */
    ta_status (*reserve)(ta_device *device, const ta_attention_work *largest);

    /* The partials of all queries and query heads over the keys: record row · query_heads + head
     * of `records`, see partial.h. */
    ta_status (*forward)(ta_device *device, const ta_attention_work *work,
                         const ta_token_order *order, float *records, void *workspace,
                         void *stream);

    /* Turn the records of `rows` rows into outputs and lse, [row][query head]. */
    ta_status (*finish)(ta_device *device, const ta_attention_work *shape, const float *records,
                        int32_t rows, const ta_tensor *out, float *lse, void *stream);

    /* delta = Σ dout · out for each row and query head. */
    ta_status (*delta)(ta_device *device, const ta_attention_work *shape, const ta_tensor *dout,
                       const ta_tensor *out, int32_t rows, float *delta, void *stream);

    /* The gradients of Q over these keys, and of K and V over these queries. */
    ta_status (*backward)(ta_device *device, const ta_attention_work *work,
                          const ta_token_order *order, const ta_attention_work_gradient *gradient,
                          void *workspace, void *stream);

    /* into[i] += from[i]. */
    ta_status (*add)(ta_device *device, float *into, const float *from, int64_t count,
                     void *stream);

    /* Round `rows` rows of dense f32 numbers [row][head][dim] into a tensor of `dtype`. */
    ta_status (*store)(ta_device *device, const float *from, int32_t rows, int32_t heads,
                       int32_t dim, ta_dtype dtype, const ta_tensor *to, void *stream);

    /* Copy `rows` rows of a tensor, the heads of a row side by side, from row to row
     * `to_stride_bytes`. NULL: device_ops.copy() of each is as good. */
    ta_status (*pack)(ta_device *device, const ta_tensor *from, int32_t rows, int32_t heads,
                      int32_t dim, ta_dtype dtype, void *to, size_t to_stride_bytes, void *stream);
} ta_attention_ops;

#endif
