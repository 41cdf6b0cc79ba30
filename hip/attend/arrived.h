/* What arrived from other ranks, as kernels take it in, record by record: the records and faults of
 * a ta_merge, and how the threads of a block turn a record, and what is to be merged into it, into
 * output and log-sum-exp. The sink joins there and nowhere else, so it counts once. Included by
 * merge.hip and tally.hip, so that both take in the same messages in the same order, and by
 * exchange/peers.hip, whose records come another way. What merging is, base/partial.h and
 * base/tally.h say. */
#ifndef TA_HIP_ARRIVED_H
#define TA_HIP_ARRIVED_H

#include "tell.h"

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

/* ---- Output and log-sum-exp of a row ---- */

/* Number `head` of the heads that are finished; Threads is all of the block. */
template <int Threads>
TA_DEVICE void ta_finish_partial(const ta_finish &p, const ta_arrived &record, int64_t head,
                                 int64_t row)
{
    int32_t v_dim = p.problem.v_dim;
    float own_m = record.own[v_dim], m = own_m, o_scale = 1.0f;
    float l = ta_merge_column(record, v_dim + 1, v_dim, &m);
    if (p.problem.sinks) { /* a partial with this score, a sum of 1 and no value */
        ta_merge_scales s = ta_merge_scale(m, p.problem.sinks[p.first_head + head] * TA_LOG2E);
        l = ta_merge_add(l, 1.0f, s);
        m = s.m;
        o_scale = s.a;
    }
    float factor = o_scale * ta_partial_normalizer(m, l);
    int64_t at = ta_problem_row_at(&p.problem, &p.out, row) + head * p.out.head_stride;
    if (p.out.data)
        for (int32_t i = static_cast<int32_t>(threadIdx.x); i < v_dim; i += Threads) {
            float o_m = own_m, o = ta_merge_column(record, i, v_dim, &o_m);
            ta_store_element(p.problem.out_dtype, p.out.data, at + i, o * factor);
        }
    if (p.lse && threadIdx.x == 0)
        p.lse[row * p.heads + head] = ta_partial_lse(m, l);
}

/* ---- Tallies ---- */

TA_DEVICE int64_t *ta_sum_words(float *tally, int32_t i)
{
    return reinterpret_cast<int64_t *>(tally) + 2 * static_cast<int64_t>(i);
}

TA_DEVICE ta_tally_sum ta_load_sum(const float *tally, int32_t i)
{
    return ta_tally_load(reinterpret_cast<const int64_t *>(tally) + 2 * static_cast<int64_t>(i));
}

TA_DEVICE void ta_store_anchor(float *tally, int32_t v_dim, float anchor)
{
    tally[ta_tally_anchor_at(v_dim)] = anchor;
    tally[ta_tally_anchor_at(v_dim) + 1] = 0.0f;
}

/* The largest anchor of a tally and of all that is merged into it. */
TA_DEVICE float ta_merge_anchors(const ta_arrived &r, int32_t v_dim)
{
    float top = r.own[ta_tally_anchor_at(v_dim)];
#pragma unroll 1
    for (int32_t i = 0; i < r.messages; i++)
        top = ta_tally_anchor_max(top, r.others[i * r.stride + ta_tally_anchor_at(v_dim)]);
    return top;
}

/* Its sum number `i` after all merges, at the anchor `top`; `own` is its own anchor. */
TA_DEVICE ta_tally_sum ta_merge_sums(const ta_arrived &r, int32_t i, int32_t v_dim, float own,
                                     float top)
{
    ta_tally_sum sum = ta_tally_reanchor(ta_load_sum(r.own, i), ta_tally_below(own, top));
#pragma unroll 1
    for (int32_t k = 0; k < r.messages; k++) {
        const float *other = r.others + k * r.stride;
        int lift = ta_tally_below(other[ta_tally_anchor_at(v_dim)], top);
        sum = ta_tally_plus(sum, ta_tally_reanchor(ta_load_sum(other, i), lift));
    }
    return sum;
}

template <int Threads>
TA_DEVICE void ta_finish_tally(const ta_finish &p, const ta_arrived &tally, int64_t head,
                               int64_t row)
{
    int32_t v_dim = p.problem.v_dim;
    float own = tally.own[ta_tally_anchor_at(v_dim)], anchor = ta_merge_anchors(tally, v_dim);
    float sink = -INFINITY;
    if (p.problem.sinks)
        sink = p.problem.sinks[p.first_head + head] * TA_LOG2E;
    ta_tally_sum l = ta_merge_sums(tally, v_dim, v_dim, own, anchor);
    ta_tally_end end = ta_tally_end_of(anchor, l, sink);
    int64_t at = ta_problem_row_at(&p.problem, &p.out, row) + head * p.out.head_stride;
    if (p.out.data)
        for (int32_t i = static_cast<int32_t>(threadIdx.x); i < v_dim; i += Threads) {
            ta_tally_sum o = ta_merge_sums(tally, i, v_dim, own, anchor);
            ta_store_element(p.problem.out_dtype, p.out.data, at + i,
                             ta_tally_value(anchor, o, l, end));
        }
    if (p.lse && threadIdx.x == 0)
        p.lse[row * p.heads + head] = static_cast<float>(end.lse * TA_TALLY_LN2);
}

#endif
