/* What a rank tells the others of a step whose lengths, starts and bounds only its device can see.
 * Included by the attend kernels, in whose launch it happens, and by tell.hip. step_fault.c in
 * src/decode/ does the same where the host sees them. */
#ifndef TA_HIP_TELL_H
#define TA_HIP_TELL_H

#include "rows.h"

#include "base/hash.h"

static const int tell_lanes = 32; /* that share the work; divides every wave */

/* The sum over all lanes of a wave, 32 by 32. */
TA_DEVICE uint64_t ta_sum_lanes(uint64_t x)
{
    for (int mask = tell_lanes / 2; mask > 0; mask /= 2)
        x += ta_shfl_xor(static_cast<unsigned long long>(x), mask);
    return x;
}

/* The first wave of the first block: add the hashes of lengths, starts and bounds, and of lists if
 * the caller has made it. Loops are not unrolled, so that the kernels around take no more
 * registers for it. */
TA_DEVICE void ta_tell_step(const ta_problem &p, const ta_kv &kv, const ta_tell &tell,
                            const uint64_t *lists = nullptr)
{
    if (!tell.to || blockIdx.x != 0 || ta_wave_id() != 0)
        return;
    uint32_t lane = static_cast<uint32_t>(ta_lane()) % tell_lanes;
    uint32_t batch = static_cast<uint32_t>(p.batch);
    uint32_t each = static_cast<uint32_t>(p.shard.ranks) + 1;
    uint64_t lengths = 0, bounds = 0, starts = 0;
#pragma unroll 1
    for (uint32_t i = lane; i < batch; i += tell_lanes)
        lengths += ta_hash_at(i, static_cast<uint32_t>(kv.lengths[i]));
#pragma unroll 1
    for (uint32_t i = lane; p.starts && i <= batch; i += tell_lanes)
        starts += ta_hash_at(i, static_cast<uint32_t>(p.starts[i]));
#pragma unroll 1
    for (uint32_t i = lane; kv.bounds && i < batch * each; i += tell_lanes)
        bounds +=
            ta_hash_at(i, static_cast<uint32_t>(kv.bounds[i / each * kv.bounds_stride + i % each]));
    lengths = ta_sum_lanes(lengths);
    bounds = ta_sum_lanes(bounds);
    starts = ta_sum_lanes(starts);
    if (threadIdx.x != 0)
        return;
    /* Field by field: a struct of the parameters that is copied whole goes through the stack. */
    ta_fault told = {tell.own.status, tell.own.rank, tell.own.other,
                     tell.own.what,   tell.own.hash, tell.own.tag};
    ta_fault_share(&told, TA_COMMON_LENGTHS, lengths);
    if (p.starts)
        ta_fault_share(&told, TA_COMMON_STARTS, starts);
    if (kv.bounds)
        ta_fault_share(&told, TA_COMMON_BOUNDS, bounds);
    if (lists)
        ta_fault_share(&told, TA_COMMON_LISTS, *lists);
    tell.to->status = told.status;
    tell.to->rank = told.rank;
    tell.to->other = told.other;
    tell.to->what = told.what;
    tell.to->hash = told.hash;
    tell.to->tag = told.tag;
}

#endif
