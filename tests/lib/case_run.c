/* Running a decode case on all its ranks and checking what came out: see case.h. */
#include "case.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <treeattn/cluster.h>

#include "base/status.h"
#include "device/device.h"
#include "digest.h"
#include "group/group.h"
#include "number.h"
#include "options.h"
#include "patience.h"

case_launch_fn case_launch = ta_group_run_threads;
int case_steps = 2;
bool case_same_bits = true;

/* What one rank found. */
typedef struct rank_result {
    char failure[512];
    bound_worst worst;
    uint64_t out_hash; /* of the bits of the results, in the order of their indices */
    case_kept *kept;   /* where its results go; NULL: nobody wants them */
} rank_result;

typedef struct whole_run {
    const decode_case *c;
    case_data data;
    rank_result results[CASE_MAX_RANKS]; /* of the ranks that this process runs */
} whole_run;

/* Keeps the first failure. */
__attribute__((format(printf, 2, 3))) static void fail(rank_result *result, const char *format, ...)
{
    if (result->failure[0])
        return;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(result->failure, sizeof result->failure, format, arguments);
    va_end(arguments);
}

static uint64_t hash(uint64_t seed, const void *data, size_t bytes)
{
    uint64_t h = seed ^ 0xcbf29ce484222325u;
    for (size_t i = 0; i < bytes; i += 8) {
        uint64_t word = 0;
        memcpy(&word, (const char *)data + i, bytes - i < 8 ? bytes - i : 8);
        h = (h ^ word) * 0x9e3779b97f4a7c15u;
        h ^= h >> 29;
    }
    return h;
}

static uint64_t hash_inputs(const case_shard *shard)
{
    const case_buffer *inputs[] = {&shard->q, &shard->k, &shard->v};
    uint64_t h = 0;
    for (int i = 0; i < 3; ++i)
        if (inputs[i]->memory)
            h = hash(h, inputs[i]->memory,
                     (size_t)inputs[i]->count * number_bytes(inputs[i]->dtype));
    return h;
}

static void include(double *worst, double ratio)
{
    if (!(ratio <= *worst))
        *worst = ratio;
}

/* One row and head of the output, which is row `index` of all query heads in the oracle's order. */
static void check_row(const whole_run *run, const case_shard *shard, int64_t at, int64_t index,
                      rank_result *result)
{
    const case_data *data = &run->data;
    int v_dim = run->c->plan.v_dim;
    for (int d = 0; d < v_dim; ++d) {
        double got = number_decode(shard->out.dtype, shard->out.memory, at + d);
        double expected = data->out[index * v_dim + d], bound = data->out_bound[index * v_dim + d];
        double ratio = bound_compare(expected, bound, got);
        if (result->kept)
            result->kept->out[index * v_dim + d] = got;
        include(&result->worst.out[shard->out.dtype], ratio);
        if (!(ratio <= 1))
            fail(result,
                 "out row %lld dim %d is %.9g, expected %.9g: error %.3g is %.3g of the "
                 "bound",
                 (long long)index, d, got, expected, got - expected, ratio);
        if (number_is_poison(shard->out.dtype, shard->out.memory, at + d))
            fail(result, "out row %lld dim %d was not written", (long long)index, d);
    }
}

static void check_lse(const whole_run *run, const case_shard *shard, int64_t at, int64_t index,
                      rank_result *result)
{
    double got = (double)shard->lse[CASE_GUARD + at];
    double expected = run->data.lse[index];
    double ratio = bound_compare(expected, run->data.lse_bound[index], got);
    if (result->kept)
        result->kept->lse[index] = got;
    include(&result->worst.lse, ratio);
    if (!(ratio <= 1))
        fail(result, "lse row %lld is %.9g, expected %.9g: error %.3g is %.3g of the bound",
             (long long)index, got, expected, got - expected, ratio);
    if (number_is_poison(TA_F32, shard->lse, CASE_GUARD + at))
        fail(result, "lse row %lld was not written", (long long)index);
}

