/* Cases of attention over full sequences: see attention_case.h. */
#include "attention_case.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <treeattn/attention.h>

#include "base/status.h"
#include "bound.h"
#include "case.h"
#include "device/device.h"
#include "digest.h"
#include "number.h"
#include "options.h"

const int32_t attention_weights[16] = {2, 1, 0, 3, 1, 1, 0, 2, 1, 4, 1, 0, 1, 2, 1, 1};

/* Numbers between one row of a tensor and the next that belong to nobody. With 3 of them rows are
 * not aligned to 16 bytes, which is for other kernels on a GPU. */
static int gap_of(const attention_case *c)
{
    return c->seed % 4 == 3 ? 3 : 8;
}

static double *random_numbers(random_source *random, ta_dtype dtype, int64_t count)
{
    double *numbers = calloc((size_t)count + 1, sizeof *numbers);
    if (!numbers)
        abort();
    for (int64_t i = 0; i < count; ++i) {
        float stored;
        number_encode(dtype, &stored, 0, random_normal(random));
        numbers[i] = number_decode(dtype, &stored, 0);
    }
    return numbers;
}

static oracle_problem problem_of(const attention_case *c, int sequence)
{
    oracle_problem problem = c->problem;
    problem.query_tokens = c->lengths[sequence];
    problem.dot_sums = 1;
    return problem;
}

void attention_case_make(attention_case *c, int ranks)
{
    random_source random = random_from(c->seed ^ 0x5eed);
    const oracle_problem *p = &c->problem;
    for (int s = 0; s < c->sequences; ++s) {
        int64_t rows = (int64_t)c->lengths[s] * p->query_heads;
        int64_t keys = (int64_t)c->lengths[s] * p->kv_heads;
        c->q[s] = random_numbers(&random, c->dtype, rows * p->k_dim);
        c->k[s] = random_numbers(&random, c->dtype, keys * p->k_dim);
        c->v[s] = random_numbers(&random, c->dtype, keys * p->v_dim);
        c->dout[s] = random_numbers(&random, c->dtype, rows * p->v_dim);
        oracle_problem problem = problem_of(c, s);
        oracle_sequence sequence = {c->lengths[s], c->q[s], c->k[s], c->v[s]};
        gradient_compute(&problem, &sequence, c->dout[s], c->dtype, ranks, &c->exact[s]);
    }
}

void attention_case_free(attention_case *c)
{
    for (int s = 0; s < c->sequences; ++s) {
        free(c->q[s]);
        free(c->k[s]);
        free(c->v[s]);
        free(c->dout[s]);
        gradient_free(&c->exact[s]);
    }
}

const char *attention_describe(const attention_case *c, const attention_run *run)
{
    static _Thread_local char text[512];
    const oracle_problem *p = &c->problem;
    snprintf(text, sizeof text,
             "seed %llu: algorithm %d, %d ranks as %d x %d, map kind %d block %d, %d sequences of "
             "%d %d %d %d, "
             "heads %d / %d, dims %d %d, dtype %d, causal %d, window %d, softcap %g, scale %g",
             (unsigned long long)c->seed, (int)run->algorithm, run->ranks, run->grid_rows,
             run->grid_columns, (int)run->kind, (int)run->block, c->sequences, (int)c->lengths[0],
             (int)c->lengths[1], (int)c->lengths[2], (int)c->lengths[3], p->query_heads,
             p->kv_heads, p->k_dim, p->v_dim, (int)c->dtype, p->causal, p->window, p->softcap,
             p->scale);
    return text;
}

/* One rank's tensors: a row for each token and head, with a gap behind each. `host` is what the
 * device's memory was made from, and after a call a copy of it; on the host both are the same. */
typedef struct rank_tensor {
    ta_tensor tensor;
    void *host;
    size_t bytes;
    int heads, dim;
} rank_tensor;

typedef struct rank_state {
    ta_device *device;
    const attention_case *c;
    const attention_run *run;
    int rank, tokens;
    int *sequence; /* [tokens] */
    int32_t *position;
} rank_state;

typedef struct shared_state {
    const attention_case *c;
    const attention_run *run;
    pthread_mutex_t lock;
    attention_result result;
} shared_state;

