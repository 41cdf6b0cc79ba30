/* Inside the groups of device memory, which NCCL or RCCL moves: what the ccl_*.c files share.
 *
 *     library.c   finds the library and its functions
 *     create.c    makes groups: from an id, a communicator or another group
 *     split.c     and from groups of their own kind
 *     call.c      the frame around every call: device, lock, errors, time
 *     moves.c     the moves: exchange, broadcast, all-gather …   reduce.c   the reductions
 *     own.c       NCCL's own calls, for benchmarks
 *     watch.c     what goes wrong later, abort, and the end of groups
 *     scratch.c   memory and events of a group
 *
 * The ranks of a group that live in this process share a ta_ccl_world, so that trouble of one of
 * them reaches the others at once. Ranks elsewhere hear of it from the library, or by the
 * timeout. */
#ifndef TA_HIP_CCL_H
#define TA_HIP_CCL_H

#define TA_CCL_CALLS
#include "base/clock.h"
#include "gpu.h"

#include <pthread.h>
#include <stdatomic.h>

/* ---- The library --------------------------------------------------------------------------- */

#define TA_CCL_REQUIRED(X)                                                                         \
    X(ncclGetVersion)                                                                              \
    X(ncclGetUniqueId)                                                                             \
    X(ncclGetErrorString)                                                                          \
    X(ncclCommInitRank)                                                                            \
    X(ncclCommGetAsyncError)                                                                       \
    X(ncclCommCount)                                                                               \
    X(ncclCommUserRank)                                                                            \
    X(ncclCommCuDevice)                                                                            \
    X(ncclCommDestroy)                                                                             \
    X(ncclCommAbort)                                                                               \
    X(ncclGroupStart)                                                                              \
    X(ncclGroupEnd)                                                                                \
    X(ncclSend)                                                                                    \
    X(ncclRecv)                                                                                    \
    X(ncclBroadcast)                                                                               \
    X(ncclAllGather)                                                                               \
    X(ncclAllReduce)

/* Used if the header and the library are both of this version: X(name, major, minor). */
#define TA_CCL_OPTIONAL(X)                                                                         \
    X(ncclGetLastError, 2, 13)                                                                     \
    X(ncclCommInitRankConfig, 2, 14)                                                               \
    X(ncclCommFinalize, 2, 14)                                                                     \
    X(ncclCommSplit, 2, 18)

typedef struct ta_ccl_library {
#define TA_CCL_MEMBER(name) __typeof__(name) *name;
#define TA_CCL_OPTIONAL_MEMBER(name, major, minor) __typeof__(name) *name; /* or NULL */
    TA_CCL_REQUIRED(TA_CCL_MEMBER)
    TA_CCL_OPTIONAL(TA_CCL_OPTIONAL_MEMBER)
#undef TA_CCL_MEMBER
#undef TA_CCL_OPTIONAL_MEMBER
    int version;
} ta_ccl_library;

/* The library, or an error that says why there is none. */
ta_status ta_ccl_open(const ta_ccl_library **library);
/* The same if the caller of this module has it loaded already: for what the caller made with it. */
ta_status ta_ccl_open_callers(const ta_ccl_library **library);
void ta_ccl_describe(ta_text *text);

/* ---- Groups -------------------------------------------------------------------------------- */

#define TA_CCL_SCRATCH_BYTES ((size_t)1 << 20)

typedef struct ta_ccl_group ta_ccl_group;

/* What the ranks of one group in this process share. Guarded by the registry's lock. */
typedef struct ta_ccl_world {
    struct ta_ccl_world *next;
    char id[TA_CCL_ID_BYTES];
    int size;
    int references;
    ta_ccl_group *members;
    unsigned char *joined; /* [size]: ranks of this process that came */
    atomic_int broken;     /* then the following two are set for good */
    ta_status status;
    char reason[320];
} ta_ccl_world;

#define TA_CCL_ALL (-1)
#define TA_CCL_UNMARKED (-2) /* nothing was queued on a stream */

/* Something queued on a stream, to see whether it ends. */
typedef struct ta_ccl_mark {
    hipEvent_t event;
    void *stream;
    int peer; /* the rank it needs most, or TA_CCL_ALL of them */
} ta_ccl_mark;

struct ta_ccl_group {
    ta_group group;
    const ta_ccl_library *nccl;
    ta_ccl_world *world;
    ta_ccl_group *next;    /* in its world, or among those that are leaving */
    int index;             /* of the device */
    int device_before;     /* the caller's, during a call */
    pthread_mutex_t calls; /* held during calls on `comm` and while marks change */
    ncclComm_t comm;       /* NULL: aborted, or not made yet */
    int adopted;           /* it is somebody else's */
    unsigned splits;
    ncclComm_t part; /* of a split under way: the library writes it at any time before an abort */
    void *scratch;   /* TA_CCL_SCRATCH_BYTES of device memory */
    size_t *offsets; /* [size + 1], for reductions */

