/* A transport (ta_transport) between threads that allocates nothing: bytes of each channel go from
 * one rank to another through a short queue. For tests in which allocations are counted or fail;
 * lib/socket_transport.h is what a program would have. */
#ifndef TESTS_MEMORY_TRANSPORT_H
#define TESTS_MEMORY_TRANSPORT_H

#include <pthread.h>

#include <treeattn/collectives.h>

enum { MEMORY_RANKS = 3, MEMORY_CHANNELS = 8, MEMORY_BYTES = 2048 };

typedef struct memory_queue {
    size_t first, count;
    char data[MEMORY_BYTES];
} memory_queue;

typedef struct memory_transport {
    pthread_mutex_t mutex;
    memory_queue queues[MEMORY_RANKS][MEMORY_RANKS][MEMORY_CHANNELS]; /* from, to */
} memory_transport;

/* What a rank's functions are given as their context. */
typedef struct memory_end {
    memory_transport *shared;
    int rank;
} memory_end;

void memory_transport_init(memory_transport *shared);
void memory_transport_free(memory_transport *shared);

/* A rank's end; `end` outlives the group. */
ta_transport memory_transport_calls(memory_transport *shared, int rank, memory_end *end);

#endif