/* Nothing else was written: neither between the rows of the output nor around the lse. */
static void check_guards(const decode_case *c, const case_shard *shard, rank_result *result)
{
    for (int64_t i = 0; i < shard->out.count; ++i)
        if (!shard->out.used[i] && !number_is_poison(shard->out.dtype, shard->out.memory, i))
            fail(result, "element %lld of out's memory was written", (long long)i);
    int64_t end = shard->lse_count + 2 * CASE_GUARD;
    for (int64_t i = 0; i < end; ++i) {
        bool guard = i < CASE_GUARD || i >= end - CASE_GUARD || !c->want_lse;
        if (guard && !number_is_poison(TA_F32, shard->lse, i))
            fail(result, "lse was written at %lld of %lld", (long long)(i - CASE_GUARD),
                 (long long)shard->lse_count);
    }
}

static void check_results(const whole_run *run, const case_shard *shard, rank_result *result)
{
    const ta_plan_config *p = &run->c->plan;
    size_t row_bytes = (size_t)p->v_dim * number_bytes(shard->out.dtype);
    int64_t lse_at = 0;
    result->out_hash = 0;
    for (int b = 0; b < p->batch; ++b)
        for (int t = 0; t < case_query_tokens(run->c, b); ++t)
            for (int h = 0; h < shard->out_count; ++h, ++lse_at) {
                int64_t row = case_first_row(run->c, b) + t;
                int64_t index = row * p->query_heads + shard->out_first + h;
                int64_t at = case_row_index(run->c, &shard->out, b, t, h);
                check_row(run, shard, at, index, result);
                if (run->c->want_lse)
                    check_lse(run, shard, lse_at, index, result);
                result->out_hash =
                    hash(result->out_hash,
                         (char *)shard->out.memory + (size_t)at * number_bytes(shard->out.dtype),
                         row_bytes);
            }
    if (run->c->want_lse)
        result->out_hash = hash(result->out_hash, shard->lse + CASE_GUARD,
                                (size_t)shard->lse_count * sizeof(float));
    check_guards(run->c, shard, result);
}

ta_status case_fill(case_shard *shard)
{
    number_poison(shard->out.dtype, shard->out.memory, shard->out.count);
    number_poison(TA_F32, shard->lse, shard->lse_count + 2 * CASE_GUARD);
    return case_copy_all(shard, true);
}

ta_status case_queue(const decode_case *c, ta_plan *plan, const case_shard *shard, void *stream)
{
    ta_tensor q = shard->q.tensor, out = shard->out.tensor;
    q.data = case_on_device(shard, q.data);
    out.data = case_on_device(shard, out.data);
    bool no_q = !q.data && c->absent_null, no_out = !out.data && c->absent_null;
    float *lse = case_on_device(shard, shard->lse + CASE_GUARD);
    return ta_decode(plan, no_q ? NULL : &q, &shard->kv, no_out ? NULL : &out,
                     c->want_lse ? lse : NULL, &shard->call, stream);
}

static ta_status decode(const decode_case *c, ta_plan *plan, case_shard *shard)
{
    TA_TRY(case_fill(shard));
    TA_TRY(case_queue(c, plan, shard, NULL));
    return case_copy_all(shard, false);
}

/* Decode more than once: a step finds what the last left behind, and must give the same bits. */
static ta_status decode_and_check(whole_run *run, ta_plan *plan, case_shard *shard,
                                  rank_result *result)
{
    uint64_t inputs = hash_inputs(shard);
    TA_TRY(decode(run->c, plan, shard));
    check_results(run, shard, result);
    uint64_t first = result->out_hash;
    for (int step = 1; step < case_steps; ++step) {
        TA_TRY(decode(run->c, plan, shard));
        check_results(run, shard, result);
        if (result->out_hash != first)
            fail(result, "step %d gave other bits than the first", step);
    }
    if (hash_inputs(shard) != inputs)
        fail(result, "q, K or V was written");
    return TA_OK;
}

/* What comes with the call must count, not what the plan has. */
static void give_other_options(const decode_case *c, ta_plan_config *config)
{
    static const float other[CASE_MAX_HEADS] = {3, 1, 4, 1, 5, 9, 2, 6};
    int even = c->seed % 2 == 0;
    config->batch += c->spare_batch;
    if (c->spare_call_tokens >= 0)
        config->max_call_tokens = (int32_t)case_rows(c) + c->spare_call_tokens;
    if (c->call_window)
        config->window = even ? 0 : 1;
    if (c->call_softcap)
        config->softcap = even ? 0.0f : 0.125f;
    if (c->call_alibi)
        config->alibi_slopes = even ? NULL : other;
    if (c->call_sinks)
        config->sinks = even ? NULL : other;
}

