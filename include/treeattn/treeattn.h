/* treeattn: exact attention over KV caches too long for one device.
 *
 * The KV cache of every sequence is sharded over the ranks of a group. Each decode step, every rank
 * attends to the tokens it holds, which gives one small partial result per query row and head; the
 * partials are merged in a tree; the merged result is the attention over the whole sequence, exact
 * up to rounding. The steps of a program:
 *
 *     1. ta_device_open()   where the cache lives and the arithmetic runs ("host", "auto", …)
 *     2. ta_group_*()       the ranks that share the cache (threads, MPI processes, …)
 *     3. ta_plan_create()   describe the work once; every rank calls it; all is allocated here
 *     4. ta_decode()        every token of every layer; every rank calls it; allocates nothing
 *
 * ta_append() stores new keys and values where the shard map wants them; ta_combine() is the second
 * half of a decode step, for programs with attention kernels of their own.
 *
 * Sections of this header:
 *
 *     Status       errors as values, and the sentence about the last one
 *     Log          what the library has to say, through a callback
 *     Library      its version and what it can do; data types
 *     Devices      open, memory, copies, a stopwatch
 *     Groups       ranks as threads, MPI processes or GPUs; split, stats, abort
 *     Shard maps   which rank holds which token
 *     Plans        the work of a decode step
 *     Decode       tensors, the KV cache, the step itself
 *     Append       new tokens into the cache
 *     Combine      outputs and log-sum-exps of the shards, by any kernel, into one
 *
 * collectives.h has sums and copies over the ranks of a group, groups over a transport of your own,
 * and moving a cache from one shard map to another; attention.h attention over full sequences
 * (prefill and training); cluster.h what a plan would cost on a cluster, and why it does what it
 * does.
 *
 * Conventions
 *
 * - A function that can fail returns a ta_status: 0 is success, errors are negative. Outputs are
 *   set only on success. ta_last_error() has the precise sentence for the calling thread.
 * - The library never prints, aborts or exits. It logs through a callback, if one is set.
 * - A field left at zero takes the default that its comment names. Structs that start with `size`
 *   may get fields at their end in later versions; initialise them with their INIT macro. One that
 *   is smaller than the library's is an older program's: what it lacks is zero. One that is larger
 *   is a newer program's: what the library does not know must be zero. In a result, what the
 *   library does not know is set to zero.
 * - Memory is the host's, unless the comment on a pointer says device memory: there it is memory of
 *   the device that the call is about, which on "host" is the same. Device memory are the data of
 *   tensors, lse, workspaces, and what ta_kv points to. Host memory is read during the call alone,
 *   so it may be changed or freed afterwards; device memory is read and written when the work on
 *   the stream runs.
 * - Sizes count elements, except where a name ends in `_bytes`. Strides count elements.
 * - "Position" is a token's place in its whole sequence (global); "local position" is its place
 *   among the tokens of that sequence that one rank holds. Both start at 0.
 * - Scores use the natural exponent; a log-sum-exp that crosses this API is a natural logarithm.
 *
 * Threads: a device and a plan belong to one thread at a time; different plans and devices may be
 * used on different threads with no locks. A group handle belongs to its rank's thread, except that
 * ta_group_abort() may be called from any thread.
 */
#ifndef TREEATTN_TREEATTN_H
#define TREEATTN_TREEATTN_H

#include <stddef.h>
#include <stdint.h>

#include "version.h"

#if defined(__GNUC__)
#define TA_API __attribute__((visibility("default")))
#else
#define TA_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Status -------------------------------------------------------------------------------- */

/* Every status: X(name, value, message). */
#define TA_STATUS_LIST(X)                                                                          \
    X(TA_OK, 0, "success")                                                                         \
    X(TA_ERR_INVALID, -1, "an argument is out of its range or contradicts another")                \
    X(TA_ERR_UNSUPPORTED, -2, "valid, but this device, group or build cannot do it")               \
    X(TA_ERR_NO_MEMORY, -3, "memory could not be allocated")                                       \
    X(TA_ERR_TIMEOUT, -4, "a rank did not arrive within the group's timeout")                      \
    X(TA_ERR_MISMATCH, -5, "the ranks of a group disagree about what to do")                       \
    X(TA_ERR_ABORTED, -6, "the group was aborted by one of its ranks")                             \
    X(TA_ERR_NOT_FOUND, -7, "no such device, module or symbol")                                    \
    X(TA_ERR_DEVICE, -8, "the device or its runtime reported an error")                            \
    X(TA_ERR_SYSTEM, -9, "the operating system refused a request")

typedef enum ta_status {
#define TA_STATUS_ENUM(name, value, message) name = value,
    TA_STATUS_LIST(TA_STATUS_ENUM)
#undef TA_STATUS_ENUM
} ta_status;

/* The status as it is spelt here, e.g. "TA_ERR_TIMEOUT"; "TA_ERR_UNKNOWN" for any other number. */
TA_API const char *ta_status_name(ta_status status);

/* What the status means in general, as in the list above. */
TA_API const char *ta_status_message(ta_status status);

/* The sentence about the last error on the calling thread: which argument, its value, what would be
 * right. Empty if there was none. Valid until the next failing call on this thread. */
TA_API const char *ta_last_error(void);

/* ---- Log ----------------------------------------------------------------------------------- */

typedef enum ta_log_level {
    TA_LOG_ERROR = 1, /* each error, once, by the function that found its cause */
    TA_LOG_INFO = 2   /* choices made: SIMD level, algorithm, fallbacks */
} ta_log_level;

/* Called on the thread that has something to say; `text` has no newline and dies with the call. */
typedef void (*ta_log_fn)(void *context, ta_log_level level, const char *text);

/* Send messages up to `level` to `fn`; NULL is silence, the default. For the whole process: set it
 * before other threads use the library. */
TA_API void ta_log_set(ta_log_fn fn, void *context, ta_log_level level);

