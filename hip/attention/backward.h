/* What the kernels of backward over full sequences share (backward.hip by FMA,
 * backward_mma.hip by the matrix cores): who meets whom in a block, and the gradient of one
 * score. Their host sides choose the sizes.
 *
 * A block owns a tile of rows and meets tiles of others, one after the other. Keys: it owns keys of
 * a KV head, meets the query rows that see them, and makes dK and dV. Else it owns query rows,
 * meets the keys that they see, and makes dQ. So every gradient is summed by one block in a fixed
 * order: no atomics and no workspace, at the price that S and dP are computed in both, 7 products
 * in place of 5.
 *
 * All query heads of a KV head share its keys: query row r is head r % heads of query r / heads,
 * and rows see ascending ranges of keys, as queries do. */
#ifndef TA_HIP_ATTENTION_BACKWARD_H
#define TA_HIP_ATTENTION_BACKWARD_H

#include "launched.h" /* first: it says what TA_INLINE is for the headers below */

#include "attention.h"
#include "base/partial.h"
#include "number.h"

/* The most rows of a block, its own and the others at a time. */
#define TA_BACKWARD_OWN 64
#define TA_BACKWARD_OTHERS 32
#define TA_BACKWARD_THREADS 256

/* Threads that share a row when it is loaded, and when it is weighed. */
#define TA_BACKWARD_LANES 16

/* Sizes of a block, and byte offsets in its dynamic shared memory. `k` is what has k_dim: keys or
 * queries, `v` what has v_dim: values or gradients of outputs. */
typedef struct ta_backward_shape {
    int32_t threads;
    int32_t own, others;            /* rows of a tile */
    int32_t blocks;                 /* tiles × KV heads */
    int32_t k_stride, v_stride;     /* bytes from row to row */
    int32_t weight_stride;          /* bytes from own row to own row */
    int32_t own_k_at, own_v_at;     /* [own row] */
    int32_t other_k_at, other_v_at; /* [other row] */
    int32_t weights_at, shared_bytes;
} ta_backward_shape;

typedef struct ta_backward_args {
    ta_attention_backward_params p;
    ta_backward_shape s;
} ta_backward_args;

/* backward_mma.hip. */
extern "C" ta_launched ta_launch_attention_backward_mma(const ta_gpu_limits *limits,
                                                        const ta_attention_backward_params *params,
                                                        bool keys, hipStream_t stream);
extern "C" ta_launched ta_prepare_attention_backward_mma(int wave, int shared_bytes);

/* Query rows of one KV head. */
TA_INLINE int64_t ta_backward_rows(const ta_attention_work &w)
{
    return static_cast<int64_t>(w.queries) * (w.query_heads / w.kv_heads);
}

/* Blocks that own all keys, or all query rows; 0 if that is too many to number. */
TA_INLINE int32_t ta_backward_blocks(const ta_attention_work &w, bool keys, int32_t own)
{
    int64_t rows = keys ? w.keys : ta_backward_rows(w);
    int64_t blocks = (rows + own - 1) / own * w.kv_heads;
    return ta_backward_rows(w) > INT32_MAX - TA_BACKWARD_OWN || blocks > INT32_MAX
               ? 0
               : static_cast<int32_t>(blocks);
}

/* One row of a tile, in shared memory. */
struct alignas(8) ta_line {
    int32_t row, head;  /* of the tensors; row is -1 for a row beyond the last */
    float lse, delta;   /* of a query row; the lse in base 2 */
    int32_t first, end; /* of a query row: the keys that it sees */
};

TA_DEVICE ta_line ta_no_line()
{
    ta_line line = {-1, 0, 0.0f, 0.0f, 0, 0};
    return line;
}

TA_DEVICE ta_line ta_query_line(const ta_attention_backward_params &p, int32_t kv_head, int32_t row)
{
    const ta_attention_work &w = p.common.work;
    int32_t heads = w.query_heads / w.kv_heads, query = row / heads;
    if (query >= w.queries)
        return ta_no_line();
    ta_line line;
    line.row = w.query_rows[query];
    line.head = kv_head * heads + row % heads;
    int64_t at = static_cast<int64_t>(line.row) * w.query_heads + line.head;
    line.lse = p.gradient.lse[at] * TA_LOG2E;
    line.delta = p.gradient.delta[at];
    line.first = w.visible[query].first;
    line.end = line.lse == -INFINITY ? line.first : w.visible[query].end;
    return line;
}

TA_DEVICE ta_line ta_key_line(const ta_attention_backward_params &p, int32_t kv_head, int32_t key)
{
    ta_line line = ta_no_line();
    if (key < p.common.work.keys) {
        line.row = p.common.work.key_rows[key];
        line.head = kv_head;
    }
    return line;
}

/* The element of a tensor where a row starts. */
TA_DEVICE int64_t ta_line_element(const ta_tensor &tensor, const ta_line &line)
{
    return line.row * tensor.token_stride + line.head * tensor.head_stride;
}

/* What a block owns, and whom it meets: keys are numbered as in key_rows, query rows as above. */
struct ta_block_ranges {
    int32_t kv_head;
    int32_t own;        /* the first of its own */
    int32_t first, end; /* of the others; first ≥ end if there are none */
};

