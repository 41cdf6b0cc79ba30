/* What arrived from other ranks, as the kernels that merge it see it: the merge of a ta_merge,
 * record by record, and its faults. Included by merge.hip and tally.hip, so that both
 * take in the same messages in the same order. */
#ifndef TA_HIP_ARRIVED_H
#define TA_HIP_ARRIVED_H

#include "rows.h"

/* A record, and what is to be merged into it: `messages` records `stride` floats apart. */
struct ta_arrived {
    const float *own, *others;
    int64_t stride;
    int32_t messages;
};

TA_DEVICE bool ta_is_kept(const ta_merge &m, int64_t record)
{
    return m.messages && record >= m.kept_first && record < m.kept_end;
}

TA_DEVICE bool ta_is_given(const ta_merge &m, int64_t record)
{
    return m.sent && record >= m.given_first && record < m.given_end;
}

/* Of records of so many floats. One that is replaced has nothing to be merged. */
TA_DEVICE ta_arrived ta_find_arrived(const ta_merge &m, int64_t record, int64_t floats)
{
    ta_arrived r = {m.records + record * floats, nullptr, m.stride, 0};
    if (ta_is_kept(m, record)) {
        r.others = m.received + (record - m.kept_first) * floats;
        r.messages = m.messages;
    }
    if (r.messages && m.replaces) {
        r.own = r.others;
        r.messages = 0;
    }
    return r;
}

/* A block for each record, and one for the fault if there are none. */
static inline unsigned ta_merge_blocks(int64_t first, int64_t end)
{
    int64_t records = end - first;
    if (records > INT32_MAX)
        records = INT32_MAX;
    return records > 0 ? static_cast<unsigned>(records) : 1;
}

/* Number `column` of a partial after all merges. *m is the largest score, before them and after.
 * Unrolled, the loop would take registers that sm_80 does not give it. */
TA_DEVICE float ta_merge_column(const ta_arrived &r, int32_t column, int32_t v_dim, float *m)
{
    float x = r.own[column];
#pragma unroll 1
    for (int32_t i = 0; i < r.messages; i++) {
        const float *other = r.others + i * r.stride;
        ta_merge_scales s = ta_merge_scale(*m, other[v_dim]);
        x = ta_merge_add(x, other[column], s);
        *m = s.m;
    }
    return x;
}

/* The fault of this rank and of all messages. */
TA_DEVICE ta_fault ta_all_faults(const ta_merge &m)
{
    ta_fault fault = *m.fault;
    const float *behind = reinterpret_cast<const float *>(m.theirs);
#pragma unroll 1
    for (int32_t i = 0; behind && i < m.messages; i++) {
        ta_fault theirs = *reinterpret_cast<const ta_fault *>(behind + i * m.stride);
        fault = m.replaces ? theirs : ta_fault_merge(fault, theirs);
    }
    return fault;
}

/* One thread: faults are merged, and go out behind the next message of records of so many floats.
 * */
TA_DEVICE void ta_merge_faults(const ta_merge &m, int64_t floats)
{
    if (!m.fault)
        return;
    ta_fault fault = ta_all_faults(m);
    *m.fault = fault;
    if (m.sent)
        *reinterpret_cast<ta_fault *>(m.sent + (m.given_end - m.given_first) * floats) = fault;
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

/* Is there a fault? Then the host is told. */
TA_DEVICE bool ta_report_fault(const ta_finish &p)
{
    if (!p.last.fault)
        return false;
    ta_fault fault = ta_all_faults(p.last);
    if (fault.status == TA_OK)
        return false;
    if (blockIdx.x == 0 && threadIdx.x == 0)
        ta_write_report(p.report, fault);
    return true;
}

#endif