/* ---- Library ------------------------------------------------------------------------------- */

/* The TA_VERSION the library was built with. */
TA_API int ta_version(void);

/* Describe the library, its devices and what they can do, as lines "key: value". Writes at most
 * `capacity` bytes with a final NUL to `text` (which may be NULL if capacity is 0) and the full
 * length with the NUL to `*needed_bytes` (which may be NULL). A cut text is no error. */
TA_API ta_status ta_info(char *text, size_t capacity, size_t *needed_bytes);

typedef enum ta_dtype {
    TA_DTYPE_NONE = 0, /* unset */
    TA_F32 = 1,        /* IEEE binary32 */
    TA_F16 = 2,        /* IEEE binary16 */
    TA_BF16 = 3,       /* the upper half of a binary32 */
    /* 8 bits, of K and V alone. Bytes of one dialect read as another are other numbers. */
    TA_E4M3 = 4,      /* OCP's "e4m3fn": largest number 448, no infinity */
    TA_E5M2 = 5,      /* OCP's: largest number 57344 */
    TA_E4M3_FNUZ = 6, /* of gfx942 (MI300): largest number 240, no infinity, no negative zero */
    TA_E5M2_FNUZ = 7  /* likewise: largest number 57344 */
} ta_dtype;

/* ---- Devices ------------------------------------------------------------------------------- */

typedef struct ta_device ta_device;

typedef struct ta_device_config {
    size_t size;
    /* Host: threads that compute, the caller's included. 0: as many as the CPUs this process may
     * use: those that it may run on (affinity), but no more than its control groups give it time
     * for (cpu.max, or cpu.cfs_quota_us), rounded up. Results do not depend on it. */
    int threads;
    int reserved; /* must be 0, here and wherever it stands */
    /* Host: "scalar", "avx2", "avx512", "avx512bf16" or "neon" at most. NULL: the CPU's best. */
    const char *simd;
} ta_device_config;
#define TA_DEVICE_CONFIG_INIT                                                                      \
    {                                                                                              \
        sizeof(ta_device_config), 0, 0, NULL                                                       \
    }

/* Open a device by name: "host", a GPU like "cuda:0" or "rocm:3", or "auto" for the best one here:
 * the first GPU of an architecture that the kernels were written for, or else the host. The log
 * (TA_LOG_INFO) and ta_info() name those that are passed over; a GPU that fails in another way is
 * an error. `config` may be NULL. Close it with ta_device_close(). */
TA_API ta_status ta_device_open(const char *name, const ta_device_config *config,
                                ta_device **device);

/* Plans and groups that use the device keep it: they go on to work, and it ends with the last of
 * them. The handle itself may not be used any more. NULL is allowed. */
TA_API void ta_device_close(ta_device *device);

/* The device's name with its number, e.g. "host" or "cuda:0"; valid until it is closed. */
TA_API const char *ta_device_name(const ta_device *device);

/* Device memory, 64-byte aligned, for programs that use no runtime of the device's own: allocate,
 * free (waits for the device; NULL is allowed), copy between any two of host and device memory in
 * stream order, and wait until the work on a stream is done. Host memory that is copied from may be
 * changed when the copy returns; host memory that is copied to is there after the wait. On "host"
 * nothing has to be waited for. */
TA_API ta_status ta_device_alloc(ta_device *device, size_t bytes, void **memory);
TA_API void ta_device_free(ta_device *device, void *memory);
TA_API ta_status ta_device_copy(ta_device *device, void *to, const void *from, size_t bytes,
                                void *stream);
TA_API ta_status ta_device_synchronize(ta_device *device, void *stream);

/* A stopwatch on a stream of the device, by its own clock (events on a GPU); a device has one. It
 * starts when the work queued so far is done. Reading it waits until the work queued so far is
 * done, and tells how long that was after the start; it can be read again. */
TA_API ta_status ta_device_timer_start(ta_device *device, void *stream);
TA_API ta_status ta_device_timer_read(ta_device *device, void *stream, double *seconds);

/* ---- Groups -------------------------------------------------------------------------------- */

/* One rank's handle on its group. Ranks are numbered from 0. */
typedef struct ta_group ta_group;

typedef struct ta_group_config {
    size_t size;
    int timeout_ms; /* longest wait for another rank, in milliseconds; 0: 60,000 */
    int reserved;
} ta_group_config;
#define TA_GROUP_CONFIG_INIT                                                                       \
    {                                                                                              \
        sizeof(ta_group_config), 0, 0                                                              \
    }

/* Make a group whose ranks are threads of this process: fills groups[0] … groups[ranks - 1], one
 * handle for each rank. Hand each to its thread; destroy each of them once. */
TA_API ta_status ta_group_create_threads(int ranks, const ta_group_config *config,
                                         ta_group **groups);

/* Work of one rank. `group` is destroyed by the caller of this function. */
typedef ta_status (*ta_rank_fn)(ta_group *group, void *context);

/* Make a group of `ranks` threads, run `fn` on each, wait for all of them. Returns the status of
 * the lowest rank that failed by itself; if there is none, of the lowest that heard of a failure,
 * other than by another rank's abort. ta_last_error() names that rank and has its sentence. A rank
 * that fails aborts the group, so that no other waits for it. */
TA_API ta_status ta_group_run_threads(int ranks, const ta_group_config *config, ta_rank_fn fn,
                                      void *context);

/* Make a group whose ranks are the processes of an MPI communicator, which may be on any number of
 * hosts; it moves host memory, and GPU devices are staged through it. `comm` is the address of an
 * MPI_Comm. Collective: every process of it calls this, with MPI initialised. The group works on a
 * duplicate; during this call it uses the tag MPI_TAG_UB of `comm` itself. If a process does not
 * join within the timeout, the error names its rank. Needs the module treeattn-mpi, built with the
 * MPI that the program uses.
 *
 * With MPI_THREAD_MULTIPLE, groups may be used on different threads, and ta_group_abort() from
 * another thread reaches the other ranks at once; otherwise it does so at this rank's next call on
 * the group. Destroy groups before MPI_Finalize(). */
