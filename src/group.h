/* What a group does: move bytes between its ranks. group_threads.c implements the table for threads
 * of one process; other engines implement the same table. group.c has the public calls and builds
 * the collectives that an engine leaves out from its point-to-point messages.
 *
 * Every wait is bounded by the group's timeout. Calls on one group happen in the same order on all
 * its ranks. After a failure other than TA_ERR_INVALID the group is broken: all calls on all ranks
 * fail with the first cause, and it can only be destroyed. `stream` orders the work on engines that
 * move device memory; others ignore it and return when the buffers may be reused. */
#ifndef TA_GROUP_H
#define TA_GROUP_H

#include <treeattn/treeattn.h>

/* Ranks that are threads of one process: far more than a machine has CPUs. */
#define TA_MAX_THREAD_RANKS 4096

typedef struct ta_group_ops {
    const char *name; /* "threads", "mpi", … */

    /* Send to one rank and receive from another at the same time, without deadlock. Either side may
     * be left out with a rank of -1. A message of another size than expected is TA_ERR_MISMATCH. 0
     * bytes is a message too. */
    ta_status (*exchange)(ta_group *group, const void *send, size_t send_bytes, int to,
                          void *receive, size_t receive_bytes, int from, void *stream);

    void (*abort)(ta_group *group, const char *reason);
    void (*destroy)(ta_group *group);

    /* Optional: NULL is built from exchange() by group.c. */
    ta_status (*barrier)(ta_group *group, void *stream);
    ta_status (*broadcast)(ta_group *group, void *data, size_t bytes, int root, void *stream);
    /* Rank r contributes offsets[r] … offsets[r + 1] bytes of `data`; afterwards all ranks have
     * all. */
    ta_status (*all_gather)(ta_group *group, void *data, const size_t *offsets, void *stream);
} ta_group_ops;

struct ta_group {
    const ta_group_ops *ops;
    int rank, size;
    int timeout_ms;
    ta_group_stats stats;
};

ta_status ta_group_exchange(ta_group *group, const void *send, size_t send_bytes, int to,
                            void *receive, size_t receive_bytes, int from, void *stream);
ta_status ta_group_barrier(ta_group *group, void *stream);
ta_status ta_group_broadcast(ta_group *group, void *data, size_t bytes, int root, void *stream);
ta_status ta_group_all_gather(ta_group *group, void *data, const size_t *offsets, void *stream);

#endif
