/* A group that passes everything on to another and records what a rank sends and receives, message
 * by message. It has no collectives of its own, so those are group.c's. */
#ifndef TESTS_RECORDING_H
#define TESTS_RECORDING_H

#include "group/group.h"

typedef struct recorded_message {
    int to;
    uint64_t bytes;
} recorded_message;

typedef struct recording {
    ta_group group; /* give this to the library */
    ta_group *inner;
    uint64_t messages_sent, messages_received, bytes_sent, bytes_received;
    recorded_message *sent; /* [messages_sent], in order */
    uint64_t capacity;
} recording;

void recording_init(recording *r, ta_group *inner);
void recording_free(recording *r); /* the inner group is the caller's */

#endif
