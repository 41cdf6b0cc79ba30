/* What a group does: move bytes between its ranks, and add them up. threads.c implements the
 * table for threads of one process; the other engines are modules (see module.h). group.c has the
 * public calls and builds the collectives that an engine leaves out from its point-to-point
 * messages, with reduce.c and split.c.
 *
 * Every wait is bounded by the group's timeout. Calls on one group happen in the same order on all
 * its ranks. After a failure other than TA_ERR_INVALID the group is broken: all calls on all ranks
 * fail with the first cause, and it can only be destroyed. `stream` orders the work on engines that
 * move device memory; others ignore it and return when the buffers may be reused. */
#ifndef TA_GROUP_H
#define TA_GROUP_H

#include <treeattn/collectives.h>

/* Ranks that are threads of one process: far more than a machine has CPUs. */
#define TA_MAX_THREAD_RANKS 4096

/* Elements are of the public ta_element_kind; what cannot be added up is moved as bytes. */
static inline size_t ta_element_bytes(ta_element_kind element)
{
    switch (element) {
    case TA_ELEMENT_BYTE:
        return 1;
    case TA_ELEMENT_F16:
    case TA_ELEMENT_BF16:
        return 2;
    case TA_ELEMENT_F32:
    case TA_ELEMENT_I32:
        return 4;
    case TA_ELEMENT_I64:
        return 8;
    }
    return 0;
}

/* Reductions over exchange() go piece by piece; the cost model counts the pieces. */
#define TA_REDUCE_PIECE_BYTES 65536

/* shared.h: memory that ranks of a group can all address; signals.h; device/peers.h. */
struct ta_shared;
struct ta_signals;
struct ta_peers;

typedef struct ta_group_ops {
    const char *name; /* "threads", "mpi", … */

    /* Send to one rank and receive from another at the same time, without deadlock. Either side may
     * be left out with a rank of -1. A message of another size than expected is TA_ERR_MISMATCH. 0
     * bytes is a message too. */
    ta_status (*exchange)(ta_group *group, const void *send, size_t send_bytes, int to,
                          void *receive, size_t receive_bytes, int from, void *stream);

    void (*abort)(ta_group *group, const char *reason);
    void (*destroy)(ta_group *group);

    /* As ta_group_split(). split.c helps engines that have no such call of their own. */
    ta_status (*split)(ta_group *group, int color, int key, ta_group **part);

    /* Optional, both or neither: begin an exchange now and end it later, so that computing goes on
     * while it is under way. NULL: start() is a whole exchange(), and finish() has nothing to do.
     * An engine with messages that complete by themselves posts both sides in start() (MPI_Isend
     * and MPI_Irecv, say) and in finish() waits for both, at most the group's timeout from then.
     * The contract is that of ta_group_start(). */
    ta_status (*start)(ta_group *group, const void *send, size_t send_bytes, int to, void *receive,
                       size_t receive_bytes, int from, void *stream);
    ta_status (*finish)(ta_group *group, void *stream);

    /* Wait until what was queued on `stream` is done, no longer than the timeout; returns what the
     * group found wrong meanwhile. Only of groups of device memory. */
    ta_status (*wait)(ta_group *group, void *stream);

    /* Optional: NULL is built from exchange(), which needs a group of host memory where something
     * is added up or copied. Their contracts are those of the functions below. */
    ta_status (*barrier)(ta_group *group, void *stream);
    ta_status (*broadcast)(ta_group *group, void *data, size_t bytes, int root, void *stream);
    ta_status (*all_gather)(ta_group *group, void *data, const size_t *offsets, void *stream);
    ta_status (*all_reduce)(ta_group *group, const void *from, void *to, size_t count,
                            ta_element_kind element, ta_reduction reduction, void *stream);
    ta_status (*reduce_scatter)(ta_group *group, const void *from, void *to, const size_t *offsets,
                                ta_element_kind element, ta_reduction reduction, void *stream);

    /* Optional, all three or none: ranks address each other's memory. NULL: they do not, and there
     * is no direct exchange.
     * share(): collective over `ranks`, ascending numbers of the group with this one among them:
     * memory of so many bytes for all of them, zero at first. TA_ERR_UNSUPPORTED if it can't be had
     * here, as on another host; then another rank may think that it has it, and the caller
     * finds out.
     * await(): wait until a word in such memory, of `peer`, has come to `epoch`. `ranks` of them
     * may be waiting at once: where there are fewer CPUs, the CPU is given up at once.
     * wake(): a word was set that this rank may be asleep for. */
    ta_status (*share)(ta_group *group, const int *ranks, int count, size_t bytes,
                       struct ta_shared **shared);
    ta_status (*await)(ta_group *group, int peer, int ranks, const uint32_t *word, uint32_t epoch);
    void (*wake)(ta_group *group, int peer);
} ta_group_ops;

struct ta_group {
    const ta_group_ops *ops;
    int rank, size;
    int timeout_ms;
    int node;          /* which node this rank is on, above 0; 0: the host's name says it */
    ta_device *device; /* whose memory this group moves; NULL: host memory */
    int holds_device;  /* and lets go of it when it is destroyed */
    /* What the call that is under way is, 0: not told (label.h). Engines of host memory send it
     * with every message, and one with another label is TA_ERR_MISMATCH. */
    uint64_t label;
    ta_group_stats stats;
    struct ta_signals *signals; /* of its direct exchanges, one for each set of ranks that share */
    struct ta_peers *peers;     /* of its direct exchanges on GPUs, one for each plan */
};

