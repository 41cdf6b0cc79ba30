/* The engine whose messages go through the caller's own transport (ta_transport): what its files
 * share.
 *
 * custom.c           the life of a group: create, split, abort, destroy
 * custom_exchange.c  messages
 * custom_control.c   waiting: how long, for whom, and how a failure gets to all ranks
 *
 * A group has two channels of the transport. On the first a message is a head of fixed size, with
 * short messages in it, and a body of the size that the head says, so that both sides of every
 * transfer always agree on its size. On the second one every rank listens to every other for
 * control frames: the group is broken, whom do you wait for, I leave. */
#ifndef TA_GROUP_CUSTOM_H
#define TA_GROUP_CUSTOM_H

#include <pthread.h>
#include <stdatomic.h>

#include "broken.h"
#include "group.h"

#define TA_CUSTOM_HEAD_BYTES 256

/* What the groups of one transport share in this process. */
typedef struct ta_custom_wire {
    ta_transport transport;
    pthread_mutex_t mutex;
    int next_channel; /* that no group of this rank has */
    int users;        /* groups */
} ta_custom_wire;

/* The first transfer of every message. */
typedef struct ta_custom_head {
    uint64_t bytes; /* of the message */
    uint64_t label; /* of the sender's call */
    char data[TA_CUSTOM_HEAD_BYTES - 16];
} ta_custom_head;

typedef enum ta_custom_kind {
    TA_CUSTOM_BROKEN = 1, /* value is the status, reason the cause */
    TA_CUSTOM_ASK,        /* whom do you wait for? */
    TA_CUSTOM_ANSWER,     /* value: that rank, -1: nobody */
    TA_CUSTOM_LEAVE       /* value: how many messages it has sent to the one that hears it */
} ta_custom_kind;

typedef struct ta_custom_frame {
    int64_t value;
    int32_t kind, rank; /* rank: who says it */
    char reason[TA_BROKEN_REASON_BYTES];
} ta_custom_frame;

/* What a group says to and hears from one other rank. */
typedef struct ta_custom_peer {
    ta_custom_frame heard, said, notice;
    ta_transfer hear, say, tell; /* of these frames */
    int64_t sent, received;      /* messages */
    int64_t left_after;          /* of its messages it left the group; -1: it has not */
} ta_custom_peer;

/* The message that is under way, in each direction. */
typedef struct ta_custom_flow {
    int peer; /* -1: none */
    ta_custom_head head;
    ta_transfer first, rest; /* the head and the body; bytes 0: none, or not yet */
    char *data;              /* the caller's */
    size_t bytes;
    char *bounce; /* the body's memory of our own, if the transport holds on to memory */
    size_t bounce_bytes;
} ta_custom_flow;

typedef struct ta_custom_group {
    ta_group group;
    ta_custom_wire *wire;
    int *wire_ranks; /* [size] */
    int channel;     /* of messages; the next one is for control */
    /* Around everything that the transport and the control frames touch: the thread of the rank
     * has it while it is in a call, an aborting one for a moment. */
    pthread_mutex_t mutex;
    ta_broken broken;
    int told;        /* the others know */
    int waits_for;   /* the rank it waits for, -1 when it does not wait */
    int answered_by; /* the last answer to a question */
    int64_t answer;
    ta_custom_flow out, in;
    ta_custom_peer *peers;               /* [size] */
    ta_transfer **list;                  /* [3 · size + 4]: what the transport is asked to move */
    struct ta_custom_group *left_behind; /* custom.c */
} ta_custom_group;

/* ---- custom_exchange.c ---- */

ta_status ta_custom_exchange(ta_group *group, const void *send, size_t send_bytes, int to,
                             void *receive, size_t receive_bytes, int from, void *stream);
ta_status ta_custom_start(ta_group *group, const void *send, size_t send_bytes, int to,
                          void *receive, size_t receive_bytes, int from, void *stream);
ta_status ta_custom_finish(ta_group *group, void *stream);

/* ---- custom_control.c; the caller has the group's mutex ---- */

/* Ask the transport to move what there is, for at most `timeout_ms`, and hear what others say. */
ta_status ta_custom_progress(ta_custom_group *g, int timeout_ms);
/* Before a call: is the group still whole? */
ta_status ta_custom_check(ta_custom_group *g);
/* One round of waiting for `peer`, who must come by `deadline`, nanoseconds of the clock. */
ta_status ta_custom_wait_round(ta_custom_group *g, int64_t deadline, int peer);
/* Break the group, if it is not broken yet, and tell all ranks. */
ta_status ta_custom_fail(ta_custom_group *g, ta_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Tell all ranks why the group is broken, once. */
void ta_custom_tell(ta_custom_group *g);
/* Tell all ranks that this one leaves. */
void ta_custom_leave(ta_custom_group *g);
/* Listen to a rank. */
void ta_custom_listen(ta_custom_group *g, int rank);

static inline int ta_custom_is_over(const ta_transfer *t)
{
    return t->moved == t->bytes || t->failed;
}

#endif
