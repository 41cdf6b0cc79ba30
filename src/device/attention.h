/* Attention over full sequences on one device: what it does with the queries and the keys that it
 * holds at one time, forward and backward. An attention plan arranges over the ranks who holds
 * what; a device knows nothing of that. host/ and the GPU modules implement the table; a device
 * without it has no attention plans.
 *
 * Queries and keys come in an order of their own, given as rows of the tensors: by sequence, and in
 * it by position. Then the keys that a query sees, whatever the mask, the window, the layout and
 * the packing of the batch, are one range of the keys' order, and both ends of the range ascend
 * from query to query.
 *
 * Tensors, records and workspace are device memory. An order is host memory, and may change when
 * the slot returns, whatever the stream has done by then. */
#ifndef TA_DEVICE_ATTENTION_H
#define TA_DEVICE_ATTENTION_H

#include <treeattn/treeattn.h>

#include "base/shard.h"

/* ---- The order of the queries and the keys of one attention, as runs of neighbours ----
 *
 * A run is described by its first token alone, so an order takes as much as the ranks' shares have
 * pieces, however many tokens they hold. attention/tokens.c makes orders in host memory; a device
 * writes out, where its kernels want them, the rows and ranges of all tokens. */

/* Queries whose rows are neighbours, and whose ranges of keys move evenly. */
typedef struct ta_query_run {
    int32_t first;      /* the number of its first query; the run ends at the next one's */
    int32_t row;        /* of its first query; the following rows are its others' */
    ta_visible visible; /* to its first query */
    int32_t moves_first, moves_end; /* 1: that end of the range moves by one each query; 0: stays */
} ta_query_run;

/* Keys whose rows are neighbours. */
typedef struct ta_key_run {
    int32_t first, row;
} ta_key_run;

/* Runs cover the queries [0, queries) and the keys [0, keys). */
typedef struct ta_token_order {
    int32_t queries, keys;
    int32_t query_run_count, key_run_count;
    ta_query_run *query_runs;
    ta_key_run *key_runs;
} ta_token_order;

static inline int32_t ta_query_run_end(const ta_token_order *order, int32_t run)
{
    return run + 1 < order->query_run_count ? order->query_runs[run + 1].first : order->queries;
}

static inline int32_t ta_key_run_end(const ta_token_order *order, int32_t run)
{
    return run + 1 < order->key_run_count ? order->key_runs[run + 1].first : order->keys;
}

/* The run that a query or a key is in: of runs of `bytes` bytes that begin with their `first`. */
static inline int32_t ta_run_of(const void *runs, size_t bytes, int32_t count, int32_t number)
{
    int32_t low = 0, high = count;
    while (high - low > 1) {
        int32_t middle = low + (high - low) / 2;
        const void *run = (const char *)runs + (size_t)middle * bytes;
        if (*(const int32_t *)run <= number)
            low = middle;
        else
            high = middle;
    }
    return low;
}

static inline int32_t ta_query_run_of(const ta_token_order *order, int32_t query)
{
    return ta_run_of(order->query_runs, sizeof *order->query_runs, order->query_run_count, query);
}

static inline int32_t ta_key_run_of(const ta_token_order *order, int32_t key)
{
    return ta_run_of(order->key_runs, sizeof *order->key_runs, order->key_run_count, key);
}

/* Write out the row and the range of each of the queries [from, to), at their numbers. */
static inline void ta_order_write_queries(const ta_token_order *order, int32_t from, int32_t to,
                                          int32_t *rows, ta_visible *visible)
{
    for (int32_t run = ta_query_run_of(order, from); from < to; ++run) {
        const ta_query_run *r = &order->query_runs[run];
        int32_t end = ta_query_run_end(order, run) < to ? ta_query_run_end(order, run) : to;
        for (; from < end; ++from) {
            int32_t i = from - r->first;
            rows[from] = r->row + i;
            visible[from].first = r->visible.first + r->moves_first * i;
            visible[from].end = r->visible.end + r->moves_end * i;
        }
    }
}

/* Likewise the row of each of the keys [from, to). */
static inline void ta_order_write_keys(const ta_token_order *order, int32_t from, int32_t to,
                                       int32_t *rows)
{
    for (int32_t run = ta_key_run_of(order, from); from < to; ++run) {
        const ta_key_run *r = &order->key_runs[run];
        int32_t end = ta_key_run_end(order, run) < to ? ta_key_run_end(order, run) : to;
        for (; from < end; ++from)
            rows[from] = r->row + (from - r->first);
    }
}

/* ---- What a device does with it ---- */

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

    /* Turn the records of `rows` rows into outputs and lse, [row][query head]. Unlike the
     * finish() of device.h it takes no struct: nothing is left to merge or to send, and there are
     * no sinks and no faults. */
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