TA_API ta_status ta_group_create_mpi(const void *comm, const ta_group_config *config,
                                     ta_group **group);

/* Split a group: ranks with the same `color` form a part of their own, in which they are numbered
 * by `key`, and by their rank in `group` where keys are equal. A rank with a color below 0 is in no
 * part and gets NULL. Collective: every rank of the group calls it. The part has the group's kind
 * and timeout and is independent of it: either can be used, aborted or destroyed without the other,
 * and a part can be split again. */
TA_API ta_status ta_group_split(ta_group *group, int color, int key, ta_group **part);

/* A name for a group of GPUs that NCCL (on NVIDIA) or RCCL (on AMD) connects, in TA_CCL_ID_BYTES
 * bytes. One rank makes it and gives it to the others by any means. `device`: any of the kind. */
#define TA_CCL_ID_BYTES 128
TA_API ta_status ta_ccl_id(ta_device *device, void *id);

/* Where a group of GPUs comes from: exactly one of `id`, `communicator` and `bootstrap` is set. */
typedef struct ta_ccl_config {
    size_t size;
    const void *id;  /* from ta_ccl_id(), the same bytes on all ranks; then also: */
    int rank, ranks; /* this rank's number, and how many there are */
    /* An ncclComm_t that the caller has and keeps: it outlives the group, and neither destroying
     * nor aborting the group touches it. */
    void *communicator;
    /* A group of the same ranks, of any kind, over which rank 0's id is handed round: such as one
     * of MPI processes. It is only used during the call. */
    ta_group *bootstrap;
} ta_ccl_config;
#define TA_CCL_CONFIG_INIT                                                                         \
    {                                                                                              \
        sizeof(ta_ccl_config), NULL, 0, 0, NULL, NULL                                              \
    }

/* Make a group whose ranks are GPUs, one each, connected by NCCL or RCCL; it moves the memory of
 * `device`, on the stream of each call, so a step needs no copy to the host, does not wait and can
 * be captured. Collective: every rank calls it with its own device, which the group keeps (see
 * ta_device_close()). A plan with such a group must be on that device. If a rank does not join
 * within the timeout, the error says how many came, and with a bootstrap which one did not.
 *
 * Once a call has returned, its work can still fail: the library may report an error, or another
 * rank may never come. Within about twice the timeout this is noticed, the work on the stream is
 * ended, and every later call on the group fails with the cause; what the stream wrote since is not
 * to be relied on. Ranks in the same process hear of each other's failures at once. A step that is
 * replayed from a captured graph can't be timed: there only what the library itself reports is
 * noticed, and ta_group_abort() ends it. */
TA_API ta_status ta_group_create_ccl(ta_device *device, const ta_ccl_config *ccl,
                                     const ta_group_config *config, ta_group **group);

TA_API int ta_group_rank(const ta_group *group);
TA_API int ta_group_size(const ta_group *group);

/* What has gone through one rank's handle since it was made: messages that this library sends and
 * receives. A collective that is left to another library (NCCL's all-gather, say) counts as one
 * message out and one in, with the bytes that this rank gave and got. */
typedef struct ta_group_stats {
    size_t size;
    uint64_t messages_sent, messages_received;
    uint64_t bytes_sent, bytes_received;
} ta_group_stats;
#define TA_GROUP_STATS_INIT                                                                        \
    {                                                                                              \
        sizeof(ta_group_stats), 0, 0, 0, 0                                                         \
    }

TA_API ta_status ta_group_get_stats(const ta_group *group, ta_group_stats *stats);

/* Make every present and future call on this group fail on all ranks with TA_ERR_ABORTED and
 * `reason`. May be called from any thread. The group can then only be destroyed. */
TA_API void ta_group_abort(ta_group *group, const char *reason);

/* Never waits for other ranks. NULL is allowed. */
TA_API void ta_group_destroy(ta_group *group);

/* ---- Shard maps ---------------------------------------------------------------------------- */

typedef enum ta_shard_kind {
    TA_SHARD_CONTIGUOUS = 0,   /* rank r holds one range of every sequence */
    TA_SHARD_BLOCK_CYCLIC = 1, /* blocks of tokens are dealt to the ranks in turn */
    TA_SHARD_ZIGZAG = 2,       /* one block from either end; for ta_attention_config only */
    TA_SHARD_WEIGHTED = 3      /* block-cyclic with turns in proportion to the ranks' weights */
} ta_shard_kind;

/* Which rank holds which position. With B = block and P = ranks:
 *
 *     block-cyclic   position p is on rank (p / B) % P, at local position (p / (B·P))·B + p % B.
 *                    A growing sequence stays balanced to within one block.
 *     contiguous     with bounds: rank r holds the positions bounds[r] ≤ p < bounds[r + 1].
 *                    Otherwise rank r holds r·B ≤ p < (r + 1)·B, and the last rank all that
 *                    follow.
 *     zigzag         of 2P blocks, rank r holds the blocks r and 2P − 1 − r; rank 0 also holds all
 *                    that follow. Under a causal mask all ranks have the same work.
 *
 *     weighted       with weights w = bounds and W their sum: of every W blocks in a row, rank 0
 *                    holds the first w[0], rank 1 the next w[1], and so on. For ranks of different
 *                    memory or speed; a weight of 0 holds nothing.
 *
 * Local order is the order of positions, always. */
