/* The exchange that is two all-reduces, for groups whose library is good at them: the largest score
 * of every row over all ranks, then the sum of every rank's l and o, scaled to it. The largest
 * scores are found as integers, so that the fault can go with them. Tallies take a third one in
 * between, for the positions of their sums. exchange.c lists it.
 *
 * The arithmetic in between is done here on the host, so it is for exchanges in host memory. */
#include "base/dtype.h"
#include "base/partial.h"
#include "base/status.h"
#include "base/tally.h"
#include "exchange.h"

int ta_all_reduce_supports(const ta_exchange_shape *shape)
{
    return !shape->device_memory;
}

/* A float as an integer of the same order; NaN is the largest. */
static int64_t to_integer(float x)
{
    uint32_t bits = ta_float_bits(x);
    if (x != x)
        return INT64_C(1) << 32 | bits;
    return bits >> 31 ? -(int64_t)(bits & INT32_MAX) - 1 : (int64_t)bits;
}

static float to_float(int64_t integer)
{
    return ta_float_from_bits(integer < 0 ? (uint32_t)(-integer - 1) | UINT32_C(1) << 31
                                          : (uint32_t)integer);
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

static int64_t count_records(const ta_exchange_job *job)
{
    return job->shape.heads * (int64_t)(job->shape.head_bytes / job->shape.record_bytes);
}

/* The largest scores, or the largest anchors, of all ranks, number `at` of each record, to
 * `largest`; and the fault. `scratch` has room for as many integers, and a fault's. */
static ta_status reduce_largest(ta_exchange_job *job, int64_t at, int64_t *scratch, float *largest,
                                void *stream)
{
    int64_t count = count_records(job), all = count + TA_FAULT_INTEGERS;
    int64_t floats = (int64_t)(job->shape.record_bytes / sizeof(float));
    ta_fault *fault = ta_exchange_fault(job);
    for (int64_t i = 0; i < count; ++i)
        scratch[i] = to_integer(job->records[i * floats + at]);
    ta_fault_to_integers(*fault, scratch + count);
    TA_TRY(ta_group_all_reduce(job->group, scratch, scratch, (size_t)all, TA_ELEMENT_I64,
                               TA_REDUCE_MAX, stream));
    for (int64_t i = 0; i < count; ++i)
        largest[i] = to_float(scratch[i]);
    *fault = ta_fault_from_integers(scratch + count, *fault);
    return TA_OK;
}

/* ---- Tallies: the anchors, the positions of the sums, then the sums ---- */

static int64_t *tally_words(const ta_exchange_job *job, int64_t record, int32_t sum)
{
    int64_t floats = ta_tally_floats(job->shape.v_dim);
    return (int64_t *)(void *)(job->records + record * floats) + 2 * (int64_t)sum;
}

/* Bring all sums to the anchors of all ranks, and note their positions. */
static void reanchor(const ta_exchange_job *job, const float *anchors, float *codes)
{
    int32_t v_dim = job->shape.v_dim;
    for (int64_t i = 0; i < count_records(job); ++i) {
        float *anchor = &job->records[i * ta_tally_floats(v_dim) + ta_tally_anchor_at(v_dim)];
        int digits = ta_tally_below(*anchor, anchors[i]);
        *anchor = anchors[i];
        for (int32_t d = 0; d <= v_dim; ++d) {
            int64_t *words = tally_words(job, i, d);
            ta_tally_sum sum = ta_tally_reanchor(ta_tally_load(words), digits);
            ta_tally_store(sum, words);
            *codes++ = (float)sum.code;
        }
    }
}

static ta_status reduce_tallies(ta_exchange_job *job, void *stream)
{
    int32_t v_dim = job->shape.v_dim;
    int64_t count = count_records(job), all = count * (v_dim + 1);
    float *anchors = job->received, *codes = anchors + count;
    int64_t *sums = (int64_t *)(void *)job->sent;
    TA_TRY(reduce_largest(job, ta_tally_anchor_at(v_dim), sums, anchors, stream));
    if (ta_exchange_fault(job)->status != TA_OK) /* as on all ranks */
        return TA_OK;
    reanchor(job, anchors, codes);
    TA_TRY(ta_group_all_reduce(job->group, codes, codes, (size_t)all, TA_ELEMENT_F32, TA_REDUCE_MAX,
                               stream));
    for (int64_t i = 0; i < all; ++i) {
        ta_tally_sum sum = ta_tally_raise(
            ta_tally_load(tally_words(job, i / (v_dim + 1), (int32_t)(i % (v_dim + 1)))),
            (int)codes[i]);
        sums[2 * i] = sum.high;
        sums[2 * i + 1] = sum.low;
    }
    TA_TRY(ta_group_all_reduce(job->group, sums, sums, 2 * (size_t)all, TA_ELEMENT_I64,
                               TA_REDUCE_SUM, stream));
    for (int64_t i = 0; i < all; ++i)
        ta_tally_store((ta_tally_sum){sums[2 * i], sums[2 * i + 1], (int)codes[i]},
                       tally_words(job, i / (v_dim + 1), (int32_t)(i % (v_dim + 1))));
    return TA_OK;
}

ta_status ta_all_reduce_run(ta_exchange_job *job, ta_heads heads, void *stream)
{
    int32_t v_dim = job->shape.v_dim;
    int64_t count = count_records(job);
    float *largest = job->received, *sums = job->sent;
    (void)heads; /* always all */
    if (job->shape.tallies)
        return reduce_tallies(job, stream);
    TA_TRY(reduce_largest(job, v_dim, (int64_t *)(void *)sums, largest, stream));
    if (ta_exchange_fault(job)->status != TA_OK) /* as on all ranks */
        return TA_OK;
    scale(job->records, largest, count, v_dim, sums);
    TA_TRY(ta_group_all_reduce(job->group, sums, sums, (size_t)(count * (v_dim + 1)),
                               TA_ELEMENT_F32, TA_REDUCE_SUM, stream));
    put_back(job->records, largest, count, v_dim, sums);
    return TA_OK;
}

ta_status ta_all_reduce_estimate(const ta_exchange_entry *kind, const ta_exchange_shape *shape,
                                 ta_cost *cost)
{
    uint64_t record = shape->record_bytes, records = shape->head_bytes / record;
    uint64_t all = (uint64_t)shape->heads * records;
    (void)kind;
    ta_cost_local(cost, "scale", ta_cost_memory_s(cost->cluster, 3, 5.0 * (double)(all * record)));
    ta_cost_all_reduce(cost, "largest scores", (all + TA_FAULT_INTEGERS) * sizeof(int64_t));
    if (shape->tallies) { /* two integers of 8 bytes and a position of 4 for each sum */
        record -= 2 * sizeof(float);
        ta_cost_all_reduce(cost, "positions", all * record / 4);
        ta_cost_all_reduce(cost, "sums", all * record);
        return TA_OK;
    }
    ta_cost_all_reduce(cost, "sums", all * (record - sizeof(float)));
    return TA_OK;
}