static int on_gpu(const rank_state *r)
{
    return r->device->ops->alloc_host != NULL;
}

/* Moving a test's own numbers does not fail. */
static void must(ta_status status)
{
    if (status != TA_OK)
        abort();
}

/* Where the device sees `bytes` of host memory. */
static void *to_device(const rank_state *r, void *host, size_t bytes)
{
    void *memory = host;
    if (on_gpu(r)) {
        must(r->device->ops->alloc(r->device, bytes, &memory));
        must(r->device->ops->copy(r->device, memory, host, bytes, NULL));
    }
    return memory;
}

static void from_device(const rank_state *r, void *host, const void *memory, size_t bytes)
{
    if (!on_gpu(r))
        return;
    must(r->device->ops->copy(r->device, host, memory, bytes, NULL));
    must(r->device->ops->synchronize(r->device, NULL));
}

static void free_both(const rank_state *r, void *host, void *memory)
{
    if (on_gpu(r))
        r->device->ops->free(r->device, memory);
    free(host);
}

static rank_tensor make_tensor(const rank_state *r, int heads, int dim, double *const *from)
{
    ta_dtype dtype = r->c->dtype;
    rank_tensor t = {.heads = heads, .dim = dim};
    int gap = gap_of(r->c);
    t.tensor.head_stride = dim + gap;
    t.tensor.token_stride = heads * t.tensor.head_stride + gap;
    int64_t count = r->tokens * t.tensor.token_stride + gap;
    t.bytes = (size_t)count * number_bytes(dtype);
    t.host = malloc(t.bytes);
    if (!t.host)
        abort();
    number_poison(dtype, t.host, count);
    for (int i = 0; from && i < r->tokens; ++i)
        for (int h = 0; h < heads; ++h)
            for (int d = 0; d < dim; ++d)
                number_encode(
                    dtype, t.host, i * t.tensor.token_stride + h * t.tensor.head_stride + d,
                    from[r->sequence[i]][((int64_t)r->position[i] * heads + h) * dim + d]);
    t.tensor.data = to_device(r, t.host, t.bytes);
    return t;
}

static uint64_t mix(uint64_t bits, uint64_t more)
{
    bits = (bits ^ more) * 0x9e3779b97f4a7c15u;
    return bits ^ bits >> 29;
}

/* The bits of each number are mixed with its index, and added up: in any order of ranks. */
static void note(const rank_state *r, attention_result *result, int kind, int sequence, int64_t at,
                 double value, double ratio)
{
    uint64_t bits, index = (uint64_t)(((int64_t)sequence << 40) + at);
    memcpy(&bits, &value, sizeof bits);
    if (r->run->kept)
        r->run->kept[kind][sequence][at] = value;
    result->bits += mix(mix((uint64_t)kind, index), bits);
    if (!(ratio <= result->worst[kind]))
        result->worst[kind] = ratio;
}

static void compare(const rank_state *r, int kind, const rank_tensor *t, attention_result *result)
{
    from_device(r, t->host, t->tensor.data, t->bytes);
    for (int i = 0; i < r->tokens; ++i) {
        const gradient_sequence *exact = &r->c->exact[r->sequence[i]];
        const gradient_numbers *all[] = {&exact->out, &exact->lse, &exact->dq, &exact->dk,
                                         &exact->dv};
        for (int h = 0; h < t->heads; ++h)
            for (int d = 0; d < t->dim; ++d) {
                int64_t at = ((int64_t)r->position[i] * t->heads + h) * t->dim + d;
                double got =
                    number_decode(r->c->dtype, t->host,
                                  i * t->tensor.token_stride + h * t->tensor.head_stride + d);
                note(r, result, kind, r->sequence[i], at, got,
                     bound_compare(all[kind]->value[at], all[kind]->bound[at], got));
            }
        for (int h = 0; h < t->heads; ++h)
            for (int d = 0; d < gap_of(r->c); ++d)
                if (!number_is_poison(r->c->dtype, t->host,
                                      i * t->tensor.token_stride + h * t->tensor.head_stride +
                                          t->dim + d))
                    result->worst[kind] = INFINITY; /* written where it must not */
    }
}

