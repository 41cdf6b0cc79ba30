/* Ranks of a group of GPUs on the executor: threads of the test, each with its own device, its part
 * of a ccl group and two streams. Used by test_ccl_*.c; implemented in ccl_ranks.c. */
#ifndef TESTS_CCL_RANKS_H
#define TESTS_CCL_RANKS_H

#include <pthread.h>

#include "conformance.h"
#include "patience.h"

typedef struct ccl_rank {
    int rank, ranks;
    ta_device *device;
    ta_group *group;
    ta_group *threads; /* of the same ranks: over it the group is made, and ranks can meet */
    void *streams[2];  /* hipStream_t */
    void *context;     /* of the test */

    /* Memory that was given back. It is freed in the end: freeing waits for all streams of a
     * device, of which one may wait for a rank that waits in the same way. */
    pthread_mutex_t mutex;
    void **freed;
    size_t freed_count;
} ccl_rank;

typedef ta_status (*ccl_rank_fn)(ccl_rank *rank);

/* Make the ranks, run `fn` on each, end them. `timeout_ms` is that of the ccl group. As
 * ta_group_run_threads(). */
ta_status ccl_run(int ranks, int timeout_ms, ccl_rank_fn fn, void *context);

/* The device's memory and the rank's streams for the conformance suite. */
conformance_memory ccl_memory(ccl_rank *rank);

/* Have all communicators ended? Waits for at most a minute. */
bool ccl_all_gone(void);

#endif
