/* See reshard_case.h. */
#include "reshard_case.h"

#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "device/device.h"
#include "number.h"
#include "options.h"

/* Bounds of a resharding are those of all sequences; cases that have others get blocks. */
static void simplify(decode_case *c)
{
    c->prefixes = false; /* whole caches move: each sequence has pages for all of its own */
    c->k_scale = c->v_scale = CASE_SCALES_NONE; /* they are a tensor of their own */
    if (c->bounds != CASE_BOUNDS_NONE || !c->plan.map.block) {
        c->bounds = CASE_BOUNDS_NONE;
        c->plan.map.block = c->plan.map.block ? c->plan.map.block : 5;
    }
}

reshard_case reshard_case_make(uint64_t seed, int ranks)
{
    reshard_case j = {.c = {case_random_on(seed, ranks), case_random_on(seed, ranks)}};
    decode_case other = case_random_on(seed + 5000, ranks);
    j.c[1].plan.map = other.plan.map;
    j.c[1].bounds = other.bounds;
    memcpy(j.c[1].weights, other.weights, sizeof other.weights);
    j.c[1].paged = other.paged;
    j.c[1].page_tokens = other.page_tokens;
    j.c[1].spare_pages = other.spare_pages;
    j.c[1].orderly_pages = other.orderly_pages;
    simplify(&j.c[0]);
    simplify(&j.c[1]);
    if (seed % 5 == 0 && ranks > 2) { /* as a block-cyclic map of two ranks */
        j.fewer = 2;
        j.c[1].plan.map.kind = TA_SHARD_WEIGHTED;
        memset(j.c[1].weights, 0, sizeof j.c[1].weights);
        j.c[1].weights[0] = j.c[1].weights[1] = 1;
    }
    for (int i = 0; i < 2; ++i)
        case_data_make(&j.c[i], &j.data[i]);
    return j;
}

static ta_shard_map map_of(const reshard_case *j, int which)
{
    ta_shard_map map = j->c[which].plan.map;
    if (map.kind == TA_SHARD_WEIGHTED)
        map.bounds = j->c[which].weights;
    if (which == 1 && j->fewer) {
        map.kind = TA_SHARD_BLOCK_CYCLIC;
        map.ranks = j->fewer;
        map.bounds = NULL;
    }
    return map;
}

static ta_reshard_config config_of(const reshard_case *j)
{
    const ta_plan_config *p = &j->c[0].plan;
    ta_reshard_config config = TA_RESHARD_CONFIG_INIT;
    config.from = map_of(j, 0);
    config.to = map_of(j, 1);
    config.batch = p->batch;
    config.kv_heads = p->kv_heads;
    config.k_dim = p->k_dim;
    config.v_dim = p->v_dim;
    config.kv_dtype = p->kv_dtype;
    config.from_tokens = j->data[0].max_tokens;
    config.to_tokens = j->data[1].max_tokens;
    config.lengths = j->c[0].lengths;
    return config;
}

static ta_status decode(const reshard_case *j, int which, ta_group *group, ta_device *device,
                        case_shard *shard)
{
    ta_plan *plan = NULL;
    void *workspace = NULL;
    TA_TRY(case_plan_make(&j->c[which], &j->data[which], group, device, &workspace, &plan));
    ta_status status = case_fill(shard);
    if (status == TA_OK)
        status = case_queue(&j->c[which], plan, shard, NULL);
    if (status == TA_OK)
        status = ta_device_synchronize(device, NULL);
    if (status == TA_OK)
        status = case_copy_all(shard, false);
    ta_plan_destroy(plan);
    if (workspace)
        device->ops->free(device, workspace);
    TA_TRY(status);
    const char *wrong = case_check(&j->c[which], &j->data[which], shard);
    return wrong ? ta_fail(TA_ERR_DEVICE, "decode with map %d: %s", which, wrong) : TA_OK;
}

static void *copy_of(const case_buffer *b)
{
    size_t bytes = b->memory ? (size_t)b->count * number_bytes(b->dtype) : 0;
    void *copy = malloc(bytes + 1);
    if (b->memory)
        memcpy(copy, b->memory, bytes);
    return copy;
}

static bool is_copy(const case_buffer *b, const void *copy)
{
    return !b->memory || !memcmp(b->memory, copy, (size_t)b->count * number_bytes(b->dtype));
}

/* Take K and V out of the second shard, and have them back from the first. */
static ta_status refill(const reshard_case *j, ta_group *group, ta_device *device,
                        case_shard shards[2])
{
    ta_reshard_config config = config_of(j);
    case_shard *to = &shards[1];
    void *k = copy_of(&to->k), *v = copy_of(&to->v);
    bool outside = j->fewer && ta_group_rank(group) >= j->fewer;
    number_poison(to->k.dtype, to->k.memory, to->k.count);
    if (to->v.memory)
        number_poison(to->v.dtype, to->v.memory, to->v.count);
    ta_status status = case_copy_all(to, true);
    if (status == TA_OK)
        status = ta_reshard(group, device, &config, &shards[0].kv, outside ? NULL : &to->kv, NULL);
    if (status == TA_OK)
        status = case_copy_all(to, false);
    if (status == TA_OK && (!is_copy(&to->k, k) || !is_copy(&to->v, v)))
        status = ta_fail(TA_ERR_DEVICE, "other bytes than those of the map");
    free(k);
    free(v);
    return status;
}

ta_status reshard_case_rank(ta_group *threads, void *context)
{
    reshard_case *j = context;
    ta_device *device = NULL;
    ta_group *group = threads;
    case_shard shards[2];
    ta_status status;
    for (int i = 0; i < 2; ++i)
        case_shard_make(&j->c[i], &j->data[i], ta_group_rank(threads), &shards[i]);
    TA_TRY_GOTO(case_rank_open(threads, options.device, NULL, &device, &group), free_shards);
    for (int i = 0; i < 2; ++i)
        TA_TRY_GOTO(case_shard_to_device(&shards[i], device), free_shards);
    TA_TRY_GOTO(decode(j, 0, group, device, &shards[0]), free_shards);
    TA_TRY_GOTO(refill(j, group, device, shards), free_shards);
    status = decode(j, 1, group, device, &shards[1]);

free_shards:
    if (status != TA_OK && group != threads)
        ta_group_abort(group, ta_last_error());
    for (int i = 0; i < 2; ++i)
        case_shard_free(&shards[i]);
    case_rank_close(threads, device, group);
    return status;
}

void reshard_case_free(reshard_case *j)
{
    for (int i = 0; i < 2; ++i)
        case_data_free(&j->c[i], &j->data[i]);
}
