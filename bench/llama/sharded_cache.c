/* See sharded_cache.h. */
#include "sharded_cache.h"

#include <stdlib.h>
#include <string.h>

#include "common/elements.h"

static size_t page_bytes(const sharded_cache *c)
{
    return (size_t)c->page_tokens * (size_t)c->kv_heads * (size_t)c->head_dim *
           element_bytes(c->dtype);
}

int cache_has_scales(const sharded_cache *c)
{
    return element_bytes(c->dtype) == 1;
}

/* Scales of 1, until a token has its own. */
static ta_status make_scales(sharded_cache *c, float **scales)
{
    size_t count = c->layer_scales * (size_t)c->layers;
    float *ones = malloc(count * sizeof *ones);
    ta_status status = TA_ERR_NO_MEMORY;
    for (size_t i = 0; ones && i < count; i++)
        ones[i] = 1;
    if (ones)
        status = ta_device_alloc(c->device, count * sizeof *ones, (void **)scales);
    if (status == TA_OK)
        status = ta_device_copy(c->device, *scales, ones, count * sizeof *ones, NULL);
    free(ones);
    return status;
}

ta_status cache_create(ta_device *device, const llama_config *config, ta_dtype dtype, int rank,
                       int ranks, int32_t tokens, int32_t block, int32_t page_tokens,
                       sharded_cache *cache)
{
    sharded_cache c = {.device = device, .rank = rank, .dtype = dtype, .page_tokens = page_tokens};
    ta_shard_map map = TA_SHARD_MAP_INIT;
    int32_t own;
    map.kind = TA_SHARD_BLOCK_CYCLIC;
    map.ranks = ranks;
    map.block = block;
    c.map = map;
    c.layers = config->layers;
    c.kv_heads = config->kv_heads;
    c.head_dim = config->head_dim;
    ta_status status = ta_shard_count(&map, 0, tokens, &c.most_tokens); /* nobody has more */
    if (status == TA_OK)
        status = ta_shard_count(&map, rank, tokens, &own);
    if (status != TA_OK)
        return status;
    c.pages = (own + page_tokens - 1) / page_tokens;
    c.pages = c.pages ? c.pages : 1;
    c.layer_bytes = (size_t)c.pages * page_bytes(&c);
    c.layer_scales = (size_t)c.pages * (size_t)page_tokens * (size_t)c.kv_heads;
    size_t bytes = c.layer_bytes * (size_t)c.layers;
    status = ta_device_alloc(device, bytes, (void **)&c.k);
    if (status == TA_OK)
        status = ta_device_alloc(device, bytes, (void **)&c.v);
    if (status == TA_OK)
        status = ta_device_alloc(device, (size_t)c.pages * sizeof *c.table, (void **)&c.table);
    if (status == TA_OK)
        status = ta_device_alloc(device, sizeof *c.length, (void **)&c.length);
    if (status == TA_OK && cache_has_scales(&c))
        status = make_scales(&c, &c.k_scales);
    if (status == TA_OK && cache_has_scales(&c))
        status = make_scales(&c, &c.v_scales);
    *cache = c;
    if (status == TA_OK)
        status = cache_set_length(cache, 0);
    if (status != TA_OK)
        cache_destroy(cache);
    return status;
}

void cache_destroy(sharded_cache *cache)
{
    ta_device_free(cache->device, cache->v_scales);
    ta_device_free(cache->device, cache->k_scales);
    ta_device_free(cache->device, cache->length);
    ta_device_free(cache->device, cache->table);
    ta_device_free(cache->device, cache->v);
    ta_device_free(cache->device, cache->k);
    *cache = (sharded_cache){0};
}