typedef struct ta_shard_map {
    size_t size;
    ta_shard_kind kind;
    int ranks; /* in a plan 0: the group's size; of a zigzag map at most 2^30 − 1 */
    /* Tokens per block. 0: 64 when block-cyclic or weighted; when contiguous on more than one rank,
     * bounds must be given. A zigzag map needs a block. In an attention plan 0 divides every
     * sequence evenly, see ta_attention_config. */
    int32_t block;
    int32_t reserved;
    /* Contiguous: host memory [ranks + 1] of ascending positions from 0, or NULL. In a plan it must
     * be NULL: ta_kv has the bounds, which may differ between sequences. Weighted: host memory
     * [ranks] of weights from 0, at least one above, that add up to less than 2^31; also in a plan,
     * which copies them. Otherwise NULL. */
    const int32_t *bounds;
} ta_shard_map;
#define TA_SHARD_MAP_INIT                                                                          \
    {                                                                                              \
        sizeof(ta_shard_map), TA_SHARD_CONTIGUOUS, 0, 0, 0, NULL                                   \
    }

/* Which rank holds `position`, and where. */
TA_API ta_status ta_shard_locate(const ta_shard_map *map, int32_t position, int *rank,
                                 int32_t *local);

/* The inverse: the position of rank `rank`'s token at `local`. */
TA_API ta_status ta_shard_position(const ta_shard_map *map, int rank, int32_t local,
                                   int32_t *position);

/* How many tokens rank `rank` holds of a sequence of `length` tokens. */
TA_API ta_status ta_shard_count(const ta_shard_map *map, int rank, int32_t length, int32_t *count);

/* Which rank must store the next token of a sequence that has `length` tokens, and where. */
TA_API ta_status ta_shard_next(const ta_shard_map *map, int32_t length, int *rank, int32_t *local);

/* The heads that rank `rank` of `ranks` holds when something is scattered by heads: the range from
 * heads·rank / ranks up to heads·(rank + 1) / ranks, rounded down. It can be empty. */
TA_API ta_status ta_head_range(int heads, int ranks, int rank, int *first, int *count);

/* ---- Plans --------------------------------------------------------------------------------- */

typedef enum ta_mask {
    TA_MASK_CAUSAL = 0, /* a query sees the keys at its own position and before */
    TA_MASK_FULL = 1    /* a query sees every key of its sequence */
} ta_mask;

typedef enum ta_placement {
    TA_PLACE_ALL = 0,  /* every rank has the whole tensor */
    TA_PLACE_ROOT = 1, /* one rank has the whole tensor */
    TA_PLACE_HEADS = 2 /* each rank has its ta_head_range() of the query heads */
} ta_placement;

typedef enum ta_algorithm {
    TA_ALGORITHM_AUTO = 0,      /* the planner chooses; ta_explain() says why */
    TA_ALGORITHM_TREE = 1,      /* each rank attends to its own shard, partials merge in a tree */
    TA_ALGORITHM_RING_KV = 2,   /* pass-KV: K and V go around, each rank has a part of the heads */
    TA_ALGORITHM_RING_Q = 3,    /* pass-Q: the partials of the parts go around, K and V stay */
    TA_ALGORITHM_ONE_DEVICE = 4 /* in predictions alone: all tokens on one device, no sharding */
} ta_algorithm;

/* How a tree merges the partials of all ranks. All kinds give the same result, up to rounding,
 * where out_placement asks for it; docs/model.md compares them. */
typedef enum ta_exchange {
    TA_EXCHANGE_AUTO = 0,      /* the cheapest on config.cluster; without one: doubling, or binomial
                                   with TA_PLACE_ROOT */
    TA_EXCHANGE_DOUBLING = 1,  /* recursive doubling; halving with TA_PLACE_HEADS; not for
                                   TA_PLACE_ROOT, which is binomial */
    TA_EXCHANGE_BINOMIAL = 2,  /* a binomial tree to one rank, and back */
    TA_EXCHANGE_SCATTER = 3,   /* heads scattered by all-to-all, then gathered */
    TA_EXCHANGE_TWO_LEVEL = 4, /* heads scattered inside each node, a tree for each part between the
                                   nodes; needs a cluster of several nodes with several ranks */
    TA_EXCHANGE_ALL_GATHER = 5, /* one all-gather, every rank merges all partials */
    TA_EXCHANGE_ALL_REDUCE = 6, /* two all-reduces: the largest scores, then the sums */
    TA_EXCHANGE_DIRECT = 7,     /* no messages: ranks use each other's memory; for threads and for
                                   MPI processes of one host, and on several nodes of the cluster
                                   inside each of them, with a tree of messages for each part of
                                   the heads between (of GPUs: NCCL or RCCL); and for GPUs of one
                                   host that are peers, in any group, one for each rank */
    TA_EXCHANGE_MULTI_LEVEL = 8 /* the same on every level that the cluster has, packages, nodes
                                   and racks: TA_EXCHANGE_TWO_LEVEL inside each of them */
} ta_exchange;

/* Weights of the softmax: config.weights. */
typedef enum ta_weights { TA_WEIGHTS_EXACT = 0, TA_WEIGHTS_ROUNDED = 1 } ta_weights;

/* Where the ranks are and how fast they reach each other: cluster.h. */
typedef struct ta_cluster ta_cluster;

/* The work of a plan. All ranks must give the same values in every field, except in `workspace`,
 * `workspace_bytes` and `cluster`; ta_plan_create() checks it.
 *
 * The score of query token i (position x) and key j (position y) in query head h is
 *
 *     s = scale · q_i·k_j,   then with softcap c:  s = c · tanh(s / c),
 *     then with ALiBi:  s = s − alibi_slopes[h] · |x − y|
 *
 * and the weight of the key is exp(s) / (exp(sinks[h]) + Σ exp(s)), without the sink where there is
 * none. Positions are global, so all of it is exact for every shard map. */
