/* What one rank gives to ta_decode(), in the memory of its device: copies of the cache, the query
 * and the results on a GPU, the same memory on the host. measure.c makes them for each row. */
#ifndef BENCH_DEVICE_COPY_H
#define BENCH_DEVICE_COPY_H

#include "kv_cache.h"
#include "rank_tensors.h"

/* Room for K, V, lengths, bounds, pages, starts, query, output and lse. */
#define DEVICE_COPIES 9

typedef struct device_copy {
    ta_device *device;
    const void *host[DEVICE_COPIES];
    void *memory[DEVICE_COPIES]; /* of the device */
    size_t bytes[DEVICE_COPIES];
    int count;
    /* Arguments of ta_decode(). */
    ta_tensor query, out;
    ta_kv kv;
    ta_call call;
    float *lse;
    int32_t *starts; /* on the host; NULL: the batch is not mixed */
} device_copy;

/* Copy what rank `rank` of a row has. device_copy_free() may be called whatever happens. */
ta_status device_copy_make(device_copy *copy, ta_device *device, const decode_options *options,
                           const kv_layout *layout, const rank_tensors *tensors, int rank);
void device_copy_free(device_copy *copy);

/* Copy K, as the device has it, to other memory of the device, piece by piece: as many bytes are
 * read as written. `scratch` has SWEEP_BYTES. Returns when that has been queued; *bytes is what it
 * moves, reading and writing. */
#define SWEEP_BYTES ((size_t)16 << 20)
ta_status device_copy_sweep(const device_copy *copy, void *scratch, double *bytes);

/* Bring the rank's output and lse to the device, or back from it. */
ta_status device_copy_results(device_copy *copy, const rank_tensors *tensors, int back);

#endif
