/* What ranks do together beside attention: collectives on any group, groups over a transport of the
 * caller's own, and moving a KV cache from one shard map to another. treeattn.h has groups, devices
 * and shard maps, and the conventions. */
#ifndef TREEATTN_COLLECTIVES_H
#define TREEATTN_COLLECTIVES_H

#include "treeattn.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Collectives --------------------------------------------------------------------------- */

typedef enum ta_element_kind {
    TA_ELEMENT_BYTE = 0, /* moved, never added up */
    TA_ELEMENT_F32 = 1,
    TA_ELEMENT_F16 = 2,
    TA_ELEMENT_BF16 = 3,
    TA_ELEMENT_I32 = 4,
    TA_ELEMENT_I64 = 5
} ta_element_kind;

typedef enum ta_reduction {
    TA_REDUCE_SUM = 0, /* of integers: wraps around */
    TA_REDUCE_MAX = 1  /* with a NaN in it: NaN */
} ta_reduction;

/* The calls below work on every group, and every rank of the group makes them in the same order,
 * with the same count, element, reduction and root. `count` counts elements; 0 is allowed.
 *
 * Memory is that of `device`; NULL: of the group's own device, or host memory if the group moves
 * that. On a group of GPUs (ta_group_create_ccl) the call queues its work on `stream` and returns;
 * it can be captured. On any other group it returns with the result there; the memory of a GPU goes
 * through 2 MiB of pinned host memory, which the device keeps, after what is on the stream, which
 * must not be captured. Ranks of one such group may have different devices. A group of one rank may
 * be given as NULL.
 *
 * The same inputs on the same number of ranks give the same bits, in every run and on every rank.
 * The order of a sum depends on ranks and count alone; f16 and bf16 are added in f32 and rounded
 * once. Other kinds of groups may have another order. docs/collectives.md has the orders.
 *
 * A bad argument is an error on its rank alone, before anything is sent: the others wait for it
 * until the timeout, unless it aborts the group. Ranks that are in different calls, or whose
 * counts, elements, reductions or roots differ, get TA_ERR_MISMATCH, which says what each of two
 * ranks is in, and the group is broken; a group of GPUs does not compare, and there other counts
 * may run into the timeout. After an error the results are not to be relied on. */

/* to[i] = the sum, or the largest, of all ranks' from[i]; both [count]. In place if to == from,
 * otherwise they must not overlap. */
TA_API ta_status ta_all_reduce(ta_group *group, ta_device *device, const void *from, void *to,
                               size_t count, ta_element_kind element, ta_reduction reduction,
                               void *stream);

/* Rank r gives from[count], and every rank gets all of them at to[r · count]. In place if `from` is
 * to + rank · count elements, otherwise they must not overlap. */
TA_API ta_status ta_all_gather(ta_group *group, ta_device *device, const void *from, void *to,
                               size_t count, ta_element_kind element, void *stream);

/* Every rank gives from[ranks · count], and rank r gets the sum, or the largest, of all ranks'
 * from[r · count + i] at to[i]. In place if `to` is from + rank · count elements, otherwise they
 * must not overlap. */
TA_API ta_status ta_reduce_scatter(ta_group *group, ta_device *device, const void *from, void *to,
                                   size_t count, ta_element_kind element, ta_reduction reduction,
                                   void *stream);

/* Copy rank `root`'s data[count] to all. */
TA_API ta_status ta_broadcast(ta_group *group, ta_device *device, void *data, size_t count,
                              ta_element_kind element, int root, void *stream);

/* No rank returns (on a group of GPUs: its stream does not go on) before all have come. A GPU's
 * stream is waited for first. */
TA_API ta_status ta_barrier(ta_group *group, ta_device *device, void *stream);

/* ---- A transport of the caller's own ------------------------------------------------------- */

/* Bytes that a transport is asked to move, to one rank or from one. The library writes all fields
 * but `moved`, `failed` and `request`, which are 0 when a transfer is new. */
typedef struct ta_transfer {
    void *data;      /* host memory; of a transfer that sends it is only read */
    size_t bytes;    /* all of them, at least 1 */
    size_t moved;    /* by the transport: how many it has moved; complete when this is `bytes` */
    int32_t channel; /* transfers of different channels have nothing to do with each other */
    int32_t peer;    /* the other rank, as the transport numbers them */
    int32_t sends;   /* 1: to `peer`, 0: from it */
    int32_t failed;  /* by the transport: a number that is not 0 if `peer` is lost */
    void *request;   /* the transport's own, for what it has begun */
} ta_transfer;

/* A transport of the caller's own: how bytes get from one rank to another. It can be written over
 * sockets, gloo, UCX, torch.distributed and the like; docs/collectives.md says how. */
