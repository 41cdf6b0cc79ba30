/* What a group of MPI processes leaves behind. After a failure MPI may still be about to read or
 * write the group's buffers: a message that nobody takes cannot be called back. Such memory waits
 * here until MPI is done with it, for ever if need be. See mpi.h. */
#include <stdlib.h>

#include "mpi.h"

typedef struct deferred {
    struct deferred *next;
    MPI_Request *requests;
    int count;
    void *memory;
    ta_wire *wire;
} deferred;

static deferred *first_deferred;
static pthread_mutex_t deferred_mutex = PTHREAD_MUTEX_INITIALIZER;

/* MPI_Comm_free() works without the other ranks in every MPI that we know, but not while messages
 * may be on their way: the communicator of a broken group is left alone. */
void ta_mpi_leave(ta_wire *wire)
{
    int finalized = 0;
    if (!wire || atomic_fetch_sub(&wire->users, 1) != 1)
        return;
    MPI_Finalized(&finalized);
    if (!finalized && !atomic_load(&wire->broken))
        MPI_Comm_free(&wire->comm);
    free(wire);
}

int ta_mpi_all_done(MPI_Request *requests, int count)
{
    int finalized = 0, all = 1;
    MPI_Finalized(&finalized);
    for (int i = 0; i < count && !finalized; ++i) {
        int done = 0;
        if (requests[i] != MPI_REQUEST_NULL &&
            (MPI_Test(&requests[i], &done, MPI_STATUS_IGNORE) != MPI_SUCCESS || !done))
            all = 0; /* after an error too: we can't tell what MPI still uses */
    }
    return all;
}

/* Free what MPI has let go of since. */
static void free_finished(void)
{
    pthread_mutex_lock(&deferred_mutex);
    for (deferred **link = &first_deferred; *link;) {
        deferred *g = *link;
        if (!ta_mpi_all_done(g->requests, g->count)) {
            link = &g->next;
            continue;
        }
        *link = g->next;
        free(g->memory);
        ta_mpi_leave(g->wire);
        free(g);
    }
    pthread_mutex_unlock(&deferred_mutex);
}

void ta_mpi_free_later(MPI_Request *requests, int count, void *memory, ta_wire *wire)
{
    free_finished();
    if (ta_mpi_all_done(requests, count)) {
        free(memory);
        ta_mpi_leave(wire);
        return;
    }
    deferred *g = malloc(sizeof *g);
    if (!g)
        return; /* better to lose the memory than to free it under MPI's hands */
    pthread_mutex_lock(&deferred_mutex);
    *g = (deferred){first_deferred, requests, count, memory, wire};
    first_deferred = g;
    pthread_mutex_unlock(&deferred_mutex);
}
