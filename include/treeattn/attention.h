/* Attention over full sequences: prefill, and one attention layer of training, on a grid of ranks.
 * treeattn.h has the conventions, devices, groups and shard maps; docs/attention2d.md explains what
 * moves where; cluster.h predicts and explains. Tensors and lse are device memory, as in decode;
 * lengths are host memory, unlike there, since a call divides its work by them. The steps of a
 * program:
 *
 *     1. ta_attention_create()     describe the work once; every rank calls it
 *     2. ta_attention_forward()    and in training ta_attention_backward(), every layer
 */
#ifndef TREEATTN_ATTENTION_H
#define TREEATTN_ATTENTION_H

#include "treeattn.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum ta_attention_algorithm {
    /* The planner chooses one of those below, and the grid if the config leaves it open: with a
     * cluster by predicted times, without one a grid. ta_attention_explain() says why. */
    TA_ATTENTION_AUTO = 0,
    TA_ATTENTION_GRID = 1, /* queries move along the rows of a grid, K and V along its columns */
    TA_ATTENTION_RING = 2, /* K and V go round all ranks: Ring Attention, the baseline */
    /* As the grid, but it moves while it computes. Forward: K and V rotate along the columns, then
     * the queries with their partials along the rows. Backward: K and V rotate along the columns
     * with their gradients. */
    TA_ATTENTION_GRID_OVERLAP = 3
} ta_attention_algorithm;

/* The work of an attention plan: prefill, or one attention layer of training. Q, K and V of every
 * sequence are sharded over the ranks along the sequence, all three in the same way; so are the
 * output and the gradients. Scores are those of ta_plan_config, without ALiBi and sinks. All ranks
 * must give the same values in every field, except in `cluster`, `workspace` and
 * `workspace_bytes`; ta_attention_create() checks it. docs/attention2d.md explains what moves
 * where.
 *
 * A rank's tokens are packed: those of sequence 0 that it holds, in the order of their positions,
 * then those of sequence 1, and so on; ta_shard_count() says how many, ta_shard_position()
 * which. */
typedef struct ta_attention_config {
    size_t size;
    int32_t query_heads; /* ≥ 1, a multiple of kv_heads */
    int32_t kv_heads;    /* 0: query_heads */
    int32_t k_dim;       /* head dimension of Q and K: a multiple of 8 from 8 to 256 */
    int32_t v_dim;       /* of V and the output, likewise; 0: k_dim */
    ta_dtype dtype;      /* of Q, K, V, the output and all gradients; must be set */
    int32_t max_tokens;  /* the most tokens that one rank will hold, of all sequences together */
    /* How each sequence is sharded; `bounds` must be NULL. A block of 0 divides each sequence of
     * n tokens evenly over P ranks: contiguous ⌈n / P⌉, zigzag ⌈n / 2P⌉. Use the same block with
     * the ta_shard functions. */
    ta_shard_map map;
    ta_mask mask;
    int32_t window; /* > 0: also hide keys with x − y ≥ window; 0: no window */
    float scale;    /* 0: 1 / sqrt(k_dim) */
    float softcap;  /* 0: none */
    /* Ranks form a grid: rank r is in row r / columns and column r % columns. Both 0: the grid with
     * the least predicted time on the cluster, forward and backward together; without a cluster the
     * one that moves the fewest bytes. */
    int grid_rows, grid_columns;
    int forward_only;                 /* 1: no ta_attention_backward(), which needs more memory */
    ta_attention_algorithm algorithm; /* a ring has no grid: leave both numbers at 0 */
    /* What costs are predicted from; it must know device.flops_per_second, or the half one for f16
     * and bf16. Rank 0's counts, the others may leave it out, unless they bring a workspace. Only
     * used during the call. NULL: none. */
    const ta_cluster *cluster;
    /* Device memory for the plan, 64-byte aligned, that outlives it. NULL: it allocates its own. */
    void *workspace;
    size_t workspace_bytes; /* size of `workspace`: at least what ta_attention_workspace() says */
} ta_attention_config;
#define TA_ATTENTION_CONFIG_INIT                                                                   \
    {                                                                                              \
        sizeof(ta_attention_config), 0, 0, 0, 0, TA_DTYPE_NONE, 0, TA_SHARD_MAP_INIT,              \
            TA_MASK_CAUSAL, 0, 0.0f, 0.0f, 0, 0, 0, TA_ATTENTION_AUTO, NULL, NULL, 0               \
    }

