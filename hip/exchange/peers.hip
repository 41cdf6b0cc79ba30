/* peers_finish. Grid: p.blocks blocks of peer_threads threads, as many on every rank and all there
 * at once. peers_part, peers_parts, peers_probe: the same.
 *
 * A direct exchange between GPUs: put this rank's partial into the slabs of those who need it,
 * signal, wait for everybody, merge in the order of the ranks, and finish. Block b of every rank
 * has the same share of the records, so it signals block b of the others and waits for them alone.
 * exchange/direct.c has the idea and the names of the rules, which tests/peers/ removes one by one
 * to see that it shows; they stand at the lines that keep them, here and in peer_steps.h:
 *
 *     FENCE, BARRIER   every thread has a system fence behind what it stored, and then all threads
 *                      of the block come together, before one of them tells another rank: on AMD a
 *                      barrier need not complete what other waves stored
 *     ARRIVE, MERGED   nobody reads before the flag of the one who wrote is there
 *     EVERYBODY        a block waits for its fellows of all ranks in every exchange, and signals
 *                      all of them, also if it has nothing for them
 *     TOLD             all ranks are told before a thread of the block waits
 *     TOGETHER         nobody reads before all threads of the block have waited
 *     TURNS            slab.h: an exchange uses the set that the last one did not
 *     WRAP             counts are compared by their difference
 *     COUNT            exchanges are counted in device memory, so that a graph can be replayed
 *     FAULT            a rank's fault travels with its flag
 *     BOUND            a wait that expires writes which rank is missing, and ends
 *     MISSING          from then on the block waits for nobody, and tells the others
 *     LOST             a wait ends when somebody says in this rank's slab that a rank is lost
 *     NAMED            who misses a rank says so there, to all: they would miss this one next
 *
 * Flags are only ever stored and loaded. */
#include "peer_steps.h"

template <bool Tallies>
__global__ void __launch_bounds__(peer_threads, peer_blocks) peers_finish(ta_peers_params p)
{
    const int64_t floats = Tallies ? ta_tally_floats(p.finish.problem.v_dim)
                                   : ta_record_floats(p.finish.problem.v_dim);
    ta_peer_block *block = &p.control->blocks[blockIdx.x];
    uint32_t epoch = block->epoch + 1;
    uint64_t began = ta_wall_clock();
    int32_t lost = block->lost;
    ta_fault own = lost ? ta_fault_of_lost_word(lost) : *p.finish.last.fault;
    peer_span wanted = wanted_by(p, p.rank);
    bool needs = wanted.end > wanted.first, waits = needs, waits_merged = false;
    waits = true;         /* EVERYBODY */
    waits_merged = needs; /* MERGED */
    if (own.status == TA_OK)
        put_partial(ta_params_again(p), epoch, floats);
    ta_fault all = meet(ta_params_again(p), 0, epoch, began, own, waits && !lost, p.ranks);
    bool good = all.status == TA_OK;
    if (p.shots == 2 && (good || ta_fault_is_lost(all))) {
        /* Who misses a rank tells those who may have heard it and wait for this one now. */
        if (good)
            merge_part<Tallies>(ta_params_again(p), epoch, floats);
        ta_fault tells = good ? *p.finish.last.fault : all;
        all = meet(ta_params_again(p), 1, epoch, began, tells, waits_merged && good, p.ranks);
    }
    if (threadIdx.x == 0)
        end_exchange(ta_params_again(p), epoch, all);
    if (all.status == TA_OK && needs)
        finish_heads<Tallies>(ta_params_again(p), epoch, floats);
}

/* ---- Several nodes ---- */

