/* What a device tells: the other ranks, of a step whose lengths, starts and bounds only it can see,
 * and the host, of a fault. Included by the attend kernels, in whose launch the first happens, by
 * tell.hip, and by what merges faults (arrived.h, append.hip). step_fault.c in src/decode/ does the
 * first where the host sees them, and takes the report. */
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

/* One thread tells the host of a fault, unless it has not taken the last one: the status is written
 * after the rest, and the host reads it first. */
TA_DEVICE void ta_write_report(volatile ta_fault *report, const ta_fault &fault)
{
    if (report->status != TA_OK)
        return;
    report->rank = fault.rank;
    report->other = fault.other;
    report->what = fault.what;
    report->hash = fault.hash;
    report->tag = fault.tag;
    __threadfence_system();
    report->status = fault.status;
}

#endif
