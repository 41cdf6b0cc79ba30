/* Between the files of ta_reshard(): reshard.c has the call and the messages, reshard_cache.c the
 * caches that rows are copied out of and into. */
#ifndef TA_RESHARD_H
#define TA_RESHARD_H

#include "device/device.h"
#include "group.h"

/* A cache as one side of a move. */
typedef struct ta_reshard_cache {
    const char *name; /* "from" or "to" */
    ta_kv kv;         /* with filled strides */
    int32_t *pages;   /* its page table in host memory; NULL: not paged */
    int copied;       /* `pages` is a copy, to be freed */
} ta_reshard_cache;

typedef struct ta_resharding {
    ta_group *group;
    ta_device *device; /* NULL: host memory */
    ta_reshard_config config;
    size_t k_row, v_row; /* bytes of a token's K, and of its V */
    size_t each;         /* of an element */
    void *stream;
} ta_resharding;

/* Some tokens of one sequence in a cache. */
typedef struct ta_token_range {
    int32_t sequence, local, tokens;
} ta_token_range;

/* Check what the caller gave, and get the page table to the host. `held` is what this rank has, or
 * will have, of each sequence. */
ta_status ta_reshard_open(const ta_resharding *r, const ta_kv *kv, int32_t tokens,
                          const int32_t *held, ta_reshard_cache *cache);
void ta_reshard_close(ta_reshard_cache *cache);

/* Copy tokens out of the cache to dense rows, K to `k` and V to `v`, or with `store` the other way;
 * in stream order. */
ta_status ta_reshard_copy(const ta_resharding *r, const ta_reshard_cache *cache,
                          ta_token_range range, char *k, char *v, int store);

#endif