typedef struct ta_transport {
    size_t size;
    void *context;       /* for the functions; outlives the group and its parts */
    int32_t rank, ranks; /* this rank's number, and how many there are */
    /* Which node this rank is on, for ta_cluster_probe(): ranks of one node give the same number
     * above 0. 0: not told, the host's name says it. */
    int32_t node;
    /* 1: the transport may read and write the memory of a transfer between calls, and can't be told
     * to stop. Then it never sees the caller's memory but copies, and what a group had on its way
     * when it was destroyed is never freed. */
    int32_t holds_memory;
    /* Move what can be moved now. A transfer that is seen for the first time begins. Those of one
     * channel and one peer are in order: what this rank sends first arrives first, and what it asks
     * for first gets what the peer sent first; both sides always ask for the same number of bytes.
     * Transfers are given again, in the same order and at the same addresses, until they are
     * complete, failed or cancelled. Returns when one has moved on, or after `timeout_ms`, which
     * may be 0: then it only begins and looks. Any other status than TA_OK breaks the group.
     * Called by one thread at a time for each channel. */
    ta_status (*progress)(void *context, ta_transfer *const *transfers, int count, int timeout_ms);
    /* Stop a transfer that was begun: when this returns its memory is not used any more. NULL: the
     * memory of a transfer is used in progress() alone, or holds_memory is 1. */
    void (*cancel)(void *context, ta_transfer *transfer);
} ta_transport;
#define TA_TRANSPORT_INIT                                                                          \
    {                                                                                              \
        sizeof(ta_transport), NULL, 0, 0, 0, 0, NULL, NULL                                         \
    }

/* Make a group whose messages go through a transport of the caller's own; it moves host memory, and
 * GPU devices are staged through it. Collective: every rank of the transport calls it, once for
 * each transport. If a rank does not come within the timeout, the error names it. The struct is
 * copied. A part of the group (ta_group_split) is on other channels of the same transport. */
TA_API ta_status ta_group_create_custom(const ta_transport *transport,
                                        const ta_group_config *config, ta_group **group);

/* ---- Resharding ---------------------------------------------------------------------------- */

/* Tokens of one sequence that go from one rank's place to another's: the positions [position,
 * position + tokens). */
typedef struct ta_move {
    int32_t from_rank, from_local; /* the rank that has them, and its first local position */
    int32_t to_rank, to_local;     /* the rank that will have them, likewise */
    int32_t position, tokens;
} ta_move;

/* List what must move when a sequence of `length` tokens goes from one shard map to another, whose
 * numbers of ranks may differ. Moves are in the order of positions, each as long as it can be, and
 * every token is in one; those of a rank to itself are listed too. A contiguous or zigzag map
 * without block and bounds divides the sequence evenly, as attention plans do. Writes at most
 * `capacity` of them to `moves` (which may be NULL if that is 0), and how many there are to
 * `*count`; a list that was cut is not an error. */
TA_API ta_status ta_reshard_list(const ta_shard_map *from, const ta_shard_map *to, int32_t length,
                                 ta_move *moves, size_t capacity, size_t *count);

/* The work of ta_reshard(), the same on all ranks. */
typedef struct ta_reshard_config {
    size_t size;
    /* Where the tokens are and where they go. map.ranks may be less than the group's size, which 0
     * stands for: then those are the group's first ranks. Bounds are host memory and shared by all
     * sequences; without block and bounds, contiguous and zigzag maps divide each sequence
     * evenly. */
    ta_shard_map from, to;
    int32_t batch; /* sequences, ≥ 1 */
    int32_t kv_heads, k_dim;
    int32_t v_dim; /* 0: k_dim */
    ta_dtype kv_dtype;
    int32_t from_tokens, to_tokens; /* the tokens that caches without page tables have room for */
    int32_t reserved;
    const int32_t *lengths; /* host memory [batch]: tokens of each whole sequence */
} ta_reshard_config;
#define TA_RESHARD_CONFIG_INIT                                                                     \
    {                                                                                              \
        sizeof(ta_reshard_config), TA_SHARD_MAP_INIT, TA_SHARD_MAP_INIT, 0, 0, 0, 0,               \
            TA_DTYPE_NONE, 0, 0, 0, NULL                                                           \
    }

/* Move K and V of some sequences from one shard map to another. Collective: every rank of the group
 * calls it. `from` and `to` are this rank's caches, of any strides, paged or not, as in
 * ta_decode(), but `lengths` and `bounds` in them are not used; NULL on a rank that is not one of
 * the map's. They must not share memory that is in use, except that pages of one pool may be those
 * of either. `device` is whose memory they are in; NULL: the group's, or host memory. Waits until
 * all is there, and allocates, so it can't be captured.
 *
 * If any rank fails before the first token is sent, all do, and nothing is written: bad arguments,
 * or values that differ (TA_ERR_MISMATCH). */
TA_API ta_status ta_reshard(ta_group *group, ta_device *device, const ta_reshard_config *config,
                            const ta_kv *from, const ta_kv *to, void *stream);

#ifdef __cplusplus
}
#endif

#endif
