/* The steps of the kernels of peers.hip, whose head has the protocol: whose records are whose,
 * putting them into slabs, signals and waiting, merging and finishing, and the end of an exchange.
 * Every thread of a block takes each step, unless it says otherwise. */
#ifndef TA_HIP_PEER_STEPS_H
#define TA_HIP_PEER_STEPS_H

#include "attend/finish_row.h"
#include "slab.h"

static const int peer_threads = 128;
/* So few on a unit leave enough registers that none is spilled to fit more. */
static const int peer_blocks = 4;

static_assert(peer_threads >= TA_MAX_PEERS, "a thread for each rank");
static_assert(sizeof(ta_peer_line) == TA_PEER_LINE, "a line has nothing of another rank");

/* Records [first, end), or words of a probe. */
struct peer_span {
    int32_t first, end;
};

/* Number `index` of so many parts of the heads. */
TA_DEVICE peer_span part_of(const ta_peers_params &p, int32_t index, int32_t parts)
{
    int32_t heads = p.finish.problem.query_heads,
            rows = static_cast<int32_t>(p.finish.problem.rows);
    return {heads * index / parts * rows, heads * (index + 1) / parts * rows};
}

/* What a rank merges in two shots. */
TA_DEVICE peer_span merged_by(const ta_peers_params &p, int32_t rank)
{
    return rank < p.parts ? part_of(p, rank, p.parts) : peer_span{0, 0};
}

/* The records that a rank has in the end. */
TA_DEVICE peer_span wanted_by(const ta_peers_params &p, int32_t rank)
{
    if (p.placement == TA_PLACE_HEADS)
        return part_of(p, p.control->names[rank], p.world);
    if (p.placement == TA_PLACE_ALL || rank == p.root)
        return {0, p.finish.problem.query_heads * static_cast<int32_t>(p.finish.problem.rows)};
    return {0, 0};
}

/* This block's share of a span: that of the same block on all ranks. */
TA_DEVICE peer_span share_of(const ta_peers_params &p, peer_span s)
{
    int64_t records = s.end - s.first, block = blockIdx.x;
    return {s.first + static_cast<int32_t>(records * block / p.blocks),
            s.first + static_cast<int32_t>(records * (block + 1) / p.blocks)};
}

/* What two spans have in common. */
TA_DEVICE peer_span common_of(peer_span a, peer_span b)
{
    int32_t first = a.first > b.first ? a.first : b.first, end = a.end < b.end ? a.end : b.end;
    return {first, end > first ? end : first};
}

/* ---- Putting ---- */

/* Floats [first, end), which are as far from 16 bytes in `to` as in `from`. */
TA_DEVICE void put_floats(const float *from, float *to, int64_t first, int64_t end)
{
    int64_t aligned = (first + 3) / 4 * 4, aligned_end = end / 4 * 4;
    int64_t thread = threadIdx.x;
    if (aligned > aligned_end)
        aligned = aligned_end = end;
    for (int64_t i = first + thread; i < aligned; i += peer_threads)
        ta_store_peer(to + i, from[i]);
    for (int64_t i = aligned + 4 * thread; i < aligned_end; i += 4 * peer_threads)
        ta_store_peer(reinterpret_cast<ta_vec16 *>(to + i), ta_load16(from + i));
    for (int64_t i = aligned_end + thread; i < end; i += peer_threads)
        ta_store_peer(to + i, from[i]);
}

/* This rank's own partial to all who merge it, itself too: in one shot those who have it in the
 * end, in two those whose part it is. */
TA_DEVICE void put_partial(const ta_peers_params &p, uint32_t epoch, int64_t floats)
{
#pragma unroll 1
    for (int32_t rank = 0; rank < p.ranks; rank++) {
        peer_span s = share_of(p, p.shots == 2 ? merged_by(p, rank) : wanted_by(p, rank));
        float *place = ta_peer_partial(p.control->slabs[rank], &p, epoch, p.rank);
        put_floats(p.finish.last.records, place, s.first * floats, s.end * floats);
    }
}

/* This rank's part, merged over all nodes, to all here that need something of it. */
TA_DEVICE void put_lane(const ta_peers_params &p, int64_t floats)
{
    peer_span part = share_of(p, merged_by(p, p.rank));
#pragma unroll 1
    for (int32_t rank = 0; rank < p.ranks; rank++) {
        peer_span s = common_of(part, wanted_by(p, rank));
        float *merged = ta_peer_merged(p.control->slabs[rank], &p);
        put_floats(p.lane, merged, s.first * floats, s.end * floats);
    }
}

/* ---- Waiting for each other ---- */

TA_DEVICE bool is_other(const ta_peers_params &p)
{
    return threadIdx.x < static_cast<unsigned>(p.ranks) &&
           threadIdx.x != static_cast<unsigned>(p.rank);
}

/* Has the flag come to this exchange before the time is over, or somebody says that a rank is lost?
 * 0 if so; or that word, or that of the rank `from`. Time counts as this thread sees it pass: of a
 * longer pause between two looks, in which the device did something else or the machine stood
 * still, little counts, since the others may have stood still as well. What the last look finds
 * counts. */
