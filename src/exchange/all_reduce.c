/* The exchange that is two all-reduces, for groups whose library is good at them: the largest score
 * of every row over all ranks, then the sum of every rank's l and o, scaled to it. The fault goes
 * with the largest scores, as a number: 0 for none, and the larger the lower the rank.
 *
 * The arithmetic in between is done here on the host, so it is for exchanges in host memory. */
#include "../partial.h"
#include "../status.h"
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

ta_status ta_all_reduce_run(ta_plan *plan, ta_fault *fault, void *stream)
{
    const ta_problem *p = &plan->problem;
    int64_t count = p->query_heads * ta_problem_rows(p);
    float *largest = plan->received, *sums = plan->sent;
    for (int64_t i = 0; i < count; ++i)
        largest[i] = plan->exchange_records[i * ta_record_floats(p->v_dim) + p->v_dim];
    largest[count] = fault_number(plan, fault);
    TA_TRY(ta_group_all_reduce(plan->group, largest, largest, (size_t)count + 1, TA_ELEMENT_F32,
                               TA_REDUCE_MAX, stream));
    number_fault(plan, largest[count], fault);
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
    ta_cost_all_reduce(cost, "sums", all * (record - sizeof(float)));
}
