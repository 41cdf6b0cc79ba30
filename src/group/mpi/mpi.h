/* The engine whose ranks are MPI processes: what its files share. It is a module of its own, so
 * that the core links no MPI and builds for several MPIs can live side by side.
 *
 * mpi.c           the module, and the life of a group: create, split, abort, destroy
 * join.c      creating one: who is there, then a duplicate of the caller's communicator
 * exchange.c  messages, cut into pieces that go through the group's own buffers
 * control.c   waiting: how long, for whom, and how a failure gets to all ranks
 * deferred_free.c     what MPI may still touch after a failure
 * shared.c    memory that processes of one host share
 *
 * No call waits inside MPI: everything is started, then tested until it is done, the group is
 * broken, or the time is up. */
#ifndef TA_GROUP_MPI_H
#define TA_GROUP_MPI_H

#include <mpi.h>
#include <pthread.h>
#include <stdatomic.h>

#include "base/rank_list.h"
#include "device/module.h"
#include "group/broken.h"
#include "group/group.h"

/* Bytes in a piece of a message, and pieces on their way in each direction. */
#define TA_MPI_PIECE_BYTES 65536
#define TA_MPI_SLOTS 4

extern const ta_core *ta_mpi_core;

/* A duplicate of the caller's communicator. A group and its parts share one and tell their messages
 * apart by tags. */
typedef struct ta_wire {
    MPI_Comm comm;
    int rank, size;
    int last_tag;     /* the largest that MPI allows */
    int speaks;       /* may every thread call MPI at any time? */
    atomic_int users; /* groups */
    atomic_int broken;
} ta_wire;

/* A piece on its way, in the group's memory: MPI never sees the caller's, so that it cannot touch
 * it after a call has failed. */
typedef struct ta_mpi_slot {
    uint64_t message_bytes; /* of the whole message: the receiver compares */
    uint64_t label;         /* of the sender's call, likewise */
    char data[TA_MPI_PIECE_BYTES];
} ta_mpi_slot;
#define TA_MPI_SLOT_HEADER offsetof(ta_mpi_slot, data)

typedef enum ta_mpi_control_kind {
    TA_MPI_BROKEN = 1, /* the group is broken: value is the status, reason the cause */
    TA_MPI_ASK,        /* whom do you wait for? */
    TA_MPI_ANSWER      /* value: that rank, -1: nobody */
} ta_mpi_control_kind;

typedef struct ta_mpi_control {
    int32_t kind, rank, value, pad; /* rank: who says it */
    char reason[TA_BROKEN_REASON_BYTES];
} ta_mpi_control;

/* All that MPI may read or write on behalf of a group, in one block: it is freed when none of its
 * requests is active. */
typedef struct ta_mpi_memory {
    ta_mpi_slot out[TA_MPI_SLOTS], in[TA_MPI_SLOTS];
    ta_mpi_control notice;    /* TA_MPI_BROKEN for all ranks */
    ta_mpi_control *controls; /* [size]: questions and answers to each rank */
    MPI_Request *requests;    /* TA_MPI_SLOTS out, as many in, [size] notices, [size] controls */
    int request_count;
} ta_mpi_memory;

/* One direction of an exchange, counted in pieces. Even an empty message is one piece. */
typedef struct ta_mpi_flow {
    int peer; /* -1: there is nothing to do */
    char *data;
    size_t bytes, pieces, started, finished;
} ta_mpi_flow;

typedef struct ta_mpi_group {
    ta_group group;
    ta_wire *wire;
    int *wire_ranks;          /* [size] */
    int tag;                  /* of its messages; the next one is for control */
    _Atomic(pthread_t) owner; /* the thread that made the last call */
    ta_broken broken;
    atomic_int told; /* the others know, or are being told */
    int cpus;        /* that this process has */
    int waits_for;   /* the rank it waits for, -1 when it does not wait */
    int *answers;    /* [size]: whom each waits for, see control.c */
    char *silent;    /* [size]: those that did not say */
    char *owes;      /* [size]: those that asked and have no answer yet; `questions` of them */
    int questions;
    ta_mpi_flow out, in; /* of the exchange that is under way */
    ta_mpi_memory *memory;
} ta_mpi_group;