TA_DEVICE int32_t await_flag(const uint32_t *flag, const uint32_t *lost, int32_t from,
                             uint32_t epoch, uint64_t began, uint64_t patience)
{
    const uint64_t most = patience / 16 + 1;
    uint64_t last = began, waited = 0;
    bool late = false, early = true;
    uint32_t word = 0;
    for (;;) {
        word = ta_flag_peek(lost); /* LOST */
        uint32_t seen = ta_flag_load(flag);
        early = seen < epoch;
        early = static_cast<int32_t>(seen - epoch) < 0; /* WRAP */
        if (!early || late)
            break;
        ta_await_moment();
        uint64_t now = ta_wall_clock(), passed = now - last;
        last = now;
        waited += passed < most ? passed : most;
        late = word != 0;
        late = late || waited > patience; /* BOUND */
    }
    if (!early)
        return 0;
    return word ? static_cast<int32_t>(word) : 1 + from;
}

/* What the rank of this thread's number has to tell, when it has come. */
TA_DEVICE ta_fault hear_of(const ta_peers_params &p, int phase, uint32_t epoch, uint64_t began)
{
    int32_t from = static_cast<int32_t>(threadIdx.x);
    const ta_peer_line *line = ta_peer_line_of(p.control->slabs[p.rank], &p, phase, epoch,
                                               static_cast<int32_t>(blockIdx.x), from);
    int32_t lost = await_flag(&line->epoch, ta_peer_lost_word(p.control->slabs[p.rank], &p, p.rank),
                              p.control->names[from], epoch, began, p.patience);
    return lost ? ta_fault_of_lost_word(lost) : line->fault;
}

/* Tell everybody that what this block put is there, with a fault record, and if it `waits` wait for
 * the first `speakers` of them. All threads come out with the faults of these, merged. */
TA_DEVICE ta_fault meet(const ta_peers_params &p, int phase, uint32_t epoch, uint64_t began,
                        const ta_fault &own, bool waits, int32_t speakers)
{
    TA_SHARED(ta_fault, heard, [TA_MAX_PEERS]);
    ta_peer_line *line = nullptr;
    if (is_other(p)) {
        ta_vec16 halves[2];
        memcpy(halves, &own, sizeof halves);
        line = ta_peer_line_of(p.control->slabs[threadIdx.x], &p, phase, epoch,
                               static_cast<int32_t>(blockIdx.x), p.rank);
        ta_store_peer(reinterpret_cast<ta_vec16 *>(&line->fault), halves[0]); /* FAULT */
        ta_store_peer(reinterpret_cast<ta_vec16 *>(&line->fault) + 1, halves[1]);
    }
    ta_fence_system(); /* FENCE */
    ta_syncthreads();  /* BARRIER */
    if (line)
        ta_flag_store(&line->epoch, epoch);
    ta_syncthreads(); /* TOLD */
    bool hears = false;
    hears = is_other(p) && waits; /* ARRIVE */
    if (threadIdx.x < static_cast<unsigned>(speakers))
        heard[threadIdx.x] = hears ? hear_of(p, phase, epoch, began) : own;
    ta_syncthreads(); /* TOGETHER */
    ta_fault all = heard[0];
#pragma unroll 1
    for (int32_t rank = 1; rank < speakers; rank++)
        all = ta_fault_merge(all, heard[rank]);
    return all;
}

/* ---- Merging and finishing ---- */

/* A record as everybody brought it: rank 0's, into which the others' are merged. */
TA_DEVICE ta_arrived brought(const ta_peers_params &p, uint32_t epoch, int64_t record,
                             int64_t floats)
{
    const float *first = ta_peer_partial(p.control->slabs[p.rank], &p, epoch, 0) + record * floats;
    return {first, first + p.partial_floats, p.partial_floats, p.ranks - 1};
}

/* Something of a merged record to all who have it in the end, or to where it is merged with those
 * of other nodes. */
template <class T>
TA_DEVICE void put_merged(const ta_peers_params &p, int64_t at_float, const T &value)
{
    if (p.lane) {
        *reinterpret_cast<T *>(p.lane + at_float) = value;
        return;
    }
#pragma unroll 1
    for (int32_t rank = 0; rank < p.ranks; rank++)
        if (p.placement == TA_PLACE_ALL || rank == p.root)
            ta_store_peer(
                reinterpret_cast<T *>(ta_peer_merged(p.control->slabs[rank], &p) + at_float),
                value);
}

TA_DEVICE void merge_partial(const ta_peers_params &p, const ta_arrived &r, int64_t at)
{
    int32_t v_dim = p.finish.problem.v_dim;
    float own_m = r.own[v_dim];
    for (int32_t c = static_cast<int32_t>(threadIdx.x); c < v_dim + 2; c += peer_threads) {
        float m = own_m, x = ta_merge_column(r, c, v_dim, &m);
        if (c == v_dim) /* not a reference to one or the other: both would be in memory */
            x = m;
        put_merged(p, at + c, x);
    }
}

