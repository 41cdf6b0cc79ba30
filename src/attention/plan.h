/* An attention plan: the work with every default filled in, the grid that this rank is a member of,
 * and the memory of a call. api.c makes it and has the public calls, tokens.c says
 * who holds which token, grid.c runs a call. */
#ifndef TA_ATTENTION_PLAN_H
#define TA_ATTENTION_PLAN_H

#include <treeattn/attention.h>

#include "cluster/candidate.h"
#include "device/attention.h"
#include "device/device.h"
#include "group/group.h"

/* The tokens of the ranks in one line of the grid, as they are gathered: those of its first rank,
 * then those of the next. */
typedef struct ta_line {
    int ranks, member; /* how many ranks, and which of them this one is */
    ta_group *group;   /* NULL: one rank */
    int32_t *starts;   /* [ranks + 1]: where each rank's tokens start */
    size_t *offsets;   /* [ranks + 1]: room for the offsets of a message */
    int32_t *taken;    /* [ranks]: room for tokens.c */
} ta_line;

struct ta_attention {
    ta_group *caller; /* the caller's group, in which ranks agree; NULL: one rank */
    ta_group *group;  /* moves the device's memory: `caller`, or one over it (staged.h) */
    ta_device *device;
    const ta_attention_ops *ops;
    int rank, ranks, grid_rows, grid_columns;
    int64_t id; /* the same on all ranks, another one for each plan */
    int forward_only;
    ta_attention_algorithm algorithm;
    ta_attention_algorithm wanted; /* what the config asks for, and: */
    int wanted_rows, wanted_columns;
    ta_candidates candidates; /* if there is a cluster; choice.c */
    ta_attention_work shape;  /* dimensions, dtype, scale and soft-cap; the rest is for each call */
    ta_shard_map map;         /* of a weighted one `bounds` are `turn_starts` */
    int32_t *turn_starts;     /* [ranks + 1] (base/shard_map.h), then [ranks] weights; or NULL */
    int32_t causal, window, max_tokens;

    /* This rank's row has the same queries on all its ranks, its column the same keys. */
    ta_line row, column;
    int32_t *counts;      /* [ranks]: tokens of each rank in the present call */
    int32_t tokens;       /* of this rank, in the present call */
    ta_token_order order; /* of the present attention, with room for the longest */
    uint64_t steps;       /* that finding it took, of the present call */

    /* Of all calls so far, forward and backward: on a stream the time to queue the work. */
    struct {
        uint64_t calls, ns, attend_ns;
    } counted[2];
    int pass; /* of the present call */

    void *memory; /* device memory that the pieces below are cut from */
    size_t memory_bytes;
    int owns_memory;
    void *workspace_given; /* of the config, and its size */
    size_t workspace_bytes;
    void *q, *k, *v, *dout; /* gathered; NULL where a line has one rank */
    float *records;         /* partials of all queries; with overlap of one rank's */
    float *received;        /* of this rank's tokens, from another: partials or gradients */
    float *lse, *delta;     /* of all queries */
    float *own_delta;       /* of this rank's tokens */
    float *dq, *dk, *dv;    /* f32 sums on their way to their ranks */
    /* With overlap: a rank's queries and the partials of those before them, on their way. */
    char *travel[2];
    /* Ring: K and V that are here and that arrive; dK and dV that travel with them; the gradients
     * of one block. */
    char *ring_kv[2];
    float *ring_sums[2], *ring_block, *ring_dq;
    void *workspace;  /* of the device */
    int64_t *message; /* by which the ranks agree, if the group moves device memory */
};

/* The members of this rank in its row and column, from its rank and the grid. */
void ta_attention_set_lines(ta_attention *attention);

/* Bytes of device memory that a plan with these lines needs, and where its pieces are, if `memory`
 * is there. Without a device: all but its workspace. */
size_t ta_attention_cut(ta_attention *attention);

/* How each sequence is divided: the plan's map with a block for this length. */
ta_shard_map ta_attention_map(const ta_attention *attention, int32_t length);

/* Once a call: how many tokens each rank holds; fills `counts`, `tokens` and the starts of both
 * lines. Fails if a rank would hold more than max_tokens; then it fails on all ranks. */
ta_status ta_attention_count_tokens(ta_attention *attention, int32_t sequences,
                                    const int32_t *lengths);

/* For each attention of a call: makes `order`, and `work` but for its tensors. The queries are
 * those of this rank's row, as they are gathered, or of `query_rank` alone; the keys those of its
 * column, or of `key_rank` alone; -1 is the whole line. A ring has no columns and must name a rank
 * for the keys. */
void ta_attention_find_order(ta_attention *attention, const ta_attention_input *input,
                             int query_rank, int key_rank, ta_attention_work *work);

/* The device's forward() and backward() on the present order, timed. */
ta_status ta_attention_attend(ta_attention *attention, const ta_attention_work *work,
                              float *records, void *stream);
ta_status ta_attention_differentiate(ta_attention *attention, const ta_attention_work *work,
                                     const ta_attention_work_gradient *gradient, void *stream);

/* Bytes that a rank receives for each token that it holds, in a call forward, or backward. */
int64_t ta_attention_traffic(const ta_attention_work *shape, int grid_rows, int grid_columns,
                             int backward);

#endif