typedef struct ta_plan_config {
    size_t size;
    int32_t batch; /* sequences per call, ≥ 1; a call may have fewer (ta_call) */
    /* Query tokens per sequence, 1 to 1024; 0: 1. They are the last tokens of their sequence: token
     * t of sequence b has position lengths[b] − query_tokens + t. A ragged call (ta_call) has as
     * many or fewer of each sequence. */
    int32_t query_tokens;
    int32_t query_heads;  /* ≥ 1, a multiple of kv_heads */
    int32_t kv_heads;     /* 0: query_heads. Head h reads KV head h / (query_heads / kv_heads) */
    int32_t k_dim;        /* head dimension of Q and K: a multiple of 8 from 8 to 576 */
    int32_t v_dim;        /* head dimension of V and the output, likewise; 0: k_dim */
    ta_dtype kv_dtype;    /* of K and V; must be set */
    ta_dtype query_dtype; /* TA_DTYPE_NONE: as K and V; must be set if they have 8 bits */
    ta_dtype out_dtype;   /* TA_DTYPE_NONE: as the query */
    int32_t max_tokens;   /* the most tokens of one sequence that one rank will hold, ≥ 1 */
    ta_shard_map map;     /* `bounds` must be NULL here, unless they are weights */
    ta_mask mask;
    int32_t window;            /* > 0: also hide keys with x − y ≥ window; 0: no window */
    float scale;               /* 0: 1 / sqrt(k_dim) */
    float softcap;             /* 0: none */
    const float *alibi_slopes; /* host memory [query_heads], copied; NULL: none */
    /* Host memory [query_heads], copied; NULL: none. A sink is a score that counts in the softmax,
     * once in total, and has no value. */
    const float *sinks;
    ta_placement query_placement;
    int query_root; /* the rank that has the query, with TA_PLACE_ROOT */
    ta_placement out_placement;
    int out_root; /* the rank that gets the output, with TA_PLACE_ROOT */
    ta_algorithm algorithm;
    ta_exchange exchange;
    /* Device memory for the plan, 64-byte aligned, that outlives it. NULL: it allocates its own. */
    void *workspace;
    size_t workspace_bytes; /* size of `workspace`: at least what ta_plan_workspace() says */
    /* What predictions are computed from, with at least as many ranks as the group. Rank 0's
     * counts, the others may leave it out, unless they bring a workspace. Used by ta_plan_create()
     * alone. NULL: nothing is predicted, and what is left to choose takes its default. */
    const ta_cluster *cluster;
    /* 1: a ta_decode() is captured in a graph, and every following one with the same arguments
     * (pointers, strides, what the call has; the memory may have changed) replays it, which takes
     * the host one call. The 64 recordings that were used last are kept, so that one plan serves
     * all layers of a model. Beyond them, new arguments wait for the device. For devices with
     * graphs, on one rank or in a group that moves device memory; otherwise
     * TA_ERR_UNSUPPORTED. A step on a stream that the caller captures is queued as ever. */
    int replay;
    /* Reproducible mode: the same bits on any number of ranks, with any shard map, exchange and
     * thread count. 0: off. Otherwise the tokens of a tile, 16 to 2^20: tile i is the positions
     * [i · tile, (i + 1) · tile), each is summed up by itself, and the tiles' sums are added as
     * integers. A smaller tile costs more arithmetic. Another tile gives other bits, and so does
     * another SIMD level, kind of device or order of the axes of K and V. No tile may be on two
     * ranks: map.block and kv.bounds are multiples of the tile, but for bounds at or past the end
     * of a sequence. Messages are about four times as large. Rings are TA_ERR_UNSUPPORTED.
     * docs/numerics.md says how it works, what it costs and its error bound. */
    int32_t reproducible_tile;
    /* 1: checked mode, for finding mistakes in a program; also with TREEATTN_CHECK=1 in the
     * environment, for all plans. Every step compares the bits of sinks, slopes and, where all have
     * it, the query; refuses output or lse that overlap K or V; and on a GPU looks at lengths,
     * bounds and page tables before they are used, as the host always does. So it copies them to
     * the host, allocates and waits: a step cannot be captured, and nothing is replayed. */
    int32_t check;
    /* The most query tokens of one call, over all its sequences; 0: batch · query_tokens. The
     * plan's memory is made for so many. */
    int32_t max_call_tokens;
    /* 1: the plan is for ta_combine() alone. It has rows and heads, v_dim and out_dtype, sinks,
     * out_placement and an exchange; query_dtype must be set and is that of the parts. All that is
     * about the query, K, V and scores must be left at 0, and so must reproducible_tile. */
    int32_t combine_only;
    /* 1: ta_append() may be given new tokens that are scattered by heads (TA_APPEND_HEADS), for
     * which the workspace then has room: max_call_tokens · kv_heads · (k_dim + v_dim) · 4 bytes. */
    int32_t append_scattered;
    /* 1: calls may have shared prefixes (ta_call.prefix_groups), for which the workspace then has
     * room. TA_ERR_UNSUPPORTED with TA_ALGORITHM_RING_KV, which AUTO then leaves out. */
    int32_t shared_prefixes;
    /* TA_WEIGHTS_ROUNDED: a device may round each weight of the softmax to the 16-bit type that it
     * multiplies, with a relative error of at most 2^-8 (bf16; also of 8 bits) or 2^-11 (f16) each;
     * the lse is as ever. Where that brings nothing weights stay exact. docs/numerics.md. */
    ta_weights weights;
} ta_plan_config;
#define TA_PLAN_CONFIG_INIT                                                                        \
    {                                                                                              \
        sizeof(ta_plan_config), 0, 0, 0, 0, 0, 0, TA_DTYPE_NONE, TA_DTYPE_NONE, TA_DTYPE_NONE, 0,  \
            TA_SHARD_MAP_INIT, TA_MASK_CAUSAL, 0, 0.0f, 0.0f, NULL, NULL, TA_PLACE_ALL, 0,         \
            TA_PLACE_ALL, 0, TA_ALGORITHM_AUTO, TA_EXCHANGE_AUTO, NULL, 0, NULL, 0, 0, 0, 0, 0, 0, \
            0, TA_WEIGHTS_EXACT                                                                    \
    }