/* The first half: every rank's partial, merged over this node. The exchange is not over. */
template <bool Tallies>
__global__ void __launch_bounds__(peer_threads, peer_blocks) peers_part(ta_peers_params p)
{
    const int64_t floats = Tallies ? ta_tally_floats(p.finish.problem.v_dim)
                                   : ta_record_floats(p.finish.problem.v_dim);
    ta_peer_block *block = &p.control->blocks[blockIdx.x];
    uint32_t epoch = block->epoch + 1;
    uint64_t began = ta_wall_clock();
    int32_t lost = block->lost;
    ta_fault own = lost ? ta_fault_of_lost_word(lost) : *p.finish.last.fault;
    if (own.status == TA_OK)
        put_partial(ta_params_again(p), epoch, floats);
    ta_fault all = meet(ta_params_again(p), 0, epoch, began, own, !lost, p.ranks);
    if (all.status == TA_OK)
        merge_part<Tallies>(ta_params_again(p), epoch, floats);
    if (threadIdx.x == 0)
        end_blocks(ta_params_again(p), all);
}

/* The second half: the parts as all nodes merged them. What counts is what those say who have
 * one. */
template <bool Tallies>
__global__ void __launch_bounds__(peer_threads, peer_blocks) peers_parts(ta_peers_params p)
{
    const int64_t floats = Tallies ? ta_tally_floats(p.finish.problem.v_dim)
                                   : ta_record_floats(p.finish.problem.v_dim);
    ta_peer_block *block = &p.control->blocks[blockIdx.x];
    uint32_t epoch = block->epoch + 1;
    uint64_t began = ta_wall_clock();
    int32_t lost = block->lost;
    bool leads = p.rank < p.parts;
    ta_fault own = lost    ? ta_fault_of_lost_word(lost)
                   : leads ? *p.lane_fault
                           : *p.finish.last.fault;
    peer_span wanted = wanted_by(p, p.rank);
    bool needs = wanted.end > wanted.first || p.placement != TA_PLACE_ROOT;
    if (own.status == TA_OK && leads)
        put_lane(ta_params_again(p), floats);
    ta_fault all = meet(ta_params_again(p), 1, epoch, began, own, needs && !lost, p.parts);
    if (threadIdx.x == 0)
        end_exchange(ta_params_again(p), epoch, all);
    if (all.status == TA_OK && wanted.end > wanted.first)
        finish_heads<Tallies>(ta_params_again(p), epoch, floats);
}

/* ---- The probe ---- */

TA_DEVICE uint32_t probe_word(int32_t from, int32_t to, int64_t word)
{
    uint64_t key = static_cast<uint64_t>(from) << 48 | static_cast<uint64_t>(to) << 32;
    return static_cast<uint32_t>(ta_fault_mix(key + static_cast<uint64_t>(word) + 1));
}

__global__ void __launch_bounds__(peer_threads) peers_probe(ta_peers_params p)
{
    ta_peer_block *block = &p.control->blocks[blockIdx.x];
    uint32_t epoch = block->epoch + 1;
    uint64_t began = ta_wall_clock();
    peer_span s = share_of(p, {0, TA_PROBE_WORDS});
    for (int32_t rank = 0; rank < p.ranks; rank++) {
        float *partial = ta_peer_partial(p.control->slabs[rank], &p, epoch, p.rank);
        for (int32_t i = s.first + static_cast<int32_t>(threadIdx.x); i < s.end; i += peer_threads)
            ta_store_peer(reinterpret_cast<uint32_t *>(partial) + i, probe_word(p.rank, rank, i));
    }
    ta_fault all = meet(p, 0, epoch, began, ta_fault_of(TA_OK, p.rank), true, p.ranks);
    uint32_t wrong = 0;
    for (int32_t rank = 0; rank < p.ranks && !ta_fault_is_lost(all); rank++) {
        const float *partial = ta_peer_partial(p.control->slabs[p.rank], &p, epoch, rank);
        for (int32_t i = s.first + static_cast<int32_t>(threadIdx.x); i < s.end; i += peer_threads)
            wrong += reinterpret_cast<const uint32_t *>(partial)[i] != probe_word(rank, p.rank, i);
    }
    if (wrong)
        atomicAdd(&p.control->wrong, wrong);
    if (threadIdx.x != 0)
        return;
    block->epoch = epoch;
    if (ta_fault_is_lost(all))
        atomicMax(&p.control->probe_late, 1 + all.rank);
}