/* What changes from tile to tile of the others. */
struct ta_others {
    ta_line lines[TA_BACKWARD_OTHERS];
    int32_t not_finite; /* 1: one of their elements is */
};

/* Of attention_backward_fma: the start of a block's shared memory; the tiles follow. What is needed
 * only now and then is there too: no thread should spend registers on it. */
struct alignas(16) ta_backward_tables {
    ta_attention_backward_params p;
    ta_block_ranges m;
    ta_line own[TA_BACKWARD_OWN];
    ta_others others[2]; /* the next is made while one is used */
};

/* The first query that sees a key at or after `key`, or whose range begins there: both ends
 * ascend. */
TA_DEVICE int32_t ta_first_query(const ta_attention_work &w, int32_t key, bool begins)
{
    int32_t low = 0, high = w.queries;
    while (low < high) {
        int32_t middle = low + (high - low) / 2;
        ta_visible sees = w.visible[middle];
        if (begins ? sees.first >= key : sees.end > key)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

/* Blocks with the most work come first, if the mask is causal. */
template <bool Keys> TA_DEVICE ta_block_ranges ta_find_block_ranges(const ta_backward_args &a)
{
    const ta_attention_work &w = a.p.common.work;
    int32_t heads = w.query_heads / w.kv_heads, block = static_cast<int32_t>(blockIdx.x);
    int32_t tile = block / w.kv_heads;
    ta_block_ranges m;
    m.kv_head = block % w.kv_heads;
    if (Keys) {
        m.own = tile * a.s.own;
        m.first = ta_first_query(w, m.own, false) * heads;
        m.end = ta_first_query(w, min(m.own + a.s.own, w.keys), true) * heads;
    } else {
        m.own = (a.s.blocks / w.kv_heads - 1 - tile) * a.s.own;
        m.first = w.visible[m.own / heads].first;
        m.end = w.visible[min((m.own + a.s.own - 1) / heads, w.queries - 1)].end;
    }
    return m;
}

/* Fill in the tables but for the others. Every thread calls it; ends with a barrier. */
template <bool Keys>
TA_DEVICE void ta_start_tables(const ta_backward_args &a, const ta_block_ranges &m,
                               ta_backward_tables &tables)
{
    int32_t i = static_cast<int32_t>(threadIdx.x);
    if (i == 0) {
        tables.p = a.p;
        tables.m = m;
    }
    ta_syncthreads();
    if (i < a.s.own)
        tables.own[i] = Keys ? ta_key_line(tables.p, m.kv_head, m.own + i)
                             : ta_query_line(tables.p, m.kv_head, m.own + i);
    ta_syncthreads();
}

/* The lines of the others from `at` on. */
template <bool Keys>
TA_DEVICE void ta_find_others(ta_backward_tables &tables, int32_t at, int32_t count,
                              ta_others &others)
{
    const ta_attention_backward_params &p = tables.p;
    const ta_block_ranges &m = tables.m;
    int32_t i = static_cast<int32_t>(threadIdx.x);
    if (i == 0)
        others.not_finite = 0;
    if (i >= count)
        return;
    if (at + i >= m.end)
        others.lines[i] = ta_no_line();
    else
        others.lines[i] =
            Keys ? ta_query_line(p, m.kv_head, at + i) : ta_key_line(p, m.kv_head, at + i);
}

/* Is this pair a query row and a key that it sees? `own` and `other` are their numbers. */
template <bool Keys>
TA_DEVICE bool ta_pair_seen(int32_t own, const ta_line &own_line, int32_t other,
                            const ta_line &other_line)
{
    const ta_line &query = Keys ? other_line : own_line;
    int32_t key = Keys ? own : other;
    return key >= query.first && key < query.end;
}

/* p of a pair, and ds without the scale: from q·k and dout·v. */
struct ta_pair {
    float p, ds;
};

TA_DEVICE ta_pair ta_make_pair(const ta_score_rule &rule, float dot, float product,
                               const ta_line &query)
{
    float score = dot * rule.factor, slope = 1.0f;
    if (rule.cap > 0.0f) {
        float t = tanhf(score);
        slope = 1.0f - t * t;
        score = rule.cap * t;
    }
    ta_pair pair;
    pair.p = ta_exp2(score - query.lse);
    pair.ds = pair.p * (product - query.delta) * slope;
    return pair;
}

/* Element `column` of a gradient of one of the block's own rows: of dV, or of dK or dQ. */
template <bool Keys>
TA_DEVICE void ta_store_gradient(const ta_backward_args &a, const ta_attention_work_gradient &g,
                                 const ta_line &line, int32_t column, bool of_v, float sum)
{
    const ta_tensor &to = of_v ? g.dv : Keys ? g.dk : g.dq;
    ta_dtype dtype = Keys ? a.p.gradient.kv_dtype : a.p.gradient.dq_dtype;
    ta_store_element(dtype, to.data, ta_line_element(to, line) + column,
                     of_v ? sum : sum * a.p.common.work.scale);
}

#endif