typedef struct ta_plan ta_plan;

/* The workspace of a plan of this config on this device, in bytes. Local: a rank may call it. */
TA_API ta_status ta_plan_workspace(const ta_group *group, const ta_device *device,
                                   const ta_plan_config *config, size_t *bytes);

/* Make a plan. Collective: every rank of the group calls it. Rank 0 decides what the config leaves
 * open and the others follow. If any rank fails, all do; nothing is left behind. `group` must
 * outlive the plan, which keeps `device` (see ta_device_close()). NULL is a group of one rank. */
TA_API ta_status ta_plan_create(ta_group *group, ta_device *device, const ta_plan_config *config,
                                ta_plan **plan);

/* Local, never waits for other ranks. NULL is allowed. */
TA_API void ta_plan_destroy(ta_plan *plan);

/* What the steps of a plan cost on this rank, counted since it was made. Memory is what plans and
 * ta_device_alloc() hold on the plan's device, now and at most since it was opened. Times are of
 * the host: with a stream they are the time to queue the work. What a step does beside attending is
 * moving, merging and waiting for other ranks. */
typedef struct ta_plan_stats {
    size_t size;
    uint64_t steps;
    uint64_t step_ns, attend_ns; /* of all steps; attend_ns is in step_ns */
    uint64_t workspace_bytes;    /* of this plan */
    uint64_t device_bytes, device_bytes_most;
    /* On a GPU: time in which its steps attended, of all plans of the device, by its own clock,
     * while its stopwatch ran (ta_device_timer_start()) and as of when that was read. Steps that
     * are replayed, and more than 128 attends on one start, are not in it. */
    uint64_t device_attend_ns;
} ta_plan_stats;
#define TA_PLAN_STATS_INIT                                                                         \
    {                                                                                              \
        sizeof(ta_plan_stats), 0, 0, 0, 0, 0, 0, 0                                                 \
    }

TA_API ta_status ta_plan_get_stats(const ta_plan *plan, ta_plan_stats *stats);

/* ---- Decode -------------------------------------------------------------------------------- */

/* A tensor [batch][token][head][dim] in device memory, dim contiguous. A stride of 0 is the
 * dense one: head_stride = dim, token_stride = heads · head_stride, batch_stride = tokens ·
 * token_stride. `data` is aligned to an element at least; 16 bytes is faster. */
typedef struct ta_tensor {
    void *data;           /* device memory */
    int64_t batch_stride; /* of K and V with a page table: the stride from page to page */
    int64_t token_stride;
    int64_t head_stride;
} ta_tensor;

/* Scales of 8-bit K or V: an element is what its byte says times the scale of its token and KV
 * head, data[b·batch_stride + t·token_stride + h·head_stride] for token t of sequence b, or with a
 * page table of page b. A stride of 0 means that the scale is the same along that axis:
 *
 *     {NULL, 0, 0, 0}      every scale is 1; with other strides NULL is an error
 *     {data, 0, 0, 0}      one scale for the whole tensor
 *     {data, 0, 0, 1}      [kv_heads], one for each KV head
 *     {data, n·h, h, 1}    [batch or page][n tokens][h KV heads], one for each token and head;
 *                          those of tokens that no query sees are not read */
typedef struct ta_scales {
    float *data; /* device memory, written by ta_append() alone, if it is asked to */
    int64_t batch_stride, token_stride, head_stride;
} ta_scales;

/* The shard of the KV cache that this rank holds. Without a page table K is
 * [batch][token][kv_heads][k_dim] with max_tokens tokens, V likewise with v_dim. With a page table
 * K is [page][token][kv_heads][k_dim] with page_tokens tokens, and local token i of sequence b is
 * token i % page_tokens of page page_table[b·page_table_stride + i / page_tokens]. V may be a view
 * into K. Memory beyond a sequence's length is never read. All pointers are device memory; tensors
 * and the tables of sequences alike, so that a step needs nothing from the host. */
typedef struct ta_kv {
    size_t size;
    ta_tensor k, v;
    /* Device memory [batch]: tokens of the whole sequence, over all ranks, ≥ 0. The same on all
     * ranks, which derive from it and the map what they hold. */
    const int32_t *lengths;
    const int32_t *bounds; /* device memory; contiguous map: [batch][ranks + 1] bounds, or NULL */
    int64_t bounds_stride; /* from one sequence's bounds to the next; 0: all share the first */
    const int32_t *page_table; /* device memory; NULL: not paged */
    int64_t page_table_stride; /* entries per sequence */
    int32_t page_tokens;       /* tokens per page, ≥ 1 */
    int32_t page_count;        /* pages in the pool: every entry in use is below it */
    /* Bytes from k.data and v.data to the ends of their memory; 0: not told. Every step checks that
     * all of K and V, as shape and strides say, is within. */
    size_t k_bytes, v_bytes;
    /* Of 8-bit K and V; otherwise data is NULL. Finite and above 0: the host, and a GPU in checked
     * mode, look at those that are the same for all tokens. They may differ between ranks. */
    ta_scales k_scale, v_scale;
} ta_kv;
#define TA_KV_INIT                                                                                 \
    {                                                                                              \
        sizeof(ta_kv), {NULL, 0, 0, 0}, {NULL, 0, 0, 0}, NULL, NULL, 0, NULL, 0, 0, 0, 0, 0,       \
            {NULL, 0, 0, 0},                                                                       \
        {                                                                                          \
            NULL, 0, 0, 0                                                                          \
        }                                                                                          \
    }

/* What one call adds to its plan. All ranks must give the same values (what pointers point to, not
 * the pointers). Fields will be added at the end.
 *
 * A call is uniform or ragged. Uniform: every sequence has the plan's query_tokens. Ragged:
 * `tokens` and `starts` say how many each has, from 0 to the plan's query_tokens. They are its last
 * ones: token t of the n of sequence b has position lengths[b] − n + t. */