static void compare_lse(const rank_state *r, const float *lse, attention_result *result)
{
    int heads = r->c->problem.query_heads;
    for (int i = 0; i < r->tokens * heads; ++i) {
        const gradient_numbers *exact = &r->c->exact[r->sequence[i / heads]].lse;
        int64_t at = (int64_t)r->position[i / heads] * heads + i % heads;
        note(r, result, 1, r->sequence[i / heads], at, (double)lse[i],
             bound_compare(exact->value[at], exact->bound[at], (double)lse[i]));
    }
}

/* Which tokens this rank holds, by the public functions. */
static ta_status find_tokens(rank_state *r)
{
    int total = 0;
    for (int s = 0; s < r->c->sequences; ++s)
        total += r->c->lengths[s];
    r->sequence = calloc((size_t)total + 1, sizeof *r->sequence);
    r->position = calloc((size_t)total + 1, sizeof *r->position);
    for (int s = 0; s < r->c->sequences; ++s) {
        ta_shard_map map = TA_SHARD_MAP_INIT;
        int32_t length = r->c->lengths[s], count;
        int divided = r->run->kind == TA_SHARD_ZIGZAG ? 2 * r->run->ranks : r->run->ranks;
        map.kind = r->run->kind;
        map.ranks = r->run->ranks;
        map.block = r->run->block;
        if (map.kind == TA_SHARD_WEIGHTED)
            map.bounds = attention_weights;
        else if (!map.block && map.kind != TA_SHARD_BLOCK_CYCLIC)
            map.block = length ? (length + divided - 1) / divided : 1;
        TA_TRY(ta_shard_count(&map, r->rank, length, &count));
        for (int32_t i = 0; i < count; ++i, ++r->tokens) {
            r->sequence[r->tokens] = s;
            TA_TRY(ta_shard_position(&map, r->rank, i, &r->position[r->tokens]));
        }
    }
    return TA_OK;
}

static ta_status make_plan(const rank_state *r, ta_group *group, ta_device *device,
                           ta_attention **plan)
{
    const oracle_problem *p = &r->c->problem;
    ta_attention_config config = TA_ATTENTION_CONFIG_INIT;
    config.query_heads = p->query_heads;
    config.kv_heads = p->kv_heads;
    config.k_dim = p->k_dim;
    config.v_dim = p->v_dim;
    config.dtype = r->c->dtype;
    config.max_tokens = 1;
    for (int s = 0; s < r->c->sequences; ++s)
        config.max_tokens += r->c->lengths[s];
    config.map.kind = r->run->kind;
    config.map.block = r->run->block;
    if (config.map.kind == TA_SHARD_WEIGHTED)
        config.map.bounds = attention_weights;
    config.mask = p->causal ? TA_MASK_CAUSAL : TA_MASK_FULL;
    config.window = p->window;
    config.scale = (float)p->scale;
    config.softcap = (float)p->softcap;
    config.grid_rows = r->run->grid_rows;
    config.grid_columns = r->run->grid_columns;
    config.algorithm = r->run->algorithm;
    return ta_attention_create(group, device, &config, plan);
}

