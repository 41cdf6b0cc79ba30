/* Steps that are not the same on all ranks, in each way that a program can get wrong: every rank
 * that gets a result hears in what two ranks differ, nothing is written, and the next step is
 * right. For any group of two ranks or more: test_mismatch.c has threads, mpi/faults.c processes,
 * test_ccl_mismatch.c GPUs. */
#ifndef TESTS_DIFFERING_STEP_H
#define TESTS_DIFFERING_STEP_H

#include <treeattn/cluster.h>

typedef enum differing_kind {
    LOCAL_LENGTHS, /* every rank gives the lengths of its shard */
    ONE_AHEAD,     /* one rank is a token ahead of the others */
    OTHER_TAG,     /* one is in another layer's call */
    OTHER_BOUNDS,  /* one has other bounds */
    OTHER_PLAN,    /* two plans in another order on one rank */
    OTHER_QUERY,   /* one has other bits in its query; found in checked mode */
    OTHER_STARTS,  /* one divides the same number of query tokens among sequences differently */
    OTHER_TOKENS,  /* one is ragged, with as many rows as the others */
    OTHER_WINDOW,  /* one has the window of another layer */
    OTHER_BATCH,   /* one has fewer sequences, and so other sizes of messages */
    FEWER_TOKENS,  /* one has fewer query tokens than the others, and than the call before */
    STALE_TOKENS,  /* the others do, and it has not */
    TWO_TOTALS,    /* all do, but not the same number */
    DIFFERING_KINDS
} differing_kind;

typedef struct differing_step {
    differing_kind kind;
    ta_algorithm algorithm;
    ta_exchange exchange;
    ta_placement placement; /* of the output */
    const ta_cluster *cluster;
    int root;
    int reproducible;
    int scattered; /* the query is, by heads */
    int who;       /* the rank that differs */
} differing_step;

/* One rank's part. `stream` is of the device. */
ta_status differing_step_rank(ta_group *group, ta_device *device, const differing_step *d,
                              void *stream);

/* Every algorithm, exchange and placement that the group can have on so many ranks, with every kind
 * of difference: number `i`. Returns 0 after the last. */
int differing_step_get(int i, int ranks, int device_memory, differing_step *d);

#endif