    /* What start() begins runs beside the caller's stream, which finish() makes wait for it. */
    hipStream_t side;
    hipEvent_t fork, join;

    /* marks[0] is waited for since `since_ms`; later work is in marks[1], the newest only, which
     * comes behind all that it replaced, whatever their streams. */
    ta_ccl_mark marks[2];
    int marked;       /* 0, 1 or 2 of them */
    int64_t since_ms; /* also: when a group that is leaving began to */
    int finalizing;
};

static inline ta_ccl_group *ta_ccl_of(ta_group *group)
{
    return (ta_ccl_group *)group; /* its first member */
}

extern const ta_group_ops ta_ccl_ops; /* moves.c */

/* ---- create.c -------------------------------------------------------------------------- */

ta_status ta_ccl_new_id(ta_device *device, void *id);
ta_status ta_ccl_create(ta_device *device, const ta_ccl_config *ccl, const ta_group_config *config,
                        ta_group **group);

/* A group without a communicator, in the world of `id`. */
ta_status ta_ccl_make(ta_device *device, const char *id, int rank, int ranks, int timeout_ms,
                      ta_ccl_group **made);
/* Give it one that there is: its watcher may be looking already. */
void ta_ccl_give(ta_ccl_group *g, ncclComm_t comm, int adopted);
/* Give it one by the id of its world. */
ta_status ta_ccl_join(ta_ccl_group *g);
/* All ranks of a group of any kind tell how they fared: TA_OK if all did well, or the first cause,
 * on all of them. */
ta_status ta_ccl_hear_all(ta_group *group, ta_status status);

/* ---- split.c --------------------------------------------------------------------------- */

ta_status ta_ccl_split(ta_group *group, int color, int key, ta_group **part);

/* ---- call.c ---------------------------------------------------------------------------- */

void ta_ccl_pause(void);

/* Around calls of the library on the group's communicator. If begin fails, nothing is to be done;
 * end waits until the library has taken the calls, marks the stream, and turns `result` into a
 * status. `peer` as in ta_ccl_mark. */
ta_status ta_ccl_begin(ta_ccl_group *g);
ta_status ta_ccl_end(ta_ccl_group *g, ncclResult_t result, void *stream, int peer);

/* With the lock: make the stream wait for the group's calls on other streams, of which one may be
 * using the scratch memory. Not in a capture, which can't wait for what is outside. */
ncclResult_t ta_ccl_follow(ta_ccl_group *g, void *stream);

/* With the lock: ask until `comm` is no more in progress, or too long. The lock is released in
 * between; ncclInProgress comes back after the timeout, ncclSuccess if the group broke. */
ncclResult_t ta_ccl_settle(ta_ccl_group *g, ncclComm_t comm, ncclResult_t result);

/* ncclSuccess, or the first result that was not. */
static inline ncclResult_t ta_ccl_first(ncclResult_t first, ncclResult_t next)
{
    return first != ncclSuccess ? first : next;
}

/* A result of the library in words. Valid until the next call on this thread. */
const char *ta_ccl_words(const ta_ccl_library *nccl, ncclComm_t comm, ncclResult_t result);

/* Wait for the stream, no longer than the timeout. */
ta_status ta_ccl_wait(ta_group *group, void *stream);

/* ---- reduce.c -------------------------------------------------------------------------- */

ta_status ta_ccl_all_reduce(ta_group *group, const void *from, void *to, size_t count,
                            ta_element_kind element, ta_reduction reduction, void *stream);
ta_status ta_ccl_reduce_scatter(ta_group *group, const void *from, void *to, const size_t *offsets,
                                ta_element_kind element, ta_reduction reduction, void *stream);

/* ---- watch.c --------------------------------------------------------------------------- */

/* Enter a group in the world of `id`, which is made if there is none. */
ta_status ta_ccl_register(ta_ccl_group *g, const char *id);

/* Which ranks of this process came, in words. */
void ta_ccl_describe_joined(ta_ccl_world *world, char *text, size_t capacity);

/* Break the group on all ranks of this process. The first cause stays; returns it. Not with the
 * lock `calls`. */
__attribute__((format(printf, 3, 4))) ta_status ta_ccl_break(ta_ccl_group *g, ta_status status,
                                                             const char *format, ...);
/* TA_OK, or why the group is broken. */
ta_status ta_ccl_broken(const ta_ccl_group *g);

void ta_ccl_abort(ta_group *group, const char *reason);
void ta_ccl_destroy(ta_group *group);

/* ---- scratch.c ------------------------------------------------------------------------- */

/* Events, scratch memory and the side stream of a group on the current device. */
ta_status ta_ccl_take(ta_ccl_group *g);
/* Free a group that has no communicator any more. `done`: the device uses nothing of it, so its
 * scratch memory can serve another group. */
void ta_ccl_free(ta_ccl_group *g, int done);

#endif
