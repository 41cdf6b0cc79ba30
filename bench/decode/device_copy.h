/* What one rank gives to ta_decode(), in the memory of its device: copies of the cache, the query
 * and the results on a GPU, the same memory on the host. measure.c makes them for each row. */
#ifndef BENCH_DEVICE_COPY_H
#define BENCH_DEVICE_COPY_H

#include "kv_cache.h"
#include "rank_tensors.h"

/* Room for K, V, lengths, bounds, pages, starts, query, output and lse; selected positions, and
 * the two tables of prefixes. */
#define DEVICE_COPIES 12

typedef struct device_copy {
    ta_device *device;
    const void *host[DEVICE_COPIES];
    void *memory[DEVICE_COPIES]; /* of the device */
    size_t bytes[DEVICE_COPIES];
    int count, cache_count; /* the first ones are the cache's */
    /* Arguments of ta_decode(). */
    ta_tensor query, out;
    ta_kv kv;
    ta_call call;
    float *lse;
    int32_t *starts;   /* on the host; NULL: the batch is not mixed */
    int32_t *selected; /* likewise; NULL: all are */
    int32_t prefix_starts[2], prefix_length;
} device_copy;

/* Copy what rank `rank` of a row has. `cache`, unless it is NULL, has K and V on the same GPU
 * already, and outlives this. device_copy_free() may be called whatever happens. */
ta_status device_copy_make(device_copy *copy, ta_device *device, const decode_options *options,
                           const kv_layout *layout, const rank_tensors *tensors, int rank,
                           const device_copy *cache);
void device_copy_free(device_copy *copy);

/* Bytes of K, V and what describes them, in memory of a GPU; 0 on the host. */
size_t device_copy_cache_bytes(const device_copy *copy);

/* Copy K, as the device has it, to other memory of the device, piece by piece: as many bytes are
 * read as written. `scratch` has SWEEP_BYTES. Returns when that has been queued; *bytes is what it
 * moves, reading and writing. */
#define SWEEP_BYTES ((size_t)16 << 20)
ta_status device_copy_sweep(const device_copy *copy, void *scratch, double *bytes);

/* Bring the rank's output and lse to the device, or back from it. */
ta_status device_copy_results(device_copy *copy, const rank_tensors *tensors, int back);

#endif
