/* One rank's side of a direct exchange between GPUs, as the files that make it share it:
 *
 *     peers.c    making slabs, probing and using them, letting go, and the table
 *     offers.c   what ranks tell each other of their slabs, and getting at those of others
 *     parted.c   slabs whose rank is done with them, and maybe not all others */
#ifndef TA_HIP_PEER_RANK_H
#define TA_HIP_PEER_RANK_H

#include "gpu.h"
#include "slab.h"

typedef struct ta_gpu_peers {
    ta_peers peers;
    ta_gpu_device *gpu;
    ta_peers_params params; /* of every launch, but for `finish` */
    char *slab;             /* this rank's own */
    size_t slab_bytes;
    ta_peer_control *control;
    hipStream_t teller;          /* for what does not wait behind the caller's work: see tell() */
    int told;                    /* all ranks, of one that is lost */
    char *slabs[TA_MAX_PEERS];   /* of all ranks, as this device addresses them; or NULL */
    int32_t names[TA_MAX_PEERS]; /* of these ranks in the group */
    unsigned char imported[TA_MAX_PEERS]; /* by an IPC handle */
} ta_gpu_peers;

static inline hipError_t ta_copy_and_wait(void *to, const void *from, size_t bytes)
{
    hipError_t error = hipMemcpyAsync(to, from, bytes, hipMemcpyDefault, NULL);
    return error == hipSuccess ? hipStreamSynchronize(NULL) : error;
}

/* On the rank's device: what it offers, and getting at what all offer. */
ta_status ta_peers_write_offer(ta_gpu_peers *p, ta_peers_offer *to);
ta_status ta_peers_use_offers(ta_gpu_peers *p, const ta_peers_offer *offers);

/* Leave the rank's own slab to be freed when the others are done with it; and free those of which
 * that is so, of device `index` and of devices that are closed. */
void ta_peers_part_with(const ta_gpu_peers *p);
void ta_peers_free_parted(int index);

#endif
