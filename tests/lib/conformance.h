/* What every group must do, whatever moves its bytes: the same checks run for threads
 * (test_group_conformance.c), for MPI (mpi/conformance.c) and for groups of device memory. Each
 * rank of a group calls conformance_run(). */
#ifndef TESTS_CONFORMANCE_H
#define TESTS_CONFORMANCE_H

#include <stdbool.h>

#include "group/group.h"

/* Where the group's buffers are. */
typedef struct conformance_memory {
    void *context;
    ta_status (*alloc)(void *context, size_t bytes, void **memory);
    void (*free)(void *context, void *memory);
    /* Copy from or to host memory in the order of `stream`; done when it returns. */
    ta_status (*write)(void *context, void *to, const void *from, size_t bytes, void *stream);
    ta_status (*read)(void *context, void *to, const void *from, size_t bytes, void *stream);
    /* Wait until the work on `stream` is done. */
    ta_status (*finish)(void *context, void *stream);
    void *streams[2];  /* for calls on one group, and on another at the same time */
    ta_device *device; /* for the public collectives; NULL: the group's, or host memory */
    bool threads;      /* may a second thread use another group at the same time? */
} conformance_memory;

/* Host memory, no streams. */
extern const conformance_memory conformance_host;

/* All checks, with messages of up to `most_bytes`. Collective. On failure the sentence of the error
 * says which case it was. */
ta_status conformance_run(ta_group *group, const conformance_memory *memory, size_t most_bytes);

/* ---- Between the files of the suite --------------------------------------------------------- */

/* One group under test on one stream. `what` describes the case at hand. */
typedef struct conformance {
    const conformance_memory *memory;
    ta_group *group;
    void *stream;
    char what[160];
} conformance;

#define CONFORM(c, condition)                                                                      \
    do {                                                                                           \
        if (!(condition))                                                                          \
            return ta_fail(TA_ERR_DEVICE, "%s:%d: not so: %s (rank %d of %d: %s)", __FILE__,       \
                           __LINE__, #condition, (c)->group->rank, (c)->group->size, (c)->what);   \
    } while (0)

/* A buffer of the group, with a copy in host memory, and bytes behind the end that nobody may
 * touch. */
typedef struct area {
    void *memory;
    unsigned char *host;
    size_t bytes;
} area;

ta_status area_make(conformance *c, size_t bytes, area *made);
void area_free(conformance *c, area *a);
/* Host copy → memory, and back. area_read() also looks at the bytes behind the end. */
ta_status area_write(conformance *c, area *a);
ta_status area_read(conformance *c, area *a);

/* Bytes that tell who wrote them, where and when. */
void pattern_fill(unsigned char *data, size_t bytes, int rank, int round);
bool pattern_is(const unsigned char *data, size_t bytes, int rank, int round);

/* What a reduction over `size` ranks makes of element i, of which `input` is each rank's. */
int64_t conformance_reduced(ta_reduction reduction, int size, size_t i,
                            int64_t (*input)(int rank, size_t i));

ta_status conformance_moves(conformance *c, size_t bytes);      /* conformance_moves.c */
ta_status conformance_reductions(conformance *c, size_t bytes); /* conformance_reduce.c */
ta_status conformance_reduction_values(conformance *c);
ta_status conformance_collectives(conformance *c, size_t bytes); /* conformance_collectives.c */
ta_status conformance_rounds_once(conformance *c);
ta_status conformance_barrier(conformance *c); /* conformance_groups.c */
ta_status conformance_split(conformance *c, size_t bytes);
ta_status conformance_overlap(conformance *c, size_t bytes);
ta_status conformance_shared(conformance *c); /* conformance_shared.c */

/* Runs of the suite on so many ranks, with messages of so many bytes at most. The first error is
 * returned, with the number of ranks in its sentence. */
typedef struct conformance_size {
    int ranks;
    size_t most_bytes;
} conformance_size;

ta_status conformance_sizes(const conformance_size *sizes, size_t count,
                            ta_status (*run_on)(int ranks, size_t most_bytes));

#endif