static ta_status run_plan(const rank_state *r, ta_group *group, ta_attention *plan,
                          attention_result *result)
{
    const attention_case *c = r->c;
    const oracle_problem *p = &c->problem;
    rank_tensor q = make_tensor(r, p->query_heads, p->k_dim, c->q);
    rank_tensor k = make_tensor(r, p->kv_heads, p->k_dim, c->k);
    rank_tensor v = make_tensor(r, p->kv_heads, p->v_dim, c->v);
    rank_tensor dout = make_tensor(r, p->query_heads, p->v_dim, c->dout);
    rank_tensor out = make_tensor(r, p->query_heads, p->v_dim, NULL);
    rank_tensor dq = make_tensor(r, p->query_heads, p->k_dim, NULL);
    rank_tensor dk = make_tensor(r, p->kv_heads, p->k_dim, NULL);
    rank_tensor dv = make_tensor(r, p->kv_heads, p->v_dim, NULL);
    size_t lse_bytes = ((size_t)(r->tokens * p->query_heads) + 1) * sizeof(float);
    float *host_lse = calloc(1, lse_bytes), *lse = to_device(r, host_lse, lse_bytes);
    ta_attention_input input = TA_ATTENTION_INPUT_INIT;
    ta_attention_gradient gradient = TA_ATTENTION_GRADIENT_INIT;
    input.sequences = c->sequences;
    input.lengths = c->lengths;
    input.q = q.tensor;
    input.k = k.tensor;
    input.v = v.tensor;
    gradient.out = out.tensor;
    gradient.dout = dout.tensor;
    gradient.lse = lse;
    gradient.dq = dq.tensor;
    gradient.dk = dk.tensor;
    gradient.dv = dv.tensor;
    ta_group_stats before = TA_GROUP_STATS_INIT, after = TA_GROUP_STATS_INIT;
    before.size = after.size = result->traffic_backward.size = sizeof before;
    ta_status status = r->run->ranks > 1 ? ta_group_get_stats(group, &before) : TA_OK;
    if (status == TA_OK)
        status = ta_attention_forward(plan, &input, &out.tensor, lse, NULL);
    if (status == TA_OK && r->run->ranks > 1)
        status = ta_group_get_stats(group, &after);
    if (status == TA_OK)
        status = ta_attention_backward(plan, &input, &gradient, NULL);
    if (status == TA_OK && r->run->ranks > 1)
        status = ta_group_get_stats(group, &result->traffic_backward);
    result->traffic.bytes_received = after.bytes_received - before.bytes_received;
    result->traffic_backward.bytes_received -= after.bytes_received;
    if (status == TA_OK) {
        compare(r, 0, &out, result);
        from_device(r, host_lse, lse, lse_bytes);
        compare_lse(r, host_lse, result);
        compare(r, 2, &dq, result);
        compare(r, 3, &dk, result);
        compare(r, 4, &dv, result);
    }
    rank_tensor *all[] = {&q, &k, &v, &dout, &out, &dq, &dk, &dv};
    for (int i = 0; i < 8; ++i)
        free_both(r, all[i]->host, all[i]->tensor.data);
    free_both(r, host_lse, lse);
    return status;
}

static ta_status run_rank(ta_group *threads, void *context)
{
    shared_state *shared = context;
    rank_state r = {.c = shared->c, .run = shared->run, .rank = ta_group_rank(threads)};
    ta_device_config config = TA_DEVICE_CONFIG_INIT;
    ta_device *device = NULL;
    ta_group *group = threads;
    ta_attention *plan = NULL;
    attention_result result = {0};
    config.threads = shared->run->threads ? shared->run->threads : 1;
    config.simd = shared->run->simd;
    ta_status status = case_rank_open(threads, options.device, &config, &device, &group);
    r.device = device;
    if (status == TA_OK)
        status = find_tokens(&r);
    if (status == TA_OK)
        status = make_plan(&r, shared->run->ranks > 1 ? group : NULL, device, &plan);
    if (status == TA_OK)
        status = run_plan(&r, group, plan, &result);
    ta_attention_destroy(plan);
    case_rank_close(threads, device, group);
    free(r.sequence);
    free(r.position);
    pthread_mutex_lock(&shared->lock);
    shared->result.bits += result.bits;
    for (int i = 0; i < 5; ++i)
        if (!(result.worst[i] <= shared->result.worst[i]))
            shared->result.worst[i] = result.worst[i];
    if (r.rank == 0) {
        shared->result.traffic = result.traffic;
        shared->result.traffic_backward = result.traffic_backward;
    }
    pthread_mutex_unlock(&shared->lock);
    return status;
}

ta_status attention_run_group(const attention_case *c, const attention_run *run, ta_group *group,
                              attention_result *result)
{
    shared_state shared = {.c = c, .run = run};
    pthread_mutex_init(&shared.lock, NULL);
    ta_status status = group ? run_rank(group, &shared)
                             : ta_group_run_threads(run->ranks, NULL, run_rank, &shared);
    pthread_mutex_destroy(&shared.lock);
    *result = shared.result;
    digest_add(result->bits);
    return status;
}