/* ---- A rank that is lost ---- */

/* One block of one thread for each rank: what a waiting kernel there finds beside its flags. */
__global__ void __launch_bounds__(peer_threads) peers_lost(ta_peers_params p, int32_t word)
{
    int32_t rank = static_cast<int32_t>(threadIdx.x);
    if (rank < p.ranks)
        ta_flag_store(ta_peer_lost_word(p.control->slabs[rank], &p, rank),
                      static_cast<uint32_t>(word));
}

ta_launched ta_launch_peers_lost(const ta_peers_params *params, int32_t word, void *stream)
{
    return ta_launched_of(
        TA_LAUNCH(peers_lost, 1, peer_threads, 0, static_cast<hipStream_t>(stream), *params, word));
}

ta_launched ta_launch_peers_finish(const ta_peers_params *params, void *stream)
{
    TA_NEED_TYPE("peers_finish", params->finish.problem.out_dtype);
    dim3 grid(static_cast<unsigned>(params->blocks));
    hipStream_t queue = static_cast<hipStream_t>(stream);
    ta_launch_result result =
        params->finish.problem.tally_tile
            ? TA_LAUNCH_RESIDENT((peers_finish<true>), grid, peer_threads, 0, queue, *params)
            : TA_LAUNCH_RESIDENT((peers_finish<false>), grid, peer_threads, 0, queue, *params);
    return ta_launched_of(result);
}

ta_launched ta_launch_peers_part(const ta_peers_params *params, void *stream)
{
    dim3 grid(static_cast<unsigned>(params->blocks));
    hipStream_t queue = static_cast<hipStream_t>(stream);
    ta_launch_result result =
        params->finish.problem.tally_tile
            ? TA_LAUNCH_RESIDENT((peers_part<true>), grid, peer_threads, 0, queue, *params)
            : TA_LAUNCH_RESIDENT((peers_part<false>), grid, peer_threads, 0, queue, *params);
    return ta_launched_of(result);
}

ta_launched ta_launch_peers_parts(const ta_peers_params *params, void *stream)
{
    TA_NEED_TYPE("peers_parts", params->finish.problem.out_dtype);
    dim3 grid(static_cast<unsigned>(params->blocks));
    hipStream_t queue = static_cast<hipStream_t>(stream);
    ta_launch_result result =
        params->finish.problem.tally_tile
            ? TA_LAUNCH_RESIDENT((peers_parts<true>), grid, peer_threads, 0, queue, *params)
            : TA_LAUNCH_RESIDENT((peers_parts<false>), grid, peer_threads, 0, queue, *params);
    return ta_launched_of(result);
}

ta_launched ta_launch_peers_probe(const ta_peers_params *params, void *stream)
{
    ta_launch_result result =
        TA_LAUNCH_RESIDENT(peers_probe, dim3(static_cast<unsigned>(params->blocks)), peer_threads,
                           0, static_cast<hipStream_t>(stream), *params);
    return ta_launched_of(result);
}

int ta_peers_blocks_per_unit(void)
{
    const void *kernels[] = {reinterpret_cast<const void *>(peers_finish<true>),
                             reinterpret_cast<const void *>(peers_finish<false>),
                             reinterpret_cast<const void *>(peers_part<true>),
                             reinterpret_cast<const void *>(peers_part<false>),
                             reinterpret_cast<const void *>(peers_parts<true>),
                             reinterpret_cast<const void *>(peers_parts<false>),
                             reinterpret_cast<const void *>(peers_lost),
                             reinterpret_cast<const void *>(peers_probe)};
    int least = INT32_MAX;
    for (const void *kernel : kernels) {
        int blocks = 0;
        if (hipOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, peer_threads, 0) !=
            hipSuccess) {
            (void)hipGetLastError();
            return 0;
        }
        least = blocks < least ? blocks : least;
    }
    return least;
}