/* A wait for one rank. */
typedef struct ta_mpi_wait {
    int64_t deadline; /* nanoseconds of the monotonic clock */
    int rounds;
    int suspect;   /* when the time is up: the rank that seems to be missing; -1: none yet */
    int reprieves; /* how often it was not sure */
} ta_mpi_wait;

/* Where the requests of each kind begin. */
static inline MPI_Request *ta_mpi_out(ta_mpi_memory *memory)
{
    return memory->requests;
}

static inline MPI_Request *ta_mpi_in(ta_mpi_memory *memory)
{
    return memory->requests + TA_MPI_SLOTS;
}

static inline MPI_Request *ta_mpi_notices(ta_mpi_memory *memory)
{
    return memory->requests + 2 * TA_MPI_SLOTS;
}

static inline MPI_Request *ta_mpi_controls(ta_mpi_memory *memory, int size)
{
    return ta_mpi_notices(memory) + size;
}

/* ---- join.c ---- */

/* Make sure that all ranks of `comm` are here, then duplicate it. Rank 0 chooses the tag. */
ta_status ta_mpi_join(MPI_Comm comm, int timeout_ms, ta_wire **wire, int *tag);
/* A tag that no other group has that shares a rank with the caller's process. */
ta_status ta_mpi_new_tag(const ta_wire *wire, int *tag);

/* ---- exchange.c ---- */

ta_status ta_mpi_exchange(ta_group *group, const void *send, size_t send_bytes, int to,
                          void *receive, size_t receive_bytes, int from, void *stream);

ta_status ta_mpi_start(ta_group *group, const void *send, size_t send_bytes, int to, void *receive,
                       size_t receive_bytes, int from, void *stream);
ta_status ta_mpi_finish(ta_group *group, void *stream);

/* ---- shared.c ---- */

ta_status ta_mpi_share(ta_group *group, const int *ranks, int count, size_t bytes,
                       struct ta_shared **shared);
ta_status ta_mpi_await(ta_group *group, int peer, int ranks, const uint32_t *word, uint32_t epoch);
void ta_mpi_wake(ta_group *group, int peer);

/* ---- control.c ---- */

ta_mpi_wait ta_mpi_wait_begin(int timeout_ms);
/* Let others run for a while. The first rounds return at once, later ones sleep a little. */
void ta_mpi_rest(ta_mpi_wait *wait);
/* One round of waiting for `peer`: hear what others say, answer, see whether the time is up. */
ta_status ta_mpi_wait_round(ta_mpi_group *g, ta_mpi_wait *wait, int peer);
/* Before a call: is the group still whole? */
ta_status ta_mpi_check(ta_mpi_group *g);
/* Break the group, if it is not broken yet, and tell all ranks. */
ta_status ta_mpi_fail(ta_mpi_group *g, ta_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Only mark it: for threads that may not call MPI. */
void ta_mpi_break(ta_mpi_group *g, ta_status status, const char *reason);
/* Tell all ranks why the group is broken, once. */
void ta_mpi_tell(ta_mpi_group *g);
/* Turn an error code of an MPI function into a failure of the group. */
ta_status ta_mpi_try(ta_mpi_group *g, int code, const char *function);

/* ---- deferred_free.c ---- */

/* Free `memory` when none of the requests, which are part of it, is active any more, now or later;
 * `wire` is left then too. Either may be NULL. Never waits. */
void ta_mpi_free_later(MPI_Request *requests, int count, void *memory, ta_wire *wire);
/* Is MPI done with all of these requests? */
int ta_mpi_all_done(MPI_Request *requests, int count);
/* Drop a user of the wire. */
void ta_mpi_leave(ta_wire *wire);

#endif
