/* The exchange: from one partial on every rank to the merged partial where it is wanted, in one
 * pass of logarithmic depth. It knows nothing of plans: whoever has partials fills in a job. Decode
 * does (decode/memory.c); implemented in exchange.c, kinds.h lists the kinds.
 *
 * A job's memory is that of its device: partials in device memory if the group moves it, in host
 * memory otherwise. */
#ifndef TA_EXCHANGE_H
#define TA_EXCHANGE_H

#include "device/device.h"
#include "group/group.h"
#include "kinds.h"

typedef struct ta_exchange_job {
    /* Filled in once, for every run. */
    ta_group *group;   /* NULL: one rank, and there is nothing to do */
    ta_device *device; /* that merges */
    int rank;
    ta_exchange kind;
    ta_exchange_shape shape;
    int chunks;        /* that it goes in, ta_exchange_chunks(); 1 on one rank */
    int defers;        /* what arrives last is left to the device's finish(), which merges it too */
    float *records;    /* this rank's partial, and the fault record behind it */
    float *received;   /* ta_exchange_received() partials */
    float *sent;       /* ta_exchange_sent() partials */
    size_t *gather_at; /* [ranks + 1] byte offsets of an all-gather; ta_exchange_prepare() */
    /* Of a direct exchange, ta_exchange_share(): the partials of all ranks of this node, each of at
     * most so many bytes; and what they signal, which is the group's. */
    struct ta_shared *slab;
    struct ta_signals *signals;
    size_t most_bytes;
    struct ta_peers *peers; /* instead of both, where ranks are GPUs: device/peers.h */

    /* Set by each run: where the merged records and the fault are, and what finish() has still to
     * merge into them. A rank's own heads under the shape's placement are complete then, the other
     * heads are left in any state. */
    ta_merge last;
    ta_fault heard; /* direct: what `last` has for a fault */
} ta_exchange_job;

/* What a kind needs to run, once the shape is there; free it with ta_exchange_release(). */
ta_status ta_exchange_prepare(ta_exchange_job *job);
void ta_exchange_release(ta_exchange_job *job);

/* Collective, of a kind that shares memory: make it, on all ranks or on none. `status` is this
 * rank's own so far. Where one failed, or partials are not of the same size, there is no memory and
 * no error: *skipped is 1, and whoever compares plans says what is wrong. */
ta_status ta_exchange_share(ta_exchange_job *job, ta_status status, int *skipped);

/* Let the next runs be of partials with so many bytes to a head, at most those that the memory was
 * cut for. Where the records are `in_place` they have another place now. */
void ta_exchange_fit(ta_exchange_job *job, size_t head_bytes);

/* Bytes of a partial with its fault; how many of them `received` and `sent` have room for. */
size_t ta_exchange_partial_bytes(const ta_exchange_job *job);
size_t ta_exchange_received(const ta_exchange_job *job);
size_t ta_exchange_sent(const ta_exchange_job *job);

/* Are this rank's `records` a place in `received`, or where other ranks read them? Then it takes no
 * copy to get them there. In a direct exchange the place is another one after each run. */
int ta_exchange_in_place(const ta_exchange_job *job);
float *ta_exchange_own_records(const ta_exchange_job *job);

/* Merge the partials of all ranks. The fault behind each rank's records goes in as its own and
 * comes out of finish() as that of all, wherever results arrive. */
ta_status ta_exchange_run(ta_exchange_job *job, void *stream);

/* Instead of it, of a job with peers: exchange and finish in one. Every rank is in it, also if it
 * has a fault or nothing to finish. finish->last is filled in. */
ta_status ta_direct_finish(ta_exchange_job *job, ta_finish *finish, void *stream);

/* One of job->chunks: which heads it is, and their exchange. All chunks in order are a run. */
ta_heads ta_exchange_chunk_heads(const ta_exchange_job *job, int chunk);
ta_status ta_exchange_chunk(ta_exchange_job *job, int chunk, void *stream);

/* Floats of the records of a number of heads. */
int64_t ta_exchange_floats(const ta_exchange_job *job, int heads);

/* The fault of the step, behind the records. */
ta_fault *ta_exchange_fault(const ta_exchange_job *job);

/* A merge of this job that takes nothing in yet and sends nothing. */
ta_merge ta_exchange_merge(const ta_exchange_job *job);

#endif