static ta_status make_workspace(ta_group *group, ta_device *device, ta_plan_config *config,
                                void **workspace)
{
    TA_TRY(ta_plan_workspace(group, device, config, &config->workspace_bytes));
    TA_TRY(device->ops->alloc(device, config->workspace_bytes, workspace));
    config->workspace = *workspace;
    void *poison = malloc(config->workspace_bytes + 4);
    number_poison(TA_F32, poison, (int64_t)(config->workspace_bytes / 4 + 1));
    ta_status status = device->ops->copy(device, *workspace, poison, config->workspace_bytes, NULL);
    free(poison);
    return status;
}

/* Two nodes, of which the second has a rank less if the number is odd. */
static ta_status make_cluster(int ranks, int racks, ta_cluster **cluster)
{
    char text[40];
    if (racks)
        snprintf(text, sizeof text, "local:2x2x%d", (ranks + 3) / 4);
    else
        snprintf(text, sizeof text, "local:2x%d", (ranks + 1) / 2);
    return ta_cluster_create(text, cluster);
}

ta_status case_plan_make(const decode_case *c, const case_data *data, ta_group *group,
                         ta_device *device, void **workspace, ta_plan **plan)
{
    ta_plan_config config = c->plan;
    ta_cluster *cluster = NULL;
    ta_status status = TA_OK;
    config.max_tokens = data->max_tokens;
    if (config.map.kind == TA_SHARD_WEIGHTED)
        config.map.bounds = c->weights;
    config.alibi_slopes = c->alibi ? data->alibi : NULL;
    config.sinks = c->sinks ? data->sinks : NULL;
    config.shared_prefixes = c->prefixes;
    give_other_options(c, &config);
    int racks = config.exchange == TA_EXCHANGE_MULTI_LEVEL;
    if (config.exchange == TA_EXCHANGE_TWO_LEVEL || racks ||
        (config.exchange == TA_EXCHANGE_DIRECT && options_host() && c->ranks > 2 && c->seed % 2))
        TA_TRY(make_cluster(c->ranks, racks, &cluster));
    config.cluster = cluster;
    if (c->own_workspace)
        TA_TRY_GOTO(make_workspace(group, device, &config, workspace), free_cluster);
    status = ta_plan_create(group, device, &config, plan);

free_cluster:
    ta_cluster_destroy(cluster);
    return status;
}

static const char *device_of(const decode_case *c, int rank)
{
    return c->device[rank % 2] ? c->device[rank % 2] : options.device;
}

/* The ranks are in different processes: compare their bits where all have the output, and let all
 * of them stop if one has found something. */
static ta_status compare_notes(const decode_case *c, ta_group *group, rank_result *result)
{
    uint64_t first = result->out_hash;
    TA_TRY(ta_group_broadcast(group, &first, sizeof first, 0, NULL));
    if (c->plan.out_placement == TA_PLACE_ALL && case_same_bits && first != result->out_hash)
        fail(result, "other bits than rank 0");
    int64_t failures = result->failure[0] != '\0';
    TA_TRY(
        ta_group_all_reduce(group, &failures, &failures, 1, TA_ELEMENT_I64, TA_REDUCE_SUM, NULL));
    if (failures)
        fail(result, "%d ranks found something wrong, this one did not", (int)failures);
    return TA_OK;
}

static ta_status check_rank(ta_group *group, ta_plan *plan, case_shard *shard, void *context)
{
    whole_run *run = context;
    rank_result *result = &run->results[ta_group_rank(group)];
    TA_TRY(decode_and_check(run, plan, shard, result));
    return case_launch == ta_group_run_threads ? TA_OK : compare_notes(run->c, group, result);
}