ta_status cache_set_length(sharded_cache *cache, int32_t length)
{
    int32_t own;
    ta_status status = ta_shard_count(&cache->map, cache->rank, length, &own);
    while (status == TA_OK && cache->taken * cache->page_tokens < own) {
        /* The pool is taken from its end, so that nothing works by pages that follow one
         * another. */
        int32_t page = cache->pages - 1 - cache->taken;
        status =
            ta_device_copy(cache->device, cache->table + cache->taken++, &page, sizeof page, NULL);
    }
    if (status == TA_OK)
        status = ta_device_copy(cache->device, cache->length, &length, sizeof length, NULL);
    return status;
}

ta_kv cache_layer(const sharded_cache *cache, int32_t layer)
{
    ta_kv kv = TA_KV_INIT;
    kv.k.data = cache->k + (size_t)layer * cache->layer_bytes;
    kv.v.data = cache->v + (size_t)layer * cache->layer_bytes;
    kv.k_bytes = kv.v_bytes = cache->layer_bytes;
    kv.lengths = cache->length;
    kv.page_table = cache->table;
    kv.page_table_stride = cache->pages;
    kv.page_tokens = cache->page_tokens;
    kv.page_count = cache->pages;
    if (cache_has_scales(cache)) {
        int64_t page = (int64_t)cache->page_tokens * cache->kv_heads;
        size_t at = (size_t)layer * cache->layer_scales;
        kv.k_scale = (ta_scales){cache->k_scales + at, page, cache->kv_heads, 1};
        kv.v_scale = (ta_scales){cache->v_scales + at, page, cache->kv_heads, 1};
    }
    return kv;
}

/* One layer of K or of V, through memory of the host. */
static ta_status fill_layer(sharded_cache *cache, char *to, char *numbers, int32_t layer,
                            uint64_t seed, int32_t times)
{
    size_t head = (size_t)cache->head_dim * element_bytes(cache->dtype);
    int64_t heads = (int64_t)(cache->layer_bytes / head);
    int64_t count = heads / times * cache->head_dim;
    char *copies = times > 1 ? malloc(cache->layer_bytes) : numbers;
    if (!copies)
        return TA_ERR_NO_MEMORY;
    element_fill(cache->dtype, numbers, layer * count, count, seed, 1);
    for (int64_t i = 0; times > 1 && i < heads; i++)
        memcpy(copies + (size_t)i * head, numbers + (size_t)(i / times) * head, head);
    ta_status status = ta_device_copy(cache->device, to + (size_t)layer * cache->layer_bytes,
                                      copies, cache->layer_bytes, NULL);
    if (copies != numbers)
        free(copies);
    return status;
}

ta_status cache_fill(sharded_cache *cache, uint64_t seed, int32_t times)
{
    uint64_t own = (seed + 1) * 1000 + (uint64_t)cache->rank;
    char *numbers = malloc(cache->layer_bytes);
    ta_status status = numbers ? TA_OK : TA_ERR_NO_MEMORY;
    for (int32_t layer = 0; status == TA_OK && layer < cache->layers; layer++) {
        status = fill_layer(cache, cache->k, numbers, layer, own * 0x9e3779b97f4a7c15u, times);
        if (status == TA_OK)
            status = fill_layer(cache, cache->v, numbers, layer, own * 0xbf58476d1ce4e5b9u, times);
    }
    free(numbers);
    return status;
}

size_t cache_pieces(const sharded_cache *cache, read_piece *pieces)
{
    size_t count = 0, used = (size_t)cache->taken * page_bytes(cache) / 8 * 8;
    size_t unused = cache->layer_bytes - used;
    for (int32_t layer = 0; used && layer < cache->layers; layer++) {
        const char *starts[] = {cache->k, cache->v};
        for (int i = 0; i < 2; i++, count++)
            if (pieces)
                pieces[count] =
                    (read_piece){starts[i] + (size_t)layer * cache->layer_bytes + unused, used};
    }
    return count;
}

double cache_used_bytes(const sharded_cache *cache)
{
    return 2.0 * cache->layers * cache->taken * (double)page_bytes(cache);
}

double cache_bytes(const sharded_cache *cache)
{
    return 2.0 * cache->layers * (double)cache->layer_bytes;
}
