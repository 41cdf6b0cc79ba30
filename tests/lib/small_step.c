/* A small decode step: see small_step.h. */
#include "small_step.h"

#include <string.h>

#include <stddef.h>

#include "base/status.h"
#include "bound.h"
#include "device/device.h"
#include "expect.h"
#include "number.h"
#include "options.h"
#include "random.h"

/* The arrays of a step, from the query to the lengths. */
#define ARRAYS_AT offsetof(small_step, query)
#define ARRAYS_BYTES (offsetof(small_step, q) - ARRAYS_AT)

static void draw(random_source *source, double *numbers, size_t count)
{
    for (size_t i = 0; i < count; ++i)
        numbers[i] = (double)(float)random_normal(source);
}

void small_step_whole(small_whole *whole)
{
    random_source source = random_from(21);
    whole->lengths[0] = SMALL_TOKENS;
    whole->lengths[1] = 3;
    draw(&source, &whole->q[0][0], sizeof whole->q / sizeof(double));
    draw(&source, &whole->k[0][0], sizeof whole->k / sizeof(double));
    draw(&source, &whole->v[0][0], sizeof whole->v / sizeof(double));
}

oracle_problem small_step_problem(void)
{
    return (oracle_problem){.query_tokens = SMALL_QUERY_TOKENS,
                            .query_heads = SMALL_HEADS,
                            .kv_heads = SMALL_KV_HEADS,
                            .k_dim = SMALL_K_DIM,
                            .v_dim = SMALL_V_DIM,
                            .causal = true,
                            .scale = 0.25};
}

static void store(const double *from, int count, float *to)
{
    for (int i = 0; i < count; ++i)
        to[i] = (float)from[i];
}

static void fill(small_step *step)
{
    static const int key = SMALL_KV_HEADS * SMALL_K_DIM, value = SMALL_KV_HEADS * SMALL_V_DIM;
    small_whole w;
    small_step_whole(&w);
    number_poison(TA_F32, step->keys, SMALL_BATCH * SMALL_TOKENS * key);
    number_poison(TA_F32, step->values, SMALL_BATCH * SMALL_TOKENS * value);
    memcpy(step->lengths, w.lengths, sizeof w.lengths);
    for (int b = 0; b < SMALL_BATCH; ++b) {
        int queries = SMALL_QUERY_TOKENS * SMALL_HEADS * SMALL_K_DIM;
        store(w.q[b], queries, step->query + b * queries);
        for (int y = step->rank, local = 0; y < w.lengths[b]; y += step->ranks, ++local) {
            int at = b * SMALL_TOKENS + local;
            store(w.k[b] + y * key, key, step->keys + at * key);
            store(w.v[b] + y * value, value, step->values + at * value);
        }
    }
}

void small_step_init(small_step *step, int rank, int ranks)
{
    memset(step, 0, sizeof *step);
    step->rank = rank;
    step->ranks = ranks;
    step->config = (ta_plan_config)TA_PLAN_CONFIG_INIT;
    step->config.batch = SMALL_BATCH;
    step->config.query_tokens = SMALL_QUERY_TOKENS;
    step->config.query_heads = SMALL_HEADS;
    step->config.kv_heads = SMALL_KV_HEADS;
    step->config.k_dim = SMALL_K_DIM;
    step->config.v_dim = SMALL_V_DIM;
    step->config.kv_dtype = TA_F32;
    step->config.max_tokens = SMALL_TOKENS;
    step->config.map.kind = TA_SHARD_BLOCK_CYCLIC;
    step->config.map.block = 1;
    step->config.algorithm = options.algorithm;
    step->q.data = step->query;
    step->out.data = step->results;
    step->kv = (ta_kv)TA_KV_INIT;
    step->call = (ta_call)TA_CALL_INIT;
    step->kv.k.data = step->keys;
    step->kv.v.data = step->values;
    step->kv.lengths = step->lengths;
    for (int b = 0; b <= SMALL_BATCH; ++b)
        step->starts[b] = b * SMALL_QUERY_TOKENS;
    fill(step);
}

ta_status small_step_open(small_step *step, ta_group *group, ta_device **device, ta_plan **plan)
{
    small_step_init(step, ta_group_rank(group), ta_group_size(group));
    TA_TRY(ta_device_open("host", NULL, device));
    return ta_plan_create(group, *device, &step->config, plan);
}

ta_status small_rank_open(small_rank *r, ta_group *group)
{
    return small_step_open(&r->step, group, &r->device, &r->plan);
}

