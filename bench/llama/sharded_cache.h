/* The KV cache of one sequence in all layers, as one rank holds it: dealt to the ranks in blocks,
 * and paged. Pages are taken as the sequence grows; a page has the same number in every layer.
 * decoder.c owns one. */
#ifndef BENCH_LLAMA_SHARDED_CACHE_H
#define BENCH_LLAMA_SHARDED_CACHE_H

#include <treeattn/treeattn.h>

#include "common/read_loops.h"
#include "config.h"

typedef struct sharded_cache {
    ta_device *device;
    ta_shard_map map;
    int rank;
    ta_dtype dtype;
    int32_t layers, kv_heads, head_dim;
    int32_t page_tokens, pages, taken; /* pages that there are, and that are in use */
    int32_t most_tokens;               /* of this rank, or of the rank that has most */
    char *k, *v;                       /* device memory [layer][page][token][head][dim] */
    float *k_scales, *v_scales;        /* of 8 bits: device memory [layer][page][token][head] */
    int32_t *table, *length;           /* device memory */
    size_t layer_bytes;                /* of K, and of V */
    size_t layer_scales;               /* of K, and of V: how many there are */
} sharded_cache;

/* Room for `tokens` tokens of the whole sequence. */
ta_status cache_create(ta_device *device, const llama_config *config, ta_dtype dtype, int rank,
                       int ranks, int32_t tokens, int32_t block, int32_t page_tokens,
                       sharded_cache *cache);
void cache_destroy(sharded_cache *cache);

/* From now on the sequence has `length` tokens: pages are taken for what this rank holds of it. */
ta_status cache_set_length(sharded_cache *cache, int32_t length);

/* One layer of it, for the calls of the library. */
ta_kv cache_layer(const sharded_cache *cache, int32_t layer);

/* Random numbers in all of it, for steps that follow no prompt; the same `times` times in heads
 * that follow one another. */
ta_status cache_fill(sharded_cache *cache, uint64_t seed, int32_t times);

/* Have its elements 8 bits, with a scale for each token and head? */
int cache_has_scales(const sharded_cache *cache);

/* What a step reads of it, in pieces: returns how many, or writes them too. Scales are left
 * out. */
size_t cache_pieces(const sharded_cache *cache, read_piece *pieces);

/* Bytes of K and V that are in use, and that there are. */
double cache_used_bytes(const sharded_cache *cache);
double cache_bytes(const sharded_cache *cache);

#endif
