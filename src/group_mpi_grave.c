/* What a group of MPI processes leaves behind. After a failure MPI may still be about to read or
 * write the group's buffers: a message that nobody takes cannot be called back. Such memory waits
 * here until MPI is done with it, for ever if need be. See group_mpi.h. */
#include <stdlib.h>

#include "group_mpi.h"

typedef struct grave {
    struct grave *next;
    MPI_Request *requests;
    int count;
    void *memory;
    ta_wire *wire;
} grave;

static grave *graves;
static pthread_mutex_t graves_mutex = PTHREAD_MUTEX_INITIALIZER;

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

/* Look after those that were buried before. */
static void visit(void)
{
    pthread_mutex_lock(&graves_mutex);
    for (grave **link = &graves; *link;) {
        grave *g = *link;
        if (!ta_mpi_all_done(g->requests, g->count)) {
            link = &g->next;
            continue;
        }
        *link = g->next;
        free(g->memory);
        ta_mpi_leave(g->wire);
        free(g);
    }
    pthread_mutex_unlock(&graves_mutex);
}

void ta_mpi_bury(MPI_Request *requests, int count, void *memory, ta_wire *wire)
{
    visit();
    if (ta_mpi_all_done(requests, count)) {
        free(memory);
        ta_mpi_leave(wire);
        return;
    }
    grave *g = malloc(sizeof *g);
    if (!g)
        return; /* better to lose the memory than to free it under MPI's hands */
    pthread_mutex_lock(&graves_mutex);
    *g = (grave){graves, requests, count, memory, wire};
    graves = g;
    pthread_mutex_unlock(&graves_mutex);
}
