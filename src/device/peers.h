/* Devices that address each other's memory: what a direct exchange on GPUs stands on. A slab of
 * every rank, which the others write to, and one kernel that puts a rank's partial where the others
 * read it, signals, waits, merges and finishes. exchange/direct_peers.c brings the ranks together;
 * hip/exchange/ implements the table, and has the protocol.
 *
 * Nothing here is collective by itself. Ranks call make(), hand their offers round, and all call
 * open() and then probe() or none does. */
#ifndef TA_DEVICE_PEERS_H
#define TA_DEVICE_PEERS_H

#include "device.h"

/* The most ranks that can be peers. */
#define TA_MAX_PEERS 72

typedef struct ta_peers_shape {
    int32_t rank, ranks;  /* of those that address each other's memory: one node's */
    const int *names;     /* [ranks]: their numbers in the group, */
    int32_t world;        /* which has so many ranks */
    int32_t parts;        /* of the heads, in two shots: the first so many ranks merge one each */
    size_t partial_bytes; /* the largest partial with its fault record; the same on all ranks */
    int64_t records;      /* in it */
    int32_t shots;        /* 1 or 2, see exchange/direct.c */
    ta_placement placement;
    int32_t root;       /* its number here; -1: it is on another node */
    int32_t timeout_ms; /* of a wait for another rank */
} ta_peers_shape;

/* What a rank tells the others of its slab. */
typedef struct ta_peers_offer {
    unsigned char bytes[192];
} ta_peers_offer;

/* One rank's side of it. */
typedef struct ta_peers ta_peers;
struct ta_peers {
    /* Device memory: the faults of all ranks in the last exchange, merged. */
    ta_fault *heard;
    int shared; /* set by the caller while another rank may be using this one's slab */

    /* Of the group whose ranks these are, while they can be told (group.h). */
    ta_device *device;
    ta_peers *next;
};

typedef struct ta_peer_ops {
    /* This rank's slab, zero at first, and what the others need to know of it. */
    ta_status (*make)(ta_device *device, const ta_peers_shape *shape, ta_peers **peers,
                      ta_peers_offer *offer);

    /* Get at the slabs of all ranks: `offers` has one of each, this one's too. TA_ERR_UNSUPPORTED,
     * with the reason, if one can't be reached, or if two ranks have the same device. */
    ta_status (*open)(ta_peers *peers, const ta_peers_offer *offers);

    /* Send something to every rank and look whether theirs came as it should: waits, no longer than
     * the timeout. TA_ERR_UNSUPPORTED if it did not. */
    ta_status (*probe)(ta_peers *peers);

    /* Say to all ranks, this one too, that one is lost: ta_fault_lost_word() of it. What waits in a
     * kernel for anybody ends with that at once, and so do all exchanges from then on. Once;
     * between open() and close(), on any thread, but not two at a time. Waits for nothing, and
     * leaves ta_last_error() alone. */
    void (*tell)(ta_peers *peers, int32_t word);

    /* Use the others' slabs no more. */
    void (*close)(ta_peers *peers);

    /* Exchange and finish: `finish` is as in ta_device_ops.finish(), where last.records are this
     * rank's own partials and last.fault its own fault record behind them. Every rank calls it in
     * every exchange, also with a fault or with no heads to finish. report NULL: tell nobody. If a
     * rank does not come within the timeout, or somebody called tell(), the report is
     * ta_fault_lost() of that rank, and so it is at once in all exchanges from then on. */
    ta_status (*finish)(ta_peers *peers, const ta_finish *finish, void *stream);

    /* The same in two, for ranks on several nodes: what the first leaves is merged over the nodes
     * in between. First every rank's partial is merged here: this rank's part, if it has one, comes
     * to its place in the records `lane`, and what all ranks here told to `lane_fault`. */
    ta_status (*merge_part)(ta_peers *peers, const ta_finish *finish, float *lane,
                            ta_fault *lane_fault, void *stream);
    /* Then the parts go from there to all ranks here that need them, and are finished. */
    ta_status (*finish_parts)(ta_peers *peers, const ta_finish *finish, float *lane,
                              ta_fault *lane_fault, void *stream);

    /* This rank's use ends; waits for work of this device only. Its slab goes when the others do
     * not use it any more. */
    void (*release)(ta_peers *peers);
} ta_peer_ops;

#endif
