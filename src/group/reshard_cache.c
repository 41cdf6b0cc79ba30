/* The caches of ta_reshard(): see reshard.h. Rows that are neighbours in memory are copied
 * together: of a dense cache a range at once, of a dense paged one a page at a time. */
#include "reshard.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arguments.h"
#include "base/status.h"

static ta_status copy(const ta_resharding *r, void *to, const void *from, size_t bytes)
{
    if (r->device)
        return r->device->ops->copy(r->device, to, from, bytes, r->stream);
    memcpy(to, from, bytes);
    return TA_OK;
}

/* ---- Checks ---------------------------------------------------------------------------------- */

static ta_status check_pages(const ta_resharding *r, const ta_reshard_cache *cache,
                             const int32_t *held)
{
    const ta_kv *kv = &cache->kv;
    for (int32_t b = 0; b < r->config.batch; ++b) {
        int64_t pages = ((int64_t)held[b] + kv->page_tokens - 1) / kv->page_tokens;
        if (pages > kv->page_table_stride)
            return ta_fail(TA_ERR_INVALID,
                           "%s.page_table_stride is %lld: sequence %d has %lld pages on rank %d",
                           cache->name, (long long)kv->page_table_stride, (int)b, (long long)pages,
                           ta_group_rank(r->group));
        for (int64_t i = 0; i < pages; ++i) {
            int32_t page = cache->pages[b * kv->page_table_stride + i];
            if (page < 0 || page >= kv->page_count)
                return ta_fail(TA_ERR_INVALID,
                               "%s.page_table[%d][%lld] is %d: must be from 0 to %d", cache->name,
                               (int)b, (long long)i, (int)page, (int)kv->page_count - 1);
        }
    }
    return TA_OK;
}

/* On the host the table is used where it is. */
static ta_status fetch_pages(const ta_resharding *r, ta_reshard_cache *cache)
{
    size_t entries = (size_t)r->config.batch * (size_t)cache->kv.page_table_stride;
    cache->pages = (int32_t *)cache->kv.page_table;
    if (!r->device || entries == 0)
        return TA_OK;
    cache->pages = malloc(entries * sizeof *cache->pages);
    cache->copied = 1;
    if (!cache->pages)
        return ta_fail(TA_ERR_NO_MEMORY, "no memory for a page table of %zu entries", entries);
    TA_TRY(copy(r, cache->pages, cache->kv.page_table, entries * sizeof *cache->pages));
    return r->device->ops->synchronize(r->device, r->stream);
}

static ta_status open_pages(const ta_resharding *r, const int32_t *held, ta_reshard_cache *cache)
{
    const ta_kv *kv = &cache->kv;
    char stride[32];
    if (kv->page_tokens < 1 || kv->page_count < 0)
        return ta_fail(TA_ERR_INVALID,
                       "%s.page_tokens and page_count are %d and %d: must be 1 and 0 or more",
                       cache->name, (int)kv->page_tokens, (int)kv->page_count);
    snprintf(stride, sizeof stride, "%s.page_table_stride", cache->name);
    TA_TRY(ta_check_table_stride(stride, kv->page_table_stride, r->config.batch));
    TA_TRY(fetch_pages(r, cache));
    return check_pages(r, cache, held);
}

static ta_status fill(const ta_resharding *r, ta_reshard_cache *cache, const char *which,
                      int32_t tokens, int32_t dim, size_t bytes, ta_tensor *tensor)
{
    const ta_kv *kv = &cache->kv;
    char name[16];
    snprintf(name, sizeof name, "%s.%s", cache->name, which);
    ta_tensor_shape shape = {name,
                             kv->page_table ? kv->page_count : r->config.batch,
                             kv->page_table ? kv->page_tokens : tokens,
                             r->config.kv_heads,
                             dim,
                             r->config.kv_dtype};
    TA_TRY(ta_tensor_fill(tensor, &shape, tensor));
    size_t reach = ta_tensor_reach(tensor, &shape);
    if (reach && !tensor->data)
        return ta_fail(TA_ERR_INVALID, "%s.data is NULL: must point to the cache", name);
    if (bytes && reach > bytes)
        return ta_fail(TA_ERR_INVALID, "%s_bytes is %zu: the cache has %zu", name, bytes, reach);
    return cache->name[0] == 't' ? ta_tensor_check_distinct(tensor, &shape) : TA_OK;
}