/* The calls below count into group->stats, engines do not: each message of exchange(), and a
 * collective that the engine has itself as one message out, with the bytes that this rank gave, and
 * one in, with the bytes that it got. */

ta_status ta_group_exchange(ta_group *group, const void *send, size_t send_bytes, int to,
                            void *receive, size_t receive_bytes, int from, void *stream);

/* As ta_group_exchange(), in two parts: until finish() has returned, `send` stays as it is and
 * `receive` is not looked at. After a start() that succeeded, finish() is called once, also when
 * the step failed in between; when it returns, with success or not, nobody uses the two buffers any
 * more. One exchange of a group is under way at a time, and until it is finished nothing else is
 * called on the group but abort(). The other side may use start() or ta_group_exchange(). On a
 * stream all of this is in its order: what is queued between the two runs beside the exchange, and
 * what is queued after finish() runs after it. */
ta_status ta_group_start(ta_group *group, const void *send, size_t send_bytes, int to,
                         void *receive, size_t receive_bytes, int from, void *stream);
ta_status ta_group_finish(ta_group *group, void *stream);

/* No rank returns (on a stream: goes on) before all have come. */
ta_status ta_group_barrier(ta_group *group, void *stream);

/* Copy `root`'s data to all. */
ta_status ta_group_broadcast(ta_group *group, void *data, size_t bytes, int root, void *stream);

/* Rank r contributes offsets[r] … offsets[r + 1] bytes of `data`; afterwards all ranks have all. */
ta_status ta_group_all_gather(ta_group *group, void *data, const size_t *offsets, void *stream);

/* to[i] = the reduction of all ranks' from[i], the same bits on all ranks and in every run. In
 * place if to == from; otherwise they do not overlap. Sums of 16-bit elements are added in f32 and
 * rounded once. */
ta_status ta_group_all_reduce(ta_group *group, const void *from, void *to, size_t count,
                              ta_element_kind element, ta_reduction reduction, void *stream);

/* Rank r gets the reduction of elements offsets[r] … offsets[r + 1] of all ranks' `from` at `to`,
 * the same bits in every run. In place if `to` is that part of `from`; otherwise they do not
 * overlap. In place, the other parts are left as they were. */
ta_status ta_group_reduce_scatter(ta_group *group, const void *from, void *to,
                                  const size_t *offsets, ta_element_kind element,
                                  ta_reduction reduction, void *stream);

/* The same for memory of the host, whatever the group moves; done when they return. For what is not
 * part of a step (host.c). */
ta_status ta_group_broadcast_host(ta_group *group, void *data, size_t bytes, int root);
ta_status ta_group_all_gather_host(ta_group *group, void *data, const size_t *offsets);

/* The maximum of each of `count` integers of host memory over all ranks. A group that moves device
 * memory needs `memory` of its device for as many, or allocates some if that is NULL; it waits for
 * the stream. */
ta_status ta_group_max_host(ta_group *group, int64_t *numbers, size_t count, void *memory,
                            void *stream);

/* From now on until it is removed, kernels that wait in such an exchange hear of a rank that is
 * lost when the group is aborted. Removing what was not added does nothing. */
void ta_group_add_peers(ta_group *group, ta_device *device, struct ta_peers *peers);
void ta_group_remove_peers(ta_group *group, struct ta_peers *peers);

/* ta_group_abort() because of another rank, whose ta_fault_lost_word() is the word: that one is
 * named to the kernels that wait, not this one. */
void ta_group_abort_for(ta_group *group, int32_t word, const char *reason);

/* From now on the device, if the group moves its memory, exists as long as the group. */
void ta_group_hold_device(ta_group *group);

/* The config's timeout with its default filled in; `config` may be NULL. */
ta_status ta_group_check_config(const ta_group_config *config, int *timeout_ms);

/* reduce.c: the reductions over exchange(), in host memory. */
ta_status ta_reduce_all(ta_group *group, void *data, size_t count, ta_element_kind element,
                        ta_reduction reduction);
ta_status ta_reduce_part(ta_group *group, const void *from, void *to, const size_t *offsets,
                         ta_element_kind element, ta_reduction reduction);
/* The same of equal parts: `count` elements each, rank r's from element r · stride on. */
ta_status ta_reduce_even_part(ta_group *group, const void *from, void *to, size_t stride,
                              size_t count, ta_element_kind element, ta_reduction reduction);
/* Elements in a message of a reduction. */
size_t ta_reduce_piece_elements(ta_element_kind element);

/* Which ranks of a group go into the part that this one is in. */
typedef struct ta_members ta_members;
struct ta_members {
    int rank, size; /* this rank's number in the part, and how many it has */
    int *ranks;     /* [size]: the part's ranks, as the group numbers them */
};

/* split.c: tell all ranks of a group, in host memory, of this one's color and key, and sort.
 * A negative color is in no part: size is 0. Free with ta_members_free(). */
ta_status ta_members_gather(ta_group *group, int color, int key, ta_members *members);
void ta_members_free(ta_members *members);

#endif
