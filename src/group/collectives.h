/* Between the two files of the public collectives: collectives.c checks arguments and asks groups
 * of GPUs, collectives_host.c goes over the messages of groups of host memory. */
#ifndef TA_COLLECTIVES_H
#define TA_COLLECTIVES_H

#include "device/device.h"
#include "group.h"

/* A collective on a group of host memory with several ranks. */
typedef struct ta_collective {
    ta_group *group;
    ta_device *device; /* whose memory is staged; NULL: host memory */
    char *stage;       /* TA_STAGE_BYTES */
    size_t *offsets;   /* [ranks + 1], to work with */
    ta_element_kind element;
    ta_reduction reduction;
    size_t each; /* bytes of an element */
    void *stream;
} ta_collective;

ta_status ta_collective_all_reduce(ta_collective *c, const void *from, void *to, size_t count);
ta_status ta_collective_all_gather(ta_collective *c, const void *from, void *to, size_t count);
ta_status ta_collective_reduce_scatter(ta_collective *c, const void *from, void *to, size_t count);
ta_status ta_collective_broadcast(ta_collective *c, void *data, size_t count, int root);

#endif