ta_status ta_reshard_open(const ta_resharding *r, const ta_kv *kv, int32_t tokens,
                          const int32_t *held, ta_reshard_cache *cache)
{
    cache->kv = *kv;
    if (kv->bounds)
        return ta_fail(TA_ERR_INVALID,
                       "%s.bounds is set: must be NULL, config.%s has the shard map", cache->name,
                       cache->name);
    for (int32_t b = 0; !kv->page_table && b < r->config.batch; ++b)
        if (held[b] > tokens)
            return ta_fail(TA_ERR_INVALID,
                           "config.%s_tokens is %d: rank %d holds %d tokens of sequence %d",
                           cache->name, (int)tokens, ta_group_rank(r->group), (int)held[b], (int)b);
    if (kv->page_table)
        TA_TRY(open_pages(r, held, cache));
    TA_TRY(fill(r, cache, "k", tokens, r->config.k_dim, kv->k_bytes, &cache->kv.k));
    return fill(r, cache, "v", tokens, r->config.v_dim, kv->v_bytes, &cache->kv.v);
}

void ta_reshard_close(ta_reshard_cache *cache)
{
    if (cache->copied)
        free(cache->pages);
}

/* ---- Copies ---------------------------------------------------------------------------------- */

static ta_status copy_one(const ta_resharding *r, char *cached, char *packed, size_t bytes,
                          int store)
{
    return store ? copy(r, cached, packed, bytes) : copy(r, packed, cached, bytes);
}

/* Tokens that are in one page. */
static ta_status copy_rows(const ta_resharding *r, const ta_tensor *t, int32_t dim, int64_t outer,
                           int64_t inner, int64_t tokens, char *packed, int store)
{
    int32_t heads = r->config.kv_heads;
    size_t vector = (size_t)dim * r->each, row = (size_t)heads * vector;
    char *cached =
        (char *)t->data + (size_t)(outer * t->batch_stride + inner * t->token_stride) * r->each;
    int dense_heads = heads == 1 || t->head_stride == dim;
    if (dense_heads && t->token_stride == (int64_t)heads * dim)
        return copy_one(r, cached, packed, row * (size_t)tokens, store);
    for (int64_t i = 0; i < tokens; ++i) {
        char *from = cached + (size_t)(i * t->token_stride) * r->each;
        char *at = packed + (size_t)i * row;
        if (dense_heads) {
            TA_TRY(copy_one(r, from, at, row, store));
            continue;
        }
        for (int32_t h = 0; h < heads; ++h)
            TA_TRY(copy_one(r, from + (size_t)(h * t->head_stride) * r->each,
                            at + (size_t)h * vector, vector, store));
    }
    return TA_OK;
}

ta_status ta_reshard_copy(const ta_resharding *r, const ta_reshard_cache *cache,
                          ta_token_range range, char *k, char *v, int store)
{
    const ta_kv *kv = &cache->kv;
    for (int32_t done = 0, next; done < range.tokens; done += next) {
        int64_t outer = range.sequence, inner = range.local + done;
        next = range.tokens - done;
        if (kv->page_table) {
            outer = cache->pages[range.sequence * kv->page_table_stride + inner / kv->page_tokens];
            inner %= kv->page_tokens;
            if (next > kv->page_tokens - inner)
                next = (int32_t)(kv->page_tokens - inner);
        }
        TA_TRY(copy_rows(r, &kv->k, r->config.k_dim, outer, inner, next,
                         k + (size_t)done * r->k_row, store));
        TA_TRY(copy_rows(r, &kv->v, r->config.v_dim, outer, inner, next,
                         v + (size_t)done * r->v_row, store));
    }
    return TA_OK;
}