ta_status small_rank_close(small_rank *r)
{
    ta_plan_destroy(r->plan);
    ta_device_close(r->device);
    return TA_OK;
}

/* Where the device has one of the arrays. */
static void *place_of(const small_step *step, const void *array)
{
    if (!step->device)
        return (void *)array;
    return (char *)step->memory + ((const char *)array - (const char *)step->query);
}

void small_step_ragged(small_step *step, int32_t tokens)
{
    step->call.tokens = tokens;
    step->call.starts = place_of(step, step->starts);
}

ta_status small_step_to_device(small_step *step, ta_device *device)
{
    if (!device->ops->alloc_host)
        return TA_OK;
    TA_TRY(device->ops->alloc(device, ARRAYS_BYTES, &step->memory));
    step->device = device;
    step->q.data = place_of(step, step->query);
    step->out.data = place_of(step, step->results);
    step->kv.k.data = place_of(step, step->keys);
    step->kv.v.data = place_of(step, step->values);
    step->kv.lengths = place_of(step, step->lengths);
    if (step->kv.bounds)
        step->kv.bounds = place_of(step, step->bounds);
    return TA_OK;
}

void small_step_release(small_step *step)
{
    if (step->device)
        step->device->ops->free(step->device, step->memory);
    step->device = NULL;
}

ta_status small_step_fill(small_step *step)
{
    number_poison(TA_F32, step->results, SMALL_ROWS * SMALL_V_DIM);
    number_poison(TA_F32, step->lse, SMALL_ROWS);
    if (!step->device)
        return TA_OK;
    return step->device->ops->copy(step->device, step->memory, step->query, ARRAYS_BYTES, NULL);
}

ta_status small_step_queue(small_step *step, ta_plan *plan, void *stream)
{
    static const ta_call none = TA_CALL_INIT;
    return ta_decode(plan, &step->q, &step->kv, &step->out, place_of(step, step->lse),
                     memcmp(&step->call, &none, sizeof none) ? &step->call : NULL, stream);
}

ta_status small_step_fetch(small_step *step, void *stream)
{
    if (!step->device)
        return TA_OK;
    size_t bytes = sizeof step->results + sizeof step->lse;
    TA_TRY(step->device->ops->copy(step->device, step->results, step->out.data, bytes, stream));
    return step->device->ops->synchronize(step->device, stream);
}

ta_status small_step_decode(small_step *step, ta_plan *plan)
{
    TA_TRY(small_step_fill(step));
    TA_TRY(small_step_queue(step, plan, NULL));
    return small_step_fetch(step, NULL);
}

bool small_step_untouched(const small_step *step)
{
    for (int i = 0; i < SMALL_ROWS * SMALL_V_DIM; ++i)
        if (!number_is_poison(TA_F32, step->results, i))
            return false;
    for (int i = 0; i < SMALL_ROWS; ++i)
        if (!number_is_poison(TA_F32, step->lse, i))
            return false;
    return true;
}

static bool row_right(const oracle_problem *problem, const oracle_row *row, int ranks,
                      const float *out, float lse)
{
    bound_row bound;
    bound_of_row(problem, row, TA_F32, bound_partials(options.algorithm, ranks), &bound);
    for (int d = 0; d < SMALL_V_DIM; ++d)
        if (!(bound_compare(row->out[d], bound.out[d], (double)out[d]) <= 1))
            return false;
    return bound_compare(row->lse, bound.lse, (double)lse) <= 1;
}

bool small_step_right(const small_step *step)
{
    oracle_problem problem = small_step_problem();
    oracle_row row = {0};
    bool right = true;
    int index = 0;
    small_whole w;
    small_step_whole(&w);
    for (int b = 0; b < SMALL_BATCH; ++b) {
        oracle_sequence sequence = {w.lengths[b], w.q[b], w.k[b], w.v[b]};
        for (int t = 0; t < SMALL_QUERY_TOKENS; ++t)
            for (int h = 0; h < SMALL_HEADS; ++h, ++index) {
                oracle_attend(&problem, &sequence, t, h, &row);
                right = right && row_right(&problem, &row, step->ranks,
                                           step->results + index * SMALL_V_DIM, step->lse[index]);
            }
    }
    oracle_row_free(&row);
    return right;
}

ta_status small_step_try(small_step *step, ta_group *group, ta_device *device)
{
    ta_plan *plan;
    TA_TRY(ta_plan_create(group, device, &step->config, &plan));
    TA_TRY(small_step_decode(step, plan));
    RANK_EXPECT(small_step_right(step));
    ta_plan_destroy(plan);
    return TA_OK;
}
