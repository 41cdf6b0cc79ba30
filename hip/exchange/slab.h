/* The slab of a rank in a direct exchange between GPUs, and what its kernels are given. peers.hip
 * has the kernels and the protocol, peers.c makes slabs and launches.
 *
 * A slab is memory of its rank's device that the other ranks write to: lines, one for each phase,
 * turn, block and rank, with a flag and a fault record; a line of each rank to say that it uses the
 * slab no more, of which that of the slab's own rank has the word about a rank that is lost; two
 * sets of partials, one for each rank; and room for one merged partial. */
#ifndef TA_HIP_SLAB_H
#define TA_HIP_SLAB_H

#include "device/peers.h"
#include "kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What two ranks write is on different lines. */
#define TA_PEER_LINE 128

/* What one rank signals to another from one block. */
typedef struct ta_peer_line {
    uint32_t epoch; /* the exchange that it is of */
    uint32_t lost;  /* ta_fault_lost_word() of what ends all waits here; of one line alone */
    uint32_t unused[2];
    ta_fault fault; /* of the rank that wrote it */
    char rest[TA_PEER_LINE - 16 - TA_FAULT_BYTES];
} ta_peer_line;

/* What a block knows from one exchange to the next. */
typedef struct ta_peer_block {
    uint32_t epoch; /* exchanges so far */
    int32_t lost;   /* ta_fault_lost_word() of a rank that it waited for in vain; 0: none so far */
    ta_fault heard; /* the faults of all ranks in the last exchange, as far as it heard */
} ta_peer_block;

#define TA_PEER_BLOCKS 128

/* Memory of this device alone. */
typedef struct ta_peer_control {
    ta_fault heard;     /* the faults of all ranks in the last exchange, as all blocks heard */
    uint32_t ended;     /* blocks whose exchange is over; 0 between launches */
    uint32_t wrong;     /* words of a probe that did not come as they should */
    int32_t probe_late; /* 1 + a rank whose probe did not come; 0: all did */
    char *slabs[TA_MAX_PEERS];
    int32_t names[TA_MAX_PEERS]; /* the ranks' numbers in the group */
    ta_peer_block blocks[TA_PEER_BLOCKS];
} ta_peer_control;

/* Floats of a partial are a multiple of a line. */
typedef struct ta_peers_params {
    ta_finish finish;
    ta_peer_control *control;
    uint64_t patience; /* ticks of ta_wall_clock() */
    int64_t partial_floats;
    int32_t rank, ranks, blocks;
    int32_t parts, world; /* see ta_peers_shape */
    int32_t placement, root, shots;
    /* On several nodes: records with this rank's part, and the fault of them; or NULL. */
    float *lane;
    ta_fault *lane_fault;
} ta_peers_params;

/* Lines before the partials: two phases of two turns, and those that say that a rank is done. */
TA_INLINE int64_t ta_peer_lines(int32_t ranks, int32_t blocks)
{
    return (4 * (int64_t)blocks + 1) * ranks;
}

/* Where rank `from` says in a slab that it uses it no more. */
TA_INLINE ta_peer_line *ta_peer_done_line(char *slab, int32_t ranks, int32_t blocks, int32_t from)
{
    return (ta_peer_line *)(void *)slab + ta_peer_lines(ranks, blocks) - ranks + from;
}

/* Where those whose slab it is, of number `own`, are told of a rank that is lost: by anybody, and
 * whoever is last may be heard. */
TA_INLINE uint32_t *ta_peer_lost_word(char *slab, const ta_peers_params *p, int32_t own)
{
    return &ta_peer_done_line(slab, p->ranks, p->blocks, own)->lost;
}

/* The set of lines and partials that an exchange uses: the other one than the last. */
TA_INLINE int64_t ta_peer_turn(uint32_t epoch)
{
    int64_t turn = 0;
    turn = epoch & 1; /* TURNS */
    return turn;
}

TA_INLINE ta_peer_line *ta_peer_line_of(char *slab, const ta_peers_params *p, int phase,
                                        uint32_t epoch, int32_t block, int32_t from)
{
    int64_t set = phase * 2 + ta_peer_turn(epoch);
    return (ta_peer_line *)(void *)slab + (set * p->blocks + block) * p->ranks + from;
}

TA_INLINE float *ta_peer_partial(char *slab, const ta_peers_params *p, uint32_t epoch, int32_t from)
{
    float *partials =
        (float *)(void *)(slab + ta_peer_lines(p->ranks, p->blocks) * (int64_t)TA_PEER_LINE);
    return partials + (ta_peer_turn(epoch) * p->ranks + from) * p->partial_floats;
}

TA_INLINE float *ta_peer_merged(char *slab, const ta_peers_params *p)
{
    return ta_peer_partial(slab, p, 0, 0) + 2 * (int64_t)p->ranks * p->partial_floats;
}

/* One block, on a stream of its own: say in the slabs of all that the word's rank is lost. */
ta_launched ta_launch_peers_lost(const ta_peers_params *params, int32_t word, void *stream);

/* The grid of each is p->blocks, which must be there at once on all ranks. */
ta_launched ta_launch_peers_finish(const ta_peers_params *params, void *stream);
ta_launched ta_launch_peers_part(const ta_peers_params *params, void *stream);
ta_launched ta_launch_peers_parts(const ta_peers_params *params, void *stream);
ta_launched ta_launch_peers_probe(const ta_peers_params *params, void *stream);

/* How many blocks of these kernels a unit of the device has room for; 0: it can't be told. */
int ta_peers_blocks_per_unit(void);

/* Words of a probe from one rank to another; a partial has room for as many. */
#define TA_PROBE_WORDS 2048

#ifdef __cplusplus
}
#endif

#endif
