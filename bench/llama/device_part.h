/* A rank's part of the weights in the memory of its device. decoder.c makes one where that is not
 * the host's memory. */
#ifndef BENCH_LLAMA_DEVICE_PART_H
#define BENCH_LLAMA_DEVICE_PART_H

#include "model_weights.h"

typedef struct device_part {
    llama_part part; /* views of device memory */
    ta_device *device;
    void **memory;
    size_t count, bytes;
} device_part;

/* Copy a part: its matrices become dense. */
ta_status device_part_make(ta_device *device, const llama_part *part, device_part *made);
void device_part_free(device_part *made);

#endif