typedef struct ta_call {
    size_t size;
    /* Any number that says which call this is: a layer, a request, a count of steps. 0: none. */
    uint64_t tag;
    int32_t batch; /* sequences of this call, 1 to the plan's; 0: the plan's */
    /* Ragged: query tokens over all sequences, 1 to the plan's max_call_tokens. 0: uniform. */
    int32_t tokens;
    /* Ragged: device memory [batch + 1], ascending from 0 to `tokens`: the tokens of sequence b are
     * the rows [starts[b], starts[b + 1]) of q, out and lse. */
    const int32_t *starts;
    const float *sinks;        /* device memory [query_heads]; NULL: the plan's */
    const float *alibi_slopes; /* device memory [query_heads]; NULL: the plan's */
    int32_t window;            /* > 0: this one; 0: the plan's; -1: none */
    float softcap;             /* > 0: this one; 0: the plan's; below 0: none */
    /* Selected positions: each query row sees only those of its list, of them what mask and window
     * let it see. Device memory [row][selected_lists][selected_count] of positions in the row's
     * sequence, in any order, -1 for none; rows as those of lse. Every rank is given all of them
     * and keeps those that it holds. A position must not stand in a list twice. NULL: all. */
    const int32_t *selected;
    int32_t selected_count; /* places of a list, 1 or more */
    int32_t selected_lists; /* of a row: 1 for all KV heads, or one for each of the plan's kv_heads;
                               0: 1 */
    /* Shared prefixes: in each of some groups of neighbouring sequences, the first tokens are the
     * same. Then they are read once for all of the group, from the cache of its first sequence:
     * what the others have in their place, pages too, is not looked at. Needs
     * config.shared_prefixes. Device memory [prefix_groups + 1], ascending from 0 to the call's
     * batch: group g has the sequences [prefix_starts[g], prefix_starts[g + 1]). */
    const int32_t *prefix_starts;
    /* Device memory [prefix_groups]: how many tokens of group g are shared; 0: none. At most the
     * length of its first sequence; another one that is shorter shares all it has. In reproducible
     * mode a multiple of the tile. */
    const int32_t *prefix_lengths;
    int32_t prefix_groups; /* 0: nothing is shared */
    int32_t reserved;
} ta_call;
#define TA_CALL_INIT                                                                               \
    {                                                                                              \
        sizeof(ta_call), 0, 0, 0, NULL, NULL, NULL, 0, 0.0f, NULL, 0, 0, NULL, NULL, 0, 0          \
    }

/* Attend: out = softmax(scores) · V over the whole sequence. Collective: every rank of the group
 * calls it with the same plan, lengths, bounds and tag.
 *
 * q     [batch][query_tokens][heads][k_dim], heads as the plan's query_placement gives this rank.
 *       NULL (or data NULL) on a rank that has none. In a ragged call it is packed,
 *       [token][heads][k_dim] without a batch stride: the tokens of the first sequence, then those
 *       of the next.
 * out   [batch][query_tokens][heads][v_dim], heads as out_placement gives this rank; NULL likewise;
 *       packed in a ragged call. May be the memory of q, never that of K or V.
 * lse   device memory for the log-sum-exp of each row's scores, with the sink:
 *       [batch][query_tokens][heads], or [token][heads] in a ragged call, dense; may be NULL. It is
 *       the log of the partition function: the paper's energy F at ζ = 0.
 * call  what this call adds to the plan; NULL: nothing.
 * stream  of the device's runtime; NULL on the host, where the call returns with the result there.
 *
 * A row that sees no key has output 0 and lse −inf (with a sink: lse is the sink). A NaN in the
 * query row or in a key that it sees makes that row NaN; one in a value makes that element of the
 * row NaN; no other row. A score of +inf makes the row NaN, one of −inf is a key that is not there.
 * The same inputs on the same number of ranks give the same bits, whatever the thread count (on a
 * GPU if the call has as many sequences and tokens); with config.reproducible_tile also on other
 * numbers of ranks and with other maps and exchanges.
 *
 * In a ring that passes K and V, selected positions are TA_ERR_UNSUPPORTED. A position that is not
 * in its sequence is an error, and so is one that stands in a list twice, which the rank that holds
 * it finds; on a GPU in checked mode alone, else undefined. The order in a list does not change a
 * bit. Of a paged cache only pages with selected tokens are looked at.
 *
 * On error nothing is written. A bad argument on one rank is an error on that rank and on every
 * rank that gets a result, and the group stays usable; with TA_PLACE_ROOT a rank that only sends
 * may return TA_OK. After any other error (a timeout, a lost rank) the group is broken.
 *
 * Ranks that are not in the same step are an error too: if plan, batch, tokens, starts, window,
 * soft-cap, selected positions, prefixes, lengths, bounds or tag differ, every rank that gets a
 * result gets TA_ERR_MISMATCH, with two ranks that differ and what differs, and the group stays
 * usable. A tree cannot tell which of them is wrong. Calls pair by their order: one that was left
 * out on one rank cannot be known if the next has the same plan and lengths and no other tag. What
 * is in a call's sinks and slopes is compared in checked mode alone.
 *
 * The number of query rows (call.tokens, or the batch times the plan's query_tokens) sizes the
 * messages. A call with another number than the plan's call before it (the first: than the largest
 * call) therefore compares it with all ranks before it sends anything of that size, which takes one
 * exchange more; if the group moves device memory the host waits for that, and a stream that is
 * being captured is TA_ERR_UNSUPPORTED: make one such call before the capture. Calls of the same
 * number as the last one do neither. A ring that passes K and V also counts the batch. The
 * exception is TA_PLACE_ROOT in host memory with an exchange in rounds, where only the root hears:
 * there ranks with different numbers are TA_ERR_MISMATCH too, but the group is broken.
 *
 * If the group moves device memory (ta_group_create_ccl), the call queues the step on `stream` and
 * returns, so other ranks' errors come later. Of a bad argument on another rank, or of ranks that
 * differ, a rank hears in its next ta_decode() with the plan that comes after the failed step has
 * run: that call returns the error once, naming the ranks. It takes part in its own step for the
 * others, and like the failed step it writes nothing here. ta_plan_check() tells of it without a
 * step. Of a broken group every later call tells. */