typedef struct ta_attention ta_attention;

/* The workspace that a plan of this config needs on this device, in bytes. Local: a rank may call
 * it or not. */
TA_API ta_status ta_attention_workspace(const ta_group *group, const ta_device *device,
                                        const ta_attention_config *config, size_t *bytes);

/* Make an attention plan. Collective; rules as ta_plan_create(). The host and GPUs have attention
 * over full sequences. A group of device memory must be of this device; with one of host memory
 * everything goes through pinned memory. Calls of a plan are ordered: on one stream, or by the
 * caller. None can be captured. */
TA_API ta_status ta_attention_create(ta_group *group, ta_device *device,
                                     const ta_attention_config *config, ta_attention **attention);

/* Which sequences a call is about, and Q, K and V of this rank's tokens: [token][head][dim], dim
 * contiguous, `batch_stride` unused. A rank that holds no token may leave data NULL. */
typedef struct ta_attention_input {
    size_t size;
    int32_t sequences;
    int32_t reserved;
    /* Host memory [sequences]: tokens of the whole sequences, the same on all ranks. */
    const int32_t *lengths;
    ta_tensor q, k, v;
} ta_attention_input;
#define TA_ATTENTION_INPUT_INIT                                                                    \
    {                                                                                              \
        sizeof(ta_attention_input), 0, 0, NULL, {NULL, 0, 0, 0}, {NULL, 0, 0, 0},                  \
        {                                                                                          \
            NULL, 0, 0, 0                                                                          \
        }                                                                                          \
    }

/* Attend: out [token][query_heads][v_dim] of this rank's tokens, and lse [token][query_heads] in
 * device memory, which may be NULL. Collective. A row that sees no key has output 0 and lse −inf.
 * The same inputs on the same grid give the same bits. A bad argument on one rank is an error on
 * all, nothing is written, and the group stays usable; after any other error the group is
 * broken. */
TA_API ta_status ta_attention_forward(ta_attention *attention, const ta_attention_input *input,
                                      const ta_tensor *out, float *lse, void *stream);

/* What ta_attention_backward() reads beside the input, `out` and `lse` as forward wrote them, and
 * what it writes; shapes as q, k, v and out. Gradients may not share memory with anything. */
typedef struct ta_attention_gradient {
    size_t size;
    ta_tensor out, dout;
    const float *lse; /* device memory */
    ta_tensor dq, dk, dv;
} ta_attention_gradient;
#define TA_ATTENTION_GRADIENT_INIT                                                                 \
    {                                                                                              \
        sizeof(ta_attention_gradient), {NULL, 0, 0, 0}, {NULL, 0, 0, 0}, NULL, {NULL, 0, 0, 0},    \
            {NULL, 0, 0, 0},                                                                       \
        {                                                                                          \
            NULL, 0, 0, 0                                                                          \
        }                                                                                          \
    }

/* The gradients of a loss whose gradient by the output is dout: dq, dk and dv of this rank's
 * tokens. dk and dv are sums over the query heads that share a KV head. Collective; rules as
 * ta_attention_forward(). */
TA_API ta_status ta_attention_backward(ta_attention *attention, const ta_attention_input *input,
                                       const ta_attention_gradient *gradient, void *stream);

/* What a plan runs, and what its calls cost on this rank, counted since it was made. Times are of
 * the host: with a stream they are the time to queue the work. What a call does beside attending is
 * moving, merging and waiting for other ranks. Memory is as in ta_plan_stats. */
typedef struct ta_attention_stats {
    size_t size;
    ta_attention_algorithm algorithm;
    int grid_rows, grid_columns; /* 0 for a ring */
    int reserved;                /* 0 */
    uint64_t forward_calls, backward_calls;
    uint64_t forward_ns, backward_ns;               /* of all calls */
    uint64_t forward_attend_ns, backward_attend_ns; /* of them, attending */
    uint64_t workspace_bytes;                       /* of this plan */
    uint64_t device_bytes, device_bytes_most;
} ta_attention_stats;
#define TA_ATTENTION_STATS_INIT                                                                    \
    {                                                                                              \
        sizeof(ta_attention_stats), TA_ATTENTION_AUTO, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0          \
    }

TA_API ta_status ta_attention_get_stats(const ta_attention *attention, ta_attention_stats *stats);

/* Local, never waits for other ranks. NULL is allowed. */
TA_API void ta_attention_destroy(ta_attention *attention);

#ifdef __cplusplus
}
#endif

#endif