static ta_status run_rank(ta_group *threads, void *context)
{
    whole_run *run = context;
    const decode_case *c = run->c;
    ta_device_config config = TA_DEVICE_CONFIG_INIT;
    const char *name = device_of(c, ta_group_rank(threads));
    if (!strcmp(name, "host")) {
        config.threads = c->threads;
        config.simd = *c->simd ? c->simd : NULL;
    }
    return case_plan_use(c, &run->data, threads, name, &config, check_rank, run);
}

void case_launch_ranks(int ranks, ta_rank_fn fn, void *context, char *found, size_t capacity)
{
    ta_group_config config = TA_GROUP_CONFIG_INIT;
    config.timeout_ms = LONG_WAIT_MS;
    ta_status status = case_launch(ranks, &config, fn, context);
    found[0] = '\0';
    if (status != TA_OK)
        snprintf(found, capacity, "%s: %.600s", ta_status_name(status), ta_last_error());
}

static void collect(const decode_case *c, whole_run *run, bound_worst *worst, char *found,
                    size_t capacity)
{
    for (int rank = 0; rank < c->ranks; ++rank) {
        rank_result *result = &run->results[rank];
        bound_worst_include(worst, &result->worst);
        digest_add(result->out_hash);
        /* Devices may round the last division differently. */
        int same = strcmp(device_of(c, rank), device_of(c, 0)) ? 1 : 0;
        if (c->plan.out_placement == TA_PLACE_ALL && case_launch == ta_group_run_threads &&
            result->out_hash != run->results[same].out_hash)
            fail(result, "other bits than rank %d", same);
        if (result->failure[0] && !found[0])
            snprintf(found, capacity, "rank %d: %s", rank, result->failure);
    }
}

static double *copy_of(const double *from, int64_t count)
{
    double *copy = calloc((size_t)count + 1, sizeof *copy);
    if (copy && from)
        memcpy(copy, from, (size_t)count * sizeof *copy);
    return copy;
}

static void make_kept(const decode_case *c, const case_data *data, case_kept *kept)
{
    kept->lse_count = case_rows(c) * c->plan.query_heads;
    kept->out_count = kept->lse_count * c->plan.v_dim;
    kept->out = copy_of(NULL, kept->out_count);
    kept->out_bound = copy_of(data->out_bound, kept->out_count);
    kept->lse = copy_of(NULL, kept->lse_count);
    kept->lse_bound = copy_of(data->lse_bound, kept->lse_count);
}

void case_kept_free(case_kept *kept)
{
    free(kept->out);
    free(kept->out_bound);
    free(kept->lse);
    free(kept->lse_bound);
}

bool case_run_keep(const decode_case *given, bound_worst *worst, case_kept *kept, char *failure,
                   size_t capacity)
{
    decode_case told = *given;
    const decode_case *c = &told;
    if (!options_ranks(given->ranks))
        return true;
    if (options.algorithm != TA_ALGORITHM_AUTO)
        told.plan.algorithm = options.algorithm;
    if (told.plan.algorithm == TA_ALGORITHM_RING_KV) /* which has neither */
        told.selected = told.prefixes = 0;
    char found[700], line[1024];
    whole_run *run = calloc(1, sizeof *run);
    run->c = c;
    case_data_make(c, &run->data);
    if (kept)
        make_kept(c, &run->data, kept);
    for (int rank = 0; rank < c->ranks; ++rank) /* each result is kept once */
        if (rank == 0 || c->plan.out_placement != TA_PLACE_ALL)
            run->results[rank].kept = kept;
    case_launch_ranks(c->ranks, run_rank, run, found, sizeof found);
    if (!found[0])
        collect(c, run, worst, found, sizeof found);
    case_data_free(c, &run->data);
    free(run);
    if (!found[0])
        return true;
    case_describe(c, line, sizeof line);
    snprintf(failure, capacity, "%s\n    case: %s", found, line);
    return false;
}

bool case_run(const decode_case *c, bound_worst *worst, char *failure, size_t capacity)
{
    return case_run_keep(c, worst, NULL, failure, capacity);
}

const char *case_check(const decode_case *c, const case_data *data, const case_shard *shard)
{
    static _Thread_local rank_result result;
    whole_run run = {.c = c, .data = *data};
    memset(&result, 0, sizeof result);
    check_results(&run, shard, &result);
    return result.failure[0] ? result.failure : NULL;
}