TA_API ta_status ta_decode(ta_plan *plan, const ta_tensor *q, const ta_kv *kv, const ta_tensor *out,
                           float *lse, const ta_call *call, void *stream);

/* Has a step that ran since the last call failed? Returns the error of the first one, once, as the
 * next ta_decode() would; TA_OK if there is none. For steps that a call only queued: after a
 * replay of a graph that the caller captured, say. It does not wait: what a step found is known
 * when its stream is done. Local: a rank may call it or not. */
TA_API ta_status ta_plan_check(ta_plan *plan);

/* ---- Append -------------------------------------------------------------------------------- */

/* Which rank has the new tokens that are to be stored. */
typedef enum ta_append_source {
    TA_APPEND_ALL = 0,   /* every rank has all of them */
    TA_APPEND_HEADS = 1, /* each rank has its ta_head_range() of the KV heads of all of them */
    TA_APPEND_LOCAL = 2  /* each rank has those that it will hold, and no others */
} ta_append_source;

/* New keys and values. K is [batch][query_tokens][heads][k_dim], or in a ragged call packed,
 * [token][heads][k_dim]; V likewise with v_dim. With TA_APPEND_LOCAL the tokens that this rank will
 * hold stand first in each sequence, in their order, and what follows is not read; in a ragged call
 * those of all sequences follow one another, as ta_attention_forward() leaves them. */
typedef struct ta_append_input {
    size_t size;
    ta_tensor k, v; /* data may be NULL on a rank that has none */
    ta_dtype dtype; /* of both; TA_DTYPE_NONE: as the cache */
    ta_append_source source;
    /* 1, for a cache of 8 bits and tokens of another type: the new tokens' scales are made here, so
     * that the largest number of a token and head is the type's largest, and written to kv.k_scale
     * and kv.v_scale, which must have one for each token and head. 0: they are there. */
    int32_t make_scales;
    int32_t reserved;
} ta_append_input;
#define TA_APPEND_INPUT_INIT                                                                       \
    {                                                                                              \
        sizeof(ta_append_input), {NULL, 0, 0, 0}, {NULL, 0, 0, 0}, TA_DTYPE_NONE, TA_APPEND_ALL,   \
            0, 0                                                                                   \
    }

/* Store new tokens: each rank writes those that the shard map gives it to kv.k and kv.v, in the
 * cache's type, to their pages if there are any. They are the last tokens of their sequences:
 * kv.lengths are those after appending, and a sequence gets query_tokens of them, or as many as
 * call.starts says. A sequence that is shorter than that has fewer. Of `call` only tag, batch,
 * tokens and starts count.
 *
 * With TA_APPEND_HEADS the call is collective, as ta_decode() is: a bad argument on one rank, or
 * ranks that are not in the same step, are an error on all of them, and nobody stores anything;
 * the number of new tokens and their type size its messages and are compared as those of a step. An
 * `input` that does not say which source it is (NULL, a wrong size, a source that there is not)
 * counts as TA_APPEND_HEADS if the plan has config.append_scattered, so that nobody waits in vain.
 * With the other sources nothing moves, no rank waits for another, and an error is this rank's;
 * that lengths differ between ranks, the next ta_decode() tells.
 *
 * The host checks lengths, bounds, starts, pages and the scales of new tokens before it stores
 * anything; a GPU in checked mode alone, and otherwise leaves out a token that has no place. On a
 * stream the call queues its work and returns; it can be captured where a step of ta_decode() can.
 * Elements of the cache's own type are copied as they are, others are rounded to nearest. For a
 * cache of 8 bits they are divided by their scale first, which must be finite and above 0, and what
 * is beyond the type's largest number becomes that number; a NaN stays one. */
TA_API ta_status ta_append(ta_plan *plan, const ta_append_input *input, const ta_kv *kv,
                           const ta_call *call, void *stream);

/* ---- Combine ------------------------------------------------------------------------------- */

/* The base of the logarithm in a log-sum-exp. */
typedef enum ta_lse_base { TA_LSE_E = 0, TA_LSE_2 = 1 } ta_lse_base;

/* Combine: every rank has the attention of its own keys, by any kernel, and gets that of all keys.
 * Collective: every rank of the group calls it with a plan made with config.combine_only, and the
 * same batch, tokens, starts and tag.
 *
 * part      [batch][query_tokens][query_heads][v_dim] in the plan's query_dtype, or packed in a
 *           ragged call: the output of this rank's keys, divided by the sum of their weights.
 * part_lse  device memory [batch][query_tokens][query_heads], dense: the log-sum-exp of this rank's
 *           scores, without the sink. −inf: the rank has no key for that row, and the row's output
 *           is not read. +inf or NaN: the row becomes NaN.
 * base      of part_lse; may differ between ranks.
 * out, lse  as in ta_decode(), at the plan's out_placement. lse is a natural logarithm. Either may
 *           be the memory of part or part_lse.
 * call      tag, batch, tokens, starts and sinks count; window, softcap, alibi_slopes, all of
 *           selected positions and prefixes must be left out. Sinks count once in total.
 *
 * A row without a key on any rank has output 0 and lse −inf (with a sink: lse is the sink). Where
 * the output is on all ranks, all have the same bits. Errors, mismatches, capture and config.replay
 * are those of ta_decode(). */
TA_API ta_status ta_combine(ta_plan *plan, const ta_tensor *part, const float *part_lse,
                            ta_lse_base base, const ta_tensor *out, float *lse, const ta_call *call,
                            void *stream);

#ifdef __cplusplus
}
#endif

#endif