TA_DEVICE void merge_tally(const ta_peers_params &p, const ta_arrived &r, int64_t at)
{
    int32_t v_dim = p.finish.problem.v_dim;
    float own = r.own[ta_tally_anchor_at(v_dim)], top = ta_merge_anchors(r, v_dim);
    for (int32_t c = static_cast<int32_t>(threadIdx.x); c <= v_dim; c += peer_threads) {
        int64_t words[2];
        ta_tally_store(ta_merge_sums(r, c, v_dim, own, top), words);
        put_merged(p, at + 4 * c, words[0]);
        put_merged(p, at + 4 * c + 2, words[1]);
    }
    if (threadIdx.x == 0) {
        put_merged(p, at + ta_tally_anchor_at(v_dim), top);
        put_merged(p, at + ta_tally_anchor_at(v_dim) + 1, 0.0f);
    }
}

template <bool Tallies>
TA_DEVICE void merge_part(const ta_peers_params &p, uint32_t epoch, int64_t floats)
{
    peer_span s = share_of(p, merged_by(p, p.rank));
#pragma unroll 1
    for (int32_t i = s.first; i < s.end; i++)
        if (Tallies)
            merge_tally(ta_params_again(p), brought(p, epoch, i, floats), i * floats);
        else
            merge_partial(p, brought(p, epoch, i, floats), i * floats);
}

template <bool Tallies>
TA_DEVICE void finish_record(const ta_peers_params &p, const ta_arrived &r, int32_t record)
{
    int32_t rows = static_cast<int32_t>(p.finish.problem.rows);
    int32_t head = record / rows - p.finish.first_head;
    if (Tallies)
        ta_finish_tally<peer_threads>(p.finish, r, head, record % rows);
    else
        ta_finish_partial<peer_threads>(p.finish, r, head, record % rows);
}

/* One shot: of what everybody brought. Two: of the parts as their ranks merged them. */
template <bool Tallies>
TA_DEVICE void finish_heads(const ta_peers_params &p, uint32_t epoch, int64_t floats)
{
    int32_t parts = p.shots == 2 ? p.parts : 1;
#pragma unroll 1
    for (int32_t part = 0; part < parts; part++) {
        peer_span s = wanted_by(p, p.rank);
        s = p.shots == 2 ? common_of(share_of(p, merged_by(p, part)), s) : share_of(p, s);
#pragma unroll 1
        for (int32_t i = s.first; i < s.end; i++) {
            const ta_peers_params &q = ta_params_again(p); /* or registers would be spilled */
            ta_arrived r = {ta_peer_merged(q.control->slabs[q.rank], &q) + i * floats, nullptr, 0,
                            0};
            if (q.shots == 1)
                r = brought(q, epoch, i, floats);
            finish_record<Tallies>(q, r, i);
        }
    }
}

/* One thread, of the block that ends last, since blocks may have found different things: what all
 * of them found is kept, and the host hears if it is a fault. */
TA_DEVICE void end_for_all(const ta_peers_params &p)
{
    ta_peer_control *control = p.control;
    ta_fault all = control->blocks[0].heard;
#pragma unroll 1
    for (int32_t i = 1; i < p.blocks; i++)
        all = ta_fault_merge(all, control->blocks[i].heard);
    control->heard = all;
    /* To 0 again, by an atomic: nothing orders the additions of others and a plain store. */
    atomicAdd(&control->ended, 0u - static_cast<unsigned>(p.blocks));
    if (p.lane_fault)
        *p.lane_fault = all;
    if (all.status != TA_OK && p.finish.report)
        ta_write_report(p.finish.report, all);
}

/* One thread: end the waits of everybody, who would miss this rank next and not the one that is
 * lost. */
TA_DEVICE void tell_lost(const ta_peers_params &p, int32_t word)
{
#pragma unroll 1
    for (int32_t rank = 0; rank < p.ranks; rank++)
        ta_flag_store(ta_peer_lost_word(p.control->slabs[rank], &p, rank),
                      static_cast<uint32_t>(word));
}

/* One thread: what the block found. */
TA_DEVICE void end_blocks(const ta_peers_params &p, const ta_fault &all)
{
    ta_peer_block *block = &p.control->blocks[blockIdx.x];
    int32_t lost = ta_fault_lost_word(all);
    if (lost && !block->lost) {
        block->lost = lost; /* MISSING */
        tell_lost(p, lost); /* NAMED */
    }
    block->heard = all;
    __threadfence();
    bool is_last = atomicAdd(&p.control->ended, 1u) == static_cast<unsigned>(p.blocks) - 1;
    __threadfence();
    if (is_last)
        end_for_all(p);
}

/* One thread: the block's next exchange is another one. */
TA_DEVICE void end_exchange(const ta_peers_params &p, uint32_t epoch, const ta_fault &all)
{
    p.control->blocks[blockIdx.x].epoch = epoch; /* COUNT */
    end_blocks(p, all);
}

#endif
