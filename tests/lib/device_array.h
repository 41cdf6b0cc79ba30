/* An array on the host and its copy in the memory of a device, for tests that look at single calls.
 * Decode cases have buffers of their own (case.h). */
#ifndef TESTS_DEVICE_ARRAY_H
#define TESTS_DEVICE_ARRAY_H

#include <treeattn/treeattn.h>

typedef struct device_array {
    ta_device *owner;
    void *host, *device;
    size_t bytes;
} device_array;

/* Both of them; the host's is all zero. */
ta_status device_array_make(ta_device *device, size_t count, size_t each, device_array *array);
void device_array_free(device_array *array);

/* Copy to the device, or back, when the work of `stream` is done. */
ta_status device_array_to(const device_array *array, void *stream);
ta_status device_array_from(const device_array *array, void *stream);

#endif
