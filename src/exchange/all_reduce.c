/* The exchange that is two all-reduces, for groups whose library is good at them: the largest score
 * of every row over all ranks, then the sum of every rank's l and o, scaled to it. The fault goes
 * with the largest scores, as a number: 0 for none, and the larger the lower the rank. Tallies take
 * a third one in between, for the positions of their sums.
 *
 * The arithmetic in between is done here on the host, so it is for exchanges in host memory. */
#include "base/partial.h"
#include "base/status.h"
#include "base/tally.h"
#include "estimate.h"
#include "messages.h"

/* A fault as a number that is exact in a float: room for 2^20 ranks and 16 statuses. */
#define FAULT_STATUSES 16

static float fault_number(const ta_plan *plan, const ta_fault *fault)
{
    if (fault->status == TA_OK)
        return 0.0f;
    return (float)((plan->ranks - fault->rank) * FAULT_STATUSES - fault->status);
}

static void number_fault(const ta_plan *plan, float number, ta_fault *fault)
{
    int whole = (int)number;
    if (whole > 0)
        *fault = (ta_fault){-(whole % FAULT_STATUSES), plan->ranks - whole / FAULT_STATUSES};
}

/* l and o of all records, scaled from their own largest score to that of all ranks. */
static void scale(const float *records, const float *largest, int64_t count, int v_dim, float *sums)
{
    for (int64_t i = 0; i < count; ++i) {
        const float *record = records + i * ta_record_floats(v_dim);
        float factor = ta_merge_scale(record[v_dim], largest[i]).a;
        for (int d = 0; d < v_dim; ++d)
            sums[i * (v_dim + 1) + d] = record[d] * factor;
        sums[i * (v_dim + 1) + v_dim] = record[v_dim + 1] * factor;
    }
}

static void put_back(float *records, const float *largest, int64_t count, int v_dim,
                     const float *sums)
{
    for (int64_t i = 0; i < count; ++i) {
        float *record = records + i * ta_record_floats(v_dim);
        for (int d = 0; d < v_dim; ++d)
            record[d] = sums[i * (v_dim + 1) + d];
        record[v_dim] = largest[i];
        record[v_dim + 1] = sums[i * (v_dim + 1) + v_dim];
    }
}

/* The largest scores, or the largest anchors, of all ranks; and the fault. */
static ta_status reduce_largest(ta_plan *plan, float *largest, int64_t count, int64_t floats,
                                int64_t at, ta_fault *fault, void *stream)
{
    for (int64_t i = 0; i < count; ++i)
        largest[i] = plan->exchange_records[i * floats + at];
    largest[count] = fault_number(plan, fault);
    TA_TRY(ta_group_all_reduce(plan->group, largest, largest, (size_t)count + 1, TA_ELEMENT_F32,
                               TA_REDUCE_MAX, stream));
    number_fault(plan, largest[count], fault);
    return TA_OK;
}

/* ---- Tallies: the anchors, the positions of the sums, then the sums ---- */

static int64_t *tally_words(const ta_plan *plan, int64_t record, int32_t sum)
{
    int64_t floats = ta_problem_record_floats(&plan->problem);
    return (int64_t *)(void *)(plan->exchange_records + record * floats) + 2 * (int64_t)sum;
}

/* Bring all sums to the anchors of all ranks, and note their positions. */
static void reanchor(const ta_plan *plan, const float *anchors, int64_t count, float *codes)
{
    int32_t v_dim = plan->problem.v_dim;
    for (int64_t i = 0; i < count; ++i) {
        float *anchor =
            &plan->exchange_records[i * ta_tally_floats(v_dim) + ta_tally_anchor_at(v_dim)];
        int digits = ta_tally_below(*anchor, anchors[i]);
        *anchor = anchors[i];
        for (int32_t d = 0; d <= v_dim; ++d) {
            int64_t *words = tally_words(plan, i, d);
            ta_tally_sum sum = ta_tally_reanchor(ta_tally_load(words), digits);
            ta_tally_store(sum, words);
            *codes++ = (float)sum.code;
        }
    }
}

static ta_status reduce_tallies(ta_plan *plan, ta_fault *fault, void *stream)
{
    const ta_problem *p = &plan->problem;
    int64_t count = p->query_heads * ta_problem_rows(p), all = count * (p->v_dim + 1);
    float *anchors = plan->received, *codes = anchors + count + 1;
    int64_t *sums = (int64_t *)(void *)plan->sent;
    TA_TRY(reduce_largest(plan, anchors, count, ta_tally_floats(p->v_dim),
                          ta_tally_anchor_at(p->v_dim), fault, stream));
    reanchor(plan, anchors, count, codes);
    TA_TRY(ta_group_all_reduce(plan->group, codes, codes, (size_t)all, TA_ELEMENT_F32,
                               TA_REDUCE_MAX, stream));
    for (int64_t i = 0; i < all; ++i) {
        ta_tally_sum sum = ta_tally_raise(
            ta_tally_load(tally_words(plan, i / (p->v_dim + 1), (int32_t)(i % (p->v_dim + 1)))),
            (int)codes[i]);
        sums[2 * i] = sum.high;
        sums[2 * i + 1] = sum.low;
    }
    TA_TRY(ta_group_all_reduce(plan->group, sums, sums, 2 * (size_t)all, TA_ELEMENT_I64,
                               TA_REDUCE_SUM, stream));
    for (int64_t i = 0; i < all; ++i)
        ta_tally_store((ta_tally_sum){sums[2 * i], sums[2 * i + 1], (int)codes[i]},
                       tally_words(plan, i / (p->v_dim + 1), (int32_t)(i % (p->v_dim + 1))));
    return TA_OK;
}

ta_status ta_all_reduce_run(ta_plan *plan, ta_fault *fault, void *stream)
{
    const ta_problem *p = &plan->problem;
    int64_t count = p->query_heads * ta_problem_rows(p);
    float *largest = plan->received, *sums = plan->sent;
    if (p->tally_tile)
        return reduce_tallies(plan, fault, stream);
    TA_TRY(
        reduce_largest(plan, largest, count, ta_record_floats(p->v_dim), p->v_dim, fault, stream));
    scale(plan->exchange_records, largest, count, p->v_dim, sums);
    TA_TRY(ta_group_all_reduce(plan->group, sums, sums, (size_t)(count * (p->v_dim + 1)),
                               TA_ELEMENT_F32, TA_REDUCE_SUM, stream));
    put_back(plan->exchange_records, largest, count, p->v_dim, sums);
    return TA_OK;
}

void ta_all_reduce_estimate(const ta_exchange_shape *shape, ta_cost *cost)
{
    uint64_t record = shape->record_bytes, records = shape->head_bytes / record;
    uint64_t all = (uint64_t)shape->heads * records;
    ta_cost_local(cost, "scale", ta_cost_memory_s(cost->cluster, 3, 5.0 * (double)(all * record)));
    ta_cost_all_reduce(cost, "largest scores", (all + 1) * sizeof(float));
    if (shape->tallies) { /* two integers of 8 bytes and a position of 4 for each sum */
        record -= 2 * sizeof(float);
        ta_cost_all_reduce(cost, "positions", all * record / 4);
        ta_cost_all_reduce(cost, "sums", all * record);
        return;
    }
    ta_cost_all_reduce(cost, "sums", all * (record - sizeof(float)));
}
